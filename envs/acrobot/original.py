"""The original: Gymnasium's own Acrobot, with its state made accessible."""

from .. import gymnasium_original
from ..gymnasium_original import get_state, set_state
from .port import PORT

__all__ = ["get_state", "make", "set_state"]


def make(render_mode: str | None = None, **params):
    """Gymnasium's Acrobot-v1 with its time limit; `params` as in `port.Params`."""
    return gymnasium_original.make(PORT, render_mode, params)
