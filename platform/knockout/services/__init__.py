"""Local services: Prefect, MLflow and a worker as processes beside the work, started by their command lines.

The invariant: nothing that this room starts outlives its owner, and it imports neither engine.
"""

from knockout.services.borrowed import Borrowing, begin, borrowed
from knockout.services.environment import apply_quiet_environment, quiet_environment
from knockout.services.servers import ServiceStatus, down, status, up, up_worker
from knockout.services.state import Service

__all__ = [
    "Borrowing",
    "Service",
    "ServiceStatus",
    "apply_quiet_environment",
    "begin",
    "borrowed",
    "down",
    "quiet_environment",
    "status",
    "up",
    "up_worker",
]
