"""Claims that need no run: exact counts, and properties checked in float64."""
