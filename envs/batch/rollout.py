"""Fused roll-outs: many steps in one launch, the policy in the kernel and the state in registers."""

from collections.abc import Callable, Mapping

import numpy as np
import torch

from ..checks import choice, integer, require_memory
from ..policies import HIDDEN, MLP, Linear
from .port import most_observed

Policy = str | Linear | MLP
FLOAT32 = torch.float32
Layout = dict[str, tuple[tuple[int, ...], torch.dtype]]  # shape and type by buffer


class Rollouts:
    """Roll-outs of a batch: which policies its kernels carry, and the trajectory that they fill.

    Args:
        env: the batch.
        run: runs a kernel by its name, the width of an MLP or 0, and fields of `struct Call`.
        text: the environment's translation unit.
    """

    def __init__(self, env, run: Callable, text: str):
        self._env, self._run = env, run
        self._carried = env.lanes == 1 and env.actions.numbers == 1  # or the random policy alone
        # Widths of an MLP that the device has no room for, and up to how many numbers of an observation it has.
        self._too_wide: dict[int, int] = {}
        if self._carried and env.device.type == "cuda":
            most = {hidden: most_observed(hidden, *env.policy_shape, text) for hidden in HIDDEN}
            self._too_wide = {hidden: n for hidden, n in most.items() if n < env.policy_shape[1]}
        self._trajectory: tuple[Layout, dict[str, torch.Tensor]] | None = None  # the last one
        self._linear: tuple[Linear, tuple[torch.Tensor, torch.Tensor]] | None = None  # the last one, on the device

    def roll(self, steps: int, policy: Policy, store: str, obs_dtype: str) -> dict[str, torch.Tensor]:
        """Rolls out and returns the trajectory's buffers, as `BatchedEnv.rollout` describes them."""
        if choice("store", store, ("statistics", "trajectory")) == "statistics" and obs_dtype != "float32":
            raise ValueError(f"obs_dtype={obs_dtype!r} needs store='trajectory': statistics keep no observations")
        kind, hidden, arguments = self._of_kernel(policy)
        if self._env.lanes > 1 and store == "statistics":
            if len(self._env.phases) == 1:
                self._run("rollout_random", steps=steps)
                return {}
            for _ in range(steps):
                self._env.step(self._env.random_actions()[0])
            return {}
        rows = self.buffers(steps, policy, obs_dtype) if store == "trajectory" else {}
        field = {"action": "actions", "obs": "obs_bfloat16" if obs_dtype == "bfloat16" else "obs"}
        not_kept = dict.fromkeys(("obs", "obs_bfloat16", "value"), 0)
        kept = {field.get(name, name): tensor for name, tensor in rows.items()}
        self._run(f"rollout_{kind}_{store}", hidden, steps=steps, **arguments, **not_kept | kept)
        return rows

    def buffers(self, steps: int, policy: Policy, obs_dtype: str) -> dict[str, torch.Tensor]:
        """Buffers of a trajectory, the same ones until another form is asked for; then they are let go."""
        needed = self.layout(steps, policy, obs_dtype)
        if self._trajectory is None or self._trajectory[0] != needed:
            self._trajectory, device = None, self._env.device
            size = sum(int(np.prod(shape)) * dtype.itemsize for shape, dtype in needed.values())
            require_memory(size, device, "a trajectory of steps", steps)
            with torch.inference_mode(False):  # else nobody could change them outside of it
                made = {name: torch.empty(shape, dtype=dtype, device=device) for name, (shape, dtype) in needed.items()}
            self._trajectory = needed, made
        return dict(self._trajectory[1])

    def layout(self, steps: int, policy: Policy, obs_dtype: str) -> Layout:
        """Shape and type of every buffer of a trajectory."""
        env = self._env
        if env.lanes > 1:
            raise ValueError(f"store='trajectory': a roll-out of {env.name} keeps statistics alone")
        rows = (integer("steps", steps, 1, 2**31 - 1), env.num_envs)
        choice("obs_dtype", obs_dtype, ("float32", "bfloat16"))
        self._require_policy(policy)
        found: Layout = {
            "obs": ((*rows, env.single_observation_space.shape[0]), getattr(torch, obs_dtype)),
            "action": ((steps, *env.actions.shape), env.actions.stored_type),
            "reward": (rows, FLOAT32),
            "terminated": (rows, torch.bool),
            "truncated": (rows, torch.bool),
        }
        if isinstance(policy, MLP):
            found["log_prob"] = (rows, FLOAT32)
            if policy.critic is not None:
                found |= {"value": ((steps + 1, env.num_envs), FLOAT32), "bootstrap": (rows, FLOAT32)}
        return found

    def actor(self, policy: str | Linear, env) -> Callable[[torch.Tensor], torch.Tensor]:
        """The policy in torch operations, as `BatchedEnv.actor` describes it; it keeps `env`, the batch, alive."""
        if _is_random(policy):
            return lambda obs: env.random_actions()[0]
        if not isinstance(policy, Linear) or not self._carried:
            allowed = "'random' or a Linear" if self._carried else "'random'"
            raise ValueError(f"policy must be {allowed}, got {policy!r:.80}")
        weights, bias = policy.tensors(*env.policy_shape, env.device)
        if not env.actions.continuous:
            return lambda obs: torch.argmax(torch.addmm(bias, obs, weights.T), dim=1)
        low, high = (float(limit[0]) for limit in (env.actions.low, env.actions.high))
        return lambda obs: torch.addmm(bias, obs, weights.T).clamp(low, high)[:, 0]

    def carries(self, hidden: int) -> bool:
        """As `BatchedEnv.carries` says."""
        return self._carried and hidden in HIDDEN and hidden not in self._too_wide

    def _of_kernel(self, policy: Policy) -> tuple[str, int, Mapping]:
        """The word that names a policy's kernels, the width of its network or 0, and what its kernels read of it."""
        self._require_policy(policy)
        device = self._env.device
        if isinstance(policy, Linear):
            if self._linear is None or self._linear[0] is not policy:  # once per policy, since a check synchronises
                self._linear = policy, policy.tensors(*self._env.policy_shape, device)
            weights, bias = self._linear[1]
            return "linear", 0, {"weights": weights, "bias": bias}
        if isinstance(policy, MLP):
            hidden = policy.check(*self._env.policy_shape, self._env.actions.continuous, device)
            return "mlp", hidden, {"weights": policy.numbers(), "greedy": int(policy.greedy)}
        return "random", 0, {}

    def _require_policy(self, policy):
        if _is_random(policy) or (self._carried and isinstance(policy, Linear | MLP)):
            if self._too_wide and isinstance(policy, MLP):
                self._require_room(policy)
            return
        allowed = "'random', a Linear or an MLP" if self._carried else f"'random', which {self._env.name} has alone"
        raise ValueError(f"policy must be {allowed}, got {policy!r:.80}")

    def _require_room(self, policy: MLP):
        env = self._env
        hidden = policy.check(*env.policy_shape, env.actions.continuous, env.device)
        if hidden in self._too_wide:
            narrow = " or ".join(str(width) for width in HIDDEN if width not in self._too_wide)
            instead = f"take {narrow} units, or step the environment" if narrow else "step the environment"
            raise ValueError(
                f"policy: {hidden} hidden units over {env.policy_shape[1]} observation numbers do not fit into a block "
                f"of {env.device}, which has room for {self._too_wide[hidden]} numbers; {instead} with its actions"
            )


def _is_random(policy) -> bool:
    return isinstance(policy, str) and policy == "random"
