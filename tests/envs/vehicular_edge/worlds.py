"""Hand-made scenarios of the vehicular edge: nothing moves, nothing fades, every slot has the same tasks."""

import dataclasses

import numpy as np

from lockstep.envs.vehicular_edge.params import PRESETS, SWITCHES, Params, running_shapes
from lockstep.envs.vehicular_edge.scenario import Calibration, Scenario, draw

FAR = (9000.0, 9000.0)  # m, out of everybody's reach
ORIGINAL = dict.fromkeys(SWITCHES, True)  # on a hand-made scenario it does not matter how published ones are drawn

# Clients 0 and 1 reach edge 0 alone, client 2 nothing; server 1 is in range of client 0 alone.
CLIENTS = [(0.0, 0.0), (100.0, 0.0), (5000.0, 0.0)]
EDGES = [(40.0, 0.0), (400.0, 0.0)]
PLACES = {"clients": CLIENTS, "servers": [FAR, (0.0, 50.0)], "edges": EDGES, "cloud": (40.0, 250.0)}
TASKS = [  # MB, cycles/bit, tasks/s, mean MB
    [(1.0, 200.0, 0.5, 1.5), (2.0, 400.0, 0.8, 1.0), (1.0, 100.0, 0.6, 2.0), (0.5, 300.0, 0.9, 1.0)],
    [(2.0, 200.0, 0.7, 1.0), (1.0, 500.0, 0.5, 1.0), (3.0, 100.0, 0.5, 1.0)],
    [(1.0, 200.0, 1.0, 1.0), (2.0, 200.0, 1.0, 1.0)],
]
BLOCKS = {"client": [5, 3, 2], "server": [3, 2, 0], "edge": [2, 1, 1], "cloud": [1, 1, 2], "power": (0.25, 0.75)}


def switch(number: int) -> str:
    """The name of Qn."""
    return SWITCHES[number - 1]


def world(
    tasks,
    clients=((0.0, 0.0),),
    servers=(FAR,),
    edges=(FAR,),
    cloud=(0.0, 0.0),
    slots=3,
    task_slots=None,
    client_cpu=30.0,
    server_cpu=20.0,
    edge_cpu=100.0,
    power_mw=1000.0,
    edge_range=100.0,
    mean_density=300.0,
    count=None,
    calibration=None,
    running=None,
    **params,
) -> Scenario:
    """A scenario of few nodes.

    Args:
        tasks: of each client, [(MB, cycles/bit, tasks/s, mean MB), ...], the same in every slot.
        clients, servers, edges, cloud: positions in m.
        count: tasks that each client generates [Nc], or in each slot [T, Nc]; None for those in `tasks`.
        params: of `Params`; caps are 3 unless given.
    """
    Nc, Ns, Ne = len(clients), len(servers), len(edges)
    J = task_slots or max(1, *map(len, tasks))
    chosen = {"cap_local": 3, "cap_server": 3, "cap_edge": 3, "cap_cloud": 3, "server_choices": 2} | params
    made = Params(slots=slots, vehicles=Nc + Ns, clients=Nc, servers=Ns, edges=Ne, tasks=J, components=1, **chosen)
    table = np.zeros((4, slots, Nc, J))
    for i, own in enumerate(tasks):
        for j, task in enumerate(own):
            table[:, :, i, j] = np.array(task)[:, None]
    counts = np.array([len(own) for own in tasks] if count is None else count, dtype=np.int32)

    def still(points):
        return np.broadcast_to(np.array(points, dtype=np.float64), (slots, len(points), 2)).copy()

    def each(value, n):
        return np.broadcast_to(np.array(value, dtype=np.float64), n).copy()

    return Scenario(
        params=made,
        client_cpu=each(client_cpu, Nc),
        client_power=each(power_mw, Nc),
        server_cpu=each(server_cpu, Ns),
        edge_xy=np.array(edges, dtype=np.float64),
        edge_cpu=each(edge_cpu, Ne),
        edge_range=each(edge_range, Ne),
        cloud_xy=np.array(cloud, dtype=np.float64),
        xy_client=still(clients),
        xy_server=still(servers),
        active_client=np.ones((slots, Nc), dtype=bool),
        active_server=np.ones((slots, Ns), dtype=bool),
        task_count=np.broadcast_to(counts, (slots, Nc)).copy(),
        task_size=table[0],
        task_cycles=table[1],
        task_rate=table[2],
        task_mean=table[3],
        task_deadline=np.full((slots, Nc, J), 5.0),
        fading_v2v=np.ones((slots, Nc, Ns)),
        fading_v2i=np.ones((slots, Nc, Ne)),
        pca_v2v_mean=np.zeros(Nc * Ns),
        pca_v2v=np.eye(1, Nc * Ns),
        pca_v2i_mean=np.zeros(Nc * Ne),
        pca_v2i=np.eye(1, Nc * Ne),
        mean_density=mean_density,
        calibration=calibration or Calibration.ones(made),
        running=running and {name: each(value, running_shapes(made)[name]) for name, value in running.items()},
    )


def switched(scenario: Scenario, **switches) -> Scenario:
    """The same scenario under other switches."""
    return dataclasses.replace(scenario, params=dataclasses.replace(scenario.params, **switches))


def options(params: Params) -> dict[str, int]:
    """Options by name: local, server0.., edge0.., cloud."""
    found = {"local": 0, "cloud": params.options - 1}
    found |= {f"server{k}": 1 + k for k in range(params.server_choices)}
    return found | {f"edge{e}": 1 + params.server_choices + e for e in range(params.edges)}


def aim(params: Params, *names) -> np.ndarray:
    """Targets [Nc, J] from the names of the options of each client's tasks; local where none is given."""
    target, known = np.zeros((params.clients, params.tasks), dtype=np.int32), options(params)
    for i, own in enumerate(names):
        for j, name in enumerate(own):
            target[i, j] = known[name]
    return target


def shares(params: Params, client=None, server=None, edge=None, cloud=None, power=(0.5, 0.5)) -> np.ndarray:
    """Shares [A1] with the same block for every node of a kind; equal weights unless given."""

    def block(given, cap):
        return np.ones(cap) if given is None else np.array(given, dtype=np.float64)

    powers = np.broadcast_to(np.array(power, dtype=np.float64), (params.clients, 2))
    parts = [np.concatenate([block(client, params.cap_local), pair]) for pair in powers]
    parts += [block(server, params.cap_server)] * params.servers + [block(edge, params.cap_edge)] * params.edges
    return np.concatenate([*parts, block(cloud, params.cap_cloud)])


def small(preset: str = "physical", traffic: str = "dense", index: int = 0, **params) -> Scenario:
    """A drawn scenario of few vehicles, with tight caps."""
    sizes = {
        "slots": 6, "vehicles": 9, "clients": 6, "servers": 3, "edges": 3, "types": 12, "type_slots": 4, "tasks": 3,
        "cap_local": 1, "cap_server": 2, "cap_edge": 2, "cap_cloud": 3, "server_choices": 2, "components": 2,
    }  # fmt: skip
    chosen = PRESETS[preset] | sizes | {"draw": "philox"} | params
    params = Params(**chosen)
    return draw(params, traffic, index, calibration=Calibration.ones(params))
