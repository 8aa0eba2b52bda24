"""The environments of each family: what they are, how fast their ports are, and what was verified."""

import functools

import pandas as pd
from gymnasium.spaces import Discrete, MultiDiscrete

from lockstep import envs, paper
from lockstep.experiments.ledger import sources
from lockstep.paper import families, tables
from lockstep.paper.common.tables.correctness import held
from lockstep.paper.common.tables.throughput import of_rung
from lockstep.paper.tables import ONE_MACHINE, table
from lockstep.paper.typeset import SPACE, TIMES, Column, Row, count, number, si


def overview(datasets: list) -> pd.DataFrame:
    """A row per environment and machine that measured it: the columns of `family` and `agreement`, `held`, `checks`.

    The date is the earlier of `rates_date` and `checks_date`, and where the code of one has changed since, that is said
    of both.
    """
    speed, checks = (
        one.assign(here=one["status"].isin([paper.HERE, paper.CHANGED_HERE]))
        for one in (tables.frame(name, datasets) for name in ("family", "agreement"))
    )
    found = speed.merge(checks, "outer", ["environment", "machine", "here"], suffixes=("", "_of_checks"))
    later = found["status"].isna() | found["status_of_checks"].isin([paper.CHANGED_HERE, paper.CHANGED])
    found["status"] = found["status"].mask(later, found["status_of_checks"])
    found = found.rename(columns={"date": "rates_date", "date_of_checks": "checks_date"})
    found["date"] = found[["rates_date", "checks_date"]].min(axis="columns")
    for name in ("held", "checks"):
        levels = [f"{level}_{name}" for level in ("transition", "episode", "distribution")]
        found[name] = found.reindex(columns=levels).sum(axis="columns")
    measured = set(found.loc[found["status"] != paper.NOT_MEASURED, "environment"])
    return found[(found["status"] != paper.NOT_MEASURED) | ~found["environment"].isin(measured)]


def original(environment: str) -> str:
    """The origin of an environment's original."""
    known = envs.port(environment).gymnasium_id if environment in sources.environments() else None
    return known or "written here"


VERIFIED = (number("states verified", "cases", count), Column("checks held", held, "number"))


@functools.cache
def traits(environment: str) -> dict:
    """The size of an environment, from what its port declares."""
    port = envs.port(environment)
    action, agents = port.of("action"), len(port.agents)
    choices = [int(n) for n in action.nvec.flat] if isinstance(action, MultiDiscrete) else []
    numbers = f"{action.shape[0] if action.shape else 1}"
    words = f"{action.n} choices" if isinstance(action, Discrete) else f"{len(choices) or numbers} numbers"
    return {
        "agents": max(agents, 1),
        "observation": port.of("observation").shape[0],
        "action": words.replace("1 numbers", "1 number"),
        "longest": port.of("longest_episode") or port.of("horizon"),
    }


def observed(row: Row) -> str:
    """The numbers of an observation, after the number of agents where there are several."""
    return (
        f"{row['agents']}{SPACE}{TIMES}{SPACE}{row['observation']}" if row["agents"] > 1 else count(row["observation"])
    )


def environments_of(family: str) -> None:
    """Make a table of the environments of a family, <family>_environments."""
    about = families.about(family)
    steps, size = about.get("steps", "steps"), about.get("headline", families.headline())["num_envs"]

    def environments(datasets):
        found = overview(datasets)
        found = found[[families.of(name) == family for name in found["environment"]]]
        found = found.sort_values("machine", key=lambda names: names.replace("here", ""), kind="stable")
        return found.assign(**pd.DataFrame([traits(name) for name in found["environment"]], found.index))

    environments.__name__ = f"{family}_environments"
    table(
        f"The environments of {about['title'].lower()}: sizes, {steps} per second of {size:,} environments (or of as "
        "many as are named) with one call per step, and what was verified. In brackets, the ratio to the original on "
        "the same machine; the day is the earlier one of rates and checks.",
        *ONE_MACHINE,
        Column("observation", lambda row: observed(row), "number"),
        Column("action", lambda row: row["action"], "number"),
        number(f"{steps} per episode", "longest", count),
        number(f"original's {steps}/s", "original_rate", si),
        of_rung("port on CPU", "port-cpu"),
        of_rung("port on GPU", "port-cuda-graph"),
        *VERIFIED,
    )(environments)


for family in families.names():
    environments_of(family)
