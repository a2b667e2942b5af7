"""Hyper-parameter search with Optuna, which proposes; what is run, and what counts, the ledger decides."""
