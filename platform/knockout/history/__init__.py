"""What sweeps found, night by night, and what changed against it."""
