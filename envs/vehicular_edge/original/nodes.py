"""Queues, tasks and nodes of the original, and the network that a scenario describes."""

from dataclasses import dataclass, field

import numpy as np

from ..params import BITS, Params


class Queue:
    """A real queue [Mbit]: what arrives in a slot can leave in the next one."""

    __slots__ = ("arrived", "backlog", "capacity", "departed", "start")

    def __init__(self):
        self.put(0.0)

    def put(self, backlog: float):
        """Puts the queue at the start of a slot."""
        self.start = self.backlog = backlog
        self.arrived = self.capacity = self.departed = 0.0

    def flow(self, arrived: float, capacity: float):
        """One slot: Q(t+1) = max(Q - out, 0) + in."""
        self.start = self.backlog
        self.arrived, self.capacity = arrived, capacity
        self.departed = min(self.start, capacity)
        self.backlog = self.start - self.departed + arrived


class VirtualQueue(Queue):
    """The backlog of a constraint: V(t+1) = max(V + in - out, 0). It counts all of `out` as departed."""

    __slots__ = ()

    def flow(self, arrived: float, capacity: float):
        self.start = self.backlog
        self.arrived, self.capacity, self.departed = arrived, capacity, capacity
        self.backlog = max(self.start + arrived - capacity, 0.0)


@dataclass(slots=True, eq=False)
class Node:
    """Something that computes; tasks admitted in a slot get its weights in the order of their admission."""

    index: int
    cpu: float  # GHz
    cap: int  # tasks admitted per slot
    wired = False  # reached through an access edge
    weights: list[float] = field(default_factory=list)  # [cap] shares of the CPU
    occupied: int = 0  # tasks admitted so far in this slot
    admitted: list["Task"] = field(default_factory=list)  # the same tasks, kept by the indexed form only


@dataclass(slots=True, eq=False)
class Client(Node):
    budget_mw: float = 0.0  # p
    power_v2v: float = 0.0  # mW
    power_v2i: float = 0.0  # mW
    tasks: list["Task"] = field(default_factory=list)  # of this slot, at most J
    access: "Edge | None" = None
    choices: list["Server | None"] = field(default_factory=list)  # [S] servers in range; None where there are fewer
    covering: list["Edge"] = field(default_factory=list)  # edges in whose range the client is
    aimed: list["Task"] = field(default_factory=list)  # tasks for an edge or the cloud, kept by the indexed form only


@dataclass(slots=True, eq=False)
class Server(Node):
    senders: list[Client] = field(default_factory=list)  # C_r
    rates: dict[int, float] = field(default_factory=dict)  # Mbit/s by client


@dataclass(slots=True, eq=False)
class Edge(Node):
    wired = True
    senders: list[Client] = field(default_factory=list)
    rates: dict[int, float] = field(default_factory=dict)
    uploaded: list["Task"] = field(default_factory=list)  # kept by the indexed form only


@dataclass(slots=True, eq=False)
class Cloud(Node):
    wired = True


@dataclass(slots=True, eq=False)
class Task:
    client: Client
    size_mb: float
    density: float  # cycles/bit
    rate: float  # tasks/s that the client expects of its kind
    mean: float  # Mbit that it expects of one
    option: int = 0  # 0 local, then server choices, edges, cloud
    node: Node | None = None  # where it is to run
    admitted: bool = False
    uplink: Edge | None = None  # access edge through which it was sent

    @property
    def mbit(self) -> float:
        return self.size_mb * BITS * 1e-6


def column(queues: list, part: str) -> np.ndarray:
    """One quantity of every queue, [n] float64."""
    return np.array([getattr(queue, part) for queue in queues], dtype=np.float64)


def distinct_clients(tasks: list[Task]) -> list[Client]:
    return list(dict.fromkeys(task.client for task in tasks))


class Network:
    """The nodes of a scenario, and what it says about each slot."""

    def __init__(self, scenario, params: Params):
        self.scenario, self.params = scenario, params
        self.clients = [
            Client(i, cpu, params.cap_local, budget_mw=power)
            for i, (cpu, power) in enumerate(
                zip(scenario.client_cpu.tolist(), scenario.client_power.tolist(), strict=True)
            )
        ]
        self.servers = [Server(j, cpu, params.cap_server) for j, cpu in enumerate(scenario.server_cpu.tolist())]
        self.edges = [Edge(e, cpu, params.cap_edge) for e, cpu in enumerate(scenario.edge_cpu.tolist())]
        self.cloud = Cloud(params.edges, params.cloud_ghz, params.cap_cloud)
        self.nodes = [*self.clients, *self.servers, *self.edges, self.cloud]
        self.wire = scenario.wire.tolist()  # [Ne, Ne + 1] m
        self.largest_mb = float(scenario.task_size.max()) or 1.0
        self.largest_work = float(scenario.task_work.max()) or 1.0
        self.generated = np.asarray(scenario.task_count).tolist()  # [T, Nc] tasks, with those beyond J
        self._tasks = self._make_tasks()  # [T][Nc] lists
        self.demands = {}  # (slot, client) -> Mbit/s expected, kept by the indexed form only

    def _make_tasks(self) -> list[list[list[Task]]]:
        found = self.scenario
        sizes, densities, rates, means = (
            array.tolist() for array in (found.task_size, found.task_cycles, found.task_rate, found.task_mean)
        )
        return [
            [
                [
                    Task(client, sizes[t][i][j], densities[t][i][j], rates[t][i][j], means[t][i][j] * BITS * 1e-6)
                    for j in range(min(self.generated[t][i], self.params.tasks))
                ]
                for i, client in enumerate(self.clients)
            ]
            for t in range(self.params.slots)
        ]

    def enter(self, t: int):
        """Puts everything where slot t finds it; after the last slot there are no tasks."""
        if t == self.params.slots:
            for client in self.clients:
                client.tasks = []
            return
        found = self.scenario
        access, choices, covered = found.access[t].tolist(), found.server_of[t].tolist(), found.covered[t].tolist()
        self.gain_v2v = found.gain_v2v[t].tolist()  # [Nc][Ns]
        self.gain_v2i = found.gain_v2i[t].tolist()  # [Nc][Ne]
        for i, client in enumerate(self.clients):
            client.tasks = self._tasks[t][i]
            client.access = self.edges[access[i]] if access[i] >= 0 else None
            client.choices = [self.servers[j] if j >= 0 else None for j in choices[i]]
            client.covering = [edge for edge in self.edges if covered[i][edge.index]]
