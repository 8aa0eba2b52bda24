import contextlib
import math
import os
import signal
import sys

import pytest

from lockstep import envs
from lockstep.experiments import command, run
from lockstep.experiments.experiment import Experiment, Plan, each
from lockstep.experiments.ledger import results


def test_a_log_gets_one_plain_line_per_item(capsys):
    seen = list(command.progress(["a", "b"], str.upper))
    assert seen == ["a", "b"]
    assert capsys.readouterr().err == "[1/2] A\n[2/2] B\n"


def test_a_terminal_gets_a_bar(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert list(command.progress(["a", "b"], str.upper)) == ["a", "b"]
    assert "2/2" in capsys.readouterr().err


def test_after_the_deadline_nothing_more_is_handed_out(capsys, monkeypatch):
    clock = iter([10.0, 19.0, 20.0])
    monkeypatch.setattr(command.time, "monotonic", lambda: next(clock))
    handed_out = command.progress(["a", "b", "c", "d"], str.upper, deadline=20.0)
    assert [next(handed_out), next(handed_out)] == ["a", "b"]
    with pytest.raises(command.OutOfTime, match="^C is next, 2 are left$"):
        next(handed_out)


def test_a_deadline_that_passes_with_the_last_item_is_no_matter(monkeypatch):
    monkeypatch.setattr(command.time, "monotonic", lambda: 1.0)
    handed_out = command.progress(["a"], str.upper, deadline=2.0)
    assert next(handed_out) == "a"
    monkeypatch.setattr(command.time, "monotonic", lambda: 3.0)
    assert list(handed_out) == []


def test_minutes_are_counted_from_now_and_without_them_there_is_no_end(monkeypatch):
    monkeypatch.setattr(command.time, "monotonic", lambda: 100.0)
    assert run.parser("throughput").parse_args(["throughput", "cartpole", "--minutes", "1.5"]).deadline == 190.0
    assert run.parser("throughput").parse_args(["throughput", "cartpole"]).deadline == math.inf


@pytest.mark.parametrize("text", ["0", "-1", "nan", "soon"])
def test_minutes_are_a_number_above_0(capsys, text):
    with pytest.raises(SystemExit) as ended:
        run.parser("throughput").parse_args(["throughput", "cartpole", f"--minutes={text}"])
    assert ended.value.code == 2
    assert f"'{text}' is no number of minutes above 0" in capsys.readouterr().err


def raises(error):
    def main():
        raise error

    return main


def test_a_run_out_of_time_ends_with_a_status_of_its_own(capsys):
    with pytest.raises(SystemExit) as ended:
        command.run(raises(command.OutOfTime("B is next, 2 are left")))
    assert ended.value.code == 75
    said = "not finished, the time is over: B is next, 2 are left; the same command continues from here\n"
    assert capsys.readouterr().err == said


def test_a_request_to_terminate_is_an_interrupt(capsys):
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        command.run(lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert ended.value.code == 130
    assert "interrupted; the same command continues from here" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize(
    ("present", "asked", "found"),
    [
        (False, None, ["cpu"]),
        (True, None, ["cpu", "cuda"]),
        (True, ["cuda"], ["cuda"]),
        (True, ["cuda", "cpu"], ["cpu", "cuda"]),
        (True, ["cpu"], ["cpu"]),
    ],
)
def test_devices_are_those_asked_for_or_all_present(monkeypatch, present, asked, found):
    monkeypatch.setattr(envs, "cuda_available", lambda: present)
    assert command.devices(asked) == found


def test_the_commit_is_passed_on():
    options = run.parser("ceilings").parse_args(["ceilings", "--commit", "0123abcd"])
    assert options.commit == "0123abcd"


def test_the_defaults_are_quick_and_the_results_folder(capsys):
    assert run.parser("throughput").parse_args(["throughput", "cartpole"]).scale == "quick"
    assert str(command.output_path("throughput", "cartpole")) == "results/cartpole/throughput.csv"
    assert str(command.output_path("ceilings", None)) == "results/ceilings.csv"
    with pytest.raises(SystemExit) as ended:
        run.parser("throughput").parse_args(["throughput", "--help"])
    assert ended.value.code == 0
    assert "results/<environment>/throughput.csv" in capsys.readouterr().out


@pytest.fixture
def ended(monkeypatch, tmp_path):
    """The provenance of a run of groups: of each the share of a core it had and whether it passes, or None.

    At None the time is over.
    """
    output = tmp_path / "ceilings.csv"

    def ended(groups, *arguments, **options):
        measured = []

        def rows(group):
            if groups[group] is None:
                raise command.OutOfTime
            had, passes = groups[group]
            measured.append(group)
            return [{"group": group, "passes": passes, "had": had}]

        experiment = Experiment(
            ["group", "passes"],
            lambda request: Plan({group: group for group in groups}, each(rows), {}),
            lambda frame, *_: f"{len(frame)} rows",
            lambda frame: bool(frame["passes"].all()),
            **options,
        )
        monkeypatch.setattr(run, "experiment_of", lambda name: experiment)
        monkeypatch.setattr(sys, "argv", ["run", "ceilings", "--output", str(output), *arguments])
        command.run(run.main)
        return results.read(output)[1] | {"measured": measured}

    return ended


@pytest.mark.parametrize(
    ("groups", "passed"),
    [
        ({"a": (1.0, True), "b": (0.3, False)}, True),
        ({"a": (1.0, False), "b": (0.3, True)}, False),
        ({"a": (0.3, False)}, None),
    ],
)
def test_a_verdict_is_of_what_was_not_disturbed(ended, groups, passed):
    assert ended(groups).get("passed") is passed


def test_what_was_disturbed_is_measured_again_once_in_each_run(ended):
    busy, quiet = (0.3, True), (1.0, True)
    assert ended({"a": busy, "b": quiet})["measured"] == ["a", "b"]
    found = ended({"a": busy, "b": quiet})
    assert found["measured"] == ["a"] and [one["group"] for one in found["busy"]] == ["a"]
    found = ended({"a": quiet, "b": quiet})
    assert found["measured"] == ["a"] and "busy" not in found


def test_without_time_to_measure_again_a_result_is_whole(ended, capsys):
    groups = {"a": (0.3, True), "b": (1.0, True)}
    ended(groups)
    found = ended(groups, "--minutes", "1e-9")
    assert found["measured"] == [] and [one["group"] for one in found["busy"]] == ["a"] and found["passed"]
    assert "disturbed before, and no time to measure again: ceilings: a is next" in capsys.readouterr().err


def test_what_is_missing_is_measured_before_what_was_disturbed(ended):
    with pytest.raises(SystemExit):
        ended({"a": (0.3, True), "b": None}, in_pieces=True)
    assert ended({"a": (1.0, True), "b": (1.0, True)}, in_pieces=True)["measured"] == ["b", "a"]


def files_beside(output):
    return {file.name for file in output.parent.iterdir()} - {"ceilings.lock"}


def test_rows_that_fail_are_put_beside_a_good_result_until_some_pass(ended, tmp_path, capsys):
    output, both = tmp_path / "ceilings.csv", {"ceilings.csv", "ceilings.json"}
    good, bad = {"a": (1.0, True)}, {"a": (1.0, False)}
    ended(good, "--aside")
    before = [(tmp_path / name).read_bytes() for name in sorted(both)]
    for options in ({}, {"failure": "they differ"}):
        with pytest.raises(SystemExit) as left:
            ended(bad, "--aside", **options)
        assert left.value.code == f"ceilings: {options.get('failure', 'it fails, and what was there before does not')}"
        assert [(tmp_path / name).read_bytes() for name in sorted(both)] == before
        assert files_beside(output) == both | {"ceilings.failed.csv", "ceilings.failed.json"}
        assert results.read(tmp_path / "ceilings.failed.csv")[1]["passed"] is False
    assert ended(good, "--aside")["passed"] and files_beside(output) == both


@pytest.mark.parametrize(
    ("arguments", "failure", "place"),
    [(["--aside"], "they differ", "ceilings.failed"), (["--aside"], None, "ceilings"), ([], "they differ", "ceilings")],
)
def test_where_nothing_good_is_there_rows_are_put_aside_that_end_in_an_error(
    ended, tmp_path, arguments, failure, place
):
    with contextlib.suppress(SystemExit):
        ended({"a": (1.0, False)}, *arguments, failure=failure)
    assert files_beside(tmp_path / "ceilings.csv") == {f"{place}.csv", f"{place}.json"}
