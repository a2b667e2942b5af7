"""Keeping a workspace in order: what is wrong in it, what can be set right, and what may go.

The invariant: without being told to, nothing is changed but what every command sets right first (leases of dead processes,
and whose ledger it is in a workspace that was copied or moved), which is said; and what is set right loses no result.
"""
