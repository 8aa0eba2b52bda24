"""Returns of several steps: by hand, and beside a loop over each stream's own episodes."""

import pytest
import torch

from lockstep.agents.parts.n_step import NStep, OneSequence
from lockstep.agents.parts.transitions import Transitions
from tests.agents.worlds import Clock, World

CPU = torch.device("cpu")


def step(number: int, reward: list[float], terminated: list[bool] | None = None) -> dict[str, torch.Tensor]:
    """The rows of a step of N streams: stream i sees number + 100 i, then number + 1 + 100 i."""
    N = len(reward)
    obs = (number + 100.0 * torch.arange(N)).unsqueeze(1)
    terminated = [False] * N if terminated is None else terminated
    rows = {"obs": obs, "next_obs": obs + 1, "action": -obs, "reward": torch.tensor(reward)}
    return rows | {"terminated": torch.tensor(terminated)}


def left(window: NStep, rows, ended, valid=None) -> list[tuple[float, ...]]:
    """Rows that leave a window with a step, as (obs, action, reward, next_obs, discount)."""
    flat, leaves = window(rows, torch.tensor(ended), None if valid is None else torch.tensor(valid))
    names = ("obs", "action", "reward", "next_obs", "discount")
    return [
        tuple(round(float(flat[name][i]), 5) for name in names)
        for i in range(len(flat["reward"]))
        if leaves is None or leaves[i]
    ]


@pytest.mark.parametrize(
    ("terminated", "discounts"),
    [(True, (0.0, 0.0, 0.0)), (False, (0.729, 0.81, 0.9))],
)
def test_three_steps_by_hand_and_the_shorter_ones_of_an_end(terminated, discounts):
    """gamma 0.9, rewards 1, 2, 4, 8: 1 + 1.8 + 3.24 = 6.04; then 2 + 3.6 + 6.48, 4 + 7.2, 8 at the end."""
    window = NStep(3, 0.9, 1, (1,), (1,), CPU)
    assert left(window, step(0, [1.0]), [False]) == []
    assert left(window, step(1, [2.0]), [False]) == []
    assert left(window, step(2, [4.0]), [False]) == [(0, 0, 6.04, 3, 0.729)]
    third, second, first = discounts
    expected = [(1, -1, 12.08, 4, third), (2, -2, 11.2, 4, second), (3, -3, 8, 4, first)]
    assert left(window, step(3, [8.0], [terminated]), [True]) == expected
    # the next episode begins with nothing of this one
    assert left(window, step(50, [1.0]), [False]) == []
    assert left(window, step(51, [1.0], [terminated]), [True]) == [
        (50, -50, 1.9, 52, 0 if terminated else 0.81),
        (51, -51, 1, 52, 0 if terminated else 0.9),
    ]


def test_one_step_is_the_row_itself():
    window = NStep(1, 0.9, 2, (1,), (1,), CPU)
    found = left(window, step(7, [1.0, 2.0], [False, True]), [False, True])
    assert found == [(7, -7, 1, 8, 0.9), (107, -107, 2, 108, 0)]
    assert left(window, step(8, [1.0, float("nan")]), [False, False], [True, False]) == [(8, -8, 1, 9, 0.9)]


def test_streams_do_not_mix():
    """Three streams with rewards 1, 10, 100 at every step: 2-step returns 1.5, 15, 150 at gamma 0.5."""
    window = NStep(2, 0.5, 3, (1,), (1,), CPU)
    left(window, step(0, [1.0, 10.0, 100.0]), [False] * 3)
    found = left(window, step(1, [1.0, 10.0, 100.0]), [False] * 3)
    assert found == [(0, 0, 1.5, 2, 0.25), (100, -100, 15, 102, 0.25), (200, -200, 150, 202, 0.25)]


def test_a_stream_that_does_not_count_leaves_nothing():
    window, nan = NStep(2, 0.5, 2, (1,), (1,), CPU), float("nan")
    left(window, step(0, [1.0, 10.0]), [False, False])
    found = left(window, step(1, [1.0, 10.0], [False, True]), [False, True])
    assert found == [(0, 0, 1.5, 2, 0.25), (100, -100, 15, 102, 0), (101, -101, 10, 102, 0)]
    assert left(window, step(2, [1.0, nan]), [False, False], [True, False]) == [(1, -1, 1.5, 3, 0.25)]
    assert left(window, step(3, [1.0, nan], [True, False]), [True, False], [True, False]) == [
        (2, -2, 1.5, 4, 0),
        (3, -3, 1, 4, 0),
    ]


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_it_is_a_loop_over_episodes(n):
    """Random ends, of both kinds and at once, beside sums that are taken episode by episode in float64."""
    T, N, gamma, generator = 60, 5, 0.8, torch.Generator().manual_seed(n)
    reward = torch.randn(T, N, generator=generator)
    terminated, truncated = (torch.rand(T, N, generator=generator) < 0.15 for _ in range(2))
    ended = terminated | truncated
    expected = set()
    for i in range(N):
        for t in range(T):
            last = next((s for s in range(t, min(t + n, T)) if ended[s, i]), t + n - 1)
            if last < T:
                total = sum(gamma ** (s - t) * float(reward[s, i]) for s in range(t, last + 1))
                discount = 0.0 if terminated[last, i] else gamma ** (last - t + 1)
                expected.add((t + 100.0 * i, last + 1 + 100.0 * i, round(total, 3), round(discount, 4)))
    window, found = NStep(n, gamma, N, (1,), (1,), CPU), []
    for t in range(T):
        rows = left(window, step(t, reward[t].tolist(), terminated[t].tolist()), ended[t].tolist())
        found += [(obs, after, round(total, 3), round(discount, 4)) for obs, _, total, after, discount in rows]
    assert len(found) == len(set(found)) == len(expected)
    for one, other in zip(sorted(found), sorted(expected), strict=True):
        assert one == pytest.approx(other, abs=2e-3)


@pytest.mark.parametrize("ends", [("truncated",), ("terminated",), ("terminated", "truncated")])
def test_steps_of_an_environment_end_where_its_episodes_do(ends):
    """Clocks of five steps that give 1: step 3 has 1 + 0.5 left, and its next observation is 5, not the next 0."""
    transitions = Transitions(Clock(5, limit=5, ends=ends), 0, CPU)
    window, found = NStep(3, 0.5, 5, (1,), (1,), CPU), {}
    for _ in range(12):
        rows, valid = transitions.step(torch.zeros(5, 1))
        flat, leaves = window(rows, transitions.ended, valid)
        for obs, total, after, discount in zip(
            *(flat[name][leaves].flatten().tolist() for name in ("obs", "reward", "next_obs", "discount")), strict=True
        ):
            found.setdefault(obs, set()).add((total, after, discount))
    goes_on = "terminated" not in ends
    expected = {0: (1.75, 3, 0.125), 1: (1.75, 4, 0.125), 2: (1.75, 5, 0.125 * goes_on)}
    expected |= {3: (1.5, 5, 0.25 * goes_on), 4: (1.0, 5, 0.5 * goes_on)}
    assert found == {obs: {row} for obs, row in expected.items()}


def test_an_agent_that_finishes_ends_its_stream():
    """Agent 1 acts the first three of five steps; nothing of its first episode is in its second."""
    env = World(2, agents=2, active=lambda step: torch.tensor([True, step < 3]).repeat(2, 1))
    transitions = Transitions(env, 0, CPU)
    ends = []
    for _ in range(10):
        _, valid = transitions.step(torch.zeros(4, dtype=torch.int64))
        ends.append((transitions.ended & valid).tolist())
    of_agents = [[row[0] for row in ends], [row[1] for row in ends]]
    assert [[t for t, ended in enumerate(row) if ended] for row in of_agents] == [[4, 9], [2, 7]]


def test_a_state_goes_on_where_it_was():
    one, other = (NStep(3, 0.9, 1, (1,), (1,), CPU) for _ in range(2))
    left(one, step(0, [1.0]), [False])
    state = one.state()
    left(one, step(1, [5.0]), [False])
    other.load_state(state)
    assert left(other, step(1, [2.0]), [True]) == [(0, 0, 2.8, 2, 0.81), (1, -1, 2, 2, 0.9)]


def test_in_one_sequence_a_return_is_of_several_agents():
    """Three agents of one environment with rewards 1, 10, 100 and gamma 0.5: each row has its agent's reward, half of
    the next one's and a quarter of the one after that, and the last two leave as the episode ends."""
    window, rewards = OneSequence(3, 0.5, 1, 3, (1,), (1,), CPU), [1.0, 10.0, 100.0]
    assert left(window, step(0, rewards), [False] * 3) == [(0, 0, 31, 201, 0.125)]
    assert left(window, step(1, rewards), [True] * 3) == [
        (100, -100, 60.25, 2, 0.125),
        (200, -200, 103, 102, 0.125),
        (1, -1, 31, 202, 0.125),
        (101, -101, 60, 202, 0.25),
        (201, -201, 100, 202, 0.5),
    ]


def test_in_one_sequence_who_does_not_act_has_no_place_and_the_last_one_s_end_counts():
    """Agent 1 is absent: agent 0 terminates at its second step, and then the environment ends with nobody left."""
    window, acts = OneSequence(2, 0.5, 2, 2, (1,), (1,), CPU), [True, False, True, True]
    rubbish = float("nan")
    assert left(window, step(0, [1.0, rubbish, 1.0, 2.0]), [False] * 4, acts) == [(200, -200, 2, 301, 0.25)]
    found = left(
        window, step(1, [4.0, rubbish, 1.0, 2.0], [True, True, False, False]), [True, True, False, False], acts
    )
    assert found == [(0, 0, 3, 2, 0), (300, -300, 2.5, 202, 0.25), (201, -201, 2, 302, 0.25), (1, -1, 4, 2, 0)]


class Finishing(World):
    """Flags [B, A] of those that act, as the port gives them: who is not there in the next step has terminated."""

    def step(self, action):
        time = self.time % self.limit
        here, last = self.active(time), time + 1 == self.limit
        goes_on = torch.full_like(here, last) | self.active((time + 1) % self.limit)
        obs, reward, _, _, info = super().step(action)
        return obs, reward, here & ~goes_on, here & last, info


def test_in_one_sequence_an_episode_that_some_left_earlier_ends_with_the_last_one():
    """Agent 1 acts the first three of five steps, which makes eight rows of an episode: all have left at its end."""
    rule = {"reward": lambda obs, action: torch.ones(obs.shape[:-1])}
    rule |= {"active": lambda step: torch.tensor([True, step < 3]).repeat(2, 1)}
    env = Finishing(2, agents=2, **rule)
    transitions, window = Transitions(env, 0, CPU), OneSequence(3, 0.5, 2, 2, (3,), (1,), CPU)
    returns = []
    for _ in range(10):
        rows, valid = transitions.step(torch.zeros(4, 1))
        flat, leaves = window(rows, transitions.ended, valid)
        returns.append(sorted(flat["reward"][leaves].tolist()))
    twice = [1.75, 1.75]  # of two environments
    assert returns == [[], twice * 2, twice * 2, twice, [1.0, 1.0, 1.5, 1.5, *twice]] * 2


def test_of_one_agent_one_sequence_is_its_stream():
    torch.manual_seed(0)
    one, other = NStep(3, 0.9, 4, (1,), (1,), CPU), OneSequence(3, 0.9, 4, 1, (1,), (1,), CPU)
    for number in range(40):
        rows, ended = step(number, torch.randn(4).tolist()), torch.rand(4) < 0.2
        rows["terminated"] = ended & (torch.rand(4) < 0.5)
        (found, leaves), (expected, leave) = other(rows, ended), one(rows, ended)
        assert torch.equal(leaves, leave)
        for name, row in expected.items():
            torch.testing.assert_close(found[name][leaves], row[leave])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: NStep(0, 0.9, 1, (1,), (1,), CPU), "n=0 must be an integer from 1 to"),
        (
            lambda: NStep(2, 0.9, 1, (1,), (1,), CPU).load_state(NStep(3, 0.9, 1, (1,), (1,), CPU).state()),
            r"n-step window\['obs'\] must have the shape \[2, 1, 1\], has \[3, 1, 1\]",
        ),
    ],
)
def test_bad_input_is_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
