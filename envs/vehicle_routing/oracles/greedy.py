"""The greedy oracle: always the nearest, or the soonest, node that is allowed."""

from collections.abc import Callable, Sequence

from lockstep.reading import nearest

from .problem import Answer, Oracle, Problem
from .walker import Walker, walked

RULES: dict[str, Callable[[Walker, int], int]] = {
    "nearest": lambda walker, node: walker.problem.leg(walker.at, node),
    "soonest": lambda walker, node: walker.start(node),
    "mixed": lambda walker, node: walker.start(node) + 3 * walker.problem.leg(walker.at, node),
}


class Greedy(Oracle):
    """The node of the smallest key, ties to the lowest index, and the depot last."""

    name = "greedy"

    def read(self, argument: str | None):
        rule = "mixed" if argument is None else argument
        if rule not in RULES:
            raise ValueError(f"oracle='greedy:{rule}': rule {rule!r} is unknown{nearest(rule, RULES)}")
        self.rule, self.key = rule, RULES[rule]

    def route(self, problem: Problem, kept: Sequence[int] = ()) -> Answer:
        return walked(problem, self.choose)

    def choose(self, walker: Walker, allowed: list[int]) -> int:
        return min((node for node in allowed if node), key=lambda node: self.key(walker, node), default=0)
