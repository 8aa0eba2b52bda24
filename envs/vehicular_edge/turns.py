"""Offloading as discrete choices: the clients of a slot decide one after another, in the order of admission.

A client aims each of its tasks, smallest first, at one of a few options that mean the same for every client, so that
one network serves all of them, and it sees what those before it have left. CPU blocks are not chosen: a node gives its
whole CPU to the place that serves most bits, as the policies that search do.

Axes: B environments, Nc clients, J task slots, S server choices, K options, Ne edges among them.
"""

import numpy as np
import torch

from .params import FAMILIES, MBIT, WAITING, WEIGHTS, Params
from .policies.objective import require_physical
from .policies.views import View

POWER_CHOICES = 6  # shares of a client's power that V2V gets, 0 to 1 in equal steps; V2I gets the rest
PER_GHZ = 10.0 / 3.0  # Mbit/s at 300 cycles/bit; this and what follows brings what is seen to the order of 1
TASK_MBIT, DENSITY, QUEUE_MBIT, LOG_SIGNAL = 20.0, 300.0, 300.0, 20.0
OF_CLIENTS = (  # tables [B, Nc, ..] that turns read, in their order
    *("_option_node", "_option_code", "_option_receiver", "_option_there"),
    *("_link", "_fixed", "_exists", "_real", "_by_size", "_mbit", "_density"),
)


def options(params: Params) -> int:
    """K: the client itself, servers by their link, the access edge, other edges by what they have to do, the cloud.

    Without an access edge its option leads nowhere: a task is dropped.
    """
    return 1 + params.server_choices + params.edges + 1


def power_choices(params: Params) -> int:
    """POWER_CHOICES, and no more than options, in whose number a power is chosen."""
    return min(POWER_CHOICES, options(params))


class Turns:
    """The turns of one slot.

    Args:
        view: of a batch at the beginning of the slot, preset `physical`.
        device: of all tensors.

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
        self._turn = 0
        self._queues = {name: self._of(view.queues[name]).float() for name in FAMILIES}
        self._cpu = self._always("cpu") * PER_GHZ  # [B, nodes] Mbit/s
        self._load = self._always("load")  # [B] Mbit that a slot brings
        self._look_at_tasks()
        self._look_at_options()
        self._fixed = self._fixed_part()
        for name in OF_CLIENTS:
            setattr(self, name, reordered(getattr(self, name), self._client))
        self._powers = torch.arange(options(p), device=self.device) < power_choices(p)
        self._earlier = torch.ones(p.tasks, p.tasks, dtype=torch.bool, device=self.device).tril(-1)  # [of, than] a task
        self._ways = torch.arange(len(self._weights), device=self.device)
        self._cap = self._of(view.tables.numbering.cap).long()
        self._option_cap = self._cap[self._option_node]
        self._room = self._cap.repeat(B, 1)  # [B, nodes + 1] tasks that a node still admits
        self._signal = torch.zeros(B, p.servers + p.edges + 1, device=self.device)  # over noise, at each receiver
        self._arrived = torch.zeros(B, 3, device=self.device)  # Mbit admitted: at clients, servers, edges and cloud
        self._node = torch.full((B, p.clients, p.tasks), self._nowhere, device=self.device)  # where a task is admitted
        self._rank = torch.zeros_like(self._node)  # its place there
        self._target = torch.zeros(B, p.clients, p.tasks, dtype=torch.int32, device=self.device)
        self._power = torch.zeros(B, p.clients, 2, device=self.device)

    @property
    def over(self) -> bool:
        return self._turn == self.params.clients

    def observe(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Observation [B, n] and action mask [B, (J + 1) K] of the client whose turn it is."""
        turn, p = self._turn, self.params
        node, receiver = self._option_node[:, turn], self._option_receiver[:, turn]
        room = self._room.gather(1, node)
        share = room / self._option_cap[:, turn].clamp(min=1)
        heard = self._signal.gather(1, receiver[:, : p.server_choices + 2]).log1p() / LOG_SIGNAL
        seen = torch.cat([self._fixed[:, turn], self._arrived / self._load[:, None], share, heard], dim=1)
        allowed = self._option_there[:, turn] & ((room > 0) | (node == self._nowhere))
        mask = torch.empty(len(node), p.tasks + 1, len(self._powers), dtype=torch.bool, device=self.device)
        torch.logical_and(allowed[:, None], self._exists[:, turn, :, None], out=mask[:, :-1])
        mask[:, -1] = self._powers
        mask[..., 0] = True
        return seen, mask.flatten(1)

    def choose(self, action: torch.Tensor) -> torch.Tensor:
        """Takes the choices int64 [B, J + 1] of the client whose turn it is: an option for each task, and a power.

        Returns:
            [B], what they add to the slot's reward at once: success, less the drift of what arrives.
        """
        turn, p = self._turn, self.params
        by_size = self._by_size[:, turn]
        chosen = torch.empty_like(by_size).scatter_(1, by_size, action[:, : p.tasks])  # in the order of task slots
        real = self._real[:, turn]
        node = self._option_node[:, turn].gather(1, chosen)
        alike = chosen[:, :, None] == chosen[:, None]  # [B, J, J]
        before = (alike & self._earlier & real[:, None]).sum(dim=-1)
        room = self._room.gather(1, node)
        admitted = real & (before < room)
        self._node[:, turn] = torch.where(admitted, node, self._nowhere)
        self._rank[:, turn] = self._option_cap[:, turn].gather(1, chosen) - room + before
        self._target[:, turn] = self._option_code[:, turn].gather(1, chosen)
        self._room.scatter_add_(1, node, -admitted.long())

        to_v2v = action[:, p.tasks : p.tasks + 1] / (power_choices(p) - 1)
        self._power[:, turn] = torch.cat([to_v2v, 1.0 - to_v2v], dim=1)
        sends = torch.zeros_like(self._option_cap[:, turn]).scatter_add_(1, chosen, admitted.long()) > 0  # [B, K]
        first_up = 1 + p.server_choices
        sends = torch.cat([sends[:, :first_up], sends[:, first_up:].any(dim=1, keepdim=True)], dim=1)
        power = torch.cat([to_v2v.expand(-1, first_up), 1.0 - to_v2v], dim=1)
        # Options share a receiver only where nobody listens, and add zeros there, so their order does not matter.
        receiver = self._option_receiver[:, turn, : first_up + 1]
        self._signal.scatter_add_(1, receiver, self._link[:, turn] * sends * power)

        mbit = self._mbit[:, turn] * admitted
        way = (chosen > 0).long() + (chosen >= first_up)
        self._arrived += ((way[..., None] == self._ways) * mbit[..., None]).sum(dim=1)
        self._turn += 1
        return (self._success[:, None] * admitted - self._price[:, None] * self._weights[way] * mbit).sum(dim=1)

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
        """Tasks [B, Nc, J], and what each brings if it is admitted."""
        exists = self._real = self._of(self._view.exists)
        self._mbit, self._density = self._now("size") * MBIT, self._now("cycles")
        self._by_size = torch.where(exists, self._mbit, np.inf).argsort(dim=-1, stable=True)
        self._exists = exists.gather(2, self._by_size)  # smallest first
        self._success = 0.5 / self._now("count").sum(dim=1).clamp(min=1e-6)
        self._price = 0.5 * (1.0 + WAITING) / self._load  # of a Mbit that arrives, before its weight
        self._weights = torch.tensor([WEIGHTS[name] for name in ("lc", "v2v", "v2i")], device=self.device)

    def _look_at_options(self) -> None:
        """Options [B, Nc, K]: node, code in an action, receiver, whether there is one; links [B, Nc, S + 2]."""
        p, Q = self.params, self._queues
        Nc, Ns, Ne, S = p.clients, p.servers, p.edges, p.server_choices
        signal = self._now("snr").transpose(1, 2) * self._always("power")[..., None]  # [B, Nc, Ns + Ne] at full power
        server, access = self._of(self._view.now("server_of")).long(), self._of(self._view.now("access")).long()
        found = server >= 0
        link = torch.where(found, signal.gather(2, server.clamp(min=0)), -1.0)
        by_link = link.argsort(dim=-1, descending=True, stable=True)
        self._server, self._found, link = (part.gather(2, by_link) for part in (server.clamp(min=0), found, link))
        self._covered, self._access = (access >= 0)[..., None], access.clamp(min=0)[..., None]
        on_wire = Q["i2i"].gather(1, self._access.expand(-1, -1, Ne)) / p.edge_wire_mbps
        self._ec = Q["ec"] / self._cpu[:, Nc + Ns : Nc + Ns + Ne]
        delay = (on_wire + self._ec[:, None]).scatter(2, self._access, np.inf)
        others = delay.argsort(dim=-1, stable=True)[..., : Ne - 1]
        self._edges = torch.cat([self._access, others], dim=-1)  # [B, Nc, Ne]
        self._on_wire = on_wire.gather(2, self._edges)

        own = torch.arange(Nc, device=self.device).expand(len(access), Nc)[..., None]
        beyond = torch.cat([self._edges, torch.full_like(own, Ne)], dim=-1)
        at_servers = torch.where(self._found, Nc + self._server, self._nowhere)
        self._option_node = torch.cat(
            [own, at_servers, torch.where(self._covered, Nc + Ns + beyond, self._nowhere)], dim=-1
        )
        self._option_code = torch.cat([0 * own, 1 + by_link, 1 + S + beyond], dim=-1).int()
        nobody = Ns + Ne
        up = torch.where(self._covered, Ns + self._access, nobody).expand_as(beyond)
        self._option_receiver = torch.cat(
            [torch.full_like(own, nobody), torch.where(self._found, self._server, nobody), up], dim=-1
        )
        there = self._covered.expand_as(beyond).clone()
        there[..., 0] = True
        self._option_there = torch.cat([torch.ones_like(self._covered), self._found, there], dim=-1)
        to_edge = torch.where(self._covered, signal.gather(2, Ns + self._access), 0.0)
        self._link = torch.cat([torch.zeros_like(to_edge), link.clamp(min=0.0), to_edge], dim=-1)

    def _fixed_part(self) -> torch.Tensor:
        """The part of an observation that no turn before it changes, [B, Nc, n]."""
        p, Q, B = self.params, self._queues, self._view.size
        Nc, Ns = p.clients, p.servers
        time = self._of(self._view.t).float() / p.slots
        backlogs = [Q[name].flatten(1).sum(dim=1) / self._load for name in FAMILIES]
        of_slot = torch.stack([time, *backlogs], dim=-1)[:, None].expand(-1, Nc, -1)
        turn = torch.linspace(0, 1, Nc, device=self.device).expand(B, -1)
        turn = torch.zeros_like(turn).scatter(1, self._client, turn)
        own = torch.stack([turn, Q["lc"] / self._cpu[:, :Nc], self._cpu[:, :Nc] / 100.0], dim=-1)
        sizes = self._mbit.gather(2, self._by_size) / TASK_MBIT * self._exists
        densities = self._density.gather(2, self._by_size) / DENSITY * self._exists
        speed = self._cpu[:, Nc : Nc + Ns]
        servers = [
            part.gather(1, self._server.flatten(1)).view(B, Nc, -1) * self._found
            for part in (Q["v2v"] / QUEUE_MBIT, Q["vc"] / speed, speed / 100.0)
        ]
        edges, speed = self._edges.flatten(1), self._cpu[:, Nc + Ns : -1]
        access = self._access[..., 0]
        uplinked = [
            (Q["v2i"].sum(dim=-1).gather(1, access) / QUEUE_MBIT)[..., None],
            self._ec.gather(1, edges).view(B, Nc, -1),
            (speed / 1000.0).gather(1, edges).view(B, Nc, -1),
            self._on_wire,
            (Q["i2c"].gather(1, access) / p.cloud_wire_mbps)[..., None],
            (Q["cc"][:, :1] / self._cpu[:, -1:]).expand(-1, Nc)[..., None],
        ]
        covered = self._covered.float()
        links = self._link.log1p() / LOG_SIGNAL
        return torch.cat(
            [of_slot, own, sizes, densities, *servers, covered, *(part * covered for part in uplinked), links], dim=-1
        )


def reordered(table: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """A table [B, Nc, ..] with its columns in the order of indices [B, Nc]."""
    rows = order + order.shape[1] * torch.arange(len(order), device=order.device)[:, None]
    return table.flatten(0, 1).index_select(0, rows.flatten()).view_as(table)
