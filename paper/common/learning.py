"""Parts of the learning tables and figures: agents in words and in order, our rates over those of others, aims.

The sums over seeds and blocks are those of experiments/curves.py; a setting is its RUN.
"""

import functools
import itertools
import math
import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from lockstep import agents
from lockstep.experiments import SCALES, config, curves
from lockstep.experiments.bench import statistics
from lockstep.paper import NOT_MEASURED, once
from lockstep.paper.typeset import missing

NAN = float("nan")
OURS, RANDOM, REFERENCE = "lockstep", "random", "reference"
UNTRAINED = (RANDOM, REFERENCE)  # here: what others trained is quoted
AGENTS = {  # in the order of the tables
    OURS: "Lockstep",
    "sb3": "Stable-Baselines3",
    "sb3-adapter": "Stable-Baselines3 on the port",
    "rejax": "rejax",
    REFERENCE: "reference, published",
    RANDOM: "random policy",
}
WORK = ["algorithm", "recipe", "device", "num_envs", "horizon", "epochs", "minibatches", "hidden", "members"]
FEW = 5  # seeds, below which a figure is an illustration
ILLUSTRATION = "illustration"


def agent(name: object) -> str:
    """An agent in words; an unknown one under its own name."""
    return AGENTS.get(name, str(name))


def algorithm(name: object) -> str:
    """An algorithm as its class spells it, PPO or Rainbow; empty for a policy that is not trained."""
    return "" if missing(name) else spelled(str(name))


@functools.cache
def spelled(name: str) -> str:
    """An algorithm's name in the letters of its class, read without the import of what that needs; else in capitals."""
    files = itertools.chain(agents.FOLDER.glob(f"{name}.py"), agents.FOLDER.glob(f"{name}/*.py"))
    classes = (one for file in files for one in re.findall(r"^class (\w+)", file.read_text("utf-8"), re.MULTILINE))
    bare = name.replace("_", "")
    letters = iter(next((one for one in classes if one.lower() == bare), bare.upper()))
    return "".join("-" if letter == "_" else next(letters) for letter in name)


def in_order(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows by agent in the order of AGENTS, else as they were."""
    rows = rows.reset_index(drop=True)
    places = {name: place for place, name in enumerate(AGENTS)}
    order = rows["agent"].map(lambda name: places.get(name, len(places))).sort_values(kind="stable")
    return rows.loc[order.index]


def stamp(agent: object, seeds: float) -> str:
    """The word that stands beside a figure of too few seeds, else nothing."""
    return ILLUSTRATION if agent not in UNTRAINED and seeds < FEW else ""


def open_rows(run, part: str) -> pd.DataFrame:
    """The rows that a run could not measure of a part, with the reason."""
    rows = curves.complete(run.frame)[(run.frame["part"] == part) & (run.frame["status"] == NOT_MEASURED)]
    return rows[[*curves.RUN, "version", "reason"]].drop_duplicates()


def about(run, part: str, row: Mapping) -> dict:
    """Version and remark of the rows that a summary's row was made of."""
    rows = curves.complete(run.frame)[run.frame["part"] == part]
    for name in ("algorithm", "agent", "variant", "device"):
        rows = rows[rows[name].isna() if missing(row[name]) else rows[name] == row[name]]
    return {name: first(rows[name]) for name in ("version", "reason")}


def first(values: pd.Series) -> object:
    """The first value that is not empty, or None."""
    known = values.dropna()
    return known.iloc[0] if len(known) else None


def blocks(run, part: str) -> list[tuple[dict, np.ndarray]]:
    """(setting, rate of each of its blocks, steps/s), in the order of curves.rate_summary."""
    return [(setting, (rows["env_steps"] / rows["wall_s"]).to_numpy()) for setting, rows in timed(run, part)]


def timed(run, part: str) -> list[tuple[dict, pd.DataFrame]]:
    """(setting, rows of its blocks), in the order of curves.rate_summary."""
    found = [(setting, rows.dropna(subset=["block"])) for setting, rows in curves.runs(run.frame, part)]
    return [(setting, rows) for setting, rows in found if len(rows)]


@once
def curve(run) -> pd.DataFrame:
    """curves.curve_summary of a run."""
    return curves.curve_summary(run.frame)


@once
def final(run, part: str = "final") -> pd.DataFrame:
    """curves.final_summary of a run, with `reached`, the seeds whose score is accepted, and their `share`.

    Both are NaN where an environment's settings name no return to aim at.
    """
    found, aim = curves.final_summary(run.frame, part), wanted(run.provenance["environment"]).get("aim", NAN)
    scores = [rows["score"].dropna() for _, rows in curves.runs(run.frame, part)]
    reached = [int((some >= aim).sum()) if aim == aim else NAN for some in scores if len(some)]
    found = found.assign(reached=reached)
    return found.assign(share=found["reached"] / found["seeds"])


@once
def solve(run) -> pd.DataFrame:
    """curves.solve_summary of a run."""
    return curves.solve_summary(run.frame)


@once
def rates(run, part: str = "rate") -> pd.DataFrame:
    """curves.rate_summary with iteration_s, first_call_s, gpu_memory_mib, and with `ratio`, ratio_low and ratio_high.

    iteration_s: seconds of one roll-out and its update. first_call_s: of making the trainer and its first iteration.
    gpu_memory_mib: the most that was allocated; NaN on a CPU. ratio: of the part "rate" our rate over this one (NaN for
    ours), of any other this one over ours in "rate"; both in the same WORK, ours on the threads that suit it best. In
    "rate" all their settings are the same.
    """
    work = [*WORK, "settings"] if part == "rate" else WORK
    found, ratios = curves.rate_summary(run.frame, part), []
    ours = [(setting, speed) for setting, speed in blocks(run, "rate") if setting["agent"] == OURS]
    for setting, speed in blocks(run, part):
        base = max((of_ours for other, of_ours in ours if same(other, setting, work)), key=np.median, default=None)
        if base is None or (part == "rate" and setting["agent"] == OURS):
            ratios.append((NAN, NAN, NAN))
        else:
            ratios.append(statistics.ratio(*((base, speed) if part == "rate" else (speed, base))))
    found[["ratio", "ratio_low", "ratio_high"]] = np.array(ratios, dtype=float).reshape(-1, 3)
    for name in ("first_call_s", "gpu_memory_mib"):
        found[name] = [first(rows[name]) for _, rows in timed(run, part)]
    return found.assign(iteration_s=found["num_envs"] * found["horizon"] / found["rate"])


def same(one: Mapping, other: Mapping, columns: Sequence[str]) -> bool:
    """True where two settings agree in the columns; two empty cells do."""
    return all(one[name] == other[name] or (missing(one[name]) and missing(other[name])) for name in columns)


def within(rows: pd.DataFrame, share: float) -> float:
    """Seconds within which that share of the seeds was solved; infinity where fewer were at all.

    NaN where there are too few seeds to tell: nine in ten takes ten.
    """
    rows = rows.dropna(subset=["solved"])
    if round(len(rows) * (1 - share), 9) < 1:
        return NAN
    taken = rows["wall_s"].where(rows["solved"] == 1, math.inf).to_numpy(dtype=float)
    return float(np.quantile(taken, share, method="inverted_cdf"))


@functools.cache
def wanted(environment: str) -> dict:
    """The section of an environment's settings on learning; empty where there is none."""
    file = config.files().get(environment)
    return config.parse(file).get("learning", {}) if file else {}


def algorithms(environment: str, part: str) -> list[str]:
    """The algorithms of which an environment's settings ask for this part of the experiment, at any scale."""
    scales = [wanted(environment).get(scale, {}) for scale in SCALES]
    return sorted({name for scale in scales for name, asked in scale.items() if part in asked})


def beside(environment: str, algorithm: str) -> list[str]:
    """Other libraries' agents whose final scores an environment's settings ask for beside an algorithm's."""
    finals = [wanted(environment).get(scale, {}).get(algorithm, {}).get("finals", []) for scale in SCALES]
    return sorted({agent for one in itertools.chain(*finals) for agent in one["agents"]} - {OURS})


def asked(environment: str, *parts: str) -> bool:
    """True where an environment's settings ask for one of these parts of the experiment, at any scale."""
    return any(algorithms(environment, part) for part in parts)
