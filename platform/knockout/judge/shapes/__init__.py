"""The shapes of what a claim may expect, each measured on the runs of its cells: from a claim to its evidence."""
