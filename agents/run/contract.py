"""Checks that an environment of one's own keeps the contract of agents/README.md, made once before it is relied on.

Each function raises ValueError with one sentence: class and method, what was found, what it must be. They look at
types, shapes and devices only, so nothing waits for the device.
"""

import inspect
import math
from collections.abc import Collection, Mapping
from numbers import Integral

import numpy as np
import torch
from gymnasium.vector import AutoresetMode

from lockstep import envs

ATTRIBUTES = ("num_envs", "device", "single_observation_space", "single_action_space", "reset", "step")
OF_STEP = ("observations", "reward", "terminated", "truncated", "infos")
STATISTICS = ("episodes", "return_mean", "length_mean")
KINDS = {"float": lambda dtype: dtype.is_floating_point, "bool": lambda dtype: dtype == torch.bool}


def agents_of(env) -> int | None:
    """The number of an environment's agents; None where there is one and no axis for it."""
    if isinstance(env, envs.BatchedEnv):
        return len(env.agents) or None
    return getattr(env, "num_agents", None)


def is_joint(env) -> bool:
    """Tells of an environment that its agents share observation, reward and end, as a port's trait or its own."""
    return bool(getattr(getattr(env, "port", env), "joint", False))


def taken(env, action: torch.Tensor) -> torch.Tensor:
    """An action in a type that a batch of `envs` takes; for an environment of one's own it is what it is."""
    types = env.actions.types if isinstance(env, envs.BatchedEnv) else (action.dtype,)
    return action if action.dtype in types else action.to(types[0])


def observed(env, obs) -> torch.Tensor:
    """The observations [B, n] or, of several agents, [B, A, n] that an action is asked for."""
    n, agents = env.single_observation_space.shape[-1], agents_of(env)
    axes = ("B", *([] if agents is None else [agents]), n)
    if not isinstance(obs, torch.Tensor):
        raise ValueError(f"obs must be a tensor [{', '.join(map(str, axes))}], got {type(obs).__name__}")
    if obs.ndim not in (2, len(axes)) or obs.shape[-1] != n:
        raise ValueError(f"obs has the shape {list(obs.shape)}; it must be [{', '.join(map(str, axes))}], any B")
    return obs


def of_active(action: torch.Tensor, active: torch.Tensor | None, obs: torch.Tensor) -> torch.Tensor:
    """The actions [B, ...] or [B, A, ...], 0 where bool [B] or [B, A] does not say that they count; None: all do.

    obs: [B, n] or [B, A, n], which the actions are for.

    Raises:
        ValueError: flags of another shape or type.
    """
    if active is None:
        return action
    require_flags(active, obs)
    flags = active.to(action.device).view(*active.shape, *[1] * (action.dim() - active.dim()))
    return torch.where(flags, action, 0)


def require_flags(active: torch.Tensor | None, obs: torch.Tensor) -> None:
    """Raises ValueError unless flags are bool, one for each row of observations [B, n] or [B, A, n]; None: all act."""
    if active is None:
        return
    if not isinstance(active, torch.Tensor) or active.dtype != torch.bool or active.shape != obs.shape[:-1]:
        raise ValueError(f"active must be bool {list(obs.shape[:-1])}, as the observations are, not {_words(active)}")


def require_all_used(env) -> None:
    """Raises ValueError where an agent uses a part of its action alone, as those of a team do."""
    sizes = getattr(env, "action_sizes", None)
    if sizes is not None and min(sizes) < math.prod(env.single_action_space.shape):
        raise ValueError(f"agents use {' and '.join(map(str, sizes))} numbers of an action; each must use all")


def require_attributes(env) -> None:
    """Checks what an environment has before its first reset."""
    if env is None or isinstance(env, int | float | type):
        raise ValueError(f"environment={env!r} must be a name, or an object as agents/README.md describes it")
    name = type(env).__name__
    lacking = [attribute for attribute in ATTRIBUTES if not hasattr(env, attribute)]
    if lacking:
        raise ValueError(f"{name} lacks {', '.join(lacking)}; agents/README.md says what an environment has")
    agents = agents_of(env)
    for attribute, count in {"num_envs": env.num_envs, "num_agents": 1 if agents is None else agents}.items():
        if isinstance(count, bool) or not isinstance(count, Integral) or count < 1:
            raise ValueError(f"{name}.{attribute} is {count!r}; it must be an integer of at least 1")
    try:
        torch.device(env.device)
    except (RuntimeError, TypeError):
        raise ValueError(f"{name}.device is {env.device!r}; it must be a torch.device or its name") from None
    mode = getattr(env, "autoreset_mode", AutoresetMode.SAME_STEP)
    try:
        AutoresetMode(mode)
    except ValueError:
        known = ", ".join(repr(one.value) for one in AutoresetMode)
        raise ValueError(f"{name}.autoreset_mode is {mode!r}; it must be one of {known}") from None
    shape = getattr(env.single_observation_space, "shape", None)
    if not shape or shape[:-1] not in ((), () if agents is None else (agents,)):
        raise ValueError(
            f"{name}.single_observation_space has the shape {None if shape is None else list(shape)}; it must be one "
            "axis [n] (images are not supported)"
        )
    _require_parts(env, name, agents)
    for method in ("reset", "step"):
        if not callable(getattr(env, method)):
            raise ValueError(f"{name}.{method} must be a method")
    if hasattr(env, "state") != hasattr(env, "set_state"):
        has, lacks = ("state", "set_state") if hasattr(env, "state") else ("set_state", "state")
        raise ValueError(f"{name} has {has}() but not {lacks}(); it must have both or neither")
    try:
        inspect.signature(env.reset).bind(seed=0)
    except TypeError:
        raise ValueError(f"{name}.reset must take a seed: reset(seed=...)") from None


def _require_parts(env, name: str, agents: int | None) -> None:
    """Checks what a team asks for: how many numbers of an action each agent uses, and which belong together."""
    space = env.single_action_space
    width = space.shape[0] if getattr(space, "shape", None) else 1
    sizes = getattr(env, "action_sizes", None)
    if sizes is not None:
        fits = len(sizes) == (agents or 1) and all(isinstance(size, Integral) and 1 <= size <= width for size in sizes)
        if not fits:
            raise ValueError(
                f"{name}.action_sizes is {sizes!r}; it must be {agents or 1} integers, each from 1 to {width}"
            )
    groups = getattr(env, "action_groups", None)
    if groups is not None:
        numbers, found = sum(sizes or [width] * (agents or 1)), np.asarray(groups)
        if found.ndim != 2 or found.shape[1] != numbers or not np.issubdtype(found.dtype, np.integer):
            raise ValueError(
                f"{name}.action_groups is {found.dtype} {list(found.shape)}; it must be integers [levels, {numbers}]"
            )


def require_reset(env, answer, masks: int, device: torch.device) -> None:
    """Checks what the first reset gave; `masks` is the width of an action mask, 0 where the action space has none."""
    where = f"{type(env).__name__}.reset"
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise ValueError(f"{where} must return observations and infos, not {_words(answer)}")
    obs, infos = answer
    _require(f"{where}: observations", obs, "float", _shapes(env)["observations"], device)
    _require_infos(env, where, infos, masks, device)
    if hasattr(env, "statistics"):
        where, figures = f"{type(env).__name__}.statistics", env.statistics()
        if not isinstance(figures, Mapping):
            raise ValueError(f"{where} must return a dict of {', '.join(STATISTICS)}, not {_words(figures)}")
        for name in STATISTICS:
            _require(f"{where}: {name}", figures.get(name), None, [()], device)


def require_step(env, answer, first: Collection[str], masks: int, device: torch.device) -> None:
    """Checks what the first step gave; `first` are the names in the infos of the reset."""
    where, shapes = f"{type(env).__name__}.step", _shapes(env)
    if not isinstance(answer, tuple | list) or len(answer) != len(OF_STEP):
        raise ValueError(f"{where} must return {', '.join(OF_STEP)}, not {_words(answer)}")
    obs, reward, terminated, truncated, infos = answer
    _require(f"{where}: observations", obs, "float", shapes["observations"], device)
    team = " (a team's reward must be expanded to that)" if agents_of(env) else ""
    _require(f"{where}: reward", reward, "float", shapes["reward"], device, team)
    _require(f"{where}: terminated", terminated, "bool", shapes["flags"], device)
    _require(f"{where}: truncated", truncated, "bool", shapes["flags"], device)
    _require_infos(env, where, infos, masks, device)
    if "final_obs" not in infos:
        needed = _needed("float", shapes["observations"], device)
        raise ValueError(f"{where}: infos lack 'final_obs', which must be {needed}")
    _require(f"{where}: final_obs", infos["final_obs"], "float", shapes["observations"], device)
    for name in ("active", "action_mask"):
        if (name in first) != (name in infos):
            has, lacks = ("reset", "step") if name in first else ("step", "reset")
            raise ValueError(f"{where}: infos of {has} have {name!r} and those of {lacks} lack it; both must have it")


def _require_infos(env, where: str, infos, masks: int, device: torch.device) -> None:
    if not isinstance(infos, Mapping):
        raise ValueError(f"{where}: infos must be a dict, not {_words(infos)}")
    if "active" in infos:
        _require(f"{where}: active", infos["active"], "bool", _shapes(env)["flags"], device)
    if "action_mask" in infos:
        if not masks:
            space = type(env.single_action_space).__name__
            raise ValueError(f"{where}: infos have 'action_mask', but actions of a {space} cannot be masked")
        shapes = [(*shape, masks) for shape in _shapes(env)["reward"]]
        _require(f"{where}: action_mask", infos["action_mask"], "bool", shapes, device)


def _shapes(env) -> dict[str, list[tuple[int, ...]]]:
    """The shapes that are allowed."""
    B, A, n = env.num_envs, agents_of(env), env.single_observation_space.shape[-1]
    rows = [(B,)] if A is None else [(B, 1), (B,)] if A == 1 else [(B, A)]
    return {"observations": [(*row, n) for row in rows], "reward": rows, "flags": list(dict.fromkeys([*rows, (B,)]))}


def _require(what: str, value, kind: str | None, shapes, device: torch.device, more: str = "") -> None:
    fits = isinstance(value, torch.Tensor) and value.shape in shapes and (kind is None or KINDS[kind](value.dtype))
    here = fits and value.device.type == device.type and device.index in (None, value.device.index)
    if not here:
        raise ValueError(f"{what} must be {_needed(kind, shapes, device)}{more}, not {_words(value)}")


def _needed(kind: str | None, shapes, device: torch.device) -> str:
    return f"a {kind + ' ' if kind else ''}tensor {' or '.join(str(list(shape)) for shape in shapes)} on {device}"


def _words(value) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)} on {value.device}"
    if isinstance(value, tuple | list):
        return f"{len(value)} things"
    return "None" if value is None else f"a {type(value).__name__}"
