"""Compiles for a GPU, on a machine that need not have one, what the smoke test, the sanitizer and a recording launch.

    LOCKSTEP_CACHE=cubins python -m tests.prebuild --target sm_90

What is asked for is found by doing all of it on the CPU with kernels that do nothing. Binaries are found again by
a machine with the same NVRTC.
"""

import argparse
import contextlib
import dataclasses
import os
import sys
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import torch

import envs
from envs import launch
from envs.kernels import compile
from envs.port import TILES
from envs.vectorised import Graph, Vectorised
from experiments import config, throughput
from tests import sanitize, smoke

MOST = {"thread": 1024, "block": 4}  # environments: a larger batch has the units of such a one


@contextlib.contextmanager
def noted() -> Iterator[dict[str, None]]:
    """The units that are asked for in here, in order; nothing is compiled, and kernels and graphs do nothing."""
    found: dict[str, None] = {}

    def lookup(text, *arguments, **options):
        found[text] = None
        return lambda name, *together: lambda: None

    def validators(text, action_types):
        return {kind: mock.Mock(return_value=-1) for kind in action_types}  # every action is inside

    def graph(env, policy="random", steps=1):
        env.step(env.random_actions(1)[0])
        return Graph(types.SimpleNamespace(replay=lambda: None), steps, ())

    with (
        mock.patch.dict(TILES, cpu=TILES["cuda"]),  # the one choice in a unit that follows the device
        mock.patch.object(launch, "cpu", lookup),
        mock.patch.object(launch, "validators", validators),
        mock.patch.object(compile, "library", return_value=mock.MagicMock(**{"scratch_bytes.return_value": 0})),
        mock.patch.object(Vectorised, "graph", graph),
        mock.patch.object(torch.cuda, "synchronize"),
    ):
        yield found


def launch_everything() -> None:
    """All that launches kernels, on the CPU; what a kernel that does nothing makes fail is left where it fails."""
    for name in envs.names():
        {"thread": sanitize.threads, "block": sanitize.blocks}[envs.port(name).kind](name, "cpu")
    sanitize.agents("cpu")
    for probe in smoke.PROBES.values():
        with contextlib.suppress(Exception), contextlib.redirect_stdout(None):
            probe.run("cpu")
    for name in envs.names():
        settings, rungs = config.load(name, "quick"), throughput.ladder_of(name).RUNGS
        with contextlib.redirect_stdout(None):
            groups = throughput.planned(name, settings, list(throughput.command.DEVICES))
        for group in groups:
            if group.device == "cuda" and group.rung.startswith("port"):
                few = dataclasses.replace(group, device="cpu", num_envs=min(group.num_envs, MOST[envs.port(name).kind]))
                with rungs[group.rung].loop(name, few, settings) as loop:
                    loop.run()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.prebuild", description=__doc__.split("\n")[0])
    parser.add_argument("--target", choices=compile.TARGETS, default=compile.TARGETS[-1])
    parser.add_argument("--list", action="store_true", help="only tell how many there are")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    with noted() as units:
        launch_everything()
    texts = dict.fromkeys([*units, *(text for name in envs.names() for text in envs.units(name).values())])
    texts |= dict.fromkeys(smoke.echo_unit(smoke.default_unit(envs.names(kind)[0]))[0] for kind in envs.KINDS)
    if options.list:
        print(f"{len(texts)} units")
        return
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        files: set[Path] = set(threads.map(lambda text: compile.cubin_file(text, options.target), texts))
    size = sum(file.stat().st_size for file in files)
    print(f"{len(files)} files, {size / 1e6:.1f} MB, in {compile.cache_folder()}")


if __name__ == "__main__":
    try:
        main()
    except compile.CompilerError as error:
        sys.exit(f"error: {error}")
