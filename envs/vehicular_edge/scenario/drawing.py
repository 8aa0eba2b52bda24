"""The arrays of a scenario, drawn from Philox or in the published order.

Fields are those of `Scenario`; README.md, 4.2 and 4.3, says what they are drawn from.
"""

import random

import numpy as np

from ...checks import integer
from ...noise import philox
from .. import published
from ..params import MOST, MOST_TASKS, SERVER_PROBABILITY, Params
from . import links

# Streams of Philox; the counter is (scenario index, element // 4, t, stream), and t is 0 where nothing depends on it.
TYPES, VEHICLES, ROLES, COUNTS, SIZES, EDGES, V2V, V2I = range(8)
SLOW, FAST = 0.3, 0.7  # an edge's number below, above: the slow, the fast CPU


def uniform(seed: int, index: int, t, elements: int, stream: int) -> np.ndarray:
    """Numbers in (0, 1), (word + 0.5) 2^-32: [elements], or [len(t), elements] for an array t."""
    blocks = np.arange(-(-elements // 4))
    words = philox((index, blocks, np.asarray(t)[..., None], stream), seed)
    numbers = np.ascontiguousarray(np.moveaxis(words, 0, -1)).reshape(*np.shape(t), -1)[..., :elements]
    return (numbers + 0.5) * 2.0**-32


def between(low: float, high: float, u: np.ndarray) -> np.ndarray:
    return low + (high - low) * u


def poisson(mean: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Counts by inversion: the smallest n with u < P(count <= n); i4."""
    count = np.zeros(u.shape, dtype=np.int32)
    term = np.exp(-mean)
    below = term.copy()
    n = 0
    while (more := u >= below).any():
        count += more
        n += 1
        term = term * mean / n
        below = below + term
    return count


def rayleigh(scale: float, u: np.ndarray) -> np.ndarray:
    """Amplitude X by inversion; E[X^2] = 2 scale^2."""
    return scale * np.sqrt(-2.0 * np.log1p(-u))


def draw_arrays(
    params: Params, xy: np.ndarray, active: np.ndarray, box, index: int, seed: int, edge_xy=None
) -> dict[str, np.ndarray]:
    """All arrays of a scenario.

    Args:
        xy: of the vehicles, [T, N, 2] m.
        active: [T, N] bool.
        box: the map's x0, y0, x1, y1 in m; edges lie in it, the cloud at its centre.
        index: of the scenario; with draw="published" nothing depends on it.
        edge_xy: where the edge nodes stand, [Ne, 2] m; None draws it.
    """
    if edge_xy is not None:
        edge_xy = np.asarray(edge_xy)
        if edge_xy.shape != (params.edges, 2) or edge_xy.dtype.kind not in "iuf" or not (abs(edge_xy) <= MOST).all():
            raise ValueError(f"edge_xy {edge_xy.shape} must be numbers {(params.edges, 2)} in [{-MOST:g}, {MOST:g}]")
        edge_xy = edge_xy.astype(np.float64)
    if params.draw == "published":
        index, drawn = 0, _published(params, box, seed)  # the same types, and so the same deadlines, whatever the index
    else:
        drawn = _philox(params, box, index, seed)
    types = uniform(seed, index, 0, 4 * params.types, TYPES).reshape(-1, 4)
    deadline = between(params.deadline_low_s, params.deadline_high_s, types[:, 3])
    is_server = drawn["is_server"]
    out = {
        "client_cpu": drawn["vehicle_ghz"][~is_server],
        "client_power": drawn["vehicle_mw"][~is_server],
        "server_cpu": drawn["vehicle_ghz"][is_server],
        "edge_xy": drawn["edge_xy"] if edge_xy is None else edge_xy,
        "edge_cpu": drawn["edge_ghz"],
        "edge_range": _edge_range(params, index, seed),
        "cloud_xy": np.array([(box[0] + box[2]) / 2, (box[1] + box[3]) / 2]),
        "xy_client": xy[:, ~is_server],
        "xy_server": xy[:, is_server],
        "active_client": active[:, ~is_server],
        "active_server": active[:, is_server],
        "fading_v2v": drawn["fading_v2v"],
        "fading_v2i": drawn["fading_v2i"],
        "mean_density": float(drawn["density"].mean()),
    }
    out |= _tasks(params, drawn, deadline, out["active_client"], index, seed)
    for link, there in (("v2v", out["xy_server"]), ("v2i", out["edge_xy"])):
        distance = distances(params, out["xy_client"], there).reshape(params.slots, -1)
        out[f"pca_{link}_mean"], out[f"pca_{link}"] = links.main_components(distance, params.components)
    return out


def distances(params: Params, here: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Distances [..., n, m] in m; not below 1 m unless positions are the published ones (Q15)."""
    apart = links.distances(here, there)
    return apart if params.jumping_tracks else np.maximum(apart, 1.0)


def _philox(params: Params, box, index: int, seed: int) -> dict[str, np.ndarray]:
    N, M, K, Ne, T = params.vehicles, params.type_slots, params.types, params.edges, params.slots
    types = uniform(seed, index, 0, 4 * K, TYPES).reshape(K, 4)
    size = np.sort(between(params.size_low_mb, params.size_high_mb, types[:, :2]), axis=1)
    vehicle = uniform(seed, index, 0, N * (2 + 2 * M), VEHICLES).reshape(N, 2 + 2 * M)
    cpu = between(params.vehicle_low_ghz, params.vehicle_high_ghz, vehicle[:, 0])
    # A random subset of the vehicles serves; Q5: the slowest.
    key = cpu if params.slow_cpu_serves else uniform(seed, index, 0, N, ROLES)
    is_server = np.zeros(N, dtype=bool)
    is_server[np.argsort(key, kind="stable")[: params.servers]] = True
    of_client = vehicle[~is_server]
    rate = between(params.arrival_low, params.arrival_high, of_client[:, 2 + M :])
    Nc, Ns = params.clients, params.servers
    edge = uniform(seed, index, 0, 4 * Ne, EDGES).reshape(Ne, 4)
    slots = np.arange(T)
    return {
        "size_mb": size,
        "density": between(params.density_low, params.density_high, types[:, 2]),
        "vehicle_ghz": cpu,
        "vehicle_mw": between(params.power_low_mw, params.power_high_mw, vehicle[:, 1]),
        "is_server": is_server,
        "type_of": (of_client[:, 2 : 2 + M] * K).astype(np.int64),
        "rate": rate,
        "counts": poisson(rate, uniform(seed, index, slots, Nc * M, COUNTS).reshape(T, Nc, M)),
        "edge_xy": np.stack([between(box[0], box[2], edge[:, 0]), between(box[1], box[3], edge[:, 1])], axis=1),
        "edge_ghz": _edge_cpu(params, edge[:, 2]),
        "fading_v2v": fading(params, index, seed, slots, Ns, V2V),
        "fading_v2i": fading(params, index, seed, slots, Ne, V2I),
    }


def fading(params: Params, index: int, seed: int, slots: np.ndarray, receivers: int, stream: int) -> np.ndarray:
    """Amplitudes X of the slots' links from every client to every receiver, [len(slots), Nc, receivers]."""
    u = uniform(seed, index, slots, params.clients * receivers, stream)
    return rayleigh(params.fading_scale, u).reshape(len(slots), params.clients, receivers)


def _published(params: Params, box, seed: int) -> dict[str, np.ndarray]:
    first, stream = _published_tasks(params, seed)
    drawn = first._asdict()
    if not params.slow_cpu_serves:  # roles and tasks stay, CPUs become independent of them
        u = uniform(seed, 0, 0, params.vehicles, VEHICLES)
        drawn["vehicle_ghz"] = between(params.vehicle_low_ghz, params.vehicle_high_ghz, u)
    xy, number = [], []
    for e in range(params.edges):
        draw = random.Random(seed + params.types + params.vehicles + e)
        xy.append((draw.uniform(box[0], box[2]), draw.uniform(box[1], box[3])))
        number.append(draw.random())
    fading_v2v, fading_v2i = _published_fading(params, stream)
    return drawn | {
        "edge_xy": np.array(xy),
        "edge_ghz": _edge_cpu(params, np.array(number)),
        "fading_v2v": fading_v2v,
        "fading_v2i": fading_v2i,
    }


def _published_tasks(params: Params, seed: int) -> tuple[published.Tasks, np.random.RandomState]:
    drawn = published.tasks(
        integer("seed", seed, 0, 2**32 - 1),  # NumPy's legacy stream takes no more
        params.vehicles,
        params.types,
        params.type_slots,
        params.slots,
        (params.size_low_mb, params.size_high_mb),
        (params.arrival_low, params.arrival_high),
        SERVER_PROBABILITY,
        (params.density_low, params.density_high),
        (params.vehicle_low_ghz, params.vehicle_high_ghz),
        (params.power_low_mw, params.power_high_mw),
    )
    found = int(drawn.is_server.sum())
    if found != params.servers:
        raise ValueError(
            f"seed={seed} with draw='published' makes servers={found} of the vehicles, Params has "
            f"servers={params.servers}: give it size_seed={seed} and no other number of clients or servers"
        )
    return drawn, drawn.stream


def _published_fading(params: Params, stream: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
    """Steps 5 and 6 (README.md, 4.3): the normals that the randomised PCA solver consumes, then the fading."""
    T, Nc, Ns, Ne = params.slots, params.clients, params.servers, params.edges
    for links_ in (Nc * Ns, Nc * Ne):
        if max(T, links_) > 500 and params.components < 0.8 * min(T, links_):
            stream.standard_normal((params.components + 10) * min(T, links_))
    return stream.rayleigh(params.fading_scale, (T, Nc, Ns)), stream.rayleigh(params.fading_scale, (T, Nc, Ne))


def published_stream(params: Params, seed: int) -> np.random.RandomState:
    """NumPy's legacy stream where step 6 has left it, for the warm-up of step 7."""
    _, stream = _published_tasks(params, seed)
    _published_fading(params, stream)
    return stream


def _edge_cpu(params: Params, number: np.ndarray) -> np.ndarray:
    slow, medium, fast = params.edge_slow_ghz, params.edge_medium_ghz, params.edge_fast_ghz
    return np.where(number < SLOW, slow, np.where(number > FAST, fast, medium))


def _edge_range(params: Params, index: int, seed: int) -> np.ndarray:
    if params.edge_range_is_v2v:
        return np.full(params.edges, params.v2v_range_m)
    number = uniform(seed, index, 0, 4 * params.edges, EDGES).reshape(-1, 4)[:, 3]
    return between(params.edge_range_low_m, params.edge_range_high_m, number)


def _tasks(params: Params, drawn, deadline, active, index: int, seed: int) -> dict[str, np.ndarray]:
    """Task slots [T, Nc, J] from the type slots' arrivals [T, Nc, M]; a slot's tasks are ordered by type slot."""
    T, Nc, J, M = params.slots, params.clients, params.tasks, params.type_slots
    counts = drawn["counts"] * active[:, :, None]
    count = counts.sum(axis=2, dtype=np.int32)  # [T, Nc]
    if count.max() > MOST_TASKS:
        raise ValueError(
            f"arrival_high={params.arrival_high} with type_slots={M} draws {count.max()} tasks of a client in a slot, "
            f"must be at most {MOST_TASKS}"
        )
    # One row per task, in the order of (slot, client, type slot); its place counts from its client's first task.
    of_type_slot = np.repeat(np.tile(np.arange(M), T * Nc), counts.reshape(-1))
    row = np.repeat(np.arange(T * Nc), count.reshape(-1))
    place = np.arange(len(row)) - (np.cumsum(count) - count.reshape(-1))[row]
    seen = place < J
    slot_of = np.zeros((T * Nc, J), dtype=np.int64)  # type slot of the j-th task
    slot_of[row[seen], place[seen]] = of_type_slot[seen]
    slot_of = slot_of.reshape(T, Nc, J)
    exists = np.arange(J) < count[:, :, None]
    client = np.arange(Nc)[:, None]
    type_of = drawn["type_of"][client, slot_of]  # [T, Nc, J]
    low, high = drawn["size_mb"][:, 0], drawn["size_mb"][:, 1]

    shared = None
    slots = np.arange(T)
    if params.shared_slot_size:  # Q25
        shared = drawn.get("sizes_mb")
        if shared is None:
            u = uniform(seed, index, slots, Nc * M, SIZES).reshape(T, Nc, M)
            shared = between(low[drawn["type_of"]], high[drawn["type_of"]], u)
        size = np.take_along_axis(shared, slot_of, axis=2)
    else:
        u = uniform(seed, index, slots, Nc * J, SIZES).reshape(T, Nc, J)
        size = between(low[type_of], high[type_of], u)
    size = np.where(exists, size, 0.0)
    if params.hindsight_means:  # Q24
        same = drawn["type_of"][:, :, None] == drawn["type_of"][:, None, :]  # [Nc, M, M]
        rate = np.take_along_axis(drawn["rate"], same.argmax(axis=2), axis=1)[client, slot_of]
        mean = _realised_means(same, counts, shared, size, slot_of, exists)[client, slot_of]
    else:
        rate = drawn["rate"][client, slot_of]
        mean = ((low + high) / 2)[type_of]
    return {
        "task_count": count,
        "task_size": size,
        "task_cycles": np.where(exists, drawn["density"][type_of], 0.0),
        "task_rate": np.where(exists, rate, 0.0),
        "task_mean": np.where(exists, mean, 0.0),
        "task_deadline": np.where(exists, deadline[type_of], 0.0),
    }


def _realised_means(same, counts, shared, size, slot_of, exists) -> np.ndarray:
    """Mean size of a client's tasks of a type over the episode, by type slot: [Nc, M] MB.

    Tasks beyond J count where their size is known, which is where a type slot's tasks share it.
    """
    Nc, M = same.shape[:2]
    if shared is not None:
        number, total = counts.sum(axis=0).astype(float), (counts * shared).sum(axis=0)
    else:
        slot = (np.arange(Nc)[:, None] * M + slot_of)[exists]
        number = np.bincount(slot, minlength=Nc * M).reshape(Nc, M).astype(float)
        total = np.bincount(slot, weights=size[exists], minlength=Nc * M).reshape(Nc, M)
    number, total = (np.einsum("imn,in->im", same, part) for part in (number, total))
    return total / np.maximum(number, 1.0)
