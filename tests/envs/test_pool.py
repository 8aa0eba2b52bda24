"""The threads behind a port on the CPU."""

import multiprocessing
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from lockstep import envs


def played(threads: int, seed: int, steps: int = 200):
    env = envs.make("cartpole", 5000, seed=seed, threads=threads)
    env.reset()
    for _ in range(steps):
        env.step(env.random_actions()[0])
    return env.state()["state"]


def test_more_threads_than_cores_or_tiles_give_the_same_result():
    assert torch.equal(played(64, 1), played(1, 1))


def test_two_python_threads_can_step_two_batches_at_once():
    found = {}
    workers = [threading.Thread(target=lambda s=seed: found.update({s: played(2, s)})) for seed in (1, 2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=60)
    assert torch.equal(found[1], played(1, 1))
    assert torch.equal(found[2], played(1, 2))


@pytest.mark.skipif(sys.platform == "win32", reason="no fork on Windows")
def test_a_forked_child_has_threads_of_its_own():
    env = envs.make("cartpole", 5000, threads=2)
    env.reset()
    env.rollout(10)

    def total() -> float:
        env.rollout(10)
        return float(env.state()["state"].double().sum())

    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=lambda: sender.send(total()))
    child.start()
    assert receiver.poll(60) and receiver.recv() == total()
    child.join()


@pytest.mark.skipif(sys.platform != "linux", reason="addresses are limited on Linux")
def test_where_the_system_has_no_more_threads_those_there_are_do_the_work():
    """A thread's stack needs addresses, of which a process may get few more."""
    code = """
import ctypes, re, resource
from pathlib import Path
from lockstep.envs.kernels import compile

@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_longlong, ctypes.c_longlong)
def kernel(batch, call, first, last):
    done.extend(range(first, last))

def threads():
    return len(list(Path("/proc/self/task").iterdir()))

def threads_after(limit):
    done.clear()
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    run(ctypes.cast(kernel, ctypes.c_void_p), None, None, 20, 20)
    assert sorted(done) == list(range(20))
    return threads()

run, done = compile.pool(), []
before = threads()
size = 1024 * int(re.search(r"VmSize:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
print(*(threads_after(limit) - before for limit in (size + 2**22, resource.RLIM_INFINITY)))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert (run.returncode, run.stdout) == (0, "0 19\n"), run.stderr


def test_waiting_threads_sleep():
    env = envs.make("cartpole", 5000, threads=4)
    env.reset()
    env.rollout(10)
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.05
