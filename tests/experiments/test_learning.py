import dataclasses
import json
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from lockstep import envs
from lockstep.agents import dqn, ppo, recipes
from lockstep.agents.run import evaluation
from lockstep.experiments import ROOT, catalogue, command, config, curves, learning, learning_workers, peer_workers
from lockstep.experiments import run as command_line
from lockstep.experiments.bench import timing
from lockstep.experiments.learning import Bench, Group
from lockstep.experiments.learning_workers import (
    Job,
    NotMeasured,
    Streak,
    cold_and_warm,
    learning_rate,
    lockstep,
    rejax,
    sb3,
)
from lockstep.experiments.ledger import sources
from lockstep.experiments.scoring import Scorer, policy_of

TINY = {"recipe": "solve", "num_envs": 8, "horizon": 16, "total_steps": 512, "epochs": 1, "minibatches": 2}
TINY |= {"eval_every": 128, "hidden": [16, 16]}
ASKED = {
    "solved": 5,
    "reference": {"score": 500, "source": "someone"},
    "ppo": {
        "curves": {"seeds": 2, "points": 2, "episodes": 4},
        "solve": {"warm": 2, "cold": 1},
        "rates": [{"settings": TINY, "agents": ["lockstep", "rejax"], "blocks": 2}],
        "scaling": {"settings": TINY, "num_envs": [8, 16], "blocks": 2, "seeds": 1, "seconds": 0.01},
        "ablations": [
            {"variant": "torch", "settings": TINY | {"rollout": "torch"}, "blocks": 2},
            {"variant": "no bootstrap", "settings": TINY | {"bootstrap": False}, "seeds": 1},
            {"variant": "tf32", "settings": TINY | {"precision": "tf32"}, "blocks": 2, "devices": ["cuda"]},
        ],
    },
}


@pytest.fixture
def short_blocks(monkeypatch):
    monkeypatch.setattr(timing, "MIN_BLOCK_S", 0.005)


@pytest.fixture
def no_environments(monkeypatch, tmp_path):
    """As on a machine where `make peers` has never run."""
    monkeypatch.setattr(peer_workers, "ENVIRONMENTS", tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def scorer():
    with Scorer(2) as scorer:
        yield scorer


def tiny(**changes):
    return ppo.config_of("cartpole", **TINY | changes)


def a_job(part="rate", **changes):
    return Job(part, "ppo", "cartpole", "CartPole-v1", dataclasses.asdict(tiny()), **changes)


# ---- What is measured ----


def kinds(found):
    return [(group.part, group.agent, group.device, group.variant, group.seeds) for group in found]


def test_the_settings_say_what_is_measured_on_one_device():
    found = learning.groups(ASKED, ["cpu"])
    assert kinds(found) == [
        ("final", "random", "cpu", None, ()),
        ("final", "reference", "cpu", None, ()),
        ("curve", "lockstep", "cpu", None, (0,)),
        ("curve", "lockstep", "cpu", None, (1,)),
        ("solve", "lockstep", "cpu", "cold", (0,)),
        ("solve", "lockstep", "cpu", "warm", (0,)),
        ("solve", "lockstep", "cpu", "warm", (1,)),
        ("rate", "lockstep", "cpu", None, (0,)),
        ("rate", "rejax", "cpu", None, (0,)),
        *[
            ("scaling", "lockstep", "cpu", variant, (0,))
            for _ in (8, 16)
            for variant in (None, "equal steps", "equal seconds")
        ],
        ("ablation", "lockstep", "cpu", "torch", (0,)),
        ("ablation", "lockstep", "cpu", "no bootstrap", (0,)),
    ]


def test_with_a_gpu_times_are_of_both_devices_and_scores_of_the_gpu():
    found = learning.groups(ASKED, ["cpu", "cuda"])
    devices = {}
    for group in found:
        devices.setdefault((group.part, group.agent, group.variant), set()).add(group.device)
    assert devices["curve", "lockstep", None] == {"cuda"}
    assert devices["solve", "lockstep", "warm"] == {"cpu", "cuda"}
    assert devices["rate", "lockstep", None] == {"cpu", "cuda"}
    assert devices["rate", "rejax", None] == {"cpu"}
    assert devices["ablation", "lockstep", "tf32"] == {"cuda"}
    assert devices["ablation", "lockstep", "no bootstrap"] == {"cuda"}


@pytest.mark.parametrize("scale", ["quick", "full"])
@pytest.mark.parametrize("name", [name for name in config.files() if "learning" in catalogue.experiments_of(name)])
def test_whatever_is_asked_for_can_be_run_and_its_groups_are_told_apart(name, scale):
    found = learning.groups(config.load(name, scale).learning.plain(), ["cpu", "cuda"])
    labels = [learning.label(group) for group in found]
    assert len(set(labels)) == len(labels)
    assert all(learning.resolved_of(name, group)["total_steps"] > 0 for group in found if group.algorithm)
    if envs.port(name).gymnasium_id:  # of others rates alone are asked for
        curves_of = [group for group in found if group.part == "curve"]
        assert len(curves_of) >= (1 if scale == "quick" else 10)


def test_environments_of_gymnasium_are_trained():
    trained = {name for name in config.files() if "learning" in catalogue.experiments_of(name)}
    assert trained >= {name for name in envs.names() if envs.port(name).gymnasium_id}


def test_cartpole_is_solved_at_gymnasium_s_own_threshold():
    asked = config.load("cartpole", "full").learning
    assert asked.solved == envs.port("cartpole").reward_threshold == 475
    assert asked.ppo.solve.warm == 20


def test_aims_are_gymnasium_s_own_thresholds():
    """Of Pendulum it has none."""
    asked = {name: config.load(name, "full").get("learning", {}) for name in config.files()}
    aims = {name: section["aim"] for name, section in asked.items() if "aim" in section and name != "pendulum"}
    assert aims == {name: envs.port(name).reward_threshold for name in aims} and len(aims) == 3


@pytest.mark.parametrize("name", [name for name in config.files() if "learning" in catalogue.experiments_of(name)])
def test_returns_of_another_library_stand_beside_ours_of_the_same_settings(name):
    found = learning.groups(config.load(name, "full").learning.plain(), ["cpu"])
    scored = [group for group in found if group.algorithm and group.part in ("curve", "final")]
    theirs, ours = (
        {(group.algorithm, str(group.settings)) for group in scored if (group.agent == "lockstep") is own}
        for own in (False, True)
    )
    assert theirs <= ours
    learners = {group.algorithm for group in scored} & sb3.ALGORITHMS.keys() - {"ppo"}
    assert {algorithm for algorithm, _ in theirs} == learners


def test_agents_of_the_schema_are_those_that_there_are():
    schema = config.schema_of(config.file_of("cartpole"))
    assert schema["$defs"]["agent"]["enum"] == [learning.OURS, *learning.PEERS]
    assert set(schema["properties"]["learning"]["properties"]) == {*learning.OF_THE_TASK, "quick", "full"}


def test_the_experiment_depends_on_the_agent_its_kernels_and_the_workers():
    found = set(sources.of("lockstep.experiments.learning", "cartpole"))
    parts, own = (
        {f"agents/{folder}/{file.name}" for folder in folders for file in (ROOT / "agents" / folder).glob("*.*")}
        for folders in (("parts", "parts/distributions"), ("ppo", "run"))
    )
    own -= {"agents/ppo/__main__.py", "agents/run/command_line.py"}
    folder = ROOT / "experiments" / "learning_workers"
    workers = {f"experiments/learning_workers/{file.name}" for file in folder.glob("*.*")}
    assert own | workers | {"agents/recipes/__init__.py", "envs/classic_control/cartpole/kernel.cuh"} <= found
    numbers = set(sources.of("lockstep.experiments.learning", "pendulum"))  # of whose actions other agents learn
    assert parts <= found | numbers and {"agents/parts/mlp.cuh", "agents/parts/actor_critic.cuh"} <= found & parts
    others = [
        f"lockstep.experiments.{name}" for name in ("throughput", "correctness", "compilation", "peers", "transfer")
    ]
    assert not any("learning" in path for other in others for path in sources.of(other, "cartpole"))


# ---- What all agents share ----


def test_two_checks_in_succession_end_a_run():
    streak = Streak(475)
    assert [streak.ends_with(score) for score in (475, 474, 480, 500)] == [False, False, False, True]


def test_the_learning_rate_falls_as_ours_does():
    """Four iterations of 128 steps: 1, 3/4, 1/2 and 1/4 of it; our own run reports the same."""
    settings = {"num_envs": 8, "horizon": 16, "total_steps": 512, "lr": 0.001, "anneal_lr": True}
    rates = [learning_rate(settings, iteration) for iteration in range(4)]
    assert rates == pytest.approx([0.001, 0.00075, 0.0005, 0.00025])
    run, found = ppo.PPO("cartpole", tiny()), []
    while run.iteration < run.iterations:
        run.iterate()
        found.append(run.statistics()["lr"])
    assert found == pytest.approx(rates)
    assert learning_rate(settings | {"anneal_lr": False}, 3) == 0.001
    assert learning_rate(settings | {"total_steps": learning.ENDLESS}, np.int32(3)) == pytest.approx(0.001)


def test_the_first_run_of_a_process_is_cold():
    def solve(seed):
        return {"seed": seed, "wall_s": 1.0, "since_start_s": 9.0}

    assert cold_and_warm(solve, (0, 1)) == [
        {"seed": 2, "wall_s": 9.0, "variant": "cold"},
        {"seed": 0, "wall_s": 1.0, "variant": "warm"},
        {"seed": 1, "wall_s": 1.0, "variant": "warm"},
    ]


def test_what_all_agents_share_imports_nothing_that_only_we_have():
    program = (
        "import sys\n"
        "for name in ('torch', 'pandas', 'yaml', 'envs', 'agents', 'gymnasium', 'stable_baselines3', 'rejax', 'jax'):\n"
        "    sys.modules[name] = None\n"
        "from lockstep.experiments.learning_workers import rejax, sb3, sb3_adapter\n"
        "print(rejax.TITLE, sb3.TITLE, sb3_adapter.TITLE)\n"
    )
    finished = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert finished.stdout.split() == ["rejax", "sb3", "sb3-adapter"], finished.stderr


def test_the_rows_are_read_without_torch():
    program = "import sys\nsys.modules['torch'] = None\nimport lockstep.experiments.learning\n"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT).returncode == 0


# ---- Peers ----


def test_a_peer_that_is_not_installed_says_so(no_environments):
    with pytest.raises(NotMeasured, match=r"^rejax==0\.1\.3 is not installed; make peers installs it$"):
        learning_workers.ask("rejax", a_job())
    (no_environments / "rejax").mkdir()
    (no_environments / "rejax" / "install.log").write_text("Downloading\nERROR: no network\n")
    with pytest.raises(NotMeasured, match=r"^rejax==0\.1\.3 does not install here: ERROR: no network$"):
        learning_workers.ask("rejax", a_job())
    assert learning_workers.version("rejax", "rejax") is None


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"squash": "tanh"}, "PPO of rejax needs squash=clip"),
        ({"norm_obs": True}, "PPO of rejax needs norm_obs=False"),
        ({"critic_lr": 1e-3}, "PPO of rejax needs critic_lr=None"),
    ],
)
def test_what_rejax_has_not_is_refused(changes, sentence):
    job = a_job()
    with pytest.raises(ValueError, match=sentence):
        rejax.algorithm(dataclasses.replace(job, settings=job.settings | changes))


@pytest.fixture
def pretend(monkeypatch, tmp_path):
    """Lets a program stand for a peer's Python."""

    def write(body):
        python = tmp_path / "python"
        python.write_text(f"#!{sys.executable}\nimport json, os, sys, time\njob = json.load(sys.stdin)\n{body}\n")
        python.chmod(0o755)
        monkeypatch.setattr(learning_workers, "python_of", lambda name: python)

    return write


def test_a_peer_is_given_its_job_its_threads_and_no_gpu(pretend):
    pretend(
        "names = ('OMP_NUM_THREADS', 'CUDA_VISIBLE_DEVICES', 'LOCKSTEP_CACHE')\n"
        "print(json.dumps([job | {name: os.environ[name] for name in names}]))"
    )
    (found,) = learning_workers.ask("rejax", a_job(blocks=3, threads=5), LOCKSTEP_CACHE="nowhere")
    assert (found["blocks"], found["settings"]["num_envs"], found["seeds"]) == (3, 8, [0])
    assert (found["OMP_NUM_THREADS"], found["CUDA_VISIBLE_DEVICES"], found["LOCKSTEP_CACHE"]) == ("5", "", "nowhere")


def test_a_peer_that_fails_or_hangs_is_told(pretend, monkeypatch):
    pretend("raise ValueError('no such thing')")
    with pytest.raises(NotMeasured, match=r"its process ended with status 1: ValueError: no such thing"):
        learning_workers.ask("rejax", a_job())
    monkeypatch.setattr(learning_workers, "TIMEOUT_S", 0.2)
    pretend("time.sleep(60)")
    with pytest.raises(NotMeasured, match=r"no answer within 0\.2 s"):
        learning_workers.ask("rejax", a_job())


@pytest.mark.parametrize(
    "name", [*(pytest.param(name, marks=pytest.mark.slow) for name in ("sb3", "sb3_adapter")), "rejax"]
)
def test_a_peer_s_rate_is_of_whole_iterations(name):
    if learning_workers.python_of(name) is None:
        pytest.skip(learning_workers.why_missing(name))
    rows = learning_workers.ask(name, a_job(blocks=2))
    assert [row["block"] for row in rows] == [0, 1]
    for row in rows:
        assert row["env_steps"] % 128 == 0 and row["wall_s"] >= timing.MIN_BLOCK_S
        assert row["env_steps"] / row["wall_s"] > 100  # however busy the machine
        # Actor and critic of 4 - 16 - 16 - 2 and 1: 4 x 16 + 16, 16 x 16 + 16, 16 x 2 + 2; 16 + 1.
        assert row["parameters"] == 2 * (80 + 272) + 34 + 17


@pytest.mark.parametrize("name", ["sb3", "rejax"])
def test_a_peer_s_run_ends_after_two_checks(name):
    """Solved at once: two checks, 128 steps apart."""
    if learning_workers.python_of(name) is None:
        pytest.skip(learning_workers.why_missing(name))
    cold, warm = learning_workers.ask(name, a_job("solve", solved=5.0, seeds=(3,)))
    assert (cold["variant"], warm["variant"], warm["seed"]) == ("cold", "warm", 3)
    assert 256 <= warm["env_steps"] < 384
    assert warm["solved"] == 1 and warm["score"] >= 5
    assert 0 < warm["wall_s"] < cold["wall_s"]


def test_scores_of_whole_runs_are_of_each_seed_and_agent():
    asked = {"finals": [{"settings": TINY, "agents": ["lockstep", "sb3"], "seeds": 2, "threads": 1}]}
    found = learning.groups({"ppo": asked}, ["cpu", "cuda"])
    both = [("lockstep", "cuda"), ("sb3", "cpu")]
    assert kinds(found) == [("final", *agent, None, (seed,)) for agent in both for seed in (0, 1)]
    assert len({learning.label(group) for group in found}) == 4
    if learning_workers.python_of("sb3") is None:
        pytest.skip(learning_workers.why_missing("sb3"))
    bench = Bench("cartpole", "CartPole-v1", None, None, None, set(), 2)
    (row,) = learning.measure(found[-1], bench)
    assert (row["part"], row["seed"], row["threads"], row["env_steps"]) == ("final", 1, 1, 512)
    assert row["wall_s"] > 0 and 8 <= row["score"] <= 500


def test_a_rate_of_dqn_is_of_iterations_that_learn(short_blocks):
    """Both begin their blocks after the steps that only fill the replay, with equal settings."""
    settings = {
        "recipe": "solve",
        "num_envs": 8,
        "horizon": 2,
        "learning_starts": 160,
        "double": False,
        "hidden": (16,),
    }
    config = dqn.config_of("cartpole", **settings, total_steps=2**20)
    assert learning.others(settings) == "learning_starts=160, double=False"
    rows, run = lockstep.rates(dqn.DQN, "cartpole", config, "cpu", blocks=2)
    assert int(run.adam.state["steps"]) == (run.env_steps - 160 + 16) / 4
    assert all({"rollout_s", "update_s"} <= row.keys() and row["env_steps"] % 16 == 0 for row in rows)
    if learning_workers.python_of("sb3") is None:
        pytest.skip(learning_workers.why_missing("sb3"))
    job = Job("rate", "dqn", "cartpole", "CartPole-v1", dataclasses.asdict(config), blocks=2)
    found = learning_workers.ask("sb3", job)
    assert [row["block"] for row in found] == [0, 1] and found[0]["parameters"] == run.parameter_count
    assert all(row["env_steps"] % 16 == 0 and row["reason"].startswith("DQN on DummyVecEnv") for row in found)


def test_several_algorithms_may_be_asked_for():
    rates = [{"settings": {"recipe": "solve", "double": False}, "agents": ["lockstep", "sb3"], "blocks": 2}]
    both = ASKED | {"dqn": {"curves": {"seeds": 1, "points": 2, "episodes": 4}, "rates": rates}}
    found = learning.groups(both, ["cpu"])
    of_dqn = [(group.part, group.agent) for group in found if group.algorithm == "dqn"]
    assert of_dqn == [("curve", "lockstep"), ("rate", "lockstep"), ("rate", "sb3")]
    assert [group for group in found if group.algorithm != "dqn"] == learning.groups(ASKED, ["cpu"])
    labels = [learning.label(group) for group in found]
    assert len(set(labels)) == len(labels)


# ---- Lockstep ----


def test_a_curve_has_its_points_at_equal_distances():
    rows, policies, run = lockstep.curve(ppo.PPO, "cartpole", tiny(), "cpu", points=2)
    assert [row["env_steps"] for row in rows] == [256, 512] == [256, run.env_steps]
    assert 0 < rows[0]["wall_s"] < rows[1]["wall_s"]
    assert not np.array_equal(policies[0]["parameters"], policies[1]["parameters"])
    assert len(lockstep.curve(ppo.PPO, "cartpole", tiny(), "cpu", points=9)[0]) == 4  # iterations


def test_a_run_for_seconds_ends_with_the_iteration_that_reaches_them():
    row, _ = lockstep.for_seconds(ppo.PPO, "cartpole", tiny(total_steps=2**40), "cpu", 0.05)
    assert row["wall_s"] >= 0.05 and row["env_steps"] % 128 == 0
    assert lockstep.for_seconds(ppo.PPO, "cartpole", tiny(), "cpu", 0)[0]["env_steps"] == 128


def test_a_run_to_solve_says_whether_two_checks_reached_it():
    row, _, run = lockstep.solve(ppo.PPO, "cartpole", tiny(), "cpu", 5)
    assert (row["solved"], row["env_steps"], run.env_steps) == (1, 256, 256)
    assert lockstep.solve(ppo.PPO, "cartpole", tiny(), "cpu", 501)[0] | {"wall_s": 0, "had": 1} == {
        "env_steps": 512,
        "wall_s": 0,
        "had": 1,
        "solved": 0,
    }


@pytest.mark.parametrize(("gradient", "threads"), [("autograd", 2), ("kernel", 1)])
def test_a_process_that_solves_has_the_threads_that_torch_has_work_for(monkeypatch, gradient, threads):
    """As runs in a warm process have; the run itself is left out."""
    before = torch.get_num_threads()
    monkeypatch.setattr(lockstep, "solve", lambda *_: ({"solved": 0}, {}, ppo.PPO("cartpole", tiny())))
    monkeypatch.setattr(evaluation, "in_original", lambda *_: SimpleNamespace(returns=np.zeros(1)))
    settings = dataclasses.asdict(tiny(gradient=gradient, threads=2))
    try:
        torch.set_num_threads(3)
        lockstep.measure(dataclasses.replace(a_job("solve"), settings=settings))
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_phases_add_up_to_the_time_of_a_block(short_blocks):
    rows, _ = lockstep.rates(ppo.PPO, "cartpole", tiny(num_envs=64, total_steps=1024), "cpu", blocks=3)
    assert [row["block"] for row in rows] == [0, 1, 2]
    assert all(row["env_steps"] % 1024 == 0 for row in rows)
    shares = [(row["rollout_s"] + row["advantage_s"] + row["update_s"]) / row["wall_s"] for row in rows]
    assert max(shares) <= 1
    assert np.median(shares) > 0.7  # one may have waited for a core in between


def test_scores_are_those_of_one_process(scorer):
    run = ppo.PPO("cartpole", tiny())
    run.iterate()
    expected = evaluation.in_original("cartpole", run.act, 7).returns.mean()
    assert scorer.scores("cartpole", "ppo", run.config, [policy_of(run)] * 2, episodes=7) == [expected] * 2


def test_a_normalised_policy_is_scored_with_its_normaliser(scorer):
    run = ppo.PPO("mountain_car", ppo.config_of("mountain_car", **TINY | {"norm_obs": True, "total_steps": 2048}))
    for _ in range(5):
        run.iterate()
    expected = evaluation.in_original("mountain_car", run.act, 3).returns.mean()
    assert scorer.scores("mountain_car", "ppo", run.config, [policy_of(run)], episodes=3) == [expected]


def test_members_at_once_share_the_clock_and_have_scores_of_their_own(scorer):
    ppo_fields = {**TINY, "population": 2, "num_envs": 16, "total_steps": 512}
    bench = Bench("cartpole", "CartPole-v1", 5, None, scorer, set(), 1)
    rows = learning.measure(Group("solve", "ppo", "lockstep", "cpu", ppo_fields, "at once"), bench)
    assert [row["seed"] for row in rows] == [0, 1] and {row["env_steps"] for row in rows} == {256}
    assert rows[0]["wall_s"] == rows[1]["wall_s"] and rows[0]["score"] != rows[1]["score"]
    (found,) = curves.solve_summary(pd.DataFrame(rows)).to_dict("records")
    assert (found["members"], found["seeds"], found["solved"]) == (2, 2, 2)  # any policy balances for five steps


# ---- The command line ----


def pretended(monkeypatch, asked=ASKED, recipe=TINY):
    """CartPole's settings with another section, and its recipe with other settings."""
    settings = config.Settings(config.load("cartpole", "quick").plain() | {"learning": asked})
    monkeypatch.setattr(config, "load", lambda *of: settings)
    monkeypatch.setattr(recipes, "load", lambda name: {"ppo": recipe})


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """Runs the experiment with ASKED, and returns its rows."""
    pretended(monkeypatch)
    output = tmp_path / "learning.csv"

    def run():
        monkeypatch.setattr(sys, "argv", ["run", "learning", "cartpole", "--devices", "cpu", "--output", str(output)])
        command.run(command_line.main)
        return pd.read_csv(output)

    run.output = output
    return run


def test_a_run_makes_every_row_that_was_asked_for(asked, short_blocks, no_environments, capsys):
    frame = asked()
    assert list(frame.columns) == learning.COLUMNS
    counts = frame.groupby("part", sort=False).size().to_dict()
    assert counts == {"final": 4, "curve": 4, "solve": 3, "rate": 3, "scaling": 8, "ablation": 3}
    described = json.loads(asked.output.with_suffix(".json").read_text())
    assert described["config"]["learning"] == ASKED
    assert described["config"]["settings"]["curve ppo lockstep cpu seed=0"]["num_envs"] == 8
    assert curves.missing(frame)[0]["reason"].startswith("rejax==0.1.3 is not installed")
    solved = curves.solve_summary(frame).set_index("variant")
    assert (solved.loc["warm", "seeds"], solved.loc["cold", "seeds"]) == (2, 1)
    assert solved.loc["cold", "wall_s_median"] > solved.loc["warm", "wall_s_median"]
    assert set(curves.curve_summary(frame)["env_steps"]) == {256, 512}
    finals = curves.final_summary(frame).set_index("agent")
    assert finals.loc["reference", "score"] == 500 and finals.loc["lockstep", "seeds"] == 2
    assert 15 < finals.loc["random", "score"] < 30  # 22 of 100 episodes, Gymnasium's well-known figure
    report = capsys.readouterr().out
    assert "lockstep ppo     solved 2 of 2" in report and "rejax ppo        rate on cpu: not measured" in report


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on_after_its_last_group(asked, short_blocks, no_environments, monkeypatch):
    measured, measure = [], learning.measure

    def until_the_fifth(group, bench):
        if len(measured) == 4:
            raise KeyboardInterrupt
        measured.append(learning.label(group))
        return measure(group, bench)

    monkeypatch.setattr(learning, "measure", until_the_fifth)
    with pytest.raises(SystemExit):
        asked()
    assert not asked.output.exists()
    later = []
    monkeypatch.setattr(
        learning, "measure", lambda group, bench: later.append(learning.label(group)) or measure(group, bench)
    )
    asked()
    every = [learning.label(group) for group in learning.groups(ASKED, ["cpu"])]
    assert measured + later == every


@pytest.mark.parametrize(
    ("section", "recipe", "message"),
    [
        ({"pppo": {}}, TINY, "there is no algorithm 'pppo'; did you mean 'ppo'?"),
        (
            {"ppo": {"curves": {"seeds": 1, "points": 1, "episodes": 1}}},
            {"lrr": 1},
            "curve ppo lockstep cpu seed=0: agents/recipes/cartpole.yaml: ppo: Config has no field 'lrr'; did you mean",
        ),
        (
            {"ppo": {"rates": [{"settings": {"lrr": 1}, "agents": ["lockstep"], "blocks": 2}]}},
            TINY,
            "rate ppo lockstep cpu lrr=1 blocks: Config has no field 'lrr'; did you mean 'lr'?",
        ),
    ],
)
def test_mistakes_are_answered_in_a_sentence(monkeypatch, section, recipe, message):
    pretended(monkeypatch, section, recipe)
    monkeypatch.setattr(sys, "argv", ["run", "learning", "cartpole", "--devices", "cpu"])
    start = "error: experiments/classic_control/cartpole.yaml: learning: "
    with pytest.raises(SystemExit, match="^" + re.escape(start + message)):
        command.run(command_line.main)


def test_an_environment_that_asks_for_none_is_not_trained(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["run", "learning", "vehicular_edge"])
    with pytest.raises(SystemExit, match="vehicular_edge.yaml has no section learning"):
        command.run(command_line.main)


def test_a_library_without_torch_plays_the_episodes_that_others_play():
    assert (rejax.EPISODES, rejax.FIRST_SEED) == (evaluation.EPISODES, evaluation.FIRST_SEED)
