"""Crypto trading's port compared with its original: every set of rules, in one step and in whole episodes.

An error is a difference over a scale: the capital C for money and for what units are worth at the highest price of
their asset, norm_reward C for rewards in dollars and their running sum, a price itself, and 1 for what has no unit.
Symbols: n cases, N assets.
"""

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from lockstep import envs
from lockstep.envs.crypto_trading import tables
from lockstep.envs.crypto_trading.features import prepared
from lockstep.envs.crypto_trading.original.environment import market_of
from lockstep.envs.crypto_trading.params import Params, make_params
from lockstep.envs.crypto_trading.scenario import Market, generate
from lockstep.experiments import config, walk
from lockstep.experiments.config import Settings
from lockstep.experiments.originals import Game
from lockstep.experiments.verdicts import equal

MONEY = ("cash", "value", "benchmark")
UNITS = ("holdings", "benchmark_units")
PRICES = ("average", "peak")
PIECE = 10_000  # states that are compared at once: memory does not grow with their number
ROUNDED = 2.0**-23  # of C: what holdings worth C are rounded by in float32


def walks(name: str, settings: Settings) -> list["Accounts"]:
    """Every set of rules that the YAML asks for."""
    return [Accounts(name, settings, rules) for rules in settings.correctness.rules]


@functools.cache
def market(given: str | None, params: Params) -> Market:
    """The market of a walk with its features, made once, since it takes longer than a hundred steps.

    The generated one has bars without trade and prices of 0, of every asset in turn.
    """
    shut = {
        kind: [(i, first + 7 * i, 3) for first in range(begin, 1_800, 140) for i in range(10)]
        for kind, begin in (("gaps", 40), ("zero", 60))
    }
    return prepared(generate("small", **shut) if given is None else market_of(given), params)


class Account(Game):
    """An original that is put into states of the port, which keeps `elapsed` for the bar and no cash of the holder."""

    @functools.cached_property
    def params(self) -> Params:
        own = envs.port(self.name).own_options
        return make_params(**{name: value for name, value in self.options.items() if name not in own})

    def put(self, index: int, state: Mapping):
        params = self.params
        state = {**state, "bar": params.lookback - 1 + int(state["elapsed"])}
        if not params.published_benchmark:  # what could not be bought at the first fill has no units, and stays cash
            shares = np.mean(state["benchmark_units"] == 0) if state["elapsed"] > 0 else 1.0
            state["benchmark_cash"] = params.capital * shares
        super().put(index, state)

    def drawn(self, index: int) -> Iterator[np.ndarray]:
        """Actions that differ from seed to seed, and so from piece to piece."""
        return super().drawn(index + walk.BATCH * self.seed)


class Accounts(walk.Walk):
    """Accounts under a set of rules."""

    def __init__(self, name: str, settings: Settings, rules: str):
        self.label = rules
        super().__init__(name, settings)

    def check(self):
        self.options = dict(self.asked.rules[self.label])
        config.check_options(f"{self.where}.rules.{self.label}", self.options, self.port)
        plain = {name: value for name, value in self.options.items() if name not in self.port.own_options}
        self.options["scenario"] = market(self.options.get("scenario"), make_params(**plain))
        super().check()

    def comparisons(self, devices: Sequence[str]) -> Iterator[tuple]:
        yield None, walk.coverage
        for start, compare, *arguments in super().comparisons(devices):
            yield start, transition if compare is walk.transition else compare, *arguments

    def pieces(self) -> Iterator["Accounts"]:
        """The walk itself, or walks over at most PIECE of its states each, of seeds from the settings' on."""
        if self.asked.states <= PIECE:
            yield self
            return
        for number, first in enumerate(range(0, self.asked.states, PIECE)):
            plain = self.settings.plain()
            plain["seed"] += number
            plain["correctness"]["states"] = min(PIECE, self.asked.states - first)
            yield Accounts(self.name, Settings(plain), self.label)

    def step(self, env, action) -> dict[str, np.ndarray]:
        """As of any walk; a batch says of an account that falls below the floor in the last bar that it is truncated as
        well (README.md, 6.1), the original that it is terminated."""
        found = super().step(env, action)
        return found | {"truncated": found["truncated"] & ~found["terminated"]}

    def compared(self, place: tuple, ours: Mapping, theirs: Mapping, groups: Iterable) -> Iterator[dict]:
        """Rows as any walk has them. Of steps in float32 in which the rounding of holdings decides whether an order
        reaches its minimum only the number is judged."""
        groups = list(groups)
        if place[-1] == "float32":
            params, traded = self.one.params, self.one.market
            q, price = tables.minimums(params, traded), traded.close.max(axis=0)
            apart, rounded = np.abs(ours["holdings"].astype(float) - theirs["holdings"]), ROUNDED * params.capital
            near = ((np.abs(apart - q) * price <= rounded) & (q * price > 4 * rounded)).any(axis=1)
            title = self.titled("orders that rounding lets reach their minimum", *groups[0][0])
            yield equal(place, title, near, max(1, len(near) // 100_000))
            ours, theirs = ({name: values[~near] for name, values in step.items()} for step in (ours, theirs))
        yield from super().compared(place, ours, theirs, groups)

    def scale(self, name: str, larger: np.ndarray, theirs: Mapping, level: str) -> np.ndarray | float:
        params, highest = self.one.params, self.one.market.close.max(axis=0)
        if name in MONEY:
            return params.capital
        if name in UNITS:
            return params.capital / highest
        if name in PRICES:
            return highest
        if name == "running" or (name == "reward" and (params.published or params.reward == "excess_dollar")):
            return params.norm_reward * params.capital
        return np.maximum(larger, 1)

    @functools.cached_property
    def game(self) -> Account:
        return Account(self.name, self.seed, **self.options)

    @functools.cached_property
    def visited(self) -> tuple[dict, np.ndarray, dict]:
        """States of the port [n, ...] in the first piece, actions there, and the original's steps."""
        return next(self.pieces()).cases("cpu", "float64", "port")

    def reached(self) -> tuple[int, dict[str, int]]:
        """n, and in how many steps an asset has what a careless port would get wrong."""
        before, _, after = self.visited
        params, goes_on = self.one.params, ~after["episode over"]
        held, now, age = before["holdings"], after["holdings"], before["age"] + (before["holdings"] > 0)
        row, traded = before["first"] + params.lookback + before["elapsed"], self.one.market
        price = (traded.open if params.fill == "next_open" else traded.close)[row]
        shut = (price <= 0) | (~traded.tradable[row] & (not params.published))
        due = (age >= params.hold_limit) & (held > 0)
        found = {
            "a purchase": now > held,
            "a sale of a part": (now < held) & (now > 0) & ~due,
            "a sale of all": (held > 0) & (now == 0),
            "a trim": due & (after["age"] == 0) & (now > 0),
            "an order that is not filled": (now == held) & (held > 0) & ~due & ~shut,
            "no cash for an order": (now > held) & (after["cash"] < (params.reserve + 0.02) * params.capital)[:, None],
            "what is held and cannot be traded": shut & (held > 0),
        }
        if params.stop > 0:
            found["a stop"] = (held > 0) & ~shut & (price < np.maximum(before["peak"], price) * (1 - params.stop))
        counts = {f"steps with {name}": int((met.any(axis=1) & goes_on).sum()) for name, met in found.items()}
        return len(held), counts | {"steps that end an episode": int((~goes_on).sum())}


def transition(accounts: Accounts, device: str, dtype: str, visitor: str) -> Iterator[dict]:
    """`walk.transition` piece by piece; a row tells of all of them."""
    found = [list(walk.transition(piece, device, dtype, visitor)) for piece in accounts.pieces()]
    yield from map(joined, zip(*found, strict=True))


def joined(rows: Sequence[dict]) -> dict:
    """One row of those that pieces have on one quantity."""
    first = rows[0]
    found = {
        name: sum(row[name] for row in rows) for name in ("cases", "differing", "value") if first[name] is not None
    }
    if first["error"] is not None:
        found["error"] = max((row["error"] for row in rows), key=lambda error: (math.isnan(error), error))
    if first["passed"] is not None:
        found["passed"] = all(row["passed"] for row in rows)
    return first | found
