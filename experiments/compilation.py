"""Registers and memory of every GPU kernel of an environment, compiled by NVRTC for sm_80 and sm_90; needs no GPU.

At full scale every build for both, at quick scale the builds that `envs.make` takes by default for the newer; the
tests compile all of them.
"""

import pandas as pd

from lockstep import envs
from lockstep.envs.kernels import compile
from lockstep.experiments.experiment import Experiment, Plan, Request, each

DEFAULT = ("SameStep", "float32")  # autoreset mode and type
COLUMNS = [
    *("environment", "autoreset_mode", "dtype", "obs", "kernel", "target", "registers"),
    *("spill_store_bytes", "spill_load_bytes", "stack_bytes", "shared_bytes"),
]


def builds(name: str, scale: str) -> dict[tuple[str, ...], str]:
    """Translation units by what tells them apart: autoreset mode, type, kind of observation or build, target."""
    whole = scale == "full"
    return {
        (*choices, target): text
        for choices, text in envs.units(name).items()
        for target in (compile.TARGETS if whole else compile.TARGETS[-1:])
        if whole or choices[:2] == DEFAULT
    }


def plan(request: Request) -> Plan:
    todo = {"/".join(choices): (choices, text) for choices, text in builds(request.environment, request.scale).items()}

    def measure(build: tuple) -> list[dict]:
        (mode, dtype, obs, target), text = build
        same = {"environment": request.environment, "autoreset_mode": mode, "dtype": dtype, "obs": obs}
        return [same | used for used in compile.resources(text, target)]

    return Plan(todo, each(measure), config={"builds": list(todo)})


def spilling(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[(frame.spill_store_bytes > 0) | (frame.spill_load_bytes > 0)]


def report(frame: pd.DataFrame, *_) -> str:
    """The kernels that spill, or one line that says that none does."""
    found = spilling(frame).itertuples()
    lines = [f"SPILLS {used.kernel} {used.autoreset_mode} {used.dtype} {used.obs} {used.target}" for used in found]
    none = f"{len(frame)} kernels compiled, none spills; at most {frame.registers.max()} registers"
    return "\n".join(lines or [none])


EXPERIMENT = Experiment(
    COLUMNS,
    plan,
    report,
    verdict=lambda frame: spilling(frame).empty,
    failure="kernels spill registers (above)",
    needs="nothing",
    timed=False,
    quick=False,
    gpu=False,
    compiles=True,
)
