"""Data-parallel training: which part of the batch a process owns, and sums over all processes (torchrun)."""

import atexit
import io
import os
from collections.abc import Callable, Sequence

import torch
import torch.distributed as distributed

from lockstep.envs.checks import find_device


class Ranks:
    """One process, or the ones that torchrun started: `size` of them, this one `rank`.

    Raises:
        ValueError: a device that this machine has not, or torchrun's variables are set in part.
        ConnectionError: from each method, and from `reduce`: another process has ended.
    """

    def __init__(self, device: torch.device | str):
        self.size, self.rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
        if self.size == 1:
            self.device = find_device(device)
            return
        local = str(device).startswith("cuda")  # each process of a machine has a GPU of its own
        if local and str(device) != "cuda":
            raise ValueError(f"device={str(device)!r}: of several processes each takes its own GPU; say 'cuda'")
        self.device = find_device(f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if local else device)
        if local:
            torch.cuda.set_device(self.device)
        if not distributed.is_initialized():
            self._call(distributed.init_process_group, "nccl" if local else "gloo")
            atexit.register(self.close)  # gloo's threads abort a process that ends before them
        # Hosts vote among themselves, which waits for no device.
        self._hosts = self._call(distributed.new_group, None, None, "gloo") if local else None

    @property
    def reduce(self) -> Callable[[torch.Tensor], None] | None:
        """A function that sums a tensor over all processes in place; None for one process."""
        return self._sum if self.size > 1 else None

    @property
    def average(self) -> Callable[[torch.Tensor], None] | None:
        """A function that makes a tensor its mean over all processes in place; None for one process."""
        return self._mean if self.size > 1 else None

    def _mean(self, tensor: torch.Tensor) -> None:
        self._sum(tensor)
        tensor.div_(self.size)

    def _sum(self, tensor: torch.Tensor) -> None:
        self._call(distributed.all_reduce, tensor)

    def most(self, numbers: Sequence[int]) -> list[int]:
        """Each number's largest value in any process; waits for the other hosts, and for no device."""
        if self.size == 1:
            return [int(number) for number in numbers]
        votes = torch.tensor([int(number) for number in numbers])
        self._call(distributed.all_reduce, votes, distributed.ReduceOp.MAX, self._hosts)
        return votes.tolist()

    def gather(self, content) -> list | None:
        """Values that the processes gave, in their order, in the first process; None in the others.

        content: tensors, numbers and strings, in lists and dicts.
        """
        if self.size == 1:
            return [content]
        written = io.BytesIO()
        torch.save(content, written)  # pickle, which gather_object takes, cannot read tensors of uint32
        gathered = [None] * self.size if self.rank == 0 else None
        self._call(distributed.gather_object, written.getvalue(), gathered)
        return gathered and [torch.load(io.BytesIO(read), map_location="cpu", weights_only=True) for read in gathered]

    def _call(self, function: Callable, *arguments):
        try:
            return function(*arguments)
        except RuntimeError as error:  # gloo's and NCCL's only kind
            reason = str(error).strip().partition("\n")[0]
            raise ConnectionError(f"process {self.rank} has lost another one: {reason}") from error

    def close(self) -> None:
        """Leaves the group of processes, once each has done its work."""
        if self.size > 1 and distributed.is_initialized():
            distributed.destroy_process_group()
