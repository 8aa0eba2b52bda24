"""Vehicular edge computing as a port: a batch of environments that play a pool of scenarios."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from gymnasium.spaces import Box

from ..batch import BatchedEnv, Field, Port, World
from ..checks import choice, integer
from . import action_groups, kernel_tables, observation, render
from .decode import decode
from .params import AGENTS, PRESETS, SWITCHES, Params, limits, queue_shapes, state_shapes
from .scenario import Scenario, draw_pool, pool_of, under

METRICS = {"admitted": 1, "dropped": 3, "energy": 1, "jain": 1}  # of a step, in the order of layout.cuh
CYCLES = ("decide", "noma", "update_queues", "read", "step")  # behind them where they are counted
WIDE_FROM = 200  # clients; a block then has 256 lanes instead of 128
COSTS = ("power_v2v", "power_v2i", "lc", "vc", "ec", "i2i", "i2c", "cc")


def record_shapes(params: Params) -> dict[tuple[str, str], tuple[int, ...]]:
    """Shape of everything that is recorded of a slot, in the order of layout.cuh."""
    Nc, Ns, Ne, J = params.clients, params.servers, params.edges, params.tasks
    shapes = {(way, name): shape for way in ("in", "out", "dep") for name, shape in queue_shapes(params).items()}
    shapes |= {("delay", way): (Nc,) for way in ("in", "out")}
    shapes |= {
        ("", "rate_v2v"): (Nc, Ns),
        ("", "rate_v2i"): (Nc, Ne),
        ("", "target"): (Nc, J),
        ("", "admitted"): (Nc, J),
    }
    lengths = (Nc, Nc, Nc, Ns, Ne, Ne, Ne, 1)
    shapes |= {("costs", name): (length,) for name, length in zip(COSTS, lengths, strict=True)}
    shapes |= {("", name): () for name in ("cost", "drift", "success", "reward", "energy", "jain")}
    return shapes | {("", "dropped"): (3,), ("", "observation"): (params.observation_length,)}


def state(params: Params) -> tuple[Field, ...]:
    """Fields of the state, in the order of layout.cuh."""
    return tuple(
        Field(name, shape, low=low, finite=finite)
        for name, shape in state_shapes(params).items()
        for low, finite in [limits(name)]
    )


def action(params: Params, signed: bool = False) -> Box:
    """The box of an agent's numbers; each agent uses the first of them, see `VehicularEdgeBatch.action_sizes`."""
    high = np.ones(params.action_length, np.float32)
    return Box(-high if signed else 0 * high, high, dtype=np.float32)


def record_length(params: Params) -> int:
    return sum(math.prod(shape) for shape in record_shapes(params).values())


def world(
    port: Port,
    preset: str | None,
    params: Mapping,
    traffic: str | None = None,
    scenarios: int | Scenario | str | Path | Sequence = 8,
    scenario_seed: int | None = None,
    gains: str = "stored",
    signed: bool = False,
    profile: bool = False,
) -> World:
    """A pool of scenarios, one of which each episode plays.

    Args:
        preset: "physical" (default) or "original".
        params: single parameters.
        traffic: the map that scenarios are drawn on, None is the arterial; given ones have theirs.
        scenarios: how many are drawn; or a `Scenario`, a path of a scenario file, or a sequence of them, whose
            parameters then hold in place of the preset's defaults.
        scenario_seed: of the drawing, None is 264.
        gains: "stored" keeps the gain of every link and slot; "drawn" computes those that are needed from positions
            and the numbers that the scenario was drawn with, in much less memory.
        signed: actions lie in [-1, 1] instead of [0, 1].
        profile: count the cycles of each stage of a step, see `VehicularEdgeBatch.cycles`; x86 and CUDA only.

    Raises:
        ValueError: naming the argument, its value and what is allowed.
    """
    drawn = choice("gains", gains, ("stored", "drawn")) == "drawn"
    choice("signed", signed, (True, False))
    choice("profile", profile, (True, False))
    pool = played_scenarios(port, scenarios, preset, traffic, scenario_seed, params)
    chosen = pool[0].params
    if drawn and chosen.draw != "philox":
        raise ValueError("gains='drawn' needs scenarios of draw='philox': others' fading is not a function of a place")
    for number, one in enumerate(pool if drawn else ()):
        if not one.has_drawn_fading:
            raise ValueError(
                f"scenarios[{number}]: its fading is not what index={one.index}, seed={one.seed} and "
                f"fading_scale={chosen.fading_scale} draw, as gains='drawn' needs it; use gains='stored'"
            )
    return World(
        chosen,
        scenarios=len(pool),
        frozen=chosen.frozen_scenario,
        tables=lambda dtype, num_envs: kernel_tables.tables(pool, chosen, dtype, drawn),
        inexact=True,  # distances and gains, by linear algebra
        defines=defines(chosen, drawn, profile, signed),
        action=action(chosen, signed),
        metrics=METRICS | ({"cycles": len(CYCLES)} if profile else {}),
        shown={"scenarios": pool, "gains": gains, "signed": signed, "profile": profile},
    )


def defines(params: Params, drawn: bool = False, profile: bool = False, signed: bool = False) -> dict[str, object]:
    """Compile-time choices of the kernel besides the parameters."""
    return {
        "GAINS_DRAWN": int(drawn),
        "PROFILE": int(profile),
        "SIGNED": int(signed),
        "CLIENT_INDEX": "u8" if params.clients <= 256 else "u16",
        "PATH_LOSS": repr(params.path_loss_exponent),
        "FADING_SCALE": repr(params.fading_scale),
        "NOISE_WATT": repr(params.noise_watt),
    }


class VehicularEdgeBatch(BatchedEnv):
    """B environments, each of which plays one scenario of a pool per episode; `world` lists the options."""

    @functools.cached_property
    def action_groups(self) -> np.ndarray:
        """Groups of numbers of an action that belong together, see `action_groups.of`."""
        return action_groups.of(self.params)

    @property
    def action_sizes(self) -> tuple[int, int]:
        """Numbers of an action that each agent uses; its tail is ignored."""
        return self.params.target_length, self.params.share_length

    def cycles(self) -> dict[str, torch.Tensor]:
        """Clock cycles [B] of the last step by stage: decide, noma, queues, rest.

        "decide" reads the action, admits, and on its walk over the tasks sums what queues and cost need; "queues" moves
        the queues and weighs the costs; the rest are reward, observation, and the state's way from memory and back.

        Raises:
            ValueError: made without profile=True.
        """
        if not self.profile:
            raise ValueError("cycles() needs profile=True")
        spent = dict(zip(CYCLES, self._info["cycles"].double().unbind(1), strict=True))
        stages = {
            "decide": spent["read"] + spent["decide"],
            "noma": spent["noma"],
            "queues": spent["update_queues"],
        }
        return stages | {"rest": spent["step"] - sum(stages.values())}

    def record(self) -> dict:
        """Record of the last step, [B, ...]: flows [Mbit] as in, out and dep of every family, in and out of the
        virtual queue `delay`, rates [bit/s], target and admitted [Nc, J], costs by kind (mW, GHz, MB m), cost, drift,
        success, reward, energy, jain, dropped, and the observation [D] after it (of an episode that ended: its last).

        Raises:
            ValueError: made without trace=True.
        """
        if not self.trace:
            raise ValueError("record() needs trace=True")
        nested: dict = {}
        for (group, name), view in _views(self._buffers["record"], record_shapes(self.params)).items():
            (nested.setdefault(group, {}) if group else nested)[name] = view
        nested["target"] = nested["target"].to(torch.int32)
        nested["admitted"] = nested["admitted"] != 0
        return nested


def _views(rows: torch.Tensor, shapes: dict) -> dict:
    """Named parts of rows [B, n], each [B, ...]."""
    views, at = {}, 0
    for name, shape in shapes.items():
        length = int(np.prod(shape))
        views[name] = rows[:, at : at + length].view(len(rows), *shape)
        at += length
    return views


def played_scenarios(port: Port, scenarios, preset, traffic, scenario_seed, params) -> list[Scenario]:
    """The scenarios of a batch, all under the same parameters; arguments and errors are those of `world`."""
    if isinstance(scenarios, int | np.integer) and not isinstance(scenarios, bool):
        count = integer("scenarios", scenarios, 1, 2**31 - 1)
        seed = 264 if scenario_seed is None else integer("scenario_seed", scenario_seed, 0, 2**64 - 1)
        chosen = port.make_params(preset, params)
        return draw_pool(chosen, "arterial" if traffic is None else traffic, count, seed)
    for name, value in {"traffic": traffic, "scenario_seed": scenario_seed}.items():
        if value is not None:
            raise ValueError(f"{name}={value!r} is for scenarios that are drawn; those given have their own")
    given = pool_of(scenarios, "scenarios")
    switches = {}
    if preset is not None:
        set_by = port.presets[choice("preset", preset, tuple(port.presets))]
        switches = {name: name in set_by for name in SWITCHES}
    own = {spec.name: getattr(given[0].params, spec.name) for spec in dataclasses.fields(Params)}
    chosen = port.make_params("physical", own | switches | params)
    names = (f"scenarios[{number}]" for number in range(len(given)))
    return [under(one, chosen, name) for one, name in zip(given, names, strict=False)]


def builds(port: Port) -> Iterator[tuple[str, str, str, World, bool]]:
    """Units to compile for a check: mode, dtype, preset or another word, world, and whether a trace is kept."""

    def one(preset: str, drawn: bool = False, signed: bool = False, **params) -> World:
        chosen = port.make_params(preset, params)
        tables = dict  # of which a unit knows no more than that there are any
        choices = defines(chosen, drawn, signed=signed)
        box = action(chosen, signed)
        return World(chosen, 1, chosen.frozen_scenario, tables=tables, defines=choices, action=box, metrics=METRICS)

    for preset, dtype in itertools.product(PRESETS, ("float32", "float64")):
        yield "SameStep", dtype, preset, one(preset), False
    for mode in ("NextStep", "Disabled"):
        yield mode, "float32", "traced", one("physical", signed=True), True
    for dtype in ("float32", "float64"):
        yield "SameStep", dtype, "500 vehicles", one("physical", drawn=True, vehicles=500, edges=25), False


PORT = Port(
    title="Vehicular edge computing",
    params=Params,
    presets=PRESETS,
    default_preset="physical",
    lanes=lambda params: 256 if params.clients >= WIDE_FROM else 128,
    agents=AGENTS,
    joint=True,
    state=state,
    observation=observation.space,
    action=action,
    horizon=lambda params: params.slots,
    world=world,
    record=record_length,
    decode=decode,
    builds=builds,
    batched=VehicularEdgeBatch,
    render=render.frames,
    exact=False,  # logarithms and powers are a library's
)
