"""Setting Prefect right as a command does, in a process of its own."""

RECONCILE = """if True:
    import sys
    from pathlib import Path
    from knockout.cli.flows import load_flow
    from knockout.ledger.store import Ledger
    from knockout.ledger.workspace import Workspace
    from knockout.services import apply_quiet_environment
    place = Workspace(Path(sys.argv[1]))
    apply_quiet_environment(place.folder)
    room = load_flow("reconciling", server=sys.argv[2])
    room.SETTLE_SECONDS = room.BEGIN_SECONDS = 0.0
    print(*sorted(room.reconcile(Ledger(place))))"""
"""Its arguments are the workspace's folder and the server's address; it prints what it set right."""
