"""Parameters of a family: bounds of single fields, and presets with single fields replaced."""

from collections.abc import Iterable, Mapping
from dataclasses import fields

from lockstep.reading import nearest

from .batch.port import checked_constant


def bounded(spec, value):
    """The value of a parameter, of its type and within the bounds of its metadata: "least", "most", "below".

    Args:
        spec: the parameter's `dataclasses.Field`.

    Raises:
        ValueError: names the parameter, the value and what is allowed.
    """
    value, allowed = checked_constant(spec.name, value, spec), spec.metadata
    if "least" in allowed and value < allowed["least"]:
        raise ValueError(f"{spec.name}={value} must be at least {allowed['least']}")
    if "most" in allowed and value > allowed["most"]:
        raise ValueError(f"{spec.name}={value} must be at most {allowed['most']}")
    if "below" in allowed and value >= allowed["below"]:
        raise ValueError(f"{spec.name}={value} must be less than {allowed['below']}")
    return value


def of_preset(title: str, kind, presets: Mapping[str, dict], preset: str | None, chosen: dict, options: Iterable[str]):
    """Parameters of a preset with single ones replaced.

    Args:
        title: of the family, for errors.
        kind: their dataclass.
        presets: fields that differ from the dataclass's defaults; the first is that of None.
        options: further names, which an error knows.

    Raises:
        ValueError: an unknown preset or parameter (the nearest known name is given), or what the dataclass refuses.
    """
    if preset not in (None, *presets):
        raise ValueError(f"preset={preset!r} is unknown{nearest(preset, presets)}")
    known = [spec.name for spec in fields(kind)]
    for name in chosen:
        if name not in known:
            raise ValueError(f"{title} has no parameter or option {name!r}{nearest(name, [*options, *known])}")
    return kind(**presets[preset or next(iter(presets))] | chosen)
