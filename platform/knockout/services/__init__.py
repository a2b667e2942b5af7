"""Local services: Prefect, MLflow and a worker as processes beside the work, started by their command lines.

The invariant: nothing that this room starts outlives its owner, and it imports neither engine.
"""

from knockout.services.borrowed import Borrowing, begin, borrowed
from knockout.services.environment import apply_quiet_environment, quiet_environment
from knockout.services.servers import ServiceStatus, all_of, begin_up, down, status, up, up_worker
from knockout.services.state import Service

__all__ = [
    "Borrowing",
    "Service",
    "ServiceStatus",
    "all_of",
    "apply_quiet_environment",
    "begin",
    "begin_up",
    "borrowed",
    "down",
    "quiet_environment",
    "status",
    "up",
    "up_worker",
]
