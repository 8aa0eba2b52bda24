"""One episode of the original: what a slot does to the queues, and what it costs.

Headings name the sections of README.md; (Qn) marks a switch.
"""

import itertools
import math

from ..params import DRIFTS, FAMILIES, WAITING, WEIGHTS, Params, queue_shapes, state_shapes
from .admission import FLOOR, Admission
from .nodes import Client, Cloud, Edge, Network, Node, Queue, Server, Task, VirtualQueue, distinct_clients
from .radio import User, sic_rates, wire_rate
from .scales import POWER_COSTS, Scales


class Episode:
    """Slots 0 to T-1 of a scenario, from empty queues.

    Args:
        indexed: keep lists of what a node was assigned, and means, instead of looking for them whenever they are
            needed. Changes no bit of any result.
    """

    def __init__(self, network: Network, params: Params, scales: Scales, indexed: bool):
        self.network, self.params, self.scales, self.indexed = network, params, scales, indexed
        self.assigned = Admission(network, params, indexed)
        self.scenario = network.scenario
        self.queues = {name: [Queue() for _ in range(math.prod(shape))] for name, shape in queue_shapes(params).items()}
        self.virtual = {
            name: [VirtualQueue() for _ in range(math.prod(shape))]
            for name, shape in state_shapes(params).items()
            if name == "delay" or name.startswith("cpu_")
        }
        self.outcome: dict | None = None  # of the last slot
        self.enter(0)

    def enter(self, t: int):
        """Goes to the start of slot t."""
        self.t = t
        self.network.enter(t)

    # ---- offloading (2.1, 2.2)

    def offloading(self, target: list[list[int]], share: list[float]):
        """Divides the shares and admits the tasks: options [Nc][J], shares [A1]."""
        self.assigned.divide(share)
        self.assigned.admit(target, self.t)
        self.outcome = self.assigned.outcome(self.network.generated[self.t])

    # ---- radio (2.3)

    def noma(self):
        """Rates of everybody who sends, at every receiver."""
        p, net = self.params, self.network
        rules = p.noise_watt, p.interference_in_mw, p.silent_ties  # Q2, Q18
        for server in net.servers:
            users = [User(c.index, net.gain_v2v[c.index][server.index], 1e-3 * c.power_v2v) for c in server.senders]
            server.rates = sic_rates(users, p.bandwidth_v2v_mhz, *rules)
        for edge in net.edges:
            users = [User(c.index, net.gain_v2i[c.index][edge.index], 1e-3 * c.power_v2i) for c in edge.senders]
            edge.rates = sic_rates(users, p.bandwidth_v2i_mhz, *rules)

    def _edge_wire(self, a: Edge, e: Edge) -> float:
        p = self.params
        return wire_rate(p.edge_wire_mbps, p.edge_wire_mps, self.network.wire[a.index][e.index], p.one_bit_wire)

    def _cloud_wire(self, a: Edge) -> float:
        p = self.params
        metres = self.network.wire[a.index][p.edges]
        return wire_rate(p.cloud_wire_mbps, p.cloud_wire_mps, metres, p.one_bit_wire)

    # ---- queues (2.4, 2.6)

    def queue_update(self):
        """Real queues, then virtual ones; the latter see the backlogs at the start of the slot."""
        p = self.params
        if p.idle_last_slot and self.t == p.slots - 1:  # Q14
            for queue in itertools.chain.from_iterable(self.queues.values()):
                queue.flow(0.0, 0.0)
        else:
            self._vehicle_flows()
            if p.slot_tandem:  # Q4
                self._pooled_flows()
            else:
                self._routed_flows()
        for client, queue in zip(self.network.clients, self.virtual["delay"], strict=True):
            if client.tasks:
                paths = [self._path_backlog(task) for task in client.tasks]
                queue.flow(sum(paths) / len(paths), self._demand(client))
            else:
                queue.flow(0.0, 0.0)
        if p.cpu_virtual_queues:  # Q9
            self._cpu_constraints()
        self.scales.raise_backlogs(self.reported())

    def _offered(self, tasks: list[Task]) -> float:
        """Mbit that tasks bring into a slot."""
        if self.params.rate_weighted_bits:  # Q3
            return sum(task.mbit * task.rate for task in tasks)
        return sum(task.mbit for task in tasks)

    def _service(self, node: Node) -> float:
        """Mbit that a node computes in a slot."""
        tasks = self.assigned.at(node)
        gigabit = sum(node.cpu * weight / task.density for task, weight in zip(tasks, node.weights, strict=False))
        if not self.params.empty_places_idle:  # Q23
            gigabit += node.cpu * sum(node.weights[len(tasks) :]) / self.scenario.mean_density
        return 1e3 * gigabit

    def _vehicle_flows(self):
        Q, tandem = self.queues, self.params.slot_tandem
        for client in self.network.clients:
            Q["lc"][client.index].flow(self._offered(self.assigned.at(client)), self._service(client))
        for server in self.network.servers:
            link = Q["v2v"][server.index]
            link.flow(self._offered(self.assigned.at(server)), sum(server.rates.values()))
            arrived = min(link.arrived, link.capacity) if tandem else link.departed
            Q["vc"][server.index].flow(arrived, self._service(server))

    def _pooled_flows(self):
        """Edges and cloud as published: a stage passes on what arrives at it and fits, whatever its backlog (Q4)."""
        Q, cloud = self.queues, self.network.cloud
        for edge in self.network.edges:
            up, wire = Q["v2i"][edge.index], Q["i2i"][edge.index]
            up.flow(self._offered(self.assigned.uploaded_at(edge)), sum(edge.rates.values()))
            foreign = [task for task in self.assigned.at(edge) if task.uplink is not edge]
            wire.flow(
                sum(client.access.rates[client.index] for client in distinct_clients(foreign)),
                sum(self._edge_wire(task.uplink, edge) for task in foreign),
            )
            arrived = min(up.arrived, up.capacity) + min(wire.arrived, wire.capacity)
            Q["ec"][edge.index].flow(arrived, self._service(edge))
        tasks, wire = self.assigned.at(cloud), Q["i2c"][0]
        wire.flow(
            sum(client.access.rates[client.index] for client in distinct_clients(tasks)),
            sum(self._cloud_wire(task.uplink) for task in tasks),
        )
        Q["cc"][0].flow(min(wire.arrived, wire.capacity), self._service(cloud))

    def _routed_flows(self):
        """Edges and cloud with a queue per route: a stage passes on what leaves it, so that bits are conserved."""
        Q, net, Ne = self.queues, self.network, self.params.edges
        for a in net.edges:
            row = Q["v2i"][a.index * (Ne + 1) : (a.index + 1) * (Ne + 1)]  # by destination
            tasks = [task for task in self.assigned.uploaded_at(a) if task.admitted]
            waiting = sum(queue.backlog for queue in row)
            capacity = sum(a.rates.values())
            for d, queue in enumerate(row):
                arrived = self._offered([task for task in tasks if task.node.index == d])
                queue.flow(arrived, capacity * queue.backlog / waiting if waiting > 0.0 else 0.0)
            for e in net.edges:
                capacity = self._edge_wire(a, e) if e is not a else 0.0
                Q["i2i"][a.index * Ne + e.index].flow(row[e.index].departed if e is not a else 0.0, capacity)
            Q["i2c"][a.index].flow(row[Ne].departed, self._cloud_wire(a))
        for e in net.edges:
            arrived = Q["v2i"][e.index * (Ne + 1) + e.index].departed
            arrived += sum(Q["i2i"][a * Ne + e.index].departed for a in range(Ne))
            Q["ec"][e.index].flow(arrived, self._service(e))
        Q["cc"][0].flow(sum(wire.departed for wire in Q["i2c"]), self._service(net.cloud))

    def _path_backlog(self, task: Task) -> float:
        """Mbit that wait at the start of the slot on the way that a task was to take."""
        Q, Ne, node, access = self.queues, self.params.edges, task.node, task.client.access
        match node:
            case Client():
                return Q["lc"][node.index].start
            case Server():
                return Q["v2v"][node.index].start + Q["vc"][node.index].start
        compute = Q["cc"][0].start if isinstance(node, Cloud) else Q["ec"][node.index].start
        if self.params.slot_tandem:  # Q4
            if isinstance(node, Cloud):
                return Q["i2c"][0].start + compute
            return max(Q["v2i"][node.index].start, Q["i2i"][node.index].start) + compute
        if access is None:
            return compute
        uplink = sum(queue.start for queue in Q["v2i"][access.index * (Ne + 1) : (access.index + 1) * (Ne + 1)])
        wire = Q["i2c"][access.index] if isinstance(node, Cloud) else Q["i2i"][access.index * Ne + node.index]
        return uplink + wire.start + compute

    def _demand(self, client: Client) -> float:
        """Mbit/s that a client expects: mean rate times mean size of its tasks."""
        key = self.t, client.index
        if self.indexed and key in self.network.demands:
            return self.network.demands[key]
        count = len(client.tasks)
        demand = sum(task.rate for task in client.tasks) / count * (sum(task.mean for task in client.tasks) / count)
        if self.indexed:
            self.network.demands[key] = demand
        return demand

    def _used(self, node: Node) -> float:
        """GHz that a node gives to the tasks it admitted."""
        tasks = self.assigned.at(node)
        return sum(node.cpu * weight for _, weight in zip(tasks, node.weights, strict=False))

    def _cpu_constraints(self):
        net, V = self.network, self.virtual
        for name, nodes in (("cpu_lc", net.clients), ("cpu_vc", net.servers), ("cpu_ec", net.edges)):
            for node in nodes:
                V[name][node.index].flow(self._used(node), node.cpu)
        V["cpu_cc"][0].flow(net.cloud.cpu * net.cloud.weights[0], net.cloud.cpu)

    def reported(self) -> dict[str, list[float]]:
        """Backlog [Mbit] of each family as it is observed; routed queues summed over destination or origin."""
        Q, Ne = self.queues, self.params.edges
        backlogs = {family: [queue.backlog for queue in Q[family]] for family in FAMILIES}
        if not self.params.slot_tandem:  # Q4
            v2i, i2i = backlogs["v2i"], backlogs["i2i"]
            backlogs["v2i"] = [sum(v2i[a * (Ne + 1) : (a + 1) * (Ne + 1)]) for a in range(Ne)]
            backlogs["i2i"] = [sum(i2i[e::Ne]) for e in range(Ne)]
            backlogs["i2c"] = [sum(backlogs["i2c"])]
        return backlogs

    # ---- cost, drift, reward (2.5, 2.6)

    def cost(self) -> float:
        """The mean of what each kind of entity spends, relative to the most that it spends."""
        net, Q = self.network, self.queues
        self.costs = {
            "power_v2v": self._power([c.power_v2v for c in net.clients], net.servers),
            "power_v2i": self._power([c.power_v2i for c in net.clients], net.edges),
            "lc": [self._busy(node, queue) for node, queue in zip(net.clients, Q["lc"], strict=True)],
            "vc": [self._busy(node, queue) for node, queue in zip(net.servers, Q["vc"], strict=True)],
            "ec": [self._busy(node, queue) for node, queue in zip(net.edges, Q["ec"], strict=True)],
            "i2i": [sum(self._haul(task, edge, to_cloud=False) for task in self._paid_by(edge)) for edge in net.edges],
            "i2c": [sum(self._haul(task, edge, to_cloud=True) for task in self._paid_by(edge)) for edge in net.edges],
            "cc": [self._busy(net.cloud, Q["cc"][0])],
        }
        calibration = self.scenario.calibration
        relative = {kind: self.scales.cost(kind, values, net, calibration) for kind, values in self.costs.items()}
        clients, edges = (
            sum(sum(relative[kind]) for kind in kinds) / (3 * count)
            for kinds, count in (((*POWER_COSTS, "lc"), len(net.clients)), (("ec", "i2i", "i2c"), len(net.edges)))
        )
        servers, cloud = sum(relative["vc"]) / len(net.servers), relative["cc"][0]
        self.outcome["cost"] = 0.25 * (clients + servers + edges + cloud)
        self.outcome["energy"] = self._energy()
        return self.outcome["cost"]

    def _power(self, spent: list[float], receivers: list) -> list[float]:
        """mW per client; nothing if it does not send (Q22)."""
        return spent if self.params.idle_power_paid else self._sent(spent, receivers)

    def _sent(self, spent: list[float], receivers: list) -> list[float]:
        senders = {client.index for receiver in receivers for client in receiver.senders}
        return [power if i in senders else 0.0 for i, power in enumerate(spent)]

    def _energy(self) -> float:
        """J of a slot: what senders radiate, and 1e-9 J a cycle."""
        net = self.network
        sent = self._sent([c.power_v2v for c in net.clients], net.servers)
        sent += self._sent([c.power_v2i for c in net.clients], net.edges)
        return 1e-3 * sum(sent) + sum(sum(self.costs[kind]) for kind in ("lc", "vc", "ec", "cc"))

    def _busy(self, node: Node, queue: Queue) -> float:
        """GHz that are paid: of the tasks admitted and of empty places that serve (Q23), as far as used (Q22)."""
        given = self._used(node)
        if not self.params.empty_places_idle:
            given += node.cpu * sum(node.weights[len(self.assigned.at(node)) :])
        if self.params.idle_power_paid:
            return given
        return given * (queue.departed / queue.capacity) if queue.capacity > 0.0 else 0.0

    def _paid_by(self, edge: Edge) -> list[Task]:
        """Tasks for another place whose way an edge pays: all it covers, or those it sent on (Q21)."""
        if not self.params.all_covering_pay:
            return [task for task in self.assigned.uploaded_at(edge) if task.admitted]
        covered = [client for client in self.network.clients if edge in client.covering]
        return [task for client in covered for task in self.assigned.aimed_by(client)]

    def _haul(self, task: Task, edge: Edge, to_cloud: bool) -> float:
        """MB times metres from an edge to where a task is to run."""
        if isinstance(task.node, Cloud) != to_cloud:
            return 0.0
        return task.size_mb * self.network.wire[edge.index][task.node.index]

    def drift(self) -> float:
        """Lyapunov drift: as published (Q10), or of all that waits, with a charge for waiting."""
        calibration = self.scenario.calibration
        if self.params.unsigned_drift:
            total = 0.0
            for family in DRIFTS:
                queues = self.virtual["delay"] if family == "delay" else self.queues[family]
                total += sum(self.scales.drift(family, queues, calibration)) / len(queues)
            self.outcome["drift"] = 0.2 * total
        else:
            before, after = self._lyapunov("start"), self._lyapunov("backlog")
            self.outcome["drift"] = (after - before + WAITING * after) / calibration.load
        return self.outcome["drift"]

    def _lyapunov(self, part: str) -> float:
        """L: the weighted Mbit of all real queues, at the start of the slot or after it."""
        return sum(
            weight * sum(getattr(queue, part) for queue in self.queues[family]) for family, weight in WEIGHTS.items()
        )

    def reward(self) -> float:
        p, (success, cost, drift) = self.params, (self.outcome[name] for name in ("success", "cost", "drift"))
        if p.unsigned_drift:  # Q10
            burden = 0.7 * math.log(p.penalty_weight * max(cost, FLOOR)) + 0.3 * math.log(max(drift, FLOOR))
        else:
            burden = 0.7 * p.penalty_weight * cost + drift
        self.outcome["reward"] = 0.5 * success - 0.5 * burden
        return self.outcome["reward"]
