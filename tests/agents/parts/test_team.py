"""A team of agents learns as one: what it sees, what it does, and that it finds what is best for all."""

import re

import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete, MultiDiscrete

from lockstep import envs
from lockstep.agents import ppo
from lockstep.agents.parts import distributions
from lockstep.agents.parts.team import Team
from lockstep.agents.ppo import PPO, Config
from lockstep.agents.run import evaluation
from lockstep.agents.run.config import replaced
from tests.agents.worlds import BOX, Crew, World, near_first, normal

SMALL = Config(
    num_envs=8, horizon=16, total_steps=128 * 100, epochs=4, minibatches=2, hidden=(16, 16), threads=1, joint=True,
    ent_coef=0.0, lr=3e-3, clip_value=False, anneal_lr=False, log_std=-1.0,
)  # fmt: skip


SMALL_EDGE = {"vehicles": 12, "edges": 3, "types": 20, "slots": 6, "components": 2}


def changed(**changes) -> Config:
    return replaced(SMALL, changes)


def trained(world, iterations: int, **changes) -> PPO:
    run = PPO(world, changed(**changes))
    for _ in range(iterations):
        run.iterate()
    return run


# ---- what a team sees and does ---------------------------------------------------------------------------------------


def test_agents_with_one_view_are_seen_once_and_their_numbers_stand_side_by_side():
    team = Team(Crew(4, (2, 5)))
    obs, _ = team.reset(seed=0)
    assert obs.shape == (4, 3) and torch.equal(obs, team.env.table[0, :, 0])
    assert team.single_action_space.shape == (7,) and team.num_agents is None
    action = torch.arange(28.0).view(4, 7) / 28
    apart = team.split(action)
    assert torch.equal(apart[:, 0, :2], action[:, :2]) and torch.equal(apart[:, 1], action[:, 2:])
    assert (apart[:, 0, 2:] == 0).all()


def test_agents_that_see_different_things_are_seen_side_by_side_and_rewards_are_averaged():
    world = World(4, BOX, lambda obs, action: action[..., 0], agents=2)
    team = Team(world)
    obs, _ = team.reset()
    assert torch.equal(obs, world.table[0].reshape(4, 6))
    _, reward, terminated, truncated, infos = team.step(torch.tensor([[1.0, 0.0, 3.0, 0.0]]).expand(4, -1))
    assert torch.equal(reward, torch.full((4,), 2.0)) and terminated.shape == truncated.shape == (4,)
    assert torch.equal(infos["final_obs"], world.table[1].reshape(4, 6))


@pytest.mark.parametrize(("space", "masks"), [(Discrete(3), [3, 3]), (MultiDiscrete([3, 2]), [5, 5])])
def test_a_team_s_choices_and_masks_are_those_of_its_agents(space, masks):
    allowed = torch.ones(sum(masks) // 2, dtype=torch.bool)
    allowed[1] = False
    world = World(4, space, lambda obs, action: action.float().reshape(4, 2, -1)[..., 0], agents=2, mask=allowed)
    team = Team(world)
    _, infos = team.reset()
    assert infos["action_mask"].tolist()[0] == 2 * allowed.tolist()
    assert team.single_action_space.nvec.tolist() == ([3, 3] if masks == [3, 3] else [3, 2, 3, 2])
    run = trained(World(8, space, lambda obs, action: action.float().reshape(8, 2, -1)[..., 0], agents=2), 2)
    assert run.act(normal(5, 2, 3)).shape == ((5, 2) if masks == [3, 3] else (5, 2, 2))


def test_who_is_not_active_is_seen_as_nothing_and_a_team_counts_while_one_acts():
    world = World(4, BOX, near_first, agents=2, active=lambda step: torch.tensor([[True, step < 2]]).repeat(4, 1))
    team = Team(world)
    team.reset()
    for _ in range(2):
        obs, *_, infos = team.step(torch.zeros(4, 4))
    assert (obs[:, 3:] == 0).all() and torch.equal(obs[:, :3], world.table[2, :, 0]) and infos["active"].all()


def of_two_where_one_finishes(num_envs: int = 8) -> World:
    """Episodes of five steps, cut off then; the second agent has finished after two, and holds NaN from there on."""

    def active(step: int) -> torch.Tensor:
        return torch.tensor([[True, step < 2]]).repeat(num_envs, 1)

    return World(num_envs, BOX, near_first, agents=2, active=active)


def test_who_has_finished_is_seen_as_nothing_in_the_last_observation_as_well():
    world = of_two_where_one_finishes(4)
    team = Team(world)
    team.reset()
    for _ in range(5):
        *_, truncated, infos = team.step(torch.zeros(4, 4))
    assert truncated.all() and infos["final_obs"].tolist() == [[*row, 0, 0, 0] for row in world.table[5, :, 0].tolist()]


def test_who_finishes_with_the_last_step_is_seen_as_nothing_in_its_observation():
    """One agent's limit of time cuts the episode off in which the other has just finished."""

    class Parting(World):
        def step(self, action):
            obs, reward, _, _, infos = super().step(action)
            first, second = torch.tensor([[True, False]]).repeat(4, 1), torch.tensor([[False, True]]).repeat(4, 1)
            ended = self.time == self.limit
            return obs, reward, first & ended, second & ended, infos

    world = Parting(4, BOX, near_first, agents=2, active=lambda step: torch.ones(4, 2, dtype=torch.bool))
    team = Team(world)
    team.reset()
    for _ in range(5):
        _, _, terminated, truncated, infos = team.step(torch.zeros(4, 4))
    assert truncated.all() and not terminated.any()
    assert infos["final_obs"].tolist() == [[0, 0, 0, *row] for row in world.table[5, :, 1].tolist()]


def test_a_team_learns_and_acts_though_who_has_finished_holds_nan():
    run = trained(of_two_where_one_finishes(), 3)
    assert run.rollout.rows["bootstrap"].isfinite().all() and run.rollout.rows["bootstrap"].any()
    assert np.isfinite(run.statistics()["policy_loss"]) and run.networks.parameters.isfinite().all()
    obs, active = normal(5, 2, 3), torch.tensor([True, False]).repeat(5, 1)
    nothing, nan = (obs.where(active.unsqueeze(2), torch.tensor(number)) for number in (0.0, float("nan")))
    action = run.act(nan, active=active)
    assert torch.equal(action[:, 0], run.act(nothing)[:, 0]) and not action[:, 1].any() and action[:, 0].all()
    with pytest.raises(
        ValueError, match=re.escape("active must be bool [5, 2], as the observations are, not bool [5]")
    ):
        run.act(nan, active=active[:, 0])


def test_a_group_s_number_moves_all_of_the_group():
    world = Crew(1, (2, 3), grouped=True)
    team = Team(world, grouped=True)
    assert team.single_action_space.shape == (7,)
    apart = team.split(torch.tensor([[0.1, 0.2, 0.3, 0.4, 2.0, 0.5, -0.25]]))
    np.testing.assert_allclose(apart[0], [[0.6, 0.7, 0.0], [0.05, 0.15, 1.0]], atol=1e-6)  # clipped after the sum


# ---- learning --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("actors", ["one", "each"])
@pytest.mark.parametrize("ratio", ["action", "component"])
def test_agents_of_different_sizes_learn_what_is_best(ratio, actors):
    """The best pair is half the first component, and its negative: nothing is lost then."""
    run = trained(Crew(8, (2, 5)), 100, ratio=ratio, actors=actors)
    obs = normal(200, 1, 3, seed=3).expand(-1, 2, -1)
    action, best = run.act(obs), 0.5 * obs[:, 0, :1].clamp(-1, 1)
    assert (action[:, 0, :2] - best).square().mean() < 0.03 < best.square().mean() / 2
    assert (action[:, 1] + best).square().mean() < 0.03


@pytest.mark.parametrize(
    "world", [lambda: Crew(8, (2, 5), grouped=True), lambda: World(8, MultiDiscrete([3, 2]), agents=2)]
)
def test_each_agent_s_numbers_come_from_its_own_network(world):
    """Those of its groups as well; and all choices of a discrete one. The critic is one."""
    run = PPO(world(), changed(actors="each", groups=isinstance(world(), Crew)))
    obs = normal(5, run.env.single_observation_space.shape[0], seed=3).unsqueeze(0)
    before, value = run.networks(obs)
    for name, leaf in run.networks.leaves.items():
        if name.startswith("actor1"):
            leaf.data.add_(0.1)
    after, same = run.networks(obs)
    owners = torch.tensor(run.env.owners).repeat_interleave(torch.tensor(run.distribution.sizes or [1] * 9))
    assert owners.bincount().tolist() == ([3, 6] if isinstance(world(), Crew) else [5, 5])
    assert torch.equal((before != after)[0].any(dim=0), owners == 1) and torch.equal(value, same)


def test_numbers_that_no_agent_uses_are_nowhere():
    """They are always 0, and log p, entropy and networks are those of the numbers that are used."""
    run = trained(Crew(8, (2, 5)), 2)
    assert max(run.env.env.beyond) == 0
    assert run.networks.outputs == 7 and run.rollout.rows["action"].shape == (16, 8, 7)
    assert run.statistics()["entropy"] == pytest.approx(7 * (-1 + 0.5 + 0.5 * np.log(2 * np.pi)), abs=0.2)


@pytest.mark.parametrize("grouped", [False, True])
def test_what_only_a_group_s_mean_decides_is_found_by_exploring_it_together(grouped):
    """Of 300 numbers the noise of the mean is 17 times smaller than theirs; a group's own number is not drowned."""
    world = Crew(8, (100, 300), grouped=grouped, spread=True)
    run = trained(world, 60, groups=grouped, group_log_std=-1.0, ratio="component", lr=1e-3)
    obs = normal(200, 1, 3, seed=3).expand(-1, 2, -1)
    action, best = run.act(obs), 0.5 * obs[:, 0, 0].clamp(-1, 1)
    found = (action[:, 1].mean(dim=1) + best).square().mean() / best.square().mean()
    assert found < 0.5 if grouped else found > 0.5


def test_a_ratio_for_each_component_is_one_at_first_and_their_divergences_add_up():
    run = PPO(Crew(8, (2, 5)), changed(ratio="component", epochs=1, minibatches=1))
    run.iterate()
    told = run.statistics()
    assert run.rollout.rows["log_prob"].shape == (16, 8, 7)
    assert told["approx_kl"] == pytest.approx(0, abs=1e-5) and told["clip_fraction"] == 0
    whole = PPO(Crew(8, (2, 5)), changed(epochs=1, minibatches=1))
    whole.iterate()
    total = run.rollout.rows["log_prob"].sum(dim=-1)
    torch.testing.assert_close(total, whole.rollout.rows["log_prob"], rtol=0, atol=1e-4)
    # At a ratio of 1 everywhere the gradients of both are that of -advantage * log p.
    torch.testing.assert_close(run.networks.parameters, whole.networks.parameters, rtol=0, atol=1e-4)


def test_a_component_s_log_p_and_entropy_add_up_to_the_action_s():
    found = distributions.of(BOX)
    out, free = normal(50, found.outputs), normal(50, found.free, seed=1)
    noise = torch.randint(0, 2**24, (50, 4 * found.blocks), dtype=torch.int32)
    action, _ = found.sample(out, free, noise)
    each, whole = (of(out, free, action) for of in (found.of_components, found.log_prob_entropy))
    for parts, total in zip(each, whole, strict=True):
        torch.testing.assert_close(parts.expand(50, 2).sum(dim=-1), total, rtol=0, atol=1e-4)


# ---- a run -----------------------------------------------------------------------------------------------------------


class Lasting(Crew):
    """A crew whose state can be kept."""

    def state(self):
        return {"time": self.time}

    def set_state(self, state):
        self.time = state["time"]


def test_a_run_goes_on_bit_for_bit(tmp_path):
    config = changed(total_steps=128 * 6, groups=True, ratio="component", norm_obs=True)
    whole = ppo.train(Lasting(8, grouped=True), config)
    ppo.train(Lasting(8, grouped=True), changed(**{**vars(config), "save_every": 128 * 3}), output=tmp_path, check=None)
    half = PPO(Lasting(8, grouped=True), config)
    for _ in range(3):
        half.iterate()
    rest = PPO(Lasting(8, grouped=True), config)
    rest.load_state(half.state())
    for _ in range(3):
        rest.iterate()
    kept = ppo.load(tmp_path, environment=Lasting(8, grouped=True))
    for run in (rest, kept):
        assert torch.equal(whole.networks.parameters, run.networks.parameters)


@pytest.mark.parametrize(
    ("world", "changes", "sentence"),
    [
        (lambda: Crew(8), {"groups": True}, "groups=True needs an environment with action_groups and a Box of actions"),
        (lambda: Crew(8), {"groups": True, "joint": False}, "groups=True needs joint=True"),
        (lambda: Crew(8), {"actors": "each", "joint": False}, "actors='each' needs joint=True"),
        (lambda: Crew(8), {"joint": False}, "joint=False: agents use 2 and 5 numbers of an action; only joint=True"),
        (lambda: bent(action_sizes=(2, 6)), {}, "Crew.action_sizes is (2, 6); it must be 2 integers, each from 1 to 5"),
        (lambda: bent(action_sizes=(2,)), {}, "Crew.action_sizes is (2,); it must be 2 integers"),
        (
            lambda: bent(action_groups=np.zeros((1, 6), int)),
            {},
            "Crew.action_groups is int64 [1, 6]; it must be integers [levels, 7]",
        ),
    ],
)
def test_a_team_that_cannot_be_is_refused(world, changes, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        PPO(world(), changed(**changes))


def bent(**attributes) -> Crew:
    world = Crew(8)
    world.__dict__ |= attributes
    return world


def test_a_team_is_no_module():
    with pytest.raises(ValueError, match="several agents together: use run.act"):
        PPO(Crew(8), SMALL).module()


@pytest.fixture(scope="module")
def edge():
    """Makes a small port of the vehicular edge; and a run of two iterations on one."""

    def make():
        return envs.make("vehicular_edge", 8, scenarios=2, check_actions=False, **SMALL_EDGE)

    config = ppo.config_of(
        "vehicular_edge", num_envs=8, horizon=5, total_steps=160, minibatches=2, hidden=(16, 16), threads=1
    )
    run = PPO(make(), config)
    for _ in range(2):
        run.iterate()
    return make, run


def test_a_run_on_the_vehicular_edge_goes_on_bit_for_bit(edge):
    make, run = edge
    state, other = run.state(), PPO(make(), run.config)
    other.load_state(state)
    same = PPO(make(), run.config)
    for _ in range(3):
        same.iterate()
    other.iterate()
    assert torch.equal(other.networks.parameters, same.networks.parameters)
    assert not torch.equal(other.networks.parameters, state["parameters"])


def test_the_pair_plays_in_the_original_what_pettingzoo_s_own_loop_plays(edge):
    run, returns = edge[1], []
    found = evaluation.in_original("vehicular_edge", run.act, episodes=2, **SMALL_EDGE)
    for index in range(2):
        env = envs.make_original("vehicular_edge", index=index, **SMALL_EDGE)
        obs, _ = env.reset()
        total = 0.0
        while env.agents:
            seen = torch.from_numpy(np.stack([obs[agent] for agent in env.agents]))[None]
            obs, reward, *_ = env.step(dict(zip(env.agents, run.act(seen)[0].numpy(), strict=True)))
            total += reward["offloading"]
        returns.append(total)
    np.testing.assert_allclose(found.returns, returns, rtol=1e-6)
    assert found.lengths.tolist() == [6, 6]


# ---- in the original -------------------------------------------------------------------------------------------------


class Table:
    """An original in PettingZoo's parallel API: three steps; agent b leaves after two; rewards are the actions."""

    possible_agents = ("a", "b")

    def action_space(self, agent):
        return BOX

    def reset(self, seed=None):
        self.agents, self.time, self.seed = ["a", "b"], 0, seed
        return {agent: np.full(3, seed, np.float32) for agent in self.agents}, {}

    def step(self, actions):
        assert sorted(actions) == sorted(self.agents)
        self.time += 1
        rewards = {agent: float(action[0]) for agent, action in actions.items()}
        obs = {agent: np.full(3, self.seed + self.time, np.float32) for agent in self.agents}
        ended = {agent: self.time == (2 if agent == "b" else 3) for agent in self.agents}
        self.agents = [agent for agent in self.agents if not ended[agent]]
        return obs, rewards, ended, ended, {}


def test_episodes_of_several_agents_are_played_to_their_end():
    """Agent a gets 1 three times, agent b 0.5 twice: the mean over agents is 2."""
    seen = []

    def act(obs):
        seen.append(obs.clone())
        return torch.tensor([[1.0, 0.0], [0.5, 0.0]]).expand(len(obs), -1, -1)

    found = evaluation.play([Table(), Table()], act, first_seed=7)
    assert found.returns.tolist() == [2.0, 2.0] and found.lengths.tolist() == [3, 3]
    assert seen[0].shape == (2, 2, 3) and seen[0][:, 0, 0].tolist() == [7.0, 8.0]
    with pytest.raises(ValueError, match=re.escape("act must return a tensor (1, 2, 2) of actions, got (1, 2)")):
        evaluation.play([Table()], lambda obs: torch.zeros(1, 2))
