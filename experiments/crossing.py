"""Training by one recipe on several libraries' forms of an environment, scored in the original.

The control trains on Gymnasium's own vector environment. What is learnt on a form that differs from the original, as
conformance finds, either carries over or does not.
"""

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
import scipy  # whose stats are imported when they are first used

from lockstep import envs
from lockstep.experiments import ROOT, UserError, config
from lockstep.experiments.conformance import OURS
from lockstep.experiments.experiment import MEASURED, MISSING, Experiment, Plan, Request, by_label, each
from lockstep.experiments.experiment import Group as Base
from lockstep.experiments.ledger import provenance
from lockstep.experiments.verify import comparison, lives, shown, subjects
from lockstep.experiments.verify.comparison import MARGIN, PROBED, Asked
from lockstep.experiments.verify.episodes import DISABLED
from lockstep.experiments.verify.lives import Run
from lockstep.experiments.verify.originals import HORIZON, Original
from lockstep.experiments.verify.shown import Shown

CONTROL = "gymnasium"
ORIGINAL, BATCH = "original", "batch"  # what a policy is scored in
COLUMNS = ["environment", "algorithm", "library", "version", "seed", "scored_in", "return", "status", "reason"]
LOST = "{lost} of {cut} truncated episodes did not show their last observation; the next one's first stood in for it"
LONGEST = 2  # times the original's time limit: where an episode in a batch is left that does not end


@dataclass(frozen=True)
class Group(Base):
    """One training."""

    library: str
    seed: int


@dataclass(frozen=True)
class Task:
    """The parts that all groups share. settings: the algorithm's Config, but for the seed."""

    environment: str
    original: Original
    shown: Shown
    algorithm: str
    settings: object
    episodes: int

    def name(self, library: str) -> str:
        return f"{library}:{self.environment if library == OURS else self.original.name}"


def plan(request: Request) -> Plan:
    environment, section = request.environment, request.settings.crossing
    place, identity = config.shown(config.file_of(environment)), envs.port(environment).gymnasium_id
    if identity is None:
        raise UserError(f"{place}: crossing: its original is not Gymnasium's, so no library has another form of it")
    from lockstep import agents  # here, because the paper reads crossing.csv without torch
    from lockstep.agents.run.config import config_of

    try:
        chosen = dict(section.get("settings", {}))
        settings = config_of(agents.algorithm(section.algorithm), environment, **{"threads": 1} | chosen)
    except ValueError as error:
        raise UserError(f"{place}: crossing: {error}") from error
    original, seen = Original(identity), shown.declared(identity)
    task = Task(environment, original, seen, section.algorithm, settings, section.episodes)
    probed = functools.cache(functools.partial(probe, original=original, shown=seen, seed=request.settings.seed))

    def measure(group: Group) -> list[dict]:
        same = dict.fromkeys(COLUMNS) | {"environment": environment, "algorithm": task.algorithm} | asdict(group)
        try:
            mode, version = probed(task.name(group.library))
            return [same | {"version": version} | row for row in trained(task, group, mode)]
        except UserError as reason:
            return [same | {"status": MISSING, "reason": str(reason)}]

    declared = provenance.hashes(file.relative_to(ROOT).as_posix() for file in shown.files())
    return Plan(
        by_label([Group(library, seed) for seed in range(section.seeds) for library in subjects.KINDS]),
        each(measure),
        config=request.settings.plain() | {"original": identity, "settings": asdict(settings)},
        conditions={"declared": declared, "libraries": lives.libraries()},
    )


def probe(name: str, original: Original, shown: Shown, seed: int) -> tuple[str, str | None]:
    """The autoreset mode that a batch behaves by, and the version of its library.

    Raises:
        UserError: it cannot be made or played, or its episodes do not begin anew.
    """
    calls = (original.limit or HORIZON) + MARGIN
    record = lives.record(name, [Run(seed, original.actions(calls, PROBED, seed))])
    mode = comparison.seen_mode(record.lives, original, shown, Asked.tolerance, record.mode)
    if mode == DISABLED and record.mode != DISABLED:
        raise UserError(f"{name}: ended environments go on, so that nothing trains on them")
    mode = mode or record.mode or comparison.by_what_is_given(record.lives)
    return mode, record.versions.get(subjects.kind_of(name).installed[0])


def trained(task: Task, group: Group, mode: str) -> list[dict]:
    """The rows of one training: the mean greedy return in the original, and in the library's own batch.

    Raises:
        UserError: the batch cannot be made or stepped, or gives what is no number.
    """
    import torch

    from lockstep import agents
    from lockstep.agents.run import evaluation
    from lockstep.experiments.verify.batch import Batch, first_episodes
    from lockstep.experiments.verify.opened import opened

    name, spaces = task.name(group.library), (task.original.env.observation_space, task.original.space)
    algorithm, settings = agents.algorithm(task.algorithm), dataclasses.replace(task.settings, seed=group.seed)
    torch.set_num_threads(algorithm.torch_threads(settings))
    with opened(name, settings.num_envs) as subject:
        batch = Batch(subject, mode, *spaces)
        run = algorithm(batch, settings, "cpu")
        try:
            while run.iteration < run.iterations:
                run.iterate()
            run.statistics()
        except FloatingPointError as error:
            raise UserError(f"{name}: {error}") from error
    reason = LOST.format(**vars(batch)) if batch.lost else None
    with opened(name, task.episodes) as subject:
        longest = LONGEST * (task.original.limit or HORIZON)
        own = first_episodes(Batch(subject, mode, *spaces), run.act, evaluation.FIRST_SEED, longest)
    scores = {ORIGINAL: evaluation.in_original(task.environment, run.act, task.episodes).returns, BATCH: own}
    same = {"status": MEASURED, "reason": reason}
    return [same | {"scored_in": place, "return": float(found.mean())} for place, found in scores.items()]


# ---- over seeds ----------------------------------------------------------------------------------------------------


def interval(values: np.ndarray, other: np.ndarray | None = None) -> tuple[float, float, float]:
    """The mean, or its difference from another sample's, with Student's (Welch's) 95 % interval; NaN of one value."""
    samples = [np.asarray(one, dtype=float) for one in (values, other) if one is not None]
    middle = samples[0].mean() - (samples[1].mean() if other is not None else 0.0)
    if min(one.size for one in samples) < 2:
        return float(middle), np.nan, np.nan
    parts = np.array([one.var(ddof=1) / one.size for one in samples])
    if not parts.any():  # every seed of a sample has the same score
        return float(middle), float(middle), float(middle)
    freedom = parts.sum() ** 2 / sum(part**2 / (one.size - 1) for part, one in zip(parts, samples, strict=True))
    half = float(scipy.stats.t.ppf(0.975, freedom) * np.sqrt(parts.sum()))
    return float(middle), float(middle) - half, float(middle) + half


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """One row for each library: its measured seeds, mean returns over them, and their differences from the control's.

    Columns: library, version, algorithm, status, reason, seeds; original, batch and difference (in the original), each
    with _low and _high. The control has no difference, nor has any other library without it.
    """
    rows = []
    measured = frame[frame["status"] == MEASURED]
    control = scores(measured, CONTROL, ORIGINAL)
    for library, part in frame.groupby("library", sort=False):
        row = {name: first(part[name]) for name in ("library", "version", "algorithm")}
        row |= {"status": MEASURED if (part["status"] == MEASURED).any() else MISSING, "reason": remark(part)}
        found = {place: scores(measured, library, place) for place in (ORIGINAL, BATCH)}
        row["seeds"] = len(found[ORIGINAL]) or None
        intervals = {place: interval(values) for place, values in found.items() if len(values)}
        if library != CONTROL and len(control) and len(found[ORIGINAL]):
            intervals["difference"] = interval(found[ORIGINAL], control)
        rows.append(row | named(intervals))
    return pd.DataFrame(rows)


def scores(frame: pd.DataFrame, library: str, place: str) -> np.ndarray:
    """The mean return of each seed."""
    return frame.query("library == @library and scored_in == @place")["return"].to_numpy(dtype=float)


def remark(part: pd.DataFrame) -> str | None:
    """The reasons of a library's rows; of seeds that failed beside others their number as well."""
    measured = part["status"] == MEASURED
    if not measured.any():
        return first(part["reason"])
    failed, seeds = part.loc[~measured, "reason"].value_counts(sort=False), part["seed"].nunique()
    words = [first(part.loc[measured, "reason"]), *(f"{n} of {seeds} seeds: {why}" for why, n in failed.items())]
    return "; ".join(filter(None, words)) or None


def first(values: pd.Series) -> object:
    """The first value that is not empty, or None."""
    known = values.dropna()
    return known.iloc[0] if len(known) else None


def named(intervals: Mapping[str, tuple[float, float, float]]) -> dict[str, float]:
    """Columns of intervals: the value, its low and its high end."""
    ends = ("", "_low", "_high")
    return {f"{name}{end}": value for name, found in intervals.items() for end, value in zip(ends, found, strict=True)}


def report(frame: pd.DataFrame, *_) -> str:
    """A line for each library: what its policies return in the original, over seeds, and in its own batch."""
    lines = []
    for row in summary(frame).to_dict("records"):
        words = f"{row['status']}: {row['reason']}"
        if row["status"] == MEASURED:
            ends = f"[{row['original_low']:.4g}, {row['original_high']:.4g}]"
            words = f"{row['original']:.4g} {ends} in the original, {row['batch']:.4g} in its own batch"
            words += f"; {row['reason']}" if pd.notna(row["reason"]) else ""
        lines.append(f"  {row['library']:10} {words}")
    return "\n".join(lines)


EXPERIMENT = Experiment(COLUMNS, plan, report, in_pieces=True, timed=False, quick=False, choices=("seeds",), gpu=False)
