"""The sequential original: two agents offload the tasks of vehicles, and share power and CPU among them.

Objects and loops in float64, written like README.md. Every switch of `Params` works on its own, so the published model
(preset "original"), the corrected one ("physical") and any mixture are one code. All other forms are compared with it.
"""

from .environment import VehicularEdge, make
from .state import get_state, set_state

__all__ = ["VehicularEdge", "get_state", "make", "set_state"]
