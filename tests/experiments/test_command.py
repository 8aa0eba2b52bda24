import sys

import pytest

import envs
from experiments import command


def test_a_log_gets_one_plain_line_per_item(capsys):
    seen = list(command.progress(["a", "b"], str.upper))
    assert seen == ["a", "b"]
    assert capsys.readouterr().err == "[1/2] A\n[2/2] B\n"


def test_a_terminal_gets_a_bar(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert list(command.progress(["a", "b"], str.upper)) == ["a", "b"]
    assert "2/2" in capsys.readouterr().err


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
    options = command.parser("ceilings", "", environment=False).parse_args(["--commit", "0123abcd"])
    assert options.commit == "0123abcd"


def test_the_defaults_are_quick_and_the_results_folder(capsys):
    assert command.parser("throughput", "").parse_args(["cartpole"]).scale == "quick"
    assert str(command.output_path("throughput", "cartpole")) == "results/cartpole/throughput.csv"
    assert str(command.output_path("ceilings", None)) == "results/ceilings.csv"
    with pytest.raises(SystemExit) as ended:
        command.parser("throughput", "").parse_args(["--help"])
    assert ended.value.code == 0
    assert "results/<environment>/throughput.csv" in capsys.readouterr().out
