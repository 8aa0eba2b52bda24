"""The paper as a reader sees it: rows of a table by heading, findings of a quantity."""

from lockstep.paper import quantities, tables


def seen(name, datasets):
    """The rows of a table, as dicts by heading."""
    about = tables.every()[name]
    columns, rows = about.seen(about.frame(datasets))
    return [dict(zip([column.heading for column in columns], row, strict=True)) for row in rows]


def find(datasets, quantity, against=None, **select):
    return quantities.find(datasets, {"quantity": quantity, "select": select, "against": against})
