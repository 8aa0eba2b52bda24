"""The GPU's form of the kernels, run without a GPU: it leaves the bits of the CPU's form."""

import itertools
import operator
from collections.abc import Callable

import numpy as np
import pytest
import torch

from lockstep import envs
from tests.contract import batches as contract
from tests.contract.batches import equal
from tests.emulator import gpu
from tests.envs import batches

SLOW = pytest.mark.slow
ORDERS = [pytest.param(order, marks=[SLOW] * (order != "shuffled")) for order in gpu.ORDERS]
MODES = [pytest.param(mode, marks=[SLOW] * (mode != "SameStep")) for mode in batches.MODES]
GROUPS, SEEDS, B = 3, (3, 4, 5), 450  # environments: 150 in a group, 3 tiles; neither tiles nor blocks of 128 are full
POLICIES = ("random", "linear", "MLP", "MLP with critic", "greedy MLP")
STORES = (("statistics", "float32"), ("trajectory", "float32"), ("trajectory", "bfloat16"))
FORMS = [
    (name, dtype, obs)
    for name in batches.NAMES
    for dtype, obs in (("float32", "copy"), ("float64", "copy"), ("float32", "view"))
    if obs == "copy" or envs.port(name).observes_state
]


@pytest.fixture(autouse=True)
def _emulated():
    with gpu.installed():
        yield


def pair(
    name: str,
    block: int | None = 64,
    order: str = "ascending",
    num_envs: int = B,
    reciprocal_ulp: int = 0,
    make: Callable = envs.make,
    **options,
):
    """The same batch in the CPU's form and in the GPU's, with so many threads to a block that steps."""
    options = {"groups": GROUPS, "seed": SEEDS, "first_index": 5, "check_actions": False, **options}
    emulated = {"block": block, "order": order, "reciprocal_ulp": reciprocal_ulp}
    both = make(name, num_envs, **options), gpu.make(name, num_envs, make=make, **emulated, **options)
    for env in both:
        env.reset()
    return both


def both_do(both, act) -> list:
    """Results of one call on both batches, which must be equal, as must all that they leave behind."""
    one, other = (act(env) for env in both)
    assert equal(one, other)
    for name, buffer in both[0]._buffers.items():
        if name not in ("totals", "extremes", "clock"):  # these are of tiles
            assert equal(buffer, both[1]._buffers[name]), name
    assert equal(both[0].state()["clock"], both[1].state()["clock"])
    return [one, other]


def spread(env) -> None:
    """Puts two thirds of the environments, all over the blocks, before their last step, the others anywhere before."""
    limit, index = env.max_episode_steps, np.arange(env.num_envs)
    env.set_state({"elapsed": np.where(index % 3 > 0, limit - 1, index * limit // env.num_envs)})


def acted(env, action_type: torch.dtype):
    """A step with actions of a type."""
    return env.step(env.random_actions()[0].to(action_type))


def stepped(both, steps: int) -> None:
    """Steps of each action type, with much else in between."""
    both_do(both, lambda env: env.random_actions(37))
    both_do(both, spread)
    for action_type in both[0].actions.types:
        for _ in range(steps):
            both_do(both, lambda env, kind=action_type: acted(env, kind))
    mask = np.arange(both[0].num_envs) % 7 == 1
    both_do(both, lambda env: env.reset(options={"reset_mask": mask}))
    both_do(both, lambda env: acted(env, env.actions.types[0]))
    both_do(both, lambda env: env.set_state(turned_over(env), mask=mask))
    both_do(both, lambda env: acted(env, env.actions.types[0]))
    both_do(both, lambda env: env.statistics())
    both_do(both, lambda env: acted(env, env.actions.types[0]))
    both_do(both, lambda env: env.reset())
    both_do(both, lambda env: env.reset(seed=[2**64 - 1, 0, 7]))
    both_do(both, lambda env: acted(env, env.actions.types[0]))


def turned_over(env) -> dict[str, torch.Tensor]:
    """States in the opposite order."""
    return {key: rows.flip(0) for key, rows in (*env.fields().items(), ("final_obs", env.state()["final_obs"]))}


def network(inputs: int, hidden: int, outputs: int, seed: int) -> torch.nn.Sequential:
    torch.manual_seed(seed)
    layers = torch.nn.Linear(inputs, hidden), torch.nn.Linear(hidden, hidden), torch.nn.Linear(hidden, outputs)
    return torch.nn.Sequential(layers[0], torch.nn.Tanh(), layers[1], torch.nn.Tanh(), layers[2])


def policy(name: str, kind: str, hidden: int = 16):
    if kind == "random":
        return kind
    if kind == "linear":
        return batches.linear(name)
    port = envs.port(name)
    outputs, inputs = port.policy_shape
    critic = network(inputs, hidden, 1, 1) if kind == "MLP with critic" else None
    log_std = torch.tensor([-0.5]) if port.continuous else None
    return envs.MLP(network(inputs, hidden, outputs, 0), critic, log_std, greedy=kind == "greedy MLP")


def rolled_out(both, chosen, steps=(1, 37), stores=STORES) -> None:
    for count, (store, obs_dtype) in itertools.product(steps, stores):
        both_do(both, spread)
        both_do(both, operator.methodcaller("rollout", count, chosen, store, obs_dtype))
        both_do(both, operator.methodcaller("statistics"))


# ---- what is always run


@pytest.mark.parametrize(("mode", "block"), [("SameStep", 64), ("SameStep", 128), ("NextStep", 128), ("Disabled", 64)])
@pytest.mark.parametrize("name", batches.EACH_KIND)
def test_single_steps_leave_the_bits_of_the_cpus_form(name, mode, block):
    stepped(pair(name, block, "shuffled", autoreset_mode=mode), 5)


@pytest.mark.parametrize("num_envs", [3, 33])
@pytest.mark.parametrize("mode", MODES)
def test_batches_smaller_than_a_block_leave_the_bits_of_the_cpus_form(mode, num_envs):
    both = pair(batches.NAMES[0], num_envs=num_envs, autoreset_mode=mode)
    stepped(both, 5)
    if mode == "SameStep":
        rolled_out(both, "random")


@pytest.mark.parametrize("kind", POLICIES)
@pytest.mark.parametrize("name", batches.EACH_KIND)
def test_rollouts_leave_the_bits_of_the_cpus_form(name, kind):
    rolled_out(pair(name, order="descending"), policy(name, kind))


@pytest.mark.parametrize("ulp", [-1, 1])
@pytest.mark.parametrize("name", batches.NAMES[:2])
def test_quotients_are_rounded_correctly_whatever_the_last_bit_of_a_gpus_reciprocal(name, ulp):
    both = pair(name, reciprocal_ulp=ulp)
    rolled_out(both, policy(name, "MLP with critic"), steps=(37,), stores=STORES[1:2])


@pytest.mark.parametrize("limit", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", batches.NAMES[:2])
def test_rollouts_of_episodes_shorter_than_the_fetch_ahead_leave_the_bits_of_the_cpus_form(name, limit):
    both = pair(name, max_episode_steps=limit)
    for kind in ("random", "MLP with critic"):
        rolled_out(both, policy(name, kind), steps=(21,), stores=STORES[:2])


@pytest.mark.parametrize("name", batches.EACH_KIND)
def test_every_kernel_of_every_unit_is_run(name, monkeypatch):
    monkeypatch.setattr(gpu, "launched", {})
    both = pair(name, block=128)
    stepped(both, 1)
    for kind in POLICIES:
        rolled_out(both, policy(name, kind), steps=(3,))
    assert len(gpu.launched) == 2  # with an MLP and without
    for text, kernels in gpu.launched.items():
        assert kernels == set(gpu.compiled(text).kernels)


@pytest.mark.parametrize("name", [name for name in envs.names() if envs.port(name).of("lanes") > 1])
def test_every_kernel_of_several_lanes_leaves_the_bits_of_the_cpus_form(name, monkeypatch):
    monkeypatch.setattr(gpu, "launched", {})
    both = envs.make(name, 2, check_actions=False), gpu.make(name, 2, order="shuffled")
    both_do(both, lambda env: env.reset(seed=3))
    for _ in range(3):
        both_do(both, lambda env: env.step(env.random_actions()[0]))
    both_do(both, lambda env: env.reset(options={"reset_mask": np.array([False, True])}))
    both_do(both, lambda env: env.rollout(2))
    both_do(both, lambda env: env.set_state(env.state()))
    ((text, kernels),) = gpu.launched.items()
    assert kernels == set(gpu.compiled(text).kernels)


def lived(both) -> None:
    """Steps, and launches of several of them."""
    stepped(both, 12)
    if both[0].autoreset_mode.value == "SameStep":
        for store in ("statistics", "trajectory")[: 1 + (both[0].lanes == 1)]:
            both_do(both, spread)
            both_do(both, operator.methodcaller("rollout", 12, store=store))
            both_do(both, lambda env: env.statistics())


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("mode", batches.MODES)
@pytest.mark.parametrize("name", ["counters", "readers"])
def test_several_numbers_doubles_integers_and_tables_leave_the_bits_of_the_cpus_form(name, mode, order, monkeypatch):
    """Of an environment that one thread holds."""
    monkeypatch.setattr(gpu, "launched", {})
    lived(pair(name, 128, order, autoreset_mode=mode, make=contract.make))
    ((text, kernels),) = gpu.launched.items()
    assert kernels == set(gpu.compiled(text).kernels)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("name", "lanes", "chunk"),
    [
        *(pytest.param(name, *launch, marks=SLOW) for name in ("walkers", "walker") for launch in ((16, 9), (32, 5))),
        *(("walkers", 8, 18), ("walker", 64, 21)),
        *(pytest.param("walkers", 64, 21, marks=SLOW), pytest.param("walker", 8, 18, marks=SLOW)),
    ],
)
def test_agents_whose_episodes_end_apart_and_phases_leave_the_bits_of_the_cpus_form(
    name, lanes, chunk, mode, monkeypatch
):
    """Of an environment that several lanes hold, in launches that do not fill their blocks."""
    monkeypatch.setattr(gpu, "launched", {})
    options = {"autoreset_mode": mode, "trace": True, "make": contract.make, "lanes": lanes, "chunk": chunk}
    lived(pair(name, None, "shuffled", num_envs=21, **options))
    ((text, kernels),) = gpu.launched.items()
    assert kernels == set(gpu.compiled(text).kernels)


# ---- everything


def crossed(kinds) -> list:
    """Every form, kind and block: each form and kind with one of the blocks is slow, with the other long."""
    return [
        pytest.param(*form, kind, block, marks=pytest.mark.slow if (n + m) % 2 == k else pytest.mark.long)
        for (n, form), (m, kind), (k, block) in itertools.product(
            enumerate(FORMS), enumerate(kinds), enumerate((64, 128))
        )
    ]


@pytest.mark.parametrize(("name", "dtype", "obs", "mode", "block"), crossed(batches.MODES))
def test_steps_of_every_form_leave_the_bits_of_the_cpus_form(name, mode, dtype, obs, block):
    stepped(pair(name, block, autoreset_mode=mode, dtype=dtype, obs=obs), 40)


@pytest.mark.parametrize(("name", "dtype", "obs", "kind", "block"), crossed(POLICIES))
def test_rollouts_of_every_form_leave_the_bits_of_the_cpus_form(name, kind, dtype, obs, block):
    both = pair(name, block, "shuffled", dtype=dtype, obs=obs)
    rolled_out(both, policy(name, kind), steps=(1, 5, 8, 37))
    if "MLP" in kind:
        rolled_out(both, policy(name, kind, 64), steps=(5,))
