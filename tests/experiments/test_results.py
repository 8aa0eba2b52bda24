import json
import math
import multiprocessing
import os
import resource
import signal
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.experiments import UserError, command, run
from lockstep.experiments.ledger import checksums, fingerprint, provenance, results

COLUMNS = ["name", "value", "note"]


def journal(path, config=None, commit=None, conditions=None):
    return results.Journal(path, COLUMNS, "ceilings", None, "quick", config or {"seed": 0}, commit, conditions)


def rows(name, count=3):
    return [{"name": name, "value": number / 7, "note": None} for number in range(count)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "speed.csv"


def test_a_finished_journal_is_a_csv_and_its_provenance_and_nothing_else(path):
    made = journal(path, commit="0123abc")
    made.add("a", rows("a"))
    made.add("b, with a comma", rows('"b"', 1))
    made.finish({"blocks": 10})
    assert sorted(file.name for file in path.parent.iterdir()) == ["speed.csv", "speed.json"]
    assert path.read_text().splitlines()[:2] == ["name,value,note", "a,0.0,"]
    frame, described = results.read(path)
    assert list(frame["name"]) == ["a", "a", "a", '"b"']
    assert list(frame["value"]) == [0, 1 / 7, 2 / 7, 0]  # floats come back equal
    assert frame["note"].isna().all()
    assert described["experiment"] == "ceilings"
    assert described["timing"] == {"blocks": 10}
    assert (
        described["sources"]["experiments/ceilings.py"] == provenance.hashes(["experiments/ceilings.py"]).popitem()[1]
    )


def test_a_journal_goes_on_after_the_groups_that_are_there(path, capsys):
    first = journal(path)
    first.add("a", rows("a"))
    first.add("b", rows("b"))
    first.close()
    second = journal(path)
    assert "continuing after 2 finished groups" in capsys.readouterr().err
    assert [group in second for group in "abc"] == [True, True, False]
    second.add("c", rows("c"))
    second.finish()
    frame, described = results.read(path)
    assert list(frame["name"]) == ["a"] * 3 + ["b"] * 3 + ["c"] * 3
    assert described["started"] == first.started


def test_time_spent_before_a_kill_counts(path):
    first = journal(path)
    time.sleep(0.3)
    first.add("a", rows("a"))
    first.close()
    second = journal(path)
    second.finish()
    assert results.read(path)[1]["wall_s"] >= 0.3


@pytest.mark.parametrize("change", ["settings", "conditions", "machine", "libraries"])
def test_rows_of_another_run_are_discarded_with_a_sentence(path, capsys, change, monkeypatch):
    journal(path).add("a", rows("a"))
    if change == "machine":
        monkeypatch.setattr(provenance, "machine", lambda: {"label": "another", "gpu": None})
    if change == "settings":
        monkeypatch.setattr(fingerprint, "settings_of", lambda *of: {"blocks": 7})
    if change == "libraries":
        monkeypatch.setattr(provenance, "libraries", lambda *of: {"torch": "another"})
    second = journal(path, conditions={"gymnax": "2"} if change == "conditions" else None)
    told = "speed.partial.csv is of another code, other settings, other libraries or another machine: discarded"
    assert told in capsys.readouterr().err
    assert "a" not in second
    second.add("b", rows("b"))
    second.finish()
    assert set(results.read(path)[0]["name"]) == {"b"}


def test_a_journal_goes_on_only_with_the_same_code(path, monkeypatch, capsys):
    journal(path).add("a", rows("a"))
    monkeypatch.setattr(fingerprint, "of", lambda *of: "another")
    assert "a" not in journal(path)
    assert "discarded" in capsys.readouterr().err


def test_groups_stay_where_others_are_asked_for(path, capsys):
    """Another choice of groups in the settings is none of the key; what is no longer asked for is forgotten."""
    journal(path, {"sizes": [1, 2]}).add("a", rows("a"))
    first = journal(path, {"sizes": [1]})
    first.add("b", rows("b"))
    first.close()
    second = journal(path, {"sizes": [2, 3]})
    second.keep(["b", "c"])
    assert "a" not in second and "b" in second
    second.add("c", rows("c"))
    second.finish()
    frame, described = results.read(path)
    assert set(frame["name"]) == {"b", "c"} and described["config"] == {"sizes": [2, 3]}


def test_a_finished_run_leaves_nothing_to_go_on_from(path):
    made = journal(path)
    made.add("a", rows("a"))
    made.finish()
    assert "a" not in journal(path)


def piece_of(path, config=None):
    """A run that ends on purpose with two of four groups measured, the second one first."""
    made = journal(path, config)
    made.add("b, with a comma", rows('"b"', 2))
    made.add("a", rows("a"))
    made.finish({"blocks": 3}, planned=["a", "b, with a comma", "c", "d"])
    return made


def test_a_piece_is_a_whole_result_that_says_what_is_missing(path):
    piece_of(path)
    assert sorted(file.name for file in path.parent.iterdir()) == ["speed.csv", "speed.json"]
    frame, described = results.read(path)
    assert list(frame["name"]) == ["a"] * 3 + ['"b"'] * 2  # in the order of the plan
    assert described["missing"] == ["c", "d"]
    assert [group[:2] for group in described["groups"]] == [["a", 3], ["b, with a comma", 2]]


@pytest.fixture
def disturbed(path):
    """A run of three groups, of which the second had a third of a core; of the last nobody knows."""
    made = journal(path)
    for group, had in (("a", 1.0), ("b", 0.34), ("c", math.nan)):
        made.add(group, [row | {"had": had} for row in rows(group, 2)])
    return made


def test_rows_of_a_busy_machine_are_kept_and_not_used(disturbed, path):
    disturbed.finish(planned={group: {"name": group} for group in "abc"})
    frame, described = results.read(path)
    assert list(frame["name"]) == ["a"] * 2 + ["b"] * 2 + ["c"] * 2 and "had" not in frame
    assert described["busy"] == [{"group": "b", "had": 0.34, "first": 2, "rows": 2, "fields": {"name": "b"}}]
    assert list(results.undisturbed(frame, described)["name"]) == ["a"] * 2 + ["c"] * 2
    assert results.missing_groups(described) == [{"name": "b"}]


def test_a_run_that_goes_on_remembers_what_was_disturbed(disturbed, path):
    disturbed.close()
    again = journal(path)
    assert [one["group"] for one in again.busy(["a", "b", "c"])] == ["b"]
    again.finish(planned=["a", "b", "c", "d"])
    described = results.read(path)[1]
    assert described["missing"] == ["d"] and [one["group"] for one in described["busy"]] == ["b"]
    assert [one["group"] for one in journal(path).busy(["a", "b", "c", "d"])] == ["b"]


@pytest.mark.parametrize("killed", ["at first", "later", "never"])
def test_what_was_disturbed_is_measured_again_and_nothing_else(disturbed, path, killed, capsys):
    disturbed.close() if killed == "at first" else disturbed.finish(planned=["a", "b", "c"])
    again = journal(path)
    assert [group in again for group in "abc"] == [True, False, True]
    if killed != "at first":
        assert "continuing after 3 groups, 1 were disturbed" in capsys.readouterr().err
    again.add("b", [row | {"had": 0.95} for row in rows("b", 4)])
    if killed == "later":
        again.close()
        again = journal(path)
    assert all(group in again for group in "abc")
    again.finish(planned=["a", "b", "c"])
    frame, described = results.read(path)
    assert list(frame["name"]) == ["a"] * 2 + ["b"] * 4 + ["c"] * 2
    assert not {"busy", "missing", "groups"} & set(described)


def test_the_next_run_goes_on_from_a_piece_and_loses_nothing(path, capsys):
    first = piece_of(path)
    second = journal(path)
    assert "continuing after 2 groups, 2 are missing" in capsys.readouterr().err
    assert list(second.groups.items()) == list(first.groups.items())
    second.add("c", rows("c", 1))
    second.close()  # killed: the piece stands, and what came after it as well
    assert results.read(path)[1]["missing"] == ["c", "d"]
    third = journal(path)
    assert "c" in third and "d" not in third
    third.add("d", rows("d", 1))
    third.finish(planned=["a", "b, with a comma", "c", "d"])
    frame, described = results.read(path)
    assert list(frame["name"]) == ["a"] * 3 + ['"b"'] * 2 + ["c", "d"]
    assert "missing" not in described and described["started"] == first.started
    assert "a" not in journal(path)


@pytest.mark.parametrize("change", ["settings", "conditions", "machine", "libraries", "code", "rows"])
def test_a_piece_of_another_run_or_an_edited_one_is_not_gone_on_from(path, change, monkeypatch):
    piece_of(path)
    if change == "machine":
        monkeypatch.setattr(provenance, "machine", lambda: {"label": "another", "gpu": None})
    elif change == "code":
        monkeypatch.setattr(fingerprint, "of", lambda *of: "another")
    elif change == "settings":
        monkeypatch.setattr(fingerprint, "settings_of", lambda *of: {"blocks": 7})
    elif change == "libraries":
        monkeypatch.setattr(provenance, "libraries", lambda *of: {"torch": "another"})
    elif change == "rows":
        path.write_text(path.read_text().replace("a,0.0", "a,9.9"))
    assert "a" not in journal(path, conditions={"gymnax": "2"} if change == "conditions" else None)


@pytest.mark.parametrize(
    ("packages", "goes_on"), [({}, True), ({"numpy": "0.1"}, False), ({"pandas": "0.1", "snakemake": "1"}, True)]
)
def test_a_piece_of_before_libraries_were_in_the_key_is_of_those_that_it_names(path, packages, goes_on):
    piece_of(path)
    file = path.with_suffix(".json")
    described = json.loads(file.read_text())
    del described["libraries"]
    file.write_text(json.dumps(described | {"packages": packages}))
    assert ("a" in journal(path)) == goes_on


def test_whether_a_result_is_of_the_present_code_does_not_depend_on_libraries(path, monkeypatch):
    described = results.read(piece_of(path).path)[1]
    monkeypatch.setattr(provenance, "libraries", lambda *of: {"torch": "another"})
    assert results.is_of_the_present_code(described)


@pytest.fixture
def edited(monkeypatch):
    """Pretends that files are written, with a new meaning or the old one."""

    def edited(*paths, meaning=True):
        files, stamps, meanings = [results.ROOT / path for path in paths], results.stamp, results.meaning_of
        monkeypatch.setattr(results, "stamp", lambda file: (0, 0) if file in files else stamps(file))
        if meaning:
            monkeypatch.setattr(results, "meaning_of", lambda file, gpu: "new" if file in files else meanings(file))
            monkeypatch.setattr(fingerprint, "of", lambda *of: "another")

    return edited


def test_code_that_is_edited_meanwhile_ends_a_run_and_keeps_its_groups(path, edited, monkeypatch):
    made = journal(path)
    made.add("a", rows("a"))
    edited("experiments/ledger/results.py", "experiments/ceilings.py")
    message = r"^experiments/ceilings\.py was edited since this run began, .*; finished groups are kept"
    for act in (lambda: made.add("b", rows("b")), made.finish):
        with pytest.raises(UserError, match=message):
            act()
    made.close()
    monkeypatch.undo()
    assert not path.exists()
    again = journal(path)
    assert "a" in again and "b" not in again


def test_a_comment_that_is_edited_meanwhile_ends_nothing(path, edited):
    made = journal(path)
    edited("experiments/ceilings.py", meaning=False)
    made.add("a", rows("a"))
    made.finish()
    assert path.exists()


def test_the_commit_of_a_result_is_that_of_its_begin(path, monkeypatch):
    monkeypatch.setattr(provenance, "git_commit", lambda *of: ("before", False))
    made = journal(path)
    monkeypatch.setattr(provenance, "git_commit", lambda *of: ("later", True))
    made.add("a", rows("a"))
    made.finish()
    described = results.read(path)[1]
    assert (described["commit"], described["dirty"]) == ("before", False)


def test_a_file_is_stamped_by_when_it_was_written_and_its_size(tmp_path):
    file = tmp_path / "code.py"
    stamps = [results.stamp(file)]
    for text in ("1", "2 # two"):
        file.write_text(text)
        stamps.append(results.stamp(file))
    meanings = [results.meaning_of(file)]
    for text in ("2", "3", "def"):
        file.write_text(text)
        meanings.append(results.meaning_of(file))
    assert stamps[0] is None and len({*stamps}) == 3
    assert meanings[0] == meanings[1] != meanings[2] and meanings[3] is None


def out_of_time(made, in_pieces=True):
    """The journal's run ends because its time is over."""
    experiment = SimpleNamespace(in_pieces=in_pieces)
    with pytest.raises(command.OutOfTime), run.leaving(experiment, made, {"a": {}, "b": {}}, {"blocks": 3}):
        raise command.OutOfTime("the next one is left")


def test_what_is_measured_when_the_time_is_over_is_left_whole(path):
    made = journal(path)
    made.add("a", rows("a"))
    out_of_time(made)
    assert results.read(path)[1]["missing"] == ["b"]


@pytest.mark.parametrize("groups", ["", "a"])
def test_nothing_is_left_where_nothing_is_measured_or_pieces_are_none(path, groups):
    made = journal(path)
    for group in groups:
        made.add(group, rows(group))
    out_of_time(made, in_pieces=not groups)
    assert not path.exists()


@pytest.mark.parametrize("damage", [b"c,3,0.1,0.", b"c,3,0.1\n", b'c,"3,0.1\n', b"\xff\xfe\n", b"\0\0\0\0"])
def test_a_broken_last_line_is_dropped(path, damage):
    journal(path).add("a", rows("a"))
    with open(path.with_suffix(".partial.csv"), "ab") as file:
        file.write(damage)
    second = journal(path)
    assert list(second.groups) == ["a"]
    second.add("c", rows("c"))
    second.finish()
    assert list(results.read(path)[0]["name"]) == ["a"] * 3 + ["c"] * 3


HEADER = [*results.BOOKKEEPING, "name", "value"]
GROUPS = st.lists(st.integers(1, 4), max_size=5)


@given(sizes=GROUPS, names=st.text("ab,\"' é"), cut=st.floats(0, 1))
def test_a_partial_file_cut_anywhere_gives_the_groups_that_were_complete(sizes, names, cut):
    groups = {
        f"{number}{names}": [[f"{number}{names}", str(size), "0", "0", "", names, str(row)] for row in range(size)]
        for number, size in enumerate(sizes)
    }
    text = results.csv_text([HEADER])
    ends = []
    for group in groups.values():
        text += results.csv_text(group)
        ends.append(len(text.encode()))
    cut_at = round(cut * len(text.encode()))
    complete = sum(end <= cut_at for end in ends)
    found = results.complete_groups(text.encode()[:cut_at], HEADER)
    assert found == dict(list(groups.items())[:complete])


def write_groups(path):
    made = results.Journal(path, ["group", "row"], "ceilings", None, "quick", {})
    for number in range(len(made.groups), 10**6):
        made.add(str(number), [{"group": number, "row": row} for row in range(50)])


def test_a_killed_process_loses_at_most_the_group_it_was_in(tmp_path):
    """kill -9 at two moments; each new process finds every group that the one before had reported."""
    path = tmp_path / "speed.csv"
    partial = path.with_suffix(".partial.csv")
    before = 0
    for pause in (0.01, 0.2):
        process = multiprocessing.get_context("fork").Process(target=write_groups, args=(path,))
        size = partial.stat().st_size if partial.exists() else 0
        process.start()
        deadline = time.monotonic() + 60
        while not partial.exists() or partial.stat().st_size <= size + 100:
            assert process.exitcode is None, "the writer ended by itself"
            assert time.monotonic() < deadline, "the writer writes nothing"
            time.sleep(0.005)
        time.sleep(pause)
        process.kill()
        process.join()
        lines = partial.read_bytes().count(b"\n") - 1
        found = results.complete_groups(partial.read_bytes(), [*results.BOOKKEEPING, "group", "row"])
        assert list(found) == [str(number) for number in range(len(found))]
        assert lines // 50 == len(found) > before
        assert [int(row[-1]) for group in found.values() for row in group] == list(range(50)) * len(found)
        before = len(found)


@pytest.mark.parametrize("wrong", [[{"name": "a", "value": 1}], [{"name": "a", "value": 1, "note": 1, "more": 1}], []])
def test_rows_with_other_columns_or_none_are_refused(path, wrong):
    made = journal(path)
    with pytest.raises(ValueError, match=r"columns|no rows"):
        made.add("a", wrong)
    assert "a" not in made


def test_reading_without_provenance_names_the_file(path):
    path.parent.mkdir()
    path.write_text("a\n1\n")
    with pytest.raises(UserError, match=r"speed\.csv has no readable provenance beside it \(speed.json\)"):
        results.read(path)


def test_reading_an_empty_csv_names_the_file(path):
    path.parent.mkdir()
    path.write_text("")
    path.with_suffix(".json").write_text('{"sources": {}, "machine": {}}')
    with pytest.raises(UserError, match=r"speed\.csv cannot be read"):
        results.read(path)


@pytest.fixture
def root(tmp_path):
    """A repository with one source, measured here, and recorded on two machines, one before the last edit."""
    (tmp_path / "code.py").write_text("now\n")
    now = provenance.hashes(["code.py"], tmp_path)
    places = {"results": now, "results/recorded/new": now, "results/recorded/old": {"code.py": "0" * 64}}
    for place, hashes in places.items():
        folder = tmp_path / place / "cartpole"
        folder.mkdir(parents=True)
        pd.DataFrame({"value": [1.5]}).to_csv(folder / "throughput.csv", index=False)
        described = {"sources": hashes, "machine": {"label": "a laptop, 4 cores"}}
        (folder / "throughput.json").write_text(json.dumps(described))
        if "recorded" in place:
            checksums.sign(tmp_path / place, sorted((tmp_path / place).rglob("*.*")))
    return tmp_path


def test_datasets_carry_machine_origin_and_status(root):
    found = results.datasets("cartpole", "throughput", root)
    assert [(entry.machine, entry.origin, entry.status) for entry in found] == [
        ("a laptop, 4 cores", "here", "measured here"),
        ("new", "recorded", "recorded"),
        ("old", "recorded", "recorded, code changed since"),
    ]
    assert all(entry.frame["value"].tolist() == [1.5] for entry in found)


@pytest.mark.parametrize(
    ("change", "status"),
    [(None, "RECORDED"), ("fingerprint", "CHANGED"), ("settings", "CHANGED"), ("config", "RECORDED")],
)
def test_a_result_with_a_fingerprint_is_of_the_present_code_by_it(path, tmp_path, change, status):
    folder = tmp_path / "results" / "recorded" / "old"
    made = journal(folder / "ceilings.csv")
    made.add("a", rows("a"))
    made.finish()
    file = folder / "ceilings.json"
    described = json.loads(file.read_text())
    described |= {"sources": {"gone.py": "0" * 64}} | ({change: {"another": 1}} if change else {})
    file.write_text(json.dumps(described))
    assert results.is_of_the_present_code(described) == (status == "RECORDED")


def test_results_become_code_changed_since_with_an_edit(root):
    (root / "code.py").write_text("later\n")
    assert [(entry.origin, entry.status) for entry in results.datasets("cartpole", "throughput", root)] == [
        ("here", "measured here, code changed since"),
        *[("recorded", "recorded, code changed since")] * 2,
    ]


def test_what_was_never_measured_has_no_dataset(root):
    assert results.datasets("cartpole", "correctness", root) == []
    assert results.datasets(None, "ceilings", root) == []


def test_an_edited_recorded_file_is_not_used(root):
    (root / "results/recorded/new/cartpole/throughput.csv").write_text("value\n9.9\n")
    with pytest.raises(checksums.ChecksumError, match=r"new/cartpole/throughput\.csv is not as signed"):
        results.datasets("cartpole", "throughput", root)


def test_two_runs_cannot_write_the_same_result(path):
    first = journal(path)
    with pytest.raises(
        UserError, match=rf"speed\.csv is being written by another run \(process {os.getpid()} on \S+\)"
    ):
        journal(path)
    first.close()
    journal(path).close()


def test_a_place_that_cannot_be_written_is_named():
    with pytest.raises(UserError, match=r"/proc/nowhere/speed\.csv cannot be written"):
        journal(Path("/proc/nowhere/speed.csv"))


def test_a_folder_in_the_place_of_the_rows_is_told_before_anything_is_measured(path):
    path.mkdir(parents=True)
    with pytest.raises(UserError, match=r"speed\.csv cannot be written: Is a directory$"):
        journal(path)


def test_on_a_full_disk_finished_groups_are_kept(path):
    """A limit on the size of files stands for the disk's; in another process, which it would not leave."""
    made = journal(path)
    made.add("a", rows("a"))
    made.close()

    def fill():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        again = journal(path)
        size = path.with_suffix(".partial.csv").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, size + 20))
        with pytest.raises(UserError, match=r"speed\.csv cannot be written: File too large; finished groups are kept"):
            again.add("b", rows("b"))

    child = multiprocessing.get_context("fork").Process(target=fill)
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert list(journal(path).groups) == ["a"]


def test_a_kill_between_rows_and_provenance_leaves_no_result(path, monkeypatch):
    made = journal(path)
    made.add("a", rows("a"))
    made.finish()
    again = journal(path, {"seed": 1})
    again.add("b", rows("b"))

    def killed(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(results, "write_whole", killed)
    with pytest.raises(KeyboardInterrupt):
        again.finish()
    with pytest.raises(UserError, match="has no readable provenance"):
        results.read(path)


def test_rows_that_are_not_those_of_the_provenance_are_refused(path):
    made = journal(path)
    made.add("a", rows("a"))
    made.finish()
    path.write_text(path.read_text()[:-20])
    with pytest.raises(UserError, match=r"speed\.csv is not the file that speed\.json describes"):
        results.read(path)
    path.with_suffix(".json").write_text("{}")
    with pytest.raises(UserError, match=r"speed\.json lacks sources, machine"):
        results.read(path)


def test_a_column_has_one_type_however_long_the_file_is(path):
    """Read piece by piece, a pandas frame would hold 1 and then "1" in one column."""
    journal = results.Journal(path, ["seed", "kind"], "ceilings", None, "quick", {})
    journal.add("numbers", [{"seed": number, "kind": 1} for number in range(200_000)])
    journal.add("words", [{"seed": 0, "kind": "one"}])
    journal.finish()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frame, _ = results.read(path)
    assert set(frame["kind"]) == {"1", "one"}
