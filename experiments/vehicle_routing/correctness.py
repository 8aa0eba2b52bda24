"""Vehicle routing's port compared with its original under each setting that is named: steps, days, their distribution.

Times are whole ticks, so that walks, costs, windows and flags have to be equal; rewards and returns are rounded. Both
types of arithmetic differ in returns alone, so float64 is compared under the first setting. So are the two forms of
the learned oracle: one kernel, and torch operations.
"""

import functools
import itertools
import math
from collections.abc import Iterator, Mapping

import numpy as np

from lockstep.envs.vehicle_routing.oracles.attention import Attention
from lockstep.envs.vehicle_routing.oracles.attention.problems import Nodes
from lockstep.envs.vehicle_routing.params import make_params
from lockstep.envs.vehicle_routing.scenario import city
from lockstep.experiments import config, walk
from lockstep.experiments.bench.parameters import params_of
from lockstep.experiments.config import Settings
from lockstep.experiments.originals import Game
from lockstep.experiments.vehicle_routing.oracles import days, stacked
from lockstep.experiments.verdicts import equal

NEAR_TIES = {"float32": 1e-3, "float64": 0.0}  # share of learned walks that rounding may decide


def walks(name: str, settings: Settings) -> list["Days"]:
    """The settings that the YAML names."""
    return [Days(name, settings, label) for label in settings.correctness["names"]]


class Ride(Game):
    """An original whose state lacks the clock, as decisions count steps."""

    def put(self, index: int, state: Mapping):
        if index not in self.made:
            self.begin(index)
            self.made[index] = self.original
        self.original, self.over = self.made[index], False
        self.module.set_state(self.original, {name: value for name, value in state.items() if name != "elapsed"})

    def read(self) -> dict:
        found = super().read()
        return found | {"elapsed": found["t"]}


class Days(walk.Walk):
    """The days of one setting."""

    told = ()  # every difference of an episode is judged

    def __init__(self, name: str, settings: Settings, label: str):
        self.label = label
        super().__init__(name, settings)

    def check(self):
        self.known("names", [self.label], self.asked.settings, "setting")
        self.options = self.asked.settings[self.label].plain()
        config.check_options(f"{self.where}.settings.{self.label}", self.options, self.port)
        super().check()

    def comparisons(self, devices: list[str]) -> Iterator[tuple]:
        first = self.label == self.asked["names"][0]
        types = list(walk.DTYPES)[: None if first else 1]
        yield None, walk.coverage
        for device, dtype in itertools.product(devices, types):
            for visitor in ("port", "original"):
                yield None, walk.transition, device, dtype, visitor
            yield None, walk.episode, device, dtype, "random"
        for device in devices:
            yield functools.partial(self.own_episodes, "random"), walk.distribution, device, "random"
        for dtype in types if "cuda" in devices else ():
            yield None, walk.devices_agree, dtype
        for device, dtype in itertools.product(devices, NEAR_TIES) if first else ():
            yield None, decoded_alike, device, dtype

    @functools.cached_property
    def declared(self) -> Mapping:
        return self.port.fields(params_of(self.port, self.options))

    @functools.cached_property
    def game(self) -> Game:
        return Ride(self.name, self.seed, **self.options)

    @functools.cache  # noqa: B019 - one object lives as long as the run
    def cases(self, device: str, dtype: str, part: str) -> tuple[dict, np.ndarray, dict]:
        return super().cases(device, dtype, part)

    def reached(self) -> tuple[int, dict[str, int]]:
        """The number of steps, and of those of each kind that the model knows."""
        before, actions, theirs = self.cases("cpu", "float32", "port")
        n, served = len(actions), theirs["failed"] == 0
        accepted = theirs["accepted"][np.arange(n), before["t"]] > 0
        more = routes(theirs["walk"]) - routes(before["walk"])
        counts = {
            "requests that are shifted": accepted & (actions != 12),
            "requests that refuse a shift": ~accepted,
            "requests that take a further vehicle": served & (more > 0),
            "requests that join others": served & (more <= 0),
            "last requests": theirs["terminated"],
        }
        if self.options.get("fleet") == "hard":
            counts["requests for which the fleet does not suffice"] = ~served
        return n, {what: int(met.sum()) for what, met in counts.items()}


def decoded_alike(days_of: Days, device: str, dtype: str) -> Iterator[dict]:
    """Walks of the shipped learned oracle: one kernel's against those of torch operations, for the same requests."""
    params = make_params()
    scenario = city(params=params)
    columns = stacked(days(scenario, params, days_of.seed, max(1, days_of.asked.states // 20), params.requests // 2))
    nodes = Nodes.of(*columns, np.ones(columns[0].shape, bool), device=device)
    fused, torch = (
        Attention(params, scenario.travel, form=form, dtype=dtype).answers(nodes) for form in ("fused", "torch")
    )
    different = (fused.walk != torch.walk).any(dim=1).cpu().numpy()
    place, title = ("transition", "fused-torch", device, dtype), days_of.titled("walks of the learned oracle")
    yield equal(place, title, different, math.ceil(NEAR_TIES[dtype] * len(different)))


def routes(walks: np.ndarray) -> np.ndarray:
    """Routes [n] of walks [n, W]."""
    return ((walks[:, :-1] != 0) & (walks[:, 1:] == 0)).sum(axis=1)
