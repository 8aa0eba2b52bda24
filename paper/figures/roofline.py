"""How near the port comes to the bounds of its machine: memory on the left, arithmetic on the right."""

from matplotlib.figure import Figure

from paper import quantities
from paper.figures import curve, grid, label_status, legend, log_axes, on_threads, series, title

caption = (
    "The port against the bounds of its machine. Left: bytes of all buffers that a step reads and writes, "
    "times the rate, under the copy bandwidth measured there (grey). Right: how many fp32 operations the "
    "machine could do, at its measured rate, in the time of one step: the fewer, the nearer the bound of "
    "arithmetic."
)
alt = (
    "Pairs of line charts for each environment and machine, all axes logarithmic. Left: memory traffic "
    "over the bytes touched by one call, under grey curves of measured copy bandwidth. Right: available "
    "fp32 operations per step over the number of environments. The roofline table holds the same numbers."
)
BOUNDS = {"cpu": {"color": "#b3bcc7", "linewidth": 3}, "cuda": {"color": "#6f7b89", "linewidth": 3}}
FEWER_THREADS = {"linestyle": (0, (1, 0.8))}


def draw(datasets: list) -> Figure:
    runs = [run for run in quantities.of(datasets, {}) if len(ported(run)) and bounded(datasets, run)]
    figure, axes = grid([name for run in runs for name in (f"{title(run)}: memory", "arithmetic")], height=3.0)
    for memory, arithmetic, run in zip(axes[::2], axes[1::2], runs, strict=True):
        label_status(memory, run)
        log_axes(memory, "bytes touched by one call", "bytes per second")
        log_axes(arithmetic, "environments B", "fp32 operations per step")
        rates = ported(run)
        for device, threads in sorted(set(zip(rates["device"], rates["threads"], strict=True)), key=str):
            copy = quantities.copy_curve(datasets, run, device, threads)
            single = device == "cpu" and threads < rates["threads"].max()
            style = BOUNDS[device] | (FEWER_THREADS if single else {})
            memory.plot(copy.index, copy, label=bound(datasets, run, device, threads), zorder=1, **style)
        for label, style, rows in series(rates):
            touched = rows["bytes_per_step"] * rows["fused_steps"] * rows["num_envs"]
            curve(memory, touched, rows, label, style, rows["bytes_per_step"])
            fp32 = quantities.fp32_rate(datasets, run, rows["device"].iloc[0], rows["threads"].iloc[0])
            arithmetic.plot(rows["num_envs"], fp32 / rows["rate"], **style)
    legend(figure, axes)
    return figure


def ported(run):
    """The settings of a run that are of the port."""
    rates = quantities.rates(run)
    return rates[rates["rung"].str.startswith("port")]


def bound(datasets: list, run, device: str, threads: float) -> str:
    """What a curve of copy bandwidth is of, with its threads."""
    if device == "cuda":
        return "copy on GPU"
    measured = quantities.ceilings(datasets, run, "copy", device)
    used = quantities.of_threads(measured, device, threads)["threads"].max()
    return "copy on CPU" + on_threads("copy", used)


def bounded(datasets: list, run) -> bool:
    """Whether the bounds of a run's machine were measured."""
    return any(len(quantities.ceilings(datasets, run, "copy", device)) for device in ("cpu", "cuda"))
