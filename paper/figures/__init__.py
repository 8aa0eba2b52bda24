"""The figures of the paper, one module each: `draw(datasets) -> Figure`, `caption` and `alt`.

The folder is the list: a new module here is a new figure in the report. What the modules share stands in
this file: the style, a grid of panels, the series of a run, and files that are equal byte for byte on every
machine.
"""

import importlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, NullLocator

import paper
from paper import quantities, rung

STYLE = Path(__file__).parents[1] / "style.mplstyle"
WIDTH = 7.2  # inches, the width of the report's column


def names() -> list[str]:
    """Every figure, by the name of its module."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem != "__init__")


def module(name: str) -> ModuleType:
    """The module of a figure: draw, caption, alt."""
    return importlib.import_module(f"paper.figures.{name}")


@contextmanager
def style() -> Iterator[None]:
    """The paper's style, whatever style the reader's matplotlib is set to."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.style.use(STYLE)
        yield


def draw(name: str, datasets: list) -> Figure:
    """A figure in the paper's style."""
    with style():
        return module(name).draw(datasets)


def svg(figure: Figure) -> str:
    """The figure as SVG: text as outlines of matplotlib's own font, ids from a fixed salt, no date."""
    file = io.StringIO()
    with style():
        figure.savefig(file, format="svg", metadata=dict.fromkeys(["Creator", "Date", "Format", "Type"]))
    return file.getvalue()


def png(figure: Figure) -> bytes:
    """The figure as PNG, without the name of the software."""
    file = io.BytesIO()
    with style():
        figure.savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()


def grid(titles: list[str], height: float, columns: int = 2, **options) -> tuple[Figure, list[Axes]]:
    """A figure with one panel per title; `height` in inches of one row. Without titles one panel says so."""
    shown = max(len(titles), 1)
    columns = min(columns, shown)
    rows = -(-shown // columns)
    figure = Figure(figsize=(WIDTH, height * rows if titles else 1.2), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False, **options).flat)
    for panel, title in zip(axes, titles, strict=False):
        panel.set_title(title)
    for panel in axes[len(titles) :]:
        panel.set_axis_off()
    if not titles:
        axes[0].text(0.5, 0.5, "not measured yet", ha="center", va="center", transform=axes[0].transAxes)
    return figure, axes[: len(titles)]


def of_runs(runs: list, height: float, columns: int = 2, **options) -> tuple[Figure, list[Axes]]:
    """A panel per run, under its environment, machine and status."""
    figure, axes = grid([title(run) for run in runs], height, columns, **options)
    for panel, run in zip(axes, runs, strict=True):
        label_status(panel, run)
    return figure, axes


def title(run) -> str:
    """Of a panel: the environment and the machine."""
    return f"{run.provenance['environment']}, {paper.machine(run)}"


def label_status(panel: Axes, run) -> None:
    """The status of a run, in a line below the panel's title."""
    day = "" if run.status == paper.HERE else f", {paper.date(run)}"
    panel.set_title(panel.get_title(loc="left"), pad=16)
    below = {"xycoords": "axes fraction", "textcoords": "offset points"}
    panel.annotate(run.status + day, (0, 1), (0, 5), fontsize=7, color="#5b6675", **below)


def log_axes(panel: Axes, x: str, y: str) -> None:
    """Both axes logarithmic, with SI prefixes."""
    panel.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_formatter(EngFormatter(sep=""))
        axis.set_minor_locator(NullLocator())


def series(rates: pd.DataFrame) -> Iterator[tuple[str, dict, pd.DataFrame]]:
    """(label, style, rows) of each rung and number of threads in a run; random actions, observations copied.

    The port on fewer threads than the run had is drawn dashed and hollow. Rows are in order of size;
    a fused rung keeps one number of steps, the one that was measured at the most sizes.
    """
    usual = (rates["policy"] != "fixed") & (rates["obs"] != "view")
    cores = rates.loc[rates["rung"].str.startswith("port-cpu"), "threads"].max()
    for name, rows in sorted(rates[usual].groupby("rung"), key=lambda item: paper.rung_order(item[0])):
        about = rung(name)
        steps = rows["fused_steps"].mode().max()
        for threads, part in rows.groupby("threads", dropna=False):
            single = name.startswith("port-cpu") and threads < cores
            style = {"color": about.colour, "marker": about.marker, "linestyle": "--" if single else "-"}
            style |= {"markerfacecolor": "white" if single else about.colour}
            label = about.label + (f", K = {steps}" if steps > 1 else "") + on_threads(name, threads)
            yield label, style, part[part["fused_steps"] == steps].sort_values("num_envs")


def on_threads(name: str, threads: float) -> str:
    """For the end of a label: ", 2 threads" where a rung, or a copy, shares its work out to threads."""
    return f", {quantities.thread_words(threads, 0, 0)[0]}" if name.startswith(("port-cpu", "copy")) else ""


def curve(panel: Axes, x: pd.Series, rows: pd.DataFrame, label: str, style: dict, factor=1.0) -> None:
    """A line through median rates with their 95 % intervals; rates times `factor` are what the axis shows."""
    panel.vlines(x, rows["rate_low"] * factor, rows["rate_high"] * factor, color=style["color"], linewidth=1)
    panel.plot(x, rows["rate"] * factor, label=label, **style)


def legend(figure: Figure, axes: list[Axes]) -> None:
    """One legend for all panels, below them, in as many columns as the width has room for."""
    entries: dict[str, object] = {}
    for panel in axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if entries:
        columns = 2 if max(map(len, entries)) > 36 else 3
        figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=columns)
