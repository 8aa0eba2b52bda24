"""Weights of the attention model: half-precision `<name>.npz`, and `<name>.json` beside it with where they are from."""

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import torch

from lockstep import files
from lockstep.reading import nearest

from .... import reading
from ...params import Params, make_params
from .network import Network, shape_of

FOLDER = Path(__file__).resolve().parents[2] / "weights"


def shipped() -> list[str]:
    """Names of the weights that come with the environment."""
    return sorted(path.stem for path in FOLDER.glob("*.npz"))


def city_hash(travel: np.ndarray) -> str:
    """SHA-256 of travel times [Z, Z] in ticks."""
    return hashlib.sha256(np.ascontiguousarray(travel, dtype="<i4").tobytes()).hexdigest()


def save(network: Network, path: Path, travel: np.ndarray, **provenance) -> dict:
    """Writes weights and what is known of them; returns the latter."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {name: array.numpy().astype(np.float16) for name, array in network.state_dict().items()}
    with files.replacing(path.with_suffix(".npz"), "wb") as file:
        np.savez_compressed(file, **arrays)
    known = {
        "shape": vars(network.shape),
        "mode": network.params.mode,
        "zones": len(travel),
        "city_sha256": city_hash(travel),
    }
    known |= {**provenance, "sha256": digest(known, path.with_suffix(".npz").read_bytes())}
    note(path, known)
    return known


def note(path: Path, known: dict):
    """Writes what is known of weights."""
    with files.replacing(path.with_suffix(".json")) as file:
        file.write(json.dumps(known, indent=2) + "\n")


def told(path: Path):
    """The object that the JSON of weights holds; ValueError where it cannot be read."""
    text = path.with_suffix(".json")
    return reading.parsed(reading.content(text), text)


def digest(known: dict, content: bytes) -> str:
    """SHA-256 of the bytes of weights, and of what their JSON says of how they are to be read."""
    facts = [known[name] for name in ("shape", "mode", "zones", "city_sha256")]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode() + content).hexdigest()


def default(params: Params) -> str:
    """The name of the weights that parameters ask for."""
    return "published" if params.full_size_only else "small"


def serve(word: str, params: Params, travel: np.ndarray) -> bool:
    """True if there are such weights, of this city, trained for such vehicles and on as many requests or more."""
    try:
        known = told(path_of(word))
    except ValueError:
        return False
    trained = make_params(known["config"]["preset"])
    alike = all(found == expected for _, found, expected in of_city(known, params, travel))
    alike = alike and all(getattr(params, name) == getattr(trained, name) for name in ("capacity", "horizon", "fleet"))
    return alike and params.requests <= known["config"]["requests"]


def of_city(known: dict, params: Params, travel: np.ndarray) -> list[tuple]:
    """Facts that must be equal of weights and a city: name, of the weights, of the city."""
    facts = [("mode", known["mode"], params.mode)]
    if known["shape"]["features"] == "row":
        facts += [("number of zones", known["zones"], len(travel)), ("city", known["city_sha256"], city_hash(travel))]
    return facts


def path_of(word: str) -> Path:
    """The path of weights: the shipped ones of a name, or a file's.

    Raises:
        ValueError: there are none; the nearest shipped name is given.
    """
    if not Path(word).name:
        raise ValueError(f"weights={word!r} must be a name or the path of a file{nearest(word, shipped())}")
    named = Path(word).name == word and not word.endswith(".npz")
    path = FOLDER / f"{word}.npz" if named else Path(word).with_suffix(".npz")
    for file in (path, path.with_suffix(".json")):
        if not os.path.isfile(file):  # false of a path that there cannot be, too
            raise ValueError(f"weights={word!r:.60}: there is no {file.name:.60}{nearest(word, shipped())}")
    return path


def load(word: str, params: Params, travel: np.ndarray) -> Network:
    """The network of weights, in float32.

    Args:
        word: name of shipped weights, or a path.

    Raises:
        ValueError: no such weights, or weights of another city, size, mode or hash; names found and expected.
    """
    path = path_of(word)
    try:
        content, known = reading.content(path), told(path)
        shape, facts = shape_of(known["shape"]), of_city(known, params, travel)
        facts.insert(0, ("SHA-256", digest(known, content), known["sha256"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"weights={word!r}: {path.stem}.json is not what training writes: {error!r}") from None
    for what, found, expected in facts:
        if found != expected:
            raise ValueError(
                f"weights={word!r}: {what} is {found}, expected {expected}; name other weights, or oracle='insertion'"
            )
    with torch.device("cpu"):  # whatever the default is
        network = Network(shape, params, travel)
    expected = {name: tuple(part.shape) for name, part in network.state_dict().items()}
    arrays = reading.arrays(content, path)
    found = {name: array.shape for name, array in arrays.items()}
    if found != expected:
        wrong = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
        raise ValueError(
            f"weights={word!r}: {wrong[0]} has shape {found.get(wrong[0])}, expected {expected.get(wrong[0])}"
        )
    for name, array in arrays.items():
        if array.dtype.kind != "f" or not (np.abs(array) <= np.finfo(np.float32).max).all():
            raise ValueError(f"weights={word!r}: {name} of {path.name} must be finite numbers of float32")
    network.load_state_dict({name: torch.from_numpy(array.astype(np.float32)) for name, array in arrays.items()})
    return network.eval()
