"""The first minutes on a GPU, as far as they go without one; and what becomes of a probe that goes wrong."""

import itertools
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from lockstep import envs
from lockstep.envs.batch import launch
from lockstep.envs.batch.port import TILES
from lockstep.envs.kernels import compile
from tests import prebuild, smoke

HERE = [name for name, probe in smoke.PROBES.items() if not probe.gpu]
LONG = {"kernels", "fused", "mlp", "shared-memory"}  # compile what no other test does


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in LONG)) for n in HERE])
def test_every_probe_that_needs_no_gpu_finds_things_right(name):
    assert smoke.PROBES[name].run("cpu")


def test_the_command_line_gives_each_probe_a_line_and_what_needs_a_gpu_another(monkeypatch, capsys):
    names = ["versions", "graph"]
    monkeypatch.setattr(sys, "argv", ["smoke", "--device", "cpu", "--only", *names])
    with pytest.raises(SystemExit) as ended:
        smoke.main()
    out, err = capsys.readouterr()
    assert (ended.value.code, err) == (0, "")
    *lines, summary = out.splitlines()
    assert [line.split()[0] for line in lines] == names
    assert " ok " in lines[0] and f"torch {torch.__version__}" in lines[0]
    assert lines[1].endswith("needs a GPU")
    assert summary == "smoke: 1 ok, 0 FAILED, 1 not here"


def python(code):
    return [sys.executable, "-c", code]


COMMANDS = {
    "well": python("print('a line'); print('finding: 3 of 3')"),
    "failing": python("print('begun'); raise ValueError('three is not four')"),
    "crashing": python("import os; print('begun', flush=True); os.abort()"),
    "hanging": python("import time; print('begun', flush=True); time.sleep(60)"),
    "elsewhere": python("print('finding: needs an owl'); raise SystemExit(3)"),
    "silent": python("pass"),
    "last": python("print('finding: still here')"),
}
EXPECTED = {
    "well": ("ok", "3 of 3"),
    "failing": ("FAILED", "ValueError: three is not four"),
    "crashing": ("FAILED", "ended by SIGABRT"),
    "hanging": ("FAILED", "no end within 2 s"),
    "elsewhere": ("not here", "needs an owl"),
    "silent": ("FAILED", ""),
    "last": ("ok", "still here"),
}


@pytest.mark.parametrize("jobs", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_probe_that_goes_wrong_has_its_line_and_harms_no_other(jobs, tmp_path, capsys):
    start = time.monotonic()
    (tmp_path / "kept").mkdir()
    status = smoke.report(smoke.outcomes(COMMANDS, jobs, timeout_s=2), tmp_path / "kept")
    assert time.monotonic() - start < 30
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("    | ")]
    assert status == 1
    for line, (name, (verdict, finding)) in zip(lines, EXPECTED.items(), strict=False):
        assert line.startswith(f"{name} ") and f" {verdict} " in line and line.endswith(finding)
    assert lines[len(EXPECTED) :] == ["smoke: 2 ok, 4 FAILED, 1 not here"]
    assert {file.stem for file in (tmp_path / "kept").iterdir()} == {"failing", "crashing", "hanging", "silent"}
    assert (tmp_path / "kept" / "hanging.txt").read_text() == "begun\n"


ENDLESS = """
import os, pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
pathlib.Path(sys.argv[1], f"{os.getpid()} {child.pid}").touch()
time.sleep(300)
"""
STARTED = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background jobs ignore
from tests import smoke
folder, sys.argv = sys.argv[1], ["smoke", "--device", "cpu", *sys.argv[2:]]
smoke.command = lambda device, name: [sys.executable, "-c", {ENDLESS!r}, folder]
smoke.main()
"""


def runs(process: int) -> bool:
    """Tells if a process is there and no zombie, which nobody may have waited for yet."""
    try:
        with open(f"/proc/{process}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks for processes in /proc")
@pytest.mark.parametrize(
    ("options", "begun"),
    [
        (["--only", "versions", "cubin", "struct", "unsigned", "--jobs", "2"], 2),
        pytest.param(["--only", "eager"], 1, marks=pytest.mark.slow),  # alone
    ],
)
def test_ctrl_c_ends_what_runs_and_begins_nothing_else(options, begun, tmp_path):
    process = subprocess.Popen(
        [*python(STARTED), str(tmp_path), *options], stdout=subprocess.PIPE, stderr=-1, text=True
    )
    deadline = time.monotonic() + 60
    while len(os.listdir(tmp_path)) < begun:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (smoke.STOPPED, "", "smoke: stopped\n")
    started = [int(pid) for name in os.listdir(tmp_path) for pid in name.split()]
    assert len(started) == 2 * begun
    assert not any(map(runs, started))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--jobs", "0"], "argument --jobs: '0' must be a whole number of at least 1"),
        (["--jobs", "two"], "argument --jobs: 'two' must be a whole number of at least 1"),
        (["--output", f"{__file__}/kept"], f"smoke: --output {__file__}/kept: nothing can be written there (Not a dir"),
    ],
)
def test_what_cannot_be_done_is_told_before_the_first_probe(options, sentence, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["smoke", "--device", "cpu", *options])
    monkeypatch.setattr(smoke, "outcomes", lambda *given: pytest.fail("begun"))
    with pytest.raises(SystemExit) as ended:
        smoke.main()
    assert sentence in f"{ended.value.code} {capsys.readouterr().err}"


def test_a_library_that_lacks_another_is_named(tmp_path, monkeypatch):
    (tmp_path / "half_installed.py").write_text("import nowhere_to_be_found")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(smoke, "LIBRARIES", ("pytest", "half_installed"))
    assert smoke.versions("cpu").endswith("; no half_installed (No module named 'nowhere_to_be_found')")


def test_a_field_that_comes_as_another_is_named(monkeypatch):
    text, wanted = smoke.echo_unit(smoke.default_unit("cartpole"))
    swapped = text.replace("batch->obs);", "batch->reward);")
    assert swapped != text
    monkeypatch.setattr(smoke, "echo_unit", lambda unit: (swapped, wanted))
    with pytest.raises(AssertionError, match="acrobot: Batch.obs came as 0xa00000005, not 0x800000004"):
        smoke.struct("cpu")


@pytest.mark.parametrize("name", smoke.of_each_form())
def test_the_echo_of_structs_compiles_for_the_gpu(name):
    text, _ = smoke.echo_unit(smoke.default_unit(name))
    assert [row["kernel"] for row in compile.resources(text, compile.TARGETS[-1])] == ["echo"]


def test_states_that_differ_are_told_by_their_first_difference():
    one = {
        "clock": 3,
        "state": torch.tensor([1.0, 2.0, float("nan")]),
        "episode": torch.tensor([1, 2], dtype=torch.uint32),
    }
    same = {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in one.items()}
    assert smoke.differing(one, same) is None
    assert smoke.differing(one, same | {"clock": 4}) == "clock: 3 and 4"
    near = same | {"state": torch.tensor([1.0, 2.0001, float("nan")])}
    assert smoke.differing(one, near).startswith("state[1]: 2.0 and 2.00009")
    assert smoke.differing(one, near, close=1e-3) is None
    other = same | {"episode": torch.tensor([1, 3], dtype=torch.uint32)}
    assert smoke.differing(one, other, close=1.0) == "episode[1]: 2.0 and 3.0, 1 of 2 differ"


@pytest.mark.parametrize(
    ("size", "said"),
    [(0.0, "bit for bit"), (1e-5, "within 0.01, bit for bit before step 41"), (1e-3, None), (0.1, None)],
)
def test_a_step_that_is_close_says_since_when(size, said, monkeypatch):
    """Rewards from the 41st step on are off; 1e-3 of them is still close then, and was not in the first step."""
    begin, number, rows_of = 1 if said is None and size < 0.01 else 41, itertools.count(2), smoke.rows_of

    def off(outputs):
        rows, calls = rows_of(outputs), next(number)
        if calls % 2 and calls // 2 >= begin:
            rows["reward"] = rows["reward"] + size
        return rows

    monkeypatch.setattr(smoke, "rows_of", off)
    monkeypatch.setattr(smoke, "closeness", lambda name, device: 1e-4)
    if said:
        assert smoke.PROBES["step-pendulum"].run("cpu").endswith(f" episodes, {said}")
    else:
        with pytest.raises(AssertionError, match=rf"^step {begin}: reward\[\d+\]: "):
            smoke.PROBES["step-pendulum"].run("cpu")


QUICK = {"ppo", "step-vehicular_edge", "eager", "struct"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in QUICK)) for n in HERE])
def test_what_is_compiled_beforehand_is_what_a_probe_launches(name, monkeypatch):
    monkeypatch.setitem(TILES, "cpu", TILES["cuda"])
    launched, load = {}, launch.cpu

    def noting(text, *given, **options):
        launched.setdefault(text)
        return load(text, *given, **options)

    monkeypatch.setattr(launch, "cpu", noting)
    smoke.PROBES[name].run("cpu")
    monkeypatch.undo()
    with prebuild.noted() as noted:
        if smoke.PROBES[name].steps:
            prebuild.attempt(name)
    assert launch.cpu is load
    assert bool(noted) == smoke.PROBES[name].steps
    assert bool(launched) == (smoke.PROBES[name].steps or name == "struct")
    assert launched.keys() <= (noted | prebuild.listed()).keys()


@pytest.mark.slow
def test_everything_that_a_first_run_launches_can_be_told_beforehand():
    with prebuild.noted() as noted:
        prebuild.launch_everything()
    assert len(noted) > 100


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in smoke.PROBES if name not in HERE])
def test_what_a_probe_launches_on_a_gpu_only_is_compiled_beforehand_too(name):
    with prebuild.noted() as noted:
        if smoke.PROBES[name].steps:
            prebuild.attempt(name)
    assert bool(noted) == smoke.PROBES[name].steps


@pytest.mark.parametrize("text", ["sm_80", "sm_120", "sm_90a"])
def test_binaries_are_made_for_any_architecture(text, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["prebuild", "--target", text])
    assert prebuild.arguments().target == text


def test_another_word_is_no_architecture(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["prebuild", "--target", "H200"])
    with pytest.raises(SystemExit):
        prebuild.arguments()
    assert "'H200' must be sm_ and the digits of a compute capability, as in sm_90" in capsys.readouterr().err


def test_a_cache_that_cannot_be_written_is_told_before_anything_is_done(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("LOCKSTEP_CACHE", str(tmp_path / "file" / "cubins"))
    monkeypatch.setattr(sys, "argv", ["prebuild"])
    monkeypatch.setattr(compile, "nvrtc", lambda: None)
    monkeypatch.setattr(prebuild, "launch_everything", lambda: pytest.fail("begun"))
    with pytest.raises(compile.CompilerError, match="file/cubins, which cannot be written to"):
        prebuild.main()


def test_of_a_probe_only_what_it_finds_wrong_is_passed_over(monkeypatch):
    def wrong(device):
        raise AssertionError("three is not four")

    def broken(device):
        raise TypeError("no number")

    monkeypatch.setattr(smoke, "PROBES", {"wrong": smoke.Probe(wrong), "broken": smoke.Probe(broken)})
    prebuild.attempt("wrong")
    with pytest.raises(TypeError, match="no number"):
        prebuild.attempt("broken")


@pytest.mark.skipif(envs.cuda_available(), reason="has a GPU")
def test_without_a_gpu_it_says_so(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["smoke"])
    with pytest.raises(SystemExit, match="no usable CUDA device; --device cpu runs what needs none"):
        smoke.main()
