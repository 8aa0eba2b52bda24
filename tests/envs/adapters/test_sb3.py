"""Ports under Stable-Baselines3 itself: its checks, its wrappers, its algorithms."""

import warnings

import gymnasium
import numpy as np
import pytest

from lockstep import envs

pytest.importorskip("stable_baselines3", reason="needs Stable-Baselines3: pip install stable-baselines3")

from stable_baselines3 import PPO, SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecCheckNan, VecMonitor, VecNormalize

from lockstep.envs.adapters import sb3
from tests.contract.test_gymnasium import TEAMS
from tests.envs.batches import EACH_KIND


def random_actions(venv, steps, seed=0):
    """Actions [steps, B, ...] as Stable-Baselines3 hands them over: int64, or float32 [B, 1]."""
    venv.action_space.seed(seed)
    return [np.stack([venv.action_space.sample() for _ in range(venv.num_envs)]) for _ in range(steps)]


@pytest.mark.parametrize("name", EACH_KIND)
def test_values_are_those_of_the_bare_batch(name):
    venv = sb3.make(name, 16, seed=4, max_episode_steps=20)
    batch = envs.make(name, 16, seed=4, max_episode_steps=20, arrays="numpy")
    np.testing.assert_array_equal(venv.reset(), batch.reset()[0])
    ends = 0
    for action in random_actions(venv, 60):
        obs, reward, done, infos = venv.step(action)
        *expected, terminated, truncated, last = batch.step(action)
        for found, buffer in zip((obs, reward, done), (*expected, terminated | truncated), strict=True):
            assert (found.dtype, found.shape) == (buffer.dtype, buffer.shape)
            np.testing.assert_array_equal(found, buffer)
        for i, info in enumerate(infos):
            assert info["TimeLimit.truncated"] is bool(truncated[i] and not terminated[i])
            assert ("terminal_observation" in info) == ("episode" in info) == done[i]
            if done[i]:
                np.testing.assert_array_equal(info["terminal_observation"], last["final_obs"][i])
                assert info["episode"]["r"] == last["episode_return"][i]
        ends += done.sum()
    assert ends >= 32  # every environment is cut off at least at steps 20, 40 and 60


def test_an_episode_that_falls_at_the_limit_is_not_truncated():
    """Both flags at once: Stable-Baselines3 must not add the value of an observation that ends the task."""
    venv = sb3.make("cartpole", 8, seed=0)
    venv.reset()
    lengths = {}
    while len(lengths) < 8:
        infos = venv.step(np.ones(8, dtype=np.int64))[3]
        lengths = {i: info["episode"]["l"] for i, info in enumerate(infos) if "episode" in info} | lengths
    shortest = min(lengths.values())  # under a constant push; now the limit strikes there too
    venv = sb3.make("cartpole", 8, seed=0, max_episode_steps=shortest)
    venv.reset()
    for _ in range(shortest):
        infos = venv.step(np.ones(8, dtype=np.int64))[3]
    assert all(info["episode"]["l"] == shortest for info in infos)
    assert [info["TimeLimit.truncated"] for info in infos] == [lengths[i] > shortest for i in range(8)]
    assert not all(info["TimeLimit.truncated"] for info in infos)


def test_results_are_copies_that_outlive_the_next_step():
    venv = sb3.make("cartpole", 4, max_episode_steps=1)  # every step ends an episode
    first = venv.reset()
    kept = [first, *venv.step(np.zeros(4, dtype=np.int64))]
    copies = [np.copy(part) for part in kept[:4]]
    last = [info["terminal_observation"].copy() for info in kept[4]]
    kept[2] += 100  # as collect_rollouts does where an episode is truncated
    after = venv.step(np.ones(4, dtype=np.int64))
    for part, copy in zip(kept[:2] + kept[3:4], copies[:2] + copies[3:4], strict=True):
        np.testing.assert_array_equal(part, copy)
    for info, copy in zip(kept[4], last, strict=True):
        np.testing.assert_array_equal(info["terminal_observation"], copy)
    assert after[1].tolist() == [1, 1, 1, 1]


def test_a_batch_of_tensors_serves_as_well():
    venv = sb3.SB3VecEnv(envs.make("cartpole", 4, seed=1))
    other = sb3.make("cartpole", 4, seed=1)
    np.testing.assert_array_equal(venv.reset(), other.reset())
    for action in random_actions(other, 30):
        found, expected = venv.step(action), other.step(action)
        for a, b in zip(found[:3], expected[:3], strict=True):
            assert isinstance(a, np.ndarray)
            np.testing.assert_array_equal(a, b)


def test_seeds_take_effect_at_the_next_reset_and_once():
    venv, batch = sb3.make("cartpole", 4), envs.make("cartpole", 4, arrays="numpy")
    assert venv.seed(7) == [7, 7, 7, 7]
    first = venv.reset()
    np.testing.assert_array_equal(first, batch.reset(seed=7)[0])
    assert len(np.unique(first[:, 0])) == 4
    np.testing.assert_array_equal(venv.reset(), batch.reset()[0])  # the next episode, not the first again
    venv.seed(7)
    np.testing.assert_array_equal(venv.reset(), first)
    assert len(set(venv.seed(None))) == 1


def test_groups_get_seeds_of_their_own():
    venv = sb3.make("cartpole", 6, groups=3)
    assert venv.seed(7) == [7, 7, 8, 8, 9, 9]
    obs = venv.reset()
    for group, seed in enumerate((7, 8, 9)):
        alone = sb3.make("cartpole", 2)
        alone.seed(seed)
        np.testing.assert_array_equal(obs[2 * group : 2 * group + 2], alone.reset())


def test_reset_options_are_the_bounds_of_the_batch_and_hold_once():
    venv = sb3.make("cartpole", 32)
    venv.set_options({"low": 0.1, "high": 0.2})
    obs = venv.reset()
    assert obs.min() >= 0.1
    assert obs.max() <= np.float32(0.2)
    assert np.abs(venv.reset()).max() <= 0.05
    venv.set_options([{"low": 0.1, "high": 0.2}] * 31 + [{}])
    with pytest.raises(ValueError, match="set_options needs the same for all"):
        venv.reset()


class OneOf(gymnasium.Env):
    """One environment of a VecEnv as a Gymnasium environment, for a checker that knows nothing else."""

    def __init__(self, venv):
        self.venv, self.observation_space, self.action_space = venv, venv.observation_space, venv.action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.venv.seed(seed)
        return self.venv.reset()[0], {}

    def step(self, action):
        obs, reward, done, infos = self.venv.step(np.array([action]))
        truncated = infos[0]["TimeLimit.truncated"]
        last = infos[0]["terminal_observation"] if done[0] else obs[0]
        return last, float(reward[0]), bool(done[0]) and not truncated, truncated, infos[0]


@pytest.mark.parametrize("name", EACH_KIND)
def test_stable_baselines_own_environment_check(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="We recommend you to use a symmetric and normalized Box action space")
        check_env(OneOf(sb3.make(name, 1, max_episode_steps=20)))


class Spy(BaseCallback):
    """Notes the single observations that Stable-Baselines3 asks the value of, and how many episodes end."""

    def _on_training_start(self):
        self.asked, self.ends = [], 0
        predict = self.model.policy.predict_values

        def noting(obs):
            if len(obs) == 1:  # a last observation; the end of a rollout asks for the whole batch
                self.asked.append(obs.numpy()[0].copy())
            return predict(obs)

        self.model.policy.predict_values = noting

    def _on_step(self):
        self.ends += self.locals["dones"].sum()
        return True


def test_ppo_bootstraps_with_the_value_of_the_true_last_observation():
    venv, spy = sb3.make("cartpole", 8, max_episode_steps=20), Spy()
    finals = []
    step = venv.batch.step

    def noting(action):
        *parts, info = step(action)
        truncated = parts[3] & ~parts[2]
        finals.extend(info["final_obs"][truncated].copy())
        return *parts, info

    venv.batch.step = noting
    PPO("MlpPolicy", venv, n_steps=64, batch_size=64, seed=0).learn(1024, callback=spy)
    assert len(finals) > 10
    assert spy.ends > len(finals)  # some fall before the limit, and must not be bootstrapped
    np.testing.assert_array_equal(spy.asked, finals)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cartpole", "pendulum"])
def test_ppo_trains_for_ten_thousand_steps(name):
    model = PPO("MlpPolicy", sb3.make(name, 16), n_steps=128, batch_size=256, learning_rate=1e-3, seed=0)
    before = [parameter.clone() for parameter in model.policy.parameters()]
    model.learn(10_000)
    assert model.num_timesteps >= 10_000
    assert all(parameter.isfinite().all() for parameter in model.policy.parameters())
    assert any((old != new).any() for old, new in zip(before, model.policy.parameters(), strict=True))
    lengths, returns = (np.array([episode[key] for episode in model.ep_info_buffer]) for key in "lr")
    if name == "cartpole":
        np.testing.assert_array_equal(returns, lengths)
        assert lengths.mean() > 50  # the random policy's mean is 22
    else:
        assert (lengths == 200).all()
        assert ((returns > -200 * 16.2736044) & (returns < 0)).all()


def test_a_box_policy_of_another_algorithm_trains():
    model = SAC("MlpPolicy", sb3.make("mountain_car_continuous", 4, max_episode_steps=20), learning_starts=40, seed=0)
    model.learn(200)
    assert model.replay_buffer.timeouts.sum() == 4 * (200 // 4 // 20)  # nobody reaches the goal in 20 steps


@pytest.mark.parametrize("deterministic", [True, False])
def test_evaluation_reads_the_episodes_and_does_not_warn(deterministic):
    venv = sb3.make("cartpole", 4)
    model = PPO("MlpPolicy", venv, n_steps=16, batch_size=16, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        returns, lengths = evaluate_policy(
            model, venv, n_eval_episodes=8, deterministic=deterministic, return_episode_rewards=True
        )
    assert len(returns) == 8
    assert returns == lengths
    assert min(lengths) >= 8


def test_stable_baselines_wrappers_go_around_it():
    venv = VecNormalize(VecCheckNan(sb3.make("pendulum", 4, max_episode_steps=20), raise_exception=True))
    venv.reset()
    for action in random_actions(venv, 20):
        obs, _, done, infos = venv.step(action)
    assert done.all()
    assert np.abs(obs).max() <= 10  # VecNormalize's clip
    assert all(np.abs(info["terminal_observation"]).max() <= 10 for info in infos)
    assert venv.get_attr("render_mode") == ["rgb_array"] * 4


def test_monitor_counts_what_the_infos_say():
    with pytest.warns(UserWarning, match="already wrapped"):  # since the infos hold Monitor's episodes
        venv = VecMonitor(sb3.make("mountain_car_continuous", 4, max_episode_steps=20))
    ours = sb3.make("mountain_car_continuous", 4, max_episode_steps=20)
    assert ours.env_is_wrapped(Monitor) == [True] * 4
    assert ours.env_is_wrapped(gymnasium.wrappers.TimeLimit, [0, 1]) == [False, False]
    venv.reset()
    ours.reset()
    for action in random_actions(ours, 20):
        theirs, infos = venv.step(action)[3], ours.step(action)[3]
    for a, b in zip(theirs, infos, strict=True):
        assert a["episode"].keys() == b["episode"].keys() == {"r", "l", "t"}
        assert b["episode"]["l"] == a["episode"]["l"] == 20
        assert b["episode"]["r"] == pytest.approx(a["episode"]["r"], abs=1e-5)
        assert b["episode"]["t"] > 0


def test_attributes_are_the_parameters_and_those_that_a_user_sets():
    venv = sb3.make("cartpole", 3, gravity=1.5)
    assert venv.get_attr("gravity") == [1.5, 1.5, 1.5]
    assert venv.get_attr("max_episode_steps", indices=0) == [500]
    assert not venv.has_attr("level")
    venv.set_attr("level", 2, indices=[0, 2])
    assert venv.get_attr("level") == [2, None, 2]
    for fixed in ("gravity", "max_episode_steps"):
        with pytest.raises(AttributeError, match=f"{fixed} is fixed when the batch is made"):
            venv.set_attr(fixed, 9.8)
    venv = sb3.make("cartpole", 3)
    assert venv.env_method("random_actions", steps=2)[0].shape == (2, 3)
    with pytest.raises(ValueError, match="acts on the whole batch"):
        venv.env_method("random_actions", indices=[1])


def test_gymnasiums_own_environment_has_the_same_attributes():
    """Code written against DummyVecEnv finds the parameters under the same names."""
    theirs = DummyVecEnv([lambda: gymnasium.make("CartPole-v1")])
    ours = sb3.make("cartpole", 1)
    for name in ("gravity", "masscart", "length", "x_threshold", "kinematics_integrator"):
        assert ours.get_attr(name) == theirs.get_attr(name)
    assert (ours.observation_space, ours.action_space) == (theirs.observation_space, theirs.action_space)


def test_images_are_tiled():
    pytest.importorskip("pygame", reason="rendering needs pygame: pip install pygame-ce")
    venv = sb3.make("cartpole", 4)
    venv.reset()
    assert [image.shape for image in venv.get_images()] == [(400, 600, 3)] * 4
    assert venv.render("rgb_array").shape == (800, 1200, 3)
    venv.close()
    assert venv.batch.closed


def test_what_it_cannot_wrap_is_refused():
    elsewhere = envs.make("cartpole", 2)
    elsewhere.device = type(elsewhere.device)("cuda:0")
    table = [
        (lambda: sb3.make("cartpole", 2, autoreset_mode="NextStep"), "autoreset_mode='NextStep' must be 'SameStep'"),
        (lambda: sb3.make("cartpole", 2, autoreset_mode="Disabled"), "autoreset_mode='Disabled' must be 'SameStep'"),
        (lambda: sb3.SB3VecEnv(elsewhere), "the batch must be on 'cpu', not cuda:0"),
        *((lambda name=name: sb3.make(name, 2), "several agents") for name in TEAMS),
    ]
    for call, message in table:
        with pytest.raises(ValueError, match=message):
            call()


def test_an_action_beyond_int32_is_not_taken_for_another():
    venv = sb3.make("vehicle_routing", 2)
    venv.reset()
    with pytest.raises(ValueError, match=r"action\[1\]=2147483647 of environment 1 is not in 0 .. 15"):
        venv.step(np.array([0, 2**32 + 3]))
