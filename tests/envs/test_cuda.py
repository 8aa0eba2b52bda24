"""Tests that need a GPU: long lives on both devices, streams, launches of blocks, a memory for several libraries."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from lockstep import envs
from lockstep.envs.batch import launch
from lockstep.envs.kernels import compile, structs
from tests import sanitize
from tests.contract.batches import KNOWN
from tests.envs.batches import copies, linear, make, random_step, same, spread
from tests.envs.test_functions import TANGENTS, apply
from tests.envs.transitions import apart

pytestmark = pytest.mark.gpu

BLOCKS = [name for name in envs.names() if envs.port(name).of("lanes") > 1]
STEPS = 12  # so that episodes of eight end
BUILDS = [
    (name, options) for name in BLOCKS for options in sanitize.forms_of_several_lanes(name) if "profile" not in options
]


def block(name: str, device: str = "cuda", num_envs: int = 7, **options):
    seeded = {"unseeded_instances": False} if hasattr(envs.port(name).params, "unseeded_instances") else {}
    env = sanitize.small(name, device, **{"num_envs": num_envs, "max_episode_steps": 8} | seeded | options)
    env.reset(seed=3)
    return env


def on_host(outputs) -> list[torch.Tensor]:
    return [tensor.cpu() for tensor in outputs[:4]]


@pytest.mark.parametrize("policy", ["random", "linear"])
@pytest.mark.parametrize("name", KNOWN)
def test_both_devices_roll_out_the_same_bits_in_float32(name, policy):
    here, there = (make(name, 1000, seed=7, device=device) for device in ("cpu", "cuda"))
    for env in (here, there):
        spread(env)
    chosen = "random" if policy == "random" else linear(name)
    one, other = (env.rollout(1000, chosen, store="trajectory") for env in (here, there))
    assert same(one, other) and same(here.state(), there.state()) and same(here.statistics(), there.statistics())


@pytest.mark.parametrize("name", KNOWN)
def test_both_devices_agree_in_float64(name):
    """Each step starts on the GPU where the CPU's did: rounding would grow along an episode."""
    here, there = (make(name, 1000, seed=7, device=device, dtype="float64") for device in ("cpu", "cuda"))
    spread(here)
    for _ in range(1000):
        there.set_state(here.state())
        action = here.random_actions()[0]
        (_, reward, *flags), (_, other, *others) = here.step(action)[:4], there.step(action.cuda())[:4]
        assert all(torch.equal(a, b.cpu()) for a, b in zip(flags, others, strict=True))
        torch.testing.assert_close(reward, other.cpu(), rtol=0, atol=1e-6)
        states = [env.state()["state"].cpu().numpy() for env in (here, there)]
        assert apart(name, *states).max() <= 1e-12


@pytest.mark.parametrize(
    ("name", "options"), BUILDS, ids=lambda part: part if isinstance(part, str) else " ".join(map(str, part.values()))
)
def test_launches_of_any_size_and_the_cpu_live_the_same_life(name, options):
    """Two launches of three blocks and one of one change no bit; the CPU's library may round logarithms otherwise.

    Each step starts on the CPU where the GPU's did: rounding would grow along an episode.
    """
    whole, parts, here = (
        block(name, device, **options, chunk=chunk) for device, chunk in (("cuda", 7), ("cuda", 3), ("cpu", 7))
    )
    close = {"rtol": 1e-9, "atol": 1e-9} if whole.dtype == "float64" else {"rtol": 1e-4, "atol": 1e-4}
    for _ in range(STEPS):
        here.set_state(whole.state())
        one, other, third = (copies(random_step(env)) for env in (whole, parts, here))
        assert all(torch.equal(a, b) for a, b in zip(one[:4], other[:4], strict=True))
        assert same(one[4], other[4])
        assert all(torch.equal(a, b) for a, b in zip(on_host(one)[2:], on_host(third)[2:], strict=True))
        torch.testing.assert_close(one[1].cpu(), third[1], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(whole.state()["state"].cpu(), here.state()["state"], **close)
    assert same(whole.state(), parts.state())


@pytest.mark.parametrize("name", envs.names())
def test_kernels_wait_for_what_torch_s_current_stream_does_before(name):
    """A step reads actions that come after a delay on the stream it is on; on another one it would see the old ones."""
    env, eager = (block(name) if name in BLOCKS else make(name, device="cuda") for _ in range(2))
    late = [env.random_actions()[0] for _ in range(2)]
    wrong = [torch.zeros_like(action) for action in late]
    streams = [torch.cuda.Stream() for _ in late]
    torch.cuda.synchronize()
    for stream, action, given in zip(streams, late, wrong, strict=True):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(100_000_000)  # clock cycles, some 50 ms
            given.copy_(action)
            env.step(given)
        streams[1].wait_stream(stream)
    torch.cuda.synchronize()
    for action in late:
        eager.step(action)
    assert same(eager.state(), env.state())


@pytest.mark.parametrize("name", envs.names())
def test_a_thread_that_has_done_nothing_on_the_gpu_yet_may_step(name):
    env, other = (block(name) if name in BLOCKS else make(name, device="cuda") for _ in range(2))
    action = env.random_actions()[0]
    torch.cuda.synchronize()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(env.step, action).result()
    other.step(action)
    torch.cuda.synchronize()
    assert same(env.state(), other.state())


def test_tangents_have_the_bits_of_the_cpu():
    """Also where the quotient hangs on the reciprocal of 2 - 2^-23."""
    first, last = np.array([1e-9, 10.5], dtype=np.float32).view(np.int32).tolist()
    x = np.append(np.arange(first, last, 211, dtype=np.int32).view(np.float32), np.float32(5.96046519e-08))
    there = [torch.from_numpy(x).cuda(), torch.empty(len(x), device="cuda")]
    arrays = structs.struct("Arrays", TANGENTS, x=there[0], y=there[1], count=len(x))
    text = "#define REAL float\n" + compile.expand(compile.KERNELS / "platform.cuh") + TANGENTS
    launch.cuda(text, arrays, arrays, 1, 1, there[0].device)("tangents")()
    assert torch.equal(there[1].cpu(), torch.from_numpy(apply("tanh_of", x)))


@pytest.mark.parametrize("see", ["from_dlpack", "asarray"])
def test_cupy_sees_and_gives_the_same_memory(see):
    cupy = pytest.importorskip("cupy")
    env = make(device="cuda")
    obs = random_step(env)[0]
    seen = getattr(cupy, see)(obs)
    assert seen.data.ptr == obs.data_ptr()
    seen[3, 1] = 7
    assert obs[3, 1].item() == 7
    action = torch.from_dlpack(cupy.ones(env.num_envs, dtype=cupy.int32))
    assert action.device == env.device
    env.step(action)


def test_a_device_that_is_not_there_is_refused():
    count = torch.cuda.device_count()
    with pytest.raises(ValueError, match=rf"device='cuda:{count}': this machine has {count} CUDA device\(s\)"):
        make(device=f"cuda:{count}")
