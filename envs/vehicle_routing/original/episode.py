"""The model: an episode of the original, one decision after the other (README.md, 2.4)."""

from typing import NamedTuple

from ..oracles import Oracle, problem_of
from ..params import TICKS, Params
from ..scenario import Instance, Scenario
from ..windows import SHIFTS, acceptable, shifted


class Decision(NamedTuple):
    """A traveller's answer."""

    traveller: int
    action: int
    accepted: bool
    kept: list[int]  # row (zone, e, l, zone', e', l') that is routed


class Outcome(NamedTuple):
    """A decision, priced."""

    reward: float  # min, or % with reward="percent"
    accepted: bool
    shift: int  # min, accepted
    failed: bool


class Episode:
    """Requests that arrive one by one.

    Args:
        number: of the episode, from 0.
    """

    def __init__(self, params: Params, scenario: Scenario, instance: Instance, number: int):
        self.params, self.scenario, self.instance, self.number = params, scenario, instance, number
        self.decisions: list[Decision] = []
        self.answered = 0  # requests that have been priced
        self.cost = self.twin_cost = 0  # C and C', ticks
        self.walk, self.twin_walk = [0], [0]
        self.vehicles, self.failed, self.returns = 0, False, 0.0

    @property
    def traveller(self) -> int:
        """Traveller who asks next; -1 when all have been answered."""
        return self.instance.order[self.answered] if self.answered < self.params.requests else -1

    @property
    def terminated(self) -> bool:
        ends = self.failed and not self.params.stuck_after_failure
        return ends or len(self.decisions) == self.params.requests

    def step(self, action: int, oracle: Oracle) -> Outcome:
        """A decision: the traveller answers, an oracle prices all requests so far, the growth is charged."""
        decision = self.propose(action)
        self.decisions.append(decision)
        before, twin_before = self.cost, self.twin_cost
        self.failed = not self.price(oracle)
        shift = decision.accepted * int(abs(SHIFTS[action]).sum())
        reward = self.params.failure_reward
        if not self.failed:
            self.answered += 1
            reward = self.gain(before, twin_before) - self.params.shift_penalty * shift
        self.returns += reward
        return Outcome(reward, decision.accepted, shift, self.failed)

    def propose(self, action: int) -> Decision:
        """The answer to a proposed shift; one that is refused leaves the windows as they were offered."""
        p, scenario, i = self.params, self.scenario, self.traveller
        threshold = scenario.threshold[i, self.instance.trip[i]]
        accepted = bool(acceptable(p, scenario.type[i], threshold)[action])
        offered = self.instance.offered[i]
        return Decision(i, action, accepted, shifted(offered, SHIFTS[action], p).tolist() if accepted else offered)

    def price(self, oracle: Oracle) -> bool:
        """Prices all requests so far; where that fails, costs and walks stay."""
        found = oracle.route(self.problem([decision.kept for decision in self.decisions], oracle), self.walk)
        if not found.ok:
            return False
        if self.params.reward != "growth":
            offered = [self.instance.offered[decision.traveller] for decision in self.decisions]
            twin = oracle.route(self.problem(offered, oracle), self.twin_walk)
            if not twin.ok:
                return False
            self.twin_cost, self.twin_walk = twin.cost, twin.walk
        self.cost, self.walk, self.vehicles = found.cost, found.walk, found.vehicles
        return True

    def problem(self, rows: list[list[int]], oracle: Oracle):
        """The routing problem of rows, one of each decision."""
        scenario, trip = self.scenario, self.instance.trip
        places = [(one.traveller, trip[one.traveller]) for one in self.decisions]
        service = [scenario.service[place].tolist() for place in places]
        demand = [int(scenario.demand[place]) for place in places]
        return problem_of(self.params, oracle.travel, scenario.depot, rows, service, demand)

    def gain(self, before: int, twin_before: int) -> float:
        """Reward before the penalty."""
        growth = (self.cost - before) / TICKS
        if self.params.reward == "twin":
            return (self.twin_cost - twin_before) / TICKS - growth
        if self.params.reward == "percent":
            return percent(self.cost, self.twin_cost) - percent(before, twin_before)
        return -growth


def percent(cost: int, twin_cost: int) -> float:
    """Share that shifts save of the cost without them, %; 0 where that is 0."""
    return 100 * (twin_cost - cost) / twin_cost if twin_cost else 0.0
