"""How episodes end and begin, in all three modes, against Gymnasium's SyncVectorEnv and against each other."""

import functools

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from lockstep import envs
from lockstep.experiments import config
from tests.envs.batches import DEVICES, MODES, NAMES, B, copies, make, random_step, same, spread

PLAYED = 4  # environments that Gymnasium plays along
ENDLESS = {"pendulum"}  # never terminates


def without_autoreset(env):
    """A batch in which an end changes nothing, to step from another batch's states."""
    return envs.make(
        env.name, env.num_envs, device=env.device, autoreset_mode="Disabled", check_actions=False, dtype=env.dtype
    )


def put(env, state: dict) -> None:
    """Puts a batch into the running episodes of another one's state."""
    live = torch.zeros_like(state["terminated"])
    env.set_state({"state": state["state"], "elapsed": state["elapsed"], "terminated": live, "truncated": live})


def first_observations(name: str, episodes: int, **options) -> torch.Tensor:
    """Observations [episodes, B, n] of the first states of every environment's episodes 0, 1, ..."""
    env = make(name, reset=False, **options)
    return torch.stack([env.reset()[0].clone() for _ in range(episodes)])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NAMES)
def test_same_step_returns_the_next_episodes_first_observation(name, device):
    env, plain, first = make(name, device=device), None, first_observations(name, 12, device=device)
    plain = without_autoreset(env)
    spread(env)
    episodes = 0
    for _ in range(70):
        before, action = env.state(), env.random_actions()[0]
        put(plain, before)
        last, *expected = copies(plain.step(action))[:4]
        obs, *found, info = copies(env.step(action))
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
        ended = found[1] | found[2]
        assert torch.equal(info["_final_obs"], ended)
        assert torch.equal(info["final_obs"][ended], last[ended])
        assert torch.equal(obs[~ended], last[~ended])
        after = env.state()
        episode = after["episode"].to(torch.int64)
        assert torch.equal(episode, before["episode"].to(torch.int64) + ended)
        assert torch.equal(obs[ended], first[episode, torch.arange(B)][ended])
        length = before["elapsed"].to(torch.int32) + 1
        assert torch.equal(info["episode_length"][ended], length[ended])
        assert torch.equal(after["elapsed"].to(torch.int32), torch.where(ended, 0, length))
        episodes += int(ended.sum())
    assert episodes >= B * 70 // env.max_episode_steps


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NAMES)
def test_next_step_shows_the_last_observation_then_resets(name, device):
    env, first = make(name, device=device, autoreset_mode="NextStep"), first_observations(name, 12, device=device)
    plain = without_autoreset(env)
    spread(env)
    was, resets = torch.zeros(B, dtype=torch.bool, device=device), 0
    for _ in range(80):
        before, action = env.state(), env.random_actions()[0]
        put(plain, before | {"elapsed": torch.where(was, 0, before["elapsed"].to(torch.int32))})
        last, *expected = copies(plain.step(action))[:4]
        obs, reward, terminated, truncated, info = copies(env.step(action))
        assert torch.equal(info["is_reset"], was)
        for found, value in zip((reward, terminated, truncated), expected, strict=True):
            assert torch.equal(found[~was], value[~was])
            assert not found[was].any()
        assert torch.equal(obs[~was], last[~was])
        after, ended = env.state(), terminated | truncated
        episode = after["episode"].to(torch.int64)
        assert torch.equal(episode, before["episode"].to(torch.int64) + was)
        assert torch.equal(obs[was], first[episode, torch.arange(B)][was])
        assert torch.equal(info["final_obs"][ended], obs[ended])
        assert (after["elapsed"].to(torch.int32)[was] == 0).all()
        resets += int(was.sum())
        was = ended
    assert resets >= B * 70 // env.max_episode_steps


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NAMES)
def test_disabled_leaves_an_ended_environment_inert(name, device):
    env = make(name, device=device, autoreset_mode="Disabled", check_actions=False)
    spread(env)
    for _ in range(70):
        before = env.state()
        ended = before["terminated"] | before["truncated"]
        obs, reward, terminated, truncated, info = random_step(env)
        after = env.state()
        for key in set(before) - {"bounds", "t", "seed"}:
            assert torch.equal(after[key][ended], before[key][ended])
        assert (reward[ended] == 0).all()
        now = terminated | truncated
        assert torch.equal(info["final_obs"][now], obs[now])
        assert torch.equal(after["elapsed"].to(torch.int32), before["elapsed"].to(torch.int32) + ~ended)
    assert ended.sum() >= B * 60 // env.max_episode_steps


@pytest.mark.parametrize("name", NAMES)
def test_disabled_and_checked_names_the_environment_that_needs_a_reset(name):
    env = make(name, autoreset_mode="Disabled")
    env.set_state({"elapsed": np.where(np.arange(B) == 7, env.max_episode_steps - 1, 0)})
    assert random_step(env)[3].nonzero().flatten().tolist() == [7]
    with pytest.raises(ValueError, match="environment 7 has ended; with autoreset disabled it needs reset"):
        random_step(env)
    env.reset(options={"reset_mask": torch.arange(B) == 7})
    random_step(env)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NAMES)
def test_an_ended_environment_put_in_from_outside_stays_inert(name, device):
    env = make(name, device=device, autoreset_mode="Disabled", check_actions=False)
    ended = torch.arange(B) < 5
    env.set_state({"truncated": ended, "elapsed": torch.where(ended, env.max_episode_steps, 3)})
    before = env.state()
    _, reward, _, truncated, _ = random_step(env)
    assert torch.equal(truncated.cpu(), ended)
    after = env.state()["state"]
    assert torch.equal(after[:5], before["state"][:5])
    assert (after[5:] != before["state"][5:]).any(dim=1).all()
    assert (reward[:5] == 0).all()


# ---- limits -------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NAMES)
def test_episodes_are_truncated_at_exactly_the_originals_limit(name, device, mode):
    env = make(name, device=device, autoreset_mode=mode, check_actions=False)
    horizon = gymnasium.spec(env.port.gymnasium_id).max_episode_steps
    env.set_state({"elapsed": np.full(B, horizon - 3)})  # far into the episode, but the state is a first one
    for step in (horizon - 2, horizon - 1, horizon):
        *_, truncated, info = random_step(env)
        assert truncated.tolist() == [step == horizon] * B
    assert info["episode_length"].tolist() == [horizon] * B


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NAMES)
def test_counted_from_the_first_step_no_episode_is_longer_than_the_limit(name, device):
    env = make(name, device=device)
    horizon = env.max_episode_steps
    rows = env.rollout(2 * horizon + 1, fixed_policy(name), store="trajectory")
    elapsed, longest = np.zeros(B, dtype=int), 0
    for terminated, truncated in zip(rows["terminated"].cpu().numpy(), rows["truncated"].cpu().numpy(), strict=True):
        elapsed += 1
        np.testing.assert_array_equal(truncated, elapsed == horizon)
        longest = max(longest, elapsed.max())
        elapsed[terminated | truncated] = 0
    np.testing.assert_array_equal(elapsed, env.state()["elapsed"].to(torch.int32).cpu().numpy())
    assert longest <= horizon


@pytest.mark.parametrize("device", DEVICES)
def test_an_episode_may_be_one_step_long(device):
    for name in ("cartpole", "mountain_car_continuous"):
        env, first = make(name, device=device, max_episode_steps=1), first_observations(name, 6, device=device)
        for episode in range(1, 6):
            obs, _, _, truncated, info = random_step(env)
            assert truncated.all()
            assert (info["episode_length"] == 1).all()
            assert torch.equal(obs, first[episode])
            assert not torch.equal(info["final_obs"], obs)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("limit", [65_535, 65_536, 2**31 - 1])
def test_the_longest_episodes_end_at_the_limit(device, limit):
    env = make("cartpole", device=device, autoreset_mode="NextStep", max_episode_steps=limit)
    env.set_state({"elapsed": np.full(B, limit - 2)})
    assert not random_step(env)[3].any()
    *_, truncated, info = random_step(env)
    assert truncated.all()
    assert info["episode_length"].tolist() == [limit] * B


# ---- against SyncVectorEnv ----------------------------------------------------------------------


@functools.cache
def fixed_policy(name: str) -> envs.Linear:
    fixed = config.load(name, "quick").throughput.fixed_policy
    return envs.Linear(fixed.weights, fixed.bias)


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("name", NAMES)
def test_autoreset_is_that_of_sync_vector_env(name, mode):
    """Both go through the same states: before each step Gymnasium's environments get the port's.

    Gymnasium counts steps and ends episodes by itself, and its first states are its own.
    """
    port, module = make(name, autoreset_mode=mode, check_actions=False), envs.original(name)
    theirs = SyncVectorEnv([functools.partial(envs.make_original, name)] * PLAYED, autoreset_mode=mode)
    theirs.reset(seed=0)
    actor, near = port.actor(fixed_policy(name)), functools.partial(np.testing.assert_allclose, rtol=1e-6, atol=2e-6)
    obs, was, ends = port.reset(seed=0)[0], np.zeros(PLAYED, dtype=bool), np.zeros(2, dtype=int)
    for _ in range(port.max_episode_steps + 60):
        if mode == AutoresetMode.DISABLED and was.any():
            everyone = port.state()
            port.reset(options={"reset_mask": everyone["terminated"] | everyone["truncated"]})
            theirs.reset(options={"reset_mask": was.copy()})
        states = port.state()
        for i, env in enumerate(theirs.envs):
            elapsed = module.get_state(env)[1]
            if not (mode == AutoresetMode.NEXT_STEP and was[i]):
                assert elapsed == int(states["elapsed"][i])
                module.set_state(env, states["state"][i].numpy(), elapsed)
        # half of them at random, half under a policy that goes on to the end or to the limit
        action = torch.where(torch.arange(B) % 2 == 0, port.random_actions()[0], actor(obs))
        obs, reward, terminated, truncated, info = port.step(action)
        given = action[:PLAYED].numpy()
        found = theirs.step(given[:, None] if action.is_floating_point() else given)
        np.testing.assert_array_equal(terminated[:PLAYED], found[2])
        np.testing.assert_array_equal(truncated[:PLAYED], found[3])
        near(reward[:PLAYED], found[1], atol=1e-5)
        ended = found[2] | found[3]
        if mode == AutoresetMode.SAME_STEP:
            assert ("final_obs" in found[4]) == ended.any()
            np.testing.assert_array_equal(info["_final_obs"][:PLAYED], found[4].get("_final_obs", np.zeros(PLAYED)))
            for i in np.flatnonzero(ended):
                near(info["final_obs"][i], found[4]["final_obs"][i])
        else:
            near(info["final_obs"][:PLAYED][ended], found[0][ended])
        drawn = {AutoresetMode.SAME_STEP: ended, AutoresetMode.NEXT_STEP: was}.get(mode, np.zeros(PLAYED, dtype=bool))
        near(obs[:PLAYED][~drawn], found[0][~drawn])
        was = ended
        ends += [found[2].sum(), found[3].sum()]
    assert ends[1] >= 2
    assert ends[0] >= 2 or name in ENDLESS


@pytest.mark.parametrize("name", NAMES)
def test_first_states_after_an_autoreset_are_drawn_like_gymnasiums(name):
    """The two-sample Kolmogorov-Smirnov test of each field against a thousand of the original's resets: p > 1e-3."""
    env, original, module = make(name, 1000, seed=1), envs.make_original(name), envs.original(name)
    theirs = []
    for seed in range(1000):
        original.reset(seed=seed)
        theirs.append(module.get_state(original)[0])
    env.set_state({"elapsed": np.full(1000, env.max_episode_steps - 1)})
    random_step(env)
    ours = env.state()["state"].double().numpy()
    for column in range(ours.shape[1]):
        one, other = np.sort(ours[:, column]), np.sort(np.array(theirs)[:, column])
        points = np.concatenate([one, other])
        ranks = [np.searchsorted(sample, points, side="right") / 1000 for sample in (one, other)]
        if np.ptp(points) > 0:
            assert np.abs(ranks[0] - ranks[1]).max() < 1.95 * np.sqrt(2 / 1000)


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_a_masked_reset_can_be_captured(name):
    env, eager = (make(name, device="cuda", autoreset_mode="Disabled") for _ in range(2))
    mask = torch.arange(B, device="cuda") % 2 == 0
    options = {"reset_mask": mask}
    env.reset(options=options)  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        env.reset(options=options)
    graph.replay()
    for _ in range(2):
        eager.reset(options=options)
    assert same(env.state(), eager.state())
