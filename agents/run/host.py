"""A policy where its network is, for environments in the host's memory."""

from collections.abc import Callable

import torch


class OnHost:
    """A policy on a device that takes observations from the host and gives it actions.

    All rows of a step go up in one copy, through memory that is pinned, and all actions come down in one; then the host
    waits, once. On the CPU nothing is copied.

    Args:
        act: from observations [k, ...] on the device to actions [k, ...] there.
        device: of the policy.
        pinned: False: copies from and to pageable memory, for which the host waits twice.
    """

    def __init__(self, act: Callable[[torch.Tensor], torch.Tensor], device: torch.device | str, pinned: bool = True):
        self.act, self.device, self.pinned = act, torch.device(device), pinned
        self.copies = self.device.type != "cpu"
        self._staged = self._there = self._arrived = None  # of the most rows so far

    def __call__(self, obs: torch.Tensor) -> torch.Tensor:
        """Actions [k, ...] in the host's memory, valid until the next call, by observations [k, ...] there."""
        return self.down(self.act(self.up(obs)))

    def up(self, obs: torch.Tensor) -> torch.Tensor:
        """The observations on the device, where the next call overwrites them."""
        if not self.copies:
            return obs
        k = len(obs)
        if self._there is None or k > len(self._there):  # in the order of their own axes, so that a copy is one piece
            self._there = torch.empty_like(obs, device=self.device)
            self._staged = torch.empty_like(obs, pin_memory=True) if self.pinned else None
        if self._staged is not None:
            obs = self._staged[:k].copy_(obs)
        return self._there[:k].copy_(obs, non_blocking=self.pinned)

    def down(self, action: torch.Tensor) -> torch.Tensor:
        """The actions in the host's memory, once they have arrived there."""
        if not self.copies:
            return action
        k = len(action)
        if self._arrived is None or k > len(self._arrived):
            self._arrived = torch.empty_like(action, device="cpu", pin_memory=self.pinned)
        arrived = self._arrived[:k].copy_(action, non_blocking=self.pinned)
        if self.pinned:
            torch.cuda.current_stream(self.device).synchronize()
        return arrived
