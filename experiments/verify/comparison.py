"""All checks of one environment beside its original: what is played for them, and the rows that come of it.

Axes: T calls, B environments, k numbers of a state.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

from lockstep.experiments import UserError
from lockstep.experiments.verify import checks, lives
from lockstep.experiments.verify.checks import DIFFERS, INJECTED, OUTSIDE, UNSEEN, Row
from lockstep.experiments.verify.episodes import (
    DISABLED,
    NEXT_STEP,
    SAME_STEP,
    Cases,
    Episodes,
    joined,
    mode_of,
    of_those,
)
from lockstep.experiments.verify.lives import Lives, Record, Run
from lockstep.experiments.verify.originals import HORIZON, Original, Played
from lockstep.experiments.verify.shown import Shown
from lockstep.experiments.verify.subjects import TRUNCATED, Subject, is_here, kind_of

EPISODES = 256  # of the original under random actions
FIRST_STATES = 10_000  # of the original at most
MARGIN = 8  # calls beyond the time limit
MORE = 1.25  # times as many calls as transitions, since some calls end an episode, or only reset
WIDER = 4  # times as many environments where episodes are brought to the limit and to their ends there
SOON, LATE = 40, 160  # steps before the limit at most that a policy stops, and that one begins
PROBED, CALLS = 16, 60  # environments and calls by which seeds and batch sizes are compared
RANDOM = "the original draws random numbers in a step"
NOT_FINITE = "no step begins with finite observations"


@dataclass(frozen=True)
class Asked:
    """The request of a command line. policy, inject: package.module:function."""

    num_envs: int = 256
    seed: int = 0
    transitions: int = 100_000
    tolerance: float = 1e-5
    policy: str | None = None
    inject: str | None = None


def compare(name: str, original: Original, shown: Shown, asked: Asked) -> tuple[list[Row], Record]:
    """The rows of all checks, and what was played.

    Raises:
        UserError: the environment cannot be made or played, or it is not seen how it resets.
    """
    if (shown.states or asked.inject) and not original.keeps_state:
        raise UserError(f"--original {original.name!r} has neither set_state and get_state nor an attribute state")
    subject = Subject(name, asked.num_envs)  # first, since a mistake in it should not be told late
    if is_here(name) and not original.agents:
        require_spaces(subject, original)
    injected = bool(asked.inject) or (shown.states is not None and kind_of(name) is not None)
    played = original.play(EPISODES, asked.seed, read=injected)
    original.limit = original.limit or played.limit
    runs = planned(subject, original, asked, played)
    record = lives.record(name, list(runs.values()), asked.inject)
    found = {key: one for key, one in zip(runs, record.lives, strict=True) if one is not None}
    numbers, theirs = found["living"].observation[0, 0].size, original.reset().size
    if numbers != theirs:
        raise UserError(other_observations(name, numbers, original, theirs))
    ours, theirs = ((one.shape[-1] if one is not None else 0) for one in (found["living"].agents, played.playing))
    if ours != theirs:
        raise UserError(
            f"{name}: its rewards are {shape(ours)}; beside --original {original.name!r} they must be {shape(theirs)}"
        )
    if original.agents and not shown.names:
        each = range(numbers // len(original.agents))
        shown = replace(shown, names=tuple(f"{agent}, {n}" for agent in original.agents for n in each))
    return list(rows(original, shown, asked, played, found, record.mode)), record


def require_spaces(subject: Subject, original: Original) -> None:
    """UserError where observations or actions, as they are declared, cannot be those of the original."""
    seen, taken = subject.spaces
    subject.close()
    numbers, theirs = (None if space is None else size(space) for space in (seen, original.env.observation_space))
    if numbers is not None and numbers != theirs:
        raise UserError(other_observations(subject.name, numbers, original, theirs))
    actions, theirs = (None if space is None else choices(space) for space in (taken, original.space))
    if actions is not None and actions != theirs:
        raise UserError(
            f"{subject.name}: actions are of {taken}, those of --original {original.name!r} of {original.space}"
        )


def other_observations(name: str, numbers: int, original: Original, theirs: int) -> str:
    return f"{name}: an observation has {numbers} numbers, of --original {original.name!r} it has {theirs}"


def size(space: object) -> int | None:
    """The numbers of an observation of a space of Gymnasium; None of one that is not compared."""
    known = isinstance(space, Box | Discrete | MultiDiscrete | MultiBinary)
    return math.prod(space.shape) if known else None


def choices(space: object) -> tuple | None:
    """The choices of each number of an action, infinitely many of a Box; None of a space that is not compared."""
    if isinstance(space, Box):
        return (math.inf,) * math.prod(space.shape)
    if isinstance(space, Discrete):
        return (int(space.n),)
    if isinstance(space, MultiDiscrete):
        return tuple(space.nvec.ravel().tolist())
    return (2,) * math.prod(space.shape) if isinstance(space, MultiBinary) else None


def shape(agents: int) -> str:
    """The shape of rewards of so many agents, of which 0 is one without an axis."""
    return f"[B, {agents}]" if agents else "[B]"


def planned(subject: Subject, original: Original, asked: Asked, played: Played) -> dict[str, Run]:
    """The runs by what they are for, all of which a subject that has one size plays in that."""
    B, seed, limit = asked.num_envs, asked.seed, original.limit
    probed, wider = PROBED, WIDER * B
    if not subject.sized:
        B = probed = wider = subject.num_envs
        subject.close()
    few, calls = original.actions(CALLS, probed, seed), math.ceil(MORE * asked.transitions / B)
    runs = {
        "living": Run(seed, original.actions(max(calls, (limit or HORIZON) + MARGIN), B, seed)),
        "once": Run(seed, few),
        "again": Run(seed, few),
        "other": Run(seed + 1, few),
        "wide": Run(seed, original.actions(CALLS, 2 * probed, seed)),
    }
    if asked.policy and limit:
        actions = original.actions(limit + MARGIN, wider, seed + 1)
        runs["policy"] = Run(seed + 1, actions, asked.policy, follows(limit, wider, seed))
    if played.states is not None:
        number = max(1, min(asked.transitions, len(played.states)) // B)  # one call takes B states at least
        few = evenly(len(played.states), number * B)
        parts = {"actions": played.actions, "states": played.states, "playing": played.playing}
        there = {key: one[few].reshape(number, B, *one.shape[1:]) for key, one in parts.items() if one is not None}
        runs["put"] = Run(seed, **there)
    return runs


def follows(limit: int, num_envs: int, seed: int) -> np.ndarray:
    """Calls [T, B] in which a policy acts: in every other environment up to shortly before the limit, in others after.

    Some episode then lasts until the limit, and some terminates in the very step, whether the policy keeps episodes
    going or brings them to their goal.
    """
    first = np.arange(num_envs) % 2 == 0
    change = limit - np.random.default_rng([seed, 3]).integers(0, np.where(first, SOON, LATE) + 1)
    return (np.arange(limit + MARGIN)[:, None] < change) == first


def rows(
    original: Original, shown: Shown, asked: Asked, played: Played, found: dict[str, Lives], declared: str | None
) -> Iterator[Row]:
    """All rows. found: lives by what they were played for. declared: the autoreset mode, or None."""
    lived = [found[key] for key in ("living", "policy") if key in found]
    mode = seen_mode(lived, original, shown, asked.tolerance, declared)
    if mode == DISABLED and declared != DISABLED:
        ends, words = sum(int((one.terminated | one.truncated).sum()) for one in lived), "ended environments go on"
        words += f", declared: {declared or 'nothing'}; nothing else is checked, since no episode begins"
        yield Row("autoreset", OUTSIDE, ends, DIFFERS, words, example=checks.around_an_end(lived))
        return
    read = mode or declared or by_what_is_given(lived)
    seen = [Episodes(one, read) for one in lived]
    yield from of_steps(original, shown, asked, seen)
    if "put" in found:
        yield from of_injected(original, shown, asked, found["put"], played, read)
    yield checks.time_limit(seen, original.limit)
    yield checks.autoreset(declared, mode, seen)
    seeds = asked.seed + 2, asked.seed  # of the original's first states, and of its episodes
    firsts = original.firsts(min(FIRST_STATES, int(seen[0].first.sum())), seeds[0])
    longest = original.limit + 1 if original.limit else HORIZON
    yield from checks.distributions(seen[0], firsts, played, shown, longest, seeds)
    yield from checks.seeds(found["once"], found["again"], found["other"], firsts, seen[0])
    yield checks.batch_size(found["once"], found.get("wide"))


def seen_mode(
    lived: list[Lives], original: Original, shown: Shown, tolerance: float, declared: str | None
) -> str | None:
    """The autoreset mode that lives show, None where they do not; one that never resets is taken at its word."""
    if declared == DISABLED:
        return DISABLED
    found = (mode_of(one, original, shown.states, tolerance) for one in lived if shown.states)
    return next(filter(None, found), None)


def by_what_is_given(lived: list[Lives]) -> str:
    """The mode where it is neither declared nor found out."""
    if any(one.given.any() for one in lived) or not any((one.terminated | one.truncated).any() for one in lived):
        return SAME_STEP
    raise UserError(
        "it is not seen how FACTORY resets ended environments: let metadata['autoreset_mode'] say so, or give --recover"
    )


def of_steps(original: Original, shown: Shown, asked: Asked, seen: list[Episodes]) -> Iterator[Row]:
    """Rows on single steps as they are seen from outside."""
    limit, most = original.limit, [int((run.live & ~run.ended).sum()) for run in seen]
    with_policy = [min(asked.transitions // 2, number) for number in most[1:]]
    shares = [asked.transitions - sum(with_policy), *with_policy]
    cases = joined([chosen(run, number, limit) for run, number in zip(seen, shares, strict=True)])
    states = np.asarray(shown.states(cases.before), dtype=np.float64) if shown.states else None
    if states is not None and (states.ndim != 2 or len(states) != len(cases)):
        raise UserError(f"--recover must give states [m, k] of {len(cases)} observations, got {list(states.shape)}")
    unknown, number = "observations do not show the state; --recover says how, if they do", len(cases)
    if states is not None:
        finite = np.isfinite(states).all(axis=1)  # the original cannot be put into others
        states, cases, unknown = states[finite], cases.taken(finite), RANDOM if finite.any() else NOT_FINITE
    if states is None or not len(states) or not original.repeats(states, cases.actions):
        lost = checks.lost_observation(cases)
        for name in ("transitions", "rewards", "terminated", *([] if lost else ["last observation"]), "truncated"):
            yield Row(name, OUTSIDE, 0, UNSEEN, unknown)
        yield from filter(None, [lost])
        return
    found = checks.compared(OUTSIDE, original, states, cases, asked.tolerance)
    yield from checks.steps(found, shown, asked.tolerance, limit)
    yield checks.last_observation(found, shown, asked.tolerance)
    yield from checks.truncation(found, sum(run.number for run in seen) - (number - len(cases)), limit)


def chosen(run: Episodes, number: int, limit: int | None) -> Cases:
    """About so many steps of episodes that go on, evenly, as many that end, and all at the time limit or beyond."""
    at_limit = run.live & (run.elapsed >= limit) if limit else np.zeros_like(run.live)
    which = at_limit.copy()
    for part in (run.live & ~run.ended & ~at_limit, run.ended & ~at_limit):
        t, i = np.nonzero(part)
        few = spread(len(t), number)
        which[t[few], i[few]] = True
    return run.cases(which)


def spread(length: int, number: int) -> np.ndarray:
    """So many places among `length`, evenly, or all."""
    return evenly(length, min(number, length))


def evenly(length: int, number: int) -> np.ndarray:
    """So many places among `length`, evenly; where there are fewer, some several times."""
    return np.arange(number) * length // number


def of_injected(
    original: Original, shown: Shown, asked: Asked, seen: Lives, played: Played, mode: str
) -> Iterator[Row]:
    """Rows on single steps from states that the original had visited, and the port was put into."""
    (T, B), m = seen.reward.shape, seen.reward.size
    states = played.states[evenly(len(played.states), m)]
    given = (seen.given & (mode != NEXT_STEP)).reshape(m)
    agents = seen.of_agents.reshape(m, *seen.of_agents.shape[2:])
    after = np.where(given[:, None], seen.last.reshape(m, -1), seen.observation[1:].reshape(m, -1))
    flags = [getattr(seen, name).reshape(m) for name in ("terminated", "truncated")]
    known = given | ~(flags[0] | flags[1]) | (mode == NEXT_STEP)
    t, i = np.indices((T, B)).reshape(2, m)
    actions, reward = seen.actions.reshape(m, *seen.actions.shape[2:]), seen.reward.reshape(m).astype(float)
    cases = Cases(
        seen.seed + t, t, i, states, actions, of_those(agents, after), known, reward, *flags, np.ones(m, int), agents
    )
    if not original.repeats(states, actions):
        yield from (Row(name, INJECTED, 0, UNSEEN, RANDOM) for name in ("transitions", "rewards", "terminated"))
        return
    found = checks.compared(INJECTED, original, states, cases, asked.tolerance)
    yield from checks.steps(found, shown, asked.tolerance, None)
    if found.theirs.agents[:, TRUNCATED].any():  # by the original itself, whose state has a clock
        yield checks.flags("truncated", found, np.ones(m, bool), *checks.truncated(found, None))
