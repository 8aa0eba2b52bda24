"""Runs, their files, their interruption, and the command line."""

import contextlib
import csv
import dataclasses
import fcntl
import os
import pty
import re
import signal
import socket
import struct
import sys
import termios
import threading
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from lockstep import envs, files
from lockstep.agents import ppo
from lockstep.agents.run import checkpoint, command_line, evaluation, log, training
from lockstep.agents.run.config import replaced
from tests.agents import served, training_worker
from tests.agents.training_worker import RUNS, stops_at

ROOT = Path(__file__).parents[3]
HERE = f"process {os.getpid()} on {socket.gethostname()}"


def main(monkeypatch, capsys, *arguments: str) -> tuple[object, str, str]:
    """The exit status (or the message in its place), standard output and standard error of the command line."""
    monkeypatch.setattr(sys, "argv", ["ppo", *arguments])
    status = 0
    try:
        command_line.main("ppo")
    except SystemExit as ended:
        status = ended.code
    return status, *capsys.readouterr()


def same(a, b) -> bool:
    """True where two states are equal to the last bit."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def rows_of(folder: Path) -> list[dict[str, str]]:
    with open(folder / "progress.csv", newline="") as file:
        return list(csv.DictReader(file))


# ---- resuming --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def resumed(tmp_path_factory):
    """Runs of 5 iterations, continued by another process for 5 more."""
    folder = tmp_path_factory.mktemp("resumed")
    before = torch.get_num_threads(), log.ROW_EVERY_S
    torch.set_num_threads(1)
    try:
        for name in RUNS:
            training_worker.train(name, folder, stop=5)
    finally:
        torch.set_num_threads(before[0])
        log.ROW_EVERY_S = before[1]
    said = folder / "said.txt"
    assert served.status(served.process(said, training_worker.resume, folder)) == 0, said.read_text()
    return folder


@pytest.mark.parametrize("name", list(RUNS))
def test_five_iterations_and_five_in_a_new_process_are_ten(resumed, name, monkeypatch):
    monkeypatch.setattr(log, "ROW_EVERY_S", 0.0)
    environment, config = RUNS[name]
    run = ppo.PPO(environment, config)
    for _ in range(10):
        run.iterate()
    content = checkpoint.load(resumed / name / "checkpoint.pt")
    assert content["states"][0]["iteration"] == 10
    for part, value in run.state().items():
        assert same(content["states"][0][part], value), part


@pytest.mark.parametrize("name", list(RUNS))
def test_the_file_of_a_resumed_run_has_every_iteration_once(resumed, name):
    rows = rows_of(resumed / name)
    assert [int(row["iteration"]) for row in rows] == list(range(1, 11))
    assert [int(row["env_steps"]) for row in rows] == [1024 * i for i in range(1, 11)]
    seconds = [float(row["wall_s"]) for row in rows]
    assert seconds == sorted(seconds)  # the clock goes on


def test_another_configuration_is_refused_field_by_field(tmp_path):
    environment, config = RUNS["kernels"]
    ppo.train(environment, replaced(config, {"eval_every": 1}), output=tmp_path, check=lambda run: True)
    path = tmp_path / "checkpoint.pt"
    other = replaced(config, {"gamma": 0.5, "hidden": (32, 32), "eval_every": 5, "save_every": 9})
    with pytest.raises(ValueError, match="^the checkpoint belongs to another configuration: ") as error:
        ppo.train(environment, other, resume=path)
    assert (
        "gamma is 0.99 in the checkpoint and 0.5 here; hidden is (64, 64) in the checkpoint and (32, 32) here"
        in str(error.value)
    )
    assert str(error.value).endswith("; only eval_every, save_every may differ")
    with pytest.raises(ValueError, match="environment is 'cartpole' in the checkpoint and 'acrobot' here"):
        ppo.train("acrobot", config, resume=path)
    allowed = replaced(config, {"eval_every": 5, "save_every": 9})
    assert ppo.train(environment, allowed, resume=path).iteration == 10


# ---- loading ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    environment, config = RUNS["normalised"]
    return ppo.train(environment, config, output=folder), folder


def test_a_loaded_run_acts_as_the_trained_one(trained):
    run, folder = trained
    obs = torch.rand(5, 3, generator=torch.Generator().manual_seed(0))
    for path in (folder / "checkpoint.pt", str(folder)):
        loaded = ppo.load(path)
        assert loaded.config == run.config and loaded.iteration == 10
        assert torch.equal(loaded.act(obs), run.act(obs))


def test_a_run_loaded_for_another_environment_begins_anew_with_what_was_learnt(trained):
    run, folder = trained
    obs = torch.rand(5, 3, generator=torch.Generator().manual_seed(0))
    given = envs.make("pendulum", 64, seed=5)
    loaded = ppo.load(folder, environment=given)
    assert loaded.env is given and loaded.iteration == 0
    assert torch.equal(loaded.act(obs), run.act(obs))


@pytest.mark.parametrize("insists", [{"precision": "tf32"}, {"graph": "on"}, {"rollout": "kernel"}])
def test_what_a_device_lacks_is_not_needed_to_act(trained, tmp_path, insists):
    """TF32 and graphs need a GPU; no kernel rolls out with `norm_obs`."""
    run, folder = trained
    content = checkpoint.load(folder / "checkpoint.pt")
    content["config"] |= insists
    checkpoint.save(tmp_path / "other.pt", content)
    environment, config = RUNS["normalised"]
    with pytest.raises(ValueError, match=f"{next(iter(insists))}='{next(iter(insists.values()))}'"):
        ppo.train(environment, replaced(config, insists), resume=tmp_path / "other.pt")
    for given in (None, environment):
        loaded = ppo.load(tmp_path / "other.pt", environment=given)
        obs = torch.rand(5, 3, generator=torch.Generator().manual_seed(0))
        assert torch.equal(loaded.act(obs), run.act(obs)) and loaded.iteration == 0
        differ = {field for field, value in vars(loaded.config).items() if value != getattr(config, field)}
        assert differ <= {"rollout", "gradient"} and loaded.config.precision == "fp32"


def test_a_run_goes_on_from_a_checkpoint_of_before_a_setting(trained, tmp_path):
    run, folder = trained
    content = checkpoint.load(folder / "checkpoint.pt")
    del content["config"]["squash"]
    checkpoint.save(tmp_path / "older.pt", content)
    environment, config = RUNS["normalised"]
    assert ppo.train(environment, config, resume=tmp_path / "older.pt").iteration == run.iteration
    other = dataclasses.replace(config, squash="tanh")
    with pytest.raises(ValueError, match="squash is 'clip' in the checkpoint and 'tanh' here"):
        ppo.train(environment, other, resume=tmp_path / "older.pt")


def test_a_checkpoint_that_does_not_fit_is_named(trained, tmp_path):
    _, folder = trained
    content = checkpoint.load(folder / "checkpoint.pt")
    path, state = tmp_path / "other.pt", content["states"][0]
    bad = torch.full_like(state["parameters"], torch.nan)
    cases = [
        ({name: content[name] for name in content if name != "config"}, "has no 'config'"),
        ({name: content[name] for name in content if name != "states"}, "has no 'states'"),
        ({name: content[name] for name in content if name != "wall_s"}, "has no 'wall_s'"),
        (content | {"states": []}, "'states' must hold a dict for each process"),
        (content | {"config": {"seed": 1}}, "'config' names no 'environment'"),
        (content | {"config": content["config"] | {"environment": "Corridor"}}, "'Corridor' is no environment of envs"),
        (content | {"config": content["config"] | {"gamma": 2.0}}, "gamma=2.0 must lie in [0, 1]"),
        (content | {"states": [state | {"parameters": bad[:, :8]}]}, "state['parameters'] must have the shape ["),
        (content | {"states": [state | {"parameters": bad}]}, "state['parameters'] must be finite"),
        (content | {"states": [state | {"optimizer": {}}]}, "state['optimizer'] has no '"),
        (content | {"states": [state | {"rollout": {}}]}, "state['rollout'] has no 'clock'"),
        (content | {"states": [state | {"environment": 1}]}, "state['environment'] must be a dict, is a int"),
        (content | {"algorithm": "dqn"}, "is of dqn, not of ppo"),
        (content | {"states": [state | {"iteration": "10"}]}, "state['iteration'] must be a int, is a str"),
    ]
    for changed, said in cases:
        checkpoint.save(path, changed)
        with pytest.raises(ValueError, match=re.escape(said)) as error:
            ppo.load(path)
        assert str(error.value).startswith(f"checkpoint {path}"), said
    checkpoint.save(path, content | {"states": [state | {"parameters": bad}]})
    with pytest.raises(ValueError, match=re.escape(f"checkpoint {path} cannot be continued: state['parameters']")):
        ppo.train(*RUNS["normalised"], resume=path)


def test_a_new_run_takes_weights_and_normaliser_of_a_checkpoint_and_nothing_else(trained):
    run, folder = trained
    environment, config = RUNS["normalised"]
    started = ppo.train(environment, replaced(config, {"lr": 0.0, "seed": 5, "total_steps": 1024}), init_from=folder)
    assert started.iteration == 1
    assert torch.equal(started.networks.parameters, run.networks.parameters)
    seen = run.normaliser.count + 1024  # its own iteration came on top
    assert torch.equal(started.normaliser.count, seen)
    assert started.optimizer.steps.item() == 8 and run.optimizer.steps.item() == 80


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("normalised", {"hidden": (32, 32)}, "hidden is (64, 64) in the checkpoint and (32, 32) here"),
        ("normalised", {"norm_obs": False}, "state has a 'normaliser', for which norm_obs must be True here"),
        # From 4 over 64 and 64 to 2 there are 4,610 weights and biases, to 1 4,545; from 3 to 1 4,481, twice. Each is
        # filled up to a multiple of four, and four stand between.
        ("kernels", {"norm_obs": True}, "state['parameters'] must have the shape [1, 9164], has [1, 8972]"),
    ],
)
def test_weights_that_do_not_fit_are_refused_with_their_shapes(trained, name, changes, said):
    environment, config = RUNS[name]
    path = trained[1] / "checkpoint.pt"
    with pytest.raises(ValueError, match=re.escape(said)) as error:
        ppo.train(environment, replaced(config, changes), init_from=path)
    assert str(error.value).startswith(f"checkpoint {path} does not fit these networks: ")


def test_a_checkpoint_is_continued_or_begun_from(trained):
    with pytest.raises(ValueError, match="resume and init_from exclude each other"):
        ppo.train(*RUNS["normalised"], resume=trained[1], init_from=trained[1])


def test_the_settings_of_a_run_are_a_recipe(trained):
    run, folder = trained
    assert ppo.config_of("cartpole", folder / "config.yaml") == run.config
    assert (folder / "config.yaml").read_text().startswith("# Of pendulum.\nppo:\n  num_envs: 64\n")


# ---- checks, checkpoints, rows ---------------------------------------------------------------------------------------


def test_checks_come_every_so_many_steps_at_the_ends_of_iterations():
    seen = []
    config = replaced(RUNS["kernels"][1], {"eval_every": 2500})
    ppo.train("cartpole", config, check=lambda run: seen.append(run.env_steps))
    assert seen == [3072, 5120, 8192, 10240]  # the first ends of 1,024 at or after 2,500, 5,000, 7,500, 10,000


def test_a_check_that_passes_ends_the_run_with_a_row_and_a_checkpoint(tmp_path):
    config = replaced(RUNS["kernels"][1], {"eval_every": 1})
    run = ppo.train("cartpole", config, output=tmp_path, check=stops_at(3))
    assert run.iteration == 3
    assert int(rows_of(tmp_path)[-1]["iteration"]) == 3
    assert checkpoint.load(tmp_path / "checkpoint.pt")["states"][0]["iteration"] == 3


def test_checkpoints_come_every_so_many_steps(tmp_path, monkeypatch):
    saved = []
    monkeypatch.setattr(checkpoint, "save", lambda path, content: saved.append(content["states"][0]["iteration"]))
    config = replaced(RUNS["kernels"][1], {"save_every": 4096})
    ppo.train("cartpole", config, output=tmp_path)
    assert saved == [4, 8, 10]
    saved.clear()
    ppo.train("cartpole", replaced(config, {"save_every": 0}), output=tmp_path)
    assert saved == [10]


def test_the_run_ends_with_the_last_whole_iteration_below_total_steps():
    config = replaced(RUNS["kernels"][1], {"total_steps": 3 * 1024 + 1023})
    assert ppo.train("cartpole", config).env_steps == 3 * 1024


def test_two_checks_in_succession_solve():
    checks = training.Checks("cartpole", solved=30.0)
    scores = iter([40.0, 20.0, 30.0, 31.0])
    checks.episodes.play = lambda policy: evaluation.Episodes(torch.tensor([next(scores)]).numpy(), None)
    run = SimpleNamespace(env_steps=0, policy=lambda: "random")
    assert [checks(run) for _ in range(4)] == [False, False, False, True]


def test_quiet_says_nothing_and_otherwise_a_line_is_said(capsys):
    ppo.train("cartpole", RUNS["kernels"][1])
    assert capsys.readouterr() == ("", "")
    ppo.train("cartpole", RUNS["kernels"][1], quiet=False)
    out, err = capsys.readouterr()
    assert out == "" and re.fullmatch(r"iteration 10, 10,240 of 10,240 steps \(100%\), .* steps/s.*\n", err)


def test_on_a_terminal_there_is_a_bar():
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    arguments = ("cartpole", "--total-steps", "10240", "--recipe", "solve")
    process = served.process(os.ttyname(follower), served.command_line, "ppo", *arguments, COLUMNS="200")
    threading.Thread(target=lambda: (process.join(), os.close(follower))).start()
    said = b""
    with contextlib.suppress(OSError):  # at the end of the process
        while part := os.read(leader, 4096):
            said += part
    os.close(leader)
    assert served.status(process) == 0
    assert b"100%|" in said and b"10.2k/10.2k" in said
    assert b"random" in said


# ---- interruption ----------------------------------------------------------------------------------------------------


def started(said: Path, folder: Path, *arguments: str, daemon: bool = False) -> BaseProcess:
    """The command line in a process of its own, once it has written a row."""
    arguments = "ppo", "cartpole", "--output", str(folder), *arguments
    process = served.process(said, served.command_line, *arguments, daemon=daemon)
    deadline = time.monotonic() + 40
    while not (folder / "progress.csv").exists() or len(rows_of(folder)) < 1:
        if process.exitcode is not None or time.monotonic() > deadline:
            process.kill()
            pytest.fail(said.read_text())
        time.sleep(0.05)
    return process


@pytest.mark.parametrize(
    ("part", "number"), [("count", 2**62 + 1), ("count", -2), ("rollout", 2**63 - 1), ("iteration", -5)]
)
def test_a_checkpoint_whose_counts_would_wrap_is_refused(tmp_path, part, number):
    """In 2^63 steps a clock would be negative; a run of two iterations gets nowhere near."""
    ppo.train("cartpole", ppo.config_of("cartpole", num_envs=8, total_steps=2048), output=tmp_path)
    path = tmp_path / "checkpoint.pt"
    content = checkpoint.load(path)
    state = content["states"][0]
    if part == "iteration":
        state[part], message = number, r"iteration=-5 must be in 0 \.\. \d+"
    else:
        (state["rollout"]["clock"] if part == "rollout" else state[part]).fill_(number)
        message = rf"state\['{part}'\].* holds {number}, must be in -1 \.\. {2**62}"
    checkpoint.save(path, content)
    with pytest.raises(ValueError, match=f"cannot be continued: {message}"):
        ppo.load(tmp_path)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_and_says_how_to_go_on(tmp_path, number, status):
    text, tmp_path = tmp_path / "said.txt", tmp_path / "a folder"
    process = started(text, tmp_path, "--total-steps", "99000000", "--stop-at", "600")
    os.kill(process.pid, number)
    assert served.status(process) == status
    path, said = tmp_path / "checkpoint.pt", text.read_text()
    steps = re.search(r"interrupted after ([\d,]+) steps; saved in", said)[1]
    assert said.endswith(
        f"; to go on: python -m lockstep.agents.ppo cartpole --device cpu --resume '{path}' --stop-at 600.0\n"
    )
    state = checkpoint.load(path)["states"][0]
    assert int(rows_of(tmp_path)[-1]["iteration"]) == state["iteration"] > 0
    assert int(steps.replace(",", "")) == 2048 * state["iteration"]


def test_a_training_in_a_pool_ends_with_the_pool(tmp_path):
    """A pool terminates its processes and waits for them: one that only noted the signal would wait for work."""
    process = started(tmp_path / "said.txt", tmp_path / "run", "--total-steps", "99000000", daemon=True)  # as a pool's
    process.terminate()
    assert served.status(process) == -signal.SIGTERM


def test_a_second_ctrl_c_ends_at_once():
    before = signal.getsignal(signal.SIGINT)
    with training.interruption() as received:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)  # as soon as this, it means the same
        assert received == [signal.SIGINT]
        time.sleep(training.PATIENCE_S + 0.1)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupted_run_without_a_folder_says_that_nothing_was_kept():
    class Signalled(ppo.PPO):
        def iterate(self):
            signal.raise_signal(signal.SIGTERM)
            super().iterate()

    with pytest.raises(
        training.Interrupted, match="after 1,024 steps; nothing was kept, for no output folder"
    ) as error:
        training.train(Signalled, *RUNS["kernels"])
    assert error.value.number == signal.SIGTERM and error.value.path is None


# ---- the command line ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["cartpol"], "no environment 'cartpol'; did you mean 'cartpole'?"),
        (["cartpole", "--recipe", "solv"], "recipe='solv' must be one of 'cleanrl', 'continuous', 'solve', 'wide'"),
        (["cartpole", "--gamma", "2"], "gamma=2.0 must lie in [0, 1]"),
        (["cartpole", "--total-steps", "5"], "total_steps=5 must be at least one iteration, num_envs x horizon = 2048"),
        (["cartpole", "--device", "gpu"], "device='gpu' must be 'cpu', 'cuda' or 'cuda:<index>'"),
        (["cartpole", "--minibatches", "7"], "minibatches=7 must divide the 2048 rows that a learner has"),
        (["cartpole", "--resume", "nowhere/checkpoint.pt"], "checkpoint nowhere/checkpoint.pt: there is no such file"),
        (["cartpole", "--output", "README.md"], "output='README.md' is a file; it must be a folder"),
        (["cartpole", "--recipe", ""], "recipe='' must be one of"),
        (["cartpole", "--options", "gravity=0.1,robots=3"], "has no parameter or option 'robots'"),
        (["cartpole", "--precision", "tf32"], "precision='tf32' needs device='cuda'"),
        (["cartpole", "--tensorboard"], "tensorboard=True writes into the output folder, so it needs output="),
    ],
)
def test_what_is_wrong_is_said_in_one_line(monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(ROOT)
    status, out, _ = main(monkeypatch, capsys, *arguments)
    assert status.startswith("error: ") and said in status and "\n" not in status
    assert out == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "the following arguments are required: environment"),
        (["cartpole", "--num-ens", "3"], "no option --num-ens; did you mean '--num-envs'?"),
        (["cartpole", "--num-env=3"], "no option --num-env=3; did you mean '--num-envs'?"),
        (["cartpole", "--epochs", "many"], "argument --epochs: invalid int value: 'many'"),
        (["cartpole", "--output", ""], "argument --output: a path must not be empty"),
        (["cartpole", "--resume", ""], "argument --resume: a path must not be empty"),
        (["cartpole", "--episodes", "-1"], "argument --episodes: '-1' must be a whole number of at least 0"),
        (["cartpole", "--stop-at", "nan"], "argument --stop-at: 'nan' must be a finite number"),
        (["cartpole", "pendulum"], "'pendulum' belongs to no option"),
    ],
)
def test_what_is_no_option_is_said_in_one_line(monkeypatch, capsys, arguments, said):
    status, _, err = main(monkeypatch, capsys, *arguments)
    assert status == 2
    assert err == f"error: {said} (--help lists what there is)\n"


def test_help_names_environments_recipes_and_every_setting(monkeypatch, capsys):
    status, out, _ = main(monkeypatch, capsys, "--help")
    assert status == 0
    for word in (*envs.names(), *ppo.RECIPES, "--resume", "--num-envs", "--no-bootstrap"):
        assert word in out, word
    for said in ("equal parts of each pass [4]", "[off]", "[on]", "[64 64]", "[none]", "[0.00025]"):
        assert said in out, said
    assert "environment steps between checks, which --stop-at asks for [8192]" in " ".join(out.split())


def test_a_run_ends_with_scores_in_the_original(monkeypatch, capsys, tmp_path):
    arguments = ("cartpole", "--total-steps", "20480", "--output", str(tmp_path), "--quiet", "--threads", "1")
    status, out, err = main(monkeypatch, capsys, *arguments)
    assert (status, err) == (0, "")
    first, *rows = out.splitlines()
    assert first == "20,480 steps; mean return of 100 episodes in the original:"
    scores = {row.split()[0]: float(row.split()[1]) for row in rows}
    assert list(scores) == ["greedy", "sampled", "random"]
    assert 15 < scores["random"] < 30  # some 22 by anyone's count
    assert scores["greedy"] > scores["sampled"] > 2 * scores["random"]
    # A finished run that is resumed has nothing to do; its settings and its folder are known.
    assert main(monkeypatch, capsys, "cartpole", "--resume", str(tmp_path / "checkpoint.pt"), "--quiet") == (0, out, "")
    assert main(monkeypatch, capsys, "cartpole", "--resume", str(tmp_path), "--episodes", "0") == (0, "", "")
    status, _, _ = main(monkeypatch, capsys, *arguments)
    assert status.endswith("already holds a checkpoint; resume it, or choose another folder")
    status, _, _ = main(monkeypatch, capsys, "cartpole", "--resume", str(tmp_path / "checkpoint.pt"), "--gamma", "0.9")
    assert "gamma is 0.99 in the checkpoint and 0.9 here; only" in status


def test_a_folder_that_another_training_writes_into_is_left_alone(tmp_path, monkeypatch, capsys):
    with files.hold(tmp_path / "training.lock"):
        arguments = ("cartpole", "--total-steps", "2048", "--output", str(tmp_path), "--quiet")
        status, _, _ = main(monkeypatch, capsys, *arguments)
    assert status.endswith(f"is being written by another training ({HERE}); choose another folder")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("resumes", [False, True])
def test_a_training_that_ends_while_another_is_made_keeps_its_files(tmp_path, resumes):
    config = ppo.config_of("cartpole", num_envs=8, horizon=16, total_steps=256, threads=1)
    words = {"output": tmp_path, "resume": tmp_path if resumes else None}
    if resumes:
        ppo.train("cartpole", config, output=tmp_path)
    left = {}

    class Slow(ppo.PPO):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            ppo.train("cartpole", config, **words)
            left.update({file: file.read_bytes() for file in tmp_path.iterdir()})

    with pytest.raises(ValueError, match="another training has written a checkpoint there meanwhile; resume it, or"):
        training.train(Slow, "cartpole", config, **words)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == left
    assert set(map(Path, left)) == {tmp_path / name for name in ("checkpoint.pt", "progress.csv", "config.yaml")}


def test_a_checkpoint_whose_settings_are_not_allowed_is_named(tmp_path, monkeypatch, capsys):
    ppo.train("cartpole", ppo.config_of("cartpole", num_envs=8, horizon=16, total_steps=256), output=tmp_path)
    path = tmp_path / "checkpoint.pt"
    content = checkpoint.load(path)
    checkpoint.save(path, content | {"config": content["config"] | {"num_envs": "64"}})
    status, _, _ = main(monkeypatch, capsys, "cartpole", "--resume", str(path))
    assert status.startswith(f"error: checkpoint {path} does not fit: num_envs='64'")


def test_stop_at_ends_a_run_that_is_good_enough(monkeypatch, capsys):
    arguments = ("cartpole", "--total-steps", "204800", "--stop-at", "9", "--eval-every", "2048", "--quiet")
    arguments += ("--hidden", "16", "16")
    status, out, _ = main(monkeypatch, capsys, *arguments, "--episodes", "3")
    assert status == 0 and out.startswith("4,096 steps; mean return of 3 episodes in the original:\n")
    assert main(monkeypatch, capsys, *arguments, "--episodes", "0") == (0, "", "")
