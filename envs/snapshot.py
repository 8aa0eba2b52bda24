"""The whole state of a batch, copied out and put back: to resume bit for bit, or to start from a given state."""

from collections.abc import Mapping

import numpy as np
import torch

from .checks import integer
from .port import nearest
from .spaces import AutoresetMode

PER_ENV = (
    *("state", "elapsed", "episode", "terminated", "truncated"),
    *("final_obs", "episode_return", "episode_length", "running_return"),
)


def take(env) -> dict:
    """Copies of everything the future depends on, as `BatchedEnv.state` describes them."""
    copies = {"state": env._buffers["state"].t().clone(memory_format=torch.contiguous_format)}
    copies |= {name: env._buffers[name].clone() for name in _per_env(env) if name != "state"}
    copies["bounds"] = env._buffers["bounds"].clone()
    copies["t"] = int(env._buffers["clock"][0])
    copies["seed"] = [int(s) for s in env._buffers["seeds"].cpu().numpy()]
    return copies


def put(env, state: Mapping, rows: torch.Tensor | None):
    """Writes the keys present into the batch's buffers, in the environments of a mask; on an error nothing has changed.

    Raises:
        ValueError: as `BatchedEnv.set_state` says.
    """
    if not isinstance(state, Mapping):
        raise ValueError(f"set_state: state must be a mapping as state() returns it, got {type(state).__name__}")
    allowed = [*_per_env(env), "bounds", "t", "seed"]
    for key in state:
        if key not in allowed:
            raise ValueError(f"set_state: unknown key {key!r}{nearest(key, allowed)}")
        if rows is not None and key in ("bounds", "t", "seed"):
            raise ValueError(f"set_state: {key!r} belongs to the whole batch and cannot be masked")
    tensors = {key: _rows(env, key, state[key]) for key in _per_env(env) if key in state}
    if "state" in tensors:
        _check_state(env, tensors["state"])
    if {"elapsed", "terminated", "truncated"} & set(tensors):
        _check_elapsed(env, tensors, rows)
    bounds = _bounds(env, state["bounds"]) if "bounds" in state else None
    seeds = env._seeds(state["seed"]) if "seed" in state else None
    clock = integer("set_state: t", state["t"], 0, 2**63 - 1) if "t" in state else None

    for key, tensor in tensors.items():
        buffer = env._buffers[key].t() if key == "state" else env._buffers[key]
        buffer, tensor = _signed(buffer), _signed(tensor)
        if rows is not None:
            tensor = torch.where(rows[:, None] if buffer.ndim == 2 else rows, tensor, buffer)
        buffer.copy_(tensor)
    env._buffers["ended"].copy_(env._buffers["terminated"] | env._buffers["truncated"])
    if bounds is not None:
        env._set_bounds(bounds)
    if seeds is not None:
        env._set_seeds(seeds)
    if clock is not None:
        env._buffers["clock"].fill_(clock)


def _per_env(env) -> list[str]:
    return [name for name in PER_ENV if name != "running_return" or env.port.running_return]


def _signed(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory under a signed type: torch has few operations on uint16 and uint32."""
    return tensor.view({torch.uint16: torch.int16, torch.uint32: torch.int32}.get(tensor.dtype, tensor.dtype))


def _rows(env, key: str, value) -> torch.Tensor:
    """One key's rows on the device in the buffer's type; flags are 0 or 1, integers in range, other numbers real."""
    buffer = env._buffers[key]
    shape = tuple(buffer.t().shape if key == "state" else buffer.shape)
    try:
        tensor = value if isinstance(value, torch.Tensor) else torch.from_numpy(np.array(value))
    except (TypeError, ValueError):
        raise ValueError(f"set_state: {key} must be an array of numbers, got {value!r:.60}") from None
    if tuple(tensor.shape) != shape:
        raise ValueError(f"set_state: {key} has shape {tuple(tensor.shape)}; needed: {shape}")
    if tensor.is_complex():
        raise ValueError(f"set_state: {key} must be real, got {str(tensor.dtype).removeprefix('torch.')}")
    if buffer.dtype == torch.bool:
        _refuse(key, tensor, (tensor != 0) & (tensor != 1), "False or True")
    if key == "running_return":
        _refuse(key, tensor, ~tensor.isfinite(), "finite")
    if key in ("elapsed", "episode"):
        top = env.max_episode_steps if key == "elapsed" else 2**32 - 1
        if tensor.is_floating_point():
            raise ValueError(f"set_state: {key} must be integers, got {str(tensor.dtype).removeprefix('torch.')}")
        tensor = tensor.to(torch.int64)
        _refuse(key, tensor, (tensor < 0) | (tensor > top), f"in 0 .. {top}")
    return tensor.to(device=env.device, dtype=buffer.dtype)


def _refuse(name: str, values: torch.Tensor, wrong: torch.Tensor, allowed: str):
    if bool(wrong.any()):
        i = int(wrong.nonzero()[0])
        raise ValueError(f"set_state: {name}={values[i].item()} of environment {i} must be {allowed}")


def _check_state(env, states: torch.Tensor):
    for column, (name, limit) in enumerate(zip(env.port.state, env.port.state_limit, strict=True)):
        values = states[:, column]
        allowed = f"in [-{limit}, {limit}]" if np.isfinite(limit) else f"finite in {env.dtype}"
        # The limit is the smallest that float32 may round it to.
        _refuse(name, values, ~(values.abs() <= max(limit, float(np.float32(limit)))) | ~values.isfinite(), allowed)


def _check_elapsed(env, tensors: Mapping, rows: torch.Tensor | None):
    """An episode that has run for as long as the limit must have ended."""
    elapsed, terminated, truncated = (
        tensors.get(name, env._buffers[name]) for name in ("elapsed", "terminated", "truncated")
    )
    elapsed = elapsed.to(torch.int64)
    # With SAME_STEP the environment is already in its next episode.
    running = ~(terminated | truncated) | (env.autoreset_mode == AutoresetMode.SAME_STEP)
    wrong = (elapsed == env.max_episode_steps) & running
    wrong = wrong if rows is None else wrong & rows
    _refuse("elapsed", elapsed, wrong, f"in 0 .. {env.max_episode_steps - 1}, its episode being unfinished")


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
