"""Routing oracles: what a set of requests costs, and by which walk (README.md, 5).

An oracle is a class of `problem.Oracle`; an entry in `KINDS` makes it known by name.
"""

import numpy as np

from lockstep.reading import nearest

from ..params import Params
from .attention import Attention, AttentionFirsts, AttentionSamples, weights
from .brute import Brute
from .greedy import Greedy
from .insertion import Insertion
from .problem import Answer, Oracle, Problem, problem_of
from .reference import ORTools, PyVRP

KINDS = (Attention, AttentionSamples, AttentionFirsts, Greedy, Insertion, Brute, PyVRP, ORTools)
ORACLES: dict[str, type[Oracle]] = {kind.name: kind for kind in KINDS}

__all__ = ["ORACLES", "Answer", "Oracle", "Problem", "best_known", "make_oracle", "problem_of"]


def best_known(params: Params, travel: np.ndarray) -> str:
    """The word of an oracle that is good and fast.

    The learned one where its weights are of the city [Z, Z] ticks, mode and vehicles, and of as many requests or more;
    or else insertion, or with `max_ride` a greedy one. With `full_size_only` the weights know whole days alone.
    """
    if not params.full_size_only and weights.serve(weights.default(params), params, travel):
        return Attention.name
    return Greedy.name if params.max_ride else Insertion.name


def make_oracle(word: str, params: Params, travel: np.ndarray) -> Oracle:
    """The oracle of a word: a name, or a name and its argument, such as "greedy:nearest" or "pyvrp:0.5".

    Args:
        travel: [Z, Z] ticks.

    Raises:
        ValueError: an unknown name or argument (the nearest known one is given), or parameters that it does not serve.
        ImportError: PyVRP or OR-Tools is not installed; names the extra.
    """
    if not isinstance(params, Params):
        raise ValueError(f"params={params!r:.60} must be Params")
    name, colon, argument = str(word).partition(":")
    if not isinstance(word, str) or name not in ORACLES:
        raise ValueError(f"oracle={word!r} is unknown{nearest(name, ORACLES)}")
    return ORACLES[name](params, travel, argument if colon else None)
