"""Shares of CPU and power in a slot of the original, and the tasks that nodes admit (README.md, 2.1 and 2.2)."""

import itertools

from ..params import Params
from .nodes import Client, Edge, Network, Node, Task, distinct_clients

FLOOR = 1e-6  # what is divided by, or goes into a logarithm, is at least this


class Admission:
    """A slot's decisions.

    Args:
        indexed: keep a list of what each node was assigned, instead of looking for it whenever it is needed.
    """

    def __init__(self, network: Network, params: Params, indexed: bool):
        self.network, self.params, self.indexed = network, params, indexed

    def divide(self, share: list[float]):
        """Every block of CPU weights and every pair of power weights is divided by its sum."""
        numbers = iter(share)
        for node in self.network.nodes:
            node.weights = divided(list(itertools.islice(numbers, node.cap)))
            if isinstance(node, Client):
                v2v, v2i = divided([next(numbers), next(numbers)])
                node.power_v2v, node.power_v2i = node.budget_mw * v2v, node.budget_mw * v2i

    def admit(self, target: list[list[int]], t: int):
        """Client by client, task by task, a node admits until its cap; options [Nc][J]."""
        net, clients = self.network, self.network.clients
        first = 0 if self.params.fixed_priority else t * len(clients) // self.params.slots  # Q17
        self.order = clients[first:] + clients[:first]
        for node in net.nodes:
            node.occupied, node.admitted = 0, []
        for edge in net.edges:
            edge.uploaded = []
        for client in self.order:
            client.aimed = []
            for task, option in zip(client.tasks, target[client.index], strict=False):
                task.option, task.node = self._destination(client, option)
                self._try(task)
        self.played = [client.tasks for client in clients]
        for server in net.servers:
            server.senders = distinct_clients(self.at(server))
        for edge in net.edges:
            edge.senders = distinct_clients(self.uploaded_at(edge))

    def _destination(self, client: Client, option: int) -> tuple[int, Node]:
        """Option and node; a server that is not in range leaves the client itself."""
        S, net = self.params.server_choices, self.network
        if 1 <= option <= S and client.choices[option - 1] is not None:
            return option, client.choices[option - 1]
        if option <= S:
            return 0, client
        return option, net.cloud if option == self.params.options - 1 else net.edges[option - S - 1]

    def _try(self, task: Task):
        node, access = task.node, task.client.access
        reachable = access is not None or not node.wired
        task.admitted = reachable and node.occupied < node.cap
        sent = node.wired and (task.admitted or self.params.rejected_transmit)  # Q20
        task.uplink = access if sent else None
        node.occupied += task.admitted
        if not self.indexed:
            return
        if task.admitted:
            node.admitted.append(task)
        if task.uplink is not None:
            task.uplink.uploaded.append(task)
        if node.wired:
            task.client.aimed.append(task)

    def at(self, node: Node) -> list[Task]:
        """Tasks that a node admitted, in this order."""
        if self.indexed:
            return node.admitted
        clients = [node] if isinstance(node, Client) else self.order
        return [task for client in clients for task in client.tasks if task.admitted and task.node is node]

    def uploaded_at(self, edge: Edge) -> list[Task]:
        """Tasks that were sent to an access edge."""
        if self.indexed:
            return edge.uploaded
        return [task for client in self.order for task in client.tasks if task.uplink is edge]

    def aimed_by(self, client: Client) -> list[Task]:
        """Tasks of a client for an edge or the cloud, admitted or not."""
        if self.indexed:
            return client.aimed
        return [task for task in client.tasks if task.node.wired]

    def outcome(self, generated: list[int]) -> dict:
        """Tasks admitted of those that each client generated [Nc]: how many and how evenly, and why the others not.

        "dropped" counts tasks beyond J, beyond a cap, and without an access edge.
        """
        tasks = [task for tasks in self.played for task in tasks]
        admitted = sum(task.admitted for task in tasks)
        unreachable = sum(task.node.wired and task.client.access is None for task in tasks)
        possible = len(tasks) if self.params.silent_overflow else sum(generated)  # Q13
        shares = [
            sum(task.admitted for task in tasks) / count
            for tasks, count in zip(self.played, generated, strict=True)
            if count > 0
        ]
        squares = sum(share**2 for share in shares)
        return {
            "success": admitted / max(possible, FLOOR),
            "tasks_admitted": admitted,
            "dropped": (sum(generated) - len(tasks), len(tasks) - admitted - unreachable, unreachable),
            "jain": sum(shares) ** 2 / (len(shares) * squares) if squares > 0.0 else 1.0,
        }


def divided(block: list[float]) -> list[float]:
    """Shares that add up to 1; zeros if there is nothing to divide by."""
    total = sum(block)
    return [share / total for share in block] if total > 0.0 else [0.0] * len(block)
