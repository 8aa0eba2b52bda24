"""The protocol that every algorithm keeps, and all that general code asks of one."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

import torch

from lockstep import envs

from .config import Settings
from .ranks import Ranks


class Algorithm(Protocol):
    """A run: `iterate` until `iteration == iterations`.

    Its module, `agents/<name>.py` or `agents/<name>/`, also has the functions `config_of`, `train`, `load`.

    Args of its constructor:
        environment: a name of `envs`, or an object as `agents/README.md` describes it.
        config: of its class `Config`; ValueError names the field, its value and what is allowed.
        device: "cpu", "cuda" or "cuda:<index>".
    """

    name: ClassVar[str]  # as its file or folder is called
    Config: ClassVar[type[Settings]]
    RECIPES: ClassVar[Mapping[str, Settings]]  # by name; the first is what differs from nothing else
    COLUMNS: ClassVar[tuple[str, ...]]  # of its log, after those of `log.COLUMNS`
    SHAPES: ClassVar[tuple[str, ...]]  # settings that decide what weights there are, and what they mean

    config: Settings
    ranks: Ranks
    iteration: int  # so far
    iterations: int  # of the whole run
    phases: dict[str, Callable[[], None]]  # what `iterate` calls; "rollout", "advantage" and "update" are told apart

    def __init__(self, environment, config: Any = ..., device: torch.device | str = "cpu"): ...

    @property
    def env_steps(self) -> int:
        """Steps of all environments so far, over all processes."""
        ...

    @property
    def learns(self) -> bool:
        """False as long as iterations only gather what is to be learnt from, as they fill a replay."""
        ...

    @property
    def parameter_count(self) -> int:
        """Numbers that are trained."""
        ...

    def iterate(self) -> None:
        """One iteration; the host waits for the device as little as can be."""
        ...

    def statistics(self) -> dict[str, float]:
        """`log.OF_EPISODES` and COLUMNS since the last call: means, NaN of none; waits for the device.

        Raises:
            FloatingPointError: something was not finite; names where and what.
        """
        ...

    def act(self, obs: torch.Tensor, greedy: bool = True, active: torch.Tensor | None = None) -> torch.Tensor:
        """Actions for an environment's `step` from its observations [B, n] or [B, A, n], any B; or drawn ones.

        Who does not act by the flags `active`, bool [B] or [B, A], has an action of 0: `contract.of_active`.
        They depend on config and weights, and drawn ones on torch's own generator; `state()` stays as it is.
        """
        ...

    def policy(self, greedy: bool = True) -> envs.MLP | None:
        """The policy as `env.rollout` takes it; None where no kernel carries it."""
        ...

    def module(self) -> torch.nn.Module:
        """The greedy policy by itself, as it is now: from observations [B, n], any B, to actions; for torch.export.

        Raises:
            ValueError: the policy is of several agents together.
        """
        ...

    def weights(self) -> dict:
        """A copy of all that `act` depends on, tensors, also in dicts: a part of `state()` under the same keys."""
        ...

    def load_weights(self, state: Mapping) -> None:
        """Takes them from the `weights()` or `state()` of a run with the same SHAPES.

        Raises:
            ValueError: names what has another shape, is not finite, or is there on one side alone.
        """
        ...

    def state(self) -> dict:
        """A copy of all that the future depends on: tensors, numbers and strings; of the environment "environment"."""
        ...

    def load_state(self, state: Mapping) -> None:
        """Continues, bit for bit, from what `state` gave a run of the same configuration."""
        ...

    @staticmethod
    def to_act(config: Any) -> Settings:
        """Settings of a run with the same weights, as small as can be, that is to act on the CPU and not to learn."""
        ...

    @staticmethod
    def torch_threads(config: Any) -> int:
        """As many of `config.threads` as torch itself has work for; those that wait for it spin.

        By the configuration alone; a run may answer by what its environment decides as well.
        """
        ...
