"""The rungs of environments that several lanes hold: each gives its rows, counts its steps, and steps what is set."""

import functools
import math

import numpy as np
import pytest

from lockstep import envs
from lockstep.envs.spaces import Box
from lockstep.experiments import config, throughput
from lockstep.experiments.bench import block_rungs, ladder, timing
from lockstep.experiments.bench.block_rungs import RUNGS
from lockstep.experiments.bench.ladder import Group
from lockstep.experiments.config import Settings

NAME = "vehicular_edge"
SIZE = {"vehicles": 20, "edges": 4, "slots": 8, "components": 3}
ON_CPU = [name for name, rung in RUNGS.items() if rung.device == "cpu"]
ON_CUDA = [name for name, rung in RUNGS.items() if rung.device == "cuda"]


@pytest.fixture
def settings():
    """An environment of few vehicles, with the fewest blocks."""
    plain = config.load(NAME, "quick").plain()
    plain["throughput"] |= {"blocks": 6, "options": plain["throughput"]["options"] | SIZE}
    return Settings(plain)


def group(rung: str, num_envs: int = 16, threads: int = 1) -> Group:
    one = RUNGS[rung]
    return Group(rung, one.device, num_envs if one.batched else 1, threads, 4 if one.fused else 1, "random", "copy")


def check_rows(settings, rung):
    threads = 2 if rung == "original-all-cores" else 1
    wanted = group(rung, threads=threads)
    rows = throughput.measure(NAME, wanted, settings)
    assert [row["block"] for row in rows] == list(range(6))
    for row in rows:
        assert list(row) == throughput.COLUMNS
        assert (row["rung"], row["num_envs"], row["preset"]) == (rung, wanted.num_envs, "original")
        assert row["steps"] > 0 and row["wall_s"] >= 0.005 and row["cpu_s"] >= 0


@pytest.fixture
def short_blocks(monkeypatch):
    monkeypatch.setattr(timing, "measure", functools.partial(timing.measure, min_block_s=0.005))


@pytest.mark.parametrize("rung", ON_CPU)
@pytest.mark.usefixtures("short_blocks")
def test_every_rung_of_the_cpu_gives_its_rows(settings, rung):
    check_rows(settings, rung)


@pytest.mark.gpu
@pytest.mark.parametrize("rung", ON_CUDA)
@pytest.mark.usefixtures("short_blocks")
def test_every_rung_of_the_gpu_gives_its_rows(settings, rung):
    check_rows(settings, rung)


@pytest.mark.parametrize("rung", ["port-cpu", "port-cpu-fused", "arrays-numpy"])
def test_a_call_steps_as_often_as_it_counts(settings, rung, monkeypatch):
    """The clock of the batch stands at the steps of one environment."""
    made = {}

    def kept(make):
        def keep(*arguments, **options):
            made["env"] = make(*arguments, **options)
            return made["env"]

        return keep

    monkeypatch.setattr(envs, "make", kept(envs.make))
    form = envs.arrays_form(NAME)
    monkeypatch.setattr(form, "ArraysEnv", kept(form.ArraysEnv))
    with RUNGS[rung].loop(NAME, group(rung), settings) as loop:
        for _ in range(3):
            loop.run()
    clock = made["env"].clock if rung.startswith("arrays") else int(made["env"].state()["clock"])
    assert 3 * loop.steps_per_call == 16 * clock


class Counted:
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


def test_the_original_is_stepped_as_often_as_counted_and_reset_where_it_ends():
    env = Counted()
    block_rungs.original_loop(env, seed=0)(1000)
    assert (env.steps, env.resets) == (1000, 1 + 200)
    seen = np.array(env.seen)
    assert seen.shape == (1000, 2, 3) and seen.dtype == np.float32
    assert 0 <= seen.min() < 0.01 and 0.99 < seen.max() < 1
    assert len(np.unique(seen)) > 5900  # of 6,000 numbers drawn


def test_actions_are_drawn_for_as_many_steps_as_fit():
    """16 MiB; and never for more than 50 steps."""
    assert block_rungs.steps_per_call(2**20) == 16
    assert block_rungs.steps_per_call(2**30) == 1
    assert block_rungs.steps_per_call(8) == 50


def test_each_environment_has_a_scenario_of_its_own_where_that_is_measured(settings, monkeypatch):
    one = block_rungs.made(NAME, group("port-cpu"), settings)
    own = block_rungs.made(NAME, group("port-cpu-scenarios"), settings, own_scenarios=True)
    assert one.params.frozen_scenario and not own.params.frozen_scenario
    assert len(own.scenarios) == 16
    monkeypatch.setattr(block_rungs, "MOST_SCENARIOS", 3)
    assert len(block_rungs.made(NAME, group("port-cpu-scenarios"), settings, own_scenarios=True).scenarios) == 3
    assert (one.params.vehicles, one.params.slots) == (20, 8)


def test_memory_of_a_group_counts_buffers_actions_and_scenarios(settings):
    env = envs.make(NAME, 1, scenarios=1, **settings.throughput.options)
    numbers = math.prod(env.single_action_space.shape)
    batch = 16 * (env.bytes_per_env + 50 * 2 * numbers * 4)
    assert block_rungs.action_bytes(env) == 2 * numbers * 4
    pool = block_rungs.made(NAME, group("port-cpu"), settings).scenarios
    on_host = env.bytes_per_scenario + sum(getattr(field, "nbytes", 0) for field in vars(pool[3]).values())
    assert block_rungs.memory_needed(NAME, group("port-cpu"), settings) == {"cpu": batch + len(pool) * on_host}
    with_own = block_rungs.memory_needed(NAME, group("port-cpu-scenarios"), settings)
    assert with_own == {"cpu": 2 * batch + 16 * on_host}


def test_scenarios_that_do_not_fit_on_the_host_are_left_out(settings, monkeypatch):
    monkeypatch.setattr(ladder, "available_memory", lambda device: 2**24)
    reason = throughput.too_large(NAME, group("port-cpu-scenarios", num_envs=1024), settings)
    assert "of the host's memory, 80% of 0.0 GiB free may be used" in reason


@pytest.mark.gpu
def test_scenarios_of_a_gpu_are_counted_on_the_host_as_well(settings):
    env = envs.make(NAME, 1, device="cuda", scenarios=1, **settings.throughput.options)
    needed = block_rungs.memory_needed(NAME, group("port-cuda-scenarios"), settings)
    assert needed["cpu"] > 16 * env.bytes_per_scenario and needed["cuda"] > 16 * env.bytes_per_scenario


def test_without_pettingzoo_or_an_array_form_rungs_are_left_out(settings, monkeypatch):
    find_spec = block_rungs.importlib.util.find_spec
    absent = lambda name: None if name == "pettingzoo" else find_spec(name)  # noqa: E731
    monkeypatch.setattr(envs, "has_arrays", lambda name: False)
    assert RUNGS["arrays-numpy"].missing(NAME, settings) == "it has no arrays.py"
    monkeypatch.setattr(block_rungs.importlib.util, "find_spec", absent)
    for rung in ("original", "original-indexed", "original-all-cores"):
        assert RUNGS[rung].missing(NAME, settings) == "PettingZoo is not installed"
    assert RUNGS["port-cpu"].missing(NAME, settings) is None
