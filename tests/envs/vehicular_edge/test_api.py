"""The original as a PettingZoo environment, and what it says about bad input."""

import copy
import dataclasses
import pickle

import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test
from pettingzoo.test.state_test import state_test
from pettingzoo.utils import BaseParallelWrapper, parallel_to_aec

from lockstep.envs.vehicular_edge.original import VehicularEdge, get_state, make, set_state
from lockstep.envs.vehicular_edge.params import PRESETS, SWITCHES, Params
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

WANTED = r"give 'offloading' and 'allocation' a vector of \d+ numbers each"
NO_NUMBERS = [
    ("a", "holds <U1, must hold real numbers"),
    ([None] * 3, "holds object, must hold real numbers"),
    (np.zeros(3, complex), "holds complex128, must hold real numbers"),
    ([[1.0], [2.0, 3.0]], "inhomogeneous"),
]


def changed(array, place, value):
    array = array.copy()
    array[place] = value
    return array


def test_an_action_that_is_none_is_named(env):
    p, good, signed = env.params, draws(env), VehicularEdge(env.scenarios, signed=True)
    signed.reset()
    target, share = np.zeros((p.clients, p.tasks), dtype=int), np.ones(p.share_length)
    table = [
        (lambda: signed.step(dict.fromkeys(AGENTS, np.full(p.action_length, -1.5))), r"is -1.5, must lie in \[-1, 1\]"),
        (lambda: env.step(good | {"allocation": np.zeros(3)}), r"agent 'allocation' has shape \(3,\), not \(\d+,\)"),
        (lambda: env.step({"allocation": share}), f"^no action of agent 'offloading': {WANTED}$"),
        (lambda: env.step(good | {"allocator": share}), f"^unknown agent 'allocator': {WANTED}$"),
        (
            lambda: env.step({"offloading": share, "allocator": share}),
            "^unknown agent 'allocator', no action of agent 'allocation': give",
        ),
        (lambda: env.step([1, 2]), "actions must be a dict of vectors by agent, not list"),
        (
            lambda: env.step_decoded(changed(target, (1, 2), p.options), share),
            rf"target: index \(1, 2\) is {p.options}, must lie in \[0, {p.options - 1}\]",
        ),
        (lambda: env.step_decoded(target.astype(float), share), "target float64 .* must be integers"),
        (lambda: env.step_decoded(target, share[:2]), r"share \(2,\) must be"),
        (
            lambda: env.step_decoded(target, changed(share, 4, -1.0)),
            r"share: index \(4,\) is -1.0, must lie in \[0, 1e\+30\]",
        ),
        (lambda: env.step_decoded(target, 1e308 * share), r"share: index \(0,\) is 1e\+308, must lie in \[0, 1e\+30\]"),
        (lambda: set_state(env, [1], 0), r"state=\[1\] must be a dict of fields"),
        (lambda: env.reset(seed=[1]), r"seed=\[1\] must be an integer from 0"),
    ]
    for agent in AGENTS:
        for value in (1.5, -0.25, np.nan, np.inf):
            wrong, said = (
                good | {agent: changed(good[agent], 7, value)},
                rf"index \(7,\) is {value}, must lie in \[0, 1\]",
            )
            table.append((lambda wrong=wrong: env.step(wrong), f"'{agent}': {said}"))
    for vector, said in NO_NUMBERS:
        table.append((lambda vector=vector: env.step(good | {AGENTS[0]: vector}), f"of agent 'offloading'.*{said}"))
    for call, said in table:
        with pytest.raises(ValueError, match=said):
            call()
    assert env.t == 0


def test_a_step_needs_an_open_episode_and_a_record_a_step():
    env = VehicularEdge(small())
    with pytest.raises(ResetNeeded, match=r"reset\(\)"):
        env.step({})
    env.reset()
    with pytest.raises(RuntimeError, match=r"call step\(\) first"):
        env.record  # noqa: B018
    while env.agents:
        env.step(draws(env))
        assert env.record["reward"] == env.episode.outcome["reward"]
    with pytest.raises(ResetNeeded):
        env.step(draws(env))


def test_a_state_of_other_fields_shapes_or_slots_is_named(env):
    state = get_state(env)
    table = [
        (state, 7, r"t=7 must be an integer from 0 to 6"),
        (state | {"lc": np.zeros(1)}, 0, r"'lc' has shape \(1,\), not \(6,\)"),
        ({"lc": state["lc"]}, 0, "state must have the fields lc, "),
        (
            state | {"lc": state["lc"] + 1.0, "vc": np.array([0.0, np.nan, 0.0])},
            0,
            r"'vc': index \(1,\) is nan, must lie in \[0, inf\]",
        ),
    ]
    for given, t, said in table:
        with pytest.raises(ValueError, match=said):
            set_state(env, given, t)
    assert all((get_state(env)[name] == state[name]).all() for name in state)  # nothing was put in


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("max_lc", np.nan, r"is nan, must lie in \[0, inf\]"),
        ("max_cc", np.inf, r"is inf, must lie in \[0, inf\]"),
        ("cost_ec", -1.0, r"is -1.0, must lie in \[0, inf\]"),
        ("drift_min_lc", np.nan, r"is nan, must lie in \[-inf, inf\]"),
    ],
)
def test_a_running_scale_that_the_port_refuses_is_named(name, value, said):
    env = VehicularEdge(small("original"))
    state = get_state(env)
    with pytest.raises(ValueError, match=rf"state field '{name}': index \(0,\) {said}"):
        set_state(env, state | {name: changed(state[name], 0, value)}, 0)
    set_state(env, state | {"drift_min_lc": changed(state["drift_min_lc"], 0, np.inf)}, 0)  # nothing was seen yet
    assert get_state(env)["drift_min_lc"][0] == np.inf


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"preset": "orignal"}, "preset='orignal' must be one of None, 'physical', 'original'"),
        ({"edgs": 3}, "no parameter or option 'edgs'; did you mean 'edges'"),
        ({"scenarios": 8}, "no parameter or option 'scenarios'; did you mean 'scenario'"),
        ({"traffic": "motorway"}, "traffic='motorway' must be one of 'arterial', 'city', 'dense', 'sparse'"),
        ({"index": -1}, "index=-1 must be an integer from 0 to 4294967295"),
        ({"seed": "a"}, "seed='a' must be an integer from 0 to 18446744073709551615"),
        ({"slots": 2.5}, "slots=2.5 must be an integer"),
        ({"indexed": "yes"}, "indexed='yes' must be one of True, False"),
        ({"scenario": []}, r"scenario=\[\] must hold at least one"),
        ({"scenario": 5}, "scenario=5 must be a Scenario, a path of a scenario file, or a list of them"),
    ],
)
def test_make_names_what_is_not_allowed(options, said):
    with pytest.raises(ValueError, match=said):
        make(**{"vehicles": 12, "slots": 6, "edges": 3, "components": 2} | options)


def test_a_seed_that_is_none_leaves_the_episode_as_it_was(env):
    env.step(draws(env))
    for seed in (-1, 2**64, 1.5, "a"):
        with pytest.raises(ValueError, match=f"seed={seed!r} must be an integer from 0 to 18446744073709551615"):
            env.reset(seed=seed)
    assert env.t == 1 and env.agents
    env.reset(seed=np.int64(3))


def test_a_scenario_that_does_not_fit_its_pool_or_has_no_number_is_not_played():
    with pytest.raises(ValueError, match="scenario 1: slots is 5, Params has 6"):
        VehicularEdge([small(), small(slots=5)])
    wrong = dataclasses.replace(small(), xy_client=changed(small().xy_client, (2, 1, 0), np.nan))
    with pytest.raises(ValueError, match=r"scenario 1: xy_client\[2, 1, 0\] is nan, must be finite"):
        VehicularEdge([small(), wrong])


# ---- what other software does with an environment


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_goes_on_by_itself(scenario, copied):
    env = VehicularEdge(scenario)
    env.reset(seed=1)
    env.step(draws(env))
    other = copied(env)
    rewards = [[one.step(draws(one, t))[1]["allocation"] for t in range(3)] for one in (other, env)]
    assert rewards[0] == rewards[1]
    assert all((get_state(env)[name] == get_state(other)[name]).all() for name in get_state(env))


@pytest.mark.filterwarnings("ignore:Agent's m.* observation space value")  # backlogs have no upper bound
def test_passes_pettingzoos_test_of_turns():
    """Not of `original`, whose numbers leave the box that it states (Q26)."""
    api_test(parallel_to_aec(VehicularEdge(small())), num_cycles=20)


def test_passes_pettingzoos_test_of_states(scenario):
    state_test(parallel_to_aec(VehicularEdge(scenario)), VehicularEdge(scenario))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of TorchRL's own modules
def test_plays_in_torchrl():
    wrapper = pytest.importorskip("torchrl.envs.libs.pettingzoo").PettingZooWrapper
    env = VehicularEdge(small())
    played = wrapper(env=env, use_mask=False, return_state=True).rollout(99)
    assert played.batch_size == (env.params.slots,) and played["next", "truncated"].flatten()[-1]


def test_can_be_wrapped(scenario):
    wrapped = BaseParallelWrapper(VehicularEdge(scenario))
    parallel_api_test(wrapped, num_cycles=20)
    assert wrapped.unwrapped.params == scenario.params
    wrapped.close()


def test_files_are_played_and_presets_set_switches(tmp_path):
    scenario = small()
    scenario.save(tmp_path / "one")
    env = make(scenario=str(tmp_path / "one"))
    assert env.params == scenario.params
    assert make(scenario=[tmp_path / "one", scenario], penalty_weight=2.0).params.penalty_weight == 2.0
    sizes = {"slots": 4, "vehicles": 8, "clients": 5, "servers": 3, "edges": 2, "components": 2}
    drawn = make(traffic="dense", edge_wire_mbps=50.0, indexed=True, **sizes)
    assert drawn.params == Params(edge_wire_mbps=50.0, **sizes) and drawn.indexed
    as_published = make("original", scenario=scenario, silent_ties=False).params
    assert as_published == dataclasses.replace(
        scenario.params, **dict.fromkeys(SWITCHES, True) | {"silent_ties": False}
    )
