"""Pictures of the vehicular edge: a map with the radio links, and the queues; by matplotlib, without a screen."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from lockstep.extras import extra

from ..checks import places
from .params import FAMILIES

SIZE, DPI = (9.6, 6.4), 100  # inches; a picture has 640 x 960 pixels
LONGEST = 4  # a map that is longer than that is stretched across
BLUE, SKY, GREEN, ORANGE, RED, PINK, YELLOW = (  # of Okabe and Ito: told apart by the colour-blind
    "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7", "#F0E442",
)  # fmt: skip
INK, GREY = "#1c2430", "#8a94a3"
COLOURS = {"lc": BLUE, "v2v": RED, "vc": ORANGE, "v2i": SKY, "i2i": GREY, "ec": GREEN, "i2c": YELLOW, "cc": PINK}
# Titles of the panels of queues, and what stands in each: families, from the axis on.
PANELS = {"clients": ("lc",), "servers": ("v2v", "vc"), "edge nodes": ("v2i", "i2i", "ec"), "cloud": ("i2c", "cc")}
PLACES = (0.645, 0.68, 0.34, 0.19), (0.645, 0.375, 0.34, 0.19), (0.645, 0.07, 0.23, 0.19), (0.925, 0.07, 0.06, 0.19)


def frames(env, indices: Sequence[int] | int | None = None) -> list[np.ndarray]:
    """Pictures of environments of a batch, as `picture` draws them; the batch is only read.

    With trace=True they show which links the last step used.

    Args:
        indices: environments, each in 0 .. B-1; None is all of them.

    Returns:
        A frame [640, 960, 3] uint8 for each.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: not integers, or no environment of that index.
    """
    rows = places(indices, env.num_envs)
    state, fields, rates = env.state(), env.fields(), env.record() if env.trace else {}
    drawn = []
    for i in rows:
        t, scenario = int(state["elapsed"][i]), env.scenarios[int(state["scenario"][i])]
        queues = {name: fields[name][i].double().cpu().numpy() for name in FAMILIES}
        used = [rates[name][i].cpu().numpy() for name in ("rate_v2v", "rate_v2i")] if rates and t else None
        drawn.append(picture(scenario, t, queues, used))
    return drawn


def picture(scenario, t: int, queues: Mapping[str, np.ndarray], used: Sequence[np.ndarray] | None = None) -> np.ndarray:
    """The start of slot t: who is where and can reach whom, and what waits where.

    Args:
        scenario: a `scenario.Scenario`.
        t: 0 .. T; after the last slot everybody stands where that had them.
        queues: backlogs of every family in the shapes of `params.queue_shapes`, Mbit.
        used: rates of the last slot, bit/s: V2V [Nc, Ns] and V2I [Nc, Ne]; the links above 0 are drawn strong. None
            leaves all of them faint.

    Returns:
        [640, 960, 3] uint8.

    Raises:
        ImportError: matplotlib is not installed.
    """
    mpl, seen = _matplotlib(), reported(queues)
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update({"font.size": 8, "axes.edgecolor": GREY, "text.color": INK, "axes.labelcolor": INK})
        figure = mpl.figure.Figure(figsize=SIZE, dpi=DPI)
        canvas = mpl.backends.backend_agg.FigureCanvasAgg(figure)
        _map(mpl, figure.add_axes((0.06, 0.205, 0.5, 0.68)), scenario, t, used)
        for (title, families), place in zip(PANELS.items(), PLACES, strict=True):
            _bars(figure.add_axes(place), title, {name: seen[name] for name in families})
        _titles(figure, scenario, t, seen)
        canvas.draw()
        return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _matplotlib():
    """The library, with those of its modules that pictures need; no screen is looked for."""
    with extra("render", of="rendering"):
        import matplotlib
        import matplotlib.backends.backend_agg
        import matplotlib.collections
        import matplotlib.figure
        import matplotlib.lines
        import matplotlib.patches
    return matplotlib


def reported(queues: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Backlogs by place, Mbit: of V2I by access edge, of I2I by destination, of I2C in one."""
    edges = len(queues["ec"])
    summed = {"v2i": queues["v2i"].reshape(edges, -1).sum(1), "i2i": queues["i2i"].reshape(-1, edges).sum(0)}
    return {**queues, **summed, "i2c": queues["i2c"].sum(keepdims=True)}


def _titles(figure, scenario, t: int, seen: Mapping[str, np.ndarray]):
    """The time, and the totals of tasks and queues."""
    slots = scenario.params.slots
    tasks = int(scenario.task_count[t].sum()) if t < slots else 0
    totals = {title: sum(float(seen[name].sum()) for name in families) for title, families in PANELS.items()}
    waiting = ", ".join(f"{title} {total:,.0f}" for title, total in totals.items())
    figure.text(0.06, 0.95, f"t = {t} s of {slots} s", size=13, weight="bold")
    figure.text(0.985, 0.95, f"scenario {scenario.name}" if scenario.name else "", size=8, color=GREY, ha="right")
    figure.text(
        0.06, 0.915, f"{tasks:,} new tasks; {sum(totals.values()):,.0f} Mbit in queues: {waiting}", size=9, va="center"
    )


def _map(mpl, axes, scenario, t: int, used: Sequence[np.ndarray] | None):
    """Edge nodes and what they cover, vehicles, and the links between them."""
    now = min(t, scenario.params.slots - 1)
    clients, servers, edges = scenario.xy_client[now], scenario.xy_server[now], scenario.edge_xy
    here, there = scenario.active_client[now], scenario.active_server[now]
    low, high = _extent(scenario)
    span = high - low
    stretched = span.max() > LONGEST * span.min()
    axes.set(
        xlim=(low[0], high[0]), ylim=(low[1], high[1]), xlabel="x [m]", aspect="auto" if stretched else "equal",
        ylabel="y [m], stretched" if stretched else "y [m]",
    )  # fmt: skip
    axes.set_facecolor("#f7f8fa")
    axes.tick_params(colors=GREY, labelcolor=INK, labelsize=7)
    for place, reach in zip(edges, scenario.edge_range, strict=True):
        axes.add_patch(mpl.patches.Circle(place, reach, facecolor=GREEN, edgecolor=GREEN, alpha=0.06))
        axes.add_patch(mpl.patches.Circle(place, reach, fill=False, edgecolor=GREEN, alpha=0.35, linewidth=0.7))

    chosen = scenario.server_of[now]  # [Nc, S]
    near = np.argwhere(chosen >= 0)
    possible = [(i, chosen[i, k]) for i, k in near], [(i, e) for i, e in enumerate(scenario.access[now]) if e >= 0]
    taken = [np.argwhere(rate > 0) for rate in used] if used is not None else [(), ()]
    for pairs, strong, ends, colour in zip(possible, taken, (servers, edges), (RED, SKY), strict=True):
        for some, style in ((pairs, {"linewidths": 0.5, "alpha": 0.3}), (strong, {"linewidths": 1.3})):
            lines = [np.stack([clients[i], ends[j]]) for i, j in some]
            axes.add_collection(mpl.collections.LineCollection(lines, colors=colour, **style))

    edge = {"edgecolors": "white", "linewidths": 0.6, "zorder": 3}
    axes.scatter(*clients[here].T, s=22, color=BLUE, marker="o", **edge)
    axes.scatter(*servers[there].T, s=30, color=ORANGE, marker="s", **edge)
    axes.scatter(*edges.T, s=75, color=GREEN, marker="^", **edge)
    axes.scatter(*scenario.cloud_xy, s=110, color=PINK, marker="*", **edge)
    label = {"textcoords": "offset points", "ha": "center", "color": INK, "size": 7, "zorder": 4, "clip_on": True}
    for number, place in enumerate(edges):
        axes.annotate(str(number), place, (0, 6), **label)
    _legend(mpl, axes, used is not None)


def _legend(mpl, axes, strong: bool):
    """The marks of the map, below it."""
    line = mpl.lines.Line2D
    marks = [("o", BLUE, "client", 6), ("s", ORANGE, "server vehicle", 6), ("^", GREEN, "edge node, coverage", 8)]
    marks += [("*", PINK, "cloud", 10)]
    shown = [
        line([], [], marker=marker, color=colour, linestyle="", markeredgecolor="white", markersize=size, label=label)
        for marker, colour, label, size in marks
    ]
    for colour, name in ((RED, "V2V"), (SKY, "V2I")):
        shown.append(line([], [], color=colour, linewidth=0.8, alpha=0.5, label=f"{name} in range"))
        if strong:
            shown.append(line([], [], color=colour, linewidth=1.6, label=f"{name} used last"))
    axes.figure.legend(handles=shown, loc="upper center", bbox_to_anchor=(0.3, 0.135), ncols=4, frameon=False)


def _extent(scenario) -> tuple[np.ndarray, np.ndarray]:
    """Corners of what is ever to be seen, with a margin, m."""
    everybody = [scenario.xy_client, scenario.xy_server, scenario.edge_xy, scenario.cloud_xy]
    points = np.concatenate([array.reshape(-1, 2) for array in everybody])
    low, high = points.min(0), points.max(0)
    margin = np.maximum(0.08 * (high - low), 1.0)
    return low - margin, high + margin


def _bars(axes, title: str, parts: Mapping[str, np.ndarray]):
    """The queues of a kind of place, one on top of the other."""
    count = len(next(iter(parts.values())))
    below = np.zeros(count)
    for name, heights in parts.items():
        axes.bar(np.arange(count), heights, 0.8, below, color=COLOURS[name], label=name.upper())
        below = below + heights
    axes.set(xlim=(-0.7, count - 0.3), ylim=(0, ceiling(below.max())), xlabel=title)
    axes.set_xticks(np.arange(count) if 1 < count <= 12 else [])
    axes.tick_params(colors=GREY, labelcolor=INK, labelsize=7)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_ylabel("" if title == "cloud" else "queue [Mbit]")
    axes.legend(
        loc="lower left", bbox_to_anchor=(-0.05, 1.0), ncols=len(parts), frameon=False, fontsize=7, handlelength=0.8,
        columnspacing=0.8, handletextpad=0.3, borderpad=0.1,
    )  # fmt: skip


def ceiling(value: float) -> float:
    """The least of 1, 2, 5, 10, 20, .. that is not below a backlog, so that axes rarely move."""
    decade = 10.0 ** math.floor(math.log10(max(value, 1.0)))
    return next(limit for limit in (decade, 2 * decade, 5 * decade, 10 * decade) if value <= limit)
