"""Fills the generated parts of README.md from recorded results.

    python -m lockstep.paper.readme            rewrite them, and results/recorded/headline.svg
    python -m lockstep.paper.readme --check    fail if they are not what the recorded results say

A generated part lies between `<!-- generated: headline -->` and `<!-- end generated -->`.
"""

import argparse
import dataclasses
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd

from lockstep import paper
from lockstep.experiments import ROOT, UserError, command
from lockstep.paper import families, figures, quantities, rung, tables, typeset
from lockstep.paper.common.learning import OURS

PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end generated -->)", re.DOTALL)
FIGURE = Path("results", "recorded", "headline.svg")
ABSENT = "not measured yet"
COSTS = {"wall time": "wall_s", "CPU time": "cpu_s"}


def recorded(root: Path) -> list:
    """The recorded datasets, all as "recorded": else every edit of a kernel would make the README stale."""
    return [
        dataclasses.replace(dataset, status=paper.RECORDED)
        for dataset in paper.load(root)
        if dataset.origin == "recorded" and len(dataset.frame)
    ]


def headline(datasets: list) -> str:
    """The table and the figure; one sentence where nothing is recorded."""
    batch = families.headline()["num_envs"]
    if not quantities.of(datasets, {}):
        return f"Environment steps per second on recorded machines: {ABSENT}. `make report` measures yours.\n"
    words = (
        f"Environment steps per second with {batch:,} environments; in brackets, how many times "
        "the rate of the original on the same machine."
    )
    drawing = f"![{figures.every()['ladder'].alt}]({FIGURE.as_posix()})"
    ladder = ladder_table(datasets, families.headline())
    return "\n\n".join(filter(None, [words, ladder, drawing, family_table(datasets)])) + "\n"


def of_family(family: str) -> Callable[[list], str]:
    """The same table of the environment that stands for a family."""
    about = families.about(family)
    asked, steps = about["headline"], about.get("steps", "steps")

    def part(datasets: list) -> str:
        if not quantities.of(datasets, {"environment": asked["environment"]}):
            return f"{about['title']} on recorded machines: {ABSENT}.\n"
        words = (
            f"{steps.capitalize()} per second of {asked['num_envs']:,} environments together; in brackets, how many "
            "times the rate of the original on the same machine."
        )
        return f"{words}\n\n{ladder_table(datasets, asked)}\n"

    return part


def family_table(datasets: list) -> str:
    """Markdown under its caption: a row per environment and recorded machine, without columns that hold nothing.

    Nothing where only one environment is recorded.
    """
    frame = measured("family", datasets)
    return captioned("family", frame) if frame["environment"].nunique() >= 2 else ""


def learning(datasets: list) -> str:
    """Results of training, and its time in a process that has trained before, beside other libraries."""
    shown = []
    for name, column, kept in (("learning_final", "agent", OURS), ("time_to_solve", "variant", "warm")):
        frame = measured(name, datasets)
        frame = frame[frame[column] == kept] if len(frame) else frame
        if len(frame):
            shown.append(captioned(name, frame))
    return "\n\n".join(shown or [f"Training on recorded machines: {ABSENT}."]) + "\n"


def measured(name: str, datasets: list) -> pd.DataFrame:
    """A table's rows that hold something."""
    frame = tables.frame(name, datasets)
    return frame[frame["status"] != paper.NOT_MEASURED]


def captioned(name: str, frame: pd.DataFrame) -> str:
    """Rows of a table as Markdown under its caption, without columns that hold nothing."""
    about = tables.every()[name]
    columns, rows = about.seen(frame)
    full = [j for j in range(len(columns)) if any(row[j] != typeset.DASH for row in rows)]
    shown = typeset.markdown([columns[j] for j in full], [[row[j] for j in full] for row in rows])
    return f"{about.caption}\n\n{shown.rstrip()}"


def ladder_table(datasets: list, asked: Mapping) -> str:
    """Markdown: a row per rung of an environment, a column per recorded machine, ratios within each.

    asked: the headline of a family, which names the environment and its rungs.
    """
    ladder = tables.frame("ladder", datasets)
    runs = quantities.of(datasets, {"environment": asked["environment"]})
    machines = {paper.machine(run): paper.date(run) for run in runs}
    columns = [typeset.text("environment", "environment"), typeset.text("rung", "rung")]
    columns += [typeset.text(f"{name}, {day}", name, kind="number") for name, day in machines.items()]
    rows = []
    for name in asked["rungs"]:
        row = typeset.Row(environment=asked["environment"], rung=rung(name).label)
        for machine in machines:
            select = {"environment": asked["environment"], "machine": machine, "rung": name}
            found = quantities.matching(ladder, select)
            found = found[~found["incomplete"].astype(bool)]
            row[machine] = figure(found, any_other=name in set(ladder["rung"]))
        rows.append([column.cell(row) for column in columns])
    return typeset.markdown(columns, rows).rstrip()


def figure(found, any_other: bool) -> str:
    """The fastest of the rows with its ratio to the original; words where there are none."""
    if not len(found):
        return typeset.DASH if any_other else ABSENT
    best = found.loc[found["rate"].idxmax()]
    ratio = "" if best["rung"] == "original" or typeset.missing(best["ratio"]) else f" ({typeset.times(best['ratio'])})"
    return typeset.si(best["rate"]) + ratio


def cost(datasets: list) -> str:
    """Time of all experiments together on each recorded machine, by scale."""
    frame = tables.frame("cost", datasets)
    whole = frame["experiment"] == "all"
    if not whole.any():
        return f"On recorded machines: {ABSENT}.\n"
    of = frame[~whole].groupby(["machine", "scale"], dropna=False, sort=False)["experiment"].agg(", ".join)
    sums = frame[whole].merge(of.rename("of").reset_index(), on=["machine", "scale"])
    columns = [typeset.text(name, name) for name in ("machine", "scale")] + [typeset.text("experiments", "of")]
    columns += [typeset.number(name, column, typeset.seconds) for name, column in COSTS.items()]
    rows = [[column.cell(typeset.Row(row)) for column in columns] for row in sums.to_dict("records")]
    return typeset.markdown(columns, rows)


PARTS = {"headline": headline, "cost": cost, "learning": learning}
PARTS |= {family: of_family(family) for family in families.headlines()}


def filled(text: str, datasets: list) -> str:
    """The text with its generated parts made anew; UserError for one that is unknown or has no end."""
    opened = re.findall(r"<!-- generated: (\w+) -->", text)
    unknown = [name for name in opened if name not in PARTS]
    if unknown:
        raise UserError(f"README.md asks for a generated part {unknown[0]!r}; there are {', '.join(PARTS)}")
    if len(PART.findall(text)) != len(opened) or not opened:
        raise UserError("README.md needs <!-- generated: headline -->, and <!-- end generated --> after each such line")
    return PART.sub(lambda part: f"{part[1]}\n{PARTS[part[2]](datasets)}\n{part[3]}", text)


def drawing(datasets: list) -> str | None:
    """The headline figure as SVG; None where nothing is recorded."""
    return figures.svg(figures.draw("ladder", datasets)) if quantities.of(datasets, {}) else None


def stale(root: Path = ROOT) -> list[str]:
    """The files that `python -m lockstep.paper.readme` would change."""
    datasets, readme, figure = recorded(root), root / "README.md", root / FIGURE
    text, shown = readme.read_text(encoding="utf-8"), drawing(datasets)
    changed = ["README.md"] if filled(text, datasets) != text else []
    if shown != (figure.read_text(encoding="utf-8") if figure.exists() else None):
        changed.append(FIGURE.as_posix())
    return changed


def update(root: Path = ROOT) -> None:
    """Rewrite README.md and the headline figure."""
    datasets, readme, figure = recorded(root), root / "README.md", root / FIGURE
    readme.write_text(filled(readme.read_text(encoding="utf-8"), datasets), encoding="utf-8")
    shown = drawing(datasets)
    if shown is None:
        figure.unlink(missing_ok=True)
    else:
        figure.write_text(shown, encoding="utf-8")


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
