"""A batch of accounts, of as many as the memory of its device holds."""

from pathlib import Path

from ..batch import BatchedEnv, Port
from ..checks import available_memory, find_device, integer

SHARE = 0.8  # of what is free; the rest is for networks, their optimiser, and whatever else there is
STEP = 256  # environments, of which "auto" makes a multiple in each group


class Accounts(BatchedEnv):
    """A batch whose `num_envs` may be "auto" (README.md, 6.1)."""

    def __init__(self, port: Port, folder: Path, num_envs: int | str, device="cpu", **options):
        if isinstance(num_envs, str):
            if num_envs != "auto":
                raise ValueError(f"num_envs={num_envs!r} must be an integer or 'auto'")
            num_envs = fitting(port, folder, device, **options)
        elif options.get("horizon", 0) != 0:
            raise ValueError(f"horizon={options['horizon']!r} must be left out: it is for num_envs='auto'")
        super().__init__(port, folder, num_envs, device, **options)


def fitting(port: Port, folder: Path, device, horizon: int = 0, groups: int = 1, **options) -> int:
    """Environments that fit into SHARE of the free memory, beside the market's tables; says so on a line.

    Args:
        horizon: T, steps of an iteration, of each of which an agent keeps a row of 4 D + 4 N + 20 bytes: observation,
            action, and reward, value, log-probability, advantage and flags.

    Raises:
        MemoryError: not as many fit as "auto" counts in.
    """
    horizon, step = integer("horizon", horizon, 0, 2**31 - 1), STEP * integer("groups", groups, 1, 2**20)
    free = available_memory(find_device(device))
    few = BatchedEnv(port, folder, step, device, groups=groups, **options)
    N, D = few.params.assets, few.single_observation_space.shape[0]
    each = few.bytes_per_env + 4 * N + horizon * (4 * D + 4 * N + 20)
    count = min(int((SHARE * free - few.memory()["tables"]) / each), 2**31 - 1) // step * step
    if count < step:
        raise MemoryError(
            f"num_envs='auto' counts in {step:,} environments, of {each:,} bytes each; {free / 2**30:.2f} GiB are free "
            f"on {few.device}"
        )
    print(f"num_envs='auto': {count:,} environments of {each:,} bytes each, of {free / 2**30:.2f} GiB on {few.device}")
    return count
