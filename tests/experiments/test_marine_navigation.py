"""Agents of marine navigation: every part of a training is measured, and both forms play alike."""

import collections
import dataclasses
import itertools

import numpy as np
import pandas as pd
import pytest
import torch

from lockstep import agents
from lockstep.agents.run.config import config_of
from lockstep.envs.marine_navigation.scenario import evaluation
from lockstep.experiments import config
from lockstep.experiments.config import Settings
from lockstep.experiments.marine_navigation import episodes, navigation
from lockstep.experiments.marine_navigation.navigation import Group

NAME = "marine_navigation"
SIX = ["ac_iqn", "iqn", "dqn", "rainbow", "ddpg", "sac"]
EVERY = {"cuda": 10_000, "cpu": 2_000}  # environment steps from copy to copy of the target networks


@pytest.fixture(scope="module")
def few():
    """Settings with a short training and short episodes, two of each setting."""
    plain = config.load(NAME, "full").plain()
    asked = plain["navigation"]
    asked |= {
        "settings": {"cpu": {"total_steps": 2400}},
        "points": 2,
        "episodes": {"port": 2, "original": 1},
    }
    asked["versions"]["kinematic"] |= {"steps": 20}
    asked["versions"]["thruster"] |= {"steps": 20}
    return Settings(plain)


def test_every_agent_has_settings_that_are_its_own():
    settings = config.load(NAME, "full")
    found = navigation.groups(settings, ["cpu", "cuda"])
    assert len({group.label for group in found}) == len(found) and {group.device for group in found} == {"cuda"}
    assert [group.seed for group in found] == sorted(group.seed for group in found)
    configs = {group: navigation.config_of(NAME, group, settings) for group in found}
    assert len({(group.policy, group.version, *dataclasses.astuple(one)) for group, one in configs.items()}) == len(
        found
    )
    for group, one in configs.items():
        assert one.limit_ends == one.raw_obs == (group.variant == "faithful")
        assert one.epsilon_steps == one.total_steps // 4 and one.seed == group.seed
        assert one.n_step == (3 if group.policy == "rainbow" else 1)
        assert f"version={group.version}, preset={group.preset}" in one.options
    averse = {group.variant: one.cvar for group, one in configs.items() if group.policy == "ac_iqn" and one.cvar < 1}
    assert averse == {f"trained with risk {share}": share for share in (0.75, 0.5, 0.25)}


def moves(run, count: int) -> list[int]:
    """Environment steps at which the target networks of a run change, so many of them; networks count iterations."""
    pairs = (
        [(run.online, run.target)]
        if hasattr(run, "online")
        else [(run.networks[k], run.targets[k]) for k in run.targets]
    )
    run.phases = {"rollout": lambda: None, "update": lambda: None}
    found = []
    while len(found) < count:
        for network, _ in pairs:
            network.parameters.fill_(run.iteration + 1)
        run.iterate()
        changed = {bool((target.parameters == run.iteration).all()) for _, target in pairs}
        assert len(changed) == 1
        found += [run.env_steps] * changed.pop()
    return found


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(
    ("version", "policy"), [*((("thruster", policy)) for policy in SIX), ("kinematic", "iqn"), ("kinematic", "dqn")]
)
def test_target_networks_change_every_so_many_environment_steps(version, policy, device):
    """Every 10,000 as published, whatever a batch is; in the shorter trainings on a CPU every 2,000."""
    settings = config.load(NAME, "full")
    one = navigation.config_of(NAME, Group(version, "original", policy, "corrected", 0, device), settings)
    every = EVERY[device]
    assert one.target_every == every and one.tau == 1
    assert one.n_step == (3 if device == "cpu" or policy == "rainbow" else 1)
    chunk = max(one.num_envs, 1 / one.replay_ratio)  # steps of an iteration, or of an update
    run = agents.algorithm(policy)(NAME, dataclasses.replace(one, threads=1))
    found = moves(run, 8)
    for before, after in itertools.pairwise(found):
        assert abs(after - before - every) <= chunk
    assert abs(found[-1] - found[0] - 7 * every) <= chunk


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_seeds_samples_and_schedules_are_those_of_the_specification(device):
    """Batches of 64 rows, of the kinematic boat 32, for four steps; five seeds, where a GPU trains."""
    settings = config.load(NAME, "full")
    found = navigation.groups(settings, [device])
    for group in found:
        one = navigation.config_of(NAME, group, settings)
        if group.variant.startswith("batches"):
            assert group.variant == f"batches of {one.batch_size}" and one.lr == 1e-4 * (one.batch_size / 64) ** 0.5
        assert one.batch_size * one.replay_ratio == (8 if group.version == "kinematic" else 16)
        published = config_of(agents.algorithm(group.policy), NAME)
        assert one.learning_starts == published.learning_starts == 2_000
        assert one.epsilon_steps / one.total_steps == published.epsilon_steps / published.total_steps
    trained = collections.Counter((group.version, group.preset, group.policy, group.variant) for group in found)
    batches = {variant: seeds for (*_, variant), seeds in trained.items() if variant.startswith("batches")}
    assert batches == ({"batches of 64": 1} if device == "cuda" else {"batches of 1024": 3})
    trained = {key: seeds for key, seeds in trained.items() if key[-1] not in batches}
    if device == "cuda":
        assert set(trained.values()) == {5} and one.total_steps == 6_000_000 and one.num_envs == 4096
    else:
        three = {key for key, seeds in trained.items() if seeds == 3}
        assert {key[:2] + key[3:] for key in three} == {("thruster", "original", "corrected")} and len(three) == 6
        assert set(trained.values()) == {1, 3}


@pytest.mark.parametrize("preset", ["original", "corrected"])
@pytest.mark.parametrize(("version", "policy"), [("thruster", "ac_iqn"), ("kinematic", "iqn")])
def test_a_curve_plays_the_published_evaluation_set_and_the_end_what_policies_play(version, policy, preset):
    settings = config.load(NAME, "full")
    group = Group(version, preset, policy, "corrected", 0)
    along, final = navigation.evaluations(NAME, group, settings, navigation.config_of(NAME, group, settings))
    pool = evaluation(along.params)
    assert len(along.pool) == len(pool) == 60
    for one, other in zip(along.pool, pool, strict=True):
        np.testing.assert_equal(dataclasses.asdict(one), dataclasses.asdict(other))
    assert along.params.stop_at_collision and along.params.limit == 1000 + (preset == "original")
    of_policies = settings.policies.versions[version]
    assert final.params == dataclasses.replace(
        episodes.parameters(version, preset, of_policies), action_kind=along.params.action_kind
    )
    assert (final.drawn, final.settings, final.each) == (settings.policies.seed, of_policies.settings, 200)


def test_who_sees_the_same_again_acts_the_same_and_is_not_asked():
    asked = []

    def act(obs):
        asked.append(obs.reshape(-1, obs.shape[-1]).tolist())
        return 10 * obs.sum(dim=-1, keepdim=True)

    remembered, obs = navigation.remembering(act), torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    assert remembered(obs).tolist() == [[[30.0], [70.0]]]
    before = remembered(obs)
    obs[0, 1, 0] = 5.0  # in place, as environments do
    assert remembered(obs).tolist() == [[[30.0], [90.0]]] and before.tolist() == [[[30.0], [70.0]]]
    assert asked == [[[1.0, 2.0], [3.0, 4.0]], [[5.0, 4.0]]]


@pytest.mark.parametrize(
    ("version", "policy", "variant"),
    [
        ("thruster", "dqn", "corrected"),
        pytest.param("thruster", "ac_iqn", "corrected", marks=pytest.mark.long),
        pytest.param("thruster", "rainbow", "faithful", marks=pytest.mark.long),
        pytest.param("kinematic", "iqn", "corrected", marks=pytest.mark.long),
    ],
)
def test_an_agent_is_trained_and_plays_the_same_episodes_in_both_forms(few, version, policy, variant):
    group = Group(version, "original", policy, variant, 0)
    rows = pd.DataFrame(navigation.measure(NAME, few, group), columns=navigation.COLUMNS)
    risks = list(navigation.risks(group, few))
    curve, final = rows[rows["part"] == "curve"], rows[rows["part"] == "final"]
    assert curve.groupby("env_steps").size().to_dict() == {1200: 60, 2400: 60} and (curve["form"] == "port").all()
    assert len(final[final["form"] == "port"]) == 6 * len(risks) and set(final["env_steps"]) == {2400}
    theirs = final[final["form"] == "original"].reset_index(drop=True)
    own = final["risk"].isna() if risks == [None] else final["risk"] == risks[0]
    ours = final[(final["form"] == "port") & own & (final["episode"] == 0)].reset_index(drop=True)
    exact = ["robots", "cores", "obstacles", "episode", "reached", "hit_robot", "hit_obstacle", "success"]
    assert len(theirs) == 3 and ours[exact].equals(theirs[exact])
    pd.testing.assert_frame_equal(ours[["time_s", "return"]], theirs[["time_s", "return"]], rtol=1e-2, atol=1e-2)
