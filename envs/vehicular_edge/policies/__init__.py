"""Policies without learning: functions of a view of a batch and of their noise, for the original and the port alike.

A policy is `policy(view, noise) -> {"target": int32 [B, Nc, J], "share": float32 [B, A1]}`, the integer form of an
action. Shares need not be normalised: the environment divides each CPU block and power pair by its sum.
"""

from collections.abc import Callable

from .rules import greedy, local, nearest_edge, random, rounding
from .search import backpressure, drift_plus_penalty
from .views import Action, Noise, View, namespace, on_stream, view_of_original, view_of_port

__all__ = [
    "POLICIES", "Action", "Noise", "View", "backpressure", "drift_plus_penalty", "greedy", "local", "namespace",
    "nearest_edge", "on_stream", "random", "rounding", "view_of_original", "view_of_port",
]  # fmt: skip

POLICIES: dict[str, Callable[[View, Noise], Action]] = {
    policy.__name__: policy
    for policy in (local, nearest_edge, random, rounding, greedy, drift_plus_penalty, backpressure)
}
