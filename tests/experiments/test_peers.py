import gc
import importlib.metadata
import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import numpy as np
import pandas as pd
import pytest

from lockstep import envs
from lockstep.experiments import ROOT, command, peer_workers, peers
from lockstep.experiments import run as command_line
from lockstep.experiments.bench import timing
from lockstep.experiments.ledger import provenance, results
from lockstep.experiments.peer_workers import Group, NextStep, Task, drawn_actions
from lockstep.experiments.peers import Wanted
from tests.envs.batches import NAMES

CARTPOLE = Task("cartpole", "CartPole-v1", 0)
WITH_ENVIRONMENT = [name for name in peer_workers.names() if peer_workers.requirements(name)]
DISCRETE = SimpleNamespace(n=3, dtype=np.int64)
BOX = SimpleNamespace(low=np.float32([-2]), high=np.float32([2]), shape=(1,), dtype=np.float32)


@pytest.fixture
def short_blocks(monkeypatch):
    monkeypatch.setattr(timing, "MIN_BLOCK_S", 0.005)


@pytest.fixture
def no_environments(monkeypatch, tmp_path):
    """As on a machine where `make peers` has never run."""
    monkeypatch.setattr(peer_workers, "ENVIRONMENTS", tmp_path / "environments")
    return tmp_path / "environments"


def some(peer, *sizes, mode="step", threads=1, device="cpu"):
    return [Wanted(peer, Group(mode, size, threads, device=device), 6) for size in sizes]


# ---- Workers ----


def test_the_folder_is_the_list_and_the_port_comes_last():
    modules = {path.stem for path in (ROOT / "experiments" / "peer_workers").glob("*.py")} - {"__init__", "__main__"}
    assert set(peer_workers.names()) == modules
    assert peer_workers.names()[-1] == "lockstep"


@pytest.mark.parametrize("name", peer_workers.names())
def test_every_peer_says_what_it_has(name):
    peer = peer_workers.worker(name)
    assert peer.TITLE
    assert peer.PACKAGES
    assert peer_workers.devices(name)[0] == "cpu" and set(peer_workers.devices(name)) <= set(command.DEVICES)
    for gymnasium_id in ("CartPole-v1", "NoSuchTask-v0"):
        assert peer.differences(gymnasium_id) is None or isinstance(peer.differences(gymnasium_id), str)
    found = peer.groups({64: [1], 8192: [1, 2]})
    assert {group.num_envs for group in found} == {64, 8192}
    assert len(set(found)) == len(found)
    assert all(
        group.mode in ("step", "fused") and (group.fused_steps > 1) == (group.mode == "fused") for group in found
    )


def test_what_all_peers_share_imports_nothing_that_only_we_have():
    """With our libraries blocked and the peers' absent, every worker can still be imported."""
    program = (
        "import sys\n"
        "for name in ('torch', 'pandas', 'yaml', 'envs', 'gymnasium', 'envpool', 'gymnax', 'jax', 'pufferlib'):\n"
        "    sys.modules[name] = None\n"
        "from lockstep.experiments import peer_workers\n"
        "import lockstep.experiments.peer_workers.__main__\n"
        "print(*(peer_workers.worker(name).TITLE for name in peer_workers.names()))\n"
    )
    finished = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert finished.stdout.split() == ["EnvPool", "Gymnasium", "gymnax", "PufferLib", "Lockstep"], finished.stderr


def test_calls_that_reset_are_not_counted_as_steps():
    """Three environments, four calls: one ends in the first, two in the second, so that nine steps are live."""
    flags = [  # terminated, truncated
        ([True, False, False], [False, False, False]),
        ([False, True, True], [False, True, False]),
        ([False, False, False], [False, False, False]),
        ([False, False, False], [False, False, False]),
    ]
    asked = []

    def step(action):
        terminated, truncated = flags[len(asked)]
        asked.append(action)
        return None, None, np.array(terminated), np.array(truncated), {}

    steps = NextStep(step, itertools.cycle("abc"), num_envs=3)
    assert [steps.run() for _ in range(4)] == [3, 2, 1, 3]
    assert asked == ["a", "b", "c", "a"]
    assert steps.live_share() == 0.75


@pytest.mark.parametrize(("space", "shape"), [(DISCRETE, (5,)), (BOX, (5, 1))])
def test_actions_are_drawn_once_and_used_again(space, shape):
    batches = list(itertools.islice(drawn_actions(space, 5, seed=0), 33))
    assert all(batch.shape == shape and batch.dtype == space.dtype for batch in batches)
    assert np.array_equal(batches[32], batches[0])
    values = np.concatenate(batches[:32])
    if space is DISCRETE:
        assert set(values.tolist()) == {0, 1, 2}
    else:
        assert -2 <= values.min() < -1.8 and 1.8 < values.max() <= 2
    assert next(drawn_actions(space, 5, 0, "float32")).dtype == np.float32


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Collecting a\nValueError: b is c\nnote: see above\n", "ValueError: b is c"),
        (
            "urllib.error.URLError: <urlopen error [Errno -2]>\n\n  x\n",
            "urllib.error.URLError: <urlopen error [Errno -2]>",
        ),
        ("one\nKilled\n", "Killed"),
        ("", "it says nothing"),
        ("OSError: /home/someone/lib/b.so: no such file", "OSError: b.so: no such file"),
        ("OSError: see https://a.org/b/c", "OSError: see https://a.org/b/c"),
    ],
)
def test_the_last_error_of_a_program_is_told_without_folders(text, line):
    assert peer_workers.last_error(text) == line


def test_without_environments_the_peers_in_ours_still_run(no_environments):
    assert peer_workers.installed() == []
    running = [name for name in peer_workers.names() if peer_workers.python_of(name)]
    assert running == ["gymnasium", "lockstep"]
    assert peers.why_not("envpool", CARTPOLE) == "envpool==1.2.5 is not installed; make peers installs it"
    assert peers.why_not("pufferlib", Task("pendulum", "Pendulum-v1", 0)) == "it has no Pendulum-v1"
    assert peer_workers.versions("envpool") == {}


def test_a_peer_that_does_not_install_says_why(no_environments):
    (no_environments / "pufferlib").mkdir(parents=True)
    (no_environments / "pufferlib" / "install.log").write_text("Downloading\nURLError: no network\nhint: none\n")
    assert peers.why_not("pufferlib", CARTPOLE) == "pufferlib==3.0.0 does not install here: URLError: no network"


def test_versions_are_those_of_the_peer_s_own_python(no_environments):
    package = no_environments / "gymnax" / "lib" / "python3.11" / "site-packages" / "gymnax-9.9.9.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: gymnax\nVersion: 9.9.9\n")
    (no_environments / "gymnax" / "ready").touch()
    assert peer_workers.installed() == ["gymnax"]
    assert peer_workers.versions("gymnax") == {"gymnax": "9.9.9"}
    assert peer_workers.versions("gymnasium")["gymnasium"] == importlib.metadata.version("gymnasium")


# ---- What is measured ----


def test_the_scales(monkeypatch):
    monkeypatch.setattr(provenance, "core_count", lambda: 4)
    quick, full = (peers.wanted("envpool", scale, "cpu") for scale in ("quick", "full"))
    assert [(one.group.num_envs, one.group.threads, one.blocks) for one in quick] == [(8192, 1, 6)]
    assert [(one.group.num_envs, one.group.threads, one.blocks) for one in full] == [
        *[(1, 1, 10), (64, 1, 10), (1024, 1, 10)],
        *[(8192, 1, 30), (8192, 4, 30), (65536, 1, 10), (65536, 4, 10)],
    ]
    assert peers.wanted("envpool", "full", "cuda") == []
    quick, full = (peers.wanted("lockstep", scale, "cuda") for scale in ("quick", "full"))
    assert {(one.group.device, one.group.threads) for one in quick + full} == {("cuda", 1)}
    assert [(one.group.mode, one.group.num_envs, one.blocks) for one in quick] == [
        ("step", 8192, 6),
        ("fused", 8192, 6),
    ]
    stepped = [(one.group.num_envs, one.blocks) for one in full if one.group.mode == "step"]
    assert stepped == [(8192, 30), (65536, 10), (1048576, 10)]


# ---- The protocol ----


@pytest.fixture
def pretend(monkeypatch, tmp_path):
    """Let a program stand for a peer's Python: its body sees the number of its start, from 0, and may answer."""

    def write(body: str) -> None:
        python = tmp_path / "python"
        python.write_text(
            f"#!{sys.executable}\nimport json, os, sys, time\nfrom pathlib import Path\n"
            f"starts = Path({str(tmp_path / 'starts')!r})\n"
            "starts.write_text((starts.read_text() if starts.exists() else '') + 'x')\n"
            "def answer(reason): print(json.dumps({'reason': reason}), flush=True)\n"
            "jobs = map(json.loads, sys.stdin)\n"
            f"{body}\n"
        )
        python.chmod(0o755)
        monkeypatch.setattr(peer_workers, "python_of", lambda name: python)

    write.starts = lambda: len((tmp_path / "starts").read_text())
    return write


def asked(*sizes):
    return [answer["reason"] for answer in peers.ask("gymnasium", some("gymnasium", *sizes), CARTPOLE)]


def test_a_process_is_of_one_device_and_keeps_jax_on_it(pretend, monkeypatch):
    names = ["JAX_PLATFORMS", "CUDA_VISIBLE_DEVICES", "XLA_PYTHON_CLIENT_PREALLOCATE"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.delenv("XLA_PYTHON_CLIENT_PREALLOCATE", raising=False)
    pretend(f"for job in jobs: answer([job['group']['device'], *map(os.environ.get, {names})])")
    todo = [*some("gymnax", 1, 8), *some("gymnax", 1, 8, device="cuda")]
    found = [answer["reason"] for answer in peers.answers(todo, CARTPOLE)]
    assert found == [["cpu", "cpu", "", None]] * 2 + [["cuda", "cuda", "3", "false"]] * 2
    assert pretend.starts() == 2


def test_a_worker_is_given_its_jobs_and_no_gpu(pretend):
    pretend(
        "for job in jobs:\n"
        "    seen = job['group']['num_envs'], job['blocks'], job['task']['seed'], job['min_block_s']\n"
        "    answer([*sys.argv[1:], *seen, os.environ['CUDA_VISIBLE_DEVICES']])"
    )
    arguments = ["-m", "lockstep.experiments.peer_workers", "gymnasium"]
    assert asked(1, 8) == [[*arguments, size, 6, 0, timing.MIN_BLOCK_S, ""] for size in (1, 8)]
    assert pretend.starts() == 1


def test_a_worker_has_nothing_to_do_while_its_last_answer_is_taken(pretend):
    pretend("for job in jobs: answer(time.monotonic())")
    starts = []
    for answer in peers.ask("gymnasium", some("gymnasium", 1, 8), CARTPOLE):
        time.sleep(0.3)
        starts.append(answer["reason"])
    assert starts[1] - starts[0] >= 0.3


def test_a_worker_runs_in_a_folder_that_goes_with_it(pretend):
    pretend("Path('left behind').touch()\nfor job in jobs: answer(os.getcwd())")
    (folder,) = asked(1)
    assert not Path(folder).exists()


def test_a_worker_that_cannot_start_is_started_once(pretend):
    pretend("sys.exit('ImportError: no such library')")
    assert asked(1, 8, 64) == ["its process ended with status 1: ImportError: no such library"] * 3
    assert pretend.starts() == 1


def test_a_worker_that_breaks_in_a_group_goes_on_after_it(pretend):
    pretend("for job in jobs: os.kill(os.getpid(), 11) if job['group']['num_envs'] == 8 else answer('fine')")
    broken = "its process ended with status -11: it says nothing"
    assert asked(1, 8, 64, 8) == ["fine", broken, "fine", broken]
    assert pretend.starts() == 2


def test_a_worker_that_hangs_is_ended(pretend, monkeypatch):
    monkeypatch.setattr(peers, "TIMEOUT_S", 0.5)
    pretend("time.sleep(60)")
    assert asked(1) == ["no answer within 0.5 s"]


def test_a_worker_ends_where_its_answers_are_no_longer_wanted(pretend):
    pretend("for job in jobs: answer(os.getpid())")
    waiting = peers.ask("gymnasium", some("gymnasium", 1, 8), CARTPOLE)
    process = next(waiting)["reason"]
    waiting.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_a_group_that_cannot_be_measured_leaves_the_others(short_blocks):
    todo = some("gymnasium", 65536, 2)
    large, small = peers.ask("gymnasium", todo, Task("mountain_car", "MountainCar-v0", 0))
    assert large == {"reason": "SyncVectorEnv is a Python loop, no faster per step beyond 8,192 environments"}
    assert len(small["blocks"]) == 6
    (broken,) = peers.ask("gymnasium", some("gymnasium", 2), Task("nothing", "NoSuchTask-v0", 0))
    assert broken["reason"].startswith("NameNotFound: ")


@pytest.mark.usefixtures("short_blocks")
def test_gymnasium_is_measured_by_its_live_steps():
    """Random episodes last 22.26 steps on average, and each costs one more for its reset: 4.3 % of all."""
    todo = some("gymnasium", 512)
    (answer,) = peers.ask("gymnasium", todo, CARTPOLE)
    assert answer["live_share"] == pytest.approx(1 - 1 / 23.26, abs=0.01)
    assert answer["how"] == "CartPoleVectorEnv, next-step reset"
    rows = peers.rows(todo[0], answer, CARTPOLE)
    assert [row["block"] for row in rows] == list(range(6))
    for row in rows:
        assert list(row) == [*peers.COLUMNS, "had"]
        assert (row["peer"], row["status"], row["num_envs"]) == ("Gymnasium", "measured", 512)
        assert row["version"] == importlib.metadata.version("gymnasium")
        assert row["steps"] > 0 and row["wall_s"] >= 0.005 and row["first_call_s"] > 0


@pytest.mark.usefixtures("short_blocks")
def test_the_port_is_measured_as_the_peers_are():
    groups = [Group("step", 64, 1, 1), Group("fused", 64, 1, 16)]
    answers = peers.ask("lockstep", [Wanted("lockstep", group, 6) for group in groups], CARTPOLE)
    for group, answer in zip(groups, answers, strict=True):
        assert answer["live_share"] == 1
        assert all(steps % (64 * group.fused_steps) == 0 and steps > 0 for steps, *_ in answer["blocks"])


def test_what_a_user_has_on_the_path_is_for_our_own_python(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "mine")
    assert peer_workers.variables("lockstep", "cpu")["PYTHONPATH"] == f"{ROOT}{os.pathsep}mine"
    assert peer_workers.variables("gymnax", "cpu")["PYTHONPATH"] == str(ROOT)


ON_CUDA = [name for name in peer_workers.names() if "cuda" in peer_workers.devices(name)]


@pytest.mark.gpu
@pytest.mark.parametrize("name", ON_CUDA)
@pytest.mark.usefixtures("short_blocks")
def test_a_peer_is_measured_on_a_gpu(name):
    if not peer_workers.python_of(name):
        pytest.skip(peer_workers.why_missing(name))
    groups = [Group("step", 64, 1, 1, "cuda"), Group("fused", 64, 1, 16, "cuda")]
    for group, answer in zip(
        groups, peers.ask(name, [Wanted(name, group, 6) for group in groups], CARTPOLE), strict=True
    ):
        if "Unable to initialize backend" in answer.get("reason", ""):
            pytest.skip(answer["reason"])
        assert answer["live_share"] == 1
        assert all(steps % (64 * group.fused_steps) == 0 and steps > 0 for steps, *_ in answer["blocks"])


@pytest.mark.gpu
def test_a_call_of_the_port_on_a_gpu_is_one_step(monkeypatch):
    """The clock of the batch stands at the calls."""
    made, make = [], envs.make
    monkeypatch.setattr(envs, "make", lambda *some, **options: made.append(make(*some, **options)) or made[-1])
    with peer_workers.worker("lockstep").loop(CARTPOLE, Group("step", 64, 1, 1, "cuda")) as loop:
        assert [loop.run() for _ in range(3)] == [64] * 3
        loop.synchronize()
        assert int(made[0].state()["clock"]) == 3
    assert "CUDA graph" in loop.how


# ---- What comes of it ----


def measured(peer, rate, mode="step", num_envs=8192, threads=1, device="cpu"):
    """Six blocks of one second each."""
    row = dict.fromkeys(peers.COLUMNS) | {"environment": "cartpole", "peer": peer, "mode": mode, "status": "measured"}
    row |= {"device": device, "num_envs": num_envs, "threads": threads, "live_share": 1.0}
    row |= {"fused_steps": 128 if mode == "fused" else 1}
    return [row | {"block": block, "steps": rate, "wall_s": 1.0, "cpu_s": threads} for block in range(6)]


def not_measured(peer, reason):
    row = {"environment": "cartpole", "peer": peer, "status": "not measured", "reason": reason}
    return [dict.fromkeys(peers.COLUMNS) | row]


def frame(*groups):
    return pd.DataFrame([row for group in groups for row in group], columns=peers.COLUMNS)


PORT = [measured("Lockstep", 1000), measured("Lockstep", 2000, threads=2), measured("Lockstep", 8000, "fused")]


def test_a_ratio_takes_the_port_s_fastest_in_the_same_mode():
    table = frame(
        measured("EnvPool", 50),
        measured("gymnax", 100),
        measured("gymnax", 400, "fused"),
        *PORT,
        measured("EnvPool", 5, num_envs=1),
    )
    found = peers.summary(table).set_index(["peer", "mode", "num_envs"])
    assert found.loc[("EnvPool", "step", 8192), "ratio"] == 40
    assert found.loc[("gymnax", "step", 8192), "ratio"] == 20
    assert found.loc[("gymnax", "fused", 8192), "ratio"] == 20
    assert found["ratio"].isna().sum() == 1 + 3  # where the port was not run, and the port itself
    assert found["cpu_rate"].loc["Lockstep"].tolist() == [1000, 1000, 8000]


def test_a_ratio_is_of_one_device():
    on_gpu = [measured("gymnax", 10_000, device="cuda"), measured("Lockstep", 90_000, device="cuda")]
    table = frame(measured("gymnax", 100), measured("EnvPool", 50), *PORT, *on_gpu)
    found = peers.summary(table).set_index(["peer", "mode", "device"])["ratio"]
    assert (found["gymnax", "step", "cpu"], found["gymnax", "step", "cuda"]) == (20, 9)
    fastest, over = peers.against_the_fastest(table)
    assert (fastest["device"], fastest["rate"], over.ratio) == ("cpu", 100, 20)
    assert peers.against_the_fastest(table, "cuda")[1].ratio == 9
    assert "gymnax     step cuda B=8192" in peers.report(table)


def test_recordings_without_a_device_are_of_the_cpu():
    table = frame(measured("gymnax", 100), *PORT)
    older = table.drop(columns="device")
    assert peers.summary(older).equals(peers.summary(table))
    assert peers.against_the_fastest(older)[1] == peers.against_the_fastest(table)[1]
    assert peers.report(older) == peers.report(table)


def test_the_port_with_one_step_per_call_against_the_fastest_peer_in_any_mode():
    fastest, over = peers.against_the_fastest(frame(measured("gymnax", 100), measured("gymnax", 400, "fused"), *PORT))
    assert (fastest["peer"], fastest["mode"]) == ("gymnax", "fused")
    assert over == (5, 5, 5)
    assert peers.against_the_fastest(frame(*PORT)) is None
    assert peers.against_the_fastest(frame(measured("gymnax", 100))) is None


def test_a_peer_that_was_not_measured_has_its_line():
    printed = peers.report(frame(measured("gymnax", 400, "fused"), *PORT, not_measured("PufferLib", "no network")))
    assert "PufferLib                       not measured: no network" in printed
    assert "reached: one step per call on the CPU at B=8192 over the fastest peer, gymnax: 5 [5, 5], aim 5 x" in printed
    assert "missed: " in peers.report(frame(measured("gymnax", 401, "fused"), *PORT))


# ---- The command line ----


@pytest.fixture
def run(monkeypatch, tmp_path, no_environments):
    """Run the command line in this process, without peers' environments; answers come at once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(envs, "cuda_available", lambda: False)
    seen = []

    def answers(todo, task):
        for one in todo:
            seen.append(peers.label(one))
            block = [one.group.num_envs * (100 if one.peer == "lockstep" else 10), 0.25, 0.25]
            same = {"how": "at once", "dtype": "float32", "live_share": 0.5, "first_call_s": 1.0}
            yield same | {"blocks": [block] * one.blocks}

    monkeypatch.setattr(peers, "answers", answers)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["run", "peers", *arguments])
        command.run(command_line.main)
        return seen

    return run


def test_the_command_line_writes_rows_and_says_who_is_missing(run, tmp_path, capsys):
    seen = run("cartpole")
    assert seen == [
        "Gymnasium step cpu B=8192 threads=1",
        "Lockstep step cpu B=8192 threads=1",
        "Lockstep fused cpu B=8192 threads=1 K=128",
    ]
    table, described = results.read(tmp_path / "results" / "cartpole" / "peers.csv")
    assert list(table.columns) == peers.COLUMNS
    missing = table[table["status"] == "not measured"].set_index("peer")["reason"]
    assert missing["gymnax"] == "gymnax==1.0.1 is not installed; make peers installs it"
    assert set(missing.index) == {"EnvPool", "gymnax", "PufferLib"}
    assert (table["status"] == "measured").sum() == 18
    assert described["config"]["peers"]["gymnasium"]["gymnasium"] == importlib.metadata.version("gymnasium")
    assert described["config"]["peers"]["envpool"].endswith("make peers installs it")
    assert "experiments/peer_workers/gymnax.txt" in described["sources"]
    reached = "reached: one step per call on the CPU at B=8192 over the fastest peer, Gymnasium: 10 [10, 10]"
    assert reached in capsys.readouterr().out


def test_on_a_gpu_are_measured_those_that_run_there(run, monkeypatch, tmp_path):
    monkeypatch.setattr(envs, "cuda_available", lambda: True)
    monkeypatch.setattr(peer_workers, "python_of", lambda name: Path(sys.executable))
    monkeypatch.setattr(provenance, "core_count", lambda: 4)
    on_gpu = [
        *["gymnax step cuda B=8192 threads=4", "gymnax fused cuda B=8192 threads=4 K=128"],
        *["Lockstep step cuda B=8192 threads=1", "Lockstep fused cuda B=8192 threads=1 K=128"],
    ]
    assert run("cartpole")[-len(on_gpu) :] == on_gpu
    table, described = results.read(tmp_path / "results" / "cartpole" / "peers.csv")
    assert set(table.loc[table["device"] == "cuda", "peer"]) == {"gymnax", "Lockstep"}
    every = {peer_workers.worker(name).TITLE for name in peer_workers.names()}
    assert set(table.loc[table["device"] == "cpu", "peer"]) == every
    assert described["config"]["sizes"] == {"cpu": [8192], "cuda": [8192]}


def test_a_device_can_be_chosen(run, monkeypatch, tmp_path):
    monkeypatch.setattr(envs, "cuda_available", lambda: True)
    seen = run("cartpole", "--devices", "cuda", "--output", "gpu.csv")
    assert [label.split()[:3] for label in seen] == [["Lockstep", "step", "cuda"], ["Lockstep", "fused", "cuda"]]
    table = results.read(tmp_path / "gpu.csv")[0]
    missing = table[table["status"] == "not measured"].set_index("peer")["reason"].to_dict()
    assert missing == {"gymnax": "gymnax==1.0.1 is not installed; make peers installs it"}


def test_an_interrupted_command_continues(run, monkeypatch, capsys):
    whole = peers.answers

    def interrupted(todo, task):
        yield next(whole(todo, task))
        raise KeyboardInterrupt

    monkeypatch.setattr(peers, "answers", interrupted)
    with pytest.raises(SystemExit) as stopped:
        run("cartpole")
    assert stopped.value.code == 130
    del stopped  # and with it the frames that hold the journal's lock, as the end of a process would
    gc.collect()
    monkeypatch.setattr(peers, "answers", whole)
    assert [label.split()[0] for label in run("cartpole")] == ["Gymnasium", "Lockstep", "Lockstep"]
    assert "continuing after 1 finished groups" in capsys.readouterr().err


def test_a_part_goes_where_it_is_told(run, tmp_path):
    assert run("cartpole", "--peers", "lockstep", "--output", "part.csv")[0].startswith("Lockstep")
    assert set(results.read(tmp_path / "part.csv")[0]["peer"]) == {"Lockstep"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cartpol"], "unknown environment 'cartpol', no experiments/*/cartpol.yaml; did you mean 'cartpole'?"),
        (["cartpole", "--peers", "gymnaks", "--output", "a.csv"], "there is no peer 'gymnaks'; did you mean 'gymnax'?"),
        (["cartpole", "--peers", "gymnax"], "--peers measures a part; say where with --output, since results/cartpole"),
    ],
)
def test_mistakes_end_in_one_sentence(run, arguments, message):
    with pytest.raises(SystemExit) as ended:
        run(*arguments)
    assert str(ended.value).startswith("error: ")
    assert message in str(ended.value)


# ---- The peers themselves, where `make peers` has set them up ----


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_ENVIRONMENT)
@pytest.mark.usefixtures("short_blocks")
def test_a_real_peer_steps_every_task_it_has(name):
    if not peer_workers.python_of(name):
        pytest.skip(peer_workers.why_missing(name))
    peer = peer_workers.worker(name)
    tasks = [Task(task, envs.port(task).gymnasium_id, 0) for task in NAMES]
    tasks = [task for task in tasks if peer.differences(task.gymnasium_id) is not None]
    assert tasks
    for task in tasks:
        todo = [Wanted(name, group, 6) for group in peer.groups({8: [1]})]
        for one, answer in zip(todo, peers.ask(name, todo, task), strict=True):
            assert "reason" not in answer, (task, answer)
            assert all(steps > 0 for steps, *_ in answer["blocks"])
            assert answer["live_share"] == 1 or "next-step" in answer["how"]
            assert peers.rows(one, answer, task)[0]["version"] == peer_workers.versions(name)[peer.PACKAGES[0]]


def transitions(name: str) -> dict:
    if not peer_workers.python_of(name):
        pytest.skip(peer_workers.why_missing(name))
    program = [peer_workers.python_of(name), ROOT / "tests" / "experiments" / "steps_of_peers.py", name]
    variables = os.environ | {"PYTHONPATH": str(ROOT)}
    finished = subprocess.run(program, env=variables, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["envpool", "gymnax"])
def test_the_tasks_of_a_peer_differ_from_gymnasium_s_where_it_says_so(name):
    """One step from the same state: what is not said to move otherwise is equal but for the rounding of float32."""
    moving = {("envpool", "Pendulum-v1"): "speed", ("gymnax", "MountainCarContinuous-v0"): "wall"}
    for task, found in transitions(name).items():
        said = moving.get((name, task))
        assert (found["observation"] > 1e-2) == (said is not None)
        assert found["observation"] < 1e-5 or said in peer_workers.worker(name).differences(task)
        assert found["reward"] < 1e-4
        assert found["flags"] == 0
        assert found["cut"] == [gymnasium.spec(task).max_episode_steps]


def test_a_task_that_pufferlib_lacks_is_named_before_it_is_imported():
    with pytest.raises(ValueError, match="it has no Acrobot-v1"):
        peer_workers.worker("pufferlib").made("Acrobot-v1", 2)
