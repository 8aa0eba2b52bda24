"""What only a GPU can show: batches that fill no block, streams, graphs of blocks, one memory for several libraries."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from lockstep import envs
from lockstep.envs import launch
from lockstep.envs.kernels import compile, structs
from tests.envs.batches import MODES, NAMES, copies, make, random_step, same, spread
from tests.envs.test_functions import TANGENTS, apply

pytestmark = pytest.mark.gpu

BLOCKS = envs.names("block")
SMALL = {"vehicles": 20, "edges": 4, "slots": 8, "components": 3, "scenarios": 3, "check_actions": False}
STEPS = 12  # so that episodes of eight end
BUILDS = [
    {},
    {"dtype": "float64"},
    {"autoreset_mode": "NextStep"},
    {"autoreset_mode": "Disabled", "signed": True, "trace": True},
    {"preset": "original"},
    {"gains": "drawn"},
    {"vehicles": 500, "edges": 25, "gains": "drawn"},  # a block of 256 lanes, its shared memory asked for
]


def block(name: str, device: str = "cuda", num_envs: int = 7, **options):
    env = envs.make(name, num_envs, device, **SMALL | options)
    env.reset(seed=3)
    return env


def on_host(outputs) -> list[torch.Tensor]:
    return [tensor.cpu() for tensor in outputs[:4]]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("num_envs", [1, 33, 1025])
@pytest.mark.parametrize("name", NAMES)
def test_a_batch_that_fills_no_block_has_the_bits_of_the_cpu(name, num_envs, mode):
    options = {"autoreset_mode": mode, "seed": 5, "check_actions": False}
    here, there = (make(name, num_envs, device=device, **options) for device in ("cpu", "cuda"))
    for env in (here, there):
        spread(env)
    for _ in range(30):
        one, other = random_step(here), random_step(there)
        assert all(torch.equal(a, b) for a, b in zip(on_host(one), on_host(other), strict=True))
    assert same({k: v for k, v in there.state().items() if not isinstance(v, torch.Tensor)}, here.state())
    for key, value in here.state().items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, there.state()[key].cpu()), key


@pytest.mark.parametrize("options", BUILDS, ids=lambda options: " ".join(map(str, options.values())))
@pytest.mark.parametrize("name", BLOCKS)
def test_launches_of_any_size_and_the_cpu_live_the_same_life(name, options):
    """Two launches of three blocks and one of one change no bit; the CPU's library may round logarithms otherwise."""
    whole, parts, here = (
        block(name, device, **options | chunk) for device, chunk in (("cuda", {}), ("cuda", {"chunk": 3}), ("cpu", {}))
    )
    close = {"rtol": 1e-9, "atol": 1e-9} if whole.dtype == "float64" else {"rtol": 1e-4, "atol": 1e-4}
    for _ in range(STEPS):
        one, other, third = (copies(random_step(env)) for env in (whole, parts, here))
        assert all(torch.equal(a, b) for a, b in zip(one[:4], other[:4], strict=True))
        assert same(one[4], other[4])
        assert all(torch.equal(a, b) for a, b in zip(on_host(one)[2:], on_host(third)[2:], strict=True))
        torch.testing.assert_close(one[1].cpu(), third[1], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(whole.state()["state"].cpu(), here.state()["state"], **close)
    assert same(whole.state(), parts.state())


@pytest.mark.parametrize("options", BUILDS[:2], ids=str)
@pytest.mark.parametrize("name", BLOCKS)
def test_fused_steps_and_graphs_of_blocks_are_single_steps(name, options):
    stepped, fused, captured = (block(name, chunk=3, **options) for _ in range(3))
    for _ in range(STEPS):
        random_step(stepped)
    fused.rollout(STEPS)
    before = captured.state()
    graph = captured.graph(steps=STEPS // 2)
    assert same(before, captured.state())
    for _ in range(2):
        graph.replay()
    for other in (fused, captured):
        # Info rows of an episode that ended before the last fused step are not written.
        info = ("final_obs", "episode_return", "episode_length") if other is fused else ()
        assert same(stepped.state(), other.state(), but=info)
    counted = stepped.statistics()
    assert counted["episodes"] > 0
    assert same(counted, fused.statistics()) and same(counted, captured.statistics())


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


@pytest.mark.parametrize("name", BLOCKS)
def test_a_step_of_blocks_never_waits_for_the_device(name):
    env = block(name, chunk=3)
    action = env.random_actions()[0]
    mask = {"reset_mask": torch.arange(env.num_envs, device="cuda") < 3}
    env.step(action), env.reset(options=mask)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(STEPS):
            env.step(action)
        env.reset(options=mask)
    finally:
        torch.cuda.set_sync_debug_mode("default")


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
