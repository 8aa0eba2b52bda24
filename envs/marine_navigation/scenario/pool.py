"""Scenarios that a user hands over, of which environment b plays number (b + episode) mod N."""

from pathlib import Path

from ..params import Params
from .file import load
from .scenario import Scenario


def pool_of(given, params: Params, field: str = "scenario") -> list[Scenario]:
    """The scenarios of a `Scenario`, a path of a scenario file, or a list or tuple of them.

    Args:
        field: what the caller calls them.

    Raises:
        ValueError: nothing, something else, a file that is none, or a scenario that the parameters do not fit; names
            its number, or file and number in that, and what is allowed.
    """
    many, found = list(given) if isinstance(given, list | tuple) else [given], []
    if not many:
        raise ValueError(f"{field}=[] must hold at least one")
    for one in many:
        if isinstance(one, str | Path):
            found += ((f"{one}: scenario {number}", scene) for number, scene in enumerate(load(one)))
        elif isinstance(one, Scenario):
            found.append((f"scenario {len(found)}", one))
        else:
            raise ValueError(f"{field}={one!r:.60} must be a Scenario, a path of a scenario file, or a list of them")
    checked = set()
    for where, one in found:
        if id(one) not in checked:
            one.check(params, where)
            checked.add(id(one))
    return [one for _, one in found]
