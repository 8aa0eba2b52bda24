"""Scales that the original divides by: running maxima (Q11), or budgets and a frozen calibration."""

import numpy as np

from ..params import DRIFTS, FAMILIES, Params
from .nodes import Network, Queue

POWER_COSTS = ("power_v2v", "power_v2i")


class Scales:
    """Largest costs and backlogs, least and largest drifts so far (Q10); they outlive an episode."""

    def __init__(self, params: Params, first: dict[str, np.ndarray]):
        """`first` holds the first values by their names in the state."""
        self.params = params
        self.running = {name: scale.tolist() for name, scale in first.items()}

    def _over(self, value: float, largest: float) -> float:
        if largest > 0.0:
            return value / largest
        return 1.0 if self.params.zero_max_is_one else 0.0  # Q19

    def _raise(self, name: str, values: list[float]) -> list[float]:
        largest = self.running[name]
        for n, value in enumerate(values):
            largest[n] = max(largest[n], value)
        return largest

    def cost(self, kind: str, values: list[float], network: Network, calibration) -> list[float]:
        """Costs of the entities of a kind over the largest so far, or over their budgets or the calibration."""
        if self.params.running_scales:  # Q11
            return list(map(self._over, values, self._raise(f"cost_{kind}", values)))
        if kind in ("i2i", "i2c"):
            largest = float(getattr(calibration, f"cost_{kind}"))
            return [value / largest for value in values]
        if kind in POWER_COSTS:
            return [value / client.budget_mw for value, client in zip(values, network.clients, strict=True)]
        nodes = {"lc": network.clients, "vc": network.servers, "ec": network.edges, "cc": [network.cloud]}[kind]
        return [value / node.cpu for value, node in zip(values, nodes, strict=True)]

    def raise_backlogs(self, reported: dict[str, list[float]]):
        if self.params.running_scales:
            for family, backlogs in reported.items():
                self._raise(f"max_{family}", backlogs)

    def backlogs(self, reported: dict[str, list[float]], calibration) -> dict[str, list[float]]:
        """Backlogs as they are observed, by family."""
        if self.params.running_scales:
            return {
                name: list(map(self._over, values, self.running[f"max_{name}"])) for name, values in reported.items()
            }
        scale = dict(zip(FAMILIES, np.asarray(calibration.backlog).tolist(), strict=True))
        return {name: [value / scale[name] for value in values] for name, values in reported.items()}

    def drift(self, family: str, queues: list[Queue], calibration) -> list[float]:
        """Contribution of each queue of a family to the published drift (Q10)."""
        left = [(queue.start - queue.capacity) * queue.arrived for queue in queues]
        if not self.params.running_scales:
            scale = float(calibration.drift[DRIFTS.index(family)])
            return [min(abs(phi) / scale, 1.0) for phi in left]
        most, least = self._raise(f"drift_max_{family}", left), self.running[f"drift_min_{family}"]
        for n, phi in enumerate(left):
            least[n] = min(least[n], phi)
        return [0.0 if phi == 0.0 else phi / (least[n] if phi < 0.0 else most[n]) for n, phi in enumerate(left)]
