"""The learned oracle in its three forms: greedy, best of samples, best of first pickups (README.md, 5.3)."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ... import streams
from ...params import TICKS, Params
from ..problem import Answer, Oracle, Problem
from ..walker import Walker, walked
from . import decode, fused, weights
from .network import CLIP, PARTS, TIME_MIN, Network
from .problems import Answers, Nodes, best, places

CHUNKS = {"cpu": 64, "cuda": 4096}
MOST = 1024  # walks of a problem
FEW = 64  # problems, below which torch's threads wait for one another longer than they compute


class Attention(Oracle):
    """Greedy walks, ties to the lowest index. Its word: "am", or "am:weights".

    Args:
        network: whose weights to take; None: those that the argument names, or the shipped ones.
        form: of `solve`: "fused", one kernel, or "torch".
        dtype: of the network.
        chunk: problems that the encoder is given at once; None: what is fast on the device.
    """

    name = "am"

    def __init__(
        self, params: Params, travel: np.ndarray, argument: str | None = None, *, network: Network | None = None,
        form: Literal["fused", "torch"] = "fused", dtype: str = "float32", chunk: int | None = None,
    ):  # fmt: skip
        super().__init__(params, travel, argument)
        real = {"float32": torch.float32, "float64": torch.float64}[dtype]
        network = network or weights.load(self.weights or weights.default(params), params, np.asarray(travel))
        self.network = network.to(real).eval().requires_grad_(False)
        self.form, self.chunk = form, chunk
        self.table = torch.from_numpy(np.array(travel, dtype=np.int32))

    def read(self, argument: str | None):
        if argument == "":
            raise ValueError("oracle='am:' must be 'am', or 'am:weights' with the name or path of weights")
        self.samples, self.weights = 1, argument

    # ---- one problem, as the original asks

    def route(self, problem: Problem, kept: Sequence[int] = ()) -> Answer:
        """The answer by plain Python but for the encoder: an independent form of the same walk."""
        p = problem
        columns = (p.zone, p.earliest, p.latest, p.demand, p.service, [True] * p.nodes)
        keys = self.keys(Nodes.of(*([column] for column in columns), device=self.table.device))[0].cpu().numpy()
        uniform = self.uniform(self.places(p.nodes))
        found = []
        for number, first in enumerate(self.firsts_of(p)):
            numbers = None if uniform is None else uniform[number].cpu().numpy()
            found.append(walked(p, Choice(self.network, keys, numbers, first)))
        return min(found, key=lambda one: (not one.ok, one.cost))

    def firsts_of(self, problem: Problem) -> list[int]:
        """First nodes of walks; 0: chosen."""
        return [0] * self.samples

    # ---- many problems

    def answer_all(self, nodes, earliest, latest, demand, service, mask):
        ride = self.params.max_ride_ticks
        if ride and self.params.paired:
            earliest = earliest.copy()
            earliest[:, 1::2] = np.maximum(earliest[:, 1::2], earliest[:, 2::2] - ride)
        found = Nodes.of(nodes, earliest, latest, demand, service, mask, device=self.table.device)
        return tuple(part.cpu().numpy() for part in self.answers(found, used(mask)))

    def answers(self, nodes: Nodes, count: int | None = None) -> Answers:
        """Answers to problems, on their device; in the form "fused" nothing waits for it.

        Args:
            nodes: pickups open no sooner than `max_ride` before their drop-offs.
            count: nodes behind which no problem has any, so that they cost nothing; None: all.
        """
        device, length = nodes.zone.device, self.places(nodes.zone.shape[1])
        nodes = Nodes(*(column[:, :count] for column in nodes))
        if self.table.device != device:
            self.network, self.table = self.network.to(device), self.table.to(device)
        uniform = self.uniform(self.places(nodes.zone.shape[1]))
        given = (self.network, self.table, nodes, self.keys(nodes), self.samples, uniform, self.firsts(nodes))
        found = best(fused.decode(*given)[0] if self.form == "fused" else decode.decode(*given), self.samples)
        return found._replace(walk=F.pad(found.walk, (0, length - found.walk.shape[1])))

    def phase(self, env):
        """Answers a batch's `problems` in place: what `lockstep.make` takes as oracle."""
        nodes = Nodes(*env.problems)
        known = used(nodes.there.numpy()) if nodes.there.device.type == "cpu" else None  # for a GPU one would wait
        for target, values in zip(env.answers, self.answers(nodes, known), strict=True):
            target.copy_(values)

    @property
    def bytes_of_problem(self) -> int:
        """Bytes of the keys of a problem of a day, and of its walks."""
        p, numbers = self.params, PARTS * self.network.shape.width
        return p.nodes * numbers * self.network.context.itemsize + self.samples * (2 * p.walk_length + 9)

    def places(self, nodes: int) -> int:
        """Length of the walks of problems of so many nodes."""
        return places(self.params, nodes)

    def keys(self, nodes: Nodes) -> Tensor:
        """Encoded nodes [B, N, 4 d] as walks read them, chunk by chunk."""
        B, device = len(nodes.zone), nodes.zone.device.type
        chunk, statistics = self.chunk or CHUNKS[device], self.params.batch_statistics
        with one_thread() if device == "cpu" and B < FEW else contextlib.nullcontext():
            if chunk >= B:
                return self.network(nodes, statistics)
            keys = self.network.context.new_empty((*nodes.zone.shape, PARTS * self.network.shape.width))
            for at in range(0, B, chunk):  # in place, so that there is never a second copy of all
                keys[at : at + chunk] = self.network(nodes.part(at, at + chunk), statistics)
        return keys

    def firsts(self, nodes: Nodes) -> Tensor | None:
        """First nodes of the walks, [B x samples]; None: chosen."""
        return None

    def uniform(self, places: int) -> Tensor | None:
        """Numbers [samples, places] by which nodes are drawn; None: greedy."""
        return None


class AttentionSamples(Attention):
    """The best of k walks whose nodes are drawn, by the same numbers for every problem. Its word: "am-sample:k"."""

    name = "am-sample"

    def read(self, argument: str | None):
        self.samples, self.weights = count_of(self.name, argument)
        self.numbers: dict[tuple, Tensor] = {}  # that have been drawn, by places and device

    def uniform(self, places: int) -> Tensor:
        key = max(places, self.params.walk_length), self.table.device
        if key not in self.numbers:
            words = streams.words(0, 0, np.arange(self.samples)[:, None], np.arange(key[0]), streams.SAMPLES)
            self.numbers[key] = torch.from_numpy(streams.unit(words)).to(self.table.device)
        return self.numbers[key][:, :places]


class AttentionFirsts(Attention):
    """The best of k greedy walks that begin with the k pickups of the soonest latest times. Its word: "am-pomo:k"."""

    name = "am-pomo"

    def read(self, argument: str | None):
        self.samples, self.weights = count_of(self.name, argument)

    def firsts_of(self, problem: Problem) -> list[int]:
        pickups = [node for node in range(1, problem.nodes) if problem.is_pickup(node)]
        return sorted(pickups, key=lambda node: problem.latest[node])[: self.samples]

    def firsts(self, nodes: Nodes) -> Tensor:
        step = 2 if self.params.paired else 1
        there, latest = nodes.there[:, 1::step], nodes.latest[:, 1::step]
        order = torch.where(there, latest, 2**30).argsort(dim=1, stable=True)
        order = torch.where(
            there.gather(1, order), order, order[:, :1]
        )  # with fewer requests some walks are made twice
        place = torch.arange(self.samples, device=order.device).clamp(max=order.shape[1] - 1)
        return (order[:, place] * step + 1).flatten()


class Choice:
    """The next node of a walk in plain Python: called with a walker and what it allows.

    Args:
        keys: [N, 4 d] of one problem.
        uniform: [places] numbers of U[0, 1); None: greedy.
        first: node, where it is allowed; 0: chosen.
    """

    def __init__(self, network: Network, keys: np.ndarray, uniform: np.ndarray | None, first: int):
        self.heads, self.steps, self.uniform, self.first = network.shape.heads, 0, uniform, first
        self.key, self.value, self.pointer, self.query = np.split(keys, PARTS, axis=1)
        self.context = network.context.cpu().numpy()
        self.legs = None if network.legs is None else network.legs.cpu().numpy()

    def __call__(self, walker: Walker, allowed: list[int]) -> int:
        step, self.steps = self.steps, self.steps + 1
        if step == 0 and self.first and self.first in allowed:
            return self.first
        if len(allowed) == 1:
            return allowed[0]
        logit = self.logits(walker, allowed, step)
        if self.uniform is None:
            return allowed[int(logit.argmax())]
        clipped = CLIP * np.tanh(logit)
        below = np.exp(clipped - clipped.max()).cumsum()
        return allowed[min(int((below <= self.uniform[step] * below[-1]).sum()), len(allowed) - 1)]

    def logits(self, walker: Walker, allowed: list[int], step: int) -> np.ndarray:
        """Logits of the allowed nodes before they are clipped."""
        p, problem = walker.problem.params, walker.problem
        asked = np.array([
            walker.load / p.capacity, walker.clock / p.horizon_ticks, step / (2 * max(problem.requests, 1)),
        ], self.query.dtype)  # fmt: skip
        here = (self.query[walker.at] + asked @ self.context).reshape(self.heads, -1)
        key, value = (part[allowed].reshape(len(allowed), self.heads, -1) for part in (self.key, self.value))
        score = np.einsum("chd,hd->hc", key, here)
        weight = np.exp(score - score.max(axis=1, keepdims=True))
        weight /= weight.sum(axis=1, keepdims=True)
        logit = self.pointer[allowed] @ np.einsum("hc,chd->hd", weight, value).ravel()
        if self.legs is not None:
            logit = logit + np.array([self.move(walker, node) for node in allowed], logit.dtype) @ self.legs
        return logit

    def move(self, walker: Walker, node: int) -> list[float]:
        """Leg, time until service starts, and slack of a move, in units of 40 min."""
        leg = walker.problem.leg(walker.at, node)
        start, slack = (walker.start(node), walker.due[node] - walker.clock - leg) if node else (walker.clock + leg, 0)
        return [number / (TIME_MIN * TICKS) for number in (leg, start - walker.clock, slack)]


def used(there: np.ndarray) -> int:
    """Number of nodes behind which no problem of `there` [B, N] has any; the first, the depot, counts always."""
    return int(np.flatnonzero(there.any(axis=0)).max(initial=0)) + 1


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """One thread of torch within."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def count_of(name: str, argument: str | None) -> tuple[int, str | None]:
    """k and the weights of an argument "k" or "k:weights".

    Raises:
        ValueError: k is no whole number from 1 to 1024, or nothing stands after the second colon.
    """
    count, colon, word = (argument or "").partition(":")
    if not count.isdecimal() or not 1 <= int(count) <= MOST or (colon and not word):
        given = name if argument is None else f"{name}:{argument}"
        must = f"'{name}:k' or '{name}:k:weights', k a whole number from 1 to {MOST}"
        raise ValueError(f"oracle={given!r} must be {must}")
    return int(count), word or None
