"""The paper as a reader sees it: rows of a table by heading, findings of a quantity."""

from lockstep.paper import quantities, tables
from lockstep.paper.typeset import DASH


def seen(name, datasets):
    """The rows of a table, as dicts by heading, with a dash in columns that were left out."""
    about = tables.every()[name]
    columns, rows = about.seen(about.frame(datasets))
    none = {column.heading: DASH for column in about.columns}
    return [none | dict(zip([column.heading for column in columns], row, strict=True)) for row in rows]


def find(datasets, quantity, against=None, **select):
    return quantities.find(datasets, {"quantity": quantity, "select": select, "against": against})
