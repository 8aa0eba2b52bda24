"""Scenario files (README.md, 4.1): `<name>.npz` holds the arrays, `<name>.json` the rest and the SHA-256 of both."""

import numbers

import numpy as np

from lockstep.reading import nearest

from ... import pair
from ...checks import integer
from ..params import LEAST, MOST, MOST_OF_A_TASK, MOST_TASKS, Params, limits, running_shapes

VERSION = 2
RUNNING = "running_"  # prefix of the running scales' names
POSITIVE = ("client_cpu", "client_power", "server_cpu", "edge_cpu")  # divisors
NOT_NEGATIVE = (
    "edge_range", "task_count", "task_size", "task_cycles", "task_rate", "task_mean", "task_deadline", "fading_v2v",
    "fading_v2i",
)  # fmt: skip
OF_A_TASK = ("task_size", "task_cycles")  # positive where there is one
MOST_OF = {"task_count": MOST_TASKS} | dict.fromkeys((*OF_A_TASK, "task_rate", "task_mean"), MOST_OF_A_TASK)
STRONGEST = 1e32  # a signal over the noise: float32 holds the sum of all clients'
FLAGS = ("active_client", "active_server")
FIELDS = ("version", "name", "source", "index", "seed", "mean_density", "preset", "params", "calibration", "sha256_npz")


def shapes(params: Params) -> dict[str, tuple[int, ...]]:
    """Shape of every array of a scenario."""
    T, Nc, Ns, Ne, J = params.slots, params.clients, params.servers, params.edges, params.tasks
    per_task = (T, Nc, J)
    return {
        "client_cpu": (Nc,),
        "client_power": (Nc,),
        "server_cpu": (Ns,),
        "edge_xy": (Ne, 2),
        "edge_cpu": (Ne,),
        "edge_range": (Ne,),
        "cloud_xy": (2,),
        "xy_client": (T, Nc, 2),
        "xy_server": (T, Ns, 2),
        "active_client": (T, Nc),
        "active_server": (T, Ns),
        "task_count": (T, Nc),
        "task_size": per_task,
        "task_cycles": per_task,
        "task_rate": per_task,
        "task_mean": per_task,
        "task_deadline": per_task,
        "fading_v2v": (T, Nc, Ns),
        "fading_v2i": (T, Nc, Ne),
        "pca_v2v_mean": (Nc * Ns,),
        "pca_v2v": (params.components, Nc * Ns),
        "pca_v2i_mean": (Nc * Ne,),
        "pca_v2i": (params.components, Nc * Ne),
    }


def dtype(name: str) -> type:
    return bool if name in FLAGS else np.int32 if name == "task_count" else np.float64


def write(path, arrays: dict[str, np.ndarray], header: dict):
    """Writes both files of `path`, a path without suffix or with either; ValueError where they cannot be."""
    pair.write(path, arrays, {"version": VERSION} | header)


def read(path) -> tuple[dict[str, np.ndarray], dict]:
    """Arrays and header of a path without suffix, with either suffix too.

    Raises:
        ValueError: the file is not what was written, or not of this version; names what is wrong in it.
    """
    text, _ = pair.paths(path)
    arrays, header = pair.read(path, {"version": VERSION})
    for name in header:
        if name not in FIELDS:
            raise ValueError(f"{text}: has no field {name!r}{nearest(name, FIELDS)}")
    for name in ("params", "calibration", "source"):
        if not isinstance(header.get(name, {}), dict):
            raise ValueError(f"{text}: {name} is a {type(header[name]).__name__}, must be a dict")
    return arrays, header


def check_known(arrays: dict[str, np.ndarray], params: Params, where: str):
    """ValueError names an array that a scenario does not have, and the nearest that it has."""
    known = shapes(params)
    for name in arrays:
        if name not in known and not name.startswith(RUNNING):
            raise ValueError(f"{where}: has no array {name!r}{nearest(name, known)}")


def check(arrays: dict[str, np.ndarray], params: Params, where: str) -> dict[str, np.ndarray]:
    """The arrays in the types of a scenario.

    Args:
        where: named by the errors.

    Raises:
        ValueError: an array is missing, has another shape than Params', or holds a number that means nothing; names
            the array and the first index.
    """
    out = {}
    for name, shape in shapes(params).items():
        if name not in arrays:
            raise ValueError(f"{where}: array {name} is missing")
        given = _numbers(arrays[name], name, where)
        _check_shape(given, shape, name, where)
        _refuse(~np.isfinite(given), given, name, where, "must be finite")
        low = LEAST if name in POSITIVE else 0.0 if name in NOT_NEGATIVE else -MOST
        high = MOST_OF.get(name, MOST)
        _refuse((given < low) | (given > high), given, name, where, f"must lie in [{low:g}, {high:g}]")
        array = out[name] = given.astype(dtype(name), copy=False)
        if array.dtype != np.float64:
            _refuse(array != given, given, name, where, f"must be {'a flag' if name in FLAGS else 'an integer'}")
    exists = np.arange(params.tasks) < out["task_count"][:, :, None]
    for name in OF_A_TASK:
        array = out[name]
        _refuse(exists & (array < LEAST), array, name, where, f"must be at least {LEAST:g}, as the slot holds a task")
    scales = running_shapes(params)
    for name in (name for name in arrays if name.startswith(RUNNING)):
        array = out[name] = _numbers(arrays[name], name, where).astype(np.float64, copy=False)
        scale = name.removeprefix(RUNNING)
        if scale not in scales:
            raise ValueError(f"{where}: array {name} is of no running scale of these parameters")
        _check_shape(array, scales[scale], name, where)
        low, finite = limits(scale)
        wrong = ~(array >= low) | (finite & ~np.isfinite(array))
        _refuse(wrong, array, name, where, "must be finite and not negative" if finite else "must be a number")
    return out


def check_header(found, where: str):
    """ValueError names a number or word of a scenario that is of the wrong kind or out of range."""
    density = found.mean_density
    if isinstance(density, bool) or not isinstance(density, numbers.Real) or not LEAST <= density <= MOST:
        raise ValueError(f"{where}: mean_density is {density!r:.60}, must be a number in [{LEAST:g}, {MOST:g}]")
    if not isinstance(found.name, str):
        raise ValueError(f"{where}: name is {found.name!r:.60}, must be a string")
    integer(f"{where}: index", found.index, 0, 2**32 - 1)  # a word of Philox's counter
    integer(f"{where}: seed", found.seed, 0, 2**64 - 1)  # Philox's key


def check_distances(distance: np.ndarray, name: str, where: str):
    """No two ends of a link in one place: the gain would be infinite."""
    _refuse(distance <= 0, distance, name, where, "must be positive, as nothing keeps the gain finite (Q15)")


def check_signals(found, where: str):
    """ValueError where a signal may be so strong that a kernel's float32 does not hold it over the noise."""
    params = found.params
    fading = max(found.fading_v2v.max(), found.fading_v2i.max())
    nearest = min(found.distance_v2v.min(), found.distance_v2i.min()) if params.jumping_tracks else 1.0
    power = found.client_power.max()
    decibel = 20 * np.log10(max(fading, LEAST)) - 10 * params.path_loss_exponent * np.log10(nearest)
    decibel += 10 * np.log10(max(1.0, power / 1e3) / params.noise_watt)  # kernels keep what 1 W is over the noise
    most = 10 * np.log10(STRONGEST)
    if decibel > most:
        raise ValueError(
            f"{where}: fading of up to {fading:g}, links of {nearest:g} m or more, client_power of up to "
            f"{power:g} mW and noise_dbm={params.noise_dbm:g} make a signal {decibel:g} dB stronger than the "
            f"noise, must be at most {most:g} dB"
        )


def _numbers(values, name: str, where: str) -> np.ndarray:
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{where}: array {name} holds {array.dtype}, must hold numbers")
    return array


def _check_shape(array: np.ndarray, shape: tuple[int, ...], name: str, where: str):
    if array.shape != shape:
        raise ValueError(f"{where}: array {name} has shape {array.shape}, must have {shape}")


def _refuse(wrong: np.ndarray, array: np.ndarray, name: str, where: str, rule: str):
    if wrong.any():
        index = tuple(int(k) for k in np.argwhere(wrong)[0])
        raise ValueError(f"{where}: {name}[{', '.join(map(str, index))}] is {array[index]}, {rule}")
