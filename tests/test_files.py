"""Files that replace others in one piece, and paths that one process holds at a time."""

import errno
import fcntl
import multiprocessing
import os
import signal
import socket
import threading

import pytest

from lockstep import files
from tests.faults import Faults, failing, files_of_at_most

HERE = f"{os.getpid()} on {socket.gethostname()}"


def held_elsewhere(path, told, wait):
    """Holds a path until it is killed, or until `wait` is set."""
    with files.hold(path):
        told.set()
        wait.wait(60)


@pytest.fixture
def holder(tmp_path):
    """A process that holds tmp_path/held, and the event that ends it."""
    context = multiprocessing.get_context("fork")
    told, wait = context.Event(), context.Event()
    process = context.Process(target=held_elsewhere, args=(tmp_path / "held", told, wait))
    process.start()
    assert told.wait(60)
    yield process, wait
    process.kill()
    process.join()


def test_who_holds_a_path_is_named_and_a_kill_sets_it_free(tmp_path, holder):
    process, _ = holder
    with pytest.raises(files.HeldElsewhere) as caught, files.hold(tmp_path / "held"):
        pass
    assert caught.value.holder == f"process {process.pid} on {socket.gethostname()}"
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    with files.hold(tmp_path / "held"):
        assert (tmp_path / "held").read_text() == HERE
    assert not list(tmp_path.iterdir())


def test_a_holder_that_has_not_written_who_it_is_is_another_process(tmp_path, holder):
    (tmp_path / "held").write_text("")
    with pytest.raises(files.HeldElsewhere, match="^held by another process$"), files.hold(tmp_path / "held"):
        pass


@pytest.mark.parametrize("opened", [files.hold, files.replacing])
def test_a_file_that_finds_no_room_is_named(tmp_path, opened):
    """Also one that says who holds a path; the failing call itself knows an open file and no path."""
    full, caught = files_of_at_most(0), pytest.raises(OSError, match="File too large: '.*/one'$")
    with caught, full, opened(tmp_path / "one") as file:
        file.write("more")
    assert not list(tmp_path.iterdir())


def test_each_call_that_fails_names_its_path(tmp_path):
    """The file beside it, which is opened, opened again and flushed; the rename; and the folder, the same."""
    named = []
    for at in range(1, 7):
        failure = failing(Faults(at, errno.EROFS))
        with pytest.raises(OSError, match="Read-only") as caught, failure, files.replacing(tmp_path / "one") as file:
            file.write("more")
        named.append(os.path.relpath(caught.value.filename, tmp_path))
    assert named == ["one.partial"] * 4 + ["."] * 2


def test_a_path_that_cannot_be_locked_is_named(tmp_path, monkeypatch):
    def no_locks(file, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(OSError, match="cannot be locked: No locks available") as caught, files.hold(tmp_path / "held"):
        pass
    assert caught.value.filename == str(tmp_path / "held")


def test_who_waits_gets_the_path_when_it_is_free_though_its_file_has_gone(tmp_path, holder):
    process, wait = holder
    got = []

    def ask():
        with files.hold(tmp_path / "held", wait=True):
            got.append((tmp_path / "held").read_text())

    asking = threading.Thread(target=ask)
    asking.start()
    assert not got
    wait.set()
    process.join()
    asking.join(60)
    assert got == [HERE] and not list(tmp_path.iterdir())


def test_of_many_who_ask_at_once_one_at_a_time_holds(tmp_path):
    inside, most = [], []

    def ask():
        for _ in range(50):
            with files.hold(tmp_path / "held", wait=True):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    asking = [threading.Thread(target=ask) for _ in range(4)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(60)
    assert (len(most), max(most)) == (200, 1)


def test_an_error_while_a_file_is_written_leaves_the_old_one(tmp_path):
    path = tmp_path / "settings"
    path.write_text("old")
    with pytest.raises(TypeError), files.replacing(path) as file:
        file.writelines(["half of the new", None])
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("settings", "old")]
    with files.replacing(path) as file:
        file.write("new")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("settings", "new")]
