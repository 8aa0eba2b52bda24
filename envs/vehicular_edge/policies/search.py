"""Policies that search: the targets, CPU blocks and powers of one slot for the most success less cost and drift."""

import itertools
import math

import numpy as np

from ..slot.numbering import Array
from .objective import POWER_STEPS, Plan, Pricing, linear, on_host, quadratic
from .rules import greedy
from .views import Action, Noise, View, where_its_view_is

ENUMERATED = 100_000  # combinations of targets and powers up to which all are tried
PASSES = 2  # of single-task moves, where there are more


@where_its_view_is
def drift_plus_penalty(view: View, noise: Noise) -> Action:
    """The action with the largest physical reward of the slot: exact where the combinations are few."""
    return _one_slot(view, noise, linear)


@where_its_view_is
def backpressure(view: View, noise: Noise) -> Action:
    """The action with the least drift of the squared backlogs in the slot, so that work flees from long queues."""
    return _one_slot(view, noise, quadratic)


def _one_slot(view: View, noise: Noise, pricing: Pricing) -> Action:
    start = greedy(view, noise)["target"]
    found = [best(view, b, start[b], pricing) for b in range(view.size)]
    target, share = (view.xp.asarray(np.stack(parts)) for parts in zip(*found, strict=True))
    return {"target": target, "share": share}


def best(view: View, b: int, start: Array, pricing: Pricing = linear) -> tuple[np.ndarray, np.ndarray]:
    """Targets [Nc, J] and shares [A1] of an environment: of all combinations, or by single moves where these are many.

    Args:
        start: targets [Nc, J] from which to move.
        pricing: of the drift, see `Plan`.
    """
    plan = Plan(view, b, pricing)
    if combinations(plan) <= ENUMERATED:
        enumerate_all(plan)
    else:
        plan.start_from(on_host(start))
        improve(plan)
    return plan.action(view.tables.numbering)


def combinations(plan: Plan) -> int:
    return math.prod(len(plan.options[i]) for i in plan.client)


def improve(plan: Plan) -> None:
    """Passes over the tasks: each takes the option, with its client's power, that is best while all else stays."""
    for i in range(plan.params.clients):
        plan.set_power(i, plan.best_power(i)[1])
    for _ in range(PASSES):
        for task, i in enumerate(plan.client):
            now, heard = plan.choice[task], set(plan.heard[i])
            most, at = plan.value, (now, plan.powers[i])
            for chosen in range(len(plan.options[i])):
                if chosen != now:
                    plan.move(task, chosen)
                    same = plan.heard[i] == heard
                    gain, power = (0.0, plan.powers[i]) if same else plan.best_power(i)
                    if plan.value + gain > most + 1e-15:
                        most, at = plan.value + gain, (chosen, power)
            if plan.choice[task] != at[0]:
                plan.move(task, at[0])
            plan.set_power(i, at[1])


def enumerate_all(plan: Plan) -> None:
    """Every combination of targets, and of the powers of whoever sends where these are not too many."""
    most, at = -math.inf, None
    budget = ENUMERATED // combinations(plan)
    for choices in itertools.product(*(range(len(plan.options[i])) for i in plan.client)):
        aim(plan, choices)
        powers_of_senders(plan, budget)
        if plan.value > most:
            most, at = plan.value, (choices, tuple(plan.powers))
    aim(plan, at[0])
    for i, power in enumerate(at[1]):
        plan.set_power(i, power)


def aim(plan: Plan, choices: tuple[int, ...]) -> None:
    for task, chosen in enumerate(choices):
        if plan.choice[task] != chosen:
            plan.move(task, chosen)


def powers_of_senders(plan: Plan, budget: int) -> None:
    """Every combination of the powers of those who send, or, where these are more than the budget, one by one."""
    senders = [i for i, heard in enumerate(plan.heard) if heard]
    if POWER_STEPS ** len(senders) > budget:
        for i in senders * PASSES:
            plan.set_power(i, plan.best_power(i)[1])
        return
    most, at = -math.inf, None
    for powers in itertools.product(range(POWER_STEPS), repeat=len(senders)):
        for i, power in zip(senders, powers, strict=True):
            plan.set_power(i, power)
        if plan.value > most:
            most, at = plan.value, powers
    for i, power in zip(senders, at, strict=True):
        plan.set_power(i, power)
