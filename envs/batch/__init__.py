"""The batched environment: its traits, actions, state, roll-outs and launches."""

from .environment import BatchedEnv, Graph
from .port import Field, Port, World

__all__ = ["BatchedEnv", "Field", "Graph", "Port", "World"]
