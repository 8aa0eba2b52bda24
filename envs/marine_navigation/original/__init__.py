"""The sequential original: robots sail to their goals among vortices and round obstacles.

Objects and loops in float64, written like README.md. Every switch of `Params` works on its own, so the published model
(preset "original"), the corrected one and any mixture are one code. All other forms are compared with it.
"""

from .environment import MarineNavigation, make
from .state import get_state, set_state

__all__ = ["MarineNavigation", "get_state", "make", "set_state"]
