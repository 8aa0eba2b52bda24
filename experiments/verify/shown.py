"""The state that an original's observations show; a family declares it in its verify.py, by Gymnasium id."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parents[1]


@dataclass(frozen=True)
class Shown:
    """The parts of an original that can be seen.

    names: of an observation's numbers [n].
    states: from observations [m, n] to states [m, k] of the original, in float64; None where they do not show them.
    policy: from observations [m, n] to actions [m] or [m, 1] that random ones do not reach far without: they keep an
        episode going, or bring it to its goal.
    """

    names: tuple[str, ...] = ()
    states: Callable[[np.ndarray], np.ndarray] | None = None
    policy: Callable[[np.ndarray], np.ndarray] | None = None

    @property
    def named_policy(self) -> str | None:
        """The policy as package.module:function."""
        return self.policy and f"{self.policy.__module__}:{self.policy.__qualname__}"

    def name(self, n: int) -> str:
        return self.names[n] if n < len(self.names) else f"observation {n}"


def itself(observation: np.ndarray) -> np.ndarray:
    """The state of an original that shows it whole."""
    return observation.astype(np.float64)


def files() -> list[Path]:
    """The families' declarations."""
    return sorted(FOLDER.glob("*/verify.py"))


def declared(identity: str) -> Shown:
    """The declaration of an original, an empty one where no family has it."""
    for file in files():
        family = importlib.import_module(f"{__package__.rpartition('.')[0]}.{file.parent.name}.verify")
        if identity in family.SHOWN:
            return family.SHOWN[identity]
    return Shown()
