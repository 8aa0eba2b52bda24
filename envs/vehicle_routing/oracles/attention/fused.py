"""Decoding of walks by one kernel, `decode.cuh`: a block of a GPU makes one walk, a thread of a CPU many."""

import functools
import threading
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ....batch import launch
from ....kernels import compile, structs
from ...params import TICKS, Params
from .network import CLIP, TIME_MIN, Network, Shape
from .problems import Answers, Nodes, places

SOURCE = Path(__file__).with_name("decode.cuh")
LANES = 128  # of a GPU
OPTIONAL = (
    "legs",
    "uniform",
    "shared",
    "first",
    "masks",
    "asked",
)  # of the kernel's batch: null, or 0, where not given


@dataclass(frozen=True)
class Trace:
    """Candidates of each selection of walks, and the state it was made in: for training. W walks of P places."""

    masks: Tensor  # [W, P, ceil(N / 32)] int32: bit j of word w is node 32 w + j
    asked: Tensor  # [W, P, 3]: load, clock and step, as a query knows them


def rules(params: Params, nodes: int) -> str:
    """`struct Rules` of walk.cuh, of problems of so many nodes at most."""
    p = params
    flags = {
        "PAIRED": p.paired, "LOOKAHEAD": p.lookahead_mask, "ONE_OBLIGATION": p.one_obligation,
        "EARLY_END": p.early_end, "SOFT": p.fleet == "soft", "HARD": p.fleet == "hard",
    }  # fmt: skip
    numbers = {
        "CAPACITY": p.capacity, "HORIZON": p.horizon_ticks, "MAX_RIDE": p.max_ride_ticks,
        "EXTRA_VEHICLE": p.extra_vehicle_ticks, "FLEET_SIZE": p.fleet_size, "NODES": nodes,
    }  # fmt: skip
    lines = [f"    static constexpr bool {name} = {str(bool(value)).lower()};" for name, value in flags.items()]
    lines += [f"    static constexpr int {name} = {value};" for name, value in numbers.items()]
    return "\n".join(["struct Rules {", *lines, "};"])


@dataclass(frozen=True)
class NoConstants:
    """The kernel reads rules, and no parameter beside them: one binary serves all that do not differ in these."""


@functools.cache
def unit(params: Params, shape: Shape, nodes: int, dtype: str) -> str:
    """The translation unit of problems of so many nodes at most."""
    defines = {
        "D": shape.width, "HEADS": shape.heads, "LEGS": int(shape.legs), "LANES": LANES, "JOINT": 0, "AGENTS": 1,
        "CLIP": CLIP, "MOVE_TICKS": TIME_MIN * TICKS,
    }  # fmt: skip
    return compile.unit(dtype, defines, NoConstants(), SOURCE, declarations=rules(params, nodes))


def decode(
    network: Network, travel: Tensor, nodes: Nodes, keys: Tensor, samples: int = 1, uniform: Tensor | None = None,
    first: Tensor | None = None, trace: bool = False,
) -> tuple[Answers, Trace | None]:  # fmt: skip
    """Answers of B x samples walks, those of a problem in a row.

    Args:
        travel: [Z, Z] int32 ticks.
        keys: [B, N, 4 d] of the encoder.
        uniform: [samples, places] numbers of U[0, 1), by which nodes are drawn, the same for every problem, or
            [B x samples, places]; None: greedy, ties to the lowest index.
        first: [B x samples] first nodes, where they are allowed; None: chosen like the others.
        trace: keep what selections chose from.
    """
    params, device = network.params, keys.device
    B, N = nodes.zone.shape
    W, length = B * samples, places(params, N)

    def made(*shape, dtype=torch.int32):
        return torch.zeros(shape, dtype=dtype, device=device)

    answers = Answers(made(W), made(W, length, dtype=torch.int16), made(W), made(W, dtype=torch.bool))
    size = size_of(N if device.type == "cuda" else max(N, params.nodes))  # a CPU has room: one unit for all of a day
    kept = Trace(made(W, length, -(-size // 32)), made(W, length, 3, dtype=keys.dtype)) if trace else None
    given = {name: column.contiguous() for name, column in nodes._asdict().items()} | answers._asdict()
    given |= {"travel": travel, "keys": keys.contiguous(), "context": network.context.detach().contiguous()}
    given |= {"nodes": N, "zones": len(travel), "samples": samples, "places": length}
    if network.legs is not None:
        given["legs"] = network.legs.detach()
    if uniform is not None:
        given |= {"uniform": uniform.to(keys).contiguous(), "shared": int(len(uniform) == samples)}
    if first is not None:
        given["first"] = first.to(torch.int32).contiguous()
    if kept:
        given |= vars(kept)
    text = unit(params, network.shape, size, str(keys.dtype).removeprefix("torch."))
    threads = min(launch.Form.default_threads(W, LANES), torch.get_num_threads())
    batch, _, run = launcher(text, W, device, threads, threading.get_ident())
    structs.fill(batch, **dict.fromkeys(OPTIONAL, 0) | given)
    run()
    return answers, kept


@functools.lru_cache(maxsize=256)
def launcher(text: str, walks: int, device: torch.device, threads: int, caller: int) -> tuple:
    """Both structs that a launch of so many walks reads, and the launch; kept, since making one waits for a device.

    Args:
        caller: the thread, so that no two of them fill the same struct.
    """
    batch, call = structs.struct("Batch", text), structs.struct("Call", text, walks=walks)
    if device.type == "cpu":
        return batch, call, launch.cpu(text, batch, call, walks, threads)("decode")
    return batch, call, launch.cuda(text, batch, call, walks, LANES, device, scratch="scratch_bytes")("decode")


def size_of(nodes: int) -> int:
    """Nodes that a kernel is compiled for: the next multiple of 32, less one."""
    return -(-(nodes + 1) // 32) * 32 - 1
