import contextlib
import gc
import re
import sys
import weakref
from dataclasses import fields

import pandas as pd
import pytest
import torch

from lockstep import envs
from lockstep.experiments import command, config, throughput
from lockstep.experiments import run as command_line
from lockstep.experiments.bench import ladder, statistics
from lockstep.experiments.bench.ladder import Group
from lockstep.experiments.bench.rungs import RUNGS
from lockstep.experiments.config import Settings
from lockstep.experiments.ledger import provenance, results
from tests.experiments.test_rungs import group, settings_of


@pytest.fixture
def settings():
    return settings_of("cartpole")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("cartpole", {"rungs": {"port-gpu": ()}}, "rungs: unknown key 'port-gpu'; did you mean 'port-cpu'?"),
        ("vehicular_edge", {"rungs": {"port-cpu": ({"obs": ("view",)},)}}, "rungs.port-cpu: obs 'view' needs observa"),
        (
            "vehicular_edge",
            {"options": {"trafic": "dense"}},
            "options: Vehicular edge computing has no parameter or op",
        ),
        ("vehicular_edge", {"options": {"preset": "physicl"}}, "options: preset='physicl' is unknown; Vehicular edge"),
        ("cartpole", {"options": {"gravity": "high"}}, "options: gravity='high' must be a number"),
        ("cartpole", {"fixed_policy": {"weights": ((1,),), "bias": (0,)}}, "fixed_policy.weights: 2 rows of 4 numbers"),
    ],
)
def test_what_a_ladder_has_not_is_named(name, change, message):
    plain = config.load(name, "quick").plain()
    plain["throughput"] |= change
    with pytest.raises(config.ConfigError, match=re.escape(f"{name}.yaml: throughput.{message}")):
        throughput.check(name, Settings(plain))


@pytest.mark.parametrize("name", envs.names())
def test_what_every_settings_file_asks_of_its_ladder_is_there(name):
    for scale in ("quick", "full"):
        throughput.check(name, config.load(name, scale))


@pytest.mark.parametrize("name", envs.names())
@pytest.mark.parametrize("scale", ["quick", "full"])
def test_every_target_names_groups_that_are_measured(name, scale):
    """Of numerator and denominator alike, or the target could have no number however much is measured."""
    settings = config.load(name, scale)
    for target in settings.throughput.get("targets", ()):
        for selector in (target[side] for side in ("numerator", "denominator") if side in target):
            found = throughput.groups(selector["rung"], RUNGS[selector["rung"]], settings)
            assert len(statistics.fitting(pd.DataFrame(map(vars, found)), selector)), selector


@pytest.mark.parametrize("name", envs.names())
def test_what_headlines_measure_gives_every_target_its_number(name):
    """As `statistics.targets` reads the rows, whatever order they come in; and nothing is measured for none of them."""
    settings, devices = config.load(name, "quick"), ["cuda", "cpu"]
    every = throughput.planned(name, settings, devices)
    chosen = [one for device in devices for one in throughput.headline(every, settings, [device])]
    assert len(set(chosen)) == len(chosen) < len(every)
    timed = {"dtype": "float32", "bytes_per_step": 1.0, "steps": 1000, "wall_s": 0.25, "cpu_s": 0.25}
    frame = pd.DataFrame([{"environment": name, **vars(one), **timed} for one in chosen])
    assert "not measured" not in set(statistics.targets(frame, settings.throughput.targets)["status"])


def test_headlines_and_verdicts_read_a_selector_alike(settings, monkeypatch):
    """Without a group on all cores, the most threads that were asked for are "all"; an unknown column is an error."""
    wanted = {"rung": "port-cpu", "threads": "all"}
    monkeypatch.setattr(provenance, "core_count", lambda: 8)
    every = [group("port-cpu", threads=1), group("port-cpu", threads=4), group("original", 1, threads=8)]
    aimed = Settings({"throughput": {"targets": [{"numerator": wanted}]}})
    assert throughput.headline(every, aimed, ["cpu"]) == [every[1]]
    aimed = Settings({"throughput": {"targets": [{"numerator": wanted | {"sheds": 1}}]}})
    with pytest.raises(ValueError, match="a selector names the column 'sheds'"):
        throughput.headline(every, aimed, ["cpu"])


def test_a_rung_without_sweeps_takes_the_lists_of_its_scale(monkeypatch):
    monkeypatch.setattr(provenance, "core_count", lambda: 8)
    scale = {"throughput": {"num_envs": [64, 1], "blocks": 10, "fused_steps": [8, 32]}}
    found = throughput.groups("port-cpu-fused", RUNGS["port-cpu-fused"], Settings(scale))
    assert [(one.fused_steps, one.threads, one.num_envs) for one in found] == [
        *[(8, 1, 1), (8, 1, 64), (8, 8, 1), (8, 8, 64)],
        *[(32, 1, 1), (32, 1, 64), (32, 8, 1), (32, 8, 64)],
    ]
    assert {(one.policy, one.obs, one.device) for one in found} == {("random", "copy", "cpu")}


def test_an_empty_list_leaves_a_rung_out_and_what_does_not_vary_is_measured_once():
    sweeps = {"port-cpu": [], "original": [{"num_envs": [1, 8]}, {"policies": ["random", "fixed"]}]}
    scale = {"num_envs": [64], "blocks": 10, "fused_steps": [8], "fixed_policy": {}, "rungs": sweeps}
    assert throughput.groups("port-cpu", RUNGS["port-cpu"], Settings({"throughput": scale})) == []
    original = throughput.groups("original", RUNGS["original"], Settings({"throughput": scale}))
    assert [(one.num_envs, one.policy) for one in original] == [(1, "random"), (1, "fixed")]


def test_a_fixed_policy_that_is_asked_for_must_be_given():
    sweeps = {"port-cpu": [{"policies": ["fixed"]}]}
    scale = {"num_envs": [64], "blocks": 10, "fused_steps": [8], "rungs": sweeps}
    with pytest.raises(config.ConfigError, match="port-cpu asks for a fixed policy; fixed_policy is missing"):
        throughput.groups("port-cpu", RUNGS["port-cpu"], Settings({"throughput": scale}))


def test_one_core_is_measured_once(monkeypatch):
    monkeypatch.setattr(provenance, "core_count", lambda: 1)
    scale = {"throughput": {"num_envs": [64], "blocks": 10, "fused_steps": [8]}}
    assert len(throughput.groups("port-cpu", RUNGS["port-cpu"], Settings(scale))) == 1


def test_the_note_s_loop_always_pushes_one_way():
    settings = config.load("cartpole", "quick")
    for rung in ("port-cuda-constant", "port-cuda-no-reset"):
        assert [(one.num_envs, one.policy) for one in throughput.groups(rung, RUNGS[rung], settings)] == [
            (8192, "constant")
        ]
        assert RUNGS[rung].missing("cartpole", settings) is None
        assert "no constant_action" in RUNGS[rung].missing("pendulum", settings_of("pendulum"))


def test_a_batch_beyond_the_memory_is_left_out_with_its_size(monkeypatch, settings):
    """2^20 environments of at least 60 bytes, and 16 actions each, need more than 0.1 GiB and less than 1."""
    large = group("port-cpu", num_envs=2**20)
    monkeypatch.setattr(ladder, "available_memory", lambda device: 2**30)
    assert throughput.too_large("cartpole", large, settings) is None
    monkeypatch.setattr(ladder, "available_memory", lambda device: 2**30 // 10)
    reason = throughput.too_large("cartpole", large, settings)
    assert "GiB of the host's memory, 80% of 0.1 GiB free may be used" in reason


def test_each_memory_is_held_against_what_is_free_of_it(monkeypatch):
    monkeypatch.setattr(ladder, "available_memory", lambda device: 2**33 if device.type == "cuda" else 2**31)
    assert ladder.too_large({"cuda": 6 * 2**30, "cpu": 1.5 * 2**30}) is None
    found = ladder.too_large({"cuda": 6 * 2**30, "cpu": 1.75 * 2**30})
    assert found == "it needs 1.8 GiB of the host's memory, 80% of 2.0 GiB free may be used"
    found = ladder.too_large({"cuda": 7 * 2**30, "cpu": 2**30})
    assert found == "it needs 7.0 GiB of the GPU's memory, 80% of 8.0 GiB free may be used"


def test_the_clock_counts_memory_that_a_loop_takes_and_lets_go_of_it():
    """64 MiB of ones; the clock's own lists and torch's threads take less than 16."""
    held = []
    pieces = [torch.ones(2**15) for _ in range(2**10)]  # 128 MiB off the heap, whose pages malloc keeps
    last = pieces[-1]
    del pieces

    @contextlib.contextmanager
    def loop_of():
        ones = torch.ones(2**24)
        held.append(weakref.ref(ones))
        yield ladder.Loop(lambda: ones.sum(), 10, "float32")

    found = ladder.clocked(loop_of(), "cpu", blocks=6, block_s=0.005)
    assert abs(found.memory_mib - 64) < 16
    assert len(found.blocks) == 6 and all(0.005 <= block.wall_s < 0.1 for block in found.blocks)
    assert {block.steps % 10 for block in found.blocks} == {0}
    assert held[0]() is None and last.numel()


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Run the command line in this process; rows come from a fake that takes no time."""
    monkeypatch.chdir(tmp_path)
    measured = []

    def fake(name, wanted, settings):
        measured.append(wanted.rung)
        same = {"environment": name, **vars(wanted), "dtype": "float32", "bytes_per_step": None}
        timed = {"steps": 4000 * wanted.num_envs, "wall_s": 0.25, "cpu_s": 0.5, "first_call_s": 1.0, "memory_mib": 2.0}
        timed["preset"] = None
        return [{**same, "block": block, **timed} for block in range(settings.throughput.blocks)]

    monkeypatch.setattr(throughput, "measure", fake)

    def run(*arguments):
        output = ["--output", "part.csv"] if "--rungs" in arguments else []
        monkeypatch.setattr(sys, "argv", ["run", "throughput", *arguments, *output])
        command.run(command_line.main)
        return list(measured)

    run.measured = measured
    return run


def test_the_command_line_writes_rows_and_prints_the_targets(run, tmp_path, capsys):
    run("cartpole", "--devices", "cpu", "--rungs", "original", "port-cpu")
    frame, described = results.read(tmp_path / "part.csv")
    assert list(frame.columns) == throughput.COLUMNS
    assert set(frame["rung"]) == {"original", "port-cpu"}
    assert described["config"]["asked"] == {"devices": ["cpu"], "rungs": ["original", "port-cpu"]}
    printed = capsys.readouterr().out
    # 8192 environments over one at equal seconds per step; 8192 * 4000 steps in 0.5 CPU-seconds.
    assert "reached      step at 8192 environments, all cores, over Gymnasium's CartPole in one" in printed
    assert "process: 8,192 [8,192, 8,192], floor 2,000 x" in printed
    assert "missed       step at 8192 environments, contiguous observations, per core: 6.5536e+07" in printed
    assert "not measured step at 8192 environments, all cores, over Gymnasium's CartPoleVectorEnv" in printed


def test_an_interrupted_command_continues(run, monkeypatch, capsys):
    whole = throughput.measure

    def interrupted(name, wanted, settings):
        if wanted.rung == "port-cpu":
            raise KeyboardInterrupt
        return whole(name, wanted, settings)

    monkeypatch.setattr(throughput, "measure", interrupted)
    with pytest.raises(SystemExit) as stopped:
        run("cartpole", "--rungs", "original", "port-cpu")
    assert stopped.value.code == 130
    del stopped  # and with it the frames that hold the journal's lock, as the end of a process would
    gc.collect()
    before = len(run.measured)
    monkeypatch.setattr(throughput, "measure", whole)
    after = run("cartpole", "--rungs", "original", "port-cpu")[before:]
    assert before > 0
    assert set(after) == {"port-cpu"}
    assert f"continuing after {before} finished groups" in capsys.readouterr().err


@pytest.fixture
def with_gpu(monkeypatch):
    """As on a machine with a GPU, on which nothing is run."""
    monkeypatch.setattr(envs, "cuda_available", lambda: True)
    monkeypatch.setattr(throughput, "too_large", lambda *group: None)


def measured_of(path):
    frame, described = results.read(path)
    keys = [field.name for field in fields(Group)]
    return [Group(*row) for row in frame[keys].drop_duplicates().itertuples(index=False)], described


@pytest.mark.usefixtures("with_gpu")
def test_headlines_are_a_part_that_a_later_run_completes(run, tmp_path, capsys):
    """Group after group stands in the order of a whole run, whenever it was measured, and none is measured twice."""
    output = tmp_path / "results" / "cartpole" / "throughput.csv"
    settings, sizes = config.load("cartpole", "quick"), []
    every = throughput.planned("cartpole", settings, ["cpu", "cuda"])
    for device in ("cuda", "cpu"):
        run("cartpole", "--headline", "--devices", device)
        found, described = measured_of(output)
        sizes.append(len(found))
        assert [one.label for one in found] == [one.label for one in every if one.label not in described["missing"]]
    first = run.measured[: sizes[0]]
    assert set(first) == {"port-cuda-graph", "port-cuda-fused", "port-cuda-trajectory", "port-cuda-mlp"}
    assert not any("cuda" in rung for rung in run.measured[sizes[0] :])
    run("cartpole")
    found, described = measured_of(output)
    assert [one.label for one in found] == [one.label for one in every]
    assert "missing" not in described and "groups" not in described
    assert len(run.measured) == len(every)
    assert f"continuing after {sizes[1]} groups, {len(every) - sizes[1]} are missing" in capsys.readouterr().err


def test_a_piece_judges_no_target_of_which_something_is_missing(run, tmp_path, monkeypatch, capsys):
    """Once all that is named of the CPU is there, its targets are judged, whatever else is missing."""
    monkeypatch.setattr(envs, "cuda_available", lambda: False)
    monkeypatch.setattr(provenance, "core_count", lambda: 2)
    planned, settings = throughput.planned, config.load("cartpole", "quick")
    run("cartpole", "--headline")
    assert (
        "step at 8192 environments, all cores, over Gymnasium's CartPole in one process: 8," in capsys.readouterr().out
    )
    frame, described = results.read(tmp_path / "results" / "cartpole" / "throughput.csv")
    assert results.missing_groups(described)
    both = next(one for one in planned("cartpole", settings, ["cpu"]) if one.rung == "port-cpu" and one.threads == 2)
    lines = throughput.report(frame[frame["threads"] == 1], settings, [vars(both)]).splitlines()
    assert [line for line in lines if "not measured" in line and "all cores, over Gymnasium's CartPole in" in line]


def test_only_the_groups_that_are_named_are_measured_in_turn(run, tmp_path):
    labels = [one.label for one in throughput.planned("pendulum", config.load("pendulum", "quick"), ["cpu"])]
    output = tmp_path / "results" / "pendulum" / "throughput.csv"
    run("pendulum", "--devices", "cpu", "--only", labels[2], labels[0])
    assert [one[0] for one in results.read(output)[1]["groups"]] == [labels[0], labels[2]]
    assert set(results.read(output)[1]["missing"]) == {*labels} - {labels[0], labels[2]}
    assert [label.split()[0] for label in (labels[2], labels[0])] == run.measured
    run("pendulum", "--devices", "cpu")
    assert "missing" not in results.read(output)[1] and len(run.measured) == len(labels)
    with pytest.raises(SystemExit, match="--only: there is no group 'port'; known: "):
        run("pendulum", "--devices", "cpu", "--only", "port")


@pytest.mark.parametrize(
    ("seconds", "options", "measured"),
    [
        ([400, 50, 100, 1], [], 2),  # 450 s of 480 are over, and 100 more would end 70 after them
        ([400, 50, 80, 1], [], 3),
        ([700, 1], [], 1),  # or such a group would never be measured
        ([700, 1], ["--strict-minutes"], 0),
        ([470, 60, 20], ["--strict-minutes"], 2),
    ],
)
def test_no_group_is_begun_that_is_predicted_to_end_too_late(run, tmp_path, monkeypatch, seconds, options, measured):
    now, planned, fake = [0.0], throughput.planned, throughput.measure
    took = {}

    def measure(name, wanted, settings):
        now[0] += took[wanted.label]
        return fake(name, wanted, settings)

    def predicted(name, settings, groups):
        took.update(zip([one.label for one in groups], seconds, strict=True))
        return list(took.items())

    monkeypatch.setattr(throughput, "planned", lambda *options: planned(*options)[: len(seconds)])
    monkeypatch.setattr(throughput, "in_order", lambda groups, *options: groups)
    monkeypatch.setattr(throughput, "predicted", predicted)
    monkeypatch.setattr(throughput, "measure", measure)
    monkeypatch.setattr(command.time, "monotonic", lambda: now[0])
    with contextlib.suppress(SystemExit):
        run("pendulum", "--devices", "cpu", "--minutes", "8", *options)
    assert len(run.measured) == measured


def test_out_of_time_what_is_measured_is_a_whole_result(run, tmp_path, monkeypatch):
    whole, output = throughput.measure, tmp_path / "results" / "pendulum" / "throughput.csv"
    deadline = []

    def slow(name, wanted, settings):
        if len(run.measured) == 2:
            deadline.append(monkeypatch.setattr(command.time, "monotonic", lambda: float("inf")))
        return whole(name, wanted, settings)

    monkeypatch.setattr(throughput, "measure", slow)
    with pytest.raises(SystemExit) as ended:
        run("pendulum", "--minutes", "5", "--devices", "cpu")
    assert ended.value.code == command.NOT_FINISHED
    found, described = measured_of(output)
    assert len(found) == 3 == len(described["groups"]) and described["missing"]
    absent = [Group(**fields) for fields in results.missing_groups(described)]
    assert [one.label for one in absent] == described["missing"]
    assert not list(output.parent.glob("*partial*"))
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pendulum", "--headline", "--rungs", "original"], "--headline chooses the rungs itself; leave --rungs out"),
        (["cartpol"], "unknown environment 'cartpol', no experiments/*/cartpol.yaml; did you mean 'cartpole'?"),
        (
            ["cartpole", "--rungs", "port-gpu"],
            "--rungs: there is no rung 'port-gpu'; did you mean 'port-cpu'?",
        ),
        (["cartpole", "--devices", "cuda"], "--devices cuda: torch finds no CUDA device here"),
        (["cartpole", "--devices", "cpu", "--rungs", "port-cuda"], "nothing was measured"),
    ],
)
def test_mistakes_end_in_one_sentence(run, monkeypatch, arguments, message):
    monkeypatch.setattr(envs, "cuda_available", lambda: False)
    with pytest.raises(SystemExit) as ended:
        run(*arguments)
    assert str(ended.value).startswith("error: ")
    assert message in str(ended.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cartpole", "--output", "rows.txt"], "'rows.txt' must end in .csv"),
        (["cartpole", "--scale", "large"], "invalid choice: 'large'"),
        (["cartpole", "--devices", "tpu"], "invalid choice: 'tpu'"),
        ([], "the following arguments are required: environment"),
    ],
)
def test_wrong_options_are_named(run, capsys, arguments, message):
    with pytest.raises(SystemExit) as ended:
        run(*arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_a_missing_compiler_ends_in_one_sentence(run, monkeypatch):
    def refuse(*arguments):
        raise throughput.envs.kernels.compile.CompilerError("no C++ compiler found")

    monkeypatch.setattr(throughput, "measure", refuse)
    with pytest.raises(SystemExit, match="error: no C"):
        run("cartpole", "--rungs", "port-cpu")


def test_other_errors_keep_their_traceback(run, monkeypatch):
    def broken(*arguments):
        raise ZeroDivisionError

    monkeypatch.setattr(throughput, "measure", broken)
    with pytest.raises(ZeroDivisionError):
        run("cartpole", "--rungs", "port-cpu")


def test_a_part_does_not_take_the_place_of_a_whole_run(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["run", "throughput", "cartpole", "--rungs", "port-cpu"])
    with pytest.raises(SystemExit, match="--rungs measures a part; say where with --output, since results/cartpole"):
        command.run(command_line.main)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_rung_is_an_error_before_anything_runs(run):
    with pytest.raises(SystemExit, match="--rungs: there is no rung 'portcpu'; did you mean 'port-cpu'"):
        run("cartpole", "--rungs", "original", "portcpu")
    assert run.measured == []
