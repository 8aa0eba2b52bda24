"""Objective of the search: success less cost and drift of one slot, while single tasks move.

The drift is linear in what each queue gains and loses: prices say what a Mbit costs in each. So the value of a slot
falls apart into terms of single tasks (success, wire cost, arrivals), of nodes (their CPU block, whose best value has a
closed form) and of receivers (all that they hear: W log2(1 + sum g P / N0)). A task that moves changes two nodes and at
most a few receivers, and only these are computed again.

Constants, which no action changes, are left out of every value.
"""

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Mapping

import numpy as np

from ..params import FAMILIES, MBIT, SWITCHES, WAITING, WEIGHTS, Params
from ..slot.numbering import Array, Numbering
from .views import View

FULL = 250.0  # Mbit in a queue at which a quadratic price is what the reward charges a bit of weight 1; found by trial
POWER_STEPS = 11  # shares of a client's power that V2V gets: 0, 0.1, .., 1; V2I gets the rest
CPUS = ("lc", "vc", "ec", "cc")  # families of nodes, in their order
MUST_BE_CLEAR = (  # switches that change the reward of a slot
    "interference_in_mw", "rate_weighted_bits", "slot_tandem", "one_bit_wire", "unsigned_drift", "running_scales",
    "silent_overflow", "idle_last_slot", "silent_ties", "rejected_transmit", "all_covering_pay", "idle_power_paid",
    "empty_places_idle",
)  # fmt: skip


Prices = Mapping[str, np.ndarray]  # of a Mbit in each queue of a family, in the shape of the family
Pricing = Callable[[View, int], Prices]  # of an environment of a batch


def linear(view: View, b: int) -> Prices:
    """Prices under which the value of a slot is its physical reward."""
    unit = 0.5 * (1.0 + WAITING) / float(view.tables.load[view.index[b]])
    return {name: np.full(view.queues[name].shape[1:], unit * weight) for name, weight in WEIGHTS.items()}


def quadratic(view: View, b: int) -> Prices:
    """Prices of half the sum of squared backlogs as Lyapunov function: that of a queue rises with its backlog."""
    unit = 0.5 / float(view.tables.load[view.index[b]])
    return {name: unit * on_host(view.queues[name][b]) / FULL for name in FAMILIES}


class Plan:
    """Targets and powers of one environment's slot, every task local at first; CPU blocks are always the best ones.

    Tasks are numbered in the order of admission, receivers are servers and then edges.

    Args:
        view: of the batch.
        b: the environment.
        pricing: of the drift.
    """

    def __init__(self, view: View, b: int, pricing: Pricing = linear):
        self.params = p = view.params
        require_physical(p)
        self.prices = pricing(view, b)
        Nc, Ns, Ne = p.clients, p.servers, p.edges
        slot_names = ("count", "size", "cycles", "access", "server_of", "snr")
        self.tables = {name: on_host(view.now(name)[b]) for name in slot_names}
        self.tables |= {name: on_host(view.always(name)[b]) for name in ("cpu", "power", "wire")}
        self.queues = {name: on_host(view.queues[name][b]) for name in FAMILIES}
        wire_scale = [float(view.tables.cost_scale[name][view.index[b]]) for name in ("i2i", "i2c")]
        density = float(view.always("density")[b])

        self.paid = cost_shares(p)
        self.wire_price = np.array([self.paid["i2i"] / wire_scale[0]] * Ne + [self.paid["i2c"] / wire_scale[1]])

        first = int(view.first_client[b])
        order = [(first + place) % Nc for place in range(Nc)]
        self.tasks = [(i, j) for i in order for j in range(int(view.tasks[b, i]))]
        self.client = [i for i, _ in self.tasks]
        self.options = [self._options(i) for i in range(Nc)]  # of a client: (option, node, receiver)
        self.if_admitted = self._task_terms()

        self.cap = view.tables.numbering.cap.tolist()
        self.nowhere = view.tables.numbering.nodes
        self._node_terms(density)
        self._receiver_terms()
        self.powers = [POWER_STEPS // 2] * Nc
        self.value = 0.0
        self.choice = [0] * len(self.tasks)
        self.lists: list[list[int]] = [[] for _ in range(self.nowhere + 1)]  # tasks aimed at a node, in order
        self.members: list[dict[int, int]] = [{} for _ in range(Ns + Ne)]  # clients heard: admitted tasks of each,
        self.sent: list[dict[int, float]] = [{} for _ in range(Ns + Ne)]  # and what of its signal arrives, over noise
        self.heard: list[set[int]] = [set() for _ in range(Nc)]  # receivers that hear a client,
        self.bands = [[0, 0] for _ in range(Nc)]  # servers and edges among them
        self._known_levels: dict[tuple[int, int], list[float]] = {}
        for task in range(len(self.tasks)):
            self.lists[self.options[self.client[task]][0][1]].append(task)
        for node in range(Nc):
            for task in self.lists[node][: self.cap[node]]:
                self.value += self._admit(task, 1)
        self.node_values = [self._node_value(node) for node in range(self.nowhere)]
        self.value += sum(self.node_values)

    # ---- terms

    def _options(self, i: int) -> list[tuple[int, int, int]]:
        """Options that differ, local first: (option, node or none, receiver or -1)."""
        p, nowhere = self.params, len(self.tables["cpu"])
        Nc, Ns, S = p.clients, p.servers, p.server_choices
        access = int(self.tables["access"][i])
        found = [(0, i, -1)]
        found += [(k + 1, Nc + r, r) for k, r in enumerate(self.tables["server_of"][i].tolist()) if r >= 0]
        for e in range(p.edges + 1):
            reached = access >= 0
            found.append((1 + S + e, Nc + Ns + e if reached else nowhere, Ns + access if reached else -1))
        return found

    def _task_terms(self) -> list[list[float]]:
        """Worth of each option of each task if it is admitted there."""
        S, price = self.params.server_choices, self.prices
        success = 0.5 / max(float(self.tables["count"].sum()), 1e-6)
        admitted = []
        for i, j in self.tasks:
            size, a = float(self.tables["size"][i, j]), int(self.tables["access"][i])
            mbit, terms = MBIT * size, []
            for option, _, receiver in self.options[i]:
                paid = 0.0
                if option == 0:
                    paid = price["lc"][i] * mbit
                elif option <= S:
                    paid = price["v2v"][receiver] * mbit
                elif a >= 0:
                    e = option - 1 - S
                    paid = price["v2i"][a, e] * mbit + self.wire_price[e] * size * self.tables["wire"][a, e]
                terms.append(success - float(paid))
            admitted.append(terms)
        return admitted

    def _node_terms(self, density: float) -> None:
        """Of each node: backlog, drift per Mbit served, price of the whole CPU, Mbit/s times cycles/bit."""
        self.backlog, self.worth = (
            np.concatenate([of[name] for name in CPUS]).tolist() for of in (self.queues, self.prices)
        )
        self.price = [self.paid[name] for name in CPUS for _ in self.queues[name]]
        self.speed = (1e3 * self.tables["cpu"]).tolist()  # Mcycles/s
        self.density = density
        self.cycles = [float(self.tables["cycles"][i, j]) for i, j in self.tasks]

    def _receiver_terms(self) -> None:
        """Of each receiver: (what a unit of flow takes off, at most so many units, units per Mbit/s)."""
        p, Q, price = self.params, self.queues, self.prices
        self.flow = []
        for r in range(p.servers):
            rise = float(price["vc"][r] - price["v2v"][r])
            self.flow.append((rise, float(Q["v2v"][r]), p.bandwidth_v2v_mhz))
        for a in range(p.edges):
            queued, onward = Q["v2i"][a], np.append(price["i2i"][a], price["i2c"][a])
            onward[a] = price["ec"][a]
            total = float(queued.sum())
            rise = float((onward - price["v2i"][a]) @ queued) / total if total > 0 else 0.0
            self.flow.append((rise, total, p.bandwidth_v2i_mhz))
        self.signal = (self.tables["snr"] * self.tables["power"]).tolist()  # [receiver][client] at full power

    # ---- values

    def _node_value(self, node: int) -> float:
        return self._best_block(node)[0]

    def _best_block(self, node: int) -> tuple[float, int]:
        """(value, place that gets the whole CPU, -1 for none) of the best CPU block of a node."""
        if self.worth[node] <= 0.0:
            return 0.0, -1
        cap, listed = self.cap[node], self.lists[node]
        place, least = -1, math.inf
        for k, task in enumerate(listed[:cap]):
            if self.cycles[task] < least:
                place, least = k, self.cycles[task]
        if len(listed) < cap and self.density < least:
            place, least = len(listed), self.density
        served = self.speed[node] / least  # and the price is of the part that is used
        gain = min(self.backlog[node], served) * (self.worth[node] - self.price[node] / served)
        return (gain, place) if gain > 0.0 else (0.0, -1)

    def _levels(self, i: int, receiver: int) -> list[float]:
        """Signal over noise of a client at a receiver, for each power."""
        known = self._known_levels.get((i, receiver))
        if known is None:
            steps = [power / (POWER_STEPS - 1) for power in range(POWER_STEPS)]
            whole = self.signal[receiver][i]
            known = [whole * step for step in (steps if receiver < self.params.servers else reversed(steps))]
            self._known_levels[i, receiver] = known
        return known

    def _receiver_value(self, receiver: int) -> float:
        """Of what leaves the queue of a receiver, with those it hears."""
        rise, queued, bandwidth = self.flow[receiver]
        if rise == 0.0 or queued <= 0.0:
            return 0.0
        return -rise * min(queued, bandwidth * math.log2(1.0 + sum(self.sent[receiver].values())))

    def _power_paid(self, i: int, power: int) -> float:
        v2v, v2i = self.bands[i]
        steps = (power if v2v else 0) + (POWER_STEPS - 1 - power if v2i else 0)
        return self.paid["power"] * steps / (POWER_STEPS - 1)

    def power_values(self, i: int) -> list[float]:
        """The value of what depends on a client's power, for each power."""
        values = [-self._power_paid(i, power) for power in range(POWER_STEPS)]
        for receiver in self.heard[i]:
            rise, queued, bandwidth = self.flow[receiver]
            if rise != 0.0 and queued > 0.0:
                sent = self.sent[receiver]
                others = 1.0 + sum(sent.values()) - sent[i] if len(sent) > 1 else 1.0
                for power, level in enumerate(self._levels(i, receiver)):
                    values[power] -= rise * min(queued, bandwidth * math.log2(others + level))
        return values

    # ---- moves

    def _admit(self, task: int, sign: int) -> float:
        """Count a task in (1) or out (-1) of those admitted where it is aimed at; the change of value, nodes apart."""
        i = self.client[task]
        _, _, receiver = self.options[i][self.choice[task]]
        change = sign * self.if_admitted[task][self.choice[task]]
        if receiver < 0:
            return change
        members, before = self.members[receiver], self.members[receiver].get(i, 0)
        members[i] = before + sign
        if before and before + sign:
            return change
        power = self.powers[i]
        change += self._power_paid(i, power) - self._receiver_value(receiver)
        self.bands[i][receiver >= self.params.servers] += sign
        if before:
            del members[i], self.sent[receiver][i]
            self.heard[i].discard(receiver)
        else:
            self.sent[receiver][i] = self._levels(i, receiver)[power]
            self.heard[i].add(receiver)
        return change - self._power_paid(i, power) + self._receiver_value(receiver)

    def move(self, task: int, chosen: int) -> None:
        """Aim a task at another of its client's options; others may be admitted, or no longer be, because of it."""
        options = self.options[self.client[task]]
        source, goal = options[self.choice[task]][1], options[chosen][1]
        if source != self.nowhere:
            listed, cap = self.lists[source], self.cap[source]
            place = bisect_left(listed, task)
            if place < cap:
                self.value += self._admit(task, -1)
            del listed[place]
            if place < cap <= len(listed):
                self.value += self._admit(listed[cap - 1], 1)
            self._revalue(source)
        self.choice[task] = chosen
        if goal != self.nowhere:
            listed, cap = self.lists[goal], self.cap[goal]
            insort(listed, task)
            place = bisect_left(listed, task)
            if place < cap:
                if len(listed) > cap:
                    self.value += self._admit(listed[cap], -1)
                self.value += self._admit(task, 1)
            self._revalue(goal)

    def _revalue(self, node: int) -> None:
        value = self._node_value(node)
        self.value += value - self.node_values[node]
        self.node_values[node] = value

    def set_power(self, i: int, power: int) -> None:
        if self.heard[i] and power != self.powers[i]:
            values = self.power_values(i)
            self.value += values[power] - values[self.powers[i]]
            for receiver in self.heard[i]:
                self.sent[receiver][i] = self._levels(i, receiver)[power]
        self.powers[i] = power

    def best_power(self, i: int) -> tuple[float, int]:
        """(gain over the present power, power) of a client's best power while all else stays."""
        if not self.heard[i]:
            return 0.0, self.powers[i]
        values = self.power_values(i)
        best = max(range(POWER_STEPS), key=values.__getitem__)
        gain = values[best] - values[self.powers[i]]
        return (gain, best) if gain > 0.0 else (0.0, self.powers[i])

    # ---- in and out

    def start_from(self, target: np.ndarray) -> None:
        """Aim the tasks as an action's targets [Nc, J] say."""
        for task, (i, j) in enumerate(self.tasks):
            found = [chosen for chosen, (option, _, _) in enumerate(self.options[i]) if option == target[i, j]]
            if found and found[0] != self.choice[task]:
                self.move(task, found[0])

    def action(self, numbering: Numbering) -> tuple[np.ndarray, np.ndarray]:
        """Targets [Nc, J] and shares [A1] of the assignment."""
        p = self.params
        target = np.zeros((p.clients, p.tasks), dtype=np.int32)
        for task, (i, j) in enumerate(self.tasks):
            target[i, j] = self.options[i][self.choice[task]][0]
        share = np.zeros(p.share_length, dtype=np.float32)
        first = on_host(numbering.place_share[numbering.place_rank == 0])
        for node in range(self.nowhere):
            place = self._best_block(node)[1]
            if place >= 0:
                share[first[node] + place] = 1.0
        powers = np.array(self.powers)
        share[on_host(numbering.power_share)] = np.stack([powers, POWER_STEPS - 1 - powers], axis=-1)
        return target, share


def cost_shares(params: Params) -> dict[str, float]:
    """The part of the reward that the whole cost of one entity takes, by kind of cost."""
    paid, Nc, Ne = 0.5 * 0.7 * params.penalty_weight * 0.25, params.clients, params.edges
    of_clients = dict.fromkeys(("power", "lc"), paid / (3 * Nc))
    of_edges = dict.fromkeys(("i2i", "i2c", "ec"), paid / (3 * Ne))
    return of_clients | of_edges | {"vc": paid / params.servers, "cc": paid}


def require_physical(params: Params) -> None:
    """ValueError where the reward of a slot is not the physical one."""
    for name in MUST_BE_CLEAR:
        if getattr(params, name):
            number = SWITCHES.index(name) + 1
            raise ValueError(f"{name}=True (Q{number}): this needs the physical reward; use {name}=False")


def on_host(array: Array) -> np.ndarray:
    """An array of NumPy or CuPy as one of NumPy."""
    return array.get() if hasattr(array, "get") else array
