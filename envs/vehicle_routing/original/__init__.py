"""The sequential original: travellers ask for rides, are offered shifts, and an oracle prices all requests.

Plain Python and integer ticks, written like README.md. Every switch of `Params` works on its own, so the published
model (preset "original"), the corrected one and any mixture are one code. All other forms are compared with it.
"""

from .environment import VehicleRouting, make
from .state import get_state, set_state

__all__ = ["VehicleRouting", "get_state", "make", "set_state"]
