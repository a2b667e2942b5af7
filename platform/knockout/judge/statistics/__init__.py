"""Tests and intervals that are exact at a handful of seeds; numbers in, p-values and intervals out."""
