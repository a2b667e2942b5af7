"""The mirror to MLflow, and the only room that imports it (when it is used, not before).

The invariant: MLflow shows, and decides nothing. Whatever is written here can be written again from the run
folders.
"""

from knockout.tracking.background import BackgroundMirror, Handle
from knockout.tracking.mirror import Mirror
from knockout.tracking.naming import State
from knockout.tracking.store import prepare, tracking_uri

__all__ = ["BackgroundMirror", "Handle", "Mirror", "State", "prepare", "tracking_uri"]
