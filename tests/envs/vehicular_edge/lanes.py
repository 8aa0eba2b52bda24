"""Makes a batch whose kernel is the GPU's form, run by threads of the CPU."""

import dataclasses
from pathlib import Path
from unittest import mock

import envs
from envs.block import Layout

PRELUDE = (Path(__file__).parent / "lanes_of_threads.cuh").read_text()


def make_on_threads(lanes: int, num_envs: int, **options):
    """`envs.make("vehicular_edge", num_envs, **options)` with so many lanes for each environment."""
    unit = Layout.unit

    def threaded(self, *args, **kwargs) -> str:
        text = unit(dataclasses.replace(self, lanes=lanes), *args, **kwargs)
        head, marker, tail = text.partition("typedef REAL real;")
        return f"#define LANES_ARE_THREADS\n{head}{marker}\n{PRELUDE}\n{tail}"

    with mock.patch.object(Layout, "unit", threaded):
        return envs.make("vehicular_edge", num_envs, threads=1, **options)
