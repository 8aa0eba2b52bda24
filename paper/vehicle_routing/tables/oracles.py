"""Oracles beside PyVRP, and what neighbours in a batch change."""

from lockstep.paper.tables import REMARK, RUN, of_asked, table
from lockstep.paper.typeset import count, number, percent, text, with_interval, yes_no
from lockstep.paper.vehicle_routing import summaries


@table(
    "Costs of oracles for the first requests of a day, none shifted, and by how much they lie above those of PyVRP at "
    "its longest, with 95 % bootstrap intervals over days. The attention model's weights are those that ship.",
    *RUN,
    text("oracle", "oracle", lambda word: summaries.look(word)[0], merge=True),
    number("requests", "requests", count),
    number("days", "problems", count),
    number("cost, min", "cost_min"),
    with_interval("over PyVRP", "gap", percent),
    number("vehicles", "vehicles"),
    REMARK,
    empty="No oracles have been compared.",
    folded=True,
)
def routing_oracles(datasets):
    return of_asked(datasets, "oracles", summaries.gaps)


@table(
    "Costs of the learned oracle in batches of the same problems in another order, under the preset that is like the "
    "published code and with the weights trained here under its masks: the share that changes, with Wilson's interval, "
    "and by how much, on average and at most.",
    *RUN,
    text("weights", "oracle", merge=True),
    text("statistics of the batch", "batch_statistics", yes_no),
    number("batch", "batch", count),
    number("problems", "problems", count),
    with_interval("costs that change", "changed", percent),
    number("mean change, min", "change_min"),
    number("largest, min", "most_min"),
    REMARK,
    empty="No neighbours have been exchanged.",
    folded=True,
)
def routing_neighbours(datasets):
    return of_asked(datasets, "oracles", summaries.among_others)
