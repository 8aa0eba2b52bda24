"""Offloading as discrete choices: the clients of a slot decide one after another, in the order of admission.

A client keeps each of its tasks, smallest first, or sends it to one of the few nodes that charge least (`charges.py`).
Option k is the k-th cheapest node for every client, so that one network serves all of them, and it sees what those
before it have left. Another node that charges more than a task brings is no option for that task. CPU blocks are not
chosen: a node gives its whole CPU to the place that serves most bits, as the policies that search do.

Axes: B environments, Nc clients, J task slots, S server choices, K options, Ne edges among them.
"""

import numpy as np
import torch

from .charges import Charges, charges
from .params import FAMILIES, MBIT, WAITING, WEIGHTS, Params
from .policies.objective import CPUS, cost_shares, require_physical
from .policies.views import Action, Noise, View, where_its_view_is

NODES = 8  # that a client chooses among, itself apart
POWERS = (0.01, 0.1, 0.5, 0.9)  # shares of a client's power that V2V gets; V2I gets the rest
# What brings what is seen to the order of 1.
TASK_MBIT, DENSITY, QUEUE_MBIT, CPU_MBPS, LOG_SIGNAL = 20.0, 300.0, 300.0, 3000.0, 20.0
NONE, V2V, V2I = range(3)  # the link of an option
OF_CLIENTS = (  # tables [B, Nc, ..] that turns read, in their order
    *("_option_node", "_option_code", "_option_receiver", "_option_there", "_option_link", "_option_charge"),
    *("_option_signal", "_fixed", "_elsewhere", "_affordable", "_real", "_by_size", "_mbit", "_density"),
)


def options(params: Params) -> int:
    """K: the client itself, then the nodes that charge it least, of its servers, all edges and the cloud.

    It is at least 4, so that a power can be chosen in the same number.
    """
    return 1 + min(NODES, params.server_choices + params.edges + 1)


@where_its_view_is
def random_turns(view: View, noise: Noise) -> Action:
    """Random choices under the masks of turns, each as likely as the others: a policy like those of `policies`.

    It tells what the masks alone are worth.
    """
    turns, p = Turns(view, view.device), view.params
    drawn = noise.uniform(view.xp, p.clients * (p.tasks + 1))
    drawn = torch.as_tensor(drawn, device=view.device).view(view.size, p.clients, p.tasks + 1, 1)
    while not turns.over:
        allowed = turns.observe()[1].view(view.size, p.tasks + 1, -1)
        rank = drawn[:, turns.turn] * allowed.sum(dim=-1, keepdim=True)  # of the choice among those that are allowed
        turns.choose((allowed.cumsum(dim=-1) > rank).int().argmax(dim=-1))
    return {name: view.xp.asarray(array) for name, array in turns.action().items()}


class Turns:
    """The turns of one slot.

    Args:
        view: of a batch at the beginning of the slot, preset `physical`.
        device: of all tensors.

    Attributes:
        turn: how many clients have decided.
        potential: [B], of the queues at the beginning of the slot, 0 once the episode is over. A slot pays its reward
            and what the potential gains.

    Raises:
        ValueError: the reward of a slot is not the physical one.
    """

    def __init__(self, view: View, device: torch.device | str = "cpu"):
        require_physical(view.params)
        self.params, self.device, self._view = view.params, torch.device(device), view
        p, B = view.params, view.size
        self._nowhere = view.tables.numbering.nodes
        places = torch.arange(p.clients, device=self.device)
        self._client = (self._of(view.first_client).long()[:, None] + places) % p.clients  # [B, Nc] of each turn
        self.turn = 0
        self._queues = {name: self._of(view.queues[name]).float() for name in FAMILIES}
        self._speeds = 1e3 * self._always("cpu") / self._always("density")[:, None]  # [B, nodes] Mbit/s of CPUs
        self._load = self._always("load")  # [B] Mbit that a slot brings
        self._unit = 0.5 / self._load
        self._cap = self._of(view.tables.numbering.cap).long()
        self._costs = cost_shares(p)
        slopes = charges(self._queues, self._speeds, self._load, p)
        self.potential = self._unit * slopes.potential * self._of(view.t < p.slots)
        self._look_at_tasks()
        self._fixed = torch.cat([*self._seen_of_slot(), *self._look_at_options(slopes)], dim=-1)
        for name in OF_CLIENTS:
            setattr(self, name, reordered(getattr(self, name), self._client))
        self._option_cap = self._cap[self._option_node]
        self._powers = torch.tensor(POWERS, device=self.device)
        self._is_power = torch.arange(options(p), device=self.device) < len(POWERS)
        self._earlier = torch.ones(p.tasks, p.tasks, dtype=torch.bool, device=self.device).tril(-1)  # [of, than] a task
        self._links = torch.arange(3, device=self.device)
        self._room = self._cap.repeat(B, 1)  # [B, nodes + 1] tasks that a node still admits
        self._signal = torch.zeros(B, p.servers + p.edges + 1, device=self.device)  # over noise, at each receiver
        self._arrived = torch.zeros(B, 3, device=self.device)  # Mbit admitted, by link
        self._node = torch.full((B, p.clients, p.tasks), self._nowhere, device=self.device)  # where a task is admitted
        self._rank = torch.zeros_like(self._node)  # its place there
        self._target = torch.zeros(B, p.clients, p.tasks, dtype=torch.int32, device=self.device)
        self._power = torch.zeros(B, p.clients, 2, device=self.device)

    @property
    def over(self) -> bool:
        return self.turn == self.params.clients

    def observe(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Observation [B, n] and action mask [B, (J + 1) K] of the client whose turn it is."""
        turn = self.turn
        room = self._room.gather(1, self._option_node[:, turn])
        share = room / self._option_cap[:, turn].clamp(min=1)
        heard = self._signal.gather(1, self._option_receiver[:, turn]).log1p() / LOG_SIGNAL
        seen = torch.cat([self._fixed[:, turn], self._arrived / self._load[:, None], share, heard], dim=1)
        allowed = self._option_there[:, turn] & (room > 0)
        mask = torch.empty(len(room), self.params.tasks + 1, len(self._is_power), dtype=torch.bool, device=self.device)
        torch.logical_and(allowed[:, None], self._affordable[:, turn], out=mask[:, :-1])
        mask[:, -1] = self._is_power
        mask[..., 0] = True
        return seen, mask.flatten(1)

    def choose(self, action: torch.Tensor) -> torch.Tensor:
        """Takes choices int64 [B, J + 1] that the mask allows: an option for each of the client's tasks, and a power.

        Returns:
            [B], what they add at once to what the slot pays: success, less charges and what power costs.
        """
        turn, p = self.turn, self.params
        by_size, aims = self._by_size[:, turn], action[:, : p.tasks]
        dropped, nowhere = self._drop(aims)
        # In the order of task slots, in which they are admitted.
        chosen, dropped = (torch.empty_like(table).scatter_(1, by_size, table) for table in (aims, dropped))
        real = self._real[:, turn] & ~dropped
        node = self._option_node[:, turn].gather(1, chosen)
        alike = node[:, :, None] == node[:, None]  # [B, J, J]
        before = (alike & self._earlier & real[:, None]).sum(dim=-1)
        room = self._room.gather(1, node)
        admitted = real & (before < room)
        self._node[:, turn] = torch.where(admitted, node, self._nowhere)
        self._rank[:, turn] = self._option_cap[:, turn].gather(1, chosen) - room + before
        self._target[:, turn] = torch.where(dropped, nowhere, self._option_code[:, turn].gather(1, chosen))
        self._room.scatter_add_(1, node, -admitted.long())

        to_v2v = self._powers[action[:, p.tasks :]]
        self._power[:, turn] = torch.cat([to_v2v, 1.0 - to_v2v], dim=1)
        link = self._option_link[:, turn]
        sends = torch.zeros_like(link).scatter_add_(1, chosen, admitted.long()) > 0  # [B, K]
        up = sends & (link == V2I)
        sends &= ~up | (up.cumsum(dim=1) == 1)  # the access edge hears a client once
        power = torch.where(link == V2V, to_v2v, 1.0 - to_v2v)
        spent = (power * (sends & (link == V2V))).amax(dim=1) + (power * (sends & up)).amax(dim=1)
        # Of options with one receiver at most one adds more than zero, so the order of additions does not matter.
        self._signal.scatter_add_(1, self._option_receiver[:, turn], self._option_signal[:, turn] * sends * power)

        mbit = self._mbit[:, turn] * admitted
        self._arrived += ((link.gather(1, chosen)[..., None] == self._links) * mbit[..., None]).sum(dim=1)
        self.turn += 1
        charge = self._unit[:, None] * self._option_charge[:, turn].gather(1, chosen)
        paid = (self._success[:, None] * admitted - charge * mbit).sum(dim=1)
        return paid - self._costs["power"] * spent

    def _drop(self, aims: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Masks [B, J] of the tasks that are dropped, smallest first, and the code [B, 1] that drops them.

        A client's CPU keeps the smallest tasks that it admits, of those whose success pays its charge. The others aim
        at a node that admits nothing, since it is full or beyond an access edge that there is not. Without one nothing
        can be dropped, and the CPU admits the first tasks that stay.
        """
        stays = aims == 0
        kept = stays & self._affordable[:, self.turn, :, 0]
        kept &= kept.cumsum(dim=1) <= self.params.cap_local
        closed = (self._room.gather(1, self._elsewhere[:, self.turn]) == 0).int()
        return stays & ~kept & (closed.amax(dim=1, keepdim=True) > 0), 1 + closed.argmax(dim=1, keepdim=True).int()

    def action(self) -> dict[str, torch.Tensor]:
        """The action of the slot in integer form, once its turns are over."""
        p, numbering, nodes = self.params, self._view.tables.numbering, self._nowhere
        first = self._of(numbering.place_share[numbering.place_rank == 0]).long()  # [nodes]
        node, density = self._node.flatten(1), self._density.flatten(1)
        least = torch.full((len(node), nodes + 1), np.inf, device=self.device)
        least.scatter_reduce_(1, node, density, "amin")
        # An empty place serves the backlog at the mean density.
        empty = (self._room[:, :nodes] > 0) & (self._always("density")[:, None] < least[:, :nodes])
        at = node.clamp(max=nodes - 1)
        lightest = (node < nodes) & (density == least.gather(1, node)) & ~empty.gather(1, at)
        share = torch.zeros(len(node), p.share_length + 1, device=self.device)  # the last one is waste
        share.scatter_(1, torch.where(lightest, first[at] + self._rank.flatten(1), p.share_length), 1.0)
        taken = self._cap[:nodes] - self._room[:, :nodes]
        share.scatter_(1, torch.where(empty, first + taken, p.share_length), 1.0)
        share = share[:, : p.share_length].contiguous()
        turn = self._client.argsort(dim=1)  # of each client
        share[:, self._of(numbering.power_share)] = reordered(self._power, turn)
        return {"target": reordered(self._target, turn), "share": share}

    # ---- what is known at the beginning of the slot

    def _of(self, array) -> torch.Tensor:
        return torch.as_tensor(array, device=self.device)

    def _now(self, name: str) -> torch.Tensor:
        return self._of(self._view.now(name)).float()

    def _always(self, name: str) -> torch.Tensor:
        return self._of(self._view.always(name)).float()

    def _look_at_tasks(self) -> None:
        """Tasks [B, Nc, J]."""
        self._real = self._of(self._view.exists)
        self._mbit, self._density = self._now("size") * MBIT, self._now("cycles")
        self._by_size = torch.where(self._real, self._mbit, np.inf).argsort(dim=-1, stable=True)
        self._exists = self._real.gather(2, self._by_size)  # smallest first
        self._success = 0.5 / self._now("count").sum(dim=1).clamp(min=1e-6)  # of a task that is admitted

    def _seen_of_slot(self) -> list[torch.Tensor]:
        """Parts [B, Nc, n] of the observation: the slot, the client and its tasks."""
        p, Q, B = self.params, self._queues, self._view.size
        time = self._of(self._view.t).float() / p.slots
        backlogs = [Q[name].flatten(1).sum(dim=1) / self._load for name in FAMILIES]
        of_slot = torch.stack([time, *backlogs], dim=-1)[:, None].expand(-1, p.clients, -1)
        turn = torch.linspace(0, 1, p.clients, device=self.device).expand(B, -1)
        turn = torch.zeros_like(turn).scatter(1, self._client, turn)[..., None]
        sizes, densities = self._mbit.gather(2, self._by_size), self._density.gather(2, self._by_size)
        return [of_slot, turn, sizes / TASK_MBIT * self._exists, densities / DENSITY * self._exists]

    def _look_at_options(self, slopes: Charges) -> list[torch.Tensor]:
        """Tables [B, Nc, K] of the options; returns what a client sees of them, each as large."""
        p, Q = self.params, self._queues
        Nc, Ns, S = p.clients, p.servers, p.server_choices
        nodes, nobody = self._nowhere, Ns + p.edges
        signal = self._now("snr").transpose(1, 2) * self._always("power")[..., None]  # [B, Nc, Ns + Ne] at full power
        server, access = self._of(self._view.now("server_of")).long(), self._of(self._view.now("access")).long()
        found, covered = server >= 0, (access >= 0)[..., None]
        server, access = server.clamp(min=0), access.clamp(min=0)[..., None]
        own = torch.arange(Nc, device=self.device).expand_as(access[..., 0])[..., None]
        beyond = torch.arange(p.edges + 1, device=self.device).expand(*access.shape[:2], -1)  # edges and the cloud

        def at(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
            return table.gather(1, index.flatten(1)).view_as(index)

        def joined(of_own, of_servers, of_beyond) -> torch.Tensor:
            """[B, Nc, 1 + S + Ne + 1] of numbers, or of tensors that can be expanded to so many."""
            parts = zip((of_own, of_servers, of_beyond), (own, server, beyond), strict=True)
            return torch.cat([filled(part, like) for part, like in parts], dim=-1)

        there, link = joined(True, found, covered), joined(NONE, V2V, V2I)
        cpu = joined(own, Nc + server, Nc + Ns + beyond)  # the node that computes
        heard = joined(0.0, signal.gather(2, server), signal.gather(2, Ns + access)) * there
        onward = (slopes.beyond + self._wires()).gather(1, access.expand_as(beyond))
        charge = joined(slopes.own[..., None], at(slopes.server, server), onward)
        charge += WAITING * self._of([WEIGHTS["lc"], WEIGHTS["v2v"], WEIGHTS["v2i"]])[link]
        before = joined(0.0, at(Q["v2v"], server), at(Q["v2i"].sum(dim=-1), access))  # Mbit that wait for the link
        backlog = torch.cat([Q[name] for name in CPUS], dim=1)
        # A task for a server that is not found stays, one for an edge that is not in reach is dropped.
        node = torch.where(there, cpu, torch.where(link == V2V, own, nodes))
        self._elsewhere = node[..., 1:]
        tables = {
            "node": node,
            "code": joined(0, 1 + torch.arange(S, device=self.device), 1 + S + beyond).int(),
            "receiver": torch.where(there, joined(nobody, server, Ns + access), nobody),
            "there": there,
            "link": link,
            "charge": charge,
            "signal": heard,
        }
        shown = [
            *(charge, there, link == V2V, cpu == Nc + Ns + access, cpu == nodes - 1),
            *(before / QUEUE_MBIT, at(backlog / self._speeds, cpu), at(self._speeds, cpu) / CPU_MBPS),
            heard.log1p() / LOG_SIGNAL,
        ]
        least = torch.where(there, charge, np.inf)[..., 1:].argsort(dim=-1, stable=True)[..., : options(p) - 1]
        picked = torch.cat([torch.zeros_like(own), 1 + least], dim=-1)
        for name, table in tables.items():
            setattr(self, f"_option_{name}", table.gather(2, picked))
        sizes = self._mbit.gather(2, self._by_size)
        charged = self._unit[:, None, None, None] * self._option_charge[:, :, None] * sizes[..., None]
        self._affordable = self._exists[..., None] & (charged <= self._success[:, None, None, None])
        return [(table * there).gather(2, picked) for table in shown]

    def _wires(self) -> torch.Tensor:
        """[B, Ne, Ne + 1] what the wire from an access edge to an edge or the cloud costs, as a charge of a Mbit."""
        scale, Ne = self._view.tables.cost_scale, self.params.edges
        per_mb_m = [self._costs[name] / self._of(scale[name][self._view.index]).float() for name in ("i2i", "i2c")]
        per_mb_m = torch.stack([per_mb_m[0]] * Ne + [per_mb_m[1]], dim=-1)
        return self._always("wire") * (per_mb_m / (MBIT * self._unit[:, None]))[:, None]


def filled(part: torch.Tensor | float, like: torch.Tensor) -> torch.Tensor:
    """A tensor that is expanded, or a number that is repeated, to the shape of another."""
    if isinstance(part, torch.Tensor):
        return part.expand_as(like)
    return torch.full(like.shape, part, device=like.device)


def reordered(table: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """A table [B, Nc, ..] with its columns in the order of indices [B, Nc]."""
    rows = order + order.shape[1] * torch.arange(len(order), device=order.device)[:, None]
    return table.flatten(0, 1).index_select(0, rows.flatten()).view_as(table)
