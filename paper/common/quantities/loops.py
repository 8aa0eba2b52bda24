"""Of other libraries, and of loops that copy between host and device."""

from collections.abc import Iterator, Mapping

import pandas as pd

from lockstep.experiments import peers, shares
from lockstep.paper import once, typeset
from lockstep.paper.quantities import NAN, alone, extreme, matching, of, quantity, with_interval


@once
def peer_rates(run) -> pd.DataFrame:
    """peers.summary of a run."""
    return peers.summary(run.frame)


@once
def fastest_peer(run) -> tuple | None:
    """peers.against_the_fastest of a run, on the CPU."""
    return peers.against_the_fastest(run.frame)


@once
def shares_of(run) -> pd.DataFrame:
    """shares.transfer_summary of a run."""
    return shares.transfer_summary(run.frame)


@quantity(with_interval(typeset.times))
def peer_ratio(datasets, select, against):
    """The port's rate over that of a peer on the same device in the same mode, one run; of several over the fastest."""
    return extreme(datasets, select, peer_rates, "ratio", "min")


@quantity(with_interval(typeset.times))
def fastest_peer_ratio(datasets, select, against):
    """The port's rate, one step per call, over that of the fastest peer on the CPU, whatever its mode."""
    for dataset in of(datasets, select):
        if found := fastest_peer(dataset):
            yield dataset, found[1].ratio, found[1].low, found[1].high


def of_loops(datasets: list, select: Mapping, column: str) -> Iterator[tuple]:
    """(dataset, the row with the largest figure in a column) for every run of transfer that has one."""
    for dataset in of(datasets, select):
        rows = matching(shares_of(dataset), select).dropna(subset=[column])
        if len(rows):
            yield dataset, rows.loc[rows[column].idxmax()]


@quantity(with_interval(typeset.percent))
def transfer_share(datasets, select, against):
    """Copies in the sum of a loop's parts; of several environments' forms the largest."""
    for dataset, row in of_loops(datasets, select, "share"):
        yield dataset, row["share"], row["share_low"], row["share_high"]


@quantity(with_interval(typeset.percent))
def copies_over_step(datasets, select, against):
    """Copies timed apart over a step timed apart; of several environments' forms the largest."""
    for dataset, row in of_loops(datasets, select, "over_step"):
        yield dataset, row["over_step"], NAN, NAN


@quantity(alone("{:g}".format))
def step_copies(datasets, select, against):
    """Copies between host and device in a step of the whole batch; of several settings the most."""
    for dataset, row in of_loops(datasets, select, "copies"):
        yield dataset, row["copies"], NAN, NAN
