"""Keeping a workspace in order: what is wrong in it, what can be set right, and what may go.

The invariant: without being told to, nothing is changed; and what is set right loses no result.
"""
