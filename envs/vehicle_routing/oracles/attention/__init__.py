"""The learned oracle: an attention model that makes walks node by node (README.md, 5.3)."""

from . import weights
from .oracle import Attention, AttentionFirsts, AttentionSamples

__all__ = ["Attention", "AttentionFirsts", "AttentionSamples", "weights"]
