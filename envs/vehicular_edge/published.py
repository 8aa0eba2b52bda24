"""The published way to draw a scenario: Python's generator re-seeded for every entity, and NumPy's global stream.

Facts of `neardws/HARL` at 02ada7ac9089. Which numbers are drawn, from what and in which order, is the contract of this
file; scenario/drawing.py gives them their meaning.
"""

import functools
import random
from typing import NamedTuple

import numpy as np


class Tasks(NamedTuple):
    """Types, vehicles and arrivals. Clients are in the order of the vehicles."""

    size_mb: np.ndarray  # [K, 2] smallest and largest of a type
    density: np.ndarray  # [K] cycles/bit
    vehicle_ghz: np.ndarray  # [N]
    vehicle_mw: np.ndarray  # [N]
    is_server: np.ndarray  # [N] bool
    type_of: np.ndarray  # [Nc, M] type of a client's type slot
    rate: np.ndarray  # [Nc, M] tasks/s
    counts: np.ndarray  # [T, Nc, M] tasks generated
    sizes_mb: np.ndarray  # [T, Nc, M] size that the tasks of a type slot share
    stream: np.random.RandomState  # NumPy's legacy stream, where step 3 has left it


def tasks(
    seed: int,
    vehicles: int,
    types: int,
    type_slots: int,
    slots: int,
    size_mb: tuple[float, float],
    arrival: tuple[float, float],
    server_probability: float,
    density: tuple[float, float] = (100.0, 500.0),
    vehicle_ghz: tuple[float, float] = (10.0, 50.0),
    vehicle_mw: tuple[float, float] = (500.0, 1000.0),
) -> Tasks:
    """Draws types, vehicles and arrivals (README.md, 4.3, steps 1 to 3); ranges are those of `Params`.

    The last three ranges change no other number: who wants only counts and sizes can leave them out.
    """
    ranges, densities = [], []
    for k in range(types):
        draw = random.Random(seed + k)
        ranges.append(sorted((draw.uniform(*size_mb), draw.uniform(*size_mb))))
        densities.append(draw.uniform(*density))
    cpu, power, serves, type_of, rate = [], [], [], [], []
    for v in range(vehicles):
        draw = random.Random(seed + types + v)
        cpu.append(draw.uniform(*vehicle_ghz))
        draw.uniform(5.0, 10.0)  # drawn, and used for nothing
        power.append(draw.uniform(*vehicle_mw))
        draw = random.Random(seed + types + v)  # again: the number that drew the CPU decides on the role (Q5)
        serves.append(draw.random() < server_probability)
        if not serves[-1]:
            type_of.append(draw.choices(range(types), k=type_slots))
            rate.append([draw.uniform(*arrival) for _ in range(type_slots)])
    stream = np.random.RandomState(seed)
    clients = len(rate)
    counts = np.zeros((slots, clients, type_slots), dtype=np.int32)
    sizes = np.zeros((slots, clients, type_slots))
    for i in range(clients):
        for m in range(type_slots):
            counts[:, i, m] = stream.poisson(rate[i][m], slots)
            sizes[:, i, m] = stream.uniform(*ranges[type_of[i][m]], slots)
    return Tasks(
        np.array(ranges),
        np.array(densities),
        np.array(cpu),
        np.array(power),
        np.array(serves),
        np.array(type_of, dtype=np.int64).reshape(clients, type_slots),
        np.array(rate).reshape(clients, type_slots),
        counts,
        sizes,
        stream,
    )


@functools.cache
def sizes(seed, vehicles, types, type_slots, slots, size_mb, arrival, server_probability) -> dict[str, int]:
    """Clients, servers, task slots and caps, from the tasks that `tasks` draws (README.md, 1)."""
    drawn = tasks(seed, vehicles, types, type_slots, slots, size_mb, arrival, server_probability)
    counts = drawn.counts.sum(axis=2)  # [T, Nc]
    mean, most = counts.mean(), counts.max()
    in_slot = counts.sum(axis=1)
    load = (in_slot.mean() + in_slot.max()) / 2
    return {
        "clients": counts.shape[1],
        "servers": vehicles - counts.shape[1],
        "tasks": max(1, int((2 * mean + most) / 3)),
        "cap_local": max(1, int(mean / 2)),
        "cap_server": max(1, int(2 * mean)),
        "cap_edge": max(1, int(0.1 * load)),
        "cap_cloud": max(1, int(0.2 * load)),
    }
