"""Ends and beginnings of episodes in all three modes: truth tables against steps of a batch that resets nothing."""

import numpy as np
import pytest
import torch

from tests.contract.batches import (
    APART,
    DEVICES,
    LIMIT,
    NAMES_AND_MODES,
    copies,
    equal,
    having,
    make,
    of_batch,
    per_environment,
    random_step,
    spread,
)

FLAGS = ("terminated", "truncated", "ended")
STEPS = 2 * LIMIT + 5


def put(plain, state: dict):
    """Puts the episodes of another batch's state into a batch, as running ones."""
    plain.set_state({key: torch.zeros_like(rows) if key in FLAGS else rows for key, rows in state.items()})


def first_observations(name: str, episodes: int, **options) -> torch.Tensor:
    """Observations [episodes, B, ...] of the first states of every environment's episodes 0, 1, .."""
    env = make(name, reset=False, **options)
    return torch.stack([env.reset()[0].clone() for _ in range(episodes)])


def of_episodes(first: torch.Tensor, episode: torch.Tensor) -> torch.Tensor:
    return first[episode, torch.arange(len(episode))]


def late(env, before: dict, terminated: torch.Tensor, limit: int = LIMIT) -> torch.Tensor:
    """The expected `truncated`: at the limit, and of several agents whoever played and did not terminate."""
    at_limit = before["elapsed"] + 1 == limit
    if env.port.rows > 1:
        return at_limit[:, None] & before["active"] & ~terminated
    return at_limit.reshape(-1, *[1] * (terminated.ndim - 1)).expand_as(terminated)


@pytest.mark.parametrize("device", DEVICES)
def test_same_step_returns_the_next_episodes_first_observation(name, device):
    env, plain = make(name, device=device), make(name, device=device, autoreset_mode="Disabled", check_actions=False)
    first, episodes = first_observations(name, STEPS, device=device), 0
    spread(env)
    for _ in range(STEPS):
        before, action = env.state(), env.random_actions()[0]
        put(plain, before)
        last, *expected, told = copies(plain.step(action))
        obs, *found, info = copies(env.step(action))
        assert equal(found, expected)
        assert torch.equal(found[2], late(env, before, found[1]))
        over = told["_final_obs"]
        assert torch.equal(info["_final_obs"], over)
        if env.port.rows == 1:
            assert torch.equal(over, of_batch(found[1] | found[2]))
        assert torch.equal(info["final_obs"][over], last[over])
        assert torch.equal(obs[~over], last[~over])
        after, length = env.state(), before["elapsed"] + 1
        assert torch.equal(after["episode"], before["episode"] + over)
        assert torch.equal(obs[over], of_episodes(first, after["episode"])[over])
        assert torch.equal(info["episode_length"][over], length[over])
        assert torch.equal(after["elapsed"], torch.where(over, 0, length))
        if env.agents:
            assert torch.equal(info["active"], told["active"] | over[:, None])
        for key in (*env.metrics, *env.flags, *env.amounts):
            assert torch.equal(info[key], told[key])
        episodes += int(over.sum())
    assert episodes >= 2 * env.num_envs


@pytest.mark.parametrize("device", DEVICES)
def test_next_step_shows_the_last_observation_then_resets(name, device):
    env, plain = (
        make(name, device=device, autoreset_mode=mode, check_actions=False) for mode in ("NextStep", "Disabled")
    )
    first = first_observations(name, STEPS, device=device)
    spread(env)
    was, resets = torch.zeros(env.num_envs, dtype=torch.bool, device=device), 0
    for _ in range(STEPS):
        before, action = env.state(), env.random_actions()[0]
        begun = {"active": before["active"] | was[:, None]} if env.port.rows > 1 else {}
        put(plain, before | begun | {"elapsed": torch.where(was, 0, before["elapsed"])})
        last, *expected, told = copies(plain.step(action))
        obs, *found, info = copies(env.step(action))
        assert torch.equal(info["is_reset"], was)
        for part, value in zip(found, expected, strict=True):
            assert torch.equal(part[~was], value[~was]) and not part[was].any()
        assert torch.equal(obs[~was], last[~was])
        over, after = info["_final_obs"], env.state()
        assert torch.equal(over, told["_final_obs"] & ~was)
        assert torch.equal(after["episode"], before["episode"] + was)
        assert torch.equal(obs[was], of_episodes(first, after["episode"])[was])
        assert torch.equal(info["final_obs"][over], obs[over])
        assert torch.equal(after["elapsed"], torch.where(was, 0, before["elapsed"] + 1))
        if env.agents:
            assert torch.equal(info["active"], told["active"] | was[:, None])
        for key in (*env.metrics, *env.flags, *env.amounts):
            assert torch.equal(info[key][~was], told[key][~was]) and not info[key][was].any()
        resets += int(was.sum())
        was = over.clone()
    assert resets >= 2 * env.num_envs


@pytest.mark.parametrize("device", DEVICES)
def test_disabled_leaves_an_ended_environment_inert_until_a_masked_reset(name, device):
    env = make(name, device=device, autoreset_mode="Disabled", check_actions=False)
    first = first_observations(name, 2, device=device)
    spread(env)
    over = torch.zeros(env.num_envs, dtype=torch.bool, device=device)
    for _ in range(LIMIT):
        before, shown = env.state(), env._outputs[0].clone()
        obs, reward, terminated, truncated, info = random_step(env)
        after = env.state()
        assert equal(*({k: v[over] for k, v in per_environment(one).items()} for one in (before, after)))
        assert torch.equal(obs[over], shown[over])
        assert not reward[over].any()
        assert all(not info[key][over].any() for key in (*env.metrics, *env.flags, *env.amounts))
        assert torch.equal(after["elapsed"], before["elapsed"] + ~over)
        assert (info["_final_obs"] | ~over).all()
        over = info["_final_obs"].clone()
        assert torch.equal(info["final_obs"][over], obs[over])
        if env.port.rows == 1:
            assert torch.equal(over, of_batch(terminated | truncated))
    assert over.all()
    mask = torch.arange(env.num_envs, device=device) % 3 == 0
    obs, _ = env.reset(options={"reset_mask": mask})
    assert torch.equal(obs[mask], first[1][mask])
    again = env.state()
    assert torch.equal(again["elapsed"] == 0, mask) and torch.equal(again["episode"] == 1, mask)
    env.step(env.random_actions()[0])
    assert torch.equal(env.state()["elapsed"] == 1, mask)


def test_disabled_and_checked_names_the_environment_that_needs_a_reset(name):
    env = make(name, autoreset_mode="Disabled")
    env.set_state({"elapsed": np.where(np.arange(env.num_envs) == 7, LIMIT - 1, 0)})
    assert random_step(env)[4]["_final_obs"].nonzero().flatten().tolist() == [7]
    with pytest.raises(ValueError, match="environment 7 has ended; with autoreset disabled it needs reset"):
        random_step(env)
    env.reset(options={"reset_mask": torch.arange(env.num_envs) == 7})
    random_step(env)


@pytest.mark.parametrize("device", DEVICES)
def test_an_ended_environment_put_in_from_outside_stays_inert(name, device):
    env = make(name, device=device, autoreset_mode="Disabled", check_actions=False)
    over = torch.arange(env.num_envs) < 5
    rows = {"truncated": over, "elapsed": torch.where(over, LIMIT, 3)}
    if env.port.rows > 1:
        rows = {"ended": over, "elapsed": rows["elapsed"], "active": ~over[:, None].expand(-1, env.num_agents)}
    env.set_state(rows)
    before = env.state()
    _, reward, *_, info = random_step(env)
    assert torch.equal(info["_final_obs"][:5].cpu(), over[:5])
    after = env.state()
    assert torch.equal(after["state"][:5], before["state"][:5])
    assert torch.equal(after["elapsed"].cpu(), torch.where(over, LIMIT, 4))
    assert not reward[:5].any()


def test_agents_end_apart_and_play_no_more():
    """Of who has ended no reward, no flag, and from the next step on no observation."""
    for name in APART:
        env = make(name, autoreset_mode="NextStep")
        apart, active = 0, torch.ones(env.num_envs, env.num_agents, dtype=torch.bool)
        for _ in range(20 * STEPS):
            obs, reward, terminated, truncated, info = copies(random_step(env))
            played = active & ~info["is_reset"][:, None]
            out = ~played & ~info["is_reset"][:, None]
            assert not reward[out].any() and not (terminated | truncated)[out].any() and not obs[out].any()
            assert (obs[played] != 0).any(dim=-1).all() and not (terminated & truncated).any()
            over = info["_final_obs"]
            still = torch.where(info["is_reset"][:, None], True, played & ~terminated)
            assert torch.equal(info["active"], still & ~over[:, None])
            assert torch.equal(over, ~info["is_reset"] & (~still | truncated).all(dim=1))
            active = torch.where(over[:, None], True, info["active"])
            apart += int((terminated.any(dim=1) & ~over).sum())
            if apart > env.num_envs:
                break
        assert apart > env.num_envs


# ---- limits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("name", "mode"), NAMES_AND_MODES)
def test_without_a_limit_of_the_callers_episodes_are_truncated_at_the_horizon(name, device, mode):
    env = make(name, device=device, autoreset_mode=mode, check_actions=False, max_episode_steps=None)
    horizon, cut = env.port.of("horizon"), 0
    assert env.max_episode_steps == horizon
    env.set_state({"elapsed": np.full(env.num_envs, horizon - 3)})  # far into the episode, but the state is a first one
    for _ in range(3):
        before = env.state()
        *_, terminated, truncated, info = random_step(env)
        assert torch.equal(truncated, late(env, before, terminated, horizon))
        assert (info["episode_length"][of_batch(truncated)] == horizon).all()
        cut += int(of_batch(truncated).sum())
    assert cut > env.num_envs // 3


@pytest.mark.parametrize("name", having(lambda declared: declared.longest_episode is not None))
def test_episodes_of_a_longest_one_that_is_declared_terminate_by_themselves(name):
    env, lengths = make(name, max_episode_steps=None), set()
    longest = env.port.of("longest_episode", env.params)
    for _ in range(2 * longest):
        *_, terminated, truncated, info = random_step(env)
        assert not truncated.any()
        lengths |= set(info["episode_length"][of_batch(terminated)].tolist())
    assert max(lengths) == longest < env.max_episode_steps


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["cartpole", "counters", "walkers"])
def test_an_episode_may_be_one_step_long(name, device):
    env, first = make(name, device=device, max_episode_steps=1), first_observations(name, 6, device=device)
    for episode in range(1, 6):
        obs, _, terminated, truncated, info = random_step(env)
        assert (truncated | terminated).all()
        assert (info["episode_length"] == 1).all()
        assert torch.equal(obs, first[episode])
        assert not torch.equal(info["final_obs"], obs)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("name", "limit"),
    [
        *(pytest.param("cartpole", limit, marks=pytest.mark.slow) for limit in (65_535, 2**31 - 1)),
        *(("cartpole", 65_536), ("walker", 65_536)),
    ],
)
def test_the_longest_episodes_end_at_the_limit(name, device, limit):
    env = make(name, device=device, autoreset_mode="NextStep", max_episode_steps=limit)
    env.set_state({"elapsed": np.full(env.num_envs, limit - 2)})
    assert not random_step(env)[3].any()
    *_, truncated, info = random_step(env)
    played = ~info["is_reset"]
    assert torch.equal(truncated, played) and played.sum() > env.num_envs // 2
    assert (info["episode_length"][played] == limit).all()


@pytest.mark.gpu
def test_a_masked_reset_can_be_captured(name):
    env, eager = (make(name, device="cuda", autoreset_mode="Disabled") for _ in range(2))
    options = {"reset_mask": torch.arange(env.num_envs, device="cuda") % 2 == 0}
    env.reset(options=options)  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        env.reset(options=options)
    graph.replay()
    for _ in range(2):
        eager.reset(options=options)
    assert equal(env.state(), eager.state())
