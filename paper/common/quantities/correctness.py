"""Of correctness and compilation."""

import pandas as pd

from lockstep import paper
from lockstep.paper import typeset
from lockstep.paper.quantities import NAN, alone, judged, matching, of, out_of, quantity


@quantity(alone(typeset.percent))
def tolerance_share(datasets, select, against):
    """Largest difference over its tolerance, over all fitting rows that have one."""
    for dataset in of(datasets, select):
        rows = matching(dataset.frame, select)
        share = (rows["error"] / rows["tolerance"]).dropna()
        if len(share):
            yield dataset, float(share.max()), NAN, NAN


@quantity(alone(typeset.significant))
def largest_difference(datasets, select, against):
    """Largest difference over all fitting rows that have a tolerance."""
    for dataset in of(datasets, select):
        errors = matching(differences(dataset), select)["error"]
        if len(errors):
            yield dataset, float(errors.max()), NAN, NAN


@quantity(alone(typeset.count))
def cases(datasets, select, against):
    """Cases compared, over all regions and without variants, of the pair, device and type that has the fewest."""
    for dataset in of(datasets, select):
        rows = matching(dataset.frame, select)
        rows = rows[~rows["quantity"].str.contains("=")]  # (g=9.81) is a variant, (slow) a region
        if len(rows):
            about = rows.assign(of=rows["quantity"].str.replace(r" \(.*\)$", "", regex=True))
            compared = about.groupby(["pair", "device", "dtype", "of"])["cases"].sum()
            yield dataset, float(compared.groupby(["pair", "device", "dtype"]).max().min()), NAN, NAN


@quantity(out_of)
def checks_held(datasets, select, against):
    """Checks that hold; `high` is their number."""
    for dataset in of(datasets, select):
        held = judged(matching(dataset.frame, select))
        if len(held):
            yield dataset, float(held.sum()), NAN, float(len(held))


@quantity(alone(typeset.count))
def checks_told(datasets, select, against):
    """Rows that only report something, where there are any."""
    for dataset in of(datasets, select):
        told = matching(dataset.frame, select)["passed"].isna().sum()
        if told:
            yield dataset, float(told), NAN, NAN


def divergence_words(value: float, low: float, high: float) -> tuple[str, str]:
    interval = f"{typeset.count(low)} {typeset.DASH} {typeset.count(high)}"
    return f"at step {typeset.count(value)} in the median (5{typeset.DASH}95{typeset.SPACE}%: {interval})", interval


@quantity(divergence_words)
def divergence(datasets, select, against):
    """First step at which a replayed episode is apart from the original's: median, 5 % and 95 % of episodes.

    Of several pairs, devices and types the one that parts first.
    """
    for dataset in of(datasets, select):
        rows = matching(dataset.frame, {**select, "level": "episode"})
        rows = rows[rows["quantity"].str.startswith("first step more than")]
        if len(rows):
            yield dataset, *rows.sort_values("value").iloc[0][["value", "low", "high"]].astype(float)


@quantity(out_of)
def environments_held(datasets, select, against):
    """Environments of a machine whose every check holds; `high` is how many were checked there."""
    found: dict[str, list] = {}
    for dataset in of(datasets, select):
        found.setdefault(paper.machine(dataset), []).append(dataset)
    for checked in found.values():
        held = sum(judged(dataset.frame).all() for dataset in checked)
        yield checked[0], float(held), NAN, float(len(checked))


@quantity(alone(typeset.count))
def spilled_bytes(datasets, select, against):
    """Bytes of registers spilled, stores and loads, over all fitting kernels and targets."""
    for dataset in of(datasets, select):
        rows = matching(dataset.frame, select)
        if len(rows):
            yield dataset, float(rows[["spill_store_bytes", "spill_load_bytes"]].to_numpy().sum()), NAN, NAN


def differences(run) -> pd.DataFrame:
    """The rows of a correctness run that have an error under a tolerance, whatever their level."""
    return run.frame[run.frame["error"].notna() & (run.frame["tolerance"] > 0)]
