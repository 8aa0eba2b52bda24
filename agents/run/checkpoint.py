"""Checkpoints: files that hold tensors, numbers and strings only, and that a kill at any moment leaves whole."""

import os
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path

import torch

from lockstep import files

FORMAT = 2  # of the file; another one is refused
MOST = 2**62  # of what is counted: the other half of 63 bits leaves room for any run
PLAIN = (bool, int, float, str, type(None))


def save(path: str | os.PathLike, content: dict) -> None:
    """Writes a checkpoint: into a file beside it, flushed to the disk, then renamed.

    Args:
        path: its folder is made where missing; a file there is replaced in one piece, or on an error kept.
        content: tensors, numbers, strings, booleans, None, and lists, tuples and dicts of them with keys that are
            strings or integers. Tensors are stored as on the CPU, without gradient; of a view only what it shows.

    Raises:
        ValueError: anything else; names its key.
        OSError: the file cannot be written; names it.
    """
    path = Path(path)
    if type(content) is not dict:
        raise ValueError(f"a checkpoint must be a dict, got {type(content).__name__}")
    stored = {"lockstep_checkpoint": FORMAT, "content": _stored(content, "content")}
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with files.replacing(path, "wb") as file:
            torch.save(stored, file)
    except (OSError, RuntimeError) as error:  # torch hides the former behind the latter
        cause = error if isinstance(error, OSError) else error.__context__
        reason = cause.strerror if isinstance(cause, OSError) else error
        kept = "; the checkpoint before it is kept" if path.exists() else ""
        raise OSError(f"{path} cannot be written: {reason}{kept}") from error


def _stored(value, name: str):
    """A copy that `torch.load(weights_only=True)` reads; exact types, for it refuses NumPy's subclass of float."""
    if type(value) in PLAIN:
        return value
    if isinstance(value, torch.Tensor) and value.layout == torch.strided and not value.is_quantized:
        plain = value.detach().cpu()
        whole = plain.untyped_storage().nbytes() == plain.numel() * plain.element_size()
        return plain if whole and type(plain) is torch.Tensor else plain.as_subclass(torch.Tensor).clone()
    if type(value) in (list, tuple):
        return type(value)(_stored(item, f"{name}[{i}]") for i, item in enumerate(value))
    if type(value) is dict:
        for key in value:
            if type(key) not in (str, int):
                raise ValueError(f"{name} has the key {key!r}; a checkpoint's keys are strings or integers")
        return {key: _stored(item, f"{name}[{key!r}]") for key, item in value.items()}
    raise ValueError(
        f"{name} is a {type(value).__module__}.{type(value).__qualname__}; "
        "a checkpoint holds tensors, numbers, strings, booleans, None, lists, tuples and dicts"
    )


def load(path: str | os.PathLike) -> dict:
    """The content that `save` was given, with all tensors on the CPU.

    Raises:
        ValueError: no such file, or one that is damaged, foreign or of another format.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"checkpoint {path}: there is no such file")
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()  # torch itself does not look at the checksums
        if damaged is None:
            stored = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # bytes that are no checkpoint can fail in any way
        raise ValueError(f"checkpoint {path}: not a whole checkpoint; the file is damaged or something else") from error
    if damaged is not None:
        raise ValueError(f"checkpoint {path}: the file is damaged, in {damaged}; its checksum is wrong")
    if not isinstance(stored, dict) or "lockstep_checkpoint" not in stored or "content" not in stored:
        raise ValueError(f"checkpoint {path}: a file of torch, but no checkpoint of this code")
    if stored["lockstep_checkpoint"] != FORMAT:
        raise ValueError(f"checkpoint {path}: has format {stored['lockstep_checkpoint']!r}; this code reads {FORMAT}")
    return stored["content"]


def of_run(path: str | os.PathLike, algorithm: str) -> dict:
    """A checkpoint that `training.train` wrote: a dict with config, states (one for each process) and wall_s.

    Raises:
        ValueError: as `load`, one of these is missing or of another kind, or it is of another algorithm; names file and
            key.
    """
    content = load(path)
    kinds = {"algorithm": (str, "a name"), "config": (dict, "a dict"), "states": (list, "a list")}
    kinds |= {"wall_s": (float, "a number of seconds")}
    for key, (kind, words) in kinds.items():
        if not isinstance(content, dict) or key not in content:
            raise ValueError(f"checkpoint {path}: has no {key!r}, so it is not of a run")
        if not isinstance(content[key], kind):
            raise ValueError(f"checkpoint {path}: {key!r} must be {words}, is {type(content[key]).__name__}")
    if content["algorithm"] != algorithm:
        raise ValueError(f"checkpoint {path}: is of {content['algorithm']}, not of {algorithm}")
    if not isinstance(content["config"].get("environment"), str):
        raise ValueError(f"checkpoint {path}: 'config' names no 'environment'")
    if not content["states"] or not all(isinstance(state, dict) for state in content["states"]):
        raise ValueError(f"checkpoint {path}: 'states' must hold a dict for each process")
    return content


def require_like(state: Mapping, like: Mapping, name: str = "state") -> None:
    """Raises ValueError that names the first key of `like` that `state` lacks or has in another kind or shape."""
    for key, own in like.items():
        if key not in state:
            raise ValueError(f"{name} has no {key!r}")
        found, place = state[key], f"{name}[{key!r}]"
        if not isinstance(found, type(own)):
            raise ValueError(f"{place} must be a {type(own).__name__}, is a {type(found).__name__}")
        if isinstance(own, Mapping):
            require_like(found, own, place)
        elif isinstance(own, torch.Tensor) and found.shape != own.shape:
            raise ValueError(f"{place} must have the shape {list(own.shape)}, has {list(found.shape)}")


def require_finite(state: Mapping, like: Mapping, name: str = "state") -> None:
    """Raises ValueError that names the first tensor of `like` that is not finite in `state`."""
    for key, own in like.items():
        place = f"{name}[{key!r}]"
        if isinstance(own, Mapping):
            require_finite(state[key], own, place)
        elif not state[key].isfinite().all():
            raise ValueError(f"{place} must be finite")


def require_countable(state: Mapping, like: Mapping, name: str = "state") -> None:
    """Raises ValueError that names the first int64 tensor of `like` with a number in `state` that counting could wrap.

    All of these count or choose; the least of them, -1, stands for never.
    """
    for key, own in like.items():
        place = f"{name}[{key!r}]"
        if isinstance(own, Mapping):
            require_countable(state[key], own, place)
        elif isinstance(own, torch.Tensor) and own.dtype == torch.int64:
            wrong = (state[key] < -1) | (state[key] > MOST)
            if wrong.any():
                raise ValueError(f"{place} holds {state[key][wrong][0].item()}, must be in -1 .. {MOST}")


def differences(saved: Mapping, config: Mapping, may_differ: Collection[str] = ()) -> list[str]:
    """One sentence for each field in which two configurations differ, in the order of `config`.

    Args:
        saved, config: plain values by field; a list equals a tuple of the same items.
        may_differ: fields to pass over.
    """
    sentences = []
    for field in [*config, *(name for name in saved if name not in config)]:
        if field in may_differ:
            continue
        if field not in saved:
            sentences.append(f"{field} is {config[field]!r} here and absent in the checkpoint")
        elif field not in config:
            sentences.append(f"{field} is {saved[field]!r} in the checkpoint and unknown here")
        elif _listed(saved[field]) != _listed(config[field]):
            sentences.append(f"{field} is {saved[field]!r} in the checkpoint and {config[field]!r} here")
    return sentences


def _listed(value):
    return [_listed(item) for item in value] if isinstance(value, list | tuple) else value


def require_same(saved: Mapping, config: Mapping, may_differ: Collection[str] = ()) -> None:
    """Raises ValueError that lists the `differences`, if there are any."""
    sentences = differences(saved, config, may_differ)
    if sentences:
        allowed = f"; only {', '.join(may_differ)} may differ" if may_differ else ""
        raise ValueError(f"the checkpoint belongs to another configuration: {'; '.join(sentences)}{allowed}")
