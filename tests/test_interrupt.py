"""Ctrl-C on the command lines, from their first import on."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep import interrupt

ROOT = Path(__file__).parents[1]
# Interrupts the process when a package is looked for that only commands import, not Python itself.
INTERRUPTING = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background jobs ignore

class Interrupting:
    def find_spec(name, path=None, target=None):
        if name == os.environ["INTERRUPT_AT"]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting)
"""


@pytest.fixture
def interrupted(tmp_path):
    """A function that runs Python with some words until it looks for a package, and gives status and stderr."""
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTING)

    def run(at: str, *words: str) -> tuple[int, str]:
        given = os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}", "INTERRUPT_AT": at}
        ended = subprocess.run([sys.executable, *words], env=given, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        return ended.returncode, ended.stderr

    return run


@pytest.mark.parametrize(
    ("words", "at"),
    [
        (["-m", "lockstep.experiments.run", "throughput", "cartpole"], "lockstep.experiments"),
        (["-m", "lockstep.experiments.run", "throughput", "cartpole"], "yaml"),
        (["-X", "utf8", "-m", "lockstep.experiments.record", "--machine", "one"], "yaml"),
        (["-mlockstep.paper.build"], "nbformat"),
        (["-m", "lockstep.agents.ppo", "cartpole"], "torch"),
        (["-m", "lockstep.agents.dqn", "cartpole"], "lockstep.envs.kernels"),
    ],
)
def test_ctrl_c_while_a_command_is_imported_is_one_line(interrupted, words, at):
    assert interrupted(at, *words) == (130, "\ninterrupted before it began\n")


def test_programs_that_import_the_package_keep_pythons_own_ctrl_c(interrupted):
    code, said = interrupted("yaml", "-c", "import lockstep, yaml")
    assert code in (-signal.SIGINT, 130) and said.endswith("KeyboardInterrupt\n")
    code, said = interrupted("yaml", "-c", "import sys; sys.argv = []; import lockstep, yaml")
    assert said.endswith("KeyboardInterrupt\n")


def test_once_a_command_runs_the_sentence_is_its_own(capsys):
    before = signal.signal(signal.SIGINT, interrupt._end)
    try:
        with pytest.raises(SystemExit) as ended, interrupt.told("interrupted; go on"):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (ended.value.code, capsys.readouterr().err) == (130, "\ninterrupted; go on\n")


def test_what_ignores_ctrl_c_goes_on_ignoring_it():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        interrupt.while_importing()
        with interrupt.told("interrupted"):
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
