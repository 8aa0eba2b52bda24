"""Tables that the kernel reads and writes (`struct Tables` in layout.cuh)."""

import numpy as np

from .params import Params
from .scenario import Scenario

PROBLEM = ("nodes", "earliest", "latest", "load", "stop", "there")
ANSWER = ("costs", "walks", "vehicles", "ok")
BETWEEN = PROBLEM + ANSWER


def of_scenario(scenario: Scenario) -> dict[str, np.ndarray]:
    """The tables that a kernel reads."""
    names = {"travel": "travel", "trips": "trip", "trip_count": "trip_count", "threshold": "threshold", "kind": "type"}
    names |= {"service": "service", "demand": "demand"}
    found = {table: np.array(getattr(scenario, name), np.int32) for table, name in names.items()}
    return found | {"unit_xy": scenario.unit_xy.astype(np.float32)}


def between(params: Params, num_envs: int) -> dict[str, np.ndarray]:
    """Problems and answers that pass between the kernels of so many environments and an oracle outside."""
    rows = num_envs * (1 if params.reward == "growth" else 2)
    found = {name: np.zeros((rows, params.nodes), np.int32) for name in PROBLEM[:-1]}
    return found | {
        "there": np.zeros((rows, params.nodes), np.uint8),
        "costs": np.zeros(rows, np.int32),
        "walks": np.zeros((rows, params.walk_length), np.int16),
        "vehicles": np.zeros(rows, np.int32),
        "ok": np.zeros(rows, np.uint8),
    }
