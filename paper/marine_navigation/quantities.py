"""Quantities of policies, and what the published time of a step makes of a rate here."""

import functools

from lockstep import paper
from lockstep.paper import typeset
from lockstep.paper.common.quantities.throughput import fastest
from lockstep.paper.families import about
from lockstep.paper.marine_navigation import summaries
from lockstep.paper.quantities import matching, of, quantity, unanswered, with_interval


@quantity(with_interval(functools.partial(typeset.percent, digits=3)))  # as published: 86.5 %
def policy_success(datasets, select, against):
    """Share of episodes in which every robot reaches its goal and none hits anything; of several settings the least.

    Nothing while seeds of the agent are yet to be trained.
    """
    for dataset in of(datasets, select):
        rows = matching(summaries.played(dataset), select)
        if len(rows) and not unanswered(dataset, select):
            row = rows.loc[rows["success"].idxmin()]
            yield dataset, row["success"], row["success_low"], row["success_high"]


def spread(value: float, low: float, high: float) -> tuple[str, str]:
    return f"{typeset.times(low)} to {typeset.times(high)}", typeset.DASH


@quantity(spread)
def over_published_step(datasets, select, against):
    """CPU time of a step of the published code over that of a row here: arithmetic over two machines."""
    least, most = published_step()
    for dataset, _, row in fastest(datasets, select, "cpu_rate"):
        yield dataset, least * row["cpu_rate"], least * row["cpu_rate"], most * row["cpu_rate"]


def published_step() -> tuple[float, float]:
    """The least and the most CPU time of a step of the published code, s."""
    return about(summaries.NAME)["published"]["thruster"]["step_cpu_s"]


def per_core(report, machine: str) -> str:
    """One machine's rate of a core over both originals, that written here and the published one."""
    port = {"rung": "port-cpu", "num_envs": 1024, "threads": 1}
    original = {"rung": "original", "num_envs": 1}

    def on(quantity, against=None, **select):
        return report.on(machine, quantity, against, environment=summaries.NAME, policy="random", **select)

    if paper.NOT_MEASURED in (ratio := on("cpu_ratio", original, **port), taken := on("step_cpu_time", **original)):
        return ""
    where = "Here" if machine == "here" else f"On record from *{machine}*"
    published = " to ".join(map(typeset.short_time, published_step()))
    return (
        f"{where}, one thread of the port with {port['num_envs']:,} environments makes {on('cpu_rate', **port)}, "
        f"{ratio} the original, whose step takes {taken}. The published code was found to take {published} of CPU time "
        f"for such a step, on another machine: {on('over_published_step', **original)} the time of the original here. "
        f"Measured by that, the port would be at {on('over_published_step', **port)}, which is arithmetic over two "
        "machines and no measurement."
    )
