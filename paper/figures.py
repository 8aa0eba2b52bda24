"""Figures of the paper: each a function from datasets to a matplotlib Figure, with its caption and alternative text.

Decorating a function in common/figures/ or in a family's `figures` is all it takes for one more. This file has what
they share: the style, a grid of panels, the series of a run, and files that are equal byte for byte on every machine.
"""

import io
import re
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullLocator

from lockstep import paper
from lockstep.paper import families, quantities, rung

STYLE = Path(__file__).with_name("style.mplstyle")
WIDTH = 7.2  # inches, the width of the report's column
LINE = 110  # small letters across the column
LINE_HEIGHT = 0.12  # inches, of small letters
NOTHING = "nothing-measured"  # the id of a panel without results
PAGE = "#fefefe"  # of what is hollow: a page that is dark has another
SOFT = "#5b6675"
INKS = {  # colours that follow the page's text, and how much of it they let through
    **dict.fromkeys(["#000000", "#1c2430", "#2b2b2b"], 1),
    **{"#39434f": 0.87, SOFT: 0.72, "#8a8a8a": 0.55, "#d5dbe3": 0.22, "#e4e8ee": 0.14},
}
ALONE = (  # rules of a file that stands on no page
    "svg:root {color: #1c2430; --page: #fff; color-scheme: light dark} "
    "@media (prefers-color-scheme: dark) {svg:root {color: #dfe4ea; --page: #14181f}}"
)


@dataclass(frozen=True)
class Drawing:
    """A figure of the paper; alt: what it shows, for those who do not see it.

    more: further words at the end of the caption, of datasets. on_gpu: its very end where a machine has a GPU.
    """

    caption: str
    alt: str
    draw: Callable[[list], Figure]
    more: Callable[[list], str] = paper.nothing
    on_gpu: str = ""


REGISTERED: dict[str, Drawing] = {}


def figure(caption: str, alt: str, **options) -> Callable:
    """Make a function of `datasets` a figure of the paper, under the function's name."""

    def register(draw: Callable[[list], Figure]) -> Callable[[list], Figure]:
        REGISTERED[draw.__name__] = Drawing(caption, alt, draw, **options)
        return draw

    return register


def every() -> dict[str, Drawing]:
    """All figures, by name."""
    families.modules("figures")
    return dict(sorted(REGISTERED.items()))


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
        return every()[name].draw(datasets)


def files(name: str, datasets: list) -> tuple[str, bytes]:
    """A figure as SVG and as PNG."""
    drawn = draw(name, datasets)
    drawing = svg(drawn)
    drawn.set_layout_engine("none")  # everything has its place by now; to find it again takes seconds
    return drawing, png(drawn)


def svg(figure: Figure) -> str:
    """The figure as SVG, in the colours of the page that it stands on.

    Text are outlines of matplotlib's own font, ids come from a fixed salt; no date.
    """
    file = io.StringIO()
    with style():
        figure.savefig(file, format="svg", metadata=dict.fromkeys(["Creator", "Date", "Format", "Type"]))
    return themed(file.getvalue())


def themed(drawing: str) -> str:
    """An SVG file whose INKS are the text's colour where it stands, and PAGE that of the ground, --page."""

    def follow(match: re.Match) -> str:
        what, colour = match.groups()
        through = INKS.get(colour)
        if through is None:
            return f"{what}: var(--page, #fff)" if colour == PAGE else match[0]
        return f"{what}: currentColor" + (f"; {what}-opacity: {through}" if through < 1 else "")

    drawing = re.sub(r"\b(fill|stroke): (#[0-9a-f]{6})\b", follow, drawing)
    return drawing.replace("</style>", f"{ALONE}</style>", 1)


def png(figure: Figure) -> bytes:
    """The figure as PNG, without the name of the software."""
    file = io.BytesIO()
    with style():
        figure.savefig(file, format="png", facecolor="white", metadata={"Software": None})
    return file.getvalue()


def grid(titles: list[str | None], height: float, columns: int = 2, **options) -> tuple[Figure, list[Axes]]:
    """A figure with one panel per title, None for an empty place; `height` in inches of one row.

    Without titles one panel says so.
    """
    shown = max(len(titles), 1)
    columns = min(columns, shown)
    rows = -(-shown // columns)
    figure = Figure(figsize=(WIDTH, height * rows if titles else 1.2), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False, **options).flat)
    titles = titles + [None] * (len(axes) - len(titles))
    for panel, title in zip(axes, titles, strict=True):
        panel.set_title(title or "")
        panel.set_visible(title is not None)
    if not any(titles):
        say_nothing(axes[0])
    return figure, [panel for panel, title in zip(axes, titles, strict=True) if title]


def say_nothing(panel: Axes) -> None:
    """A panel without results; a drawing that has one says it, see `shows_nothing`."""
    panel.set_gid(NOTHING)
    panel.set_visible(True)
    panel.set_axis_off()
    panel.text(0.5, 0.5, "not measured yet", ha="center", va="center", transform=panel.transAxes)


def shows_nothing(drawing: str) -> bool:
    """True of an SVG file that only says that nothing is measured yet."""
    return f'id="{NOTHING}"' in drawing


def of_runs(runs: list, height: float, columns: int = 2, **options) -> tuple[Figure, list[Axes]]:
    """A panel per run, under its environment, machine and status."""
    figure, axes = grid([title(run) for run in runs], height, columns, **options)
    for panel, run in zip(axes, runs, strict=True):
        label_status(panel, run)
    return figure, axes


def by_machine(runs: list, height: float, **options) -> tuple[Figure, list[tuple[Axes, object]]]:
    """Small panels with the runs they are of: a row per environment, and a column per machine if it is two or three.

    Else, or where that would leave many places empty, three columns that are filled in order. All share the axis of x,
    those of a row that of y.
    """
    known = {(run.provenance["environment"], paper.machine(run)): run for run in runs}
    names = dict.fromkeys(name for name, _ in known)
    places = [known.get((name, machine)) for name in names for machine in paper.machines(runs)]
    columns = len(paper.machines(runs))
    if not 2 <= columns <= 3 or len(runs) < 0.7 * len(places):
        columns, places = 3, list(runs)
    names = [run and run.provenance["environment"] for run in places]
    words = [textwrap.fill(f"{paper.machine(run)}: {run.status}", LINE // columns) for run in filter(None, places)]
    lower = LINE_HEIGHT * max((said.count("\n") for said in words), default=0)
    figure, axes = grid(names, height + lower, columns, sharex=True, sharey="row", **options)
    for panel, said in zip(axes, words, strict=True):
        write_below(panel, said)
    return figure, list(zip(axes, filter(None, places), strict=True))


def label_outside(axes: list[Axes]) -> None:
    """Leave the labels of shared axes only where no other panel stands to the left, or below."""
    spec = {panel: panel.get_subplotspec() for panel in axes}
    places = {(spec[panel].rowspan.start, spec[panel].colspan.start): panel for panel in axes}
    for (row, column), panel in places.items():
        below = any(r > row and c == column for r, c in places)
        left = any(r == row and c < column for r, c in places)
        panel.tick_params(labelbottom=not below, labelleft=not left)
        panel.set_xlabel("" if below else panel.get_xlabel())
        panel.set_ylabel("" if left else panel.get_ylabel())


def title(run) -> str:
    """Of a panel: the environment and the machine."""
    return f"{run.provenance['environment']}, {paper.machine(run)}"


def label_status(panel: Axes, run, words: str = "") -> None:
    """Perhaps some words, then the status of a run, in a line below the panel's title."""
    write_below(panel, words + run.status + ("" if run.status == paper.HERE else f", {paper.date(run)}"))


def write_below(panel: Axes, words: str) -> None:
    """Lines below the panel's title."""
    panel.set_title(panel.get_title(loc="left"), pad=16 + 72 * LINE_HEIGHT * words.count("\n"))
    below = {"xycoords": "axes fraction", "textcoords": "offset points"}
    panel.annotate(words, (0, 1), (0, 5), fontsize=7, color=SOFT, **below)


def log_axes(panel: Axes, x: str | None = None, y: str | None = None, base: float = 10) -> None:
    """The axes that get a name become logarithmic, with SI prefixes and a tick per power of `base`."""
    for name, axis, label in (("x", panel.xaxis, x), ("y", panel.yaxis, y)):
        if label is not None:
            panel.set(**{f"{name}scale": "log", f"{name}label": label})
            axis.set_major_locator(LogLocator(base=base, numticks=15))
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
            style |= {"markerfacecolor": PAGE if single else about.colour}
            label = about.label + (
                "" if not name.startswith("port-cpu") else ", 1 thread" if single else ", all threads"
            )
            yield label, style, part[part["fused_steps"] == steps].sort_values("num_envs")


def on_threads(name: str, threads: float) -> str:
    """For the end of a label: ", 2 threads" where a rung shares its work out to threads."""
    return f", {quantities.thread_words(threads, 0, 0)[0]}" if name.startswith("port-cpu") else ""


def curve(panel: Axes, x: pd.Series, rows: pd.DataFrame, label: str, style: dict, factor=1.0) -> None:
    """A line through median rates with their 95 % intervals; rates times `factor` are what the axis shows."""
    panel.vlines(x, rows["rate_low"] * factor, rows["rate_high"] * factor, color=style["color"], linewidth=1)
    panel.plot(x, rows["rate"] * factor, label=label, **style)


def legend(figure: Figure, axes: list[Axes], **options) -> None:
    """One legend for all panels, below them, in as many columns as the width has room for; rungs in their order."""
    entries: dict[str, object] = {}
    for panel in axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)

    def place(label: str) -> int:
        named = [name for name, about in paper.RUNGS.items() if label.startswith(about.label)]
        return max(map(paper.rung_order, named), default=-1)

    if entries:
        options = {"ncols": 2 if max(map(len, entries)) > 36 else 3} | options
        labels = sorted(entries, key=place)
        figure.legend([entries[label] for label in labels], labels, loc="outside lower center", **options)
