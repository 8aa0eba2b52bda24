"""Fused roll-outs of a batch of threads: many steps in one launch, the policy in the kernel, the state in registers."""

from collections.abc import Callable

import numpy as np
import torch

from .checks import choice, integer, require_memory
from .policies import MLP, Linear
from .spaces import AutoresetMode

Policy = str | Linear | MLP
FLOAT32 = torch.float32


def run(env, steps: int, policy: Policy, store: str, obs_dtype: str) -> dict[str, torch.Tensor]:
    """Rolls out and returns the trajectory's buffers, as `BatchedEnv.rollout` describes them."""
    integer("steps", steps, 1, 2**31 - 1)
    if env.autoreset_mode != AutoresetMode.SAME_STEP:
        raise ValueError(f"rollout needs autoreset_mode='SameStep', not {env.autoreset_mode.value!r}")
    if choice("store", store, ("statistics", "trajectory")) == "statistics" and obs_dtype != "float32":
        raise ValueError(f"obs_dtype={obs_dtype!r} needs store='trajectory': statistics keep no observations")
    kind, hidden, arguments = _of_kernel(env, policy)
    rows = buffers(env, steps, policy, obs_dtype) if store == "trajectory" else {}
    field = {"action": "actions", "obs": "obs_bfloat16" if obs_dtype == "bfloat16" else "obs"}
    not_kept = dict.fromkeys(("obs", "obs_bfloat16", "value"), 0)
    kept = {field.get(name, name): tensor for name, tensor in rows.items()}
    env._run(f"rollout_{kind}_{store}", hidden, steps=steps, **arguments, **not_kept | kept)
    return rows


def buffers(env, steps: int, policy: Policy, obs_dtype: str) -> dict[str, torch.Tensor]:
    """Buffers of a trajectory, the same ones until another form is asked for; then they are let go."""
    needed = layout(env, steps, policy, obs_dtype)
    if env._trajectory is None or env._trajectory[0] != needed:
        env._trajectory = None
        size = sum(int(np.prod(shape)) * dtype.itemsize for shape, dtype in needed.values())
        require_memory(size, env.device, "a trajectory of steps", steps)
        made = {name: torch.empty(shape, dtype=dtype, device=env.device) for name, (shape, dtype) in needed.items()}
        env._trajectory = needed, made
    return dict(env._trajectory[1])


def layout(env, steps: int, policy: Policy, obs_dtype: str) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """Shape and type of every buffer of a trajectory."""
    rows = (integer("steps", steps, 1, 2**31 - 1), env.num_envs)
    choice("obs_dtype", obs_dtype, ("float32", "bfloat16"))
    _require_policy(policy)
    found = {
        "obs": ((*rows, env.single_observation_space.shape[0]), getattr(torch, obs_dtype)),
        "action": (rows, env._actions.stored_type),
        "reward": (rows, FLOAT32),
        "terminated": (rows, torch.bool),
        "truncated": (rows, torch.bool),
    }
    if isinstance(policy, MLP):
        found["log_prob"] = (rows, FLOAT32)
        if policy.critic is not None:
            found |= {"value": ((steps + 1, env.num_envs), FLOAT32), "bootstrap": (rows, FLOAT32)}
    return found


def actor(env, policy: str | Linear) -> Callable[[torch.Tensor], torch.Tensor]:
    """The policy in torch operations, as `BatchedEnv.actor` describes it."""
    if _is_random(policy):
        return lambda obs: env.random_actions()[0]
    if not isinstance(policy, Linear):
        raise ValueError(f"policy must be 'random' or a Linear, got {policy!r:.80}")
    weights, bias = policy.tensors(*env.port.policy_shape, env.device)
    if not env.port.continuous:
        return lambda obs: torch.argmax(torch.addmm(bias, obs, weights.T), dim=1)
    low, high = env.single_action_space.low.item(), env.single_action_space.high.item()
    return lambda obs: torch.addmm(bias, obs, weights.T).clamp(low, high)[:, 0]


def _of_kernel(env, policy: Policy) -> tuple[str, int, dict]:
    """The word that names a policy's kernels, the width of its network (0: none), and what its kernels read of it."""
    _require_policy(policy)
    if isinstance(policy, Linear):
        weights, bias = _linear(env, policy)
        return "linear", 0, {"weights": weights, "bias": bias}
    if isinstance(policy, MLP):
        hidden = policy.check(*env.port.policy_shape, env.port.continuous, env.device)
        return "mlp", hidden, {"weights": policy.numbers(), "greedy": int(policy.greedy)}
    return "random", 0, {}


def _linear(env, policy: Linear) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights and bias on the device; checked once per policy, since a check synchronises."""
    if env._linear is None or env._linear[0] is not policy:
        env._linear = policy, policy.tensors(*env.port.policy_shape, env.device)
    return env._linear[1]


def _is_random(policy) -> bool:
    return isinstance(policy, str) and policy == "random"


def _require_policy(policy):
    if not (_is_random(policy) or isinstance(policy, Linear | MLP)):
        raise ValueError(f"policy must be 'random', a Linear or an MLP, got {policy!r:.80}")
