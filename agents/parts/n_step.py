"""Returns of several steps (Watkins, 1989; Mnih et al., 2016) from single ones, stream by stream, for a replay."""

from collections.abc import Mapping

import torch

from lockstep.agents.run import checkpoint
from lockstep.envs.checks import integer


class NStep:
    """A window over the last n steps of every stream, which gives a row for each step once its return is known.

    From step t on a row has R = r_t + gamma r_{t+1} + ... of k steps, the observation after the last of them, and
    discount = gamma^k, or 0 where that step terminated, so that its target is R + discount * (value of next_obs). k is
    n, or what was left of the episode: at its end, terminated or truncated, all that is in the window leaves it, and so
    nothing crosses a reset. Nothing waits for the device.

    Axes: N streams, each an agent of an environment; n steps; obs components o; action components m.

    Args:
        n: at least 1.
        gamma: discount of a step.
        streams: N.
        obs, action: shapes of one stream's.
        device: of all tensors.

    Attributes:
        window: by name [n, N, ...], the newest last: obs, action, what of the return is known, and whether that row is
            still to leave.

    Raises:
        ValueError: n is not allowed.
    """

    def __init__(self, n: int, gamma: float, streams: int, obs: tuple, action: tuple, device: torch.device):
        self.n = integer("n", n, 1, 2**15)
        given = {"dtype": torch.float32, "device": device}
        shapes = {"obs": obs, "action": action, "reward": ()}
        self.window = {name: torch.zeros(n, streams, *shape, **given) for name, shape in shapes.items()}
        self.window["open"] = torch.zeros(n, streams, dtype=torch.bool, device=device)
        powers = torch.tensor([gamma**k for k in range(n, -1, -1)], dtype=torch.float64, device=device).float()
        self._after = powers[:-1, None]  # [n, 1]: gamma^n ... gamma
        self._of_reward = powers[1:, None]  # [n, 1]: gamma^(n-1) ... 1
        self._oldest = torch.arange(n, device=device).view(n, 1) == 0

    def __call__(
        self, rows: Mapping[str, torch.Tensor], ended: torch.Tensor, valid: torch.Tensor | None = None
    ) -> tuple[dict[str, torch.Tensor], torch.Tensor | None]:
        """Takes one step of all streams.

        Args:
            rows: obs, next_obs [N, o], action [N, m], reward [N], terminated bool [N], as `Transitions.step` gives.
            ended: bool [N], true where the stream's episode ended with this step.
            valid: bool [N], rows that count; None: all. The others may hold anything.

        Returns:
            obs, action, reward, next_obs, discount [n * N, ...], older ones first; and bool [n * N], which rows leave
            the window with this step, or None for all. Valid until the next step.
        """
        here = torch.ones_like(ended) if valid is None else valid
        newest = {name: rows[name] for name in ("obs", "action")} | {"reward": torch.zeros_like(rows["reward"])}
        for name, row in (newest | {"open": here}).items():
            kept = self.window[name]
            if self.n > 1:
                kept[:-1] = kept[1:].clone()
            kept[-1] = row
        self.window["reward"] += self._of_reward * torch.where(here, rows["reward"], 0.0)
        leaves = self.window["open"] & (ended | self._oldest)
        self.window["open"] &= ~leaves
        found = {name: self.window[name] for name in newest}
        found |= {"next_obs": rows["next_obs"].expand_as(found["obs"])}
        found |= {"discount": torch.where(rows["terminated"], 0.0, self._after)}
        flat = {name: row.flatten(0, 1) for name, row in found.items()}
        return flat, valid if self.n == 1 else leaves.flatten()

    def state(self) -> dict[str, torch.Tensor]:
        """A copy of the window."""
        return {name: row.clone() for name, row in self.window.items()}

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Goes on from a `state()` of the same n and streams; ValueError names what differs."""
        checkpoint.require_like(state, self.window, "n-step window")
        for name, row in self.window.items():
            row.copy_(state[name])


class OneSequence(NStep):
    """A window over the steps of all agents of an environment as if they were one agent's, as in some published code.

    The rows of a step that count follow one another in the order of agents, and a return adds up what several of them
    got. The next observation is that of the last one in it, and its discount is 0 where that one terminated. Where no
    agent goes on, all that is in the window leaves it.

    Args:
        n, gamma, obs, action, device: as `NStep` takes them.
        environments, agents: B and A; a stream is environment * A + agent.
    """

    def __init__(
        self, n: int, gamma: float, environments: int, agents: int, obs: tuple, action: tuple, device: torch.device
    ):
        super().__init__(n, gamma, environments, obs, action, device)
        self.agents = agents
        self.window["next_obs"] = torch.zeros(environments, *obs, dtype=torch.float32, device=device)
        self.window["terminated"] = torch.zeros(environments, dtype=torch.bool, device=device)

    def __call__(
        self, rows: Mapping[str, torch.Tensor], ended: torch.Tensor, valid: torch.Tensor | None = None
    ) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        """Takes one step of all streams; as `NStep` says, but for the order of rows: agent by agent."""
        valid = torch.ones_like(ended) if valid is None else valid
        over = (ended | ~valid).view(-1, self.agents).all(dim=1)
        found, leaves = [], []
        for agent in range(self.agents):
            own = {name: row[agent :: self.agents] for name, row in rows.items()}
            last = over if agent == self.agents - 1 else torch.zeros_like(over)
            row, leaving = self._follow(own, last, valid[agent :: self.agents])
            found.append(row)
            leaves.append(leaving)
        return {name: torch.cat([row[name] for row in found]) for name in found[0]}, torch.cat(leaves)

    def _follow(
        self, rows: Mapping[str, torch.Tensor], over: torch.Tensor, here: torch.Tensor
    ) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        """Takes the rows [B, ...] of one agent into the sequences of those environments where they count."""
        window = self.window
        newest = {name: rows[name] for name in ("obs", "action")} | {"reward": torch.zeros_like(rows["reward"])}
        for name, row in (newest | {"open": here}).items():
            kept, flags = window[name], here.view(1, -1, *[1] * (row.dim() - 1))
            kept.copy_(torch.where(flags, torch.cat([kept[1:], row.unsqueeze(0)]), kept))
        window["reward"] += self._of_reward * torch.where(here, rows["reward"], 0.0)
        next_obs = torch.where(here.view(-1, *[1] * (rows["next_obs"].dim() - 1)), rows["next_obs"], window["next_obs"])
        window["next_obs"].copy_(next_obs)
        window["terminated"].copy_(torch.where(here, rows["terminated"], window["terminated"]))
        leaves = window["open"] & (over | (self._oldest & here))
        window["open"] &= ~leaves
        found = {name: window[name] for name in newest} | {"next_obs": next_obs.expand_as(window["obs"])}
        found |= {"discount": torch.where(window["terminated"], 0.0, self._after)}
        return {name: row.flatten(0, 1).clone() for name, row in found.items()}, leaves.flatten()
