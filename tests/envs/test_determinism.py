"""The same seed gives the same bytes: again, in another process, from a saved state, and on the GPU."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lockstep import envs
from tests.envs.batches import DEVICES, MODES, NAMES, B, copies, linear, make, random_step, same, spread
from tests.envs.transitions import apart

ROOT = Path(__file__).parents[2]


def digest(name: str) -> str:
    """Of everything that a batch gives away in 400 steps, half of them fused."""
    env, found = make(name, 1000, seed=123), hashlib.sha256()
    spread(env)
    for _ in range(200):
        *outputs, info = random_step(env)
        for tensor in (*outputs, *info.values()):
            found.update(tensor.numpy().tobytes())
    for tensor in env.rollout(200, linear(name), store="trajectory").values():
        found.update(tensor.numpy().tobytes())
    found.update(repr([float(value) for value in env.statistics().values()]).encode())
    found.update(env.state()["state"].numpy().tobytes())
    return found.hexdigest()


def test_another_process_gives_the_same_bytes():
    code = f"from tests.envs.test_determinism import digest\nprint(*map(digest, {NAMES}))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert other.stdout.split() == [digest(name) for name in NAMES]


SAVED = [("float32", mode) for mode in MODES] + [("float64", "Disabled")]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "mode"), SAVED)
@pytest.mark.parametrize("name", NAMES)
def test_a_saved_state_continues_bit_for_bit_in_another_batch(name, device, dtype, mode, tmp_path):
    options = {"device": device, "autoreset_mode": mode, "dtype": dtype, "check_actions": False}
    env = make(name, seed=4, **options)
    spread(env)
    for _ in range(25):
        random_step(env)
    torch.save(env.state(), tmp_path / "state.pt")
    saved = torch.load(tmp_path / "state.pt", weights_only=True)
    assert same(env.state(), saved)
    other = envs.make(name, B, seed=99, **options)
    other.set_state(saved)
    assert same(saved, other.state())
    for _ in range(60):
        a, b = copies(random_step(env)), copies(random_step(other))
        assert all(torch.equal(x, y) for x, y in zip(a[:4], b[:4], strict=True))
        assert same(a[4], b[4])
    assert same(env.state(), other.state())
    if mode == "SameStep":
        assert same(env.rollout(30, store="trajectory"), other.rollout(30, store="trajectory"))


# ---- CPU and GPU --------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("policy", ["random", "linear"])
@pytest.mark.parametrize("name", NAMES)
def test_both_devices_give_the_same_bits_in_float32(name, policy):
    here, there = (make(name, 1000, seed=7, device=device) for device in ("cpu", "cuda"))
    for env in (here, there):
        spread(env)
    chosen = "random" if policy == "random" else linear(name)
    one, other = (env.rollout(1000, chosen, store="trajectory") for env in (here, there))
    assert same(one, {key: value.cpu() for key, value in other.items()})
    one, other = here.state(), there.state()
    assert same(one, {k: v.cpu() if isinstance(v, torch.Tensor) else v for k, v in other.items()})
    for _ in range(50):
        one, other = copies(random_step(here)), copies(random_step(there))
        assert all(torch.equal(a, b.cpu()) for a, b in zip(one[:4], other[:4], strict=True))
    assert [float(v) for v in here.statistics().values()] == [float(v) for v in there.statistics().values()]


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_both_devices_agree_in_float64(name):
    """Each step starts on the GPU where the CPU's did: rounding would grow along an episode."""
    here, there = (make(name, 1000, seed=7, device=device, dtype="float64") for device in ("cpu", "cuda"))
    spread(here)
    for _ in range(1000):
        saved = here.state()
        there.set_state(saved)
        action = here.random_actions()[0]
        *outputs, _ = here.step(action)
        _, reward, *flags, _ = there.step(action.cuda())
        for one, other in zip(outputs[2:], flags, strict=True):
            assert torch.equal(one, other.cpu())
        torch.testing.assert_close(outputs[1], reward.cpu(), rtol=0, atol=1e-6)
        states = [env.state()["state"].cpu().numpy() for env in (here, there)]
        assert apart(name, *states).max() <= 1e-12
