import errno
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lockstep import envs
from lockstep.experiments import ROOT, UserError, catalogue, command, config, peer_workers, record
from lockstep.experiments.ledger import checksums, fingerprint, provenance, results
from tests.faults import Faults, failing


def sign_all(folder):
    checksums.sign(folder, [folder / path for path in checksums.signed_files(folder)])


@pytest.fixture
def folder(tmp_path):
    """A recorded folder with two files, signed."""
    recorded = tmp_path / "xeon-2core"
    (recorded / "cartpole").mkdir(parents=True)
    (recorded / "ceilings.csv").write_text("a\n1\n")
    (recorded / "cartpole" / "throughput.csv").write_text("b\n2\n")
    sign_all(recorded)
    return recorded


def test_sums_are_those_sha256sum_checks(folder):
    checked = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=folder, capture_output=True, text=True)
    assert checked.returncode == 0
    assert checked.stdout == "cartpole/throughput.csv: OK\nceilings.csv: OK\n"
    checksums.verify(folder)


def test_signing_again_signs_the_same(folder):
    before = (folder / "SHA256SUMS").read_text()
    sign_all(folder)
    assert (folder / "SHA256SUMS").read_text() == before


@pytest.mark.parametrize("kind", ["partial", "failed"])
def test_what_is_still_being_made_or_has_failed_is_not_signed(folder, kind):
    (folder / "cartpole" / f"correctness.{kind}.csv").write_text("half")
    checksums.verify(folder)
    sign_all(folder)
    assert kind not in (folder / "SHA256SUMS").read_text()


def test_two_recordings_that_sign_in_one_folder_lose_no_signature(folder, monkeypatch):
    """One is between reading the sums and writing them when the other begins."""
    read, began = checksums.read_sums, threading.Event()
    files = [folder / f"{name}.csv" for name in ("one", "other")]
    for file in files:
        file.write_text(file.stem)

    def slowly(folder):
        sums = read(folder)
        if began.is_set():
            return sums
        began.set()
        time.sleep(0.5)
        return sums

    monkeypatch.setattr(checksums, "read_sums", slowly)
    first = threading.Thread(target=checksums.sign, args=(folder, files[:1]))
    first.start()
    assert began.wait(30)
    checksums.discard(folder, [folder / "ceilings.csv"])
    checksums.sign(folder, files[1:])
    first.join()
    assert set(read(folder)) == {"cartpole/throughput.csv", "one.csv", "other.csv"}
    checksums.verify(folder)
    assert not list(folder.glob("*.lock"))


def edit(folder):
    (folder / "ceilings.csv").write_text("a\n9\n")


def remove(folder):
    (folder / "cartpole" / "throughput.csv").unlink()


def add(folder):
    (folder / "cartpole" / "more.csv").write_text("")


def garble(folder):
    (folder / "SHA256SUMS").write_text("not a sum\n")


def unsign(folder):
    (folder / "SHA256SUMS").unlink()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (edit, "xeon-2core/ceilings.csv is not as signed in SHA256SUMS; restore it or record it again"),
        (remove, "xeon-2core/cartpole/throughput.csv is signed in SHA256SUMS but missing"),
        (add, "xeon-2core/cartpole/more.csv is not signed in SHA256SUMS"),
        (garble, "xeon-2core/SHA256SUMS: this line is no checksum: 'not a sum'"),
        (unsign, "xeon-2core has no SHA256SUMS"),
    ],
)
def test_a_damaged_folder_is_named_by_its_file(folder, damage, message):
    damage(folder)
    with pytest.raises(checksums.ChecksumError, match=message):
        checksums.verify(folder)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--machine", "../up"], "'../up' may hold letters, digits and '-' only, as in xeon-2core"),
        (["--machine", "a b"], "'a b' may hold letters, digits and '-' only"),
        (["--machine", "-a"], "expected one argument"),
        ([], "the following arguments are required: --machine"),
        (["--machine", "a", "--commit", "HEAD"], "'HEAD' is no commit: 7 to 64 digits 0-9 a-f"),
        (["--machine", "a", "--scale", "fast"], "invalid choice: 'fast'"),
        (["--machine", "a", "--experiments", "lerning"], "invalid choice: 'lerning'"),
        (["--machine", "a", "--headline", "--experiments", "ceilings"], "not allowed with argument"),
        (["--machine", "a", "--assume-cuda"], "--assume-cuda needs --dry-run"),
        (
            ["--machine", "a", "--environments", "cartpol"],
            "error: --environments: there is no environment 'cartpol'; there ",
        ),
    ],
)
def test_mistakes_are_answered_in_a_sentence(monkeypatch, capsys, arguments, message):
    monkeypatch.setattr(sys, "argv", ["record", *arguments])
    with pytest.raises(SystemExit) as ended:
        command.run(record.main)
    assert message in f"{capsys.readouterr().err}{ended.value}"


def test_the_bare_machine_needs_no_git_snakemake_or_pettingzoo():
    """The command line starts with those modules blocked and nothing on the path."""
    program = (
        "import runpy, sys\n"
        "for name in ('snakemake', 'pettingzoo', 'matplotlib', 'nbconvert'):\n"
        "    sys.modules[name] = None\n"
        "sys.argv = ['record', '--machine', 'a', '--environments', 'nowhere']\n"
        "runpy.run_module('lockstep.experiments.record', run_name='__main__')\n"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=os.environ | {"PATH": ""},
        capture_output=True,
        text=True,
    )
    assert "there is no environment 'nowhere'; there are " in finished.stderr
    assert "Traceback" not in finished.stderr


@pytest.fixture
def started(monkeypatch):
    """The programs that would be started, instead of starting them; each returns `started.status`."""

    class Started(list):
        status, described = 0, {}

    programs = Started()

    def status_of(program):
        programs.append(program)
        output = Path(program[program.index("--output") + 1])
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text("measured\n")
        output.with_suffix(".json").write_text(json.dumps(programs.described))
        return programs.status

    monkeypatch.setattr(record, "status_of", status_of)
    monkeypatch.setattr(provenance, "machine", lambda: {"label": "this one", "gpu": None})
    return programs


def test_what_was_started_ends_before_a_terminated_recording_does(tmp_path):
    child = (
        "import pathlib, signal, sys, time\n"
        "def end(*_): time.sleep(0.5); pathlib.Path('ended').touch(); sys.exit()\n"
        "signal.signal(signal.SIGTERM, end); pathlib.Path('begun').touch(); time.sleep(60)\n"
    )
    parent = (
        "import os, sys\n"
        "from lockstep.experiments import command, record\n"
        "os.chdir(sys.argv[1]); record.ROOT = sys.argv[1]\n"
        "command.run(lambda: record.status_of([sys.executable, '-c', sys.argv[2]]))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", parent, tmp_path, child], cwd=ROOT)
    until = time.monotonic() + 30
    while not (tmp_path / "begun").exists() and time.monotonic() < until:
        time.sleep(0.01)
    process.terminate()
    assert process.wait(30) == 130
    assert (tmp_path / "ended").exists()


def test_each_experiment_is_its_own_command_line(started, tmp_path):
    record.run("throughput", "cartpole", "full", tmp_path, "0123abc")
    record.run("ceilings", None, "full", tmp_path, None)
    output = str(tmp_path / "cartpole" / "throughput.csv")
    assert [program[1:] for program in started] == [
        [
            "-m",
            "lockstep.experiments.run",
            "throughput",
            "cartpole",
            "--scale",
            "full",
            "--output",
            output,
            "--aside",
            "--commit",
            "0123abc",
        ],
        [
            *("-m", "lockstep.experiments.run", "ceilings", "--scale", "full"),
            *("--output", str(tmp_path / "ceilings.csv"), "--aside"),
        ],
    ]


def test_an_experiment_is_left_out_where_the_yaml_does_not_ask_for_it(started, tmp_path, monkeypatch, capsys):
    """CartPole's YAML has a section transfer, Pendulum's none."""
    arguments = ["--machine", "a", "--environments", "cartpole", "pendulum", "--experiments", "transfer"]
    monkeypatch.setattr(sys, "argv", ["record", *arguments, "--output", str(tmp_path)])
    record.main()
    assert [program[3:5] for program in started] == [["transfer", "cartpole"]]
    assert (
        "transfer pendulum: left out, experiments/classic_control/pendulum.yaml has no section transfer"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize("changed", [False, True])
def test_learning_is_kept_while_its_settings_are_the_same(started, tmp_path, changed):
    described = current("learning", "cartpole")
    assert described["section"]["solved"] == 475
    if changed:
        described["settings"]["solved"] = 476
    (tmp_path / "cartpole").mkdir()
    (tmp_path / "cartpole" / "learning.json").write_text(json.dumps(described))
    (tmp_path / "cartpole" / "learning.csv").write_text("")
    sign_all(tmp_path)
    record.run("learning", "cartpole", "quick", tmp_path, None)
    assert [program[3:5] for program in started] == [["learning", "cartpole"]] * changed


@pytest.mark.parametrize("installed", [[], ["gymnax"]])
def test_peers_are_recorded_where_at_least_one_is_installed(started, tmp_path, monkeypatch, capsys, installed):
    monkeypatch.setattr(peer_workers, "installed", lambda: installed)
    arguments = ["--machine", "a", "--environments", "pendulum", "--experiments", "peers"]
    monkeypatch.setattr(sys, "argv", ["record", *arguments, "--output", str(tmp_path)])
    record.main()
    assert [program[3:5] for program in started] == [["peers", "pendulum"]] * len(installed)
    left_out = "peers pendulum: left out, no peer is installed; make peers installs them"
    assert (left_out in capsys.readouterr().out) == (not installed)


def test_no_peer_has_an_environment_that_gymnasium_has_not(monkeypatch):
    monkeypatch.setattr(peer_workers, "installed", lambda: ["gymnax"])
    for name in envs.names():
        has = envs.port(name).gymnasium_id is not None
        assert ("peers" in catalogue.experiments_of(name)) == has
        assert has or catalogue.why_not("peers", name) == "no peer has such an environment"


@pytest.mark.parametrize("name", [name for name in envs.names() if envs.port(name).agents])
def test_without_pettingzoo_its_environments_are_not_compared_with_originals(
    started, tmp_path, monkeypatch, capsys, name
):
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    record.run("correctness", name, "quick", tmp_path, None)
    assert started == []
    record.run("throughput", name, "quick", tmp_path, None)
    assert [program[3] for program in started] == ["throughput"]
    assert f"correctness {name}: left out, PettingZoo is not installed" in capsys.readouterr().out


def test_an_experiment_that_fails_ends_the_recording(started, tmp_path):
    started.status = 3
    with pytest.raises(UserError, match=r"^ceilings ended with status 3 .* goes on from there$"):
        record.run("ceilings", None, "quick", tmp_path, None)


def current(experiment, environment):
    """The provenance of a result of the present code."""
    section = fingerprint.section_of(experiment, environment, "quick")
    meaning = results.meaning(experiment, environment, "quick", gpu=False)
    described = {"section": section, "sources": {}, "machine": {"label": "this one", "gpu": None}}
    return meaning | described | {"libraries": provenance.libraries()}


def test_what_an_experiment_leaves_when_its_time_is_over_is_signed_and_gone_on_from(started, tmp_path, monkeypatch):
    """75 is EX_TEMPFAIL of sysexits.h."""
    started.status, started.described = 75, current("ceilings", None) | {"missing": ["fp32"]}
    with pytest.raises(command.OutOfTime, match="^ceilings has begun$"):
        record.run("ceilings", None, "quick", tmp_path, None)
    checksums.verify(tmp_path)
    assert (tmp_path / "ceilings.csv").exists()
    started.status = 0
    there = []
    leave = record.status_of
    monkeypatch.setattr(
        record, "status_of", lambda program: there.append((tmp_path / "ceilings.json").exists()) or leave(program)
    )
    del started.described["missing"]
    record.run("ceilings", None, "quick", tmp_path, None)
    record.run("ceilings", None, "quick", tmp_path, None)
    assert there == [True] and len(started) == 2  # the third was kept
    checksums.verify(tmp_path)


@pytest.mark.parametrize("change", ["fingerprint", "settings", "section", "machine", "scale"])
@pytest.mark.parametrize("status", [75, 3])
def test_what_is_measured_anew_stays_signed_until_something_takes_its_place(
    started, tmp_path, monkeypatch, change, status
):
    """A run that ends, in time or not, before its first group leaves the recording of before; the next one replaces."""
    before = started.described = current("ceilings", None) | {change: None if change == "machine" else "of before"}
    record.run("ceilings", None, "quick", tmp_path, None)
    replaced, runs = record.status_of, []

    def ends_early(program):
        runs.append(program)
        (tmp_path / "ceilings.partial.json").write_text("{}")
        return status

    monkeypatch.setattr(record, "status_of", ends_early)
    for number in (1, 2):  # not taken for current, though it is signed
        with pytest.raises((command.OutOfTime, UserError)):
            record.run("ceilings", None, "quick", tmp_path, None)
        checksums.verify(tmp_path)
        assert json.loads((tmp_path / "ceilings.json").read_text()) == before
        assert (tmp_path / "ceilings.csv").exists() and len(runs) == number
    monkeypatch.setattr(record, "status_of", replaced)
    started.described = current("ceilings", None)
    record.run("ceilings", None, "quick", tmp_path, None)
    checksums.verify(tmp_path)
    assert json.loads((tmp_path / "ceilings.json").read_text()) == started.described


def test_a_piece_takes_the_place_of_a_recording_of_another_machine(tmp_path, monkeypatch):
    """With the journal itself: nothing of the old rows goes into the new ones, nor is any lost by a kill before."""
    columns, path = ["value"], tmp_path / "ceilings.csv"

    def measures(memory_gib, *groups, killed=False):
        monkeypatch.setattr(provenance, "machine", lambda: {"label": "this one", "gpu": None, "memory_gib": memory_gib})

        def status_of(program):
            journal = results.Journal(path, columns, "ceilings", None, "quick", {})
            for name in groups:
                journal.add(name, [{"value": memory_gib}])
            if killed:
                journal.close()
                return 137
            journal.finish(planned=["a", "b"])
            return 75

        monkeypatch.setattr(record, "status_of", status_of)
        with pytest.raises(UserError if killed else command.OutOfTime):
            record.run("ceilings", None, "quick", tmp_path, None)
        checksums.verify(tmp_path)
        return path.read_text().split()[1:]

    assert measures(8.0, "a") == ["8.0"]
    assert measures(8.1, "a", killed=True) == ["8.0"]
    assert measures(8.1, "b") == ["8.1", "8.1"]


def test_what_a_busy_machine_disturbed_is_measured_again_after_all_else(started, tmp_path, monkeypatch, capsys):
    """Without time for it the recording is whole: on a machine that stays busy it comes to an end."""
    busy = current("ceilings", None) | {"busy": [{"group": "fp32", "fields": {}}]}
    wanted = ["--experiments", "ceilings", "throughput", "--environments", "cartpole"]
    started.described = busy | {"groups": [["fp32", 1]]}
    record.run("ceilings", None, "quick", tmp_path, None)
    started.described = current("throughput", "cartpole") | {"busy": busy["busy"]}  # of before groups were named
    recorded(monkeypatch, tmp_path, *wanted)
    assert [program[3] for program in started] == ["ceilings", "throughput", "ceilings"]
    started.described = busy | {"groups": [["fp32", 1]]}
    for more in ([], ["--minutes", "1e-9"]):
        record.run("ceilings", None, "quick", tmp_path, None)
        before = len(started)
        recorded(monkeypatch, tmp_path, *wanted, *more)
        assert len(started) == before + (not more)
        assert "throughput.csv: kept, its code and configuration are unchanged; 1 of its" in capsys.readouterr().out
    checksums.verify(tmp_path)


def test_what_fails_leaves_what_is_signed_and_the_other_steps_go_on(started, tmp_path, monkeypatch):
    """It is tried again as the last one; without time for that it has failed, and no further call would help."""
    started.described = current("ceilings", None) | {"fingerprint": "of before"}
    record.run("ceilings", None, "quick", tmp_path, None)
    signed, measures, asked = (tmp_path / "SHA256SUMS").read_text(), record.status_of, []

    def status_of(program):
        asked.append(program[3])
        if program[3] != "ceilings":
            return measures(program)
        for ending in ("csv", "json"):
            (tmp_path / f"ceilings.failed.{ending}").write_text("{}")
        return 1

    monkeypatch.setattr(record, "status_of", status_of)
    wanted = ["--experiments", "ceilings", "throughput", "--environments", "cartpole"]
    message = rf"^ceilings has failed: {tmp_path}/ceilings\.failed\.csv; what is signed stays$"
    described = current("throughput", "cartpole")
    for started.described, limit in ((described | {"fingerprint": "other"}, []), (described, []), ({}, ["1e-9"])):
        with pytest.raises(UserError, match=message):
            recorded(monkeypatch, tmp_path, *wanted, *(["--minutes", *limit] if limit else []))
        checksums.verify(tmp_path)
    assert asked == ["ceilings", "throughput", "throughput", "ceilings"]
    assert set(signed.splitlines()) < set((tmp_path / "SHA256SUMS").read_text().splitlines())


def recorded(monkeypatch, folder, *arguments):
    monkeypatch.setattr(sys, "argv", ["record", "--machine", "a", "--output", str(folder), *arguments])
    record.main()


def test_headlines_are_the_gpu_s_of_all_environments_and_then_the_cpu_s(started, tmp_path, monkeypatch):
    monkeypatch.setattr(envs, "cuda_available", lambda: True)
    recorded(monkeypatch, tmp_path, "--headline", "--environments", "cartpole", "pendulum")
    asked = [(program[3:5], program[-3:]) for program in started]
    assert asked == [
        (["throughput", name], ["--headline", "--devices", device])
        for device in ("cuda", "cpu")
        for name in ("cartpole", "pendulum")
    ]


def test_headlines_that_are_there_are_kept_and_the_rest_is_done_without_the_option(started, tmp_path, monkeypatch):
    """Here without a GPU, and with all else of the ladder missing."""
    monkeypatch.setattr(envs, "cuda_available", lambda: False)
    started.described = current("throughput", "cartpole") | {
        "missing": ["arrays-numpy cpu B=8192 threads=1 K=1 random copy"]
    }
    for _ in range(2):
        recorded(monkeypatch, tmp_path, "--headline", "--environments", "cartpole")
    assert len(started) == 1
    recorded(monkeypatch, tmp_path, "--environments", "cartpole", "--experiments", "throughput")
    assert len(started) == 2 and "--headline" not in started[1]
    started.described["missing"] = ["original cpu B=1 threads=1 K=1 random copy"]
    recorded(monkeypatch, tmp_path, "--environments", "cartpole", "--experiments", "throughput")
    recorded(monkeypatch, tmp_path, "--headline", "--environments", "cartpole")
    assert len(started) == 4 and "--headline" in started[3]


def test_a_dry_run_tells_what_headlines_take_and_starts_nothing(started, tmp_path, monkeypatch, capsys):
    """Pieces of eight minutes end within nine."""
    recorded(monkeypatch, tmp_path, "--headline", "--dry-run", "--assume-cuda", "--minutes", "8")
    lines = capsys.readouterr().out.splitlines()
    timed = [re.match(r" *([\d.]+) s  throughput (\w+): (\S+) ", line) for line in lines]
    rungs = [found[3] for found in timed if found]
    aimed = {name for name in envs.names() if "targets" in set(config.load(name, "quick").throughput)}
    assert {found[2] for found in timed if found} == aimed >= {"cartpole", "vehicular_edge"}
    assert rungs == sorted(rungs, key=lambda rung: "cuda" not in rung)  # the GPU's first
    pieces = [float(found[1]) for line in lines if (found := re.search(r"takes about ([\d.]+) min", line))]
    assert all(minutes <= 9 for minutes in pieces)
    assert sum(pieces) == pytest.approx(sum(float(found[1]) for found in timed if found) / 60, abs=0.2)
    assert started == [] and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("seconds", "pieces"),
    [
        ([400, 40, 100, 1], [448, 109]),  # 8 s to start; 100 more would end 68 after the eight minutes
        ([400, 40, 90, 1], [538, 9]),
        ([700, 1], [708, 9]),
        ([50, 700, 1], [58, 708, 9]),
    ],
)
def test_a_dry_run_cuts_where_measuring_would(monkeypatch, seconds, pieces):
    groups = [(str(number), float(each)) for number, each in enumerate(seconds)]
    monkeypatch.setattr(record, "groups_of", lambda *step: groups)
    lines = record.listing([record.Step("throughput", "cartpole")], "quick", ["cpu"], 8)
    found = [float(minutes[1]) for line in lines if (minutes := re.search(r"takes .*?([\d.]+) min", line))]
    assert found == pytest.approx([each / 60 for each in pieces], abs=0.06)


def test_after_the_first_step_of_a_recording_no_group_may_end_late(started, tmp_path, monkeypatch):
    """Nor without a limit of time is anything said of it."""
    asked = ["--experiments", "throughput", "--environments", "cartpole", "pendulum"]
    recorded(monkeypatch, tmp_path, *asked, "--minutes", "8")
    recorded(monkeypatch, tmp_path, *asked)
    assert ["--strict-minutes" in program for program in started] == [False, True, False, False]


def test_minutes_are_asked_for_as_such(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["record", "--help"])
    with pytest.raises(SystemExit):
        record.main()
    assert "--minutes MINUTES" in capsys.readouterr().out


def test_what_cannot_be_predicted_is_listed_without_a_time(started, tmp_path, monkeypatch, capsys):
    recorded(
        monkeypatch, tmp_path, "--dry-run", "--environments", "cartpole", "--experiments", "ceilings", "correctness"
    )
    lines = capsys.readouterr().out.splitlines()
    assert "correctness cartpole: its time is not known beforehand" in lines[-2]
    assert any(re.match(r" *[\d.]+ s  ceilings: fp32 cpu threads=1", line) for line in lines)


@pytest.mark.parametrize(("left_s", "minutes"), [(90.0, "1.500"), (0.01, "0.001")])
def test_an_experiment_gets_the_minutes_that_are_left_and_never_0(started, tmp_path, monkeypatch, left_s, minutes):
    monkeypatch.setattr(record.time, "monotonic", lambda: 100.0)
    record.run("ceilings", None, "quick", tmp_path, None, deadline=100.0 + left_s)
    assert started[0][-2:] == ["--minutes", minutes]


def test_out_of_time_nothing_is_begun_and_what_is_there_stays(started, tmp_path, monkeypatch, capsys):
    (tmp_path / "ceilings.json").write_text('{"scale": "quick"}')
    arguments = ["--machine", "a", "--experiments", "ceilings", "--minutes", "1e-9", "--output", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["record", *arguments])
    with pytest.raises(SystemExit) as ended:
        command.run(record.main)
    assert ended.value.code == 75 and started == []
    assert "not finished, the time is over: ceilings is next" in capsys.readouterr().err
    assert (tmp_path / "ceilings.json").read_text() == '{"scale": "quick"}'


@pytest.mark.parametrize(
    "change",
    [None, "scale", "fingerprint", "section", "machine", "libraries", "csv", "edited", "unsigned", "passed"],
)
def test_a_result_is_kept_only_while_nothing_it_depends_on_changed(started, tmp_path, change, capsys):
    described = current("ceilings", None)
    if change == "passed":
        described["passed"] = False
    elif change in described:
        described[change] = {"other": ""}
    (tmp_path / "ceilings.json").write_text(json.dumps(described))
    (tmp_path / "ceilings.csv").write_text("")
    if change != "unsigned":
        sign_all(tmp_path)
    if change == "csv":
        (tmp_path / "ceilings.csv").unlink()
    if change == "edited":
        (tmp_path / "ceilings.csv").write_text("forged\n")
    record.run("ceilings", None, "quick", tmp_path, None)
    assert len(started) == (0 if change is None else 1)
    assert ("kept" in capsys.readouterr().out) == (change is None)
    checksums.verify(tmp_path)


@pytest.mark.parametrize("content", ['{"scale": "qu', "", "null", "[]", "\udcff"])
def test_a_damaged_provenance_is_named_and_nothing_is_measured(started, tmp_path, content):
    kept = tmp_path / "ceilings.json"
    (tmp_path / "ceilings.csv").write_text("rows\n")
    kept.write_bytes(content.encode(errors="surrogateescape"))
    message = r"ceilings\.json is damaged; restore it, or remove it and ceilings\.csv to measure anew"
    with pytest.raises(UserError, match=message):
        record.run("ceilings", None, "quick", tmp_path, None)
    assert started == [] and (tmp_path / "ceilings.csv").read_text() == "rows\n"


@pytest.mark.parametrize("place", ["", "below", "cartpole"])
def test_a_file_where_a_folder_is_needed_is_told_before_anything_is_measured(started, tmp_path, monkeypatch, place):
    folder = tmp_path / "taken" / place if place == "below" else tmp_path / "taken"
    file = folder / place if place == "cartpole" else tmp_path / "taken"
    file.parent.mkdir(exist_ok=True)
    file.write_text("")
    with pytest.raises(UserError, match=f"--output: {file} is a file, and a folder is needed there"):
        recorded(monkeypatch, folder, "--environments", "cartpole", "--experiments", "ceilings", "throughput")
    assert started == []


def test_a_quick_run_does_not_replace_a_full_recording(tmp_path):
    kept = tmp_path / "ceilings.json"
    kept.write_text(json.dumps({"scale": "full"}))
    with pytest.raises(UserError, match="ceilings.csv was recorded at full scale, which a quick one would replace"):
        record.run("ceilings", None, "quick", tmp_path, None)
    assert json.loads(kept.read_text()) == {"scale": "full"}


@pytest.mark.parametrize("left", ["", ".partial.csv", ".partial.json"])
def test_what_a_kill_left_measured_and_not_signed_is_signed_and_kept(started, tmp_path, left, capsys):
    """A kill after the last group, perhaps before the journal had cleared up."""
    digest = hashlib.sha256(b"rows\n").hexdigest()
    (tmp_path / "ceilings.csv").write_text("rows\n")
    (tmp_path / "ceilings.json").write_text(json.dumps(current("ceilings", None) | {"rows_sha256": digest}))
    if left:
        (tmp_path / f"ceilings{left}").write_text("")
    record.run("ceilings", None, "quick", tmp_path, None)
    assert started == [] and "kept" in capsys.readouterr().out
    checksums.verify(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {"ceilings.csv", "ceilings.json", "SHA256SUMS"}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_sums_that_cannot_be_written_stay_as_they_were(folder, number):
    before = (folder / "SHA256SUMS").read_text()
    (folder / "more.csv").write_text("c\n")
    for act in (checksums.sign, checksums.discard):
        with (
            failing(Faults(1, number)),
            pytest.raises(UserError, match=r"SHA256SUMS cannot be written: .*; the same command"),
        ):
            act(folder, [folder / "more.csv"])
        assert (folder / "SHA256SUMS").read_text() == before and (folder / "more.csv").exists()


@pytest.mark.parametrize("left", ["SHA256SUMS.partial", "ceilings.csv.partial", "ceilings.lock"])
def test_what_a_kill_left_of_a_file_is_no_finding(folder, left):
    (folder / left).write_text("half")
    checksums.verify(folder)
