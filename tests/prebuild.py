"""Compiles for a GPU, on a machine that need not have one, what the smoke test, the sanitizer and a recording launch.

    LOCKSTEP_CACHE=cubins python -m tests.prebuild --target sm_90

What is asked for is found by doing all of it on the CPU with kernels that do nothing. Binaries are found again by
a machine with the same NVRTC.
"""

import argparse
import contextlib
import dataclasses
import os
import re
import sys
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import torch

from lockstep import envs
from lockstep.envs.batch import launch
from lockstep.envs.batch.port import TILES
from lockstep.envs.batch.state import States
from lockstep.envs.kernels import compile
from lockstep.envs.vehicle_routing.oracles.attention import fused
from lockstep.experiments import config, throughput
from tests import sanitize, smoke

# Of functions of a CPU's library that do nothing: no shared memory, and no row that a batch does not have.
RESULTS = {"scratch_bytes.return_value": 0, "ppo_update.return_value": -1, "ppo_prepare.return_value": -1}
MOST = 1024, 4  # environments, of one lane and of several: a larger batch has the units of such a one


@contextlib.contextmanager
def noted() -> Iterator[dict[str, None]]:
    """The units that are asked for in here, in order; nothing is compiled, and kernels and graphs do nothing."""
    found: dict[str, None] = {}

    def lookup(text, *arguments, **options):
        found[text] = None
        return lambda name, *together: lambda: None

    def validators(kernels, action_types):
        return {kind: mock.Mock(return_value=-1) for kind in action_types}  # every action is inside

    def graph(env, policy="random", steps=1):
        env.step(env.random_actions(1)[0])
        return envs.Graph(types.SimpleNamespace(replay=lambda: None), steps, ())

    with (
        mock.patch.dict(TILES, cpu=TILES["cuda"]),  # the one choice in a unit that follows the device
        mock.patch.object(launch, "cpu", lookup),
        mock.patch.object(launch.Kernels, "validators", validators),
        mock.patch.object(compile, "library", return_value=mock.MagicMock(**RESULTS)),
        mock.patch.object(envs.BatchedEnv, "graph", graph),
        mock.patch.object(States, "_require_allowed"),  # kernels that do nothing leave states that no step leads to
        mock.patch.object(torch.cuda, "synchronize"),
    ):
        fused.launcher.cache_clear()  # what was launched before is asked for again
        try:
            yield found
        finally:
            fused.launcher.cache_clear()


def launch_everything() -> None:
    """All that launches kernels, on the CPU; of units that need no run `listed` tells."""
    for name in envs.names():
        sanitize.builds(name, "cpu")
    sanitize.agents("cpu")
    for name, probe in smoke.PROBES.items():
        if probe.steps:
            attempt(name)
    for name in envs.names():
        settings = config.load(name, "quick")
        with contextlib.redirect_stdout(None):
            groups = throughput.planned(name, settings, list(throughput.command.DEVICES))
        for group in groups:
            if group.device == "cuda" and group.rung.startswith("port"):
                few = dataclasses.replace(
                    group, device="cpu", num_envs=min(group.num_envs, MOST[sanitize.several_lanes(name)])
                )
                with throughput.RUNGS[group.rung].loop(name, few, settings) as loop:
                    loop.run()


def attempt(name: str) -> None:
    """Runs a probe on the CPU as far as it goes with kernels that do nothing, of which it may find nothing right."""
    with contextlib.suppress(AssertionError, smoke.NotHere), contextlib.redirect_stdout(None):
        smoke.PROBES[name].run("cpu")


def listed() -> dict[str, None]:
    """The units that can be told without a run: those that environments list, and the echoes of structs."""
    texts = dict.fromkeys(text for name in envs.names() for text in envs.units(name).values())
    return texts | dict.fromkeys(smoke.echo_unit(smoke.default_unit(name))[0] for name in smoke.of_each_form())


def architecture(text: str) -> str:
    if not re.fullmatch(r"sm_\d+[a-z]?", text):
        raise argparse.ArgumentTypeError(f"{text!r} must be sm_ and the digits of a compute capability, as in sm_90")
    return text


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.prebuild", description=__doc__.split("\n")[0])
    newest = compile.TARGETS[-1]
    parser.add_argument("--target", type=architecture, default=newest, help=f"the GPU's (default: {newest})")
    parser.add_argument("--list", action="store_true", help="only tell how many there are")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if not options.list:
        compile.nvrtc()
        with compile.writable_cache():  # what cannot be written is told at once
            pass
    with noted() as units:
        launch_everything()
    texts = units | listed()
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
