"""Generalised advantage estimation, one launch on either device, which a CUDA graph can capture."""

from collections.abc import Sequence

import torch

from lockstep.envs.checks import find_device, integer
from lockstep.envs.kernels import structs

from .kernels import COLUMNS, lookup, per_part, require, struct, threads_for


class GAE:
    """Generalised advantage estimation (Schulman et al., arXiv:1506.02438, eq. 16) that bootstraps where it should.

    With e_t = terminated_t or truncated_t:
        delta_t = r_t + gamma n_t - V_t;  n_t = 0 if terminated, V(final observation) if only truncated, else V_{t+1}
        A_t = delta_t + gamma lambda (1 - e_t) A_{t+1};  target_t = A_t + V_t

    Args:
        shape: (T, N).
        gamma, gae_lambda: in [0, 1]; one number, or one for each of L equal parts of the columns.
        device, threads: threads of the CPU at most; they share the columns.

    Raises:
        ValueError: naming the argument, its value and what is allowed.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        gamma: float | Sequence[float],
        gae_lambda: float | Sequence[float],
        device="cpu",
        threads: int = 1,
    ):
        self.device = find_device(device)
        self.shape = T, N = integer("T", shape[0], 1, 2**31 - 1), integer("N", shape[1], 1, 2**31 - 1)
        discounts, lambdas = per_part("gamma", gamma, N), per_part("gae_lambda", gae_lambda, N)
        parts = max(len(discounts), len(lambdas))
        for name, numbers in (("gamma", discounts), ("gae_lambda", lambdas)):
            if len(numbers) not in (1, parts):
                raise ValueError(f"{name} has {len(numbers)} values, must be one or {parts} as the other")
        discounts, lambdas = (numbers * (parts // len(numbers)) for numbers in (discounts, lambdas))
        decays = [a * b for a, b in zip(discounts, lambdas, strict=True)]
        self._gamma, self._decay = (
            torch.tensor(numbers, dtype=torch.float32, device=self.device) for numbers in (discounts, decays)
        )
        self.advantage, self.target = (torch.zeros(T, N, dtype=torch.float32, device=self.device) for _ in range(2))
        self._fixed = struct(
            "Columns",
            gamma=self._gamma,
            decay=self._decay,
            columns=N,
            per_part=N // parts,
            advantage=self.advantage,
            target=self.target,
        )
        self._call = struct("ColumnsCall", steps=T)
        tile = COLUMNS[self.device.type]
        kernel = lookup(self._fixed, self._call, -(-N // tile), tile, self.device, threads_for(T * N, threads))
        self._kernels = {masked: kernel("advantage_of_valid" if masked else "advantage") for masked in (False, True)}

    def compute(
        self,
        reward: torch.Tensor,
        value: torch.Tensor,
        bootstrap: torch.Tensor,
        terminated: torch.Tensor,
        truncated: torch.Tensor,
        valid: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Advantage and target, the buffers float32 [T, N].

        Args:
            reward: float32 [T, N].
            value: float32 [T + 1, N], the last row of the observation after the roll-out.
            bootstrap: float32 [T, N], V(final observation) where truncated and not terminated; ignored elsewhere.
            terminated, truncated: bool [T, N].
            valid: bool [T, N]; None: all. A row that is not valid may hold anything. It gets 0 and 0 and is passed
                over: the row before it is followed by the next valid row, unless a flag lies between.

        Raises:
            ValueError: wrong shape, type or device, or not contiguous; names the argument.
        """
        T, N = self.shape
        require("reward", reward, (T, N), torch.float32, self.device)
        require("value", value, (T + 1, N), torch.float32, self.device)
        require("bootstrap", bootstrap, (T, N), torch.float32, self.device)
        flags = {"terminated": terminated, "truncated": truncated} | ({} if valid is None else {"valid": valid})
        for name, flag in flags.items():
            require(name, flag, (T, N), torch.bool, self.device)
        structs.fill(self._call, reward=reward, value=value, bootstrap=bootstrap, **flags)
        self._kernels[valid is not None]()
        return self.advantage, self.target
