"""Little's law of every queue: its mean backlog against arrivals times delay."""

from matplotlib.figure import Figure

from lockstep.paper import offloading
from lockstep.paper.figures import grid, label_status, legend, log_axes

caption = (
    "Little's law: the mean backlog of every queue in which something arrived, as the original held it, against its "
    "arrivals times the mean delay of its bits, which comes from matching departing with arriving bits. All policies "
    "and maps, one episode each; a bit that stays counts until the end. On the line both are equal."
)
alt = (
    "A scatter plot with logarithmic axes of mean backlog over arrival rate times mean delay, one mark per queue in "
    "the colour of its family, all on the diagonal."
)
FAMILIES = {
    "lc": ("client CPU", "#8a8a8a"),
    "v2v": ("V2V radio", "#56B4E9"),
    "vc": ("server CPU", "#0072B2"),
    "v2i": ("V2I radio", "#E69F00"),
    "i2i": ("wire between edges", "#A6761D"),
    "ec": ("edge CPU", "#009E73"),
    "i2c": ("wire to the cloud", "#CC79A7"),
    "cc": ("cloud CPU", "#D55E00"),
}


def draw(datasets: list) -> Figure:
    runs = offloading.newest(datasets)
    figure, axes = grid(["backlog and delay"] if runs else [], 2.6)
    for panel in axes if runs else []:
        label_status(panel, runs[0])
        rows = runs[0].frame[runs[0].frame["level"] == "little"]
        rows = rows.assign(product=rows["rate_mbps"] * rows["delay_s"])
        rows = rows[(rows["product"] > 0) & (rows["backlog_mbit"] > 0)]
        if len(rows):
            ends = [rows["backlog_mbit"].min(), rows["backlog_mbit"].max()]
            panel.plot(ends, ends, color="#b00020", linewidth=0.7)
        for family, (label, colour) in FAMILIES.items():
            part = rows[rows["family"] == family]
            if len(part):
                style = {"color": colour, "linestyle": "none", "marker": ".", "markersize": 7, "markeredgewidth": 0}
                panel.plot(part["product"], part["backlog_mbit"], label=label, alpha=0.6, rasterized=True, **style)
        log_axes(panel, "arrivals times delay, Mbit", "mean backlog, Mbit")
    legend(figure, axes, ncols=4)
    return figure
