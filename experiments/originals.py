"""Originals, one environment at a time in plain Python; the work is shared out over processes."""

import atexit
import contextlib
import functools
import itertools
import math
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from lockstep import envs
from lockstep.experiments import command
from lockstep.experiments.bench.rungs import fixed_policy, random_actions
from lockstep.experiments.config import Settings
from lockstep.experiments.ledger import provenance

PARTS = 4  # of a task for each core, so that no core waits long for the last one
DRAWN = 200  # random actions at a time
ON_GPU = 4  # groups that share one
_allotted: int | None = None  # cores; None: all
OUTCOME = ("observation", "reward", "terminated", "truncated", "episode over")  # of a step


def allot(number: int | None) -> None:
    """So many cores for the work of this process, all by default; on one it starts no others."""
    global _allotted
    dismiss()
    _allotted = number


def cores() -> int:
    """The cores that work is shared out over."""
    return min(_allotted or provenance.core_count(), provenance.core_count())


@functools.cache
def workers():
    """A process for each core; they last as long as this one, since each takes seconds to import torch."""
    pool = multiprocessing.get_context("spawn").Pool(cores(), command.worker)
    atexit.register(pool.terminate)
    return pool


def dismiss():
    """Ends the processes, whose CPU time counts from then on."""
    if workers.cache_info().currsize:
        workers().close()
        workers().join()
        workers.cache_clear()


def on_all_cores(task: Callable, index: np.ndarray, *cases, **same) -> Callable[[], dict[str, np.ndarray]]:
    """Starts task(*parts, **same) on parts of the cases; what it returns waits for the joined results.

    On one core the task runs here, when its results are asked for.

    Args:
        task: gives arrays [n, ...] by name.
        index, cases: arrays [n, ...], or mappings of them.
    """
    if cores() == 1:
        return functools.cache(functools.partial(task, index, *cases, **same))
    parts = np.array_split(np.arange(len(index)), min(PARTS * cores(), len(index)))
    shares = [[taken(case, slice(part[0], part[-1] + 1)) for case in (index, *cases)] for part in parts]
    started = workers().starmap_async(_call, [(task, share, same) for share in shares], chunksize=1)

    @functools.cache
    def joined() -> dict[str, np.ndarray]:
        found = started.get()
        return {name: np.concatenate([part[name] for part in found]) for name in found[0]}

    return joined


def side_by_side(measure: Callable, device: str = "cpu") -> Callable[[Sequence], object]:
    """`Plan.measuring` of groups that take one core each, asked for in their order.

    While one is waited for the next ones are measured, one more than there are cores; what ends the block ends them.

    Args:
        device: where groups do most of their work; on a GPU ON_GPU at a time.
    """

    @contextlib.contextmanager
    def measuring(left: Sequence) -> Iterator[Callable]:
        if min(cores(), len(left)) <= 1:
            yield measure
            return
        waiting, started, at_once = iter(left), {}, min(math.inf if device == "cpu" else ON_GPU, 1 + cores())

        def begin() -> None:
            for group in itertools.islice(waiting, at_once - len(started)):
                started[group] = workers().apply_async(_alone, (measure, group))

        def rows_of(group):
            begin()
            return started.pop(group).get()

        try:
            yield rows_of
        except BaseException:
            workers().terminate()
            raise
        finally:
            dismiss()

    return measuring


def _alone(measure: Callable, group):
    allot(1)
    return measure(group)


def taken(case, rows):
    """Some rows of an array, or of each array of a mapping."""
    return {name: array[rows] for name, array in case.items()} if isinstance(case, Mapping) else case[rows]


def _call(task, arrays, same):
    return task(*arrays, **same)


class Game:
    """Originals of one environment, of one agent or of several, which are stepped alike.

    Who has finished sees and gets nothing. A family whose originals are made or read otherwise has its own.

    Args:
        options: of `original.make`.
    """

    def __init__(self, name: str, seed: int, **options):
        self.name, self.seed, self.options = name, seed, options
        self.agents, self.over, self.original, self.made = envs.port(name).agents, False, None, {}

    @functools.cached_property
    def module(self):
        return envs.original(self.name)

    def begin(self, index: int):
        """Episode 0 of the environment of that index; returns its first observation."""
        self.original = envs.make_original(self.name, seed=self.seed, index=index, **self.options)
        return self.restart(self.seed)

    def restart(self, seed: int | None = None):
        self.over = False
        self.space = self.original.action_space(self.agents[0]) if self.agents else self.original.action_space
        return self.original.reset(seed=seed)[0]

    def put(self, index: int, state: Mapping):
        """The environment of that index in a state."""
        if index not in self.made:
            self.begin(index)
            self.made[index] = self.original
        self.original = self.made[index]
        self.restart()
        self.module.set_state(self.original, state)

    def read(self) -> dict:
        return self.module.get_state(self.original)

    def step(self, action: np.ndarray) -> tuple:
        """OUTCOME of a step, of agents [A, ...] each."""
        if not self.agents:
            given = action.reshape(self.space.shape) if self.space.shape else action.item()
            observation, reward, terminated, truncated, _ = self.original.step(given)
            self.over = terminated or truncated
            return observation, reward, terminated, truncated, self.over
        given = {agent: one if one.shape else one.item() for agent, one in zip(self.agents, action, strict=True)}
        found = self.original.step({agent: given[agent] for agent in self.original.agents})
        self.over = not self.original.agents
        nothing = (np.zeros(self.original.observation_space(self.agents[0]).shape), 0.0, False, False)
        columns = zip(found[:4], nothing, strict=True)
        return *(np.stack([part.get(agent, none) for agent in self.agents]) for part, none in columns), self.over

    def live(self, action: np.ndarray) -> dict:
        """The state that a step leads to, and its OUTCOME."""
        outcome = self.step(action)
        return self.read() | dict(zip(OUTCOME, outcome, strict=True))

    def drawn(self, index: int) -> Iterator[np.ndarray]:
        """Actions of all agents under the random policy, without end."""
        random = np.random.default_rng([index, 1])  # not the stream that draws the first state
        while True:
            yield from random_actions(random, self.space, (DRAWN, len(self.agents)) if self.agents else (DRAWN,))


# ---- tasks: what is asked of originals, by name -------------------------------------------------------------------


def lives(index: np.ndarray, actions: np.ndarray, start: Mapping, *, game: Game) -> dict[str, np.ndarray]:
    """Steps of episodes: what each leads to, [n, T, ...], zeros after the end.

    Args:
        index: [n] of the environments.
        actions: [n, T, ...]; an episode that has not ended after T steps is cut there.
        start: states [n, ...] that they start from; empty: as episode 0 does.
    """
    names, rows, places = (), [], []
    for i, number in enumerate(index.tolist()):
        game.put(number, taken(start, i)) if start else game.begin(number)
        for t, action in enumerate(actions[i]):
            found = game.live(action)
            names = tuple(found)
            rows.append(tuple(found.values()))
            places.append((i, t))
            if game.over:
                break
    found, at = {}, tuple(np.transpose(places))
    for name, column in zip(names, map(np.array, zip(*rows, strict=True)), strict=True):
        found[name] = np.zeros((*actions.shape[:2], *column.shape[1:]), column.dtype)
        found[name][at] = column
    return found


def steps(index: np.ndarray, actions: np.ndarray, start: Mapping, *, game: Game) -> dict[str, np.ndarray]:
    """One step from each state, [n, ...]."""
    rows, found = [], {}
    for number, action, *state in zip(index.tolist(), actions, *start.values(), strict=True):
        game.put(number, dict(zip(start, state, strict=True)))
        found = game.live(action)
        rows.append(tuple(found.values()))
    return dict(zip(found, map(np.array, zip(*rows, strict=True)), strict=True))


def visits(index: np.ndarray, *, game: Game, rounds: int, apart: int) -> dict[str, np.ndarray]:
    """States [n, rounds, ...] of running episodes under the random policy, so many steps apart."""
    found = []
    for number in index.tolist():
        game.begin(number)
        actions, rows = game.drawn(number), []
        for _ in range(rounds):
            for _ in range(apart):
                game.step(next(actions))
                if game.over:
                    game.restart()
            rows.append({name: np.array(value) for name, value in game.read().items()})
        found.append(rows)
    return {name: np.array([[row[name] for row in rows] for rows in found]) for name in found[0][0]}


def episodes(index: np.ndarray, *, game: Game, fixed: Settings | None = None) -> dict[str, np.ndarray]:
    """Length and return [n], the mean of its agents', of an episode of each index on random numbers of its own.

    Args:
        fixed: the settings whose fixed policy acts; None: the random one.
    """
    found = np.zeros((len(index), 2))
    for row, number in zip(found, index.tolist(), strict=True):
        observation, actions, total, length = game.begin(number), game.drawn(number), 0.0, 0
        choose = fixed_policy(game.space, fixed) if fixed else lambda _, actions=actions: next(actions)
        players = len(game.original.agents) if game.agents else 1  # fewer than there may be, in some episodes
        while not game.over:
            observation, reward, *_ = game.step(choose(observation))
            total, length = total + np.sum(reward) / players, length + 1
        row[:] = length, total
    return {"length": found[:, 0], "return": found[:, 1]}
