"""Walks that are made node by node, and the nodes that a mask allows next (README.md, 5.1 and 5.2)."""

from bisect import bisect_right, insort
from collections.abc import Callable

from .problem import Answer, Problem, answer


class Walker:
    """A walk under the mask that cannot come to a dead end.

    A node is allowed if, after it is served, all who are on board can be taken to their drop-offs in the order of
    (latest time, node) on time, and the depot reached in time.
    """

    def __init__(self, problem: Problem):
        self.problem = problem
        self.visited = [True] + [False] * (problem.nodes - 1)
        self.due = list(problem.latest)  # [N], of a drop-off as `max_ride` limits it
        self.routes: list[list[int]] = []  # that are over
        self.riders: list[tuple[int, int]] = []  # (latest time, drop-off) of all on board, sorted
        self.leave_depot()

    def leave_depot(self):
        self.at = self.clock = self.load = 0
        self.route: list[int] = []

    @property
    def over(self) -> bool:
        return self.at == 0 and all(self.visited)

    def start(self, node: int) -> int:
        """Time at which service would start."""
        return max(self.clock + self.problem.leg(self.at, node), self.problem.earliest[node])

    def on_time(self, node: int) -> bool:
        return self.clock + self.problem.leg(self.at, node) <= self.due[node]

    def candidates(self) -> list[int]:
        """Pickups that fit, and drop-offs of those on board, in ascending order."""
        p, capacity = self.problem, self.problem.params.capacity
        boarded = {node for _, node in self.riders}
        return [
            j
            for j in range(1, p.nodes)
            if (not self.visited[j] and self.load + p.demand[j] <= capacity if p.is_pickup(j) else j in boarded)
        ]

    def allowed(self) -> list[int]:
        """Nodes that may be next, ascending; 0 is the depot."""
        depot = [0] if self.at and not self.riders else []
        return depot + [j for j in self.candidates() if self.on_time(j) and self.completes(j)]

    def completes(self, node: int) -> bool:
        """True if all on board, and the depot, can be reached in time after a node."""
        p, clock = self.problem, self.start(node)
        due = [rider for rider in self.riders if rider[1] != node]
        if p.params.paired and p.is_pickup(node):
            insort(due, (p.due(node, clock), node + 1))
        clock += p.service[node]
        for latest, dropoff in due:
            clock += p.leg(node, dropoff)
            if clock > latest:
                return False
            clock = max(clock, p.earliest[dropoff]) + p.service[dropoff]
            node = dropoff
        return clock + p.leg(node, 0) <= p.params.horizon_ticks

    def select(self, node: int):
        """Goes to a node that is allowed."""
        if node == 0:
            self.return_to_depot()
            return
        p, start = self.problem, self.start(node)
        if p.params.paired and p.is_pickup(node):
            self.due[node + 1] = p.due(node, start)
            self.board(node + 1)
        else:
            self.leave(node)
        self.at, self.clock = node, start + p.service[node]
        self.load += p.demand[node]
        self.visited[node] = True
        self.route.append(node)

    def board(self, dropoff: int):
        insort(self.riders, (self.due[dropoff], dropoff))

    def leave(self, dropoff: int):
        self.riders = [rider for rider in self.riders if rider[1] != dropoff]

    def return_to_depot(self):
        self.routes.append(self.route)
        self.leave_depot()

    def answer(self) -> Answer:
        return answer(self.problem, self.routes)


class LookaheadWalker(Walker):
    """A walk under the published mask, which looks one drop-off ahead (`lookahead_mask`).

    Its riders are a list of obligations that outlives a return to the depot.
    """

    def __init__(self, problem: Problem):
        super().__init__(problem)
        self.stranded: list[int] = []  # pickups whose riders are served alone at the end
        self.ended = False

    @property
    def over(self) -> bool:
        return self.ended or super().over

    def candidates(self) -> list[int]:
        """Nodes not visited: pickups that fit, and drop-offs whose pickup was visited by any vehicle."""
        p, capacity = self.problem, self.problem.params.capacity
        return [
            j
            for j in range(1, p.nodes)
            if not self.visited[j] and self.load + p.demand[j] <= capacity and (p.is_pickup(j) or self.visited[j - 1])
        ]

    def allowed(self) -> list[int]:
        return [j for j in self.candidates() if self.on_time(j) and self.completes(j)] or [0]

    def completes(self, node: int) -> bool:
        """True if the most urgent obligation besides the node, or else the depot, can be reached in time after it."""
        p, clock = self.problem, self.start(node) + self.problem.service[node]
        for latest, dropoff in self.riders:
            if dropoff != node:
                return clock + p.leg(node, dropoff) <= latest
        return clock + p.leg(node, 0) <= p.params.horizon_ticks

    def board(self, dropoff: int):
        """Lists an obligation after others of equal time; the list has one place (`one_obligation`), or Q."""
        params, latest = self.problem.params, self.due[dropoff]
        self.riders.insert(bisect_right(self.riders, latest, key=lambda rider: rider[0]), (latest, dropoff))
        del self.riders[1 if params.one_obligation else params.capacity :]

    def return_to_depot(self):
        """Ends a route; a second depot in a row ends the walk."""
        if not self.route:
            self.ended = True
            return
        if not self.problem.params.early_end:
            self.strand()
        if self.route:
            self.routes.append(self.route)
        self.leave_depot()

    def strand(self):
        """Takes those who are still on board out of the route, and empties the list."""
        if self.problem.params.paired:
            left = [node for node in self.route if self.problem.is_pickup(node) and not self.visited[node + 1]]
            for pickup in left:
                self.visited[pickup + 1] = True
            self.route = [node for node in self.route if node not in left]
            self.stranded += left
        self.riders = []

    def answer(self) -> Answer:
        """The answer, riders who were stranded each in a vehicle of their own."""
        alone = [[pickup, pickup + 1] for pickup in sorted(self.stranded)]
        return answer(self.problem, self.routes + alone, self.problem.params.early_end or all(self.visited))


def walked(problem: Problem, choose: Callable[[Walker, list[int]], int]) -> Answer:
    """The answer of a walk whose next node is `choose(walker, allowed)`."""
    walker = LookaheadWalker(problem) if problem.params.lookahead_mask else Walker(problem)
    while not walker.over:
        allowed = walker.allowed()
        if not allowed:  # a request that cannot be served alone
            return answer(problem, walker.routes, False)
        walker.select(choose(walker, allowed))
    return walker.answer()
