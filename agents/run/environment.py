"""The environment of a run, made by its name or taken as it was given."""

import numpy as np
import torch
import yaml
from gymnasium.vector import AutoresetMode

from lockstep import envs
from lockstep.reading import Loader

from . import contract

TILE = 256  # environments that a thread is worth


def options_of(named: str) -> dict[str, object]:
    """Options of an environment by name, of a text like "preset=original, trace=true".

    Raises:
        ValueError: it is no such text.
    """
    found = {}
    for word in named.split(",") if named else ():
        name, _, value = (part.strip() for part in word.partition("="))
        if not name or not value:
            raise ValueError(f"options={named!r}: {word!r} must be name=value")
        try:
            found[name] = yaml.load(value, Loader)
        except yaml.YAMLError as error:
            raise ValueError(f"options={named!r}: {value!r} is no value") from error
    return found


def seed_of(env, seed: int, first_index: int) -> int:
    """The seed of an environment's reset: the run's in the first process, and another one in each other.

    An environment with this `first_index`, such as a port, has other episodes by the run's seed as well.

    first_index: how many environments the processes before this one have.
    """
    if first_index in (0, getattr(env, "first_index", 0)):
        return seed
    return int(np.random.SeedSequence((seed, first_index)).generate_state(1)[0] >> 1)  # 31 bits, which any code takes


def of_run(
    environment,
    num_envs: int,
    device: torch.device,
    threads: int | None = None,
    named: str = "",
    whole: int | None = None,
    **options,
):
    """An environment that fits a run.

    Args:
        environment: a name of `envs`, or an object as `agents/README.md` describes it.
        num_envs: B, of this process.
        threads: of the CPU at most; None: as many as torch uses.
        named: options of `envs.make`, for a name, as `options_of` reads them.
        whole: B of all processes, for an environment that counts all their steps: one with an option `batch`; None:
            this process is the only one.
        **options: likewise, the run's own; of several processes with `first_index`, which a batch that was made before
            must have.

    Raises:
        ValueError: what does not fit, and what would.
    """
    if isinstance(environment, str):
        chosen, own = options_of(named), {"num_envs", "device", "threads", "check_actions", *options}
        if taken := sorted(own & chosen.keys()):
            raise ValueError(f"options={named!r}: {taken[0]} is not to be chosen there; the run has it")
        if (whole or num_envs) > num_envs and "batch" in envs.port(environment).own_options:
            options = {"batch": whole} | options
            own -= {"batch"}
        threads = min(threads or torch.get_num_threads(), -(-num_envs // TILE))
        # A policy's actions lie in the space.
        environment = envs.make(environment, num_envs, device, threads=threads, check_actions=False, **options | chosen)
    if not isinstance(environment, envs.BatchedEnv):
        contract.require_attributes(environment)
    mode = AutoresetMode(getattr(environment, "autoreset_mode", AutoresetMode.SAME_STEP))
    if mode != AutoresetMode.SAME_STEP:
        raise ValueError(f"autoreset_mode={mode.value!r}: training needs 'SameStep'")
    if environment.num_envs != num_envs:
        raise ValueError(f"the environment has num_envs={environment.num_envs}; this run needs {num_envs}")
    first, several = options.get("first_index", 0), (whole or num_envs) > num_envs
    if several and isinstance(environment, envs.BatchedEnv) and environment.first_index != first:
        raise ValueError(
            f"the environment has first_index={environment.first_index}, so that it would play episodes of another "
            f"process; in this one make it with lockstep.make({environment.name!r}, {num_envs}, first_index={first}), "
            "the process's RANK times num_envs"
        )
    if torch.device(environment.device).type != device.type:
        raise ValueError(f"the environment is on {environment.device}, the run on {device}")
    return environment
