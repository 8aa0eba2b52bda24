"""Two ferries as a port: agents that end by themselves, scenarios, three types of state, an auction between kernels."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from gymnasium.spaces import Box

from ...batch.port import Field, Port, World
from ...checks import integer

AGENTS = ("north", "south")
OBSERVED = 11  # numbers of an observation


@dataclass(frozen=True)
class Params:
    steps: int = 40  # of an episode
    crates: int = 16  # that a ferry sets out with, a multiple of 4
    tide: int = 24  # steps after which the piers are where they were
    speed: float = 0.25  # km that full thrust moves a ferry in a step
    current: float = 0.0625  # km to the east in a step
    gust: float = 0.125  # km at most, along each axis, in a step
    pull: float = 0.25  # share of the way to its pier that a first tow takes a ferry; the n-th takes 1/n of that
    berth: float = 0.5  # km around its pier, within which a ferry has landed
    shoals: float = 2.0  # km north and south of the fairway, beyond which it sinks
    washed_per_mille: int = 5  # probability that a crate goes overboard in a step, in thousandths
    purse: float = 20.0  # EUR at first
    fuel: float = 0.5  # EUR for a step of full thrust along one axis
    highest_bid: float = 4.0  # EUR for a tow
    hull: float = 50.0  # EUR that a sunk ferry costs

    def __post_init__(self):
        if self.crates < 4 or self.crates % 4:
            raise ValueError(f"crates={self.crates} must be a positive multiple of 4")
        if self.tide < 1:
            raise ValueError(f"tide={self.tide} must be at least 1")


@dataclass(frozen=True)
class Scenario:
    """A day at the strait; ferry a starts in the west and lands at pier a."""

    pier: np.ndarray  # [tide, A, 2] km east and north, at each step of the tide
    worth: np.ndarray  # [A, crates] cents for a crate that lands


def draw(params: Params, seed: int, number: int) -> Scenario:
    """Scenario `number` of a seed: piers 3 to 4 km to the east that swing by up to 1 km from north to south."""
    rng = np.random.default_rng((seed, number))
    east, reach, lag = rng.uniform((3, 0.5, 0), (4, 1, 2 * math.pi), (len(AGENTS), 3)).T
    turn = 2 * math.pi * np.arange(params.tide)[:, None] / params.tide + lag
    pier = np.stack([np.broadcast_to(east, turn.shape), reach * np.sin(turn)], axis=-1)
    return Scenario(pier, rng.integers(50, 500, (len(AGENTS), params.crates)))


def pool_of(params: Params, scenarios: int | Sequence[Scenario], seed: int) -> list[Scenario]:
    """Scenarios as given, or so many drawn ones; ValueError where they are not of the sizes of the parameters."""
    if isinstance(scenarios, int):
        return [draw(params, seed, number) for number in range(integer("scenarios", scenarios, 1, 2**31 - 1))]
    for number, one in enumerate(scenarios):
        found, needed = (one.pier.shape[0], one.worth.shape[1]), (params.tide, params.crates)
        if found != needed:
            raise ValueError(f"scenarios[{number}] has {found} steps of the tide and crates; needed: {needed}")
    return list(scenarios)


def world(
    port: Port,
    preset: str | None,
    params: Mapping,
    scenarios: int | Sequence[Scenario] = 4,
    scenario_seed: int = 0,
) -> World:
    """A pool of scenarios, one of which each episode plays: how many to draw, and from what seed, or given ones."""
    chosen = port.make_params(preset, params)
    pool = pool_of(chosen, scenarios, scenario_seed)

    def tables(dtype: str, num_envs: int) -> dict[str, np.ndarray]:
        pier, worth = (np.stack([getattr(one, name) for one in pool]) for name in ("pier", "worth"))
        return {"pier": pier.astype(dtype), "worth": worth.astype(np.int32)}

    return World(chosen, scenarios=len(pool), tables=tables, shown={"scenarios": pool})


def state(params: Params) -> tuple[Field, ...]:
    """Fields of the state, in the order of kernel.cuh; A ferries."""
    A = len(AGENTS)
    return (
        Field("position", (A, 2)),  # km east and north
        Field("money", (A,), "float64"),  # EUR
        Field("bid", (A,), "float64", low=0.0),  # EUR, of the last auction of the tug
        Field("price", (), "float64", low=0.0),  # EUR that its winner pays
        Field("tug", (), "int32", low=-1, high=A - 1),  # who won it, -1 nobody
        Field("tows", (A,), "int32", low=0, high=2**30),  # won so far
        Field("aboard", (A, params.crates), "int32", low=0, high=1),  # crates that are still there
    )


def settle(env):
    """The auction, between two kernels: the tug goes to the higher bid, of equals to the first, for the lower one."""
    fields = env.fields()
    bid = fields["bid"]  # [B, A]
    higher = (bid[:, 1] > bid[:, 0]).int()
    fields["tug"].copy_(higher.masked_fill(bid.amax(dim=1) == 0, -1))
    fields["price"].copy_(bid.amin(dim=1))


PORT = Port(
    title="Ferries",
    params=Params,
    presets={"calm": {}, "storm": {"gust": 0.5, "washed_per_mille": 40}},
    default_preset="calm",
    lanes=8,
    agents=AGENTS,
    state=state,
    observation=lambda params: Box(-np.inf, np.inf, (OBSERVED,), np.float32),
    action=Box(np.array([-1, -1, 0], np.float32), np.ones(3, np.float32), dtype=np.float32),
    horizon=lambda params: params.steps,
    world=world,
    metrics={"price": 1, "crates": len(AGENTS)},
    phases=("propose", settle, "step"),
)
