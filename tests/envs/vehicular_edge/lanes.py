"""Makes a batch whose kernel is the GPU's form, run by lanes that take turns on one thread of the CPU."""

import ctypes
import dataclasses
from pathlib import Path
from unittest import mock

import envs
from envs.block_port import Layout
from envs.kernels import compile

PRELUDE = (Path(__file__).parent / "lanes_in_turn.cuh").read_text()
ORDERS = ("ascending", "descending", "shuffled")


def make_in_turn(lanes: int, order: str, num_envs: int, **options):
    """`envs.make("vehicular_edge", num_envs, **options)` with so many lanes for each environment, in such an order.

    Batches of the same compile-time choices share one library, and so the order of the last that was made.
    """
    unit = Layout.unit
    texts = []

    def with_lanes(self, *args, **kwargs) -> str:
        text = unit(dataclasses.replace(self, lanes=lanes), *args, **kwargs)
        head, marker, tail = text.partition("typedef REAL real;")
        texts.append(f"#define FOREIGN_LANES\n{head}{marker}\n{PRELUDE}\n{tail}")
        return texts[-1]

    with mock.patch.object(Layout, "unit", with_lanes):
        env = envs.make("vehicular_edge", num_envs, threads=1, **options)
    ctypes.c_int.in_dll(compile.library(texts[-1]), "order_of_lanes").value = ORDERS.index(order)
    return env
