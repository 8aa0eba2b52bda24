"""Data-parallel training: which part of the batch a process owns, and sums over all processes (torchrun)."""

import os

import torch
import torch.distributed as distributed


class Ranks:
    """One process, or the ones that torchrun started: `size` of them, this one `rank`."""

    def __init__(self, device: torch.device | str):
        self.size, self.rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
        self.device = torch.device(device)
        if self.size > 1:
            if self.device.type == "cuda":
                self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
                torch.cuda.set_device(self.device)
            if not distributed.is_initialized():
                distributed.init_process_group("nccl" if self.device.type == "cuda" else "gloo")

    @property
    def reduce(self):
        """A function that sums a tensor over all processes in place; None for one process."""
        return distributed.all_reduce if self.size > 1 else None

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in some process."""
        if self.size == 1:
            return flag
        votes = torch.tensor([float(flag)], device=self.device)
        distributed.all_reduce(votes)
        return votes.item() > 0

    def close(self) -> None:
        if self.size > 1 and distributed.is_initialized():
            distributed.destroy_process_group()
