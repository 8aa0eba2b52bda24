"""An episode depends on its seed, index and number, and not on how a batch is made, cut up or run."""

import hashlib
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch

from lockstep.envs import noise
from tests.contract.batches import (
    DEVICES,
    DRAWN,
    INFO,
    LIMIT,
    MODES,
    NAMES,
    copies,
    equal,
    make,
    per_environment,
    port,
    random_step,
    size,
    spread,
    statistics,
)

ROOT = Path(__file__).parents[2]
SEVERAL = [name for name in NAMES if port(name).of("lanes") > 1]
STEPS = LIMIT + 5


def parts(name: str) -> tuple[int, int]:
    """Sizes of a whole and a part, of one tile: as the tables of `counters` repeat, four divides both."""
    return (12, 8) if name in SEVERAL else (200, 136)


def lived(env, steps: int = STEPS) -> tuple:
    """All that some steps return, and the state after them."""
    outputs = [copies(random_step(env)) for _ in range(steps)]
    return outputs, per_environment(env.state())


def rows(found: tuple, chosen: slice) -> tuple:
    """Of some environments."""
    outputs, state = found
    kept = [(*(t[chosen] for t in tensors), {k: v[chosen] for k, v in info.items()}) for *tensors, info in outputs]
    return kept, {key: value[chosen] for key, value in state.items()}


# ---- nothing depends on the batch -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_part_of_a_batch_lives_as_in_the_whole(name, mode):
    whole, part = parts(name)
    options = {"seed": 5, "autoreset_mode": mode, "check_actions": False}
    expected = lived(make(name, whole, **options))
    found = lived(make(name, part, first_index=whole - part, **options))
    assert equal(found, rows(expected, slice(whole - part, None)))


def test_a_group_is_a_batch_of_its_own_with_its_seed(name):
    part = parts(name)[1]
    found = lived(make(name, 2 * part, seed=[5, 2**64 - 1], groups=2, first_index=8))
    for group, seed in enumerate((5, 2**64 - 1)):
        alone = lived(make(name, part, seed=seed, first_index=8))
        assert equal(rows(found, slice(group * part, (group + 1) * part)), alone)


@pytest.mark.parametrize("threads", [2, 5])
def test_threads_change_no_bit(name, threads):
    num_envs = size(name) if name in SEVERAL else 600  # three tiles
    one, several = (make(name, num_envs, seed=3, threads=count) for count in (1, threads))
    assert equal(lived(one), lived(several))
    for env in (one, several):
        env.rollout(STEPS)
    assert equal(one.state(), several.state())
    assert equal(one.statistics(), several.statistics())


@pytest.mark.parametrize("chunk", [1, 7, 500])
@pytest.mark.parametrize("name", SEVERAL)
def test_launches_change_no_bit(name, chunk):
    assert equal(lived(make(name)), lived(make(name, chunk=chunk, threads=2)))


def test_resets_of_others_change_no_bit(name):
    env, other = make(name), make(name)
    half = torch.arange(env.num_envs) % 2 == 0
    for k in range(STEPS):
        found, expected = random_step(env), random_step(other)
        assert all(torch.equal(a[half], b[half]) for a, b in zip(found[:4], expected[:4], strict=True))
        if k % 3 == 0:
            other.reset(options={"reset_mask": ~half})


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("steps", [1, 7, 8, 9, 3 * LIMIT])
def test_steps_in_one_launch_are_single_steps(name, device, steps):
    fused, single = (make(name, device=device, seed=8) for _ in range(2))
    for env in (fused, single):
        spread(env)
        env.rollout(13)
        env.statistics()
    assert fused.rollout(steps) == {}
    for _ in range(steps):
        *_, info = random_step(single)
    one, other = fused.state(), single.state()
    assert equal(*({key: value for key, value in state.items() if key not in INFO} for state in (one, other)))
    over = info["_final_obs"]  # of episodes that ended on the way info rows are not written
    assert all(torch.equal(one[key][over], other[key][over]) for key in INFO)
    assert torch.equal(fused._outputs[0], single._outputs[0])
    np.testing.assert_equal(statistics(fused), statistics(single))  # NaN where no episode ended


def digest(name: str) -> str:
    """Of everything that a batch gives away in some steps, a part of them fused."""
    env, found = make(name, seed=123), hashlib.sha256()
    spread(env)
    env.rollout(13)
    for *outputs, info in lived(env)[0]:
        for tensor in (*outputs, *info.values(), *env.statistics().values()):
            found.update(tensor.numpy().tobytes())
    return found.hexdigest()


ELSEWHERE = """
import sys
sys.modules["pettingzoo"] = None
from lockstep import envs
from tests.contract.test_streams import NAMES, digest
print(*map(digest, NAMES))
try:
    envs.make_original("vehicular_edge")
except ImportError as error:
    print(error)
"""


def test_another_process_gives_the_same_bytes_even_without_pettingzoo():
    other = subprocess.run([sys.executable, "-c", ELSEWHERE], capture_output=True, text=True, cwd=ROOT, check=True)
    found, told = other.stdout.splitlines()
    assert found.split() == [digest(name) for name in NAMES]
    assert told == "the original of 'vehicular_edge' needs pettingzoo: pip install 'lockstep[edge]'"


@pytest.mark.gpu
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("num_envs", [1, 33, 1025])
def test_both_devices_agree_whether_a_batch_fills_its_blocks_or_not(name, num_envs, mode):
    """Bit for bit in float32 where the port says so."""
    exact = port(name).exact
    with_which = exact if isinstance(exact, Mapping) else {}
    options = {"seed": 7, "autoreset_mode": mode, "check_actions": False} | with_which
    here, there = (make(name, num_envs, device=device, **options) for device in ("cpu", "cuda"))
    for env in (here, there):
        spread(env)
    for _ in range(STEPS):
        one, other = copies(random_step(here)), copies(random_step(there))
        for ours, theirs in zip(one[:4], other[:4], strict=True):
            if ours.is_floating_point() and not exact:
                torch.testing.assert_close(theirs.cpu(), ours, rtol=1e-4, atol=1e-4)
            else:
                assert equal(ours, theirs)
    if exact:
        assert equal(here.state(), there.state())


# ---- seeds ----------------------------------------------------------------------------------------------------------


def test_the_first_reset_uses_the_seed_of_construction(name):
    env, other = make(name, seed=5), make(name, seed=0, reset=False)
    other.reset(seed=5)
    assert equal(env.state(), other.state())


def test_a_reset_with_a_seed_begins_again_and_without_goes_on(name):
    env = make(name, seed=5)
    first = env.state()
    second = env.reset()[0].clone()
    assert (env.state()["episode"] == 1).all()
    env.rollout(30)
    env.reset(seed=5)
    assert all(equal(env.state()[key], rows) for key, rows in first.items() if key not in INFO)
    assert torch.equal(env.reset()[0], second)


def test_seeds_and_environments_have_episodes_of_their_own(name):
    shown = []
    for seed in (1, 2, 2**32 + 1):
        env = make(name, seed=seed)
        env.rollout(3)
        shown.append(env._outputs[0].reshape(env.num_envs, -1).clone())
        assert len(shown[-1].unique(dim=0)) == env.num_envs
    assert all((shown[0] != other).any(dim=1).all() for other in shown[1:])


def test_seeds_environments_and_steps_have_random_actions_of_their_own(name):
    env = make(name, seed=1)
    actions = torch.stack([make(name, seed=seed).random_actions(64) for seed in (1, 2, 2**32 + 1)])
    assert torch.equal(actions[0], env.random_actions(64)) and torch.equal(actions[0], env.random_actions(64))
    for one, other in ((actions[0], actions[1]), (actions[0], actions[2]), (actions[0, :, 0], actions[0, :, 1])):
        assert not torch.equal(one, other)
    assert not torch.equal(actions[0, :32], actions[0, 32:])
    env.rollout(5)
    assert torch.equal(actions[0, 5:], env.random_actions(59))


def documented_actions(env, seed: int, first_index: int, steps: int) -> np.ndarray:
    """The random policy [steps, B, ...] in array code."""
    index, space = first_index + np.arange(env.num_envs), env.single_action_space
    if env.lanes == 1 and env.actions.numbers == 1:
        return noise.random_actions(space, seed, index, steps)
    return np.stack([noise.random_numbers(space, env.num_agents, seed, index, t) for t in range(steps)])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("seed", "first_index"), [(0, 0), (2**64 - 1, 2**32 - 300)])
def test_random_actions_are_the_documented_numbers(name, device, seed, first_index):
    num_envs = None if name in SEVERAL else 300  # two tiles
    env = make(name, num_envs, seed=seed, first_index=first_index, device=device)
    found = env.random_actions(140).cpu().numpy()
    assert found.shape == (140, *env.actions.shape)
    np.testing.assert_array_equal(found, documented_actions(env, seed, first_index, 140).reshape(found.shape))


@pytest.mark.parametrize("name", DRAWN)
def test_the_scenario_of_an_episode_is_the_documented_number(name):
    env = make(name, first_index=2, seed=9, scenarios=3)
    for episode in range(4):
        words = noise.philox((2 + np.arange(env.num_envs), episode, 0, noise.RESET), 9)
        expected = (2 + np.arange(env.num_envs) + episode if env._world.in_turn else words[0]) % 3
        np.testing.assert_array_equal(env.state()["scenario"].numpy(), expected)
        env.reset() if episode % 2 else env.reset(options={"reset_mask": np.ones(env.num_envs, dtype=bool)})
