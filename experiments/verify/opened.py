"""A batched environment of any library that is stepped as one goes: in this process, or in the Python of a peer.

Needs nothing but NumPy and the environment's own library. Arrays go through a pipe as their bytes.
"""

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from lockstep.experiments import UserError, peer_workers
from lockstep.experiments.verify import lives
from lockstep.experiments.verify.subjects import Step, Subject

TIMEOUT_S = 300  # for one answer, the library's compilation included


@contextlib.contextmanager
def opened(name: str, num_envs: int) -> Iterator["Subject | Elsewhere"]:
    """An environment with `reset(seed)` and `step(actions)` as `Subject` has them.

    Raises:
        UserError: its library is nowhere, or it cannot be made or played; says why.
    """
    python = lives.python_of(name)
    subject = Elsewhere(python, name, num_envs) if python else contextlib.closing(Subject(name, num_envs))
    with subject as found:
        yield found


class Elsewhere:
    """A `Subject` in a process of another Python, while its context lasts."""

    def __init__(self, python: str, name: str, num_envs: int):
        self.python, self.name, self.num_envs = python, name, num_envs

    def __enter__(self) -> "Elsewhere":
        self.folder = tempfile.TemporaryDirectory()  # its own, because a library may leave files where it is started
        self.said = open(Path(self.folder.name, "said"), "w+")
        self.pipe, theirs = Pipe()
        command = [self.python, "-m", __spec__.name, str(theirs.fileno()), self.name, str(self.num_envs)]
        self.process = subprocess.Popen(
            command,
            cwd=self.folder.name,
            env=lives.variables(),
            stdin=subprocess.DEVNULL,
            stdout=self.said,
            stderr=self.said,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        return self

    def __exit__(self, *exception) -> None:
        self.pipe.close()
        self.process.kill()
        self.process.wait()
        self.said.close()
        self.folder.cleanup()

    def reset(self, seed: int) -> np.ndarray:
        """First observations [B, ...]."""
        return self._answer("reset", seed)[0]

    def step(self, actions: np.ndarray) -> Step:
        return Step(*self._answer("step", packed(actions)))

    def _answer(self, asked: str, value: object) -> list[np.ndarray]:
        try:
            self.pipe.send((asked, value))
            if not self.pipe.poll(TIMEOUT_S):
                raise UserError(f"{self.name}: no answer within {TIMEOUT_S} s")
            return [unpacked(one) for one in self.pipe.recv()]
        except (EOFError, ConnectionError):
            self.process.wait()
            self.said.seek(0)
            reason = peer_workers.last_error(self.said.read()).removeprefix("error: ")
            raise UserError(f"{self.name}: {reason}") from None


def packed(array: np.ndarray) -> tuple[str, tuple[int, ...], bytes]:
    """An array as any version of NumPy takes it."""
    return array.dtype.str, array.shape, array.tobytes()


def unpacked(sent: tuple[str, tuple[int, ...], bytes]) -> np.ndarray:
    kind, shape, content = sent
    return np.frombuffer(content, kind).reshape(shape).copy()


def main() -> None:
    """The process in the other Python, until the pipe is closed."""
    number, name, num_envs = sys.argv[1:]
    subject = Subject(name, int(num_envs))
    with Connection(int(number)) as pipe, contextlib.suppress(EOFError):
        try:
            while True:
                asked, value = pipe.recv()
                found = [subject.reset(value)] if asked == "reset" else subject.step(unpacked(value))
                pipe.send([packed(np.asarray(one)) for one in found if one is not None])
        except UserError as error:
            sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
