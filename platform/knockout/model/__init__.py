"""From an `Architecture` to a network: `build` is the way in, one family of parts a file.

The invariant: nothing here draws from a global random generator while building.
"""

from knockout.model.building import build
from knockout.model.network import Network, Prediction

__all__ = ["Network", "Prediction", "build"]
