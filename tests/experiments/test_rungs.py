"""The rungs of the ladder: each gives its rows, counts its steps, and steps what is set."""

import dataclasses
import functools
import itertools
import math
import sys

import numpy as np
import pytest
import torch
import yaml
from gymnasium.spaces import Box

from lockstep import envs
from lockstep.experiments import ROOT, config, throughput
from lockstep.experiments.bench import ladder, rungs, timing
from lockstep.experiments.bench.ladder import Group
from lockstep.experiments.bench.rungs import RUNGS
from lockstep.experiments.config import Settings

SIZE = {"vehicular_edge": {"vehicles": 20, "edges": 4, "slots": 8, "components": 3}}  # small, not the default
BATCH = {"vehicular_edge": 16}
ON_CPU = [name for name, rung in RUNGS.items() if rung.device == "cpu"]
ON_CUDA = [name for name, rung in RUNGS.items() if rung.device == "cuda"]


@functools.cache
def settings_of(name):
    """An environment's, with the fewest blocks."""
    plain = config.load(name, "quick").plain()
    plain["throughput"] |= {"blocks": 6, "options": plain["throughput"].get("options", {}) | SIZE.get(name, {})}
    return Settings(plain)


@pytest.fixture
def cartpole():
    return settings_of("cartpole")


@pytest.fixture
def edge():
    return settings_of("vehicular_edge")


def group(rung, num_envs=256, threads=1, policy="random", obs="copy"):
    one = RUNGS[rung]
    num_envs = num_envs if one.batched or rung == "original-all-cores" else 1
    return Group(rung, one.device, num_envs, threads, 16 if one.fused else 1, policy, obs)


def those_that_run(names):
    """Pairs of an environment (discrete, continuous, several agents with many numbers) and a rung that it has."""
    every = itertools.product(("cartpole", "pendulum", "vehicular_edge"), names)
    return [(name, rung) for name, rung in every if RUNGS[rung].missing(name, settings_of(name)) is None]


def check_rows(name, wanted, settings) -> list[dict]:
    rows = throughput.measure(name, wanted, settings)
    assert [row["block"] for row in rows] == list(range(6))
    counted = wanted.rung.startswith("port") and not (name in SIZE and "fused" in wanted.rung)
    for row in rows:
        assert list(row) == [*throughput.COLUMNS, "had"]
        assert (row["environment"], row["rung"], row["num_envs"]) == (name, wanted.rung, wanted.num_envs)
        assert row["preset"] == settings.throughput.options.get("preset")
        assert row["steps"] > 0 and row["wall_s"] >= 0.005 and row["cpu_s"] >= 0
        assert 0 < row["first_call_s"] < 120
        assert (row["bytes_per_step"] is not None) == counted
    return rows


def measure_with_every_policy(name, rung):
    settings = settings_of(name)
    for policy in RUNGS[rung].policies:
        if policy != "fixed" or "fixed_policy" in settings.throughput:
            wanted = group(rung, BATCH.get(name, 32), policy=policy)
            check_rows(name, dataclasses.replace(wanted, fused_steps=min(wanted.fused_steps, 4)), settings)


@pytest.fixture
def short_blocks(monkeypatch):
    monkeypatch.setattr(timing, "asked", lambda scale: (scale["blocks"], 0.005))


@pytest.mark.parametrize(("name", "rung"), those_that_run([name for name in ON_CPU if name != "original-all-cores"]))
@pytest.mark.usefixtures("short_blocks")
def test_every_rung_of_the_cpu_gives_its_rows(name, rung):
    measure_with_every_policy(name, rung)


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "rung"), those_that_run(ON_CUDA))
@pytest.mark.usefixtures("short_blocks")
def test_every_rung_of_the_gpu_gives_its_rows(name, rung):
    measure_with_every_policy(name, rung)


@pytest.mark.parametrize("name", ["cartpole", pytest.param("vehicular_edge", marks=pytest.mark.slow)])
@pytest.mark.usefixtures("short_blocks")
def test_processes_on_all_cores_count_the_steps_and_the_cpu_time_of_all(name):
    """Two processes that only step, while this one waits: at most two CPU-seconds per second, and 1 us per step."""
    rows = check_rows(name, group("original-all-cores", num_envs=2, threads=2), settings_of(name))
    steps, cpu_s, wall_s = (sum(row[name] for row in rows) for name in ("steps", "cpu_s", "wall_s"))
    assert 1e-6 * steps < cpu_s < 2.2 * wall_s
    assert {row["memory_mib"] for row in rows} == {None}  # this process holds none of the originals


def counting_stepper(name, group, settings):
    """Steps that take 1 ms each."""
    return lambda steps: [ladder.time.sleep(1e-3) for _ in range(steps)]


@pytest.mark.slow
def test_a_process_answers_after_the_time_it_was_given_with_what_it_has_done(cartpole):
    with ladder.all_cores(counting_stepper)("cartpole", group("original-all-cores", 2, threads=2), cartpole) as loop:
        loop.run()
        start = ladder.time.perf_counter()
        steps = loop.run()
        took = ladder.time.perf_counter() - start
    assert loop.steps_per_call is None and took >= ladder.CALL_S
    assert 2 <= steps <= 2 * took / 1e-3


# ---- the originals -----------------------------------------------------------------------------------------------


class Counted:
    """An environment that ends every `length` steps and counts what is done to it."""

    class action_space:
        n = 2

    def __init__(self, length):
        self.length, self.steps, self.resets, self.actions = length, 0, 0, []

    def reset(self, seed=None):
        self.resets += 1
        return np.array([0, 0, 1, 0], dtype=np.float32), {}

    def step(self, action):
        self.steps += 1
        self.actions.append(action)
        observation = np.array([0, 0, -1 if self.steps % 2 else 1, 0], dtype=np.float32)
        return observation, 1.0, self.steps % self.length == 0, False, {}


class CountedAgents:
    """An environment of PettingZoo's kind whose episodes have five steps."""

    possible_agents = ["one", "two"]

    def __init__(self):
        self.steps, self.resets, self.seen, self.agents = 0, 0, [], []

    def action_space(self, agent):
        return Box(0, 1, (3,))

    def reset(self, seed=None):
        self.resets += 1
        self.agents = list(self.possible_agents)

    def step(self, actions):
        assert self.agents
        self.steps += 1
        self.seen.append(np.stack([actions[agent] for agent in self.possible_agents]))
        if self.steps % 5 == 0:
            self.agents = []


@pytest.mark.parametrize("policy", ["random", "fixed"])
def test_the_original_is_stepped_as_often_as_counted_and_reset_where_it_ends(cartpole, policy):
    env = Counted(length=5)
    rungs.original_loop(env, policy, cartpole)(1000)
    assert (env.steps, env.resets) == (1000, 1 + 200)
    if policy == "random":
        assert 400 < sum(env.actions) < 600
    else:  # pushes to where the pole leans; every fifth step a reset leans it to the right
        leaning = [1] + [int(step % 5 == 0 or step % 2 == 0) for step in range(1, 1000)]
        assert env.actions == leaning
    assert {type(action) for action in env.actions} == {int}


def test_an_original_of_several_agents_is_stepped_and_reset_likewise():
    env = CountedAgents()
    rungs.parallel_loop(env, seed=0)(1000)
    assert (env.steps, env.resets) == (1000, 1 + 200)
    seen = np.array(env.seen)
    assert seen.shape == (1000, 2, 3) and seen.dtype == np.float32
    assert 0 <= seen.min() < 0.01 and 0.99 < seen.max() < 1
    assert len(np.unique(seen)) > 5900  # of 6,000 numbers drawn


def test_continuous_actions_lie_in_their_space_and_the_fixed_policy_is_clipped():
    """Pendulum's fixed policy is the speed, clipped to a torque of 2."""
    settings, rng = settings_of("pendulum"), np.random.default_rng(0)
    space = envs.make_original("pendulum").action_space
    drawn = rungs.random_actions(rng, space, (1000,))
    assert drawn.shape == (1000, 1) and drawn.dtype == np.float32
    assert -2 <= drawn.min() < -1.9 and 1.9 < drawn.max() <= 2
    observations = np.array([[1, 0, 0.5], [1, 0, -8]], dtype=np.float32)
    assert rungs.fixed_policy(space, settings)(observations).tolist() == [[0.5], [-2]]
    assert rungs.fixed_policy(space, settings)(observations[1]).tolist() == [-2]


@pytest.mark.parametrize("word", ["am", "am-sample:3", "am-pomo:3"])
@pytest.mark.parametrize("rung", ["original", "port-cpu"])
def test_a_rung_of_one_thread_runs_networks_on_one(rung, word):
    """Whatever torch takes besides: here two threads, of a port as of an original in Python."""
    options, seen, before = {"oracle": word, "requests": 3}, [], torch.get_num_threads()
    settings = Settings({"seed": 0, "throughput": {"options": options}})
    hook = torch.nn.modules.module.register_module_forward_pre_hook(lambda *_: seen.append(torch.get_num_threads()))
    torch.set_num_threads(2)
    try:
        with RUNGS[rung].loop("vehicle_routing", group(rung, 128), settings) as loop:
            loop.run()
    finally:
        torch.set_num_threads(before)
        hook.remove()
    assert set(seen) == {1}


def test_the_fixed_policy_balances_the_original(cartpole):
    """[2 theta + theta_dot > 0] always reaches the limit of 500 steps."""
    env = envs.make_original("cartpole")
    lengths, elapsed = [], itertools.count(1)
    reset, step, now = env.reset, env.step, [0]
    env.reset = lambda **options: lengths.append(now[0]) or reset(**options)

    def counted(action):
        now[0] = next(elapsed)
        return step(action)

    env.step = counted
    rungs.original_loop(env, "fixed", cartpole)(2000)
    assert lengths == [0, 500, 1000, 1500, 2000]


def test_gymnasium_vector_counts_live_steps_only(cartpole):
    """Random episodes last 22.26 steps on average, and each costs one more for its reset: 4.3 % of all."""
    with rungs.gymnasium_vector("cartpole", group("gymnasium-vector", 4096), cartpole) as loop:
        loop.run()
        live = np.mean([loop.run() for _ in range(3)]) / (4096 * rungs.DRAWN_STEPS)
    assert live == pytest.approx(1 - 1 / 23.26, abs=0.002)


# ---- steps and bytes ---------------------------------------------------------------------------------------------


STEPPED = [*those_that_run(["port-cpu", "port-cpu-fused", "arrays-numpy"]), ("marine_navigation", "arrays-numpy")]


@pytest.mark.parametrize(("name", "rung"), STEPPED)
def test_a_call_steps_as_often_as_it_counts(name, rung, monkeypatch):
    """The clock of the batch stands at the steps of one environment."""
    made = {}

    def kept(make):
        def keep(*arguments, **options):
            made["env"] = make(*arguments, **options)
            return made["env"]

        return keep

    monkeypatch.setattr(envs, "make", kept(envs.make))
    monkeypatch.setattr(envs, "make_arrays", kept(envs.make_arrays))
    with RUNGS[rung].loop(name, group(rung, 16), settings_of(name)) as loop:
        for _ in range(3):
            loop.run()
    clock = made["env"].clock if rung.startswith("arrays") else int(made["env"].state()["clock"])
    assert 3 * loop.steps_per_call == 16 * clock


def test_actions_are_drawn_for_as_many_steps_as_fit():
    """16 MiB; and never for more than 128 steps, whose bits are one Philox block's."""
    assert [rungs.steps_per_call(size) for size in (2**20, 2**30, 8)] == [16, 1, 128]
    assert rungs.steps_per_call(2**24, "cuda") == 16


def test_observations_as_a_view_move_fewer_bytes(cartpole):
    """The [B, 4] float32 rows are 16 bytes per step."""
    found = {}
    for obs in ("copy", "view"):
        with RUNGS["port-cpu"].loop("cartpole", group("port-cpu", obs=obs), cartpole) as loop:
            found[obs] = loop.bytes_per_step
    assert found["copy"] - found["view"] == 16


# Bytes that a trajectory keeps of one step: observation, action, reward 4, two flags; with networks also the logarithm
# of a probability, a bootstrap value, and 17 values for 16 steps, 4 bytes each.
STORED = {"cartpole": 16 + 1 + 4 + 2, "pendulum": 12 + 4 + 4 + 2}


@pytest.mark.parametrize("name", STORED)
def test_fused_steps_share_the_traffic_of_the_batch_and_store_trajectories(name):
    settings = settings_of(name)
    with RUNGS["port-cpu"].loop(name, group("port-cpu"), settings) as loop:
        single = loop.bytes_per_step
    stored = {"port-cpu-fused": 0, "port-cpu-trajectory": STORED[name], "port-cpu-mlp": STORED[name] + 8 + 4 * 17 / 16}
    for rung, expected in stored.items():
        policy = RUNGS[rung].policies[0]
        with RUNGS[rung].loop(name, group(rung, policy=policy), settings) as loop:
            assert loop.bytes_per_step == pytest.approx(single / 16 + expected)


def test_networks_have_the_same_weights_in_every_run(cartpole):
    """Two layers of 64 from 4 observations to 2 actions: 4 * 64 + 64, 64 * 64 + 64, 64 * 2 + 2 numbers."""
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    env = envs.make("cartpole", 256)
    first, second = (rungs.networks(env, cartpole.seed) for _ in range(2))
    assert sum(part.numel() for part in first.actor.parameters()) == 320 + 4160 + 130
    for one, other in ((first.actor, second.actor), (first.critic, second.critic)):
        assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert torch.equal(torch.random.get_rng_state(), before)


# ---- scenarios and memory ----------------------------------------------------------------------------------------


def test_each_environment_has_a_scenario_of_its_own_where_that_is_measured(edge, monkeypatch):
    name, own_rung = "vehicular_edge", group("port-cpu-scenarios", 16)
    one, own = rungs.made(name, group("port-cpu", 16), edge), rungs.made(name, own_rung, edge)
    assert one.params.frozen_scenario and not own.params.frozen_scenario
    assert (len(one.scenarios), len(own.scenarios)) == (rungs.SCENARIOS, 16)
    monkeypatch.setattr(rungs, "MOST_SCENARIOS", 3)
    assert len(rungs.made(name, own_rung, edge).scenarios) == 3
    assert (one.params.vehicles, one.params.slots) == (20, 8)


def test_memory_of_a_group_counts_buffers_actions_and_scenarios(edge):
    name = "vehicular_edge"
    env = envs.make(name, 1, scenarios=1, **edge.throughput.options)
    action = 2 * 4 * math.prod(env.single_action_space.shape)
    batch = 16 * (env.bytes_per_env + 128 * action)
    assert rungs.action_bytes(env) == action
    pool = rungs.made(name, group("port-cpu", 16), edge).scenarios
    on_host = env.bytes_per_scenario + sum(getattr(field, "nbytes", 0) for field in vars(pool[3]).values())
    assert rungs.memory_needed(name, group("port-cpu", 16), edge) == {"cpu": batch + len(pool) * on_host}
    with_own = rungs.memory_needed(name, group("port-cpu-scenarios", 16), edge)
    assert with_own == {"cpu": 2 * batch + 16 * on_host}


def test_memory_of_a_trajectory_counts_its_steps(cartpole):
    env = envs.make("cartpole", 256)
    needed = {
        rung: rungs.memory_needed("cartpole", group(rung, 2048), cartpole)["cpu"] for rung in RUNGS if "cpu-" in rung
    }
    batch = 2048 * (env.bytes_per_env + 128)
    assert needed["port-cpu-fused"] == batch
    assert needed["port-cpu-trajectory"] == batch + 2048 * 16 * STORED["cartpole"]


def test_scenarios_that_do_not_fit_on_the_host_are_left_out(edge, monkeypatch):
    monkeypatch.setattr(ladder, "available_memory", lambda device: 2**24)
    reason = throughput.too_large("vehicular_edge", group("port-cpu-scenarios", num_envs=1024), edge)
    assert "of the host's memory, 80% of 0.0 GiB free may be used" in reason


@pytest.mark.gpu
def test_scenarios_of_a_gpu_are_counted_on_the_host_as_well(edge):
    env = envs.make("vehicular_edge", 1, device="cuda", scenarios=1, **edge.throughput.options)
    needed = rungs.memory_needed("vehicular_edge", group("port-cuda-scenarios", 16), edge)
    assert needed["cpu"] > 16 * env.bytes_per_scenario and needed["cuda"] > 16 * env.bytes_per_scenario


# ---- rungs that an environment has not ---------------------------------------------------------------------------


def test_the_schema_knows_every_rung():
    schema = yaml.safe_load((ROOT / "experiments" / "throughput.schema.yaml").read_text())
    assert set(schema["$defs"]["rung"]["enum"]) == set(RUNGS)


MISSING = [
    ("cartpole", "original-indexed", "its original has one form only"),
    ("cartpole", "port-cpu-scenarios", "it has no scenarios"),
    ("marine_navigation", "port-cpu-scenarios", "it has no scenarios"),  # but to replay: each episode is drawn
    ("pendulum", "port-cuda-constant", "no constant_action: its source document has no such loop"),
    ("vehicular_edge", "gymnasium-vector", "Gymnasium has no vectorised class for it"),
    ("vehicular_edge", "port-cpu-trajectory", "its roll-outs keep statistics alone"),
    ("vehicular_edge", "port-cpu-mlp", "its roll-outs keep statistics alone"),
]


@pytest.mark.parametrize(("name", "rung", "reason"), MISSING)
def test_what_an_environment_has_not_is_left_out_with_the_reason(name, rung, reason):
    assert RUNGS[rung].missing(name, settings_of(name)) == reason


@pytest.mark.parametrize("name", ["vehicular_edge", "cartpole"])
def test_without_pettingzoo_or_an_array_form_rungs_are_left_out(name, monkeypatch):
    settings = settings_of(name)
    monkeypatch.setattr(envs, "has_arrays", lambda name: False)
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    assert RUNGS["arrays-numpy"].missing(name, settings) == "it has no array form"
    for rung in ("original", "original-all-cores"):
        reason = "PettingZoo is not installed" if name == "vehicular_edge" else None
        assert RUNGS[rung].missing(name, settings) == reason
    assert RUNGS["port-cpu"].missing(name, settings) is None
