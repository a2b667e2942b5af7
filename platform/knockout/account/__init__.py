"""Parameters, FLOPs and bytes of a declaration: closed forms, checked against the built network.

The invariant: nothing here imports torch, so a plan can be costed in milliseconds.
"""

from knockout.account.count import Account, count

__all__ = ["Account", "count"]
