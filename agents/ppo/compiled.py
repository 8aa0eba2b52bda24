"""The update of PPO with the gradient written out, compiled for the processor at hand.

For networks of two equal tanh layers, a Categorical or a Gaussian, on the CPU, in float32. Any other case is
`autograd.py`'s, which has the same methods.
"""

import ctypes
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from lockstep.agents.parts import native
from lockstep.agents.parts.actor_critic import KNOWN, ActorCritic
from lockstep.agents.parts.distributions import Categorical, Distribution, Gaussian
from lockstep.envs.kernels import compile, structs

from .update import ADAM_BETAS, ADAM_EPS, Update

SOURCE = Path(__file__).with_name("compiled.cuh")
MOST_ACTIONS = 8  # of a Categorical
FEWEST_ROWS_TO_PART, ROWS_OF_A_PART, MOST_PARTS = 128, 512, 32
MEANS = 8  # places behind a gradient: five metrics and padding


def fits(distribution: Distribution) -> bool:
    """True where the compiled update knows an action distribution."""
    if type(distribution) is Categorical:
        return distribution.outputs <= MOST_ACTIONS
    return type(distribution) is Gaussian


def parts_of(rows: int) -> int:
    """The number of gradients that the rows of one shard have: a power of two that depends on nothing else."""
    if rows < FEWEST_ROWS_TO_PART:
        return 1
    return min(MOST_PARTS, max(2, 2 ** (rows // ROWS_OF_A_PART).bit_length() // 2))


def unit(inputs: int, hidden: int, outputs: int, continuous: bool) -> str:
    """The translation unit for one shape of networks."""
    defines = {"OBS": inputs, "HIDDEN": hidden, "OUTPUTS": outputs, "CONTINUOUS": int(continuous)}
    return "\n".join([*(f"#define {name} {value}" for name, value in defines.items()), compile.expand(SOURCE), ""])


class CompiledUpdate(Update):
    """An `Update` in compiled code.

    Any number of threads gives the same bits, as do two shards here and in two processes. At every update the tensors
    handed in are read, and the parameters written, where they lie: change them in place.

    Args:
        networks: two tanh layers of 16, 32 or 64 units, on the CPU; its parameters are trained.
        distribution: for which `fits` holds.
        batch: contiguous tensors with one row per sample: obs [N, n] float32, action [N] uint8 or [N, m] float32,
            log_prob, advantage, target, value [N] float32.
        rate, ent_coef, settings: as of `Update`. The tensors are read, and the parameters written, where they lie:
            change them in place.
        rows: k, of one shard in a minibatch.
        threads: that share the rows.

    Attributes:
        gradients: float32 [L, S, P + 8] of the last update, total [L, P + 8] their sum; behind the gradient stand the
            means of the five first metrics.

    Raises:
        ValueError: networks, distribution or a tensor of another kind; the message says what would be right.
    """

    def __init__(
        self,
        networks: ActorCritic,
        distribution: Distribution,
        batch: Mapping[str, torch.Tensor],
        rate: torch.Tensor,
        ent_coef: torch.Tensor,
        *,
        rows: int,
        threads: int = 1,
        **settings,
    ):
        super().__init__(networks, rate, ent_coef, **settings)
        _require_shape(networks, distribution)
        for name, number in (("rows", rows), ("threads", threads), ("shards", self.shards)):
            if number < 1:
                raise ValueError(f"{name} must be at least 1, got {number}")
        L, S, n, P = networks.learners, self.shards, networks.inputs, networks.size
        given = self._checked(batch, n, distribution) | {"rate": rate, "ent_coef": ent_coef}
        for name in ("rate", "ent_coef"):
            _require(given[name], name, (L,), torch.float32)
        _require(networks.parameters, "parameters", (L, P), torch.float32)
        self.shape, self.batch_rows = (L, S, rows), len(batch["obs"])
        self.gradients, self.total = (
            torch.zeros(*shape, P + MEANS, dtype=torch.float32, device="cpu") for shape in ((L, S), (L,))
        )
        self.totals = torch.zeros(L, 3, dtype=torch.float64, device="cpu")
        text = unit(n, networks.hidden[0], distribution.outputs, isinstance(distribution, Gaussian))
        library = compile.library(text, native.OPTIMISED)
        parts = parts_of(rows)
        tensors = given | {
            name: getattr(self, name)
            for name in ("first", "second", "steps", "updates", "first_bad", "metrics", "stopped", "gradients", "total")
        }
        tensors |= {
            "parameters": networks.parameters,
            "totals": self.totals,
            "bad": torch.zeros(L, 2, dtype=torch.uint8, device="cpu"),
            "packed": _aligned(L * _size(library, "packed")),
            "part": _aligned(L * S * parts * _size(library, "part")),
        }
        self._kept = tensors
        self._job = structs.struct(
            "Job",
            SOURCE.read_text(),
            **tensors,
            batch_rows=self.batch_rows,
            learners=L,
            shards=S,
            count=rows,
            parts=parts,
            threads=threads,
            norm_adv=self.norm_adv,
            clip_value=self.clip_value,
            clip=self.clip,
            vf_coef=self.vf_coef,
            max_grad_norm=self.max_grad_norm,
            target_kl=math.inf if self.target_kl is None else self.target_kl,
            beta1=ADAM_BETAS[0],
            beta2=ADAM_BETAS[1],
            adam_eps=ADAM_EPS,
            pool=ctypes.cast(compile.pool(), ctypes.c_void_p).value if threads > 1 else 0,
        )
        self._address = ctypes.addressof(self._job)
        for name in ("prepare", "gradient", "step", "update"):
            function = getattr(library, f"ppo_{name}")
            function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_longlong
            setattr(self, f"_{name}", function)

    @staticmethod
    def _checked(batch: Mapping[str, torch.Tensor], inputs: int, distribution: Distribution) -> dict[str, torch.Tensor]:
        extra = sorted(set(batch) & {"mask", "valid"})
        if extra:
            raise ValueError(f"batch has {' and '.join(extra)}, which the compiled update does not know; use Autograd")
        N = len(batch["obs"])
        shapes = dict.fromkeys(("log_prob", "advantage", "target", "value"), (N,))
        shapes |= {"obs": (N, inputs), "action": (N, *distribution.stored_shape)}
        for name, shape in shapes.items():
            _require(
                batch[name], f"batch[{name!r}]", shape, distribution.stored_dtype if name == "action" else torch.float32
            )
        return {name: batch[name] for name in shapes}

    def epoch(self, rows: torch.Tensor, minibatches: int) -> None:
        for minibatch in rows.chunk(minibatches, dim=2):
            self.update(minibatch)

    def update(self, rows: torch.Tensor) -> None:
        """One Adam step per learner on a minibatch: rows int64 [L, S, k], indices into the batch.

        Raises:
            ValueError: rows of another shape or type.
            IndexError: a row that the batch does not have; nothing has changed then.
        """
        if tuple(rows.shape) != self.shape or rows.dtype != torch.int64:
            raise ValueError(f"rows must be int64 {list(self.shape)} (L, S, k), got {rows.dtype} {list(rows.shape)}")
        rows = rows.contiguous()
        self._job.rows = rows.data_ptr()
        if self.reduce is None:
            self._require_rows(rows, self._update(self._address))
            return
        self._require_rows(rows, self._prepare(self._address))
        self.reduce(self.totals)
        self._gradient(self._address)
        self.reduce(self.total)
        self._step(self._address)

    def _require_rows(self, rows: torch.Tensor, wrong: int) -> None:
        if wrong >= 0:
            learner, shard, place = (int(i) for i in np.unravel_index(wrong, tuple(rows.shape)))
            raise IndexError(
                f"rows[{learner}, {shard}, {place}] is {int(rows.flatten()[wrong])}; the batch has rows 0 to "
                f"{self.batch_rows - 1}"
            )


def _require_shape(networks: ActorCritic, distribution: Distribution) -> None:
    if networks.device.type != "cpu" or not networks.in_kernels:
        raise ValueError(
            f"networks have hidden layers of {list(networks.hidden)} units, "
            f"{networks.precision} on {networks.device}; the compiled update knows {KNOWN}, on the CPU"
        )
    if not fits(distribution):
        raise ValueError(
            f"the compiled update knows a Categorical of at most {MOST_ACTIONS} actions and a Gaussian, "
            f"not {distribution}"
        )


def _require(tensor: torch.Tensor, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    if (
        tuple(tensor.shape) != shape
        or tensor.dtype != dtype
        or not tensor.is_contiguous()
        or tensor.device.type != "cpu"
    ):
        raise ValueError(
            f"{name} must be contiguous {dtype} {list(shape)} on the CPU, got {tensor.dtype} {list(tensor.shape)} on "
            f"{tensor.device}{'' if tensor.is_contiguous() else ', not contiguous'}"
        )


def _size(library: ctypes.CDLL, name: str) -> int:
    function = getattr(library, f"ppo_bytes_of_{name}")
    function.restype = ctypes.c_longlong
    return function()


def _aligned(size: int) -> torch.Tensor:
    """Bytes that begin at a multiple of 64."""
    bytes_ = torch.zeros(size + 64, dtype=torch.uint8, device="cpu")
    skipped = -bytes_.data_ptr() % 64
    return bytes_[skipped : skipped + size]
