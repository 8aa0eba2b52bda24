"""Other libraries beside the port."""

from collections.abc import Callable

import pandas as pd

from lockstep.experiments.ledger import sources
from lockstep.experiments.peers import AIM, TARGET_SIZE
from lockstep.paper.common.quantities.loops import fastest_peer, peer_rates
from lockstep.paper.common.tables.transfer import DEVICES
from lockstep.paper.tables import ONE_MACHINE, RUN, of_asked, on_cpu, table
from lockstep.paper.typeset import (
    DASH,
    GREATER,
    SPACE,
    TIMES,
    Column,
    count,
    interval,
    missing,
    number,
    si,
    significant,
    text,
    times,
    with_interval,
    yes_no,
)

MODES = {"step": "one step per call", "fused": "fused"}


def of_compared(datasets: list, rows_of: Callable) -> pd.DataFrame:
    """of_asked; an environment that is not Gymnasium's is of no peer."""
    return of_asked(datasets, "peers", rows_of, sources.in_gymnasium)


def name(row) -> str:
    """A peer with its version."""
    return DASH if missing(row["peer"]) else " ".join(filter(None, [row["peer"], known(row["version"])]))


def known(value: object) -> str:
    return "" if missing(value) else str(value)


def mode(row) -> str:
    """One step per call, or how many are fused."""
    steps = f", K = {count(row['fused_steps'])}" if row["mode"] == "fused" else ""
    return MODES.get(row["mode"], DASH) + steps


def remark(row) -> str:
    """The differences, or the reason why there is nothing."""
    return known(row["reason"]) or known(row["differences"]) or DASH


DEVICE = Column("device", lambda row: DEVICES.get(row["device"], DASH), merge=True)
RATES = (
    Column("threads", lambda row: on_cpu(row, "threads", count), "number"),
    number("live steps/s", "rate", si),
    interval("95 % interval", "rate_low", "rate_high", "rate"),
    Column("per CPU-second", lambda row: on_cpu(row, "cpu_rate", si), "number"),
    number("live share", "live_share", lambda share: f"{significant(100 * share)}{SPACE}%"),
    with_interval(f"port {TIMES}", "ratio", times),
    Column("differences of the task, or why it was not measured", remark, "long"),
)


@table(
    f"The fastest other library of each task at {TARGET_SIZE:,} environments, in its fastest mode, and the port over "
    "it with one step per call. Both ran on the CPU of one machine, in one run; a fused library "
    "draws its actions within the call, the others and the port are given them.",
    *ONE_MACHINE,
    Column("fastest", name),
    Column("how", mode),
    number("its live steps/s", "rate", si),
    number("the port's", "port_rate", si),
    with_interval(f"port {TIMES}", "ratio", times),
    Column("accepted", lambda row: DASH if missing(row["ratio"]) else f"{GREATER} {AIM}{TIMES}", "number"),
    Column("met", lambda row: yes_no(row["met"]), "status"),
)
def peers_fastest(datasets):
    def fastest(run) -> list[dict]:
        found = fastest_peer(run)
        if not found:
            return [{}]
        peer, over = found
        figures = {"ratio": over.ratio, "ratio_low": over.low, "ratio_high": over.high}
        return [peer | figures | {"port_rate": over.ratio * peer["rate"], "met": over.ratio >= AIM}]

    return of_compared(datasets, fastest)


@table(
    f"Other libraries beside the port at {TARGET_SIZE:,} environments under random actions; live share: steps that do "
    f"not merely reset an environment. Port {TIMES}: the port's rate on the same device in the same mode, on the "
    "threads that suit it best, over this one.",
    *RUN,
    Column("library", name, merge=True),
    DEVICE,
    Column("mode", mode),
    *RATES,
    folded=True,
)
def peers(datasets):
    def at_the_size(run) -> pd.DataFrame:
        rows = peer_rates(run)
        return rows[(rows["num_envs"] == TARGET_SIZE) | rows["num_envs"].isna()]

    return of_compared(datasets, at_the_size)


@table(
    "Other libraries beside the port, all batch sizes.",
    *RUN,
    Column("library", name, merge=True),
    DEVICE,
    Column("mode", mode, merge=True),
    text("what runs", "how", kind="long", merge=True),
    number("B", "num_envs", count),
    *RATES,
    folded=True,
)
def peers_sizes(datasets):
    def in_order(run) -> pd.DataFrame:
        rows = peer_rates(run)
        places = {peer: place for place, peer in enumerate(rows["peer"].unique())}
        rows = rows.assign(place=rows["peer"].map(places))
        return rows.sort_values(["place", "device", "mode", "threads", "num_envs"], kind="stable")

    return of_compared(datasets, in_order)
