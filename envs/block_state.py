"""The whole state of a batch of blocks, copied out and put back: to resume bit for bit, or to start from another."""

import dataclasses
from collections.abc import Mapping

import torch

from . import state_checks
from .checks import integer

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
WORLD = ("params", "pool")  # whose state it is; compared, not written


def take(env) -> dict:
    """Copies of everything the future depends on, as `BlockEnv.state` describes them."""
    copies = {name: state_checks.copied(env._buffers[buffer]) for name, buffer in PER_ENV.items()}
    copies["clock"] = int(env._buffers["clock"][0])
    copies["seed"] = int(env._buffers["seeds"].cpu().numpy()[0])
    return copies | {"params": dataclasses.asdict(env.params), "pool": env.pool}


def put(env, state: Mapping, rows: torch.Tensor | None):
    """Writes the keys present into the batch's buffers, in the environments of a mask; on an error nothing has changed.

    Raises:
        ValueError: as `BlockEnv.set_state` says.
    """
    fields = env.fields()
    state_checks.require_keys(state, [*PER_ENV, *fields, *WORLD], WHOLE, rows is not None)
    _require_same_world(env, state)
    own = {key: env._buffers[buffer] for key, buffer in PER_ENV.items()} | fields
    targets = {key: own[key] for key in state if key in own}
    tensors = {key: _rows(env, key, state[key], target) for key, target in targets.items()}
    state_checks.require_unfinished(env, "t", tensors, rows)
    seeds = env._seeds(state["seed"]) if "seed" in state else None
    clock = integer("set_state: clock", state["clock"], 0, 2**63 - 1) if "clock" in state else None

    state_checks.write(env, targets, tensors, rows)
    if seeds is not None:
        env._set_seeds(seeds)
    if clock is not None:
        env._buffers["clock"].fill_(clock)


def _require_same_world(env, state: Mapping):
    """Raises ValueError where the state says that it is of other parameters or scenarios than the batch's."""
    own, found = dataclasses.asdict(env.params), state.get("params", {})
    if not isinstance(found, Mapping):
        raise ValueError(f"set_state: params must be a mapping of names to values, got {type(found).__name__}")
    for name, value in found.items():
        if name not in own or own[name] != value:
            here = f"has {own[name]!r}" if name in own else "has no such parameter"
            raise ValueError(
                f"set_state: the state is of a batch with {name}={value!r}, this one {here}; without the key 'params' "
                "it is taken all the same"
            )
    if state.get("pool", env.pool) != env.pool:
        raise ValueError(
            f"set_state: the state is of a batch with other scenarios (pool={state['pool']!r:.40}) than the "
            f"{env._batch.scenarios} of this one (pool={env.pool!r}); without the key 'pool' it is taken all the same"
        )


def _rows(env, key: str, value, target: torch.Tensor) -> torch.Tensor:
    """One key's rows on the device in the type of where they go; one environment's rows go to all."""
    shape = tuple(target.shape)
    tensor = state_checks.array(key, value, shape, shape[1:]).expand(shape)
    if target.dtype == torch.bool:
        state_checks.require_flags(key, tensor)
    elif not target.dtype.is_floating_point:
        highest = {"t": env.max_episode_steps, "scenario": env._batch.scenarios - 1, "episode": 2**32 - 1}
        tensor = state_checks.integers(key, tensor, highest.get(key, 2**31 - 1))
    elif key not in ("final_obs", "episode_return"):
        # A least drift that nothing has lowered yet is infinite.
        negative = (tensor < 0) & (not key.startswith(("drift_", "state", "run")))
        wrong = tensor.isnan() | (tensor == -torch.inf) | negative
        state_checks.refuse(key, tensor, wrong, "a number that a step leads to")
    return tensor.to(device=env.device, dtype=target.dtype)
