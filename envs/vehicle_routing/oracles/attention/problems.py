"""Batches of routing problems as tensors, and their answers."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...params import Params


class Nodes(NamedTuple):
    """B problems of N nodes: 0 the depot, then of each request pickup and drop-off, or one. Times in ticks."""

    zone: Tensor  # [B, N] int32, as the next four
    earliest: Tensor
    latest: Tensor
    demand: Tensor  # negative at a drop-off
    service: Tensor
    there: Tensor  # [B, N] bool, true of the depot and of requests that are there

    @classmethod
    def of(cls, *columns, device="cpu") -> "Nodes":
        """Nodes of arrays [B, N], the last of them `there`."""
        *whole, there = (torch.from_numpy(np.array(column)) for column in columns)
        return cls(*(column.to(device, torch.int32) for column in whole), there.to(device, torch.bool))

    def repeated(self, times: int) -> "Nodes":
        """Each problem so many times in a row."""
        return self if times == 1 else Nodes(*(column.repeat_interleave(times, 0) for column in self))

    def part(self, first: int, end: int) -> "Nodes":
        return Nodes(*(column[first:end] for column in self))


class Answers(NamedTuple):
    """Answers to B problems."""

    cost: Tensor  # [B] int32 ticks
    walk: Tensor  # [B, places] int16, padded with 0
    vehicles: Tensor  # [B] int32
    ok: Tensor  # [B] bool


def places(params: Params, nodes: int) -> int:
    """Length of the walks of problems of so many nodes."""
    return params.places((nodes - 1) // (2 if params.paired else 1))


def best(answers: Answers, times: int) -> Answers:
    """Of every `times` answers in a row the first of those that cost least; one that is ok before one that is not."""
    if times == 1:
        return answers
    cost = answers.cost.long() + torch.where(answers.ok, 0, 2**40)
    choice = cost.view(-1, times).argmin(1) + times * torch.arange(len(cost) // times, device=cost.device)
    return Answers(*(part[choice] for part in answers))
