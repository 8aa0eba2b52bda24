"""The batched environment: its traits, actions, state, roll-outs and launches."""

from .environment import OPTIONS, BatchedEnv, Graph
from .port import Field, Port, World

__all__ = ["OPTIONS", "BatchedEnv", "Field", "Graph", "Port", "World"]
