"""Parts of an observation, where an environment names them: an agent's own numbers, and groups of equal objects.

A port says it in a file `observation.yaml` beside its `port.py`, an environment of one's own by `observation_parts`.

Axes: N rows, n components of an observation, s slots of a part.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from lockstep import envs
from lockstep.reading import nearest, read_yaml

FILE = "observation.yaml"


@dataclass(frozen=True)
class Part:
    """Numbers that stand together in an observation: an agent's own, or those of one slot after the other.

    Args:
        scale: of each number, or of each of a slot's, by which it is divided to be about 1 at most.
        slots: how many objects there is room for; 0: the numbers are the agent's own.
        flagged: behind all parts stands a flag for each slot, above 1/2 where it holds an object. Without flags a slot
            is empty where all its numbers are 0.
        apart: where a slot's first two numbers are the way to its object, what is taken from that distance to have the
            gap between both; None: there is no such way.
        radius: the number of a slot, counted from 0, that is the radius of its object, and is taken from it too.

    Raises:
        ValueError: names a field, its value and what is allowed.
    """

    scale: tuple[float, ...]
    slots: int = 0
    flagged: bool = False
    apart: float | None = None
    radius: int | None = None

    def __post_init__(self):
        if not self.scale or not all(one > 0 for one in self.scale):
            raise ValueError(f"scale={self.scale!r} must be numbers above 0, one at least")
        if self.slots < 0:
            raise ValueError(f"slots={self.slots} must be at least 0")
        if not self.slots and (self.flagged or self.apart is not None):
            raise ValueError("flagged and apart are of objects, so slots must be at least 1")
        if self.apart is not None and len(self.scale) < 2:
            raise ValueError(f"apart={self.apart} needs slots of two numbers at least, the way to an object")
        if self.radius is not None and (self.apart is None or not 0 <= self.radius < len(self.scale)):
            raise ValueError(f"radius={self.radius} must be a number of a slot from which apart leaves a gap")

    @property
    def numbers(self) -> int:
        """Numbers of all its slots, without flags."""
        return max(self.slots, 1) * len(self.scale)

    @property
    def flags(self) -> int:
        return self.slots if self.flagged else 0


def parts_of(env) -> tuple[Part, ...]:
    """The parts of an environment's observations in their order; none where it does not say.

    Raises:
        ValueError: they are no parts, or do not add up to an observation; names what is wrong.
    """
    where, found = f"{type(env).__name__}.observation_parts", getattr(env, "observation_parts", ())
    if not found and isinstance(env, envs.BatchedEnv) and env.name in envs.names():
        where = f"{env.name}/{FILE}"
        found = _read(envs.folder(env.name) / FILE, where, env.params)
    if not all(isinstance(part, Part) for part in found):
        raise ValueError(f"{where} must be a sequence of Part, not {found!r:.60}")
    n, given = env.single_observation_space.shape[-1], sum(part.numbers + part.flags for part in found)
    if found and given != n:
        raise ValueError(f"{where} has {given} numbers and flags; an observation has {n}")
    return tuple(found)


def _read(file, name: str, params) -> list[Part]:
    """The parts in a file: by their names, or under a parameter's name those for each of its values."""
    if not file.is_file():
        return []
    content = read_yaml(file, name)
    if not isinstance(content, Mapping):
        raise ValueError(f"{name}: {content!r:.60} must be parts by name")
    for key in [key for key in content if hasattr(params, key)]:
        content = content[key].get(getattr(params, key), {})
    known, found = [field.name for field in dataclasses.fields(Part)], []
    for part, fields in content.items():
        if not isinstance(fields, Mapping):
            raise ValueError(f"{name}: {part}: {fields!r:.60} must be values by name, of {', '.join(known)}")
        for key in fields:
            if key not in known:
                raise ValueError(f"{name}: {part}: unknown key {key!r}{nearest(key, known)}")
        try:
            found.append(Part(**{**fields, "scale": tuple(map(float, fields.get("scale", ())))}))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name}: {part}: {error}") from error
    return found


def split(parts: Sequence[Part], obs: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
    """Each part's numbers [N, s, *] in observations [N, n], and which slots hold an object, bool [N, s].

    An agent's own numbers are [N, 1, *], without such flags.
    """
    at, flag, found = 0, sum(part.numbers for part in parts), []
    for part in parts:
        numbers, held = obs[:, at : at + part.numbers].unflatten(1, (-1, len(part.scale))), None
        if part.flagged:
            held = obs[:, flag : flag + part.slots] > 0.5
        elif part.slots:
            held = (numbers != 0).any(dim=2)
        found.append((numbers, held))
        at, flag = at + part.numbers, flag + part.flags
    return found


def gap(parts: Sequence[Part], obs: torch.Tensor) -> torch.Tensor:
    """The smallest gap [N] between agents and what they see, by observations [N, n]; infinite where that is nothing."""
    gaps = []
    for part, (numbers, held) in zip(parts, split(parts, obs), strict=True):
        if part.apart is not None:
            away = numbers[..., :2].square().sum(dim=2).sqrt() - part.apart
            away = away if part.radius is None else away - numbers[..., part.radius]
            gaps.append(torch.where(held, away, torch.inf))
    return torch.cat(gaps, dim=1).amin(dim=1)
