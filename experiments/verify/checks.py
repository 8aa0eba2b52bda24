"""The checks, a row each: what a batched environment was seen to do beside what its original does.

Axes: T calls, B environments, m cases, n numbers of an observation, k numbers of a state.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from lockstep.experiments.verify.episodes import NEXT_STEP, Cases, Episodes, apart
from lockstep.experiments.verify.lives import Lives
from lockstep.experiments.verify.originals import Original, Outcome, Played
from lockstep.experiments.verify.shown import Shown
from lockstep.experiments.verify.subjects import ACTED, GIVEN, TERMINATED, TRUNCATED
from lockstep.extras import extra

with extra("paper", of="lockstep.experiments.verify"):
    import scipy  # whose stats are imported when they are first used

SAME, DIFFERS, TOLD, UNSEEN = "same", "differs", "told", "cannot be seen"
TOLD_ONCE = ("property", "seen", "cases", "verdict", "words", "allowed", "differing")  # of a row, in all its lines
OUTSIDE, INJECTED = "from outside", "injected"
LEVEL = 1e-3  # of all tests of distributions together, by Bonferroni
NEAR = 5e-7  # a few roundings of float32: by so much a state is moved, relative above 1, to see what rounding decides
DOUBTED = 1000  # cases at most that are looked at again so
REPEATED = 0.01  # share of first states that may repeat beside the original's, since those of float32 meet by chance


@dataclass
class Row:
    """One check.

    numbers: largest error by field, or the p-value of a test (`measure`), against `allowed`: at most, or at least.
    differing: cases. example: one case that can be had again, with both sides.
    """

    property: str
    seen: str
    cases: int
    verdict: str
    words: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)
    measure: str = "error"
    allowed: float | None = None
    differing: int | None = None
    example: dict | None = None

    def lines(self) -> Iterator[dict]:
        """One line of a CSV file for each number."""
        same = {name: getattr(self, name) for name in TOLD_ONCE}
        same["example"] = json.dumps(self.example) if self.example else ""
        measure = "error" if self.measure == "error" else "p_value"
        for name, number in (self.numbers or {"": None}).items():
            yield same | {"field": name, measure: number}


# ---- steps --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compared:
    """Cases beside the original's steps from the same states.

    observation: [m, n] errors, 0 where it is not known. reward: [m, A] errors. rounded: [m] bool, cases in which the
    original itself does as the port did from a state that is NEAR. agents: names of several, else ().
    """

    seen: str  # OUTSIDE | INJECTED
    cases: Cases
    theirs: Outcome
    observation: np.ndarray
    reward: np.ndarray
    rounded: np.ndarray
    agents: tuple[str, ...]


def compared(seen: str, original: Original, states: np.ndarray, cases: Cases, tolerance: float) -> Compared:
    """One step of the original from each state [m, k]; what is beyond tolerance is looked at again for rounding."""
    theirs = original.steps(states, cases.actions)
    observation = np.where(cases.known[:, None], apart(cases.after, theirs.observation), 0.0)
    reward, rounded = apart(cases.agents[:, GIVEN], theirs.agents[:, GIVEN]), np.zeros(len(cases), bool)
    doubted = (observation.max(axis=1) > tolerance) | ~fits(cases.agents, theirs.agents, tolerance)
    for n in np.flatnonzero(doubted)[:DOUBTED]:
        rounded[n] = decided_by_rounding(original, states[n], cases.taken(np.array([n])), tolerance)
    return Compared(seen, cases, theirs, observation, reward, rounded, original.agents)


def fits(ours: np.ndarray, theirs: np.ndarray, tolerance: float) -> np.ndarray:
    """Tells [m] where agents [m, 4, A] are given the same rewards, and the same of them terminate."""
    rewards = (apart(ours[:, GIVEN], theirs[:, GIVEN]) <= tolerance).all(axis=1)
    return rewards & (ours[:, TERMINATED] == theirs[:, TERMINATED]).all(axis=1)


def decided_by_rounding(original: Original, state: np.ndarray, case: Cases, tolerance: float) -> bool:
    """Tells that the original does as in the one case from some state that lies NEAR."""
    moves = np.diag(NEAR * np.maximum(np.abs(state), 1))
    near = np.concatenate([state + moves, state - moves])
    theirs = original.steps(near, np.repeat(case.actions, len(near), axis=0))
    alike = fits(case.agents, theirs.agents, tolerance)
    if case.known[0]:
        alike &= apart(case.after, theirs.observation).max(axis=1) <= tolerance
    return bool(alike.any())


def steps(found: Compared, shown: Shown, tolerance: float, limit: int | None) -> Iterator[Row]:
    """Rows on observations within episodes, rewards, and termination other than at the time limit."""
    cases, every = found.cases, np.ones(len(found.cases), bool)
    yield floats("transitions", found, ~cases.ended, found.observation, shown, tolerance)
    names = Shown(tuple(f"reward of {agent}" for agent in found.agents) or ("reward",))
    yield floats("rewards", found, every, found.reward, names, tolerance)
    early = ~(at_limit(cases, limit) & found.theirs.terminated)
    yield flags("terminated", found, early, *(one.agents[:, TERMINATED] > 0 for one in (cases, found.theirs)))


def at_limit(cases: Cases, limit: int | None) -> np.ndarray:
    return cases.elapsed >= limit if limit else np.zeros(len(cases), bool)


def floats(name: str, found: Compared, which: np.ndarray, errors: np.ndarray, shown: Shown, tolerance: float) -> Row:
    """A row on the errors [m, fields] of some cases [m] bool."""
    if not which.any():
        return Row(name, found.seen, 0, UNSEEN, "there was no such step")
    judged = np.where((which & ~found.rounded)[:, None], errors, 0.0)
    largest = {shown.name(n): float(value) for n, value in enumerate(judged.max(axis=0))}
    beyond = judged.max(axis=1) > tolerance
    row = Row(name, found.seen, int(which.sum()), DIFFERS if beyond.any() else SAME, numbers=largest)
    infinite = int(np.isinf(judged).any(axis=1).sum())
    words = f"not finite in {infinite:,}" if infinite else "", rounding(found, which)
    row.words, row.allowed, row.differing = "; ".join(filter(None, words)), tolerance, int(beyond.sum())
    row.example = example(found, int(judged.max(axis=1).argmax())) if beyond.any() else None
    return row


def flags(name: str, found: Compared, which: np.ndarray, ours: np.ndarray, theirs: np.ndarray) -> Row:
    """A row on the flags [m, A] of some cases [m] bool."""
    differing = which & (ours != theirs).any(axis=1) & ~found.rounded
    row = Row(name, found.seen, int(which.sum()), DIFFERS if differing.any() else SAME, allowed=0)
    row.words = "; ".join(filter(None, [f"true in {int(theirs[which].sum()):,}", rounding(found, which)]))
    row.differing = int(differing.sum())
    if row.differing:
        n = int(differing.argmax())
        row.example = example(found, n, **{name: of_each(found, theirs[n])})
    return row


def rounding(found: Compared, which: np.ndarray) -> str:
    number = int((found.rounded & which).sum())
    return f"{number:,} left out, where rounding decides" if number else ""


def example(found: Compared, n: int, **flags: bool) -> dict:
    """A case with both sides, to be had again from what is shown before it and the action."""
    cases, theirs = found.cases, found.theirs
    known = {"observation": "before"} if found.seen == OUTSIDE else {"state": "before"}
    names = {"seed": "seed", "environment": "environment", "step": "step"} | known | {"action": "actions"}
    place = {key: getattr(cases, name)[n] for key, name in names.items()} | {"elapsed": cases.elapsed[n] - 1}
    port, original = ({"observation": after} for after in (cases.after[n], theirs.observation[n].astype(np.float32)))
    for side, agents in ((port, cases.agents[n]), (original, theirs.agents[n])):
        side["reward"] = of_each(found, agents[GIVEN])
        side |= {"terminated": of_each(found, agents[TERMINATED] > 0)}
    port |= {"truncated": of_each(found, cases.agents[n, TRUNCATED] > 0)}
    port |= {} if cases.known[n] else {"observation": None}
    return plain(place | {"port": port, "original": original | flags})


def of_each(found: Compared, values: np.ndarray) -> object:
    """Values [A] by the agents' names, or the only one."""
    return dict(zip(found.agents, values.tolist(), strict=True)) if found.agents else values.item()


def plain(value: object) -> object:
    """The same as JSON holds it."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return value.tolist() if hasattr(value, "tolist") else value


def last_observation(found: Compared, shown: Shown, tolerance: float) -> Row:
    """The observation that an episode ends with, from which an agent bootstraps where it was only cut off."""
    if row := lost_observation(found.cases):
        row.example = example(found, int((found.cases.ended & ~found.cases.known).argmax()))
        return row
    return floats("last observation", found, found.cases.ended, found.observation, shown, tolerance)


def lost_observation(cases: Cases) -> Row | None:
    """The row where the last observation of some episode is shown nowhere; its example has the port alone."""
    lost = cases.ended & ~cases.known
    if not lost.any():
        return None
    words = "lost: the ending step already shows the next episode"
    names = {"seed": "seed", "environment": "environment", "step": "step", "observation": "before", "action": "actions"}
    place = {key: getattr(cases, name)[int(lost.argmax())] for key, name in names.items()}
    row = Row("last observation", OUTSIDE, int(cases.ended.sum()), DIFFERS, words, allowed=0, differing=int(lost.sum()))
    row.example = plain(place | {"port": {"observation": None}})
    return row


def truncation(found: Compared, number: int, limit: int | None) -> Iterator[Row]:
    """Rows on `truncated`, and on episodes that end by themselves in the very step in which their time is over.

    number: of all steps seen; those that are not among the cases have neither ended nor are they at the limit.
    """
    cases, expected = found.cases, found.theirs.truncated | at_limit(found.cases, limit)
    both = expected & found.theirs.terminated & ~found.rounded
    row = flags("truncated", found, ~(expected & found.theirs.terminated), *truncated(found, limit))
    row.cases = number
    yield row
    if limit is None:
        return
    name = "terminated at the time limit"
    if not both.any():
        yield Row(name, OUTSIDE, 0, UNSEEN, f"no episode terminated in step {limit}")
        return
    wrong, of_them = both & ~(cases.terminated & cases.truncated), int(both.sum())
    counts = ((flag, int(getattr(cases, flag)[both].sum())) for flag in ("terminated", "truncated"))
    words = ", ".join(f"{flag} in {count:,} of {of_them:,}" for flag, count in counts)
    row = Row(name, OUTSIDE, of_them, DIFFERS if wrong.any() else SAME, words, allowed=0, differing=int(wrong.sum()))
    row.example = example(found, int(wrong.argmax()), truncated=True) if wrong.any() else None
    yield row


def truncated(found: Compared, limit: int | None) -> tuple[np.ndarray, np.ndarray]:
    """The agents [m, A] that were truncated, and those that should have been: at the limit all that acted."""
    ours, theirs = (one.agents > 0 for one in (found.cases, found.theirs))
    late = at_limit(found.cases, limit)[:, None] & theirs[:, ACTED]
    return ours[:, TRUNCATED], theirs[:, TRUNCATED] | late


# ---- episodes -----------------------------------------------------------------------------------------------------


def time_limit(runs: list[Episodes], limit: int | None) -> Row:
    """After how many steps episodes are truncated, and that none is longer."""
    cut = np.concatenate([run.elapsed[run.ended & run.lives.truncated] for run in runs])
    longest, lengths = max(int(run.elapsed.max()) for run in runs), sorted(set(cut.tolist()))
    several = f"{lengths[0]} to {lengths[-1]}" if len(lengths) > 1 else "".join(map(str, lengths))
    told = f"truncated after {several} steps" if lengths else f"none truncated, the longest took {longest} steps"
    if limit is None:
        return Row("time limit", OUTSIDE, len(cut), TOLD, f"the original has none; {told}")
    if longest < limit and not lengths:
        return Row("time limit", OUTSIDE, 0, UNSEEN, f"the longest episode took {longest} of {limit} steps")
    verdict = DIFFERS if lengths != [limit] or longest > limit else SAME
    row = Row("time limit", OUTSIDE, len(cut), verdict, f"{told}; the original after {limit}")
    if verdict == DIFFERS:
        run, which = next((run, which) for run in runs if (which := off_limit(run, limit)).any())
        t, i = np.argwhere(which)[0].tolist()
        flag = bool(run.lives.truncated[t, i])
        row.example = step_of(run.lives, t, i) | {"elapsed": int(run.elapsed[t, i])}
        row.example |= {"port": {"truncated": flag}, "original": {"truncated after": limit}}
    return row


def off_limit(run: Episodes, limit: int) -> np.ndarray:
    """Steps [T, B] that truncate an episode too early, do not when its time is over, or that it should not have had."""
    early, late = run.elapsed < limit, run.elapsed > limit
    return run.live & np.where(early, run.lives.truncated, late | ~run.lives.truncated)


def autoreset(declared: str | None, found: str | None, runs: list[Episodes]) -> Row:
    """The beginning of the next episode; a call that only resets must give no reward and set no flag."""
    ends = sum(int(run.ended.sum()) for run in runs)
    if found is None:
        return Row("autoreset", OUTSIDE, ends, UNSEEN, f"declared: {declared or 'nothing'}")
    row = Row("autoreset", OUTSIDE, ends, TOLD, f"{found}, declared: {declared or 'nothing'}")
    if declared:
        row.verdict = SAME if declared == found else DIFFERS
        row.example = around_an_end([run.lives for run in runs]) if declared != found else None
    spoilt = [(run.lives, ~run.live & sounding(run.lives)) for run in runs if found == NEXT_STEP]
    row.differing = sum(int(which.sum()) for _, which in spoilt)
    if row.differing:
        lives, which = next(pair for pair in spoilt if pair[1].any())
        t, i = np.argwhere(which)[0].tolist()
        row.words += f"; {row.differing:,} calls that only reset give a reward or set a flag"
        row.verdict, row.example = DIFFERS, step_of(lives, t, i)
        row.example["port"] = {name: plain(getattr(lives, name)[t, i]) for name in SILENT}
        row.example["original"] = dict(zip(SILENT, (0.0, False, False), strict=True))
    return row


SILENT = ("reward", "terminated", "truncated")  # in a call that only resets


def step_of(lives: Lives, t: int, i: int) -> dict:
    """The place of a step, and its action."""
    return {"seed": lives.seed, "environment": i, "step": t, "action": plain(lives.actions[t, i])}


def sounding(lives: Lives) -> np.ndarray:
    return (lives.reward != 0) | lives.terminated | lives.truncated


def around_an_end(runs: list[Lives]) -> dict:
    """Observations of the first step that ends an episode, and of the call after it."""
    for lives in runs:
        for t, i in np.argwhere((lives.terminated | lives.truncated)[:-1])[:1].tolist():
            shown = {"before": t, "ending step": t + 1, "next call": t + 2}
            place = {"seed": lives.seed, "environment": i, "step": t, "actions": plain(lives.actions[t : t + 2, i])}
            return place | {f"observation, {when}": plain(lives.observation[at, i]) for when, at in shown.items()}
    return {}


def distributions(
    living: Episodes, firsts: np.ndarray, played: Played, shown: Shown, longest: int, seeds: tuple[int, int]
) -> Iterator[Row]:
    """Two-sample tests (Kolmogorov-Smirnov) on first states, and on lengths and returns under random actions.

    seeds: of `firsts`, and of the episodes `played`.
    """
    own, (lengths, returns) = living.firsts(), living.whole(longest)
    level, of = LEVEL / (own.shape[1] + 2), [{"port": living.lives.seed, "original": seed} for seed in seeds]
    yield alike("first states", {shown.name(n): (own[:, n], firsts[:, n]) for n in range(own.shape[1])}, level, of[0])
    name = "episodes under random actions"
    if not len(lengths):
        yield Row(name, OUTSIDE, 0, UNSEEN, "no episode was seen from its beginning to its end")
        return
    pairs = {"length": (lengths, played.lengths), "return": rounded(returns, played.returns)}
    yield alike(name, pairs, level, of[1])


def rounded(ours: np.ndarray, theirs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns to six digits of the largest, so that float32 and float64 tie where they add up equal rewards."""
    unit = max(np.abs(ours).max(), np.abs(theirs).max()) / 1e6 or 1.0
    return np.round(ours / unit) * unit, np.round(theirs / unit) * unit


def alike(name: str, pairs: dict[str, tuple[np.ndarray, np.ndarray]], level: float, seeds: dict[str, int]) -> Row:
    """A row on samples [m] of the port and of the original, by quantity. seeds: of either side's run."""
    p = {key: of_one_distribution(*pair) for key, pair in pairs.items()}
    least = min(p, key=p.get)
    ours, theirs = pairs[least]
    verdict, words = SAME if p[least] >= level else DIFFERS, f"{len(ours):,} beside {len(theirs):,} of the original"
    row = Row(name, OUTSIDE, len(ours), verdict, words, numbers=p, measure="p", allowed=level)
    if verdict == DIFFERS:
        samples = {"port": ours, "original": theirs}
        about = {"seeds": seeds, "cases": {side: len(one) for side, one in samples.items()}, "quantity": least}
        spread = {side: np.quantile(one, (0, 0.5, 1)) for side, one in samples.items()}
        row.example = plain(about | {"quantiles": [0, 0.5, 1]} | spread)
    return row


def of_one_distribution(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The p-value of two samples [m]; 0 where one side alone has what is not a number."""
    missing = [np.isnan(one) for one in (ours, theirs)]
    if missing[0].any() != missing[1].any():
        return 0.0
    return float(scipy.stats.ks_2samp(ours[~missing[0]], theirs[~missing[1]], method="asymp").pvalue)


# ---- seeds and batch size -----------------------------------------------------------------------------------------

TOO_FEW = "the original begins in too few states, or too few first states were seen"


def seeds(once: Lives, again: Lives, other: Lives, firsts: np.ndarray, living: Episodes) -> Iterator[Row]:
    """Rows on what a seed decides: the same lives twice, others from another, different ones in one batch.

    firsts: the original's first observations; as they repeat by chance, so may the port's.
    """
    place, calls = first_difference(once, again), once.reward.size
    row = Row("same seed", OUTSIDE, calls, DIFFERS if place else SAME, "two resets with one seed")
    if place:
        t, i = place
        row.words += f" part in call {t}"
        row.example = {"seed": once.seed, "environment": i, "call": t, "actions": plain(once.actions[:t, i])}
        row.example |= {"once": of_call(once, t, i), "again": of_call(again, t, i)}
    yield row
    yield another_seed(once, other, firsts)
    yield among_environments(living, firsts)


def another_seed(once: Lives, other: Lives, firsts: np.ndarray) -> Row:
    """Environments that begin alike under two seeds: no more than chance has of the original's first states."""
    B, chance = once.reward.shape[1], of_a_pair(firsts)
    if not seldom(B, B, chance):
        return Row("another seed", OUTSIDE, 0, UNSEEN, TOO_FEW)
    same = (once.observation[0] == other.observation[0]).reshape(B, -1).all(axis=1)
    number, overlap = int(same.sum()), len(np.intersect1d(*(rows_of(one.observation[0]) for one in (once, other))))
    words = f"under two seeds {number:,} of {B:,} environments begin in the same state, {overlap:,} states are of both"
    row = Row("another seed", OUTSIDE, B, SAME, words, differing=number)
    if seldom(number, B, chance):
        i = int(same.argmax())
        row.verdict = DIFFERS
        place = {"seeds": [once.seed, other.seed], "environment": i, "call": 0}
        row.example = place | {"both": plain(once.observation[0, i])}
    return row


def of_a_pair(firsts: np.ndarray) -> float:
    """The probability that two first states are equal, with one pair more than was seen, since few draws have none."""
    _, counts = np.unique(firsts, axis=0, return_counts=True)
    pairs = [number * (number - 1) / 2 for number in (len(firsts), counts)]
    return float((pairs[1].sum() + 1) / (pairs[0] + 1))


def seldom(equal: int, pairs: int, chance: float) -> bool:
    """Tells that at the chance of a pair so many, or more, are equal less often than LEVEL."""
    return scipy.stats.binom.sf(equal - 1, pairs, chance) < LEVEL


def among_environments(living: Episodes, firsts: np.ndarray) -> Row:
    """First states that had been there before: no more than of as many draws of the original's."""
    name, own = "environments of a batch", living.firsts()
    number = min(len(own), len(np.unique(firsts, axis=0)))  # of more, any environment's would repeat
    ours, theirs = (one[:number] for one in (own, firsts))
    values, counts = np.unique(ours, axis=0, return_counts=True)
    repeated, allowed = number - len(values), number - len(np.unique(theirs, axis=0))
    if not more(number - 1, allowed, number):
        return Row(name, OUTSIDE, 0, UNSEEN, TOO_FEW)
    words = f"{repeated:,} of {number:,} first states had been there before, of the original's {allowed:,}"
    row = Row(name, OUTSIDE, number, SAME, words, differing=repeated)
    if more(repeated, allowed, number):
        often = int(counts.argmax())
        calls, environments = np.argwhere(living.first)[:number][(ours == values[often]).all(axis=1)][:2].T
        place = {"seed": living.lives.seed, "environments": environments, "calls": calls}
        if calls.all():  # the reset has none
            place["actions"] = living.lives.actions[calls - 1, environments]
        row.verdict, row.example = DIFFERS, plain(place | {"first state": values[often], "times": counts[often]})
    return row


def more(ours: int, theirs: int, number: int) -> bool:
    """Tells that of so many first states more repeat than of as many others, by more than rounding and chance do."""
    if ours - theirs <= REPEATED * number:
        return False
    return scipy.stats.binomtest(ours, ours + theirs, alternative="greater").pvalue < LEVEL


def batch_size(narrow: Lives, wide: Lives | None) -> Row:
    """Dependence of an environment's life on how many others there are; told, since an original has no batch."""
    B = narrow.reward.shape[1]
    if wide is None:
        return Row("batch size", OUTSIDE, 0, UNSEEN, "the batch has one size")
    parts = {name: one if one is None else one[:, :B] for name, one in vars(wide).items() if name != "seed"}
    place, sizes = first_difference(narrow, Lives(wide.seed, **parts)), f"{B} and {wide.reward.shape[1]}"
    words = f"lives depend on it: those in batches of {sizes} part" if place else f"equal lives in batches of {sizes}"
    return Row("batch size", OUTSIDE, narrow.reward.size, TOLD, f"{words} in call {place[0]}" if place else words)


def of_call(lives: Lives, t: int, i: int) -> dict:
    """The outcome of a call; call 0 is the reset."""
    given = {name: plain(getattr(lives, name)[t - 1, i]) for name in SILENT} if t else {}
    if t and lives.agents is not None:
        given["agents"] = plain(lives.agents[t - 1, i])
    return {"observation": plain(lives.observation[t, i])} | given


def first_difference(one: Lives, other: Lives) -> tuple[int, int] | None:
    """The call and the environment from which on two runs are not equal; call 0 is the reset."""

    def unequal(name: str) -> np.ndarray:
        a, b = getattr(one, name), getattr(other, name)
        return ((a != b) & ~((a != a) & (b != b))).reshape(*a.shape[:2], -1).any(axis=2)

    differing = unequal("observation")
    for name in SILENT if one.agents is None else (*SILENT, "agents"):
        differing[1:] |= unequal(name)
    places = np.argwhere(differing)
    return tuple(places[0].tolist()) if len(places) else None


def rows_of(observations: np.ndarray) -> np.ndarray:
    """Observations [B, ...] as so many single values that compare."""
    rows = np.ascontiguousarray(observations.reshape(len(observations), -1))
    return rows.view([("", rows.dtype)] * rows.shape[1]).reshape(-1)
