"""Running mean and variance of observations, and of returns for the scale of rewards; kept on their device.

Merged as in Chan, Golub, LeVeque: Updating formulae and a pairwise algorithm for computing sample variances (1979).
"""

import copy
from collections.abc import Callable, Mapping, Sequence

import torch

from lockstep.agents.run import checkpoint
from lockstep.envs.checks import find_device, integer
from lockstep.envs.kernels import structs

from .kernels import COLUMNS, lookup, per_part, require, struct

CLIP = 10.0  # of what is normalised
EPSILON = 1e-8  # added to a variance
CACHED = 65536  # numbers that the CPU turns into float64 at a time: what its cache holds
STATISTICS = ("count", "mean", "squares")


def normalised(x: torch.Tensor, shift: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return ((x - shift) * scale).clamp_(-CLIP, CLIP)


def with_statistics(weights: dict, normaliser: "Normaliser | None") -> dict:
    """The weights of a run, and where there is a normaliser, its state."""
    return weights if normaliser is None else weights | {"normaliser": normaliser.state()}


def applied(normaliser: "Normaliser | None") -> tuple[torch.Tensor, ...]:
    """Shift and scale [n] of a normaliser of one learner; nothing where there is none."""
    return () if normaliser is None else (normaliser.shift[0, 0], normaliser.scale[0, 0])


def load_checked(state: Mapping, weights: Mapping, normaliser: "Normaliser | None") -> None:
    """Checks all weights in a run's `state` or `weights`, and takes the normaliser's state from it.

    Args:
        weights: `with_statistics` of the run here, like which the state must be.

    Raises:
        ValueError: names what has another shape, is not finite, or is there on one side alone.
    """
    checkpoint.require_like(state, weights)
    if normaliser is None and "normaliser" in state:
        raise ValueError("state has a 'normaliser', for which norm_obs must be True here")
    checkpoint.require_finite(state, weights)
    if normaliser is not None:
        normaliser.load_state(state["normaliser"])


class Normaliser:
    """Subtracts the mean of all rows so far and divides by their standard deviation; clips at 10.

    Rows are [..., N, n]. Learner l owns the l-th of L equal parts of the N, and has statistics of its own. The mean
    is 0 and the variance 1 until a row is seen.

    Args:
        n: components of a row.
        learners: L.
        device: of rows and statistics.
        shards: S, equal parts of a learner's rows that are added up apart and then in order: with one shard in each of
            S processes and `reduce`, the result is the same.

    Attributes:
        count: float64 [L] rows so far.
        mean, squares: float64 [L, n], squares being the sum of squared deviations from the mean.
        shift, scale: float32 [L, 1, n], the mean and 1 / sqrt(variance + 1e-8), as they are applied.

    Raises:
        ValueError: naming the argument, its value and what is allowed.
    """

    def __init__(self, n: int, learners: int = 1, device="cpu", shards: int = 1):
        self.device = find_device(device)
        self.n, self.learners = integer("n", n, 1, 2**31 - 1), integer("learners", learners, 1, 2**31 - 1)
        self.shards = integer("shards", shards, 1, 2**31 - 1)
        self.count = torch.zeros(self.learners, dtype=torch.float64, device=self.device)
        self.mean, self.squares = torch.zeros(2, self.learners, self.n, dtype=torch.float64, device=self.device)
        self.shift = torch.zeros(self.learners, 1, self.n, dtype=torch.float32, device=self.device)
        self.scale = torch.ones(self.learners, 1, self.n, dtype=torch.float32, device=self.device)

    def require_columns(self, name: str, columns: int):
        """ValueError unless learners and shards cut so many columns into equal parts."""
        if columns % (self.learners * self.shards):
            raise ValueError(
                f"{name}: {columns} columns must be divisible by {self.learners} learners x {self.shards} shards"
            )

    @torch.no_grad()
    def update(
        self,
        rows: torch.Tensor,
        valid: torch.Tensor | None = None,
        reduce: Callable[[torch.Tensor], object] | None = None,
    ) -> None:
        """Takes rows into the statistics; none of a learner's where one of them is not finite.

        Args:
            rows: [..., N, n].
            valid: bool [..., N], which rows count; None: all. The others may hold anything.
            reduce: sums a float64 tensor in place over the processes, each of which calls this with its own rows. It
                is called twice: for counts and sums, then for squared deviations from the mean of all.

        Raises:
            ValueError: a shape that does not fit.
        """
        if rows.dim() < 2 or rows.shape[-1] != self.n:
            raise ValueError(f"rows must be [..., N, {self.n}], got {list(rows.shape)}")
        if valid is not None and (valid.shape != rows.shape[:-1] or valid.dtype != torch.bool):
            raise ValueError(f"valid must be bool {list(rows.shape[:-1])}, got {valid.dtype} {list(valid.shape)}")
        self.require_columns("rows", rows.shape[-2])
        per_shard = rows.shape[-2] // (self.learners * self.shards)
        cut = (-1, self.learners, self.shards, per_shard)
        rows, valid = rows.reshape(*cut, self.n), None if valid is None else valid.reshape(cut)
        at_once = len(rows) if self.device.type == "cuda" else max(1, CACHED // (self.learners * per_shard * self.n))
        chunks = [(s, slice(t, t + at_once)) for s in range(self.shards) for t in range(0, len(rows), at_once)]

        def total(of: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
            """[L, n], the sum of `of` the valid rows [.., L, K, n] of all shards; a shard's are added up first."""
            sums = self.mean.new_zeros(self.shards, self.learners, self.n)
            for s, steps in chunks:
                part = of(rows[steps, :, s].double())
                if valid is not None:
                    part = torch.where(valid[steps, :, s].unsqueeze(-1), part, 0.0)
                sums[s] += part.sum(dim=(0, 2))
            return sum(sums.unbind())

        if valid is None:
            count = self.mean.new_full((self.learners, 1), len(rows) * self.shards * per_shard)
        else:
            count = valid.sum(dim=(0, 2, 3), dtype=torch.float64).unsqueeze(1)
        sums = torch.cat([count, total(lambda part: part)], dim=1)
        if reduce is not None:
            reduce(sums)
        count, mean = sums[:, :1], sums[:, 1:] / sums[:, :1].clamp(min=1)
        squares = total(lambda part: part.sub_(mean.unsqueeze(1)).square_())
        if reduce is not None:
            reduce(squares)
        before = self.count.unsqueeze(1)
        share = count / (before + count).clamp(min=1)
        apart = mean - self.mean
        finite = (sums.isfinite() & squares.sum(dim=1, keepdim=True).isfinite()).all(dim=1, keepdim=True)
        self.squares.add_(torch.where(finite, squares + apart.square() * before * share, 0.0))
        self.mean.add_(torch.where(finite, apart * share, 0.0))
        self.count.add_(torch.where(finite, count, 0.0).squeeze(1))
        self._apply()

    def _apply(self):
        """Shift and scale from the statistics."""
        count = self.count.unsqueeze(1)
        variance = torch.where(count > 0, self.squares / count.clamp(min=1), 1.0)
        self.shift.copy_(self.mean.unsqueeze(1))
        self.scale.copy_((variance + EPSILON).rsqrt().unsqueeze(1))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Rows [..., N, n] normalised, float32; the statistics stay. With one learner any [..., n]."""
        if self.learners == 1:
            return normalised(x, self.shift[0, 0], self.scale[0, 0])
        if x.dim() < 2 or x.shape[-2] % self.learners:
            raise ValueError(f"x must be [..., N, {self.n}] with N divisible by {self.learners}, got {list(x.shape)}")
        parts = x.reshape(*x.shape[:-2], self.learners, -1, self.n)
        return normalised(parts, self.shift, self.scale).view(x.shape)

    def of(self, learner: int) -> "Normaliser":
        """One learner's normaliser, which shares its statistics."""
        one = copy.copy(self)
        one.learners = 1
        for name in (*STATISTICS, "shift", "scale"):
            setattr(one, name, getattr(self, name)[learner : learner + 1])
        return one

    def state(self) -> dict[str, torch.Tensor]:
        """A copy of the statistics."""
        return {name: getattr(self, name).clone() for name in STATISTICS}

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Goes on from a `state()` of the same shape; ValueError names the first entry that does not fit."""
        for name in STATISTICS:
            tensor, shape = state.get(name), getattr(self, name).shape
            if tensor is None or tensor.shape != shape:
                found = "nothing" if tensor is None else list(tensor.shape)
                raise ValueError(f"state must hold {name} {list(shape)}, holds {found}")
        for name in STATISTICS:
            getattr(self, name).copy_(state[name])
        self._apply()


class ReturnScale:
    """Divides rewards by the standard deviation of the running discounted return.

    R_t = gamma R_{t-1} + r_t, which starts anew after either flag. Its variance takes in all of an iteration's R once,
    before the rewards of that iteration are divided; the result is clipped at 10. (Gymnasium's NormalizeReward and
    CleanRL take in one step at a time.)

    Args:
        columns: N.
        gamma: in [0, 1]; one number, or one for each of several equal parts of the columns.
        learners: L, equal parts of the columns with a variance of their own.
        shards: S, equal parts of a learner's columns that are added up as if in processes of their own.

    Raises:
        ValueError: naming the argument, its value and what is allowed.
    """

    def __init__(self, columns: int, gamma: float | Sequence[float], learners: int = 1, device="cpu", shards: int = 1):
        self.device = find_device(device)
        self.columns = N = integer("columns", columns, 1, 2**31 - 1)
        self.statistics = Normaliser(1, learners, self.device, shards)
        self.statistics.require_columns("columns", N)
        discounts = per_part("gamma", gamma, N)
        self._gamma = torch.tensor(discounts, dtype=torch.float32, device=self.device)
        self.running = torch.zeros(N, dtype=torch.float32, device=self.device)
        self._fixed = struct(
            "Columns", gamma=self._gamma, columns=N, per_part=N // len(discounts), running=self.running
        )
        self._call = struct("ColumnsCall")
        tile = COLUMNS[self.device.type]
        kernel = lookup(self._fixed, self._call, -(-N // tile), tile, self.device, 1)
        self._kernels = {masked: kernel("returns_of_valid" if masked else "returns") for masked in (False, True)}

    def __call__(
        self,
        reward: torch.Tensor,
        terminated: torch.Tensor,
        truncated: torch.Tensor,
        valid: torch.Tensor | None = None,
        reduce: Callable[[torch.Tensor], object] | None = None,
    ) -> torch.Tensor:
        """The scaled rewards of an iteration, a new tensor float32 [T, N]; 0 where not valid.

        Args:
            reward: float32 [T, N].
            terminated, truncated: bool [T, N].
            valid: bool [T, N]; None: all. Other rows may hold anything; of them only the flags are used.
            reduce: as of `Normaliser.update`.

        Raises:
            ValueError: wrong shape, type or device, or not contiguous; names the argument.
        """
        shape = (len(reward), self.columns)
        require("reward", reward, shape, torch.float32, self.device)
        flags = {"terminated": terminated, "truncated": truncated} | ({} if valid is None else {"valid": valid})
        for name, flag in flags.items():
            require(name, flag, shape, torch.bool, self.device)
        returns = torch.empty_like(reward)
        structs.fill(self._call, steps=len(reward), reward=reward, returns=returns, **flags)
        self._kernels[valid is not None]()
        self.statistics.update(returns.unsqueeze(-1), valid, reduce)
        learners = self.statistics.scale.view(-1, 1)
        scaled = (reward.view(len(reward), len(learners), -1) * learners).clamp_(-CLIP, CLIP).view(shape)
        return scaled if valid is None else torch.where(valid, scaled, 0.0)

    def state(self) -> dict[str, torch.Tensor]:
        """A copy of all that later calls depend on."""
        return {"running": self.running.clone(), **self.statistics.state()}

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Goes on from a `state()` of the same shape; ValueError names the first entry that does not fit."""
        statistics = {name: tensor for name, tensor in state.items() if name != "running"}
        if "running" not in state or state["running"].shape != self.running.shape:
            raise ValueError(f"state must hold running [{self.columns}]")
        self.statistics.load_state(statistics)
        self.running.copy_(state["running"])
