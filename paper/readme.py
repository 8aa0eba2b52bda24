"""Fills the generated parts of README.md and of the pages in docs/ from recorded results.

    python -m lockstep.paper.readme            rewrite them, and results/recorded/headline.svg
    python -m lockstep.paper.readme --check    fail if they are not what the recorded results say

A generated part lies between `<!-- generated: environments -->` and `<!-- end generated -->`.
"""

import argparse
import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from lockstep import paper
from lockstep.experiments import ROOT, UserError, command
from lockstep.experiments.ledger import sources
from lockstep.paper import families, figures, quantities, rung, tables
from lockstep.paper.common.learning import OURS
from lockstep.paper.common.tables.environments import VERIFIED, original, overview
from lockstep.paper.common.tables.learning import lasting, learner, median, named
from lockstep.paper.common.tables.throughput import ELSEWHERE, best, of_rung, rate_of
from lockstep.paper.common.tables.transfer import DEVICES
from lockstep.paper.tables import STATUS, worded_status
from lockstep.paper.typeset import DASH, Column, Row, count, markdown, missing, number, seconds, si, text

PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end generated -->)", re.DOTALL)
FIGURE, DRAWING = Path("results", "recorded", "headline.svg"), "family"
ABSENT = "On recorded machines: not measured yet. `make report` measures yours.\n"
RUNGS = {"cpu": "port-cpu", "gpu": "port-cuda-graph"}  # whose rates stand in the table of environments
COSTS = {"wall time": "wall_s", "CPU time": "cpu_s"}


def recorded(root: Path) -> list:
    """The recorded datasets, all as "recorded": else every edit of a kernel would make the pages stale."""
    return [
        dataclasses.replace(dataset, status=paper.RECORDED)
        for dataset in paper.load(root)
        if dataset.origin == "recorded" and len(dataset.frame)
    ]


# The parts of README.md.


def picture(datasets: list) -> str:
    """The headline figure under its alternative text."""
    drawn = f"![{figures.every()[DRAWING].alt}]({FIGURE.as_posix()})\n"
    return drawn if quantities.of(datasets, {}) else ABSENT


def environments(datasets: list) -> str:
    """A row per environment: the speed of a CPU and of a GPU, what was verified, and where and when that was."""
    frame = one_each(overview(datasets).query("status != @paper.NOT_MEASURED"))
    if frame.empty:
        return ABSENT
    columns = [
        Column("environment", lambda row: sheet(row["environment"])),
        Column("original", lambda row: original(row["environment"])),
        there("cpu", number("its steps/s", "original_rate", si)),
        there("cpu", of_rung("port, on a CPU", RUNGS["cpu"])),
        Column("port, on a GPU", on_gpu, "number"),
        Column("rates recorded", rates_recorded),
        *VERIFIED,
        Column("checks recorded", lambda row: on_day(row, "checks_date")),
    ]
    return without_empty(columns, frame)


def one_each(frame: pd.DataFrame) -> pd.DataFrame:
    """Of several machines that measured an environment the one that verified it, and in `cpu`, `gpu` whose rates stand.

    Rates at the usual batch size go first, then those of the machine that verified, then the fastest.
    """
    rates = {kind: [f"{one}_rate", f"{one}_{ELSEWHERE}_rate"] for kind, one in RUNGS.items()}
    rates["cpu"] += ["original_rate"]
    frame = frame.reindex(columns=frame.columns.union(["cases", *itertools.chain(*rates.values())]))
    frame = frame.assign(verified=frame["cases"].notna())
    rows = foremost(frame, "verified").sort_values("environment")
    for kind, names in rates.items():
        usual = frame[names[0]].astype(float)
        timed = frame.assign(usual=usual.notna(), rate=usual).dropna(subset=names, how="all")
        found = foremost(timed, "usual", "verified", "rate").set_index("environment")
        rows[kind] = [found.loc[name] if name in found.index else None for name in rows["environment"]]
    return rows


def foremost(frame: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """The first row of each environment, those with the largest values of these columns first."""
    return frame.sort_values([*columns], ascending=False, kind="stable").drop_duplicates("environment")


def there(kind: str, column: Column) -> Column:
    """A column of the machine whose rates of a kind stand."""
    return dataclasses.replace(column, cell=lambda row: DASH if row[kind] is None else column.cell(Row(row[kind])))


def on_gpu(row: Mapping) -> str:
    """A GPU's rate with its ratio to the original there, and where, if that is another machine than the CPU's."""
    if row["gpu"] is None:
        return DASH
    here = row["cpu"] is not None and row["gpu"]["machine"] == row["cpu"]["machine"]
    return of_rung("", RUNGS["gpu"]).cell(Row(row["gpu"])) + ("" if here else f", {row['gpu']['machine']}")


def rates_recorded(row: Mapping) -> str:
    """The machines that a row's rates are of, each with its day."""
    found = [row[kind] for kind in RUNGS if row[kind] is not None]
    days = dict.fromkeys(on_day(one, "rates_date") for one in found)
    return "; ".join(day for day in days if day != DASH) or DASH


def on_day(row: Mapping, name: str) -> str:
    """A machine and the day that a column names."""
    return DASH if missing(row[name]) else f"{row['machine']}, {row[name]}"


def sheet(environment: str) -> str:
    """An environment's name, linked to its spec sheet."""
    folder = sources.environments().get(environment)
    return f"[{environment}]({folder.relative_to(ROOT).as_posix()}/README.md)" if folder else environment


def solve(datasets: list) -> str:
    """The time to solve a task in a process that has trained before, beside other libraries."""
    frame = measured("time_to_solve", datasets)
    if "solved" in frame:  # else no machine has measured it
        frame = frame[(frame["variant"] == "warm") & frame["solved"].notna()]
    columns = [
        text("environment", "environment"),
        Column("agent", named),
        Column("algorithm", learner),
        Column("device", lambda row: DEVICES.get(row["device"], DASH)),
        Column("seeds solved", lambda row: f"{count(row['solved'])} of {count(row['seeds'])}", "number"),
        Column("time", lambda row: median(row, "wall_s", lasting), "number"),
    ]
    return with_source(columns, frame) if len(frame) and "solved" in frame else ABSENT


def minutes(datasets: list) -> str:
    """The minutes that the long run took where it was the longest, and those that the short one is given."""
    frame = tables.frame("cost", datasets)
    rows = frame[(frame["experiment"] == "all") & (frame["scale"] == "full")].sort_values("wall_s").tail(1).itertuples()
    took = "".join(f" At full scale they took {seconds(row.wall_s)} on {row.machine}." for row in rows)
    budget = seconds(families.aims()["budgets"]["quick"])
    return f"The measurements of `make report` have a budget of {budget} on a quiet machine.{took}\n"


# The parts of docs/.


def rates(datasets: list) -> str:
    """Rates of all environments, then every way to run the one that stands for a family."""
    if not quantities.of(datasets, {}):
        return ABSENT
    parts = [captioned("family", measured("family", datasets))]
    for family, asked in families.headlines().items():
        if quantities.of(datasets, {"environment": asked["environment"]}):
            about = families.about(family)
            steps = about.get("steps", "steps").capitalize()
            words = f"{steps} per second of {asked['num_envs']:,} environments, or of as many as are named"
            ladder = ladder_table(datasets, asked)
            parts.append(f"**{about['title']}.** {words}; in brackets, over the original.\n\n{ladder}")
    return "\n\n".join(parts) + "\n"


def learning(datasets: list) -> str:
    """Results of training, and its time in a process that has trained before, beside other libraries."""
    kept = {"learning_final": ("agent", OURS), "time_to_solve": ("variant", "warm")}
    found = {name: measured(name, datasets) for name in kept}
    return several({name: frame[frame[kept[name][0]] == kept[name][1]] for name, frame in found.items() if len(frame)})


def forms(datasets: list) -> str:
    """Other libraries' forms of the environments: what the checks found, and what training on them led to."""
    kept = {"conformance": "cases", "crossing": "original"}  # what those that could not be played lack
    found = {name: measured(name, datasets) for name in kept}
    return several({name: frame.dropna(subset=[kept[name]]) for name, frame in found.items() if len(frame)})


def cost(datasets: list) -> str:
    """Time of all experiments together on each recorded machine, by scale."""
    frame = tables.frame("cost", datasets)
    whole = frame["experiment"] == "all"
    if not whole.any():
        return ABSENT
    names = frame["experiment"] + frame["in_part"].map({True: " (in part)", False: ""})
    by = frame.assign(experiment=names)[~whole].groupby(["machine", "scale"], dropna=False, sort=False)
    of = by["experiment"].agg(", ".join)
    sums = frame[whole].merge(of.rename("of").reset_index(), on=["machine", "scale"])
    columns = [text(name, name) for name in ("machine", "scale")] + [text("experiments", "of")]
    columns += [number(name, column, seconds) for name, column in COSTS.items()]
    return without_empty(columns, sums)


# Shared parts.


def measured(name: str, datasets: list) -> pd.DataFrame:
    """A table's rows that hold something."""
    frame = tables.frame(name, datasets)
    return frame[frame["status"] != paper.NOT_MEASURED]


def several(found: Mapping[str, pd.DataFrame]) -> str:
    """Tables by their names, one under the other."""
    shown = [captioned(name, frame) for name, frame in found.items() if len(frame)]
    return "\n\n".join(shown) + "\n" if shown else ABSENT


def captioned(name: str, frame: pd.DataFrame) -> str:
    """Rows of a table as Markdown under its caption."""
    about = tables.every()[name]
    columns = [column for column in about.columns if column.heading != STATUS.heading]
    return f"{about.caption}\n\n{with_source(columns, frame)}".rstrip()


def without_empty(columns: Sequence[Column], frame: pd.DataFrame) -> str:
    """Rows as Markdown, without columns that hold nothing."""
    rows = [[column.cell(row) for column in columns] for row in map(Row, frame.to_dict("records"))]
    full = [j for j in range(len(columns)) if any(row[j] != DASH for row in rows)]
    return markdown([columns[j] for j in full], [[row[j] for j in full] for row in rows])


def with_source(columns: Sequence[Column], frame: pd.DataFrame) -> str:
    """without_empty, with a column that says where rows come from; a sentence where all come from one place."""
    said = {worded_status(row) for row in frame.to_dict("records")}
    if len(said) > 1:
        return without_empty([*columns, STATUS], frame)
    (words,) = said
    return f"{without_empty(columns, frame)}\n{words.capitalize()}.\n"


def ladder_table(datasets: list, asked: Mapping) -> str:
    """Markdown: a row per rung of an environment that a machine has measured, a column per recorded machine.

    asked: the headline of a family, which names the environment and its rungs.
    """
    ladder = tables.frame("ladder", datasets)
    runs = quantities.of(datasets, {"environment": asked["environment"]})
    machines = {paper.machine(run): paper.date(run) for run in runs}
    columns = [text("environment", "environment"), text("run as", "rung")]
    columns += [text(f"{name}, {day}", name, kind="number") for name, day in machines.items()]
    rows = []
    for name in asked["rungs"]:
        figures_of = {}
        for machine in machines:
            select = {"environment": asked["environment"], "machine": machine, "rung": name}
            found = quantities.matching(ladder, select)
            figures_of[machine] = figure(found)
        if set(figures_of.values()) != {DASH}:
            row = Row(environment=asked["environment"], rung=rung(name).label, **figures_of)
            rows.append([column.cell(row) for column in columns])
    return markdown(columns, rows).rstrip()


def figure(found: pd.DataFrame) -> str:
    """The best of a rung's rows with its ratio to the original; a dash where there is none."""
    chosen = best(found)
    return rate_of(chosen, bare=chosen["rung"] == "original") if len(chosen) else DASH


PARTS = {part.__name__: part for part in (solve, picture, environments, minutes, rates, learning, forms, cost)}


def filled(text: str, datasets: list, page: str = "README.md") -> str:
    """The text with its generated parts made anew; UserError for one that is unknown or has no end."""
    opened = re.findall(r"<!-- generated: (\w+) -->", text)
    unknown = [name for name in opened if name not in PARTS]
    if unknown:
        raise UserError(f"{page} asks for a generated part {unknown[0]!r}; there are {', '.join(PARTS)}")
    if len(PART.findall(text)) != len(opened):
        raise UserError(f"{page} needs <!-- end generated --> after each line <!-- generated: ... -->")
    return PART.sub(lambda part: f"{part[1]}\n{PARTS[part[2]](datasets)}\n{part[3]}", text)


def made(root: Path) -> dict[Path, str | None]:
    """The contents that README.md, docs/ and the headline figure should have; None of a figure of nothing."""
    datasets, found = recorded(root), {}
    for page in (root / "README.md", *sorted((root / "docs").glob("*.md"))):
        found[page] = filled(page.read_text(encoding="utf-8"), datasets, page.relative_to(root).as_posix())
    drawn = quantities.of(datasets, {})
    return found | {root / FIGURE: figures.svg(figures.draw(DRAWING, datasets)) if drawn else None}


def stale(root: Path = ROOT) -> list[str]:
    """The files that `python -m lockstep.paper.readme` would change."""

    def now(file: Path) -> str | None:
        return file.read_text(encoding="utf-8") if file.exists() else None

    return [file.relative_to(root).as_posix() for file, text in made(root).items() if text != now(file)]


def update(root: Path = ROOT) -> None:
    """Rewrite the pages and the headline figure."""
    for file, content in made(root).items():
        if content is None:
            file.unlink(missing_ok=True)
        else:
            file.write_text(content, encoding="utf-8")


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m lockstep.paper.readme", description=__doc__.split("\n")[0])
    arguments.add_argument("--check", action="store_true", help="change nothing, fail if anything would change")
    if not arguments.parse_args().check:
        update()
    elif changed := stale():
        raise UserError(
            f"{' and '.join(changed)} not up to date with results/recorded; run python -m lockstep.paper.readme"
        )


if __name__ == "__main__":
    command.run(main)
