"""The original as a PettingZoo environment, and what it says about bad input."""

import subprocess
import sys

import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from pettingzoo.test import parallel_api_test, parallel_seed_test

from envs.vehicular_edge.original import VehicularEdge, get_state, make, set_state
from envs.vehicular_edge.params import PRESETS
from tests.envs.vehicular_edge.worlds import small

AGENTS = ("offloading", "allocation")


@pytest.fixture(params=list(PRESETS))
def scenario(request):
    return small(request.param)


@pytest.fixture
def env():
    env = VehicularEdge(small())
    env.reset()
    return env


def draws(env, seed=0):
    rng = np.random.default_rng(seed)
    return {agent: rng.random(env.params.action_length, dtype=np.float32) for agent in AGENTS}


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("signed", [False, True])
def test_passes_pettingzoos_test_of_parallel_environments(scenario, indexed, signed):
    parallel_api_test(VehicularEdge(scenario, indexed=indexed, signed=signed), num_cycles=20)


@pytest.mark.parametrize("preset", list(PRESETS))
def test_a_seed_fixes_the_episodes_after_it(preset):
    parallel_seed_test(lambda: VehicularEdge([small(preset), small(preset, index=1)]))


def test_both_agents_see_the_same_and_earn_the_same_and_are_truncated_together(scenario):
    env = VehicularEdge(scenario)
    seen, facts = env.reset(seed=1)
    assert set(seen) == set(facts) == set(AGENTS) == set(env.agents)
    for t in range(env.params.slots):
        assert env.state().tolist() == [t / (env.params.slots - 1), 0.0]
        seen, reward, terminated, truncated, facts = env.step(draws(env, t))
        assert (seen["offloading"] == seen["allocation"]).all() and seen["offloading"].dtype == np.float32
        assert reward["offloading"] == reward["allocation"] == env.record["reward"]
        assert not any(terminated.values())
        assert set(truncated.values()) == {t == env.params.slots - 1}
        assert facts["allocation"]["dropped"] == env.record["dropped"]
    assert env.agents == [] and env.state()[1] == 1.0


def test_observations_of_the_physical_preset_lie_in_their_space(env):
    while env.agents:
        seen, *_ = env.step(draws(env, env.t))
        assert all(env.observation_space(agent).contains(seen[agent]) for agent in AGENTS)
    assert env.state_space.contains(env.state())


def test_default_sizes_are_the_published_ones(physical):
    env = VehicularEdge(physical)
    assert env.action_space("allocation").shape == (985,) and env.observation_space("offloading").shape == (1025,)


def test_raw_and_integer_actions_do_the_same(scenario):
    raw, decoded = VehicularEdge(scenario), VehicularEdge(scenario)
    for one in (raw, decoded):
        one.reset()
    while raw.agents:
        actions = draws(raw, raw.t)
        seen, reward, *_ = raw.step(actions)
        seen_, reward_, *_ = decoded.step_decoded(*decoded.decode(*(actions[agent] for agent in AGENTS)))
        assert reward == reward_ and (seen["offloading"] == seen_["offloading"]).all()


def test_signed_actions_are_moved_to_0_and_1(env):
    actions = draws(env)
    signed = VehicularEdge(env.scenarios, signed=True)
    assert signed.action_space("offloading").low.min() == -1.0
    targets, divided = zip(
        env.decode(*actions.values()), signed.decode(*(2.0 * vector - 1.0 for vector in actions.values())), strict=True
    )
    assert (targets[0] == targets[1]).all() and divided[0] == pytest.approx(divided[1], abs=1e-6)


def test_numbers_beyond_an_agents_length_are_ignored(env):
    p, other = env.params, VehicularEdge(env.scenarios)
    other.reset()
    actions = draws(env)
    changed = {agent: vector.copy() for agent, vector in actions.items()}
    lengths = {"offloading": p.target_length, "allocation": p.share_length}
    assert min(lengths.values()) < p.action_length
    for agent, length in lengths.items():
        changed[agent][length:] = 0.5
    assert env.step(actions)[1] == other.step(changed)[1]


# ---- bad input


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize(("value", "said"), [(1.5, "1.5"), (-0.25, "-0.25"), (np.nan, "nan"), (np.inf, "inf")])
def test_a_number_out_of_range_is_named_with_agent_index_value_and_range(env, agent, value, said):
    actions = draws(env)
    actions[agent][7] = value
    with pytest.raises(ValueError, match=rf"'{agent}': index \(7,\) is {said}, must lie in \[0, 1\]"):
        env.step(actions)
    assert env.t == 0


def test_a_signed_environment_names_its_own_range(env):
    signed = VehicularEdge(env.scenarios, signed=True)
    signed.reset()
    with pytest.raises(ValueError, match=r"is -1.5, must lie in \[-1, 1\]"):
        signed.step({agent: np.full(env.params.action_length, -1.5) for agent in AGENTS})


def test_an_action_of_another_shape_or_a_missing_agent_is_named(env):
    actions = draws(env)
    with pytest.raises(ValueError, match=r"agent 'allocation' has shape \(3,\), not \(\d+,\)"):
        env.step(actions | {"allocation": np.zeros(3)})
    with pytest.raises(ValueError, match=r"no action of agent 'offloading'"):
        env.step({"allocation": actions["allocation"]})


def test_integer_actions_are_checked(env):
    p = env.params
    target, share = np.zeros((p.clients, p.tasks), dtype=int), np.ones(p.share_length)
    wrong = target.copy()
    wrong[1, 2] = p.options
    with pytest.raises(ValueError, match=rf"target: index \(1, 2\) is {p.options}, must lie in \[0, {p.options - 1}\]"):
        env.step_decoded(wrong, share)
    with pytest.raises(ValueError, match=r"target float64 .* must be integers"):
        env.step_decoded(target.astype(float), share)
    with pytest.raises(ValueError, match=r"share \(2,\) must be"):
        env.step_decoded(target, share[:2])
    share[4] = -1.0
    with pytest.raises(ValueError, match=r"share: index \(4,\) is -1.0, must lie in \[0, inf\]"):
        env.step_decoded(target, share)


def test_a_step_needs_an_open_episode():
    env = VehicularEdge(small())
    with pytest.raises(ResetNeeded, match=r"reset\(\)"):
        env.step({})
    env.reset()
    while env.agents:
        env.step(draws(env))
    with pytest.raises(ResetNeeded):
        env.step(draws(env))


def test_a_state_of_other_fields_shapes_or_slots_is_named(env):
    state = get_state(env)
    with pytest.raises(ValueError, match=r"t=7 must lie in 0..6"):
        set_state(env, state, 7)
    with pytest.raises(ValueError, match=r"'lc' has shape \(1,\), not \(6,\)"):
        set_state(env, state | {"lc": np.zeros(1)}, 0)
    with pytest.raises(ValueError, match="state must have the fields lc, "):
        set_state(env, {"lc": state["lc"]}, 0)


def test_a_scenario_of_other_sizes_than_its_pool_is_named():
    with pytest.raises(ValueError, match=r"scenario 1 has \(slots, clients, tasks, servers, edges\) \(5, "):
        VehicularEdge([small(), small(slots=5)])


def test_make_names_presets_and_parameters():
    with pytest.raises(ValueError, match="preset='orignal' must be one of 'physical', 'original'"):
        make("orignal")
    with pytest.raises(ValueError, match="no parameter 'edgs'; did you mean 'edges'"):
        make(edgs=3)


def test_envs_does_not_need_pettingzoo():
    blocked = "import sys; sys.modules['pettingzoo'] = None; import envs; import envs.vehicular_edge.scenario"
    subprocess.run([sys.executable, "-c", blocked], check=True, timeout=60)
