"""Trains the learned oracle, and measures how far it is from PyVRP (README.md, 5.4): `--help` has the options."""

import argparse
import dataclasses
import json
import tempfile
from pathlib import Path

import numpy as np

from lockstep import interrupt
from lockstep.experiments.ledger import provenance

from ..kernels.compile import CompilerError
from .oracles import make_oracle
from .oracles.attention import training, weights
from .oracles.attention.training import BUDGET, CONFIGS, JUDGED, SIZES, Training

SECONDS = {0.1: 100, 1.0: 100, 10.0: 10}  # of PyVRP: problems of each size
RESAMPLED = 1000
RUNS = Path("runs/oracle")
SEED = 2**33  # of the problems of the gap, which neither training nor validation has
WRONG = (ValueError, OSError, ImportError, MemoryError, CompilerError)  # whose message says all


def main(arguments: list[str] | None = None):
    """The command line.

    Raises:
        SystemExit: with a sentence on what was wrong.
    """
    parser = argparse.ArgumentParser(prog="python -m lockstep.envs.vehicle_routing.oracle", description=__doc__)
    parser.add_argument("--config", choices=CONFIGS, required=True)
    parser.add_argument("--minutes", type=float, help="of all threads, or of a GPU; default: the configuration's")
    parser.add_argument("--steps", type=int, help="updates, in place of minutes")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="more are faster where nothing else runs; default: 1")
    parser.add_argument("--output", type=Path, default=RUNS, help=f"folder of <config>.npz and .json; default: {RUNS}")
    parser.add_argument(
        "--checkpoints", type=Path, default=RUNS, help=f"folder of what a training goes on from; default: {RUNS}"
    )
    parser.add_argument("--gap", action="store_true", help="do not train: measure, and note it in <config>.json")
    asked = parser.parse_args(arguments)
    try:
        if asked.gap:
            with interrupt.told("interrupted; nothing is noted, the same command measures all of it again"):
                note_gap(asked.output / asked.config)
        else:
            with interrupt.told("interrupted; the same command goes on from the last checkpoint, if there is one"):
                train(asked)
    except WRONG as error:
        raise SystemExit(f"error: {error}") from None


def train(asked: argparse.Namespace):
    """Trains, and writes the weights."""
    path = asked.output / asked.config
    chosen = {name: getattr(asked, name) for name in ("minutes", "steps", "seed") if getattr(asked, name) is not None}
    config = dataclasses.replace(CONFIGS[asked.config], **chosen)
    commit, dirty = provenance.git_commit(["envs/vehicle_routing"])
    run = Training(config, asked.checkpoints / asked.config, device=asked.device, threads=asked.threads)
    for folder in (asked.output, asked.checkpoints / asked.config):
        require_writable(folder)
    run.run()
    weights.save(
        run.network.cpu(), path, run.scenario.travel, config=dataclasses.asdict(config), commit=commit, dirty=dirty,
        machine=provenance.machine()["label"], device=asked.device, threads=asked.threads, instances=run.instances,
        updates=run.step, seconds=round(run.seconds, 1), budget_seconds=round(run.used, 1),
        budgets=run.budgets, budgets_columns=["from update", *BUDGET], curve=run.curve,
        curve_columns=["seconds", "instances", *(f"over insertion, n = {n}" for n in SIZES)],
    )  # fmt: skip
    print(f"{run.step} updates; oracle='am:{path}.npz' takes the weights")


def note_gap(path: Path):
    """Measures the gap of weights and writes it into their JSON."""
    weights.path_of(str(path.with_suffix(".npz")))
    require_writable(path.parent)
    known = weights.told(path)
    known["gap"] = gaps(str(path.with_suffix(".npz")), known["config"]["preset"])
    weights.note(path, known)


def require_writable(folder: Path):
    """Makes a folder; raises ValueError where it cannot be written, before anything takes time."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"folder {folder} cannot be written: {error.strerror}") from None


def gaps(word: str, preset: str, words: tuple[str, ...] = ("am:{}", "am-sample:64:{}", "am-pomo:8:{}"), seconds=None):
    """Rows of oracle, n, seconds of PyVRP, problems, mean gap = mean(C / C of PyVRP) - 1, and its 95 % interval.

    Args:
        word: of the weights.
        words: oracles, with a place for them.
        seconds: number of problems by PyVRP's seconds.

    Raises:
        RuntimeError: requests that are not served.
    """
    rows, seconds = [], SECONDS if seconds is None else seconds
    params, scenario = training.world(preset)
    for n in SIZES:
        rng = np.random.default_rng(SEED + n)
        columns = [column.numpy() for column in training.drawn(rng, scenario, params, JUDGED, n)]
        rivals = [one.format(word) for one in words] + ["insertion", "greedy:nearest", "greedy:soonest", "greedy:mixed"]
        cost = {}
        for rival in rivals:
            found = make_oracle(rival, params, scenario.travel).solve(*columns)
            if not found[3].all():
                raise RuntimeError(f"{rival} does not serve all of {n} requests: problem {(~found[3]).argmax()}")
            cost[rival.replace(f":{word}", "")] = found[0]
        for length, problems in seconds.items():
            few = [column[:problems] for column in columns]
            reference = make_oracle(f"pyvrp:{length}", params, scenario.travel).solve(*few)[0]
            for rival, found in cost.items():
                rows.append({"oracle": rival, "requests": n, "pyvrp_s": length, **gap(found[:problems], reference)})
            print(json.dumps(rows[-len(cost)]), flush=True)
    return rows


def gap(cost: np.ndarray, reference: np.ndarray) -> dict:
    """Mean of C / C_ref - 1 with its bootstrap interval, of costs [I]."""
    excess = cost / reference - 1
    again = np.random.default_rng(0).choice(excess, (RESAMPLED, len(excess))).mean(axis=1)
    low, high = np.quantile(again, (0.025, 0.975))
    return {"problems": len(excess), "gap": round(excess.mean(), 4), "low": round(low, 4), "high": round(high, 4)}


if __name__ == "__main__":
    main()
