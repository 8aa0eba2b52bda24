"""Of the harbour."""

from lockstep.paper.quantities import every, quantity, rate_words


@quantity(rate_words("ferries/s"))
def ferry_rate(datasets, select, against):
    """Steps of single ferries per second, of which an environment has two."""
    for dataset, *figures in every()["rate"][0](datasets, select, against):
        yield dataset, *(2 * figure for figure in figures)
