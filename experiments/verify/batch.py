"""A batched environment of any library as agents take one (agents/README.md). Axes: B environments, n numbers."""

import numpy as np
import torch

from lockstep.experiments.verify.episodes import NEXT_STEP
from lockstep.experiments.verify.opened import Elsewhere
from lockstep.experiments.verify.subjects import Subject


class Batch:
    """A batch on the CPU.

    A call that only resets an environment, as that after an episode's end does in the mode NextStep, is none of its
    steps: in that mode infos have `active` [B], which says who acts. Where an ending step shows the next episode and
    not what the last one ended with, the former stands in for the latter, as it does for whoever trains on it.

    Args:
        subject: that is stepped; it resets by itself.
        mode: autoreset mode that it behaves by.
        observation_space, action_space: of one environment of the original.

    Attributes:
        cut: episodes that were truncated and had not terminated, which agents bootstrap, so far.
        lost: those of them whose last observation was not shown.
    """

    device = torch.device("cpu")

    def __init__(self, subject: Subject | Elsewhere, mode: str, observation_space, action_space):
        self.subject, self.num_envs, self.resets_next = subject, subject.num_envs, mode == NEXT_STEP
        self.single_observation_space, self.single_action_space = observation_space, action_space
        self.cut = self.lost = 0

    def reset(self, seed: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """First observations [B, n] float32, and infos."""
        self.resetting = np.zeros(self.num_envs, bool)  # those that the next call resets
        return self._tensor(self.subject.reset(seed)), self._active()

    def step(self, action: torch.Tensor) -> tuple:
        """Observations, reward [B] float32, terminated, truncated [B] bool, and infos with `final_obs` [B, n]."""
        observation, reward, terminated, truncated, last, given, _ = self.subject.step(action.numpy())
        live = ~self.resetting
        terminated, truncated = terminated & live, truncated & live
        shown = np.ones_like(live) if self.resets_next else given
        final = observation if self.resets_next else np.where(over(given, observation), last, observation)
        cut = truncated & ~terminated
        self.cut, self.lost = self.cut + int(cut.sum()), self.lost + int((cut & ~shown).sum())
        self.resetting = (terminated | truncated) & self.resets_next
        infos = {"final_obs": self._tensor(final)} | self._active()
        reward = torch.from_numpy(np.where(live, reward, 0).astype(np.float32))
        return self._tensor(observation), reward, *map(torch.from_numpy, (terminated, truncated)), infos

    def _active(self) -> dict[str, torch.Tensor]:
        return {"active": torch.from_numpy(~self.resetting)} if self.resets_next else {}

    def _tensor(self, observation: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(observation.reshape(self.num_envs, -1).astype(np.float32))


def over(flags: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The flags [B] with as many axes more as the rows [B, ...] have."""
    return flags.reshape(-1, *[1] * (rows.ndim - 1))


@torch.no_grad()
def first_episodes(batch: Batch, act, seed: int, longest: int) -> np.ndarray:
    """Returns [B] of the first episode of each environment, of one that does not end those of `longest` steps.

    act: from observations [B, n] to actions, as `step` takes them.
    """
    obs, _ = batch.reset(seed)
    returns, running = np.zeros(batch.num_envs), np.ones(batch.num_envs, bool)
    for _ in range(longest):
        obs, reward, terminated, truncated, _ = batch.step(act(obs))
        returns += np.where(running, reward.numpy(), 0.0)
        running &= ~(terminated | truncated).numpy()
        if not running.any():
            break
    return returns
