"""The experiments there are and the environments that take part in each; nothing of theirs is imported.

The folder is the list: an experiment is a module with an EXPERIMENT (experiment.py), a family's own in its folder.
"""

import ast
import functools
import re
from dataclasses import dataclass
from pathlib import Path

from lockstep.experiments import config, peer_workers
from lockstep.experiments.ledger import sources

FOLDER = Path(__file__).parent
# Constants of an EXPERIMENT that are read here.
FACTS = ("needs", "timed", "quick", "predicted", "originals", "choices", "compiles", "gpu")


@dataclass(frozen=True)
class Listed:
    """An experiment as its file declares it."""

    name: str
    file: Path
    needs: str = "section"  # of whom: section (that have one of its name) | peers | nothing | machine
    timed: bool = True  # so that it takes every core, and a GPU if it uses one
    quick: bool = True  # so that a quick report measures it; one that leaves it out shows what is on record
    predicted: bool = False  # the seconds of its groups are, before it runs
    originals: bool = False  # nothing of it can run without the library of the originals
    choices: tuple[str, ...] = ()  # keys of its section that say which groups there are, and nothing of their rows
    compiles: bool = False  # kernels of a GPU, with or without one
    gpu: bool = True  # so that it takes one where there is one

    @property
    def module(self) -> str:
        return sources.name_of(self.file, FOLDER.parent)

    @property
    def family(self) -> str | None:
        """The folder of whose environments it is, None of a general one."""
        return None if self.file.parent == FOLDER else self.file.parent.name


@functools.cache
def experiments() -> dict[str, Listed]:
    """All experiments by name: the machine's own first, the others as they are sorted."""
    files = [*FOLDER.glob("*.py"), *FOLDER.glob("*/*.py")]
    found = [Listed(file.stem, file, **facts) for file in files if (facts := declared(file)) is not None]
    return {one.name: one for one in sorted(found, key=lambda one: (one.needs != "machine", one.name))}


def declared(file: Path) -> dict | None:
    """The FACTS that a module's EXPERIMENT states, None of a module without one."""
    text = file.read_text()
    for node in ast.parse(text).body if "EXPERIMENT = " in text else ():
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "EXPERIMENT":
            return {word.arg: ast.literal_eval(word.value) for word in node.value.keywords if word.arg in FACTS}
    return None


def of_the_machine() -> list[str]:
    """The experiments that know no environment."""
    return [one.name for one in experiments().values() if one.needs == "machine"]


def experiments_of(environment: str, scale: str = "full") -> list[str]:
    """The experiments of an environment in a scale's report: by its YAML's sections and the peers installed."""
    every = (one for one in experiments().values() if one.needs != "machine" and (one.quick or scale == "full"))
    return [one.name for one in every if why_not(one.name, environment) is None]


def asked(place: str) -> tuple[str, str | None]:
    """The experiment and the environment of a place under results/; None where it is the machine's own."""
    environment, _, experiment = place.rpartition("/")
    return experiment, environment or None


def timed(place: str) -> bool:
    """True where what is measured there is timed."""
    return experiments()[asked(place)[0]].timed


def on_gpu(place: str) -> bool:
    """True where some of what is measured there runs on a GPU, if there is one."""
    return experiments()[asked(place)[0]].gpu


def why_not(experiment: str, environment: str) -> str | None:
    """The reason why an environment takes no part in an experiment, None where it does."""
    needs, settings = experiments()[experiment].needs, config.file_of(environment)
    if needs == "section" and not re.search(rf"^{experiment}:", settings.read_text(), re.MULTILINE):
        return f"{config.shown(settings)} has no section {experiment}"
    if needs == "peers" and not sources.in_gymnasium(environment):
        return "no peer has such an environment"
    if needs == "peers" and not peer_workers.installed():
        return "no peer is installed; make peers installs them"
    return None
