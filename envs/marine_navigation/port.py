"""Marine navigation as a port: a batch of environments of one version, whose episodes are drawn or read."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete

from ..batch import BatchedEnv, Field, Port, World
from ..batch.state import array, refuse
from ..checks import integer, places
from . import kernel_tables
from .layout import limits, state_shapes
from .params import CROSSING, HEAD_ON, MARGIN, OBSTACLE_MARGIN, PRESETS, SLOW, START_MARGIN, VERSIONS, Params
from .scenario import Mix, Scenario, Stages, curriculum_of, philox_scenario, pool_of
from .scenario.drawing import OPPOSITE, SAME_TURN_SPEED, placed

RECORD = ("x", "y", "heading", "left", "right", "valid", "reached", "hit")  # of a robot, in the order of layout.cuh
TYPES = {np.float64: "real", np.int32: "int32"}
MOST_DRAWN = 10_000  # scenarios before the first episode, some milliseconds each
EXACT = ("clear", "core_radius", "edge_speed_low", "edge_speed_high", "obstacle_low", "obstacle_high", "top_speed")


def names(params: Params) -> tuple[str, ...]:
    return tuple(f"robot_{i}" for i in range(params.robots))


def state(params: Params) -> tuple[Field, ...]:
    """Fields of the state, in the order of layout.cuh; those that would hold nothing are left out."""
    most = params.robots, params.cores, params.obstacles
    allowed = limits(params, *most)
    fields = [
        Field(name, shape, TYPES[kind], -math.inf if np.ndim(low) else low, math.inf if np.ndim(high) else high)
        for name, (shape, kind) in state_shapes(params, *most).items()
        for low, high in [allowed.get(name, (-math.inf, math.inf))]
        if 0 not in shape
    ]
    return tuple(sorted(fields, key=lambda one: one.dtype != "real"))  # as they lie in memory


def observation(params: Params) -> Box:
    return Box(-np.inf, np.inf, (params.observed,), np.float32)


def action(params: Params) -> Box | Discrete:
    return Box(-1.0, 1.0, (2,), np.float32) if params.action_kind == "continuous" else Discrete(params.choices)


def world(
    port: Port,
    preset: str | None,
    params: Mapping,
    curriculum: str | Stages | Mix | Sequence | None = None,
    scenarios: int | Scenario | str | Path | Sequence | None = None,
    batch: int | None = None,
) -> World:
    """The world that episodes are drawn from or read into.

    Args:
        preset: "corrected" (default) or "original".
        params: single parameters.
        curriculum: settings of episodes that are drawn: a name, `Stages`, `Mix`, or pairs of a setting and a weight.
        scenarios: None to draw each episode; a `Scenario`, a path of a scenario file, or a sequence of them, of which
            episode e of environment b plays number (b + e) mod N; or how many are drawn once and played so.
        batch: environments whose steps a curriculum counts, on all devices together, this batch's among them; None:
            those of this batch. Without a curriculum nothing heeds it.

    Raises:
        ValueError: naming the argument, its value and what is allowed.
    """
    if scenarios is not None and curriculum is not None:
        raise ValueError(f"curriculum={curriculum!r:.60} must be None where scenarios are given")
    chosen = port.make_params(preset, params)
    stages, pool = curriculum_of(curriculum, chosen), _pool(scenarios, chosen)
    stages = stages or Stages((0,), (chosen.setting if pool else chosen.check_setting(chosen.setting),))
    wide = chosen.widened([one.counts for one in pool] or [one[:3] for one in stages.settings])

    def tables(dtype: str, num_envs: int) -> dict[str, np.ndarray]:
        counted = num_envs if batch is None else integer("batch", batch, num_envs, 2**31 - 1)
        return kernel_tables.tables(wide, stages, pool, counted, dtype)

    return World(
        wide,
        scenarios=len(pool),
        in_turn=True,
        tables=tables,
        defines=defines(wide, stages),
        metrics=dict.fromkeys(("returns", "time", "energy"), (wide.robots,)),
        flags=dict.fromkeys(("valid", "reached", "hit_robot", "hit_obstacle"), (wide.robots,)) | {"success": ()},
        shown={"scenarios": pool} if pool else {},
    )


def _pool(given, params: Params) -> list[Scenario]:
    if given is None:
        return []
    if isinstance(given, int | np.integer) and not isinstance(given, bool):
        if given > MOST_DRAWN:
            rest = "hand over a scenario file, or leave scenarios=None, which draws each episode by itself"
            raise ValueError(f"scenarios={given} must be at most {MOST_DRAWN} where they are drawn first: {rest}")
        count = integer("scenarios", given, 1, MOST_DRAWN)
        setting = params.check_setting(params.setting)
        given = [placed(philox_scenario(params, setting, 0, n, 0), setting, n, 0) for n in range(count)]
    return pool_of(given, params, "scenarios")


def defines(params: Params, stages: Stages | Mix) -> dict[str, object]:
    """Compile-time choices besides the parameters, and those of which scenarios take the last bit, in double."""
    numbers = {name.upper(): getattr(params, name) for name in EXACT}
    numbers |= {"WIDTH_M": params.width, "HULL_RADIUS": params.hull_radius}
    numbers |= {"START_MARGIN": START_MARGIN, "OBSTACLE_MARGIN": OBSTACLE_MARGIN}
    numbers |= {"OPPOSITE": OPPOSITE, "SAME_TURN_SPEED": SAME_TURN_SPEED, "SLOW": SLOW, "MARGIN": MARGIN}
    numbers |= dict(zip(("HEAD_ON_FIRST", "HEAD_ON_LAST", "HEAD_ON_WIDE"), HEAD_ON, strict=True))
    crossing = ("CROSSING_FIRST", "CROSSING_LAST", "CROSSING_LEAST", "CROSSING_SLOPE")
    numbers |= dict(zip(crossing, CROSSING, strict=True))
    exact = {name: repr(number) for name, number in numbers.items()} | {"TURNS_WIDE": int(params.turns_wide)}
    return exact | {"STAGES": len(stages.settings), "MIXED": int(isinstance(stages, Mix))}


class MarineBatch(BatchedEnv):
    """B environments; `world` lists the options."""

    def set_state(self, state: Mapping, mask=None):
        """State of every batch, set as in `BatchedEnv`; counts and headings have limits besides (`layout.limits`)."""
        most = self.params.robots, self.params.cores, self.params.obstacles
        for name, (low, high) in limits(self.params, *most).items():
            if isinstance(state, Mapping) and name in state and np.ndim(high):
                shape, kind = state_shapes(self.params, *most)[name]
                rows = array(name, state[name], (self.num_envs, *shape), shape).expand(self.num_envs, *shape)
                least, largest = (torch.as_tensor(bound, device=rows.device) for bound in (low, high))
                if kind is np.float64 or not rows.is_floating_point():
                    refuse(name, rows, (rows < least) | (rows > largest), f"from {low} to {high}")
        super().set_state(state, mask)

    def record(self) -> dict[str, torch.Tensor]:
        """Record of the last step, [B, A] each: x, y, heading, left and right thrust in N (or own speed in m/s and 0),
        valid, and reached and hit so far; of an episode that ended its last.

        Raises:
            ValueError: made without trace=True.
        """
        if not self.trace:
            raise ValueError("record() needs trace=True")
        rows = self._buffers["record"].view(self.num_envs, self.num_agents, len(RECORD))
        return {name: rows[..., n] for n, name in enumerate(RECORD)}


def frames(env: MarineBatch, indices: Sequence[int] | int | None) -> list[np.ndarray]:
    """Pictures as the original draws them."""
    from .original import MarineNavigation, set_state
    from .original.episode import Episode
    from .original.render import picture

    game, found, rows = MarineNavigation(env.params), [], env.fields() | {"active": env._info["active"]}
    game.episode = Episode(env.params, Scenario(env.params.version, *[()] * 9), 0, 0, 0)
    for index in places(indices, env.num_envs):
        set_state(
            game, {name: torch.as_tensor(row, device=env.device)[index].cpu().numpy() for name, row in rows.items()}
        )
        found.append(picture(game.episode))
    return found


def builds(port: Port) -> Iterator[tuple[str, str, str, World, bool]]:
    """Units to compile for a check: mode, dtype, preset or another word, world, and whether a trace is kept."""

    def one(preset: str, **params) -> World:
        return port.world(port, preset, params)

    for preset, dtype in itertools.product(PRESETS, ("float32", "float64")):
        yield "SameStep", dtype, preset, one(preset), False
        for version in VERSIONS[1:]:
            yield "SameStep", dtype, f"{version}, {preset}", one(preset, version=version), False
    for mode in ("NextStep", "Disabled"):
        yield mode, "float32", "traced", one("corrected", action_kind="discrete"), True
    for dtype in ("float32", "float64"):
        yield "SameStep", dtype, "20 robots", one("corrected", robots=20, cores=8, min_goal_distance=20.0), False


PORT = Port(
    title="Marine navigation",
    params=Params,
    presets=PRESETS,
    default_preset="corrected",
    # One for each robot, and more where as many groups still fit a warp.
    lanes=lambda params: 32 // (32 // min(32, max(4, params.robots))),
    agents=names(Params()),
    team=names,
    absent=True,
    state=state,
    observation=observation,
    action=action,
    horizon=lambda params: params.limit,
    world=world,
    record=lambda params: len(RECORD) * params.robots,
    builds=builds,
    batched=MarineBatch,
    render=frames,
    exact=False,  # logarithms are a library's in float64
)
