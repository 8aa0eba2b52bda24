"""What every GPU kernel of an environment uses of the chip, compiled by NVRTC for sm_80 and sm_90; needs no GPU.

At full scale every build for both, at quick scale the builds that `envs.make` takes by default for the newer; the
tests compile all of them.
"""

import sys

from lockstep import envs
from lockstep.envs.kernels import compile
from lockstep.experiments import command, config
from lockstep.experiments.results import Journal

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


def main() -> None:
    arguments = command.parser("compilation", __doc__.split("\n")[0])
    options = arguments.parse_args()
    name = options.environment
    config.load(name, options.scale)  # an environment that is not there is named
    output = options.output or command.output_path("compilation", name)
    todo = {"/".join(choices): (choices, text) for choices, text in builds(name, options.scale).items()}
    asked = {"builds": list(todo)}
    journal = Journal(output, COLUMNS, "compilation", name, options.scale, asked, options.commit)
    for label in command.progress([label for label in todo if label not in journal], str, options.deadline):
        (mode, dtype, obs, target), text = todo[label]
        same = {"environment": name, "autoreset_mode": mode, "dtype": dtype, "obs": obs}
        journal.add(label, [same | used for used in compile.resources(text, target)])
    frame = journal.frame()
    spilling = frame[(frame.spill_store_bytes > 0) | (frame.spill_load_bytes > 0)]
    journal.finish(passed=spilling.empty)
    for used in spilling.itertuples():
        print(f"SPILLS {used.kernel} {used.autoreset_mode} {used.dtype} {used.obs} {used.target}")
    if len(spilling):
        sys.exit("compilation: kernels spill registers (above)")
    print(f"{len(frame)} kernels compiled, none spills; at most {frame.registers.max()} registers")


if __name__ == "__main__":
    command.run(main)
