"""The paper: tables, figures and prose computed from whatever results lie in the tree.

This module holds what they share: the reading of results, and the words for machines, statuses and rungs.
Nothing in the package measures; nothing in it knows an environment by name.
"""

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lockstep.experiments import ROOT, UserError, catalogue, config
from lockstep.experiments.experiment import MISSING
from lockstep.experiments.ledger import checksums, results
from lockstep.experiments.ledger.results import Dataset

HERE, RECORDED, CHANGED_HERE, CHANGED = results.HERE, results.RECORDED, results.CHANGED_HERE, results.CHANGED
NOT_MEASURED = MISSING
# Keys of a provenance that the paper reads.
KEYS = [
    "environment",
    "experiment",
    "scale",
    "started",
    "wall_s",
    "cpu_s",
    "commit",
    "dirty",
    "packages",
    "machine",
    "sources",
]


@dataclass(frozen=True)
class Rung:
    """One rung of the ladder: how it is named, drawn and explained."""

    label: str
    colour: str
    marker: str
    meaning: str


NOT_LIVE = "port-cuda-no-reset"  # the one rung whose rate counts steps of environments that have ended
# Colours: Okabe and Ito, and Tol's muted set; each rung keeps its colour and marker in every figure.
RUNGS = {
    "original": Rung(
        "original, one process",
        "#2b2b2b",
        "o",
        "the CPU environment in a Python loop: Gymnasium's own, or the one here",
    ),
    "original-indexed": Rung(
        "original, indexed", "#AA4422", "d", "the same, with lists stored that it otherwise searches again and again"
    ),
    "original-all-cores": Rung("original, all cores", "#8a8a8a", "s", "a loop of the original per core, rates added"),
    "gymnasium-vector": Rung("Gymnasium's vector class", "#CC79A7", "D", "Gymnasium's own batch, in NumPy"),
    "arrays-numpy": Rung("arrays on NumPy", "#E69F00", "^", "the port as array code: batching without fusion"),
    "arrays-cupy": Rung("arrays on CuPy", "#A6761D", "v", "the same on a GPU: one kernel per operation"),
    "port-cpu": Rung("port on CPU, call per step", "#0072B2", "o", "the compiled kernel, one step per call"),
    "port-cpu-scenarios": Rung(
        "port on CPU, own scenarios", "#88CCEE", "^", "one step per call, a scenario of its own for every environment"
    ),
    "port-cpu-fused": Rung("port on CPU, fused", "#56B4E9", "s", "K steps per call, the state kept at hand"),
    "port-cpu-trajectory": Rung("port on CPU, trajectory", "#6655CC", "D", "the same, every step written out"),
    "port-cpu-mlp": Rung(
        "port on CPU, networks inside", "#6699CC", "P", "the same, with a 64-64 actor and critic in the kernel"
    ),
    "port-cuda": Rung("port on GPU, launch per step", "#009E73", "o", "the same kernel, one step per launch"),
    "port-cuda-sync": Rung("port on GPU, synchronised", "#44AA99", "^", "launch, then wait, at every step"),
    "port-cuda-constant": Rung("port on GPU, constant action", "#999933", "v", "the same, the action always 1"),
    "port-cuda-no-reset": Rung(
        "port on GPU, constant action, no resets", "#DDCC77", "v", "the same without resets; it counts what has ended"
    ),
    "port-cuda-graph": Rung("port on GPU, CUDA graph", "#117733", "s", "policy and step without the host"),
    "port-cuda-scenarios": Rung(
        "port on GPU, own scenarios", "#66A61E", "^", "in a graph, a scenario of its own for every environment"
    ),
    "port-cuda-fused": Rung("port on GPU, fused", "#D55E00", "P", "K steps per launch, the state kept at hand"),
    "port-cuda-trajectory": Rung("port on GPU, trajectory", "#AA3377", "D", "the same, every step written out"),
    "port-cuda-mlp": Rung(
        "port on GPU, networks inside", "#AA4499", "X", "the same, with a 64-64 actor and critic in the kernel"
    ),
}


def rung(name: str) -> Rung:
    """A rung's name and look; an unknown one appears in grey under its own name."""
    return RUNGS.get(name, Rung(name.replace("-", " "), "#777777", "X", "no description yet"))


def rung_order(name: str) -> int:
    """Place of a rung on the ladder; unknown ones last."""
    return list(RUNGS).index(name) if name in RUNGS else len(RUNGS)


def environments(root: Path = ROOT) -> list[str]:
    """Environments that have a YAML in experiments/, by name."""
    return sorted(config.files(root / "experiments"))


@functools.cache  # tables ask for every row, and each answer parses YAML
def experiments_of(environment: str) -> tuple[str, ...]:
    """The experiments that an environment takes part in."""
    return tuple(catalogue.experiments_of(environment))


def once(summary: Callable) -> Callable:
    """Make a function (run, *options) work a run out once: dozens of tables, figures and claims ask for the same.

    What is given is a copy.
    """
    known: dict[tuple, tuple] = {}

    @functools.wraps(summary)
    def found(run: Dataset, *options):
        key = (id(run), *options)
        if key not in known:
            known[key] = run, summary(run, *options)  # with the run, so that no other can get its id
        return copy.copy(known[key][1])

    return found


def load(root: Path = ROOT) -> list[Dataset]:
    """Every dataset under root/results/, measured here or recorded, of any environment and experiment.

    Raises ChecksumError for a recorded file that was edited, UserError for one whose provenance is missing or
    lacks what the paper reads.
    """
    known = {(None, experiment) for experiment in catalogue.of_the_machine()}
    for folder in [root / "results", *(root / "results" / "recorded").glob("*/")]:
        # Runs also leave tables without provenance there, the partial files of a run that goes on, and what has failed.
        results_of = (path for path in folder.glob("*/*.csv") if path.with_suffix(".json").exists())
        known |= {(path.parent.name, path.stem) for path in results_of if not checksums.unfinished(path)}
    found = []
    for environment, experiment in sorted(known, key=lambda key: (key[0] or "", key[1])):
        found += results.datasets(environment, experiment, root)
    for dataset in found:
        absent = [key for key in KEYS if key not in dataset.provenance]
        absent += [] if absent or "label" in dataset.provenance["machine"] else ["machine.label"]
        if absent:
            raise UserError(f"{dataset.path.with_suffix('.json')} lacks {', '.join(absent)}; measure again")
    return found


def in_order(datasets: list[Dataset]) -> list[Dataset]:
    """Datasets by environment, those measured here first, then by machine and experiment."""

    def key(dataset: Dataset) -> tuple:
        about = dataset.provenance
        return about["environment"] or "", dataset.origin != "here", dataset.machine, about["experiment"]

    return sorted(datasets, key=key)


def date(dataset: Dataset) -> str:
    """Day on which a dataset was measured (UTC)."""
    return dataset.provenance["started"][:10]


def machine(dataset: Dataset) -> str:
    """Name of a dataset's machine in tables: "here", or the folder under results/recorded/."""
    return "here" if dataset.origin == "here" else dataset.machine


def machines(datasets: list[Dataset]) -> list[str]:
    """The machines that have measured anything, "here" first, then those with a GPU."""
    with_gpu = {machine(dataset) for dataset in datasets if dataset.provenance["machine"].get("gpu")}
    return sorted(set(map(machine, datasets)), key=lambda name: (name != "here", name not in with_gpu, name))


def by_machine(datasets: list[Dataset]) -> dict[str, list[Dataset]]:
    """The datasets of each machine, in the order of `machines`."""
    return {name: [one for one in datasets if machine(one) == name] for name in machines(datasets)}


def caption(about, datasets: list[Dataset]) -> str:
    """The caption of a table or figure with what it says of some datasets alone (`more`), and of a GPU (`on_gpu`)."""
    gpu = any(dataset.provenance["machine"].get("gpu") for dataset in datasets)
    return f"{about.caption.removesuffix('.')}{about.more(datasets)}{about.on_gpu if gpu else ''}."


def nothing(datasets: list[Dataset]) -> str:
    """Further words of a caption, where there are none."""
    return ""


def status_text(status: str, machine: str = "", day: str = "") -> str:
    """A status in the words of the paper; a recorded figure names its machine and day."""
    if status == RECORDED:
        return f"recorded on {machine}, {day}"
    if status == CHANGED:
        return f"{CHANGED} ({machine}, {day})"
    return status
