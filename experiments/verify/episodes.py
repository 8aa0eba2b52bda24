"""Lives read as episodes: which calls are steps, how old each episode is, and what a step led to.

Axes: T calls, B environments, n numbers of an observation, m cases.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from lockstep.experiments.verify.lives import Lives
from lockstep.experiments.verify.originals import Original
from lockstep.experiments.verify.subjects import ACTED

SAME_STEP, NEXT_STEP, DISABLED = "SameStep", "NextStep", "Disabled"
LOOKED_AT = 500  # ends, and as many other steps, by which the mode is found out
TELLING = 4  # times the error of other steps: below it an observation is taken to follow


@dataclass(frozen=True)
class Cases:
    """Steps, one after the other, [m, ...] each."""

    seed: np.ndarray
    step: np.ndarray  # of the run
    environment: np.ndarray
    before: np.ndarray  # [m, n] observation
    actions: np.ndarray
    after: np.ndarray  # [m, n], of the same episode
    known: np.ndarray  # bool: `after` was shown
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    elapsed: np.ndarray  # steps of the episode, with this one
    agents: np.ndarray  # [m, 4, A], as in Step

    def __len__(self) -> int:
        return len(self.step)

    @property
    def ended(self) -> np.ndarray:
        return self.terminated | self.truncated

    def taken(self, which: np.ndarray) -> "Cases":
        return Cases(*(getattr(self, field.name)[which] for field in fields(self)))


def joined(parts: Sequence[Cases]) -> Cases:
    return Cases(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Cases)))


class Episodes:
    """Lives under an autoreset mode.

    live: [T, B] the calls that are steps. elapsed, total: [T, B] length and return of the episode so far.
    first: [T + 1, B] the observations that an episode begins with.
    """

    def __init__(self, lives: Lives, mode: str):
        self.lives, self.mode, ended = lives, mode, lives.terminated | lives.truncated
        T, B = ended.shape
        self.live, self.first = np.ones((T, B), bool), np.zeros((T + 1, B), bool)
        self.elapsed, self.total = np.zeros((T, B), int), np.zeros((T, B))
        self.first[0] = True
        over, elapsed, total = np.zeros(B, bool), np.zeros(B, int), np.zeros(B)
        for t in range(T):
            live = ~over if mode == NEXT_STEP else np.ones(B, bool)
            elapsed, total = np.where(live, elapsed + 1, 0), np.where(live, total + lives.reward[t], 0.0)
            self.live[t], self.elapsed[t], self.total[t] = live, elapsed, total
            over = live & ended[t]
            elapsed, total = np.where(over, 0, elapsed), np.where(over, 0.0, total)
            self.first[t + 1] = ~live if mode == NEXT_STEP else over
        self.ended = ended & self.live
        self.number = int(self.live.sum())

    def cases(self, which: np.ndarray) -> Cases:
        """Those steps [T, B]."""
        t, i = np.nonzero(which)
        lives, m = self.lives, len(t)
        after, known = lives.observation[t + 1, i], np.ones(m, bool)
        if self.mode != NEXT_STEP:
            ended = self.ended[t, i]
            given = lives.given[t, i]
            after = np.where((ended & given).reshape(m, *[1] * (after.ndim - 1)), lives.last[t, i], after)
            known = ~ended | given
        flags = lives.reward[t, i].astype(float), lives.terminated[t, i], lives.truncated[t, i], self.elapsed[t, i]
        agents = lives.of_agents[t, i]
        seen = flat(lives.observation[t, i]), lives.actions[t, i], of_those(agents, flat(after)), known
        return Cases(np.full(m, lives.seed), t, i, *seen, *flags, agents)

    def firsts(self) -> np.ndarray:
        """All first observations [m, n]."""
        return flat(self.lives.observation[self.first])

    def whole(self, longest: int) -> tuple[np.ndarray, np.ndarray]:
        """Lengths and returns of the episodes that began early enough for `longest` steps, and up to these."""
        begun = np.arange(len(self.live))[:, None] + 1 - self.elapsed
        at_end = self.live & ((self.ended & (self.elapsed < longest)) | (self.elapsed == longest))
        counted = at_end & (begun + longest <= len(self.live))
        return self.elapsed[counted], self.total[counted]


def flat(observations: np.ndarray) -> np.ndarray:
    return observations.reshape(len(observations), -1)


def of_those(agents: np.ndarray, observations: np.ndarray) -> np.ndarray:
    """The observations [m, n] of those who acted in a step [m, 4, A], and 0 of the other agents."""
    m, _, A = agents.shape
    return np.where(agents[:, ACTED, :, None] > 0, observations.reshape(m, A, -1), 0).reshape(m, -1)


def apart(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Differences over the original's size, or as they are below 1; NaN beside a number is infinitely far."""
    ours, theirs = ours.astype(float), theirs.astype(float)
    with np.errstate(invalid="ignore"):
        found = np.abs(ours - theirs) / np.maximum(np.abs(theirs), 1)
    alike = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    return np.where(alike, 0.0, np.where(np.isnan(found), np.inf, found))


def mode_of(lives: Lives, original: Original, states, tolerance: float) -> str | None:
    """The autoreset mode that lives behave by; None where no episode ended, or neither reading fits.

    In the step that ends an episode, does the observation follow from the one before? Does the next one from it?
    Same step: no, yes. Next step: yes, no. Never: yes, yes.
    """
    ended = lives.terminated | lives.truncated

    def errors(which: np.ndarray, later: int) -> np.ndarray:
        t, i = np.nonzero(which)
        few = np.linspace(0, len(t) - 1, min(len(t), LOOKED_AT)).astype(int)
        t, i = t[few] + later, i[few]
        before = np.asarray(states(flat(lives.observation[t, i])), dtype=np.float64)
        finite = np.isfinite(before).all(axis=1)
        if not finite.any():
            return np.array([np.nan])
        t, i = t[finite], i[finite]
        expected = original.steps(before[finite], lives.actions[t, i])
        found = of_those(expected.agents, flat(lives.observation[t + 1, i]))
        return apart(found, expected.observation).max(axis=1)

    ends, going = np.zeros_like(ended), np.zeros_like(ended)
    ends[:-1] = ended[:-1]
    if (ends[:-1] & ~ended[1:]).any():  # where all that ended stay so, these will do
        ends[:-1] &= ~ended[1:]
    going[1:] = ~ended[1:] & ~ended[:-1]
    if not ends.any() or not going.any():
        return None
    bound = TELLING * max(np.median(errors(going, 0)), tolerance)
    shown, following = (np.median(errors(ends, later)) <= bound for later in (0, 1))
    return {(False, True): SAME_STEP, (True, False): NEXT_STEP, (True, True): DISABLED}.get((shown, following))
