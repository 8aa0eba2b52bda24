"""What a port of a large environment declares: its batch is `block.py`'s."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .kernels import compile
from .port import Port
from .vectorised import MODES


@dataclass(frozen=True)
class BlockPort:
    """What a port of this kind declares; its class of batches has the rest."""

    title: str
    params: type  # frozen dataclass of compile-time constants
    presets: Mapping[str, Mapping]
    batched: type  # of `BlockEnv`
    units: Callable[
        [Path], dict[tuple[str, str, str], str]
    ]  # to compile for a check, by mode, dtype, a word of its own
    gymnasium_id: str | None = None

    kind = "block"  # a block of threads holds one environment

    make_params = Port.make_params


@dataclass(frozen=True)
class Sizes:
    """Lengths of one environment's rows, as its kernel has them."""

    state: int
    obs: int
    raw: tuple[int, ...]  # shape of a raw action, agents first
    targets: tuple[int, ...]  # shape of the integer form,
    shares: int  # and of the numbers beside it
    metrics: int
    rewards: int = 1
    record: int = 0

    @property
    def agents(self) -> int:
        return self.raw[0]


@dataclass(frozen=True)
class Layout:
    """One environment in one combination of compile-time choices."""

    folder: Path
    params: Any
    sizes: Sizes
    lanes: int
    limit: int  # steps of an episode
    defines: Mapping[str, object] = field(default_factory=dict)  # the environment's own

    def unit(self, dtype: str, mode: str, signed: bool, trace: bool) -> str:
        """The translation unit."""
        defines = {
            "AUTORESET": MODES[mode],
            "LIMIT": self.limit,
            "LANES": self.lanes,
            "SIGNED": int(signed),
            "TRACE": int(trace),
            **self.defines,
        }
        lanes, batch = compile.KERNELS / "block_lanes.cuh", compile.KERNELS / "block.cuh"
        return compile.unit(dtype, defines, self.params, lanes, self.folder / "kernel.cuh", batch)
