"""The sequential original: an account that trades N assets once per bar.

Plain Python and float64, written like README.md. All other forms are compared with it.
"""

from .environment import CryptoTrading, make
from .state import get_state, set_state

__all__ = ["CryptoTrading", "get_state", "make", "set_state"]
