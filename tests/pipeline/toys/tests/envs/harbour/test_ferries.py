"""Facts of the ferries worked out by hand, for pytest in a copy of the repository that has them."""

import dataclasses

import numpy as np
import pytest
import torch

from lockstep import envs
from tests.emulator import gpu

EAST, IDLE = (1.0, 0.0, 0.0), (0.0, 0.0, 0.0)


@pytest.fixture
def calm():
    """Options of a sea without noise, current and tide, whose piers lie 1 km and 3 km to the east of the fairway."""
    port = envs.port("ferries")
    params = {"gust": 0.0, "current": 0.0, "washed_per_mille": 0, "tide": 1, "crates": 4}
    drawn = envs.make("ferries", 1, **params).scenarios[0]
    pier, worth = np.array([[[1.0, 0.0], [3.0, 0.0]]]), np.array([[100, 200, 300, 400], [1, 1, 1, 1]])
    assert port.default_preset == "calm"
    return params | {"scenarios": [dataclasses.replace(drawn, pier=pier, worth=worth)], "dtype": "float64"}


def at_the_fairway(calm, north=0.0, **options):
    """One environment whose ferries begin at the same place."""
    env = envs.make("ferries", 1, **calm | options)
    env.reset(seed=0)
    env.set_state({"position": np.array([[0.0, north], [0.0, north]])})
    return env


def stepped(env, north, south) -> tuple:
    return env.step(torch.tensor([[north, south]], dtype=torch.float32))


@pytest.mark.parametrize(
    ("north", "south", "tug", "price"),
    [(0.25, 0.5, 1, 1.0), (0.5, 0.25, 0, 1.0), (0.5, 0.5, 0, 2.0), (0.0, 0.25, 1, 0.0), (0.0, 0.0, -1, 0.0)],
)
def test_tug_goes_to_the_higher_bid_for_the_lower_one(calm, north, south, tug, price):
    env = at_the_fairway(calm)
    _, reward, *_, info = stepped(env, (0.0, 0.0, north), (0.0, 0.0, south))
    fields = env.fields()
    assert fields["bid"].tolist() == [[4 * north, 4 * south]]
    assert fields["tug"].tolist() == [tug] and fields["price"].tolist() == info["price"].tolist() == [price]
    assert reward.tolist() == [[-price * (tug == 0), -price * (tug == 1)]]
    # A first tow takes a quarter of 1 km, or of 3 km.
    assert fields["position"][0, :, 0].tolist() == [0.25 * (tug == 0), 0.75 * (tug == 1)]


def test_nobody_bids_more_than_it_has(calm):
    env = at_the_fairway(calm)
    env.set_state({"money": np.array([[1.5, -2.0]])})
    stepped(env, (0, 0, 1.0), (0, 0, 1.0))
    assert env.fields()["bid"].tolist() == [[1.5, 0.0]]


def test_second_tow_pulls_half(calm):
    env = at_the_fairway(calm)
    for _ in range(2):
        stepped(env, IDLE, (0, 0, 1.0))
    assert env.fields()["position"][0, 1].tolist() == [0.75 + 0.125 * (3 - 0.75), 0.0]


def test_landed_ferry_sells_what_is_aboard_and_lies_there_while_the_other_sails(calm):
    env = at_the_fairway(calm)
    env.set_state({"aboard": np.array([[[1, 0, 1, 1], [1, 1, 1, 1]]])})
    rewards, ends = [], []
    for _ in range(6):
        obs, reward, terminated, truncated, info = stepped(env, EAST, EAST)
        rewards.append(reward[0].tolist())
        ends.append(terminated[0].tolist())
        assert not truncated.any() and not info["_final_obs"].any()
    # 0.5 km to the pier 1 km away are two steps of full thrust, at EUR 0.5 each; the third of four crates is gone.
    assert rewards == [[-0.5, -0.5], [7.5, -0.5], *[[0.0, -0.5]] * 4]
    assert ends == [[False, False], [True, False], *[[False, False]] * 4]
    assert info["active"].tolist() == [[False, True]]
    assert env.fields()["position"].tolist() == [[[0.5, 0.0], [1.5, 0.0]]]
    assert not obs[0, 0].any() and obs[0, 1, 10] == 0  # south sees that north sails no more


def test_episode_is_over_when_both_have_ended_and_truncates_only_who_still_sails(calm):
    env = at_the_fairway(calm, max_episode_steps=4)
    for _ in range(4):
        *_, terminated, truncated, info = stepped(env, EAST, EAST)
    assert not terminated.any() and truncated.tolist() == [[False, True]]
    assert info["_final_obs"].all() and info["active"].all()
    assert info["episode_return"].tolist() == [((10 - 1.0) - 2.0) / 2] and info["episode_length"].tolist() == [4]
    assert info["final_obs"][0, 0].tolist() == [0.0] * 11


def test_ferry_beyond_the_shoals_sinks_and_costs_its_hull(calm):
    env = at_the_fairway(calm, north=1.9)
    _, reward, terminated, *_ = stepped(env, (0.0, 1.0, 0.0), IDLE)
    assert reward.tolist() == [[-50.5, 0.0]] and terminated.tolist() == [[True, False]]


@pytest.mark.parametrize("order", gpu.ORDERS)
@pytest.mark.parametrize("mode", ["SameStep", "NextStep", "Disabled"])
def test_kernels_of_a_gpu_give_the_same_bits_in_whatever_order_their_threads_run(mode, order):
    def life(make, **options) -> tuple:
        env = make("ferries", 21, autoreset_mode=mode, check_actions=False, chunk=5, **options)
        env.reset(seed=4)
        for _ in range(60):
            outputs = env.step(env.random_actions()[0])
        return outputs, env.state()

    with gpu.installed():
        (*emulated, info), state = life(gpu.make, order=order)
    (*outputs, same), kept = life(envs.make)
    assert all(map(torch.equal, [*emulated, *info.values()], [*outputs, *same.values()]))
    assert all(np.array_equal(state[key], kept[key]) for key in kept)
