"""Vehicular edge computing as a port: a batch of environments that play a pool of scenarios."""

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from ..block import BlockEnv
from ..block_port import BlockPort, Layout, Sizes
from ..checks import choice, integer
from . import action_groups as groups
from . import kernel_tables as pack
from . import observation
from .params import AGENTS, FAMILIES, PRESETS, SWITCHES, Params, queue_shapes, state_length, state_shapes
from .scenario import Scenario, draw_pool, pool_of

METRICS = ("admitted", "overflow", "cap", "coverage", "energy", "jain")  # of a step, as in layout.cuh
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


def layout(params: Params, drawn: bool = False, profile: bool = False) -> Layout:
    """Sizes and compile-time choices of the kernel."""
    sizes = Sizes(
        state=state_length(params),
        obs=params.observation_length,
        raw=(len(AGENTS), params.action_length),
        targets=(params.clients, params.tasks),
        shares=params.share_length,
        metrics=len(METRICS) + (len(CYCLES) if profile else 0),
        record=sum(int(np.prod(shape)) for shape in record_shapes(params).values()),
    )
    defines = {
        "GAINS_DRAWN": int(drawn),
        "PROFILE": int(profile),
        "CLIENT_INDEX": "u8" if params.clients <= 256 else "u16",
        "PATH_LOSS": repr(params.path_loss_exponent),
        "FADING_SCALE": repr(params.fading_scale),
        "NOISE_WATT": repr(params.noise_watt),
    }
    lanes = 256 if params.clients >= WIDE_FROM else 128
    return Layout(Path(__file__).parent, params, sizes, lanes, params.slots, defines)


class VehicularEdgeBatch(BlockEnv):
    """B environments, each of which plays one scenario of a pool per episode.

    Args:
        preset: "physical" (default) or "original".
        traffic: the map that scenarios are drawn on, None is the arterial; given ones have theirs.
        scenarios: how many are drawn; or a `Scenario`, a path of a scenario file, or a sequence of them, whose
            parameters then hold in place of the preset's defaults.
        scenario_seed: of the drawing.
        gains: "stored" keeps the gain of every link and slot; "drawn" computes those that are needed from positions
            and the numbers that the scenario was drawn with, in much less memory.
        profile: count the cycles of each stage of a step, see `cycles`; x86 and CUDA only.
        **options: of `BlockEnv`, and single parameters.

    Raises:
        ValueError: naming the argument, its value and what is allowed.
    """

    def __init__(
        self,
        port: BlockPort,
        folder: Path,
        num_envs: int,
        device="cpu",
        preset: str | None = None,
        traffic: str | None = None,
        scenarios: int | Scenario | str | Path | Sequence = 8,
        scenario_seed: int = 264,
        seed: int = 0,
        dtype: str = "float32",
        autoreset_mode="SameStep",
        gains: str = "stored",
        signed: bool = False,
        trace: bool = False,
        chunk: int | None = None,
        threads: int | None = None,
        check_actions: bool | None = None,
        first_index: int = 0,
        profile: bool = False,
        **params,
    ):
        choice("dtype", dtype, ("float32", "float64"))
        drawn = choice("gains", gains, ("stored", "drawn")) == "drawn"
        integer("num_envs", num_envs, 1, 2**31 - 1)
        self.scenarios = _pool(port, scenarios, preset, traffic, scenario_seed, params)
        chosen = self.scenarios[0].params
        if drawn and chosen.draw != "philox":
            raise ValueError(
                "gains='drawn' needs scenarios of draw='philox': others' fading is not a function of a place"
            )
        self.gains, self.profile = gains, choice("profile", profile, (True, False))
        super().__init__(
            layout(chosen, drawn, profile),
            pack.tables(self.scenarios, chosen, dtype, drawn),
            len(self.scenarios),
            num_envs,
            device,
            seed=seed,
            dtype=dtype,
            autoreset_mode=autoreset_mode,
            signed=signed,
            trace=trace,
            chunk=chunk,
            threads=threads,
            check_actions=check_actions,
            first_index=first_index,
        )
        self.single_observation_space = observation.space(chosen)
        self.action_groups = groups.of(chosen)  # which numbers of an action belong together
        metrics = self._buffers["metrics"]
        self._info |= {
            "admitted": metrics[:, 0],
            "dropped": metrics[:, 1:4],
            "energy": metrics[:, 4],
            "jain": metrics[:, 5],
        }

    num_agents = len(AGENTS)
    agents = AGENTS
    same_observation = True  # all agents see one vector

    @property
    def target_choices(self) -> int:
        """O."""
        return self.params.options

    @property
    def action_sizes(self) -> tuple[int, int]:
        """Numbers of an action that each agent uses; its tail is ignored."""
        return self.params.target_length, self.params.share_length

    def fields(self) -> dict[str, torch.Tensor]:
        """Every field of the state as a view [B, ...] of it: backlogs in Mbit, see `params.state_shapes`."""
        return _views(self._buffers["state"], state_shapes(self.params))

    @property
    def queues(self) -> dict[str, torch.Tensor]:
        """Backlogs [B, ...] of the eight families, Mbit."""
        fields = self.fields()
        return {name: fields[name] for name in FAMILIES}

    def cycles(self) -> dict[str, torch.Tensor]:
        """Clock cycles [B] of the last step by stage: decide, noma, queues, rest.

        "decide" reads the action, admits, and on its walk over the tasks sums what queues and cost need; "queues" moves
        the queues and weighs the costs; the rest are reward, observation, and the state's way from memory and back.

        Raises:
            ValueError: made without profile=True.
        """
        if not self.profile:
            raise ValueError("cycles() needs profile=True")
        spent = dict(zip(CYCLES, self._buffers["metrics"][:, len(METRICS) :].double().unbind(1), strict=True))
        stages = {
            "decide": spent["read"] + spent["decide"],
            "noma": spent["noma"],
            "queues": spent["update_queues"],
        }
        return stages | {"rest": spent["step"] - sum(stages.values())}

    def record(self) -> dict:
        """What happened in the last step, [B, ...]: flows [Mbit] as in, out and dep of every family, in and out of the
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


def _pool(port, scenarios, preset, traffic, seed, params) -> list[Scenario]:
    """The scenarios, all under the same parameters."""
    if isinstance(scenarios, int | np.integer) and not isinstance(scenarios, bool):
        count = integer("scenarios", scenarios, 1, 2**31 - 1)
        return draw_pool(port.make_params(preset or "physical", params), traffic or "arterial", count, seed)
    if traffic is not None:
        raise ValueError(f"traffic={traffic!r} is for scenarios that are drawn; those given have their own")
    given = pool_of(scenarios, "scenarios")
    switches = {}
    if preset is not None:
        set_by = port.presets[choice("preset", preset, tuple(port.presets))]
        switches = {name: name in set_by for name in SWITCHES}
    own = {spec.name: getattr(given[0].params, spec.name) for spec in dataclasses.fields(Params)}
    chosen = port.make_params("physical", own | switches | params)
    names = (f"scenarios[{number}]" for number in range(len(given)))
    return [one.under(chosen, name).check(name) for one, name in zip(given, names, strict=False)]


def units(folder: Path) -> dict[tuple[str, str, str], str]:
    """Translation units by (autoreset mode, dtype, preset or what else is particular), with default parameters."""
    found = {}

    def add(mode: str, dtype: str, word: str, params: Params, drawn: bool = False, **choices: bool):
        choices = {"signed": False, "trace": False, **choices}
        found[mode, dtype, word] = layout(params, drawn).unit(dtype, mode, **choices)

    for preset, dtype in itertools.product(PRESETS, ("float32", "float64")):
        add("SameStep", dtype, preset, PORT.make_params(preset, {}))
    for mode in ("NextStep", "Disabled"):
        add(mode, "float32", "traced", PORT.make_params("physical", {}), signed=True, trace=True)
    for dtype in ("float32", "float64"):
        add("SameStep", dtype, "500 vehicles", PORT.make_params("physical", {"vehicles": 500, "edges": 25}), drawn=True)
    return found


PORT = BlockPort(
    title="Vehicular edge computing", params=Params, presets=PRESETS, batched=VehicularEdgeBatch, units=units
)
