"""How the warm parent of training processes begins: `python -m knockout.training.nursery_start OWNER`.

The invariant: before it imports anything heavy, it is bound to the life of its owner, the process OWNER.
"""

from __future__ import annotations

import gc
import os
import sys

from knockout.training.dying import die_with


def start(owner: int) -> None:
    """Import what trains, and serve until there is no owner."""
    die_with(owner)
    from knockout.services.importing import uncollected  # from here on the owner may not live long enough for an import

    with uncollected():
        from knockout.training.nursery import main

    gc.freeze()  # no fork looks for garbage among the 800,000 objects of the libraries, which would copy their pages
    main()


if __name__ == "__main__":
    start(int(sys.argv[1]))
    os._exit(0)  # taking torch down would cost a second or more, and there is nothing left to be written
