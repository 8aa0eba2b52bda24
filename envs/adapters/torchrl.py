"""Ports in TorchRL: an `EnvBase` over a batch that never leaves its device.

    from lockstep.envs.adapters import torchrl

    env = torchrl.make("cartpole", num_envs=8192, device="cuda")
    env.rollout(100, break_when_any_done=False)  # batch size [8192, 100]

Discrete actions are integers (TorchRL's `Categorical`), not one-hot.
"""

import torch
from gymnasium.spaces import Discrete
from gymnasium.vector import AutoresetMode

from lockstep import envs
from lockstep.extras import extra

with extra("torchrl", of="lockstep.envs.adapters.torchrl"):
    from tensordict import TensorDict, TensorDictBase
    from torchrl.data import Bounded, Categorical, Composite, TensorSpec, Unbounded
    from torchrl.envs import EnvBase


def make(name: str, num_envs: int, device="cpu", check_actions: bool = False, **options) -> "TorchRLEnv":
    """A batch of `num_envs` environments for TorchRL; `envs.BatchedEnv` lists the options.

    Actions are not checked by default: `rollout(break_when_all_done=True)` goes on stepping environments that have
    ended, which leaves them as they are, but which a check refuses.
    """
    options = {"autoreset_mode": AutoresetMode.DISABLED, "check_actions": check_actions} | options
    return TorchRLEnv(envs.make(name, num_envs, device, **options))


class TorchRLEnv(EnvBase):
    """A batch of B environments as TorchRL's `EnvBase` of batch size [B], on the batch's device.

    Keys: observation [B, n] float32, action [B] int64 (Discrete) or [B, 1] float32 (Box), reward [B, 1] float32, and
    done, terminated, truncated [B, 1] bool. TorchRL resets ended environments itself, through a mask on the device.
    What comes out are copies, since the next step overwrites the batch's buffers; `_step`, and `_reset` on a GPU,
    never wait for the device.

    Args:
        batch: with autoreset mode DISABLED.

    Raises:
        ValueError: a batch in another mode, or of several agents.
    """

    def __init__(self, batch: envs.BatchedEnv):
        if batch.autoreset_mode != AutoresetMode.DISABLED:
            mode = batch.autoreset_mode.value
            raise ValueError(f"TorchRL resets environments itself: autoreset_mode={mode!r} must be 'Disabled'")
        if batch.agents:
            names = ", ".join(batch.agents)
            raise ValueError(f"{batch.name} has agents ({names}); this adapter knows batches of one agent")
        super().__init__(device=batch.device, batch_size=[batch.num_envs])
        self.batch = batch
        self._seed: int | None = None  # for the next full reset
        self._rows: dict = {}  # observation and flags: the batch's own buffers
        flag = Categorical(2, shape=(batch.num_envs, 1), dtype=torch.bool, device=self.device)
        flags = {name: flag.clone() for name in ("done", "terminated", "truncated")}
        self.observation_spec = Composite(observation=self._spec(batch.single_observation_space), shape=self.batch_size)
        self.action_spec = self._spec(batch.single_action_space)
        self.reward_spec = Unbounded(shape=(batch.num_envs, 1), device=self.device)
        self.full_done_spec = Composite(flags, shape=self.batch_size)

    def _spec(self, space) -> TensorSpec:
        """A spec [B, ...] from the space of one environment."""
        if isinstance(space, Discrete):
            return Categorical(int(space.n), shape=self.batch_size, dtype=torch.int64, device=self.device)
        shape = (*self.batch_size, *space.shape)
        low, high = (torch.as_tensor(bound, device=self.device).expand(shape) for bound in (space.low, space.high))
        return Bounded(low, high, shape=shape, dtype=torch.float32, device=self.device)

    def to(self, device) -> "TorchRLEnv":
        """Itself.

        Raises:
            ValueError: another device than the batch's.
        """
        wanted = torch.device(device)
        if wanted.type != self.device.type or wanted.index not in (None, self.device.index):
            raise ValueError(f"a batch stays on its device: made on {self.device}, asked for {device}")
        return self

    def _set_seed(self, seed: int | None) -> None:
        """The next full reset starts the noise anew at episode 0."""
        self._seed = seed

    def _reset(
        self, tensordict: TensorDictBase | None = None, *, seed: int | None = None, options: dict | None = None
    ) -> TensorDict:
        """Starts an episode in every environment, or in those that "_reset" [B, 1] or [B] marks.

        Args:
            seed, options: of a full reset, as `envs.BatchedEnv.reset` takes them.

        Raises:
            ValueError: a seed or options beside "_reset", or ones that the batch refuses.
        """
        mask = None if tensordict is None else tensordict.get("_reset", None)
        if mask is None:
            first, self._seed = self._seed if seed is None else seed, None
            self._rows["observation"], _ = self.batch.reset(seed=first, options=options)
        elif seed is not None or options:
            raise ValueError("seed and options belong to a full reset: they cannot stand beside a '_reset' mask")
        elif mask.device.type != "cpu" or mask.any():  # a batch refuses an empty mask where it can see it for nothing
            self._rows["observation"], _ = self.batch.reset(options={"reset_mask": mask.reshape(self.batch_size)})
        return self._copies(self._rows)

    def _step(self, tensordict: TensorDictBase) -> TensorDict:
        action = tensordict.get("action")
        narrow = self.batch.lanes > 1 and action.dtype == torch.int64  # such a batch takes int32 alone
        obs, reward, terminated, truncated, _ = self.batch.step(action.int() if narrow else action)
        self._rows = {"observation": obs, "terminated": terminated, "truncated": truncated}
        return self._copies(self._rows | {"reward": reward, "done": terminated | truncated})

    def _copies(self, rows: dict) -> TensorDict:
        """Tensors [B, n], or [B, 1] of what is [B]."""
        copies = {name: torch.as_tensor(row).reshape(self.batch.num_envs, -1).clone() for name, row in rows.items()}
        return TensorDict(copies, batch_size=self.batch_size, device=self.device)
