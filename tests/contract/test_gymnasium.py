"""Environments as Gymnasium and PettingZoo see them: spaces, ids, wrappers, their own checkers, and SyncVectorEnv."""

import functools
import warnings

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import batch_space

from lockstep import envs
from lockstep.experiments import config
from tests.contract.batches import KNOWN, NAMES_AND_MODES, equal, having, make, port, random_step

TEAMS = [name for name in envs.names() if port(name).agents]
PLAYED = 4  # environments that Gymnasium plays along
ENDLESS = {"pendulum"}  # never terminates


def identifier(name: str) -> str:
    return f"lockstep/{port(name).gymnasium_id}"


# ---- conventions of vector environments -----------------------------------------------------------------------------


def test_spaces_of_a_batch_are_gymnasiums_batched_ones(name):
    env = make(name, arrays="numpy", autoreset_mode="NextStep")
    agents = [len(env.agents)] if env.agents else []
    for batched, single in (
        (env.observation_space, env.single_observation_space),
        (env.action_space, env.single_action_space),
    ):
        for count in (*agents, env.num_envs):
            single = batch_space(single, count)
        assert batched == single
    env.action_space.seed(1)
    for _ in range(3):
        obs, *_ = env.step(env.action_space.sample())
    assert env.observation_space.contains(np.ascontiguousarray(env.reset()[0]))
    assert obs.shape == env.observation_space.shape


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_mode_is_told_as_gymnasium_does(name, mode):
    env = make(name, autoreset_mode=mode)
    assert isinstance(env, gymnasium.vector.VectorEnv)
    assert env.metadata["autoreset_mode"] is mode
    assert equal(env.state(), make(name, autoreset_mode=mode.value).state())
    assert env.unwrapped is env and env.render_mode is None and not env.closed


@pytest.mark.parametrize("name", having(lambda declared: not declared.agents))
def test_a_numpy_batch_passes_through_gymnasiums_vector_wrappers(name):
    batch = make(name, arrays="numpy", autoreset_mode="NextStep")
    env = gymnasium.wrappers.vector.NormalizeObservation(gymnasium.wrappers.vector.RecordEpisodeStatistics(batch))
    env.reset(seed=1)
    env.action_space.seed(1)
    episodes = 0
    for _ in range(batch.max_episode_steps + 10):
        obs, *_, info = env.step(env.action_space.sample())
        if "episode" in info:
            ended = info["_episode"]
            np.testing.assert_array_equal(info["episode"]["l"][ended], info["episode_length"][ended])
            np.testing.assert_allclose(info["episode"]["r"][ended], info["episode_return"][ended], rtol=1e-4, atol=1e-4)
            episodes += ended.sum()
    assert np.isfinite(obs).all()
    assert episodes >= batch.num_envs


# ---- ids ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KNOWN)
def test_make_vec_gives_the_port_without_a_warning(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make_vec(identifier(name), num_envs=200, device="cpu", seed=3)
    assert isinstance(env, envs.BatchedEnv)
    limit = gymnasium.spec(port(name).gymnasium_id).max_episode_steps
    assert (env.num_envs, env.max_episode_steps, env.spec.id) == (200, limit, identifier(name))
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert torch.equal(env.reset()[0], make(name, seed=3)._outputs[0])


def test_make_vec_passes_options_and_limits_on():
    env = gymnasium.make_vec(
        "lockstep.envs:lockstep/CartPole-v1",
        4,
        autoreset_mode=AutoresetMode.NEXT_STEP,
        max_episode_steps=7,
        gravity=1.0,
    )
    assert (env.max_episode_steps, env.params.gravity) == (7, 1.0)
    assert env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    with pytest.raises(gymnasium.error.Error, match="vector_kwargs"):
        gymnasium.make_vec("lockstep/CartPole-v1", 4, vector_kwargs={"a": 1})


@pytest.mark.parametrize("name", KNOWN)
def test_make_gives_the_original(name):
    env, theirs = gymnasium.make(identifier(name)), gymnasium.make(port(name).gymnasium_id)
    assert type(env.unwrapped) is type(theirs.unwrapped)
    assert env.spec.max_episode_steps == theirs.spec.max_episode_steps
    assert env.spec.reward_threshold == theirs.spec.reward_threshold
    batch = make(name)
    assert batch.single_observation_space == theirs.observation_space
    assert batch.single_action_space == theirs.action_space


# ---- originals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in envs.names() if not port(name).agents])
def test_originals_pass_gymnasiums_checker_and_repeat_themselves(name):
    env, other = envs.make_original(name), envs.make_original(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*(infinity|render|spec|Box|float32).*")
        check_env(env.unwrapped, skip_render_check=True)
    assert data_equivalence(env.reset(seed=5), other.reset(seed=5), exact=True)
    env.action_space.seed(1)
    for _ in range(50):
        action = env.action_space.sample()
        found, expected = env.step(action), other.step(action)
        assert data_equivalence(found, expected, exact=True)
        if found[2] or found[3]:
            assert data_equivalence(env.reset(), other.reset(), exact=True)


@pytest.mark.parametrize("name", TEAMS)
def test_originals_with_agents_pass_pettingzoos_tests(name):
    from pettingzoo.test import parallel_api_test, parallel_seed_test

    parallel_api_test(envs.make_original(name), num_cycles=20)
    parallel_seed_test(functools.partial(envs.make_original, name))
    env = envs.make_original(name)
    assert tuple(env.possible_agents) == port(name).agents
    batch = make(name)
    for agent in env.possible_agents:
        assert same_box(env.observation_space(agent), batch.single_observation_space)
        assert env.action_space(agent) == batch.single_action_space


def same_box(one, other) -> bool:
    """True where two boxes are equal but for their types: an original may observe in float64."""
    return np.array_equal(one.low, other.low) and np.array_equal(one.high, other.high)


@functools.cache
def fixed_policy(name: str) -> envs.Linear:
    fixed = config.load(name, "quick").throughput.fixed_policy
    return envs.Linear(fixed.weights, fixed.bias)


@pytest.mark.parametrize(("name", "mode"), [row for row in NAMES_AND_MODES if row.values[0] in KNOWN])
def test_autoreset_is_that_of_sync_vector_env(name, mode):
    """Both go through the same states: before each step Gymnasium's environments get the port's.

    Gymnasium counts steps and ends episodes by itself, and its first states are its own.
    """
    mode = AutoresetMode(mode)
    batch = make(name, autoreset_mode=mode, check_actions=False, max_episode_steps=None)
    module, theirs = (
        envs.original(name),
        SyncVectorEnv([functools.partial(envs.make_original, name)] * PLAYED, autoreset_mode=mode),
    )
    theirs.reset(seed=0)
    actor, near = batch.actor(fixed_policy(name)), functools.partial(np.testing.assert_allclose, rtol=1e-6, atol=2e-6)
    obs, was, ends = batch.reset(seed=0)[0], np.zeros(PLAYED, dtype=bool), np.zeros(2, dtype=int)
    for _ in range(batch.max_episode_steps + 60):
        if mode == AutoresetMode.DISABLED and was.any():
            everyone = batch.state()
            batch.reset(options={"reset_mask": everyone["terminated"] | everyone["truncated"]})
            theirs.reset(options={"reset_mask": was.copy()})
        states = batch.state()
        for i, env in enumerate(theirs.envs):
            elapsed = module.get_state(env)[1]
            if not (mode == AutoresetMode.NEXT_STEP and was[i]):
                assert elapsed == int(states["elapsed"][i])
                module.set_state(env, states["state"][i].numpy(), elapsed)
        # half of them at random, half under a policy that goes on to the end or to the limit
        action = torch.where(torch.arange(batch.num_envs) % 2 == 0, batch.random_actions()[0], actor(obs))
        obs, reward, terminated, truncated, info = batch.step(action)
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


@pytest.mark.parametrize("name", KNOWN)
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
