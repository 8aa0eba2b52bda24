"""Walks of a batch, node by node, as torch operations (README.md, 5.1 and 5.2).

Axes: B walks, N nodes, P places of a list.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from ...params import Params
from .problems import Answers, Nodes, places

NEVER = 2**60  # of a list's order: later than anything
GONE = -1  # of a walk: no node


class Walks:
    """B walks that have begun at the depot, under the mask that `params` ask for.

    Args:
        travel: [Z, Z] int32 ticks.

    Attributes:
        at, clock, load: [B] int64, int32, int32.
        visited: [B, N] bool, true also of requests that are not there.
    """

    def __init__(self, params: Params, travel: Tensor, nodes: Nodes):
        B, N = nodes.zone.shape
        self.params, self.nodes, self.travel, self.zones = params, nodes, travel.flatten(), len(travel)
        self.device, self.index = travel.device, torch.arange(N, device=travel.device)
        self.zone, self.due, self.visited = nodes.zone.long(), nodes.latest.clone(), ~nodes.there
        self.visited[:, 0] = True
        self.requests = nodes.there[:, 1:].sum(1) // (2 if params.paired else 1)
        self.pickup = self.index % 2 == 1 if params.paired else self.index > 0
        most = max((N - 1) // 2, 1) if params.paired else 1
        places = 1 if params.lookahead_mask and params.one_obligation else min(params.capacity, most)
        self.riders = torch.zeros(
            B, places, dtype=torch.int64, device=self.device
        )  # drop-offs, soonest due first; 0: none
        self.at, self.clock = torch.zeros(B, dtype=torch.int64, device=self.device), self.whole(B)
        self.load, self.ended, self.stuck = self.whole(B), self.whole(B).bool(), self.whole(B).bool()
        self.stranded = torch.zeros_like(self.visited)
        self.chosen: list[Tensor] = []

    def whole(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.int32, device=self.device)

    @property
    def over(self) -> Tensor:
        return self.ended | self.stuck | ((self.at == 0) & self.visited.all(1))

    def leg(self, start: Tensor, end: Tensor) -> Tensor:
        """Travel times between nodes, [B, k] each."""
        return self.travel[self.zone.gather(1, start) * self.zones + self.zone.gather(1, end)]

    def legs(self) -> Tensor:
        """Travel times [B, N] from where each walk is."""
        return self.travel[self.zone.gather(1, self.at[:, None]) * self.zones + self.zone]

    # ---- masks

    def allowed(self) -> Tensor:
        """True of the nodes that may be next, [B, N]; a walk that is over, or stuck, may go to the depot."""
        p, nodes = self.params, self.nodes
        arrival = self.clock[:, None] + self.legs()
        start, fits = torch.maximum(arrival, nodes.earliest), self.load[:, None] + nodes.demand <= p.capacity
        ready = self.pickup | self.visited.roll(1, 1)
        fits = fits if p.lookahead_mask else fits | ~self.pickup
        may = ~self.visited & (arrival <= self.due) & ready & fits
        may &= self.reaches_next(start) if p.lookahead_mask else self.completes(start)
        any_node = may.any(1)
        home = ~any_node if p.lookahead_mask else (self.at != 0) & (self.riders[:, 0] == 0)
        self.stuck |= ~any_node & ~home & ~self.over
        over = self.over
        may[:, 0] = home | over
        may[:, 1:] &= ~over[:, None]
        return may

    def due_of(self, start: Tensor, pickup: Tensor) -> Tensor:
        """Latest times [B, k] of the drop-offs of rides that start so at the nodes before them."""
        latest = self.nodes.latest.gather(1, (pickup + 1).clamp(max=self.visited.shape[1] - 1))
        ride = self.params.max_ride_ticks
        return torch.minimum(latest, start + ride) if ride else latest

    def order(self, due: Tensor, node: Tensor) -> Tensor:
        """Place in a list: by (latest time, node), with `lookahead_mask` by the latest time alone."""
        key = due.long() if self.params.lookahead_mask else due.long() * (self.visited.shape[1] + 1) + node
        return torch.where(node > 0, key, NEVER)

    def completes(self, start: Tensor) -> Tensor:
        """True of nodes [B, N] after which all on board, and the depot, can be reached in time."""
        B, N = start.shape
        nodes, self_index = self.nodes, self.index.expand(B, N)
        clock, here = start + nodes.service, self_index
        paired = self.params.paired
        own = torch.where(self.pickup, self_index + 1, 0).expand(B, N) if paired else torch.zeros_like(here)
        own_due = self.due_of(start, self_index) if paired else self.due
        riders, limits = self.riders, self.due.gather(1, self.riders)
        before = (self.order(limits, riders)[:, None] < self.order(own_due, own)[..., None]).sum(-1)  # [B, N]
        fine = torch.ones_like(start, dtype=torch.bool)
        for place in range(riders.shape[1] + 1 if paired else 0):
            # The merged list of riders and one's own drop-off: at its place that one, after it all one place later.
            late = (before < place).long()
            index = (place - late).clamp(max=riders.shape[1] - 1)
            at_own, end = before == place, (place - late) >= riders.shape[1]
            next_node = torch.where(at_own, own, riders.gather(1, index).masked_fill(end, 0))
            limit = torch.where(at_own, own_due, limits.gather(1, index))
            there = (next_node > 0) & (next_node != self_index)
            arrival = clock + self.leg(here, next_node)
            fine &= ~there | (arrival <= limit)
            served = torch.maximum(arrival, nodes.earliest.gather(1, next_node)) + nodes.service.gather(1, next_node)
            clock, here = torch.where(there, served, clock), torch.where(there, next_node, here)
        return fine & (clock + self.leg(here, torch.zeros_like(here)) <= self.params.horizon_ticks)

    def reaches_next(self, start: Tensor) -> Tensor:
        """True of nodes [B, N] after which the most urgent listed drop-off besides, or else the depot, is in reach."""
        B, N = start.shape
        first = self.riders[:, :1].expand(B, N)
        second = self.riders[:, 1:2].expand(B, N) if self.riders.shape[1] > 1 else torch.zeros_like(first)
        goal = torch.where(first == self.index, second, first)
        arrival = start + self.nodes.service + self.leg(self.index.expand(B, N), goal)
        return arrival <= torch.where(goal > 0, self.due.gather(1, goal), self.params.horizon_ticks)

    # ---- selections

    def select(self, node: Tensor):
        """Goes to nodes [B] int64 that are allowed."""
        p, place = self.params, node[:, None]
        home = node == 0
        start = torch.maximum(
            self.clock[:, None] + self.leg(self.at[:, None], place), self.nodes.earliest.gather(1, place)
        )
        self.ended |= home & (self.at == 0) & p.lookahead_mask
        if p.lookahead_mask and not p.early_end:
            self.strand(home & ~self.ended)
        riders = torch.where(self.riders == place, 0, self.riders)
        boards = self.pickup[node] & p.paired
        own = torch.where(boards, node + 1, 0)[:, None]
        if p.paired:
            due = torch.where(boards[:, None], self.due_of(start, place), self.due.gather(1, own))
            self.due.scatter_(1, own, due)
            riders = torch.cat([riders, own], 1)
        keys = self.order(self.due.gather(1, riders), riders)
        self.riders = riders.gather(1, keys.argsort(dim=1, stable=True))[:, : self.riders.shape[1]]
        self.at = node
        self.clock = torch.where(home, 0, (start + self.nodes.service.gather(1, place))[:, 0])
        self.load = torch.where(home, 0, self.load + self.nodes.demand.gather(1, place)[:, 0])
        self.visited.scatter_(1, place, True)
        self.chosen.append(node)

    def strand(self, home: Tensor):
        """Those who are still on board at a return: their drop-offs count as visited, and the list is emptied."""
        if self.params.paired:
            delivered = self.visited.roll(-1, 1)
            left = self.pickup & self.visited & ~delivered & self.nodes.there & home[:, None]
            self.stranded |= left
            self.visited |= left.roll(1, 1)
        self.riders = torch.where(home[:, None], 0, self.riders)

    # ---- answers

    def answers(self) -> Answers:
        """The answers of walks that are over, riders who were stranded each in a vehicle of their own."""
        p, B, N = self.params, *self.visited.shape
        length = places(p, N)
        walk = torch.stack(self.chosen, 1) if self.chosen else torch.zeros(B, 0, dtype=torch.int64, device=self.device)
        walk = torch.where(self.stranded.gather(1, walk), GONE, walk)
        if p.paired and p.lookahead_mask:
            alone = torch.stack([self.index, self.index + 1, torch.zeros_like(self.index)], 1)  # [N, 3]
            alone = torch.where(self.stranded.unsqueeze(-1), alone, GONE).flatten(1)
            walk = torch.cat([walk, alone], 1)
        walk = without(walk, walk != GONE)
        walk = without(walk, (walk > 0) | (pad(walk, (1, 0))[:, :-1] > 0))  # of depots in a row the first
        walk = pad(walk, (1, length))[:, :length]
        cost = self.leg(walk[:, :-1], walk[:, 1:]).sum(1)
        vehicles = ((walk[:, 1:] == 0) & (walk[:, :-1] > 0)).sum(1)
        extra = (vehicles - p.fleet_size).clamp(min=0)
        cost = cost + (extra * p.extra_vehicle_ticks if p.fleet == "soft" else 0)
        ok = ~self.stuck & (self.visited.all(1) | (p.lookahead_mask and p.early_end))
        ok &= (extra == 0) | (p.fleet != "hard")
        return Answers(cost.int(), walk.short(), vehicles.int(), ok)


def without(walk: Tensor, kept: Tensor) -> Tensor:
    """Rows [B, k] of what is kept, moved together, then zeros."""
    order = kept.int().argsort(dim=1, descending=True, stable=True)
    return torch.where(kept, walk, 0).gather(1, order)
