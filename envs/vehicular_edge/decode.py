"""An action in the environment's own form: integers and weights, which are taken as they are."""

from collections.abc import Mapping

import numpy as np
import torch

from ..batch import BatchedEnv
from ..batch.actions import name_of, place
from .params import LARGEST_SHARE


def decode(env: BatchedEnv, given: Mapping) -> dict[str, torch.Tensor]:
    """A decision as "target" int32 [B, Nc, J] and "share" float32 [B, n], taken as they are.

    Raises:
        ValueError: other keys, a wrong shape, type or device; where actions are checked a target that is no option, or
            a share that is negative or above 1e30.
    """
    if set(given) != {"target", "share"}:
        raise ValueError(f"an action in integer form has 'target' and 'share', got {', '.join(map(repr, given))}")
    B, p = env.num_envs, env.params
    wanted = {
        "target": (torch.int32, (B, p.clients, p.tasks), 0, p.options - 1, ("environment", "client", "task")),
        "share": (torch.float32, (B, p.share_length), 0.0, LARGEST_SHARE, ("environment", "index")),
    }
    found = {}
    for name, (dtype, shape, low, high, axes) in wanted.items():
        found[name] = _tensor(name, given[name], dtype, shape, env.device)
        if env.checked:
            _require_inside(name, found[name], low, high, axes)
    return found


def _tensor(name: str, value, dtype: torch.dtype, shape: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """The value as a contiguous tensor of that type and shape on the device, itself where it is one.

    Raises:
        ValueError: names what it is, and what is allowed.
    """
    kind = name_of(dtype)
    if device.type == "cpu" and isinstance(value, np.ndarray) and value.dtype == np.dtype(kind):
        value = torch.from_numpy(value if value.flags.carray else np.array(value))  # torch refuses, or warns of, others
    if not isinstance(value, torch.Tensor) or value.dtype != dtype:
        raise ValueError(
            f"{name} must be a {kind} tensor on {device}, got {getattr(value, 'dtype', type(value).__name__)}"
        )
    if tuple(value.shape) != tuple(shape):
        raise ValueError(f"{name} has shape {tuple(value.shape)}; allowed: {tuple(shape)}")
    if value.device != device:
        raise ValueError(f"{name} is on {value.device}; this environment is on {device}")
    return value.contiguous()


def _require_inside(name: str, values: torch.Tensor, low, high, axes: tuple[str, ...]):
    """Raises ValueError that names the first number outside low .. high, or that is none, by the names of its axes."""
    wrong = (~((values >= low) & (values <= high))).flatten().nonzero()  # NaN is wrong as well
    if len(wrong):
        first = int(wrong[0])
        value = values.flatten()[first].item()
        raise ValueError(f"{name} of {place(first, values.shape, axes)} is {value}, not in [{low:g}, {high:g}]")
