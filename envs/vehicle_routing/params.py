"""Parameters, presets and switches of vehicle routing.

Axes: B environments, n requests, N nodes, Z zones, M trips of a traveller.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Literal

from ..presets import bounded, of_preset

TICKS = 10  # of a minute
MOST_REQUESTS = 1000
MOST_HORIZON = 1_000_000  # min
MOST = 1_000_000  # seats, vehicles, and riders of a request: sums of them stay within int32
THRESHOLDS, STEP_THRESHOLD = 7, 5  # F_early, F_late: number of values from 0 on, and min from one to the next


def _number(default: float, **allowed):
    return field(default=default, metadata=allowed)


def _switch(part: str):
    return field(default=False, metadata={"switch": part})


@dataclass(frozen=True)
class Params:
    """One configuration (README.md, 1 and 3).

    Raises:
        ValueError: a value of the wrong kind or out of range; names the field, the value and what is allowed.
    """

    mode: Literal["darp", "vrptw"] = "darp"
    requests: int = _number(30, least=1, most=MOST_REQUESTS)  # n, decisions of an episode
    capacity: int = _number(8, least=1, most=MOST)  # Q
    horizon: float = _number(1440.0, positive=True, most=MOST_HORIZON, whole=True)  # H, min
    fleet: Literal["unlimited", "soft", "hard"] = "unlimited"
    fleet_size: int = _number(5, least=1, most=MOST)  # K
    extra_vehicle: float = _number(50.0, least=0.0, most=10_000, whole=True)  # min, of each above K in a soft fleet
    max_ride: float = _number(0.0, least=0.0, most=MOST_HORIZON, whole=True)  # min; 0: none
    preshift: bool = True
    shift_penalty: float = _number(0.02, least=0.0)  # w, min per min of accepted shift
    reward: Literal["growth", "twin", "percent"] = "growth"
    failure_reward: float = -5000.0

    # Behaviour of the published code that `corrected` mends; README.md, 3, has a line on each.
    flat_gae: bool = _switch("learner")
    batch_statistics: bool = _switch("oracle")
    unmasked_ratio: bool = _switch("learner")
    one_obligation: bool = _switch("oracle")
    early_end: bool = _switch("oracle")
    shared_end: bool = _switch("oracle")
    unseeded_instances: bool = _switch("environment")
    reward_imbalance: bool = _switch("learner")
    gradient_through_weights: bool = _switch("learner")
    threshold_acceptance: bool = _switch("environment")
    rebuild_oracle: bool = _switch("oracle")
    stuck_after_failure: bool = _switch("environment")
    row_minus_one: bool = _switch("learner")
    sampled_evaluation: bool = _switch("learner")
    drop_remainder: bool = _switch("learner")
    raw_observation: bool = _switch("environment")
    lookahead_mask: bool = _switch("oracle")
    shrinking_windows: bool = _switch("environment")
    partial_checkpoint: bool = _switch("learner")
    raw_scales: bool = _switch("oracle")  # and learner
    full_size_only: bool = _switch("oracle")

    def __post_init__(self):
        for spec in fields(self):
            object.__setattr__(self, spec.name, _checked(spec, getattr(self, spec.name)))

    # ---- what follows from the numbers

    @property
    def paired(self) -> bool:
        """True if a request has a pickup and a drop-off."""
        return self.mode == "darp"

    @property
    def nodes(self) -> int:
        """N, with the depot."""
        return (2 if self.paired else 1) * self.requests + 1

    @property
    def horizon_ticks(self) -> int:
        return round(self.horizon * TICKS)

    @property
    def extra_vehicle_ticks(self) -> int:
        return round(self.extra_vehicle * TICKS)

    @property
    def max_ride_ticks(self) -> int:
        return round(self.max_ride * TICKS)

    @property
    def walk_length(self) -> int:
        """Places of the longest walk of a day."""
        return self.places(self.requests)

    def places(self, requests: int) -> int:
        """Places of the longest walk over so many requests, the depot that it starts from included."""
        return 4 * requests + 2 if self.lookahead_mask else 3 * requests + 1


SWITCHES = tuple(spec.name for spec in fields(Params) if "switch" in spec.metadata)  # D1 .. D21, in this order
PRESETS = {
    "corrected": {},
    "original": {"shift_penalty": 0.2} | {name: True for name in SWITCHES if name != "row_minus_one"},
}


def _checked(spec, value):
    """The value of a field of `Params`."""
    value = bounded(spec, value)
    if "whole" in spec.metadata and abs(value * TICKS - round(value * TICKS)) > 1e-6:
        raise ValueError(f"{spec.name}={value} must be a multiple of {1 / TICKS} min")
    return value


def make_params(preset: str | None = None, options: Iterable[str] = (), **chosen) -> Params:
    """The parameters of a preset (None: "corrected") with single ones replaced.

    Args:
        options: further names, which an error knows.

    Raises:
        ValueError: an unknown preset or parameter (the nearest known name is given), or what `Params` refuses.
    """
    return of_preset("vehicle_routing", Params, PRESETS, preset, chosen, options)
