"""The whole state of a batch, copied out and put back: to resume bit for bit, or to start from a given state."""

from collections.abc import Mapping

import numpy as np
import torch

from . import state_checks
from .checks import integer

PER_ENV = (
    *("state", "elapsed", "episode", "terminated", "truncated"),
    *("final_obs", "episode_return", "episode_length", "running_return"),
)
WHOLE = ("bounds", "t", "seed")


def take(env) -> dict:
    """Copies of everything the future depends on, as `BatchedEnv.state` describes them."""
    copies = {"state": env._buffers["state"].t().clone(memory_format=torch.contiguous_format)}
    copies |= {name: state_checks.copied(env._buffers[name]) for name in _per_env(env) if name != "state"}
    copies["bounds"] = env._buffers["bounds"].clone()
    copies["t"] = int(env._buffers["clock"][0])
    copies["seed"] = [int(s) for s in env._buffers["seeds"].cpu().numpy()]
    return copies


def put(env, state: Mapping, rows: torch.Tensor | None):
    """Writes the keys present into the batch's buffers, in the environments of a mask; on an error nothing has changed.

    Raises:
        ValueError: as `BatchedEnv.set_state` says.
    """
    state_checks.require_keys(state, _per_env(env), WHOLE, rows is not None)
    targets = {key: _target(env, key) for key in _per_env(env) if key in state}
    tensors = {key: _rows(env, key, state[key], target) for key, target in targets.items()}
    if "state" in tensors:
        _check_state(env, tensors["state"])
    state_checks.require_unfinished(env, "elapsed", tensors, rows)
    bounds = _bounds(env, state["bounds"]) if "bounds" in state else None
    seeds = env._seeds(state["seed"]) if "seed" in state else None
    clock = integer("set_state: t", state["t"], 0, 2**63 - 1) if "t" in state else None

    state_checks.write(env, targets, tensors, rows)
    if bounds is not None:
        env._set_bounds(bounds)
    if seeds is not None:
        env._set_seeds(seeds)
    if clock is not None:
        env._buffers["clock"].fill_(clock)


def _per_env(env) -> list[str]:
    return [name for name in PER_ENV if name != "running_return" or env.port.running_return]


def _target(env, key: str) -> torch.Tensor:
    """The buffer [B, ...] that a key goes to."""
    return env._buffers[key].t() if key == "state" else env._buffers[key]


def _rows(env, key: str, value, target: torch.Tensor) -> torch.Tensor:
    """One key's rows on the device in the buffer's type; flags are 0 or 1, integers in range, other numbers real."""
    tensor = state_checks.array(key, value, tuple(target.shape))
    if target.dtype == torch.bool:
        state_checks.require_flags(key, tensor)
    elif key == "running_return":
        state_checks.refuse(key, tensor, ~tensor.isfinite(), "finite")
    elif not target.dtype.is_floating_point:
        highest = {"elapsed": env.max_episode_steps, "episode": 2**32 - 1}
        tensor = state_checks.integers(key, tensor, highest.get(key, 2**31 - 1))
    return tensor.to(device=env.device, dtype=target.dtype)


def _check_state(env, states: torch.Tensor):
    for column, (name, limit) in enumerate(zip(env.port.state, env.port.state_limit, strict=True)):
        values = states[:, column]
        allowed = f"in [-{limit}, {limit}]" if np.isfinite(limit) else f"finite in {env.dtype}"
        # The limit is the smallest that float32 may round it to.
        wrong = ~(values.abs() <= max(limit, float(np.float32(limit)))) | ~values.isfinite()
        state_checks.refuse(name, values, wrong, allowed)


def _bounds(env, bounds) -> tuple[float, ...]:
    """Reset bounds as the port gives them."""
    options = env.port.reset_options
    try:
        values = np.asarray(bounds.cpu() if isinstance(bounds, torch.Tensor) else bounds, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"set_state: bounds must be numbers, got {bounds!r:.60}") from None
    if values.shape != (len(options),):
        raise ValueError(f"set_state: bounds have shape {values.shape}; needed: ({len(options)},)")
    # The standard bounds come back as themselves, not as their float32 neighbours.
    exact = {float(np.dtype(env.dtype).type(value)): value for value in env.port.reset_bounds({})}
    return env.port.reset_bounds(
        {name: exact.get(value, value) for name, value in zip(options, values.tolist(), strict=True)}
    )
