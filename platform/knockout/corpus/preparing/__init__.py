"""The stages from sources to shards, and who does their tasks."""
