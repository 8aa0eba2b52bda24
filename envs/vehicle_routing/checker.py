"""Checker of walks, which shares nothing with the oracles (README.md, 2.5)."""

import itertools
from collections.abc import Sequence


def check(
    walk: Sequence[int],
    travel,
    zone: Sequence[int],
    earliest: Sequence[int],
    latest: Sequence[int],
    demand: Sequence[int],
    capacity: int,
    horizon: int,
    service: Sequence[int] | None = None,
    max_ride: int = 0,
    paired: bool = True,
) -> tuple[int, int]:
    """Ticks travelled and number of vehicles of a walk, which may end in more zeros.

    Args:
        walk: nodes from the depot, 0, to the depot.
        travel: [Z][Z] ticks.
        zone, earliest, latest, demand, service: of each node, times in ticks; where paired, 2i+1 and 2i+2 are pickup
            and drop-off of request i.
        max_ride: ticks from the start of service at a pickup to that at its drop-off; 0: no limit.

    Raises:
        ValueError: a zone or demand out of range, or a walk that is not valid; names the first wrong node, and why.
    """
    for node in range(len(zone)):
        if not 0 <= zone[node] < len(travel):
            raise ValueError(f"zone[{node}]={zone[node]} must be from 0 to {len(travel) - 1}")
        if node and (demand[node] != -demand[node - 1] if paired and node % 2 == 0 else demand[node] < 1):
            must = -demand[node - 1] if paired and node % 2 == 0 else "at least 1"
            raise ValueError(f"demand[{node}]={demand[node]} must be {must}")
    walk = [int(node) for node in walk]
    if not walk or walk[0] != 0:
        raise ValueError("the walk must begin at the depot, node 0")
    while len(walk) > 1 and walk[-1] == walk[-2] == 0:
        walk.pop()
    if walk[-1] != 0:
        raise ValueError(f"the walk ends at node {walk[-1]}, must return to the depot, node 0")
    travelled = clock = load = vehicle = 0
    vehicle_of, start_of = {}, {}  # by node
    for here, node in itertools.pairwise(walk):
        if not 0 <= node < len(zone):
            raise ValueError(f"node {node} is none of 0 .. {len(zone) - 1}")
        if here == node == 0:
            raise ValueError("the walk stands at the depot twice in a row")
        if node in vehicle_of:
            raise ValueError(f"node {node} is visited twice")
        time = travel[zone[here]][zone[node]]
        travelled, clock = travelled + time, clock + time
        if node == 0:
            if clock > horizon:
                raise ValueError(f"vehicle {vehicle} returns at {clock}, after {horizon}")
            clock = load = 0
            vehicle += 1
            continue
        if clock > latest[node]:
            raise ValueError(f"node {node} is reached at {clock}, after {latest[node]}")
        start = max(clock, earliest[node])
        if paired and node % 2 == 0:
            if node - 1 not in vehicle_of:
                raise ValueError(f"drop-off {node} comes before its pickup {node - 1}")
            if vehicle_of[node - 1] != vehicle:
                raise ValueError(f"drop-off {node} is in vehicle {vehicle}, its pickup in {vehicle_of[node - 1]}")
            if max_ride and start - start_of[node - 1] > max_ride:
                raise ValueError(f"the ride to {node} takes {start - start_of[node - 1]}, more than {max_ride}")
        elif paired and max_ride:
            start = max(start, earliest[node + 1] - max_ride)
        load += demand[node]
        if load > capacity:
            raise ValueError(f"after node {node} the load is {load}, more than {capacity}")
        vehicle_of[node], start_of[node] = vehicle, start
        clock = start + (service[node] if service is not None else 0)
    for node in range(1, len(zone)):
        if node not in vehicle_of:
            raise ValueError(f"node {node} is never visited")
    return int(travelled), vehicle
