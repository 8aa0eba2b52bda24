"""The batch of vehicle routing: what it shows besides others, masks, and the place of an oracle between its kernels."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from ..batch import BatchedEnv, Port
from ..checks import available_memory, choice, find_device, integer
from .kernel_tables import ANSWER, PROBLEM
from .oracles import Oracle, make_oracle
from .oracles.attention.problems import Answers
from .windows import ACTIONS

SHARE = 0.8  # of what is free, which num_envs="auto" fills
FEW = 64  # environments, by which the bytes of one are found


class Problems(NamedTuple):
    """Problems of a batch, nodes as `Oracle.solve` takes them; int32 ticks on the batch's device.

    S is 2 with reward="twin" or "percent", rows alternate then: the windows kept, and those offered; otherwise 1.
    """

    nodes: torch.Tensor  # [S B, N] zones
    earliest: torch.Tensor  # [S B, N]
    latest: torch.Tensor  # [S B, N]
    demand: torch.Tensor  # [S B, N]
    service: torch.Tensor  # [S B, N]
    mask: torch.Tensor  # [S B, N] bool, false of requests that have not been asked


class RoutingBatch(BatchedEnv):
    """B environments, "auto" for as many as fit (`fitting`); `world` lists the options.

    Info of a step besides that of every batch, [B] each: accepted, failed bool, and int32 answered (who was asked),
    shift_min (accepted), cost_ticks, vehicles; walk [B, W], nodes padded with 0.

    Attributes:
        problems, answers: what passes to and from an oracle that is no part of the kernel; else without rows.
    """

    def __init__(self, port: Port, folder: Path, num_envs: int | str, device="cpu", **options):
        if isinstance(num_envs, str):
            choice("num_envs", num_envs, ("auto",))
            num_envs = fitting(port, folder, device, **options)
        super().__init__(port, folder, num_envs, device, **options)

    @property
    def traveller(self) -> torch.Tensor:
        """The traveller who asks next, [B] int64, or -1 at the end of an episode."""
        of = self.fields()
        over = of["t"] == self.params.requests
        if not self.params.stuck_after_failure:
            over = over | (of["failed"] > 0)
        asked = of["answered"].clamp(max=self.params.requests - 1).long()
        return of["order"].gather(1, asked[:, None])[:, 0].long().masked_fill(over, -1)

    @property
    def action_mask(self) -> torch.Tensor:
        """Rows of `masks` of those who ask next, [B, 16] bool; all true where nobody does."""
        traveller = self.traveller
        return self.masks[traveller.clamp(min=0)] | (traveller < 0)[:, None]

    @property
    def masks(self) -> torch.Tensor:
        """Actions by traveller that `action_mask` shows, [n, 16] bool, all true at first; others stay legal.

        It is the batch's own, and may be changed in place: a reset without options refuses then what setting it would.

        Raises:
            ValueError: when set to another shape, or to a row that allows nothing; names the traveller.
        """
        return self._masks

    @masks.setter
    def masks(self, given):
        known = list(self._masks.shape)
        try:
            rows = torch.as_tensor(given)
        except (TypeError, ValueError, RuntimeError):
            raise ValueError(f"masks={given!r:.60} must be bool {known}") from None
        if list(rows.shape) != known or rows.dtype != torch.bool:
            raise ValueError(f"masks={str(rows.dtype).removeprefix('torch.')} {list(rows.shape)} must be bool {known}")
        require_choices(rows)
        self._masks.copy_(rows)

    def reset(self, *, seed: int | Sequence[int] | None = None, options: Mapping | None = None, key=None):
        """Starts episodes, as `BatchedEnv.reset` does.

        With `unseeded_instances` a seed begins with keys that the system draws.

        Args:
            key: of the noise, or one for each group: a seed that is used as it is, even with `unseeded_instances`.

        Raises:
            ValueError: a key beside a seed, a row of `masks` that allows nothing, and what `BatchedEnv.reset` refuses.
        """
        if not options:  # else perhaps a mask on the device, for which nothing may wait
            require_choices(self._masks)
        if key is not None:
            if seed is not None:
                raise ValueError(f"seed={seed!r} must be None where a key is given")
            seed = self._seeds(key, "key")
        elif self.params.unseeded_instances and (seed is not None or not self._started) and not options:
            self._seeds(0 if seed is None else seed)
            seed = [secrets.randbits(64) for _ in range(self.groups)]
        return super().reset(seed=seed, options=options)

    def key(self) -> list[int]:
        """Keys of the noise, one for each group, for `reset(key=...)`."""
        return [int(one) for one in self._buffers["seeds"].cpu().numpy()]

    # ---- inside

    def _present(self):
        super()._present()
        self._masks = torch.ones((self.params.requests, ACTIONS), dtype=torch.bool, device=self.device)
        problem, answer = ([self._buffers.tables[name] for name in names] for names in (PROBLEM, ANSWER))
        self.problems = Problems(*problem[:-1], problem[-1].view(torch.bool))
        self.answers = Answers(*answer[:-1], answer[-1].view(torch.bool))


def require_choices(masks: torch.Tensor):
    """Raises ValueError that names the first row of masks [n, 16] which allows nothing."""
    for traveller in (~masks.any(dim=1)).nonzero().flatten().tolist():
        raise ValueError(f"masks[{traveller}] allows no action of traveller {traveller}, must allow one or more")


def fitting(port: Port, folder: Path, device, **options) -> int:
    """The environments that fill at most SHARE of the free memory, of each group the largest power of two.

    The keys of a learned oracle are counted in; the activations of its encoder come out of the rest, and so must what
    an oracle needs that is given as a function.

    Raises:
        MemoryError: not one of each group fits.
    """
    free, groups = available_memory(find_device(device)), integer("groups", options.get("groups", 1), 1, 2**20)
    one, two = (RoutingBatch(port, folder, FEW * groups * twice, device, **options) for twice in (1, 2))
    given = one.oracle
    oracle = None if callable(given) else make_oracle(given, one.params, one.scenario.travel)
    keys = getattr(oracle, "bytes_of_problem", 0) * len(one.problems.nodes)
    small, large = (sum(env.memory().values()) for env in (one, two))
    each, rest = (large - small + keys) / one.num_envs, 2 * small - large
    count = min(int((SHARE * free - rest) / each), 2**31 - 1) if SHARE * free > rest else 0
    if count < groups:
        raise MemoryError(
            f"num_envs='auto' finds {free:,} bytes free on {one.device}, where one environment of each group needs "
            f"{int((rest + groups * each) / SHARE):,}"
        )
    return groups * 2 ** ((count // groups).bit_length() - 1)


def on_host(oracle: Oracle) -> Callable[[RoutingBatch], None]:
    """The phase of an oracle in plain Python, for which the device waits: for small batches."""

    def solve(env: RoutingBatch):
        found = oracle.solve(*(part.cpu().numpy() for part in env.problems))
        for target, values in zip(env.answers, found, strict=True):
            target.copy_(torch.from_numpy(values))

    return solve
