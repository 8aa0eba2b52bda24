"""Ports in TorchRL: an `EnvBase` over a batch that never leaves its device.

    from lockstep.envs.adapters import torchrl

    env = torchrl.make("cartpole", num_envs=8192, device="cuda")
    env.rollout(100, break_when_any_done=False)  # batch size [8192, 100]

Discrete actions are integers (TorchRL's `Categorical`), not one-hot. Several agents are in groups, as in TorchRL's own
`PettingZooWrapper` and in BenchMARL: `env.group_map`, and keys such as ("offloading", "action").
"""

from collections.abc import Mapping, Sequence

import torch
from gymnasium.spaces import Discrete, MultiDiscrete
from gymnasium.vector import AutoresetMode

from lockstep import envs
from lockstep.envs.batch.actions import saturated
from lockstep.extras import extra

with extra("torchrl", of="lockstep.envs.adapters.torchrl"):
    from tensordict import TensorDict, TensorDictBase
    from torchrl.data import Bounded, Categorical, Composite, MultiCategorical, TensorSpec, Unbounded
    from torchrl.envs import EnvBase
    from torchrl.envs.utils import MarlGroupMapType, check_marl_grouping

GroupMap = Mapping[str, Sequence[str]]
RESERVED = ("done", "terminated", "truncated", "next", "_reset")  # keys beside those of groups


def make(
    name: str,
    num_envs: int,
    device="cpu",
    check_actions: bool = False,
    group_map: GroupMap | MarlGroupMapType | None = None,
    **options,
) -> "TorchRLEnv":
    """A batch of `num_envs` environments for TorchRL; `envs.BatchedEnv` lists the options, `TorchRLEnv` the groups.

    Actions are not checked by default: `rollout(break_when_all_done=True)` goes on stepping environments that have
    ended, which leaves them as they are, but which a check refuses.
    """
    options = {"autoreset_mode": AutoresetMode.DISABLED, "check_actions": check_actions} | options
    return TorchRLEnv(envs.make(name, num_envs, device, **options), group_map)


def default_groups(agents: Sequence[str]) -> dict[str, list[str]]:
    """Agents by group as `PettingZooWrapper` has them: "name_<integer>" in "name", any other in a group of its own."""
    groups: dict[str, list[str]] = {}
    for agent in agents:
        name, _, number = agent.rpartition("_")
        groups.setdefault(name if name and number.isdigit() else agent, []).append(agent)
    return groups


class TorchRLEnv(EnvBase):
    """A batch of B environments as TorchRL's `EnvBase` of batch size [B], on the batch's device.

    Keys: observation [B, n] float32, action [B] int64 (Discrete), [B, k] int64 (MultiDiscrete) or [B, k] float32 (Box),
    reward [B, 1] float32, and done, terminated, truncated [B, 1] bool. TorchRL resets ended environments itself,
    through a mask on the device. What comes out are copies, since the next step overwrites the batch's buffers;
    `_step`, and `_reset` on a GPU, never wait for the device.

    Several agents have these keys in their groups, such as (group, "observation") [B, members, n] and (group, "done")
    [B, members, 1]. An agent that has terminated stays so until the reset. The flags at the root are the episode's: it
    is terminated where all agents are, and truncated where one is. Where agents end apart, (group, "mask") [B, members]
    bool tells who plays on; of the others actions are ignored, observations and rewards 0.

    Args:
        batch: with autoreset mode DISABLED.
        group_map: the agents' names by group, or one of TorchRL's `MarlGroupMapType`; None is `default_groups`.

    Raises:
        ValueError: a batch in another mode, groups of a batch of one agent, or groups that do not hold each agent once.
    """

    def __init__(self, batch: envs.BatchedEnv, group_map: GroupMap | MarlGroupMapType | None = None):
        if batch.autoreset_mode != AutoresetMode.DISABLED:
            mode = batch.autoreset_mode.value
            raise ValueError(f"TorchRL resets environments itself: autoreset_mode={mode!r} must be 'Disabled'")
        if group_map is not None and not batch.agents:
            raise ValueError(f"group_map={group_map!r:.60}: {batch.name} has one agent, who is in no group")
        super().__init__(device=batch.device, batch_size=[batch.num_envs])
        self.batch = batch
        self._seed: int | None = None  # for the next full reset
        self._rows: dict = {}  # observation and flags: the batch's own buffers
        self._apart = batch.port.rows > 1  # agents whose episodes end apart
        if batch.agents:
            self._group(default_groups(batch.agents) if group_map is None else group_map)
            groups = {group: self._specs(len(members)) for group, members in self.group_map.items()}
            specs = {
                part: Composite({group: own[part] for group, own in groups.items()}, shape=self.batch_size)
                for part in ("observation", "action", "reward", "done")
            }
            specs["done"].update(self._specs()["done"])
        else:
            specs = self._specs()
        self.observation_spec, self.action_spec = specs["observation"], specs["action"]
        self.reward_spec, self.full_done_spec = specs["reward"], specs["done"]

    def _group(self, group_map: GroupMap | MarlGroupMapType):
        """Notes the groups, their members' places among the agents, and actions of all agents, which a step fills."""
        batch, agents = self.batch, list(self.batch.agents)
        if isinstance(group_map, MarlGroupMapType):
            group_map = group_map.get_group_map(agents)
        if not isinstance(group_map, Mapping):
            raise ValueError(f"group_map must be a mapping of groups to agents' names, not {group_map!r:.60}")
        if taken := [group for group in group_map if group in RESERVED]:
            raise ValueError(f"group_map: {', '.join(map(repr, taken))} is a key of TorchRL; name the group otherwise")
        self.group_map = {group: list(members) for group, members in group_map.items()}
        check_marl_grouping(self.group_map, agents)
        self._places = {
            group: torch.tensor([agents.index(agent) for agent in members], device=self.device)
            for group, members in self.group_map.items()
        }
        self._actions = torch.empty(batch.actions.shape, dtype=batch.actions.types[-1], device=self.device)

    def _specs(self, *members: int) -> dict[str, Composite]:
        """Specs of rows [B, ...], or of a group's rows [B, members, ...]."""
        shape, batch = (*self.batch_size, *members), self.batch
        flag = Categorical(2, shape=(*shape, 1), dtype=torch.bool, device=self.device)
        seen = {"observation": self._spec(batch.single_observation_space, shape)}
        if members and self._apart:
            seen["mask"] = Categorical(2, shape=shape, dtype=torch.bool, device=self.device)
        parts = {
            "observation": seen,
            "action": {"action": self._spec(batch.single_action_space, shape)},
            "reward": {"reward": Unbounded(shape=(*shape, 1), device=self.device)},
            "done": {name: flag.clone() for name in ("done", "terminated", "truncated")},
        }
        return {part: Composite(specs, shape=shape) for part, specs in parts.items()}

    def _spec(self, space, shape: tuple[int, ...]) -> TensorSpec:
        """A spec [*shape, ...] from the space of one agent."""
        if isinstance(space, Discrete):
            return Categorical(int(space.n), shape=shape, dtype=torch.int64, device=self.device)
        shape = (*shape, *space.shape)
        if isinstance(space, MultiDiscrete):
            return MultiCategorical(space.nvec, shape=shape, dtype=torch.int64, device=self.device)
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
            obs, info = self.batch.reset(seed=first, options=options)
        elif seed is not None or options:
            raise ValueError("seed and options belong to a full reset: they cannot stand beside a '_reset' mask")
        elif mask.device.type != "cpu" or mask.any():  # a batch refuses an empty mask where it can see it for nothing
            obs, info = self.batch.reset(options={"reset_mask": mask.reshape(self.batch_size)})
        else:
            return self._copies(self._rows)
        self._rows |= {"observation": obs, **info}
        return self._copies(self._rows)

    def _step(self, tensordict: TensorDictBase) -> TensorDict:
        if self.batch.agents:
            action = self._actions
            for group, places in self._places.items():
                action.index_copy_(1, places, saturated(tensordict.get((group, "action")), action.dtype))
        else:
            action = tensordict.get("action")
            narrow = self.batch.lanes > 1 and action.dtype == torch.int64  # such a batch takes int32 alone
            action = saturated(action, torch.int32) if narrow else action
        obs, reward, terminated, truncated, info = self.batch.step(action)
        self._rows = {"observation": obs, "terminated": terminated, "truncated": truncated}
        self._rows |= {"active": info["active"]} if self.batch.agents else {}
        return self._copies(self._rows | {"reward": reward})

    def _copies(self, rows: dict) -> TensorDict:
        """Copies [B, n], or [B, 1] of what is [B]; of several agents in their groups, beside the episode's flags."""
        rows = {name: torch.as_tensor(row, device=self.device) for name, row in rows.items()}
        active, whole = rows.pop("active", None), {}
        if "terminated" in rows:
            if self._apart:
                rows["terminated"] = ~(active | rows["truncated"])  # and not in the step of its end alone
            if self.batch.agents:
                whole = {"terminated": rows["terminated"].all(1), "truncated": rows["truncated"].any(1)}
            for flags in filter(None, (rows, whole)):
                flags["done"] = flags["terminated"] | flags["truncated"]
        if not self.batch.agents:
            return self._dict({name: row.clone() for name, row in rows.items()})
        groups = {}
        for group, places in self._places.items():
            groups[group] = self._dict({name: row.index_select(1, places) for name, row in rows.items()}, len(places))
            if self._apart:
                groups[group]["mask"] = active.index_select(1, places)
        return self._dict(whole).update(groups)

    def _dict(self, rows: dict[str, torch.Tensor], *members: int) -> TensorDict:
        """Rows [B, n], or [B, 1] of what is [B]; of a group with one axis more."""
        shape = (*self.batch_size, *members)
        return TensorDict({name: row.reshape(*shape, -1) for name, row in rows.items()}, shape, device=self.device)
