"""Rates and memory over the sizes of environments, a table for each family that asks for them."""

from lockstep.experiments import catalogue, config
from lockstep.experiments.sizes import HORIZON
from lockstep.paper import families
from lockstep.paper.common.quantities.scaling import section, sizes
from lockstep.paper.tables import RATES, RATIO, REMARK, RUN, label, measured, of_asked, on_cpu, table, with_gap
from lockstep.paper.typeset import DASH, Column, count, missing, number, short_time, si, significant


def asked() -> dict[str, list[str]]:
    """The environments whose settings have the section, by family."""
    found: dict[str, list[str]] = {}
    for name in config.files():
        if catalogue.why_not("scaling", name) is None:
            found.setdefault(families.of(name), []).append(name)
    return {family: names for family, names in found.items() if family in families.names()}


def of_size(name: str) -> Column:
    """A column of an environment's own: words, or a number."""

    def cell(row) -> str:
        value = row[name]
        return DASH if missing(value) else value if isinstance(value, str) else count(value)

    return Column("steps per episode" if name == HORIZON else name, cell, "number")


def memory(heading: str, name: str) -> Column:
    """Bytes as KiB."""
    return number(heading, name, lambda value: significant(value / 2**10))


def sizes_of(family: str, environments: list[str]) -> None:
    """Make a table of a family's sizes, <family>_scaling."""
    steps = families.about(family).get("steps", "steps")
    columns = list(dict.fromkeys(column for name in environments for column in section(name).columns))
    over = " or ".join(dict.fromkeys(section(name).over for name in environments))

    def scaling(datasets):
        own = [one for one in datasets if families.of(one.provenance["environment"]) == family]
        return of_asked(
            own, "scaling", lambda run: with_gap(sizes(run), rung="port-cuda-graph"), environments.__contains__
        )

    scaling.__name__ = f"{family}_scaling"
    table(
        f"{steps.capitalize()} per second of all environments, and that rate times the number of {over}, by size; "
        "reset: what a step takes longer where each begins an episode. Memory: all buffers of one environment, the "
        "tables of one scenario, and the increase of memory in use.",
        *RUN,
        Column("rung", label, merge=True),
        *map(of_size, columns),
        number("B", "num_envs", count),
        Column("threads", lambda row: on_cpu(row, "threads", count), "number"),
        Column(f"rate, {steps}/s", lambda row: measured(row, "rate", si), "number"),
        *RATES[1:],
        number(f"{steps}/s times {over}", "counted_rate", si),
        RATIO,
        number("reset", "reset_s", short_time),
        memory("KiB per environment", "bytes_per_env"),
        memory("KiB per scenario", "bytes_per_scenario"),
        number("MiB in use", "memory_mib"),
        REMARK,
        folded=True,
    )(scaling)


for family, environments in asked().items():
    sizes_of(family, environments)
