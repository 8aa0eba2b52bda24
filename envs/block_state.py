"""The whole state of a batch of blocks, copied out and put back: to resume bit for bit, or to start from another."""

from collections.abc import Mapping

import numpy as np
import torch

from .checks import integer
from .port import nearest
from .spaces import AutoresetMode

# Names in a state and in `struct Batch`.
PER_ENV = {
    "state": "state",
    "t": "elapsed",
    "episode": "episode",
    "scenario": "scenario",
    "terminated": "terminated",
    "truncated": "truncated",
    "running_return": "running_return",
    "final_obs": "final_obs",
    "episode_return": "episode_return",
    "episode_length": "episode_length",
}
WHOLE = ("clock", "seed")


def take(env) -> dict:
    """Copies of everything the future depends on, as `BlockEnv.state` describes them."""
    copies = {name: env._buffers[buffer].clone() for name, buffer in PER_ENV.items()}
    copies["clock"] = int(env._buffers["clock"][0])
    copies["seed"] = int(env._buffers["seeds"].cpu().numpy()[0])
    return copies


def put(env, state: Mapping, rows: torch.Tensor | None):
    """Writes the keys present into the batch's buffers, in the environments of a mask; on an error nothing has changed.

    Raises:
        ValueError: as `BlockEnv.set_state` says.
    """
    if not isinstance(state, Mapping):
        raise ValueError(f"set_state: state must be a mapping as state() returns it, got {type(state).__name__}")
    fields = env.fields()
    allowed = [*PER_ENV, *WHOLE, *fields]
    for key in state:
        if key not in allowed:
            raise ValueError(f"set_state: unknown key {key!r}{nearest(key, allowed)}")
        if rows is not None and key in WHOLE:
            raise ValueError(f"set_state: {key!r} belongs to the whole batch and cannot be masked")
    targets = {key: fields[key] if key in fields else env._buffers[PER_ENV[key]] for key in state if key not in WHOLE}
    tensors = {key: _rows(env, key, state[key], target) for key, target in targets.items()}
    _check_time(env, tensors, rows)
    seeds = env._seeds(state["seed"]) if "seed" in state else None
    clock = integer("set_state: clock", state["clock"], 0, 2**63 - 1) if "clock" in state else None

    for key, tensor in tensors.items():
        target, tensor = _signed(targets[key]), _signed(tensor)
        if rows is not None:
            tensor = torch.where(rows.reshape(-1, *[1] * (target.ndim - 1)), tensor, target)
        target.copy_(tensor)
    env._buffers["ended"].copy_(env._buffers["terminated"] | env._buffers["truncated"])
    if seeds is not None:
        env._set_seeds(seeds)
    if clock is not None:
        env._buffers["clock"].fill_(clock)


def _signed(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory under a signed type: torch has few operations on uint32."""
    return tensor.view(torch.int32) if tensor.dtype == torch.uint32 else tensor


def _rows(env, key: str, value, target: torch.Tensor) -> torch.Tensor:
    """One key's rows on the device in the type of where they go; one environment's rows go to all."""
    try:
        tensor = value if isinstance(value, torch.Tensor) else torch.from_numpy(np.array(value))
    except (TypeError, ValueError):
        raise ValueError(f"set_state: {key} must be an array of numbers, got {value!r:.60}") from None
    shape = tuple(target.shape)
    if tuple(tensor.shape) not in (shape, shape[1:]):
        raise ValueError(f"set_state: {key} has shape {tuple(tensor.shape)}; needed: {shape} or {shape[1:]}")
    tensor = _signed(tensor).expand(shape) if tensor.dtype == torch.uint32 else tensor.expand(shape)
    if target.dtype == torch.bool:
        _refuse(key, tensor, (tensor != 0) & (tensor != 1), "False or True")
    elif not target.dtype.is_floating_point:
        if tensor.is_floating_point():
            raise ValueError(f"set_state: {key} must be integers, got {str(tensor.dtype).removeprefix('torch.')}")
        top = {"t": env.max_episode_steps, "scenario": int(env._batch.scenarios) - 1, "episode": 2**32 - 1}
        high = top.get(key, 2**31 - 1)
        wide = tensor.to(torch.int64) & 0xFFFFFFFF if key == "episode" else tensor.to(torch.int64)
        _refuse(key, wide, (wide < 0) | (wide > high), f"in 0 .. {high}")
        tensor = wide
    elif key not in ("final_obs", "episode_return"):
        # A least drift that nothing has lowered yet is infinite.
        wrong = (
            tensor.isnan() | (tensor == -torch.inf) | ((tensor < 0) & (not key.startswith(("drift_", "state", "run"))))
        )
        _refuse(key, tensor, wrong, "a number that a step leads to")
    if target.dtype == torch.uint32:
        return tensor.to(device=env.device, dtype=torch.int64).to(torch.int32).view(torch.uint32)
    return tensor.to(device=env.device, dtype=target.dtype)


def _refuse(key: str, values: torch.Tensor, wrong: torch.Tensor, allowed: str):
    if bool(wrong.any()):
        where = tuple(int(k) for k in wrong.nonzero()[0])
        raise ValueError(f"set_state: {key}={values[where].item()} of environment {where[0]} must be {allowed}")


def _check_time(env, tensors: Mapping, rows: torch.Tensor | None):
    """An episode that has run for as long as the limit must have ended; with SAME_STEP the next one has begun."""
    t, terminated, truncated = (
        tensors.get(name, env._buffers[PER_ENV[name]]) for name in ("t", "terminated", "truncated")
    )
    running = ~(terminated | truncated) | (env.autoreset_mode == AutoresetMode.SAME_STEP)
    wrong = (t == env.max_episode_steps) & running
    wrong = wrong if rows is None else wrong & rows
    _refuse("t", t, wrong, f"in 0 .. {env.max_episode_steps - 1}, its episode being unfinished")
