"""Vehicle routing's port compared with its original under each setting that is named: steps, days, their distribution.

Times are whole ticks, so that walks, costs, windows and flags have to be equal; rewards and returns are rounded. Both
types of arithmetic differ in returns alone, so float64 is compared under the first setting.
"""

import functools
import itertools
from collections.abc import Iterator, Mapping

import numpy as np

from lockstep.experiments import config, walk
from lockstep.experiments.config import Settings
from lockstep.experiments.originals import Game


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
        types = list(walk.DTYPES)[: None if self.label == self.asked["names"][0] else 1]
        yield None, walk.coverage
        for device, dtype in itertools.product(devices, types):
            for visitor in ("port", "original"):
                yield None, walk.transition, device, dtype, visitor
            yield None, walk.episode, device, dtype, "random"
        for device in devices:
            yield functools.partial(self.own_episodes, "random"), walk.distribution, device, "random"
        for dtype in types if "cuda" in devices else ():
            yield None, walk.devices_agree, dtype

    @functools.cached_property
    def declared(self) -> Mapping:
        return self.port.fields(config.params_of(self.port, self.options))

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


def routes(walks: np.ndarray) -> np.ndarray:
    """Routes [n] of walks [n, W]."""
    return ((walks[:, :-1] != 0) & (walks[:, 1:] == 0)).sum(axis=1)
