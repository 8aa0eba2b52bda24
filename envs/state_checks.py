"""What both kinds of batches check of a state that is put back, and how it is written."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from .checks import nearest
from .spaces import AutoresetMode

# torch has few operations on these, on a GPU not even a mask: the same memory has another name, and copies are wider.
SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32}
WIDER = {torch.uint16: torch.int32, torch.uint32: torch.int64}


def copied(buffer: torch.Tensor) -> torch.Tensor:
    """A copy to hand out, in a signed type."""
    return buffer.to(WIDER.get(buffer.dtype, buffer.dtype), copy=True)


def require_keys(state: Mapping, per_env: Sequence[str], whole: Sequence[str], masked: bool):
    """Raises ValueError unless it is a mapping of known keys, those of the whole batch only where no mask is given."""
    if not isinstance(state, Mapping):
        raise ValueError(f"set_state: state must be a mapping as state() returns it, got {type(state).__name__}")
    allowed = [*per_env, *whole]
    for key in state:
        if key not in allowed:
            raise ValueError(f"set_state: unknown key {key!r}{nearest(key, allowed)}")
        if masked and key in whole:
            raise ValueError(f"set_state: {key!r} belongs to the whole batch and cannot be masked")


def array(key: str, value, *shapes: tuple[int, ...]) -> torch.Tensor:
    """The value as a tensor of real numbers of one of the shapes, on whatever device; ValueError where it is none."""
    try:
        tensor = value if isinstance(value, torch.Tensor) else torch.from_numpy(np.array(value))
    except (TypeError, ValueError):
        raise ValueError(f"set_state: {key} must be an array of numbers, got {value!r:.60}") from None
    if tuple(tensor.shape) not in shapes:
        needed = " or ".join(map(str, shapes))
        raise ValueError(f"set_state: {key} has shape {tuple(tensor.shape)}; needed: {needed}")
    if tensor.is_complex():
        raise ValueError(f"set_state: {key} must be real, got {str(tensor.dtype).removeprefix('torch.')}")
    return tensor


def require_flags(key: str, values: torch.Tensor):
    """Raises ValueError at the first environment whose value is neither 0 nor 1."""
    refuse(key, values, (values != 0) & (values != 1), "False or True")


def integers(key: str, values: torch.Tensor, high: int) -> torch.Tensor:
    """The values as int64; ValueError unless they are integers from 0 to `high`."""
    if values.is_floating_point():
        raise ValueError(f"set_state: {key} must be integers, got {str(values.dtype).removeprefix('torch.')}")
    values = values.to(torch.int64)
    refuse(key, values, (values < 0) | (values > high), f"in 0 .. {high}")
    return values


def require_unfinished(env, key: str, tensors: Mapping, rows: torch.Tensor | None):
    """Raises ValueError where an episode has run for as long as the limit and has not ended.

    Args:
        key: of the steps of the running episode.
        tensors: what is to be written, by key.
        rows: the environments that it is written to; None: all.
    """
    elapsed = tensors.get(key, env._buffers["elapsed"]).to(torch.int64)
    terminated, truncated = (tensors.get(name, env._buffers[name]) for name in ("terminated", "truncated"))
    # With SAME_STEP the environment is already in its next episode.
    running = ~(terminated | truncated) | (env.autoreset_mode == AutoresetMode.SAME_STEP)
    wrong = (elapsed == env.max_episode_steps) & running
    wrong = wrong if rows is None else wrong & rows
    refuse(key, elapsed, wrong, f"in 0 .. {env.max_episode_steps - 1}, its episode being unfinished")


def refuse(key: str, values: torch.Tensor, wrong: torch.Tensor, allowed: str):
    """Raises ValueError naming the first environment [B, ...] where a value is wrong, and what is allowed."""
    if bool(wrong.any()):
        place = tuple(int(k) for k in wrong.nonzero()[0])
        raise ValueError(f"set_state: {key}={values[place].item()} of environment {place[0]} must be {allowed}")


def write(env, targets: Mapping, tensors: Mapping, rows: torch.Tensor | None):
    """Copies tensors [B, ...] over targets of the same keys and types, in the environments of a mask."""
    for key, tensor in tensors.items():
        target, tensor = signed(targets[key]), signed(tensor)
        if rows is not None:
            tensor = torch.where(rows.reshape(-1, *[1] * (target.ndim - 1)), tensor, target)
        target.copy_(tensor)
    env._buffers["ended"].copy_(env._buffers["terminated"] | env._buffers["truncated"])


def signed(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory under a signed type of the same width."""
    return tensor.view(SIGNED.get(tensor.dtype, tensor.dtype))
