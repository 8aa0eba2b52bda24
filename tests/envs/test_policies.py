"""Networks inside a rollout: against torch, against the documented noise, and what they refuse."""

import dataclasses
import re

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

from lockstep import envs
from lockstep.envs import noise
from lockstep.envs.batch.port import most_observed
from lockstep.envs.policies import HIDDEN
from tests.contract.batches import KNOWN, statistics

SEED, STEPS, BATCH, LIMIT = 5, 60, 300, 20  # so that episodes end, some by truncation, and tiles are partly filled


def network(inputs: int, outputs: int, hidden: int, seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        *(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, outputs))
    )


def shape(name: str) -> tuple[int, int]:
    """Observation components and outputs of a policy."""
    port = envs.port(name)
    return port.observation(port.params()).shape[0], getattr(port.action, "n", 1)


def policy(name: str, hidden: int = 16, **options) -> envs.MLP:
    inputs, outputs = shape(name)
    return envs.MLP(network(inputs, outputs, hidden, 0), network(inputs, 1, hidden, 1), **options)


def batch(name: str, **options) -> envs.BatchedEnv:
    env = envs.make(name, BATCH, seed=SEED, max_episode_steps=LIMIT, **options)
    env.reset()
    return env


def taken(env: envs.BatchedEnv, actions: torch.Tensor) -> torch.Tensor:
    """A policy's actions as the environment gets them."""
    if not actions.is_floating_point():
        return actions
    return actions.clamp(env.single_action_space.low.item(), env.single_action_space.high.item())


def same(a, b) -> bool:
    """Equal bits, NaN included."""
    return np.array_equal(np.asarray(a).view(np.uint8), np.asarray(b).view(np.uint8))


@pytest.fixture(params=KNOWN)
def name(request):
    return request.param


@pytest.mark.parametrize(("name", "hidden"), [*((name, 16) for name in KNOWN), ("acrobot", 32), ("acrobot", 64)])
def test_values_and_log_probabilities_agree_with_torch(name, hidden):
    env, mlp = batch(name), policy(name, hidden)
    rows = env.rollout(STEPS, mlp, "trajectory")
    with torch.no_grad():
        outputs, values = mlp.actor(rows["obs"]), mlp.critic(rows["obs"])[..., 0]
        last = mlp.critic(env._outputs[0])[:, 0]
    if outputs.shape[-1] > 1:
        distribution = torch.distributions.Categorical(logits=outputs)
    else:
        distribution = torch.distributions.Normal(outputs[..., 0], 1.0)
    torch.testing.assert_close(rows["log_prob"], distribution.log_prob(rows["action"]), atol=5e-6, rtol=0)
    torch.testing.assert_close(rows["value"][:-1], values, atol=2e-6, rtol=0)
    torch.testing.assert_close(rows["value"][-1], last, atol=2e-6, rtol=0)


def test_bootstraps_are_the_values_of_last_observations_of_episodes_that_were_only_truncated(name):
    mlp, stepped = policy(name), batch(name, check_actions=False)
    rows, cut = batch(name).rollout(STEPS, mlp, "trajectory"), 0
    for k, action in enumerate(taken(stepped, rows["action"])):
        *_, terminated, truncated, info = stepped.step(action)
        with torch.no_grad():
            value = mlp.critic(info["final_obs"])[:, 0]
        expected = torch.where(truncated & ~terminated, value, torch.zeros(()))
        torch.testing.assert_close(rows["bootstrap"][k], expected, atol=2e-6, rtol=0)
        cut += int((truncated & ~terminated).sum())
    assert cut > BATCH


def test_fused_steps_are_single_steps_bit_for_bit(name):
    mlp = policy(name)
    fused, single = batch(name), batch(name)
    rows = {key: value.clone() for key, value in fused.rollout(STEPS, mlp, "trajectory").items()}
    for k in range(STEPS):
        step = single.rollout(1, mlp, "trajectory")
        for key in ("obs", "action", "reward", "terminated", "truncated", "log_prob", "bootstrap"):
            assert same(rows[key][k], step[key][0]), (k, key)
        assert same(rows["value"][k], step["value"][0])
    assert same(rows["value"][-1], step["value"][1])
    assert same(fused.state()["state"], single.state()["state"])


def test_actions_that_were_stored_and_statistics_alone_lead_to_the_same_states(name):
    fused, stepped, plain = batch(name), batch(name), batch(name)
    plain.rollout(STEPS, policy(name), "statistics")
    actions = fused.rollout(STEPS, policy(name), "trajectory")["action"].clone()
    for action in taken(stepped, actions):
        stepped.step(action)
    counted = statistics(fused)
    for other in (stepped, plain):
        assert same(fused.state()["state"], other.state()["state"]) and counted == statistics(other)


def sampling_words(steps: int) -> np.ndarray:  # [steps, 4, B]
    index = np.arange(BATCH)
    return np.stack([noise.philox((index, 0, t, noise.SAMPLING), SEED) for t in range(steps)])


def test_a_discrete_action_is_the_inverse_distribution_function_of_the_documented_noise():
    mlp = policy("acrobot")
    rows = batch("acrobot").rollout(STEPS, mlp, "trajectory")
    with torch.no_grad():
        cumulative = torch.softmax(mlp.actor(rows["obs"]).double(), dim=-1).cumsum(-1).numpy()
    u = noise.uniform(sampling_words(STEPS)[:, 0], 0, 1, np.float64)
    expected = (u[..., None] >= cumulative[..., :-1]).sum(axis=-1)
    close = (np.abs(u[..., None] - cumulative[..., :-1]) < 1e-6).any(axis=-1)
    assert np.array_equal(rows["action"].numpy()[~close], expected[~close])
    assert close.mean() < 1e-3


def test_a_continuous_action_is_box_and_muller_of_the_documented_noise():
    log_std = torch.tensor([-0.5])
    mlp = policy("pendulum", log_std=log_std)
    rows = batch("pendulum").rollout(STEPS, mlp, "trajectory")
    words = sampling_words(STEPS)
    u1, u2 = ((words[:, 0] >> 8) + 1.0) * 2.0**-24, (words[:, 1] >> 8) * 2.0**-24
    normal = np.sqrt(-2 * np.log(u1)) * np.cos(2 * np.pi * u2)
    with torch.no_grad():
        mean = mlp.actor(rows["obs"])[..., 0]
    np.testing.assert_allclose(rows["action"].numpy(), mean.numpy() + np.exp(-0.5) * normal, atol=5e-6, rtol=0)
    expected = torch.distributions.Normal(mean, float(log_std.exp())).log_prob(rows["action"])
    torch.testing.assert_close(rows["log_prob"], expected, atol=1e-5, rtol=1e-5)


def test_a_greedy_policy_takes_the_likeliest_action(name):
    mlp = policy(name, greedy=True)
    rows = batch(name).rollout(STEPS, mlp, "trajectory")
    with torch.no_grad():
        outputs = mlp.actor(rows["obs"])
    if outputs.shape[-1] == 1:
        torch.testing.assert_close(rows["action"], outputs[..., 0], atol=2e-6, rtol=0)
        return
    best = outputs.topk(2, dim=-1).values
    clear = best[..., 0] - best[..., 1] > 1e-5
    assert torch.equal(rows["action"][clear].long(), outputs.argmax(dim=-1)[clear])


def test_numbers_are_read_at_each_launch():
    mlp, env = policy("cartpole", greedy=True), batch("cartpole")
    nn.init.zeros_(mlp.actor[4].weight)
    with torch.no_grad():
        mlp.actor[4].bias.copy_(torch.tensor([1.0, 0.0]))
        assert not env.rollout(3, mlp, "trajectory")["action"].any()
        mlp.actor[4].bias.copy_(torch.tensor([0.0, 1.0]))
        assert env.rollout(3, mlp, "trajectory")["action"].all()


def test_without_a_critic_no_values_are_kept():
    inputs, outputs = shape("cartpole")
    rows = batch("cartpole").rollout(3, envs.MLP(network(inputs, outputs, 16, 0)), "trajectory")
    assert {"value", "bootstrap"}.isdisjoint(rows) and "log_prob" in rows


def test_a_policy_sees_the_observations_that_are_kept(name):
    mlp = policy(name)
    rows = batch(name).rollout(STEPS, mlp, "trajectory", obs_dtype="bfloat16")
    assert rows["obs"].dtype == torch.bfloat16
    with torch.no_grad():
        values = mlp.critic(rows["obs"].float())[..., 0]
    torch.testing.assert_close(rows["value"][:-1], values, atol=2e-6, rtol=0)
    wide = batch(name).rollout(1, mlp, "trajectory")["obs"]
    narrow = batch(name).rollout(1, mlp, "trajectory", obs_dtype="bfloat16")["obs"]
    assert torch.equal(narrow, wide.to(torch.bfloat16))


def with_bias(bias: torch.Tensor) -> nn.Sequential:
    actor = network(4, 2, 16, 0)
    actor[0].bias = nn.Parameter(bias)
    return actor


REFUSED = [  # what the policy is made of, and the sentence
    ({"actor": network(4, 2, 48, 0)}, "policy.actor has 48 hidden units; allowed: 16, 32, 64"),
    ({"actor": network(4, 3, 16, 0)}, "actor[4]: weights must be (2, 16) float32 on cpu, got (3, 16)"),
    ({"actor": network(3, 2, 16, 0)}, "actor[0]: weights must be (16, 4) float32 on cpu, got (16, 3)"),
    ({"actor": network(4, 2, 16, 0).double()}, "weights must be (16, 4) float32 on cpu, got (16, 4)"),
    ({"actor": nn.Linear(4, 2)}, "must be Sequential(Linear, Tanh, Linear, Tanh, Linear)"),
    ({"critic": network(4, 1, 32, 0)}, "policy.critic must have 16 hidden units like policy.actor"),
    ({"actor": with_bias(torch.zeros(3))}, "actor[0]: bias must be (16,) float32 on cpu, got (3,)"),
    ({"actor": with_bias(torch.zeros(16).double())}, "bias must be (16,) float32 on cpu, got (16,)"),
    ({"greedy": "no"}, "policy.greedy='no' must be True or False"),
    ({"log_std": torch.zeros(1)}, "policy.log_std belongs to continuous actions"),
]


@pytest.mark.parametrize(("parts", "message"), REFUSED)
def test_a_network_that_the_kernel_is_not_written_for_is_refused(parts, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        batch("cartpole").rollout(2, envs.MLP(**{"actor": network(4, 2, 16, 0)} | parts))


def test_what_is_no_policy_of_the_environment_is_refused():
    with pytest.raises(ValueError, match=r"policy must be 'random', a Linear or an MLP, got Sequential\("):
        batch("cartpole").rollout(2, network(4, 2, 16, 0))
    with pytest.raises(ValueError, match=r"policy.log_std must be a float32 tensor of shape \(1,\)"):
        batch("pendulum").rollout(2, policy("pendulum", log_std=torch.zeros(2)))


@pytest.mark.gpu
def test_both_devices_roll_out_the_same_bits(name):
    inputs, outputs = shape(name)
    here = batch(name).rollout(STEPS, policy(name), "trajectory")
    actor, critic = network(inputs, outputs, 16, 0).cuda(), network(inputs, 1, 16, 1).cuda()
    there = batch(name, device="cuda").rollout(STEPS, envs.MLP(actor, critic), "trajectory")
    for key, value in here.items():
        assert same(value, there[key].cpu()), key


def test_a_network_that_answers_nan_acts_as_zero_fused_as_in_single_steps():
    inputs, _ = shape("pendulum")
    silent = network(inputs, 1, 16, 0)
    nn.init.constant_(silent[4].bias, float("nan"))
    fused, stepped = batch("pendulum"), batch("pendulum", check_actions=False)
    fused.rollout(5, envs.MLP(silent))
    for _ in range(5):
        stepped.step(torch.full((BATCH,), float("nan")))
    assert same(fused.state()["state"], stepped.state()["state"])


def test_a_trajectory_given_away_is_not_what_the_next_rollout_writes_through():
    env = batch("cartpole")
    rows = env.rollout(8, store="trajectory")
    rows["reward"] = rows["reward"][:1].clone()
    assert env.rollout(8, store="trajectory")["reward"].shape == (8, BATCH)


@pytest.mark.parametrize("outputs", [1, 2, 5])
@pytest.mark.parametrize("hidden", HIDDEN)
def test_the_largest_network_of_a_gpu_is_what_48_kib_hold(hidden, outputs):
    text = envs.units("cartpole")["SameStep", "float32", "copy"]
    most = most_observed(hidden, outputs, 4, text)
    sizes = [
        envs.MLP(network(n, outputs, hidden, 0), network(n, 1, hidden, 0)).numbers().nbytes for n in (most, most + 1)
    ]
    assert sizes[0] <= 48 * 1024 < sizes[1]


@pytest.mark.parametrize(("numbers", "words"), [(28, {"copy", "mlp"}), (29, {"copy"})])
def test_a_network_that_no_gpu_has_room_for_is_no_unit(numbers, words):
    observation = gymnasium.spaces.Box(-np.inf, np.inf, (numbers,), np.float32)
    port = dataclasses.replace(envs.port("pendulum"), observation=observation)
    assert {word for _, _, word in port.units(envs.folder("pendulum"))} == words


def test_an_actor_outlives_the_name_of_its_batch():
    env = batch("cartpole")
    act, expected = env.actor("random"), env.random_actions()[0]
    del env
    assert torch.equal(act(torch.zeros(BATCH, 4)), expected)
