"""What every GPU kernel of an environment uses of the chip, compiled by NVRTC for sm_80 and sm_90; needs no GPU.

At quick scale the builds with the default autoreset mode, at full scale all.
"""

import sys

import envs
from envs.kernels import compile
from experiments import command, config
from experiments.results import Journal

DEFAULT_MODE = "SameStep"
COLUMNS = [
    *("environment", "autoreset_mode", "dtype", "obs", "kernel", "target", "registers"),
    *("spill_store_bytes", "spill_load_bytes", "stack_bytes", "shared_bytes"),
]


def main() -> None:
    arguments = command.parser("compilation", __doc__.split("\n")[0])
    options = arguments.parse_args()
    name = options.environment
    config.load(name, options.scale)  # an environment that is not there is named
    asked = {"targets": list(compile.TARGETS)}
    output = options.output or command.output_path("compilation", name)
    journal = Journal(output, COLUMNS, "compilation", name, options.scale, asked, options.commit)
    every = {"/".join(choices): text for choices, text in envs.units(name).items()}
    units = {label: text for label, text in every.items() if options.scale == "full" or label.startswith(DEFAULT_MODE)}
    todo = [(label, target) for label in units for target in compile.TARGETS if f"{label} {target}" not in journal]
    for label, target in command.progress(todo, " ".join):
        mode, dtype, obs = label.split("/")
        same = {"environment": name, "autoreset_mode": mode, "dtype": dtype, "obs": obs}
        journal.add(f"{label} {target}", [same | used for used in compile.resources(units[label], target)])
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
