"""The update of PPO with the gradient written out, compiled for the processor at hand.

For two networks apart of two equal tanh layers, a Categorical or a Gaussian, on the CPU, in float32. Any other case is
`autograd.py`'s, which has the same methods.
"""

import ctypes
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from envs.kernels import compile
from envs.policies import HIDDEN

from .autograd import ADAM_BETAS, ADAM_EPS, FIGURES, STATE
from .distributions import Categorical, Distribution, Gaussian
from .networks import Networks

SOURCE = Path(__file__).with_name("learner.cuh")
MOST_ACTIONS = 8  # of a Categorical
FEWEST_ROWS_TO_PART, ROWS_OF_A_PART, MOST_PARTS = 128, 512, 32
MEANS = 8  # places behind a gradient: five figures and padding


def fits(distribution: Distribution) -> bool:
    """Whether the compiled update knows an action distribution."""
    if type(distribution) is Categorical:
        return distribution.outputs <= MOST_ACTIONS
    return type(distribution) is Gaussian


def parts_of(rows: int) -> int:
    """How many gradients of their own the rows of one shard have: a power of two that depends on nothing else."""
    if rows < FEWEST_ROWS_TO_PART:
        return 1
    return min(MOST_PARTS, max(2, 2 ** (rows // ROWS_OF_A_PART).bit_length() // 2))


def unit(inputs: int, hidden: int, outputs: int, continuous: bool) -> str:
    """The translation unit for one shape of networks."""
    defines = {"OBS": inputs, "HIDDEN": hidden, "OUTPUTS": outputs, "CONTINUOUS": int(continuous)}
    return "\n".join([*(f"#define {name} {value}" for name, value in defines.items()), compile.expand(SOURCE), ""])


def _job_struct() -> type[ctypes.Structure]:
    """The struct Job of learner.cuh: pointers and integers of eight bytes, and doubles."""
    body = re.search(r"struct Job \{\n(.*?)\n\};", SOURCE.read_text(), re.DOTALL)[1]
    fields = []
    for line in body.splitlines():
        kind, name = re.match(r"\s*(double )?[^;]*?(\w+)(?:;|\)\()", line).groups()
        fields.append((name, ctypes.c_double if kind else ctypes.c_int64))
    return type("Job", (ctypes.Structure,), {"_fields_": fields})


class Learner:
    """Losses and Adam steps of L learners over minibatches of one batch; the methods are those of `Autograd`.

    Any number of threads gives the same bits, as do two shards here and in two processes. At every update the tensors
    handed in are read, and the parameters written, where they lie: change them in place.

    Args:
        networks: two tanh layers of 16, 32 or 64 units, not shared, on the CPU; its parameters are trained.
        distribution: for which `fits` holds.
        batch: contiguous tensors with one row per sample: obs [N, n] float32, action [N] uint8 or [N, m] float32,
            log_prob, advantage, target, value [N] float32.
        rate, ent_coef: [L] float32, read at every update.
        rows: k, of one shard in a minibatch.
        threads: that share the rows.
        shards: S; the gradients of shards are computed apart and summed in their order.
        clip_value: limit the value's change like the ratio's.
        target_kl: a learner whose mean KL estimate exceeds it takes no further step until `begin`; None: no limit.
        reduce: sums a tensor over processes in place; None where there is one process.

    Attributes:
        figures: float64 [L, 7], sums over updates since the caller cleared them, named by `autograd.FIGURES`; a learner
            that has stopped adds nothing.
        first_bad: int64 [2], number of the first update with a loss, with a gradient that was not finite, or -1. Such a
            gradient is not applied.
        gradients: float32 [L, S, P + 8] of the last update, total [L, P + 8] their sum; behind the gradient stand the
            means of the five first figures.

    Raises:
        ValueError: networks, distribution or a tensor of another kind; the message says what would be right.
    """

    def __init__(
        self,
        networks: Networks,
        distribution: Distribution,
        batch: Mapping[str, torch.Tensor],
        rate: torch.Tensor,
        ent_coef: torch.Tensor,
        *,
        rows: int,
        threads: int = 1,
        shards: int = 1,
        clip: float = 0.2,
        clip_value: bool = True,
        vf_coef: float = 0.5,
        norm_adv: bool = True,
        max_grad_norm: float = 0.5,
        target_kl: float | None = None,
        reduce: Callable[[torch.Tensor], None] | None = None,
    ):
        _require_shape(networks, distribution)
        for name, number in (("rows", rows), ("threads", threads), ("shards", shards)):
            if number < 1:
                raise ValueError(f"{name} must be at least 1, got {number}")
        L, S, n, P = networks.learners, shards, networks.inputs, networks.size
        given = self._checked(batch, n, distribution) | {"rate": rate, "ent_coef": ent_coef}
        for name in ("rate", "ent_coef"):
            _require(given[name], name, (L,), torch.float32)
        _require(networks.parameters, "parameters", (L, P), torch.float32)
        self.shape, self.batch_rows, self.reduce = (L, S, rows), len(batch["obs"]), reduce
        self.first, self.second = torch.zeros(L, P), torch.zeros(L, P)  # Adam's moments
        self.steps = torch.zeros(L, dtype=torch.int64)
        self.updates = torch.zeros(1, dtype=torch.int64)
        self.first_bad = torch.full((2,), -1, dtype=torch.int64)
        self.figures = torch.zeros(L, len(FIGURES), dtype=torch.float64)
        self.stopped = torch.zeros(L, dtype=torch.bool)
        self.gradients, self.total = torch.zeros(L, S, P + MEANS), torch.zeros(L, P + MEANS)
        self.totals = torch.zeros(L, 3, dtype=torch.float64)
        library = compile.library(unit(n, networks.hidden[0], distribution.outputs, isinstance(distribution, Gaussian)))
        parts = parts_of(rows)
        tensors = given | {
            name: getattr(self, name)
            for name in ("first", "second", "steps", "updates", "first_bad", "figures", "stopped", "gradients", "total")
        }
        tensors |= {
            "parameters": networks.parameters,
            "totals": self.totals,
            "bad": torch.zeros(L, 2, dtype=torch.uint8),
            "packed": _aligned(L * _size(library, "packed")),
            "part": _aligned(L * S * parts * _size(library, "part")),
        }
        self._kept = tensors
        self._job = _job_struct()(
            **{name: tensor.data_ptr() for name, tensor in tensors.items()},
            batch_rows=self.batch_rows,
            learners=L,
            shards=S,
            count=rows,
            parts=parts,
            threads=threads,
            norm_adv=norm_adv,
            clip_value=clip_value,
            clip=clip,
            vf_coef=vf_coef,
            max_grad_norm=max_grad_norm,
            target_kl=math.inf if target_kl is None else target_kl,
            beta1=ADAM_BETAS[0],
            beta2=ADAM_BETAS[1],
            adam_eps=ADAM_EPS,
            pool=ctypes.cast(compile.pool(), ctypes.c_void_p).value if threads > 1 else 0,
        )
        self._address = ctypes.addressof(self._job)
        for name in ("prepare", "gradient", "step", "update"):
            function = getattr(library, f"learner_{name}")
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

    def begin(self) -> None:
        """Starts an iteration: learners that target_kl stopped go on."""
        self.stopped.zero_()

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
            learner, shard, place = (int(i) for i in torch.unravel_index(torch.tensor(wrong), rows.shape))
            raise IndexError(
                f"rows[{learner}, {shard}, {place}] is {int(rows.flatten()[wrong])}; the batch has rows 0 to "
                f"{self.batch_rows - 1}"
            )

    def state(self) -> dict[str, torch.Tensor]:
        """Adam's moments and step counts, copied."""
        return {name: getattr(self, name).clone() for name in STATE}

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        for name in STATE:
            getattr(self, name).copy_(state[name])


def _require_shape(networks: Networks, distribution: Distribution) -> None:
    hidden = networks.hidden
    if len(hidden) != 2 or hidden[0] != hidden[1] or hidden[0] not in HIDDEN or networks.shared:
        raise ValueError(
            f"networks have hidden layers of {list(hidden)} units{', shared' if networks.shared else ''}; the compiled "
            "update knows two equal ones of 16, 32 or 64, actor and critic apart"
        )
    if networks.device.type != "cpu" or networks.precision != "fp32":
        raise ValueError(
            f"networks are {networks.precision} on {networks.device}; the compiled update is fp32 on the CPU"
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
    function = getattr(library, f"learner_bytes_of_{name}")
    function.restype = ctypes.c_longlong
    return function()


def _aligned(size: int) -> torch.Tensor:
    """Bytes that begin at a multiple of 64."""
    bytes_ = torch.zeros(size + 64, dtype=torch.uint8)
    skipped = -bytes_.data_ptr() % 64
    return bytes_[skipped : skipped + size]
