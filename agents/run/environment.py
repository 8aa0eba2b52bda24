"""The environment of a run, made by its name or taken as it was given."""

import torch
from gymnasium.vector import AutoresetMode

from lockstep import envs

from . import contract

TILE = 256  # environments that a thread is worth


def of_run(environment, num_envs: int, device: torch.device, threads: int | None = None, **options):
    """An environment that fits a run.

    Args:
        environment: a name of `envs`, or an object as `agents/README.md` describes it.
        num_envs: B, of this process.
        threads: of the CPU at most; None: as many as torch uses.
        **options: of `envs.make`, for a name.

    Raises:
        ValueError: what does not fit, and what would.
    """
    if isinstance(environment, str):
        threads = min(threads or torch.get_num_threads(), -(-num_envs // TILE))
        # A policy's actions lie in the space.
        environment = envs.make(environment, num_envs, device, threads=threads, check_actions=False, **options)
    if not isinstance(environment, envs.BatchedEnv):
        contract.require_attributes(environment)
    mode = AutoresetMode(getattr(environment, "autoreset_mode", AutoresetMode.SAME_STEP))
    if mode != AutoresetMode.SAME_STEP:
        raise ValueError(f"autoreset_mode={mode.value!r}: training needs 'SameStep'")
    if environment.num_envs != num_envs:
        raise ValueError(f"the environment has num_envs={environment.num_envs}; this run needs {num_envs}")
    if torch.device(environment.device).type != device.type:
        raise ValueError(f"the environment is on {environment.device}, the run on {device}")
    return environment
