from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.envs.vehicular_edge import delays
from lockstep.envs.vehicular_edge.params import FAMILIES, Params

TINY = Params(
    slots=6, vehicles=3, clients=2, servers=1, edges=2, tasks=2, server_choices=1, components=1,
    cap_local=2, cap_server=2, cap_edge=2, cap_cloud=2, edge_wire_mps=2e8, cloud_wire_mps=2.25e8,
)  # fmt: skip
EDGES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=12)


def bit_by_bit(arrivals, capacities, *, virtual):
    """(departures, slot in which each bit left or None, by slot of arrival, backlogs) of a queue of single bits."""
    waiting, departures, left, backlogs = deque(), [], [[] for _ in arrivals], []
    for slot, (new, capacity) in enumerate(zip(arrivals, capacities, strict=True)):
        if virtual:
            waiting.extend([slot] * new)
        departures.append(min(capacity, len(waiting)))
        for _ in range(departures[-1]):
            left[waiting.popleft()].append(slot)
        if not virtual:
            waiting.extend([slot] * new)
        backlogs.append(len(waiting))
    return departures, [row + [None] * (new - len(row)) for row, new in zip(left, arrivals, strict=True)], backlogs


@given(EDGES, st.booleans())
def test_the_last_bit_of_a_slot_leaves_when_a_queue_of_single_bits_lets_it_go(rows, virtual):
    arrivals, capacities = (list(column) for column in zip(*rows, strict=True))
    departures, left, _ = bit_by_bit(arrivals, capacities, virtual=virtual)
    found = delays.leaving(np.array(arrivals, dtype=float), np.array(departures, dtype=float))
    for slot, bits in enumerate(left):
        if bits:
            assert found[slot] == (len(rows) if bits[-1] is None else bits[-1])


@given(EDGES, st.booleans())
def test_littles_law_holds_bit_by_bit(rows, virtual):
    arrivals, capacities = (list(column) for column in zip(*rows, strict=True))
    departures, left, backlogs = bit_by_bit(arrivals, capacities, virtual=virtual)
    waits = [(len(rows) if slot is None else slot) - arrived for arrived, bits in enumerate(left) for slot in bits]
    found = delays.sojourn(*(np.array(column, dtype=float) for column in (arrivals, departures, backlogs)))
    assert found.delay_s == pytest.approx(np.mean(waits) if waits else 0.0)
    assert found.rate == pytest.approx(sum(arrivals) / len(rows))
    assert found.backlog == pytest.approx(found.rate * found.delay_s)


def test_rounding_of_single_precision_delays_nobody():
    arrivals = np.full(50, np.float32(1234.567))
    backlog, departures = np.float32(0), []
    for new in arrivals:
        departures.append(backlog)
        backlog = np.float32(np.float32(backlog - departures[-1]) + new)
    departures = np.array(departures) * np.float32(1 - 1e-7)
    assert (delays.leaving(arrivals, departures)[:-1] == np.arange(1, 50)).all()


def test_stages_compose():
    first, second = np.array([1, 3, 3, 4]), np.array([0, 2, 3, 4])
    # A task that leaves the first stage in slot 1 leaves the second in 2; one that comes in slot 3 stays there (4).
    assert delays.then(first, second).tolist() == [2, 4, 4, 4]


def empty_flows():
    shapes = {"lc": (2,), "v2v": (1,), "vc": (1,), "v2i": (2, 3), "i2i": (2, 2), "ec": (2,), "i2c": (2,), "cc": (1,)}
    assert tuple(shapes) == FAMILIES
    zeros = [{name: np.zeros((1, 6, *shape)) for name, shape in shapes.items()} for _ in range(2)]
    target, admitted = np.zeros((1, 6, 2, 2), dtype=int), np.zeros((1, 6, 2, 2), dtype=bool)
    return delays.Flows(zeros[0], zeros[1], target, admitted)


def empty_places(deadline_s=9.0):
    return delays.Paths(
        count=np.zeros((1, 6, 2), dtype=int),
        deadline_s=np.full((1, 6, 2, 2), deadline_s),
        access=np.ones((1, 6, 2), dtype=int),
        server_of=np.zeros((1, 6, 2, 1), dtype=int),
        edge_wire_s=np.array([[[0, 1e-6], [2e-6, 0]]]),
        cloud_wire_s=np.array([[3e-6, 4e-6]]),
    )


def passes(moved, name, place, came, left, mbit=8.0):
    """Work that enters a queue in one slot and leaves it in another; None: it stays."""
    moved.arrived[name][0, came, *place] += mbit
    if left is not None:
        moved.departed[name][0, left, *place] += mbit


def send(moved, where, option, slot=0):
    """One task of client 0, admitted."""
    where.count[0, slot, 0] = 1
    moved.target[0, slot, 0, 0] = option
    moved.admitted[0, slot, 0, 0] = True


# Options of TINY: 0 local, 1 server, 2 and 3 the edges, 4 the cloud. The access edge is 1.
ROUTES = {
    "local": (0, [("lc", (0,), 0, 2)], 2.0),
    "server": (1, [("v2v", (0,), 0, 1), ("vc", (0,), 1, 4)], 4.0),
    "own edge": (3, [("v2i", (1, 1), 0, 2), ("ec", (1,), 2, 3)], 3.0),
    "other edge": (2, [("v2i", (1, 0), 0, 1), ("i2i", (1, 0), 1, 3), ("ec", (0,), 3, 4)], 4.0 + 2e-6),
    "cloud": (4, [("v2i", (1, 2), 0, 1), ("i2c", (1,), 1, 2), ("cc", (0,), 2, 5)], 5.0 + 4e-6),
}


@pytest.mark.parametrize("route", ROUTES)
def test_a_task_takes_the_slots_of_every_stage_of_its_route_and_the_time_on_the_wire(route):
    option, stages, expected = ROUTES[route]
    moved, where = empty_flows(), empty_places()
    send(moved, where, option)
    for stage in stages:
        passes(moved, *stage)
    found = delays.deliver(moved, where, TINY)
    assert found.delay_s[0, 0, 0, 0] == pytest.approx(expected, rel=1e-12)
    assert delays.ROUTES[found.route[0, 0, 0, 0]] == route.split()[-1]
    assert delays.counts(found) == {"on_time": 1, "late": 0, "open": 0}
    assert (found.outcome != delays.NO_TASK).sum() == 1


@pytest.mark.parametrize(("deadline_s", "outcome"), [(2.0, "on_time"), (1.9, "late")])
def test_a_served_task_is_late_beyond_its_deadline(deadline_s, outcome):
    moved, where = empty_flows(), empty_places(deadline_s)
    send(moved, where, 0)
    passes(moved, "lc", (0,), 0, 2)
    assert delays.counts(delays.deliver(moved, where, TINY))[outcome] == 1


@pytest.mark.parametrize(("came", "outcome"), [(1, "late"), (2, "open")])
def test_queued_work_is_late_once_its_deadline_has_passed_and_else_left_out(came, outcome):
    # Of 6 slots; work of slot 1 is 5 s old at the end, work of slot 2 only 4 s.
    moved, where = empty_flows(), empty_places(deadline_s=4.0)
    send(moved, where, 0, slot=came)
    passes(moved, "lc", (0,), came, None)
    found = delays.deliver(moved, where, TINY)
    assert delays.counts(found)[outcome] == 1
    assert np.isinf(found.delay_s[0, came, 0, 0])
    assert delays.on_time_share(found) == (0.0 if outcome == "late" else 1.0)


def test_tasks_that_are_rejected_or_beyond_the_slots_are_late():
    moved, where = empty_flows(), empty_places()
    where.count[0, 0, 0] = 5  # of 2 task slots
    found = delays.deliver(moved, where, TINY)
    assert delays.counts(found) == {"on_time": 0, "late": 5, "open": 0}
    assert (found.route == delays.NOT_ADMITTED).all()


def test_percentiles_are_of_what_is_known():
    moved, where = empty_flows(), empty_places(deadline_s=3.0)
    for slot, left in ((0, 1), (1, 3), (2, None), (4, None)):
        send(moved, where, 0, slot)
        passes(moved, "lc", (0,), slot, left)
    found = delays.percentiles(delays.deliver(moved, where, TINY), (30, 60, 99))
    # 1 s, 2 s, never (4 s old, late); the last one is 2 s old and may still be in time.
    assert found["local"].tolist() == found["all"].tolist() == [[1.0, 2.0, np.inf]]
    assert np.isnan(found["cloud"]).all()


def test_the_histogram_counts_the_slots_whose_delays_are_all_known():
    moved, where = empty_flows(), empty_places()
    for slot, left in ((0, 2), (1, 5), (2, None), (5, None)):
        send(moved, where, 0, slot)
        passes(moved, "lc", (0,), slot, left)
    found = delays.histogram(delays.deliver(moved, where, TINY), longest=3)
    assert found.tolist() == [[0, 0, 1, 0, 2]]  # 2 s, 4 s, never
    with pytest.raises(ValueError, match="longest=6 s must be below the 6 slots"):
        delays.histogram(delays.deliver(moved, where, TINY), longest=6)


def test_pooled_queues_are_refused():
    pooled = Params(slot_tandem=True)
    with pytest.raises(ValueError, match="slot_tandem=True"):
        delays.flows([{"target": np.zeros((1, 1))}], pooled)
