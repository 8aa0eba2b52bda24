"""Rates over the number of environments and over what they grow by, and memory or resets, a figure for each family."""

from collections.abc import Iterable

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from lockstep import paper
from lockstep.experiments.sizes import HORIZON, of_port
from lockstep.paper import families, quantities, rung
from lockstep.paper.common.quantities.scaling import section, sizes
from lockstep.paper.common.tables.scaling import asked
from lockstep.paper.figures import PAGE, curve, figure, grid, label_status, legend, log_axes, title
from lockstep.paper.typeset import count

LINES = ("#4292c6", "#08519c", "#41ab5d", "#e6550d", "#7a0177", "#999933", "#9ecae1")
DEVICES = {"cpu": ("-", "o"), "cuda": ("--", "s")}
BYTES = {"bytes_per_env": "one environment", "bytes_per_scenario": "one scenario"}
LOOKS = (("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#CC79A7", "D"))  # colour and marker, of bytes


def growth_of(family: str) -> None:
    """Make a figure of a family's sizes, <family>_scaling."""
    about = families.about(family)
    steps = about.get("steps", "steps")

    def scaling(datasets: list) -> Figure:
        runs = [run for run in quantities.of(datasets, {"experiment": "scaling"}) if of_family(run)]
        parts = [(run, section(run.provenance["environment"]), with_kinds(run)) for run in runs]
        names = [
            name
            for run, settings, found in parts
            for name in (title(run), f"over {settings.over}", "a reset" if found["reset_s"].any() else "memory")
        ]
        figure, axes = grid(names, 2.0, columns=3)
        figure.set_figheight(figure.get_figheight() + (1.4 if runs else 0))  # the legend has many lines
        for place, (run, settings, found) in enumerate(parts):
            left, middle, right = axes[3 * place : 3 * place + 3]
            label_status(left, run)
            whole = found[found[HORIZON] > 1] if HORIZON in found else found
            over_environments(left, whole, settings.over, steps)
            over_sizes(middle, whole, settings.over, steps)
            if found["reset_s"].any():
                resets(right, found[found["reset_s"].notna()])
            else:
                memory(right, found, settings.over, [name for name in of_port(settings) if name in found])
        legend(figure, axes)
        return figure

    def of_family(run) -> bool:
        return families.of(run.provenance["environment"]) == family

    scaling.__name__ = f"{family}_scaling"
    figure(
        f"{about['title']} at several sizes, one row for each machine: {steps} of all environments per second over the "
        "number of environments (best setting of the port; a size at one number alone only where all are) and over "
        "what the environments grow by (best of each rung; hollow: sizes of another kind), and the memory of one "
        "environment and one scenario, or the time of a step (filled) and of a reset (hollow) of one environment.",
        f"Rows of three charts for each machine, with logarithmic axes: lines of {steps} per second over environments "
        "for several sizes; the same over sizes for each rung; memory over sizes, or bars of the time of a step and of "
        "a reset. The table of scaling holds the numbers.",
        on_gpu="; dashed: on a GPU",
    )(scaling)


def with_kinds(run) -> pd.DataFrame:
    """The sizes of a run that were measured, with the `kind` of each in words.

    Sizes are of one kind that have the same words, and nothing of the same things: all with cores, or all without.
    """
    about, found = section(run.provenance["environment"]), sizes(run).dropna(subset=["rate"])
    words = []
    for name in found.columns.intersection(about.columns).difference({about.over, HORIZON} | of_port(about), False):
        if isinstance(found[name].iloc[0] if len(found) else 0, str):
            words.append(found[name])
        elif (found[name] == 0).any():
            words.append(found[name].map(lambda value, name=name: name if value else f"no {name}"))
    return found.assign(kind=[", ".join(parts) for parts in zip(*words, strict=True)] if words else "")


def apart(kinds: Iterable[str]) -> dict[str, str]:
    """The words of each kind that not all have."""
    words = {kind: kind.split(", ") for kind in kinds}
    shared = set.intersection(*map(set, words.values())) if words else set()
    return {kind: ", ".join(word for word in of_kind if word not in shared) for kind, of_kind in words.items()}


def over_environments(panel: Axes, found: pd.DataFrame, over: str, steps: str) -> None:
    """Lines of the port at its best: of each size or, where there are kinds of one size, of those with most kinds.

    Where a size is measured at several numbers of environments, those that are measured at one alone are left out.
    """
    ported = found[found["rung"].str.startswith("port")]
    numbers = ported.groupby([over, "kind"])["num_envs"].transform("nunique")
    ported = ported[numbers >= min(2, numbers.max())]
    kinds = ported.groupby(over)["kind"].nunique()
    shown = ported[ported[over].map(kinds) == kinds.max()]
    best = shown.loc[shown.groupby(["device", over, "kind", "num_envs"])["rate"].idxmax()]
    every = list(dict.fromkeys(best[[over, "kind"]].itertuples(index=False, name=None)))
    words = apart(dict.fromkeys(kind for _, kind in every))
    for (device, size, kind), rows in best.groupby(["device", over, "kind"], sort=False):
        dash, marker = DEVICES.get(device, ("-", "o"))
        colour = LINES[every.index((size, kind)) % len(LINES)]
        style = {"color": colour, "marker": marker, "linestyle": dash, "markersize": 3}
        curve(panel, rows["num_envs"], rows, ": ".join(filter(None, (f"{count(size)} {over}", words[kind]))), style)
    log_axes(panel, "environments B", f"{steps} per second")


def over_sizes(panel: Axes, found: pd.DataFrame, over: str, steps: str) -> None:
    """The best rate of each rung at each size; of the kinds that have the most sizes, the first filled."""
    kinds = with_most_sizes(found, over)
    words = apart(kinds)
    for name, of_rung in sorted(found.groupby("rung"), key=lambda item: paper.rung_order(item[0])):
        look = rung(name)
        for kind, rows in of_rung[of_rung["kind"].isin(kinds)].groupby("kind", sort=False):
            best = rows.loc[rows.groupby(over)["rate"].idxmax()].sort_values(over)
            style = {"color": look.colour, "marker": look.marker, "markersize": 3}
            style["markerfacecolor"] = PAGE if kinds.index(kind) else look.colour
            curve(panel, best[over], best, ": ".join(filter(None, (look.label, words[kind]))), style)
    log_axes(panel, over, f"{steps} per second")
    ticks(panel, found.loc[found["kind"].isin(kinds), over])


def with_most_sizes(found: pd.DataFrame, over: str) -> list[str]:
    """The kinds that were measured at more sizes than all others, or at as many."""
    numbers = found.groupby("kind", sort=False)[over].nunique()
    return list(numbers.index[numbers == numbers.max()])


def memory(panel: Axes, found: pd.DataFrame, over: str, options: list[str]) -> None:
    """Bytes of an environment, and of a scenario under each of the port's own options, the most at each size.

    Of the kinds that have the most sizes, so that a line is of what grows alone.
    """
    found, lines = found[found["kind"].isin(with_most_sizes(found, over))], {}
    for name, label in BYTES.items():
        known = found.dropna(subset=[name])
        apart = known.groupby(options, sort=False) if options and name == "bytes_per_scenario" else [((), known)]
        for own, rows in apart:
            words = [f"{option} {value}" for option, value in zip(options, own, strict=False)]
            lines[", ".join([label, *words])] = rows.groupby(over)[name].max()
    for (label, largest), (colour, marker) in zip(lines.items(), LOOKS, strict=False):
        if len(largest):
            panel.plot(largest.index, largest, color=colour, marker=marker, markersize=3, label=label)
    log_axes(panel, over, "bytes")
    low, high = panel.get_ylim()
    if high < 10 * low:  # one power of ten in sight, or none
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ticks(panel, found[over])


def ticks(panel: Axes, values: pd.Series) -> None:
    """A tick at every size."""
    panel.set_xticks(sorted(values.unique()), [count(value) for value in sorted(values.unique())])


def resets(panel: Axes, found: pd.DataFrame) -> None:
    """The time of a step and, hollow, of a reset in the fastest setting of each rung and kind."""
    best = found.sort_values("step_s").drop_duplicates(["rung", "kind"])
    best = best.assign(place=best["rung"].map(paper.rung_order)).sort_values(["place", "kind"]).to_dict("records")
    words = apart(dict.fromkeys(row["kind"] for row in best))
    for place, row in enumerate(best):
        look, step = rung(row["rung"]), row["step_s"] - row["reset_s"]
        panel.plot([step, row["reset_s"]], [place, place], color=look.colour, linewidth=2, alpha=0.35)
        panel.plot(step, place, color=look.colour, marker=look.marker)
        panel.plot(row["reset_s"], place, color=look.colour, marker="D", markerfacecolor=PAGE)
    log_axes(panel, "seconds per environment", base=100)
    panel.set_yticks(range(len(best)), [words[row["kind"]] for row in best])
    panel.set_ylim(len(best) - 0.4, -0.6)
    panel.tick_params(axis="y", length=0)
    panel.grid(visible=False, axis="y")


for family in asked():
    growth_of(family)
