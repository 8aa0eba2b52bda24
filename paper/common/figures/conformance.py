"""Checks of libraries' forms of an environment beside Gymnasium's."""

import pandas as pd
from matplotlib.figure import Figure

from lockstep.experiments.verify.checks import DIFFERS, SAME, UNSEEN
from lockstep.paper import quantities
from lockstep.paper.common.tables.conformance import checks
from lockstep.paper.figures import PAGE, SOFT, figure, grid, label_outside, legend

LOOKS = {  # of a verdict
    SAME: {"marker": "o", "color": "#0072B2", "markersize": 4},
    DIFFERS: {"marker": "X", "color": "#D55E00", "markersize": 7},
    UNSEEN: {"marker": "o", "color": SOFT, "markersize": 4, "markerfacecolor": PAGE},
}


@figure(
    "Libraries' batched forms of Gymnasium's environments beside Gymnasium's own: each check that found them the same, "
    "found a difference, or saw nothing. No mark: it does not apply, or the library has no such environment.",
    "Dot charts, one panel per environment: libraries across, checks down, a dot where they are the same, a cross "
    "where they differ, a ring where it cannot be seen. The table of conformance says in what.",
)
def conformance(datasets: list) -> Figure:
    runs = quantities.of(datasets, {"experiment": "conformance"})
    frames = {run.provenance["environment"]: checks(run.frame) for run in runs}
    found = pd.concat(frames.values()) if frames else pd.DataFrame({"name": [], "library": []})
    names, libraries = (list(dict.fromkeys(found[column])) for column in ("name", "library"))
    titles = [name.replace("_", "\n") for name in frames]
    figure, axes = grid(titles, 0.6 + 0.17 * max(len(names), 4), columns=5, sharex=True, sharey=True)
    for panel, rows in zip(axes, frames.values(), strict=True):
        for verdict, look in LOOKS.items():
            which = rows[rows["verdict"] == verdict]
            across, down = map(libraries.index, which["library"]), map(names.index, which["name"])
            panel.plot(list(across), list(down), linestyle="", label=verdict, **look)
        panel.set_xticks(range(len(libraries)), libraries, rotation=90)
        panel.set_yticks(range(len(names)), names)
        panel.set_xlim(-0.7, len(libraries) - 0.3)
        panel.set_ylim(len(names) - 0.4, -0.6)
        panel.tick_params(length=0)
    label_outside(axes)
    legend(figure, axes)
    return figure
