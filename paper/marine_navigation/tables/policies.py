"""Reach of policies without learning, and of agents."""

import pandas as pd

from lockstep.paper.marine_navigation import summaries
from lockstep.paper.tables import FORM, RUN, of_asked, table
from lockstep.paper.typeset import DASH, TIMES, Column, count, missing, number, percent, si, text, with_interval


def policy(row) -> str:
    return DASH if missing(row["policy"]) else summaries.words(row)


def trained(row) -> str:
    """Environment steps of training, and seeds."""
    return DASH if missing(row["env_steps"]) else f"{si(row['env_steps'])} {TIMES} {row['seeds']:.0f}"


@table(
    "Policies without learning, and agents trained here, on the published episodes: the share in which all robots "
    "reach their goals and none hits anything, with Wilson's interval, or the interquartile mean over several seeds "
    "with its bootstrap interval, beside the published one; time and energy (thruster boats: N s, others: control "
    "effort) of robots at their goals. Robots that have reached their goals, hit another or hit an obstacle: shares of "
    "all.",
    *RUN,
    text("version", "version", merge=True),
    text("preset", "preset", merge=True),
    *(number(name, name, count) for name in ("robots", "cores", "obstacles")),
    Column("policy", policy, merge=True),
    FORM,
    Column("steps of training, seeds", trained, "number"),
    number("episodes", "episodes", count),
    with_interval("success", "success", percent),
    number("published", "published", percent),
    number("time, s", "time_s"),
    number("energy", "energy"),
    number("reached", "reached", percent),
    number("hit a robot", "hit_robot", percent),
    number("hit an obstacle", "hit_obstacle", percent),
    empty="No policies have been played.",
    folded=True,
)
def marine_policies(datasets):
    found = [of_asked(datasets, experiment, summaries.played) for experiment in ("policies", "navigation")]
    return pd.concat(found, ignore_index=True)
