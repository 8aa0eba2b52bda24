"""Vehicle routing as a port: a batch of environments of one scenario, and the oracle that prices their requests."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
from gymnasium.spaces import Box, Discrete

from ..batch import Field, Port, World
from . import kernel_tables
from .batch import RoutingBatch, on_host
from .layout import state_shapes
from .oracles import best_known, make_oracle
from .oracles.greedy import RULES
from .original.environment import scenario_of
from .params import PRESETS, Params, make_params
from .scenario import Scenario
from .windows import ACTIONS, latest_end

MOST_TICKS = 2**24  # of a time in a state
AMOUNTS = ("answered", "shift_min", "cost_ticks", "vehicles")  # and the walk, in the order of layout.cuh
INSIDE = ("insertion", "greedy")  # oracles that are part of the kernel


def state(params: Params) -> tuple[Field, ...]:
    """Fields of the state, in the order of layout.cuh."""
    n, nodes = params.requests, params.nodes
    limits = {
        "t": (0, n), "answered": (0, n), "failed": (0, 1), "trip": (0, 2**31 - 1), "order": (0, n - 1),
        "traveller": (-1, n - 1), "action": (-1, ACTIONS - 1), "accepted": (0, 1), "walk": (0, nodes - 1),
        "twin_walk": (0, nodes - 1), "offered": (0, MOST_TICKS), "kept": (0, MOST_TICKS),
    }  # fmt: skip
    fields = []
    for name, (shape, kind) in state_shapes(params).items():
        whole = kind is np.int32
        low, high = limits.get(name, (0, 2**31 - 1)) if whole else (-np.inf, np.inf)
        fields.append(Field(name, shape, "int32" if whole else "real", low, high))
    return tuple(sorted(fields, key=lambda one: one.dtype != "real"))  # as they lie in memory


def observation(params: Params) -> Box:
    """The original's rows, one after the other."""
    if params.raw_observation:
        return Box(0.0, np.inf, (6 * params.requests,), np.float32)
    return Box(0.0, latest_end(params) / params.horizon, (8 * params.requests,), np.float32)


def world(
    port: Port,
    preset: str | None,
    params: Mapping,
    scenario: Scenario | str | Path | None = None,
    oracle: str | Callable | None = None,
) -> World:
    """The scenario that episodes are drawn from, and the oracle.

    Args:
        preset: "corrected" (default) or "original".
        params: single parameters; mode, requests, capacity, horizon and fleet_size are otherwise those of a scenario
            that is given.
        scenario: None for the city of the parameters, a `Scenario`, or the path of a scenario file.
        oracle: None for the best known of the scenario (`best_known`), or a word (README.md, 5): "insertion" and
            "greedy:rule" are part of the kernel, learned ones answer on the device, others are asked on the host; or a
            function of the batch, which reads its `problems` and writes its `answers`. What it writes is believed, as a
            check would have to wait for the device: walks are of nodes, and cost what they say.

    Raises:
        ValueError: naming the argument, its value and what is allowed.
        ImportError: the oracle needs a library that is not installed.
    """
    if scenario is not None:
        scenario = scenario_of(scenario, Params())
        params = scenario.options() | dict(params)
    chosen = make_params(preset, port.own_options, **params)
    scenario = scenario_of(scenario, chosen).check(chosen)
    oracle = best_known(chosen, scenario.travel) if oracle is None else oracle
    asked = oracle if callable(oracle) else make_oracle(oracle, chosen, scenario.travel)
    outside = callable(oracle) or asked.name not in INSIDE
    on_device = oracle if callable(oracle) else getattr(asked, "phase", None)
    phase = on_device or on_host(asked)
    tables = kernel_tables.of_scenario(scenario)
    return World(
        chosen,
        tables=lambda dtype, num_envs: tables | kernel_tables.between(chosen, num_envs if outside else 0),
        written=kernel_tables.BETWEEN,
        defines=defines(chosen, scenario) | of_oracle(asked, outside),
        phases=("propose", phase, "step") if outside else ("step",),
        waits="" if on_device or not outside else f"oracle={oracle!r}",
        flags={"accepted": (), "failed": ()},
        amounts={name: () for name in AMOUNTS} | {"walk": (chosen.walk_length,)},
        shown={"scenario": scenario, "oracle": oracle},
    )


def defines(params: Params, scenario: Scenario) -> dict[str, object]:
    """Compile-time choices besides the parameters; what decides the last bit of a reward in double."""
    return {
        "ZONES": len(scenario.travel),
        "TRIPS": scenario.trip.shape[1],
        "DEPOT": scenario.depot,
        "FIXED": int(scenario.fixed),
        "PLAIN": int(not scenario.service.any() and (scenario.demand == 1).all()),
        "HORIZON_TICKS": params.horizon_ticks,
        "MAX_RIDE_TICKS": params.max_ride_ticks,
        "EXTRA_VEHICLE_TICKS": params.extra_vehicle_ticks,
        "SHIFT_PENALTY": repr(params.shift_penalty),
        "FAILURE_REWARD": repr(params.failure_reward),
    }


def of_oracle(asked, outside: bool) -> dict[str, int]:
    """The oracle that a kernel has in it, and the rule of a greedy one."""
    rule = getattr(asked, "rule", None)
    words = {"OUTSIDE": outside, "INSERTION": not outside and rule is None}
    return {name: int(yes) for name, yes in words.items()} | {name.upper(): int(name == rule) for name in RULES}


def builds(port: Port) -> Iterator[tuple[str, str, str, World, bool]]:
    """Units to compile for a check: mode, dtype, preset or another word, world, and whether a trace is kept."""

    def one(preset: str | None = None, oracle: str = "insertion", **options) -> World:
        return port.world(port, preset, options, oracle=oracle)

    for preset in PRESETS:
        for dtype in ("float32", "float64"):
            yield "SameStep", dtype, f"{preset}, insertion", one(preset), False
        yield "SameStep", "float32", f"{preset}, greedy", one(preset, "greedy:mixed"), False
    for mode in ("NextStep", "Disabled"):
        yield mode, "float32", "twin", one(reward="twin"), False
    yield "SameStep", "float32", "vrptw", one(mode="vrptw", fleet="hard"), False


PORT = Port(
    title="Vehicle routing",
    params=Params,
    presets=PRESETS,
    default_preset="corrected",
    lanes=32,
    state=state,
    observation=observation,
    action=Discrete(ACTIONS, dtype=np.int32),
    horizon=lambda params: params.requests + 1,  # never reached: the last decision terminates an episode
    longest_episode=lambda params: params.requests,
    world=world,
    builds=builds,
    exact={"oracle": "insertion"},  # learned oracles decide near ties as a device's matrix products do
    batched=RoutingBatch,
)
