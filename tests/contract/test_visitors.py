"""Agents whose number is a parameter's, episodes that lack some or all of them, ends that an environment declares,
flags, scenarios in turn, and the count of batched steps: what becomes of all this, stated again in NumPy."""

import numpy as np
import pytest
import torch

from lockstep import envs
from lockstep.envs import noise
from lockstep.envs.kernels import compile
from tests.contract.batches import DEVICES, INFO, PORTS, copies, equal, per_environment, random_step
from tests.contract.ports.visitors.port import HOMES, PORT

B, SEED, FIRST, LIMIT = 30, 5, 7, 9


def visitors(**options) -> envs.BatchedEnv:
    return envs.BatchedEnv(PORT, PORTS / "visitors", B, seed=SEED, first_index=FIRST, **options)


def drawn(episode: np.ndarray, t: np.ndarray, stream: int) -> np.ndarray:  # [B, 4]
    return noise.philox((FIRST + np.arange(B), episode, t, stream), SEED).T


def begun(episode: np.ndarray, A: int) -> tuple[np.ndarray, np.ndarray]:
    """Places [B, A] and who is there."""
    words, scenario = drawn(episode, np.zeros(B, int), 4)[:, :A], (FIRST + np.arange(B) + episode) % len(HOMES)
    home = np.array(HOMES, np.float32)[scenario][:, None]
    return home + noise.uniform(words, -1, 1), words % 4 != 0


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("A", [1, 2, 3])
def test_visitors_live_as_numpy_says(A, device):
    env = visitors(visitors=A, device=device)
    assert env.agents == ("first", "second", "third")[:A]
    obs, info = env.reset()
    episode, t = np.zeros(B, int), np.zeros(B, int)
    place, here = begun(episode, A)
    active, total, short, alone = here.copy(), np.zeros(B), 0, 0

    def rows(shown: np.ndarray, clock: int) -> np.ndarray:
        columns = place, np.broadcast_to(shown.sum(1)[:, None], (B, A)), np.full((B, A), clock + 1)
        return np.stack(columns, axis=2).astype(np.float32) * shown[..., None]

    np.testing.assert_array_equal(obs.cpu(), rows(here, 0))
    np.testing.assert_array_equal(info["active"].cpu(), here)
    for step in range(1, 60):
        action = env.random_actions()[0]
        words, before = drawn(episode, t, 2), episode
        pace = (action.cpu().numpy() - 1).astype(np.float32) / 2 + noise.uniform(words[:, :A], -0.25, 0.25)
        place, t = np.where(active, place + pace, place), t + 1
        late = (t == LIMIT) | (words[:, 3] % 8 == 0)
        terminated = active & (np.abs(place) > 2)
        truncated = late[:, None] & active & ~terminated
        full, played, active = active.all(axis=1), active, active & ~terminated
        over = late | ~active.any(axis=1)
        total += np.where(played, place, 0).sum(1) / np.maximum(here.sum(1), 1)
        obs, reward, *flags, info = (part.cpu() if torch.is_tensor(part) else part for part in env.step(action))
        info = {name: value.cpu().numpy() for name, value in info.items()}
        np.testing.assert_array_equal(reward, np.where(played, place, 0))
        np.testing.assert_array_equal(flags[0], terminated)
        np.testing.assert_array_equal(flags[1], truncated)
        np.testing.assert_array_equal(info["_final_obs"], over)
        np.testing.assert_array_equal(info["final_obs"][over], rows(played, step)[over])
        np.testing.assert_allclose(info["episode_return"][over], total[over], atol=1e-5)
        np.testing.assert_array_equal(info["episode_length"][over], t[over])
        np.testing.assert_array_equal(info["far"], np.abs(place) > 1)
        np.testing.assert_array_equal(info["full"], full)
        np.testing.assert_array_equal(info["made"], np.full(B, step))
        np.testing.assert_array_equal(info["pace"], pace)
        np.testing.assert_array_equal(info["homes"], (FIRST + np.arange(B) + before) % len(HOMES))
        np.testing.assert_array_equal(info["paces"], action.cpu().numpy() - 1 - 70_000 * np.arange(A))
        short += (over & (t == 1) & ~here.any(axis=1)).sum()
        alone += (over & (t < LIMIT) & truncated.any(axis=1)).sum()
        shown, episode = played, episode + over
        anew, there = begun(episode, A)
        place, here = np.where(over[:, None], anew, place), np.where(over[:, None], there, here)
        active, shown = np.where(over[:, None], there, active), np.where(over[:, None], there, shown)
        t, total = np.where(over, 0, t), np.where(over, 0.0, total)
        np.testing.assert_array_equal(obs, rows(shown, step))
        np.testing.assert_array_equal(info["active"], active)
        np.testing.assert_array_equal(
            env.state()["scenario"].cpu().numpy(), (FIRST + np.arange(B) + episode) % len(HOMES)
        )
    assert short > 5 < alone


@pytest.mark.parametrize("device", DEVICES)
def test_an_episode_without_agents_is_a_state_like_any(device):
    env, other = (visitors(device=device) for _ in range(2))
    env.reset()
    while env._info["active"].any(dim=1).all():
        random_step(env)
    other.set_state(env.state())
    assert equal(env.state(), other.state())
    for _ in range(20):
        assert equal(copies(random_step(env)), copies(random_step(other)))


@pytest.mark.parametrize("device", DEVICES)
def test_the_count_of_steps_is_a_rollouts_and_a_resets_too(device):
    env, other, third = (visitors(device=device) for _ in range(3))
    for batch in (env, other, third):
        batch.reset()
    env.rollout(20)
    for _ in range(20):
        random_step(other)
    assert equal(*(per_environment(batch.state(), but=INFO) for batch in (env, other)))  # a roll-out leaves these alone
    assert (other._info["made"] == 20).all() and (env._info["made"] == 20).all()
    obs, info = env.reset()
    assert (obs[..., 2][info["active"]] == 21).all()
    obs, info = env.reset(seed=SEED)
    assert (obs[..., 2][info["active"]] == 1).all()
    assert torch.equal(obs, third._outputs[0])


@pytest.mark.parametrize("target", compile.TARGETS)
def test_visitors_compile_for_the_gpu(target):
    choices = {"mode": "SameStep", "dtype": "float32", "limit": LIMIT, "tile": 1}
    for used in compile.resources(PORT.unit(PORTS / "visitors", PORT.world(PORT, None, {}), **choices), target):
        assert used["spill_store_bytes"] == used["spill_load_bytes"] == 0, used


def test_a_single_environment_has_the_agents_of_its_episode_alone():
    """Whom an episode lacks is in nobody's way: its loop ends when those who are there have ended."""
    pytest.importorskip("pettingzoo")
    from lockstep.envs.adapters.pettingzoo import ParallelPort

    batch = envs.BatchedEnv(PORT, PORTS / "visitors", 1, seed=SEED, visitors=3, autoreset_mode="Disabled")
    env, lacking = ParallelPort(batch), 0
    for episode in range(30):
        obs, infos = env.reset(seed=SEED) if episode == 0 else env.reset()
        words = noise.philox((np.zeros(1, int), np.full(1, episode), np.zeros(1, int), 4), SEED)[:3, 0]
        present = [agent for agent, word in zip(env.possible_agents, words, strict=True) if word % 4 != 0]
        assert env.agents == list(obs) == list(infos) == present
        lacking += len(present) < 3
        for _ in range(LIMIT + 1):
            if env.agents:
                env.step({agent: env.action_space(agent).sample() for agent in env.agents})
        assert not env.agents
    assert 5 < lacking < 28
