"""Checks of sameness."""

from lockstep.paper import quantities
from lockstep.paper.common.quantities.correctness import cases, divergence
from lockstep.paper.tables import ONE_MACHINE, RUN, of_runs, table
from lockstep.paper.typeset import DASH, LESS, Column, count, missing, number, percent, significant, text, yes_no

STEP = {"experiment": "correctness", "level": "transition", "pair": "original-port"}


@table(
    "What was verified of each environment on each machine: comparisons that hold at each level, and the largest "
    "difference of one step as a share of its tolerance. Apart at step: where rounding errors "
    "grow, the step at which a replayed episode leaves the original's (median, 5 and 95 % of episodes); a dash: most "
    "episodes never do.",
    *ONE_MACHINE,
    number("states compared", "cases", count),
    number("difference / tolerance", "share", percent),
    Column("one step", lambda row: held(row, "transition_"), "number"),
    Column("whole episodes", lambda row: held(row, "episode_"), "number"),
    Column("distributions", lambda row: held(row, "distribution_"), "number"),
    Column("apart at step", lambda row: parting(row), "number"),
    Column("all hold", lambda row: yes_no(row["passed"]), "status"),
)
def agreement(datasets):
    def one_line(run) -> list[dict]:
        steps = run.frame[run.frame["level"] == "transition"]
        found: dict = {"share": (steps["error"] / steps["tolerance"]).max()}
        for _, compared, *_ in cases([run], STEP, None):
            found["cases"] = compared
        for level in ("transition", "episode", "distribution"):
            judged = quantities.judged(run.frame[run.frame["level"] == level])
            found |= {f"{level}_held": int(judged.sum()), f"{level}_checks": len(judged)}
        for _, *parts in divergence([run], {"experiment": "correctness"}, None):
            found |= dict(zip(("apart", "apart_low", "apart_high"), parts, strict=True))
        return [found | {"passed": bool(quantities.judged(run.frame).all())}]

    return of_runs(datasets, "correctness", one_line, by_machine=True)


def parting(row) -> str:
    """The first step apart: median, and the range of most episodes."""
    if missing(row["apart"]):
        return DASH
    return f"{count(row['apart'])} ({count(row['apart_low'])} {DASH} {count(row['apart_high'])})"


@table(
    "Comparisons at the three levels. The largest difference is that of the quantity that comes closest to its "
    "tolerance.",
    *RUN,
    text("level", "level", merge=True),
    text("pair", "pair"),
    Column("on", lambda row: DASH if missing(row["device"]) else f"{row['device']}, {row['dtype']}"),
    number("cases", "cases", count),
    text("quantity", "quantity"),
    number("largest difference", "error"),
    number("tolerance", "tolerance"),
    Column("differing (allowed)", lambda row: differing(row), "number"),
    number("smallest p", "p_value"),
    Column("checks held", lambda row: held(row), "number"),
    folded=True,
)
def correctness(datasets):
    def summed_up(run) -> list[dict]:
        rows = []
        for key, group in run.frame.groupby(["level", "pair", "device", "dtype"], sort=False, dropna=False):
            share = (group["error"] / group["tolerance"]).dropna()
            worst = group.loc[share.idxmax()] if len(share) else {}
            judged = quantities.judged(group)
            rows.append(
                dict(zip(["level", "pair", "device", "dtype"], key, strict=True))
                | {name: worst.get(name) for name in ("quantity", "error", "tolerance")}
                | {name: group[name].sum(min_count=1) for name in ("differing", "allowed")}
                | {"cases": group["cases"].max(), "p_value": group["p_value"].min()}
                | {"held": int(judged.sum()), "checks": len(judged)}
            )
        return rows

    return of_runs(datasets, "correctness", summed_up)


def differing(row) -> str:
    return DASH if missing(row["differing"]) else f"{count(row['differing'])} ({count(row['allowed'])})"


def held(row, level: str = "") -> str:
    """Checks that hold out of those judged; of one level where its prefix is given."""
    checks = row[f"{level}checks"]
    return DASH if missing(checks) or checks == 0 else f"{count(row[f'{level}held'])} of {count(checks)}"


@table(
    "Every comparison of a port with its original.",
    *RUN,
    text("level", "level", merge=True),
    text("pair", "pair", merge=True),
    text("device", "device", merge=True),
    text("type", "dtype", merge=True),
    text("quantity", "quantity", kind="long"),
    number("cases", "cases", count),
    Column("found", lambda row: found_difference(row), "number"),
    Column("allowed", lambda row: allowed_difference(row), "number"),
    Column("holds", lambda row: yes_no(row["passed"]), "status"),
    folded=True,
)
def correctness_checks(datasets):
    return of_runs(datasets, "correctness", lambda run: run.frame)


def found_difference(row) -> str:
    """A difference, a count, or a value with its interval, and the p-value of equal distributions."""
    if not missing(row["error"]):
        return significant(row["error"])
    if not missing(row["differing"]):
        return count(row["differing"])
    parts = [] if missing(row["value"]) else [significant(row["value"])]
    parts += [] if missing(row["low"]) else [f"[{significant(row['low'])}, {significant(row['high'])}]"]
    parts += [] if missing(row["p_value"]) else [f"p = {significant(row['p_value'], 2)}"]
    return ", ".join(parts) or DASH


def allowed_difference(row) -> str:
    if not missing(row["error"]):
        return DASH if missing(row["tolerance"]) else f"{LESS} {significant(row['tolerance'])}"
    if not missing(row["differing"]):
        return DASH if missing(row["allowed"]) else f"{LESS} {count(row['allowed'])}"
    return DASH if missing(row["low"]) or missing(row["passed"]) else "contains 0"
