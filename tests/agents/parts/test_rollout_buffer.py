"""Rows of an iteration: the same in torch as in the kernel, in the right places, and heedless of who is not active."""

import pytest
import torch

from lockstep import envs
from lockstep.agents.parts import distributions
from lockstep.agents.parts.actor_critic import ActorCritic
from lockstep.agents.parts.normaliser import Normaliser
from lockstep.agents.parts.rollout_buffer import RolloutBuffer
from tests.agents.worlds import BOX, PERIOD, THREE_TWO, World, near_first, normal
from tests.envs.batches import NAMES, B, spread

T = 12
NAN = float("nan")


def made(env, seeds=(3,), *, hidden=(16, 16), **options) -> RolloutBuffer:
    """A buffer under networks that are far from uniform."""
    distribution = distributions.of(env.single_action_space)
    inputs, learners = env.single_observation_space.shape[-1], len(seeds)
    networks = ActorCritic(
        inputs, distribution.outputs, distribution.free, hidden, learners=learners, seeds=range(learners), log_std=-0.7
    )
    networks.parts(networks.parameters)[f"actor.{len(hidden)}.weight"].mul_(100)
    found = RolloutBuffer(env, networks, distribution, seeds, horizon=T, **options)
    if isinstance(env, envs.BatchedEnv):
        spread(env)  # so that some episode is truncated
    return found


def port(name: str, num_envs: int = B, **options):
    return envs.make(name, num_envs, seed=3, check_actions=False, **options)


@pytest.mark.parametrize("name", NAMES)
def test_a_rollout_in_torch_is_the_one_in_the_kernel(name):
    """From one state each time: the upright pendulum multiplies a rounding step by step."""
    in_torch, in_kernel = made(port(name)), made(port(name), in_kernel=True)
    tolerance = {"rtol": 1e-5, "atol": 1e-5}
    cut_off = 0
    for _ in range(3):
        in_torch.collect(), in_kernel.collect()
        one, other = in_torch.rows, in_kernel.rows
        for key in ("terminated", "truncated"):
            assert torch.equal(one[key], other[key])
        if one["action"].dtype == torch.uint8:
            assert torch.equal(one["action"], other["action"]) and len(one["action"].unique()) > 1
        for key in ("action", "log_prob", "reward"):
            torch.testing.assert_close(one[key], other[key], **tolerance)
        torch.testing.assert_close(one["obs"][:T], other["obs"][:T], **tolerance)
        torch.testing.assert_close(one["value"], other["value"], **tolerance)
        cut = one["truncated"] & ~one["terminated"]
        torch.testing.assert_close(one["bootstrap"][cut], other["bootstrap"][cut], **tolerance)
        assert one["bootstrap"][cut].all() and not one["bootstrap"][~cut].any()
        cut_off += cut.sum()
        left, expected = in_kernel.env.state(), in_torch.env.state()
        torch.testing.assert_close(left["state"], expected["state"], **tolerance)
        assert torch.equal(left["elapsed"], expected["elapsed"]) and torch.equal(left["episode"], expected["episode"])
        in_kernel.env.set_state(expected)
    assert cut_off and torch.equal(in_torch.clock, torch.tensor([3 * T]))


@pytest.mark.parametrize("in_kernel", [False, True])
def test_rows_are_what_the_environment_and_the_networks_said(in_kernel):
    """Played again step by step in another batch, from the stored actions."""
    found, env = made(port("pendulum"), in_kernel=in_kernel), port("pendulum")
    obs, _ = env.reset(seed=3)
    spread(env)
    found.collect()
    rows, batch = found.rows, found.batch()
    for t in range(T):
        torch.testing.assert_close(rows["obs"][t], obs, rtol=0, atol=1e-6)
        out, value = (part[0] for part in found.networks(rows["obs"][t][None]))
        torch.testing.assert_close(rows["value"][t], value, rtol=0, atol=1e-5)
        normal_ = torch.distributions.Normal(out, torch.tensor(-0.7).exp())
        torch.testing.assert_close(rows["log_prob"][t], normal_.log_prob(rows["action"][t]).sum(1), rtol=0, atol=1e-4)
        obs, reward, terminated, truncated, info = env.step(rows["action"][t].clamp(-2, 2))
        torch.testing.assert_close(rows["reward"][t], reward, rtol=0, atol=1e-5)
        assert torch.equal(rows["terminated"][t], terminated) and torch.equal(rows["truncated"][t], truncated)
        last = torch.where(truncated, found.networks.critic(info["final_obs"][None])[0], 0.0)
        torch.testing.assert_close(rows["bootstrap"][t], last, rtol=0, atol=1e-5)
    torch.testing.assert_close(rows["value"][T], found.networks.critic(obs[None])[0], rtol=0, atol=1e-5)
    for name in ("obs", "action", "log_prob", "value"):
        assert torch.equal(batch[name], rows[name][:T].flatten(0, 1))


@pytest.mark.parametrize("in_kernel", [False, True])
def test_without_bootstrap_no_last_observation_has_a_value(in_kernel):
    found = made(port("pendulum"), in_kernel=in_kernel, bootstrap=False)
    found.collect()
    assert found.rows["truncated"].any() and not found.rows["bootstrap"].any()


def test_both_flags_leave_no_bootstrap():
    found = made(World(4, ends=("terminated", "truncated")))
    found.collect()
    assert found.rows["truncated"].any() and not found.rows["bootstrap"].any()


@pytest.mark.parametrize("in_kernel", [False, True])
def test_a_rollout_goes_on_from_a_state(in_kernel):
    first, other = (made(port("cartpole"), in_kernel=in_kernel) for _ in range(2))
    first.collect()
    state, place = first.state(), first.env.state()
    first.collect()
    other.load_state(state)
    other.env.set_state(place)
    other.collect()
    for name in ("obs", "action", "log_prob", "reward", "value", "bootstrap"):
        assert torch.equal(first.rows[name], other.rows[name]), name


def test_any_split_of_a_batch_draws_the_same():
    whole = made(port("cartpole", 8))
    parts = [made(port("cartpole", 4, first_index=first), first_index=first) for first in (0, 4)]
    for _ in range(2):
        for buffer in (whole, *parts):
            buffer.collect()
        assert torch.equal(whole.rows["action"], torch.cat([part.rows["action"] for part in parts], dim=1))


def test_members_live_as_alone():
    env = envs.make("cartpole", 8, seed=[3, 7], groups=2)
    together = made(env, (3, 7))
    together.collect()
    for member, seed in enumerate((3, 7)):
        alone = made(envs.make("cartpole", 4, seed=seed), (seed,))
        alone.networks.parameters.copy_(together.networks.parameters[member : member + 1])
        alone.collect()
        columns = slice(4 * member, 4 * member + 4)
        assert torch.equal(alone.rows["action"], together.rows["action"][:, columns])
        for name in ("log_prob", "value", "bootstrap"):
            torch.testing.assert_close(alone.rows[name], together.rows[name][:, columns], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("kinds", "expected"),  # step 0's part of of_batch, 4 environments: row = environment x agents + agent
    [
        ({}, [[[0, 1, 2, 3]]]),
        ({"shards": 2}, [[[0, 1], [2, 3]]]),
        ({"seeds": (0, 1)}, [[[0, 1]], [[2, 3]]]),
        ({"agents": 2}, [[[0, 1, 2, 3, 4, 5, 6, 7]]]),
        ({"agents": 2, "shards": 2}, [[[0, 1, 2, 3], [4, 5, 6, 7]]]),
        ({"agents": 2, "seeds": (0, 1)}, [[[0, 1, 2, 3]], [[4, 5, 6, 7]]]),
    ],
)
def test_every_row_belongs_to_one_learner_and_shard(kinds, expected):
    kinds = dict(kinds)
    world = World(4, BOX, near_first, agents=kinds.pop("agents", None))
    found = made(world, **kinds)
    found.networks.leaves["free"].detach().sub_(0.3 * torch.arange(len(expected)).unsqueeze(1))  # log_std
    first = torch.tensor(expected)
    assert torch.equal(found.of_step, first)
    later = torch.arange(T).view(-1, 1) * found.N  # step by step
    assert torch.equal(found.of_batch.view(*first.shape[:2], T, -1), first.unsqueeze(2) + later)
    found.collect()
    for learner, shards in enumerate(expected):  # each sees its own rows with its own numbers
        rows = torch.tensor(shards).flatten()
        out, value = (part[0] for part in found.networks.one(learner)(found.rows["obs"][0, rows][None]))
        torch.testing.assert_close(found.rows["value"][0, rows], value, rtol=0, atol=1e-6)
        deviation = torch.tensor(-0.7 - 0.3 * learner).exp()
        log_prob = torch.distributions.Normal(out, deviation).log_prob(found.rows["action"][0, rows]).sum(1)
        torch.testing.assert_close(found.rows["log_prob"][0, rows], log_prob, rtol=0, atol=1e-4)


def test_networks_see_normalised_observations():
    env = World(4, agents=2, ends=("truncated",))
    normaliser = Normaliser(3)
    normaliser.update(3 + 2 * normal(1000, 3, seed=5))
    found = made(env, normaliser=normaliser)
    found.collect()

    def seen(obs):
        return ((obs - normaliser.mean) / (normaliser.squares / 1000).sqrt()).float()

    for t in range(T):
        obs = env.table[t % PERIOD].flatten(0, 1)
        assert torch.equal(found.rows["obs"][t], obs)
        torch.testing.assert_close(found.rows["seen"][t], seen(obs), rtol=0, atol=1e-5)
        value = found.networks.critic(seen(env.table[(t + 1) % PERIOD].flatten(0, 1))[None])[0]
        expected = value if (t + 1) % env.limit == 0 else torch.zeros(8)
        torch.testing.assert_close(found.rows["bootstrap"][t], expected, rtol=0, atol=1e-5)
        assert found.rows["truncated"][t].all() == ((t + 1) % env.limit == 0)  # the environment's flag is every agent's
    assert found.batch()["obs"].shape == (T * 8, 3)


def test_forbidden_actions_are_not_taken():
    allowed = torch.tensor([True, False, True, False, True])  # of three and two actions
    found = made(World(6, THREE_TWO, lambda obs, action: obs[..., 0], mask=allowed))
    found.collect()
    even, odd = found.rows["action"][:, ::2], found.rows["action"][:, 1::2]
    assert not (even[..., 0] == 1).any() and (even[..., 1] == 1).all()
    assert (odd[..., 0] == 1).any() and (odd[..., 1] == 0).any()
    assert torch.equal(found.batch()["mask"].view(T, 6, 5)[3, 0], allowed)


def test_who_may_do_nothing_is_named_unless_not_active():
    def world(**options):
        return World(
            6, THREE_TWO, lambda obs, action: obs[..., 0], mask=torch.tensor([False] * 3 + [True] * 2), **options
        )

    with pytest.raises(
        ValueError, match=r"action mask\[0\] allows none of the 3 actions of component 0; it must allow one"
    ):
        made(world())
    made(world(active=lambda step: torch.arange(6) % 2 == 1)).collect()


def active_agents(step: int) -> torch.Tensor:
    """Agent 0 acts all five steps, agent 1 the first three, in environment 2 nobody ever."""
    active = torch.tensor([True, step < 3]).repeat(4, 1)
    active[2] = False
    return active


def test_rows_that_are_not_active_touch_no_other():
    found = {}
    for rubbish in (0.5, NAN, float("inf")):
        world = World(4, BOX, near_first, agents=2, active=active_agents, rubbish=rubbish)
        buffer = made(world, normaliser=Normaliser(3))
        buffer.collect()
        assert buffer.finite().all()
        assert not buffer.rows["seen"][~buffer.active].any()
        found[rubbish] = buffer.rows
        for t in range(T):
            assert torch.equal(buffer.active[t], active_agents(t % 5).flatten())
    active = found[0.5]["active"][:T]
    for rubbish in (NAN, float("inf")):
        for name in ("obs", "action", "log_prob", "value", "reward", "bootstrap"):
            assert torch.equal(found[rubbish][name][:T][active], found[0.5][name][:T][active]), name


def test_who_has_finished_has_nothing_to_come():
    """After T = 12 steps of episodes of five the second agent, there for two of them, has finished: V is 0."""
    world = World(4, agents=2, active=lambda step: torch.tensor([[True, step < 2]]).repeat(4, 1))
    found = made(world)
    found.collect()
    assert found.rows["value"][T].view(4, 2)[:, 1].eq(0).all() and found.rows["value"][T].view(4, 2)[:, 0].ne(0).all()


@pytest.mark.parametrize("active", [None, lambda step: torch.ones(4, dtype=torch.bool)])
def test_what_is_not_finite_is_noticed(active):
    found = made(World(4, active=active))
    found.collect()
    assert found.finite().all()
    for place, name in enumerate(("obs", "reward", "log_prob", "value")):
        kept = found.rows[name][3, 2].clone()
        for rubbish in (NAN, float("inf")):
            found.rows[name][3, 2] = rubbish
            assert found.finite().tolist() == [other != place for other in range(4)]
        found.rows[name][3, 2] = kept


def test_rows_that_do_not_fit_are_told_before_they_are_allocated():
    env = World(4)
    networks = ActorCritic(3, 2, 0)
    with pytest.raises(MemoryError, match="num_envs x horizon"):
        RolloutBuffer(env, networks, distributions.of(env.single_action_space), (0,), horizon=10**12)
