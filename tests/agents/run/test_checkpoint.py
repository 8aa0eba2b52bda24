"""Checkpoints come back as they were, survive a kill, and say what is wrong with a file or a configuration."""

import collections
import io
import multiprocessing
import os
import pickle
import signal

import numpy as np
import pytest
import torch

from lockstep import envs
from lockstep.agents.run import checkpoint

CONTENT = {
    "iteration": 3,
    "seed": [2**64 - 1, 0],
    "config": {"lr": 2.5e-4, "hidden": (64, 64), "target_kl": None, "anneal_lr": True, "limit": float("inf")},
    "adam": {0: {"step": torch.tensor(7.0)}, 1: {}},
    "weights": torch.arange(6.0).reshape(2, 3),
}


def same(a, b) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return type(a) is type(b) and a == b


def test_a_checkpoint_comes_back_with_the_types_it_had(tmp_path):
    path = tmp_path / "runs" / "checkpoint.pt"  # the folder is made
    checkpoint.save(path, CONTENT)
    assert same(checkpoint.load(path), CONTENT)
    assert same(torch.load(path, weights_only=True)["content"], CONTENT)
    assert [file.name for file in path.parent.iterdir()] == ["checkpoint.pt"]


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64, torch.bfloat16, torch.bool, torch.int64])
def test_every_type_of_tensor_comes_back(tmp_path, dtype):
    tensor = torch.tensor([0, 1, 1]).to(dtype)
    checkpoint.save(tmp_path / "c.pt", {"x": tensor})
    assert same(checkpoint.load(tmp_path / "c.pt")["x"], tensor)


def test_a_batch_of_environments_goes_on_from_a_checkpoint_bit_for_bit(tmp_path):
    env = envs.make("cartpole", 20, seed=2**64 - 1)
    env.reset()
    env.rollout(37)
    checkpoint.save(tmp_path / "c.pt", {"env": env.state()})
    env.rollout(40)
    other = envs.make("cartpole", 20)
    other.set_state(checkpoint.load(tmp_path / "c.pt")["env"])
    other.rollout(40)
    assert same(env.state(), other.state())


def test_parameters_and_views_are_stored_as_the_plain_numbers_they_show(tmp_path):
    large = torch.zeros(1_000_000)
    checkpoint.save(tmp_path / "c.pt", {"view": large[:2], "parameter": torch.nn.Parameter(torch.ones(2))})
    assert (tmp_path / "c.pt").stat().st_size < 10_000
    found = checkpoint.load(tmp_path / "c.pt")
    assert type(found["parameter"]) is torch.Tensor and not found["parameter"].requires_grad
    assert same(found["view"], torch.zeros(2))


@pytest.mark.gpu
def test_what_was_saved_from_the_gpu_is_loaded_on_the_cpu(tmp_path):
    checkpoint.save(tmp_path / "c.pt", {"x": torch.ones(3, device="cuda")})
    assert same(checkpoint.load(tmp_path / "c.pt")["x"], torch.ones(3))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"a": {"b": [1, np.float64(2)]}}, "content['a']['b'][1] is a numpy.float64"),
        ({"obs": np.zeros(3)}, "content['obs'] is a numpy.ndarray"),
        ({"rng": {1, 2}}, "content['rng'] is a builtins.set"),
        ({"state": collections.OrderedDict()}, "content['state'] is a collections.OrderedDict"),
        ({"x": torch.eye(2).to_sparse()}, "content['x'] is a torch.Tensor"),
        ({"x": {(1, 2): 3}}, "content['x'] has the key (1, 2)"),
        ([1], "a checkpoint must be a dict, got list"),
    ],
)
def test_what_a_checkpoint_cannot_hold_is_named_and_nothing_is_written(tmp_path, content, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared below, as it is
        checkpoint.save(tmp_path / "c.pt", content)
    assert message in str(caught.value)
    assert not list(tmp_path.iterdir())


def killed(path, place):
    """Saves one checkpoint, then begins another one and is killed within it, as by SIGKILL, at the operation named."""

    def kill(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    def half(stored, file):
        whole = io.BytesIO()
        saved(stored, whole)
        file.write(whole.getvalue()[: len(whole.getvalue()) // 2])
        file.flush()
        kill()

    checkpoint.save(path, {"iteration": 1, "x": torch.zeros(100_000)})
    saved = torch.save
    if place == "write":
        torch.save = half
    else:
        setattr(os, place, kill)
    checkpoint.save(path, {"iteration": 2, "x": torch.zeros(100_000)})


@pytest.mark.parametrize("place", ["write", "fsync", "replace"])
def test_a_write_killed_half_way_leaves_the_old_file(tmp_path, place):
    path = tmp_path / "c.pt"
    child = multiprocessing.get_context("fork").Process(target=killed, args=(path, place))
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    assert (tmp_path / "c.pt.partial").exists()  # the kill came in the midst of the second write
    assert checkpoint.load(path)["iteration"] == 1
    checkpoint.save(path, {"iteration": 3})  # what the kill left is in nobody's way
    assert checkpoint.load(path)["iteration"] == 3 and [file.name for file in tmp_path.iterdir()] == ["c.pt"]


def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "c.pt"
    checkpoint.save(path, {"iteration": 1})

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(torch, "save", full)
        with pytest.raises(OSError, match="No space left"):
            checkpoint.save(path, {"iteration": 2})
    assert checkpoint.load(path) == {"iteration": 1} and [file.name for file in tmp_path.iterdir()] == ["c.pt"]


def flipped(whole: bytes) -> bytes:
    """One bit of a tensor's numbers changed."""
    at = whole.index(torch.full((8,), 0.1).numpy().tobytes())
    return whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda whole: b"", "not a whole checkpoint"),
        (lambda whole: b"iteration,env_steps\n1,2\n", "not a whole checkpoint"),
        (lambda whole: whole[: len(whole) // 2], "not a whole checkpoint"),
        (lambda whole: whole[:-1], "not a whole checkpoint"),
        (lambda whole: pickle.dumps({"iteration": 1}), "not a whole checkpoint"),
        (flipped, "its checksum is wrong"),
    ],
)
def test_a_damaged_file_is_told_from_a_checkpoint(tmp_path, damage, message):
    path = tmp_path / "c.pt"
    checkpoint.save(path, {"x": torch.full((1000,), 0.1)})
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=message) as caught:
        checkpoint.load(path)
    assert str(path) in str(caught.value)


def test_a_missing_foreign_or_future_file_is_named(tmp_path):
    path = tmp_path / "c.pt"
    with pytest.raises(ValueError, match="there is no such file"):
        checkpoint.load(path)
    torch.save({"model": torch.ones(2)}, path)
    with pytest.raises(ValueError, match="no checkpoint of this code"):
        checkpoint.load(path)
    torch.save({"lockstep_checkpoint": 99, "content": {}}, path)
    with pytest.raises(ValueError, match=f"has format 99; this code reads {checkpoint.FORMAT}"):
        checkpoint.load(path)
    torch.save(torch.nn.Linear(1, 1), path)  # a pickled object, which loading could have executed
    with pytest.raises(ValueError, match="not a whole checkpoint; the file is damaged or something else"):
        checkpoint.load(path)


def test_configurations_are_compared_field_by_field():
    saved = {"lr": 1e-3, "gamma": 0.99, "hidden": [64, 64], "eval_every": 5, "old": 1}
    here = {"lr": 1e-3, "gamma": 0.95, "hidden": (64, 64), "eval_every": 6, "new": None}
    assert checkpoint.differences(saved, here, may_differ=("eval_every",)) == [
        "gamma is 0.99 in the checkpoint and 0.95 here",
        "new is None here and absent in the checkpoint",
        "old is 1 in the checkpoint and unknown here",
    ]
    with pytest.raises(
        ValueError, match="gamma is 0.99 in the checkpoint and 0.95 here; .*; only eval_every may differ"
    ):
        checkpoint.require_same(saved, here, ("eval_every",))
    with pytest.raises(ValueError, match="eval_every is 5 in the checkpoint and 6 here"):
        checkpoint.require_same(saved, here)
    checkpoint.require_same(
        {"hidden": [64, 64], "save_every": 1}, {"hidden": (64, 64), "save_every": 2}, ["save_every"]
    )
