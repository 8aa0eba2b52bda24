"""The emulator itself: what waits for whom, what shows, and what is refused."""

import ctypes

import numpy as np
import pytest
import torch

from tests.emulator import gpu

WARP = np.arange(32)


def run(
    body: str, threads: int = 64, blocks: int = 1, order: str = "ascending", shared: int = 0, **device
) -> list[int]:
    """The numbers that a kernel wrote to `out` [blocks, threads]; `n` is a thread's index."""
    text = f"""
        struct Rows {{ int* all; }};
        extern "C" __global__ void __launch_bounds__(128) kernel(const Rows rows) {{
            const int n = threadIdx.x;
            int* const out = rows.all + blockIdx.x * blockDim.x;
            {body}
        }}"""
    out, on = np.full((blocks, threads), 99, np.int32), gpu.Device(order, **device)
    rows = (ctypes.c_void_p * 1)(out.ctypes.data)
    gpu.unit_on(text, on).run("kernel", (rows,), blocks, threads, shared, on)
    return out.squeeze().tolist()


# ---- what one thread reads of another

NEIGHBOUR = "__shared__ int box[64]; box[n] = n; {} out[n] = box[(n + 1) % 64];"


def test_a_read_without_a_barrier_differs_by_the_order_of_threads():
    found = [run(NEIGHBOUR.format(""), order=order) for order in gpu.ORDERS]
    assert found[0] == [-1] * 63 + [0]
    assert found[1] == [*range(1, 64), -1]
    assert found[2] not in found[:2]


@pytest.mark.parametrize("order", gpu.ORDERS)
def test_a_read_behind_a_barrier_is_the_same_in_every_order(order):
    assert run(NEIGHBOUR.format("__syncthreads();"), order=order) == [*range(1, 64), 0]


@pytest.mark.parametrize("order", gpu.ORDERS)
def test_a_barrier_of_a_warp_waits_for_its_lanes_alone(order):
    body = (
        "__shared__ int box[64]; box[n] = n; __syncwarp(); out[n] = box[n ^ 1] + (box[(n + 32) % 64] == -1 ? 100 : 0);"
    )
    first, second = np.split(np.array(run(body, order=order)), 2)
    assert np.array_equal(first % 100, WARP ^ 1)
    assert np.array_equal(second % 100, (WARP ^ 1) + 32)
    assert (first >= 100).all() == (order == "ascending")  # the first warp did not wait for the second


def test_threads_that_have_returned_are_not_waited_for():
    body = "if (n >= 40) return; __syncthreads(); out[n] = __syncthreads_count(n % 2); __any_sync(0xffffffffu, 1);"
    assert run(body) == [20] * 40 + [99] * 24


# ---- memory that nothing was written to


@pytest.mark.parametrize(
    "declared",
    ["__shared__ int box[64];", "__shared__ alignas(16) int box[64], other[2];", "extern __shared__ int box[];"],
)
def test_shared_memory_holds_ones_at_the_beginning_of_every_block(declared):
    shared = 256 if "extern" in declared else 0
    found = run(f"{declared} out[n] = box[n]; __syncthreads(); box[n] = n;", blocks=3, shared=shared)
    assert found == [[-1] * 64] * 3


def test_shared_arrays_lie_apart_and_are_aligned():
    body = """
        __shared__ char one[3];
        __shared__ alignas(16) float4 two[64];
        __shared__ double three;
        one[n % 3] = 1;
        two[n] = make_float4(n, n, n, n);
        three = 0.0;
        __syncthreads();
        out[n] = int(two[n].x) + int(reinterpret_cast<unsigned long long>(two) % 16) + one[0] - 1;"""
    assert run(body) == [*range(64)]


def test_a_write_beyond_dynamic_shared_memory_is_seen():
    with pytest.raises(gpu.EmulationError, match="kernel: block 0 wrote beyond its 256 bytes of dynamic shared memory"):
        run("extern __shared__ int box[]; box[n + 1] = n;", shared=256)


@pytest.mark.parametrize("index", [-1, 64])
def test_a_write_beside_a_tensor_is_seen(index):
    text = """
        struct Rows { int* out; };
        extern "C" __global__ void kernel(const Rows rows) { rows.out[INDEX] = 1; }"""
    with gpu.installed():
        out = torch.zeros(64, dtype=torch.int32, device=gpu.Device())
        rows = (ctypes.c_void_p * 1)(out.data_ptr())
        with pytest.raises(gpu.EmulationError, match="kernel wrote beyond the end, or before the beginning"):
            gpu.compiled(text.replace("INDEX", str(index))).run("kernel", (rows,), 1, 64, 0, gpu.Device())
        gpu.compiled(text.replace("INDEX", "63")).run("kernel", (rows,), 1, 64, 0, gpu.Device())
    assert out.sum() == 1


def test_a_local_variable_is_not_zero_by_chance():
    if gpu.FILLED not in gpu.filling():
        pytest.skip("this compiler fills no variables")
    assert 0 not in run("int row[4]; out[n] = row[n % 4];")


# ---- what no GPU gets through


def test_threads_that_wait_for_each_other_are_named():
    expected = (
        "kernel: block 1 is stuck; threads 0 to 2 wait in __syncthreads; "
        "threads 3 to 3 wait in __any_sync with mask 0xffffffff; threads 4 to 63 wait in __syncthreads"
    )
    with pytest.raises(gpu.EmulationError, match=expected):
        run("if (n == 3 && blockIdx.x == 1) __any_sync(0xffffffffu, 1); else __syncthreads();", blocks=2)


@pytest.mark.parametrize(
    "body",
    [
        "if (n < 32) __syncthreads(); else __syncthreads_or(1);",
        "if (n % 2) __any_sync(0xffffffffu, 1); else __ballot_sync(0xffffffffu, 1);",
        "if (n % 2) __reduce_add_sync(0xffffffffu, 1); else __reduce_add_sync(0xffffffffu, 1u);",
    ],
)
def test_barriers_of_different_kinds_do_not_meet(body):
    with pytest.raises(gpu.EmulationError, match="block 0 is stuck"):
        run(body)


def test_a_lane_outside_of_its_mask_is_named_and_the_next_launch_is_not_disturbed():
    message = "kernel: thread 37 of block 0 calls __shfl_sync with mask 0x1f, in which it is not"
    with pytest.raises(gpu.EmulationError, match=message):
        run("if (n >= 37) __shfl_sync(0x1fu, n, 0); __syncthreads();")
    assert run("__syncthreads(); out[n] = n;") == [*range(64)]


def test_more_threads_than_the_bounds_of_a_kernel_are_refused():
    with pytest.raises(gpu.EmulationError, match="kernel is launched by blocks of 256 threads; its bounds say 128"):
        run("", threads=256)


def test_a_fault_of_a_text_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="the unit has no 'other'"):
        gpu.faulty("text", gpu.Device(fault=("other", "")))


def test_unknown_assembly_is_named():
    with pytest.raises(ValueError, match=r"no assembly .*ex2\.approx"):
        run('float x = 1.0f; asm("ex2.approx.f32 %0, %0;" : "+f"(x));')


# ---- operations of a warp

FULL = "0xffffffffu"
SHUFFLES = {
    f"__shfl_sync({FULL}, n, 5)": np.full(32, 5),
    f"__shfl_sync({FULL}, n, n + 1, 8)": WARP // 8 * 8 + (WARP + 1) % 8,
    f"__shfl_up_sync({FULL}, n, 3)": np.where(WARP >= 3, WARP - 3, WARP),
    f"__shfl_down_sync({FULL}, n, 16)": np.where(WARP < 16, WARP + 16, WARP),
    f"__shfl_down_sync({FULL}, n, 2, 4)": np.where(WARP % 4 < 2, WARP + 2, WARP),
    f"__shfl_xor_sync({FULL}, n, 9)": WARP ^ 9,
    f"int(__shfl_xor_sync({FULL}, double(n), 1))": WARP ^ 1,
    f"__shfl_sync({FULL}, (1ll << 40) + n, 7) == (1ll << 40) + 7": np.ones(32),
    "__shfl_down_sync(n % 2 ? 0xaaaaaaaau : 0x55555555u, n, 2)": np.where(WARP < 30, WARP + 2, WARP),
    f"int(__ballot_sync({FULL}, n % 3 == 0))": np.full(
        32, int(np.uint32(0b1001001001001001001001001001001).astype(int))
    ),
    f"__any_sync({FULL}, n == 31) + 2 * __any_sync({FULL}, n == 32)": np.ones(32),
    f"__all_sync({FULL}, n < 32) + 2 * __all_sync({FULL}, n < 31)": np.ones(32),
    f"__reduce_add_sync({FULL}, n - 20)": np.full(32, -144),
    f"__reduce_min_sync({FULL}, n - 20)": np.full(32, -20),
    f"__reduce_max_sync({FULL}, n - 40)": np.full(32, -9),
    f"int(__reduce_min_sync({FULL}, unsigned(n - 1)))": np.zeros(32),
    f"int(__reduce_xor_sync({FULL}, 1u << n % 31))": np.full(32, 0x7FFFFFFE),
}


@pytest.mark.parametrize("order", gpu.ORDERS)
def test_operations_of_a_warp_are_those_of_the_manual(order):
    body = "".join(f"if (blockIdx.x == {k}) out[n] = {expression};" for k, expression in enumerate(SHUFFLES))
    found = run(body, threads=32, blocks=len(SHUFFLES), order=order)
    for row, (expression, expected) in zip(found, SHUFFLES.items(), strict=True):
        assert row == expected.tolist(), expression


def test_a_lane_that_is_not_there_brings_ones():
    body = "if (n >= 20) return; out[n] = __shfl_down_sync(0xffffffffu, n, 4);"
    assert run(body, threads=32)[:20] == [*range(4, 20), -1, -1, -1, -1]
    assert run("out[n] = __shfl_down_sync(0xffffffffu, n, 4);", threads=7) == [4, 5, 6, -1, -1, -1, -1]


def test_votes_of_a_block_and_atomics_add_up():
    body = """
        __shared__ int sum, most;
        __shared__ unsigned long long bits;
        if (n == 0) { sum = most = 0; bits = 0; }
        __syncthreads();
        atomicAdd(&sum, n);
        atomicMax(&most, n);
        atomicOr(&bits, 1ull << n);
        const int any = __syncthreads_or(n == 40), all = __syncthreads_and(n < 64), count = __syncthreads_count(n < 10);
        out[n] = sum + 10000 * most + 1000000 * any + 10000000 * all + 20000000 * count + (bits + 1 == 0);"""
    assert run(body, order="shuffled") == [2016 + 630000 + 1000000 + 10000000 + 200000000 + 1] * 64


# ---- races

RACES = {  # what it is, and what a kernel does whose threads all have their own numbers n
    "has read": "__shared__ int box[64]; box[n] = n; out[n] = box[(n + 1) % 64];",
    "has written": "__shared__ int box; box = n;",
    "another warp's": "__shared__ int box[64]; box[n] = n; __syncwarp(); out[n] = box[63 - n];",
    "through global memory": "out[n] = n; out[n] += out[n ^ 1];",
    "after it was read": "__shared__ int box[64]; box[n] = n; __syncthreads(); out[n] = box[n ^ 1]; box[n] = 5;",
    "behind a vote": "__shared__ int box[64]; box[n] = n; __any_sync(0xffffffffu, 1); out[n] = box[n ^ 1];",
    "of a struct": "__shared__ int2 x[64]; x[n] = make_int2(n, n); const int2 other = x[n ^ 1]; out[n] = other.y;",
}
NO_RACES = {
    "a barrier": "__shared__ int x[64]; x[n] = n; __syncthreads(); out[n] = x[63 - n]; __syncthreads(); x[n] = 5;",
    "one of a warp": "__shared__ int box[64]; box[n] = n; __syncwarp(); out[n] = box[n ^ 1];",
    "the same by all": "__shared__ int box; box = 7; out[n] = box;",
    "neighbouring bytes": "__shared__ char box[64]; box[n] = n; out[n] = box[n];",
    "atomics": "__shared__ int s; if (n == 0) s = 0; __syncthreads(); atomicAdd(&s, n); __syncthreads(); out[n] = s;",
    "variables": "int row[64]; row[n] = n; int* const at = row; out[n] = at[n];",
}


@pytest.mark.parametrize("order", gpu.ORDERS)
@pytest.mark.parametrize("body", RACES.values(), ids=RACES)
def test_a_race_is_one_in_every_order(body, order):
    with pytest.raises(gpu.EmulationError, match=r"kernel: race: thread \d+ of block 0 (reads|changes) what"):
        run(body, order=order, watched=True)


@pytest.mark.parametrize("body", NO_RACES.values(), ids=NO_RACES)
def test_what_barriers_order_is_no_race(body):
    assert run(body, order="shuffled", watched=True) == run(body)


def test_a_barrier_that_is_left_out_is_told_by_its_number():
    text = """#line 1 "one.cuh"
        __device__ inline void sync() { __syncthreads(); }
        struct Rows { int* all; };
        extern "C" __global__ void kernel(const Rows rows) {
            __shared__ int box[64];
            box[threadIdx.x] = 1;
            sync();  // not sync() of a comment
            if (threadIdx.x == 0) rows.all[0] = box[1];
            box[threadIdx.x] = 1; sync();
        }"""
    assert gpu.barriers(text) == {0: "one.cuh: box[threadIdx.x] = 1;", 1: "one.cuh: box[threadIdx.x] = 1; (2)"}
    out = np.zeros(1, np.int32)
    rows = (ctypes.c_void_p * 1)(out.ctypes.data)
    gpu.reached()
    for left_out in (-1, 1):
        on = gpu.Device(watched=True, left_out=left_out)
        gpu.unit_on(text, on).run("kernel", (rows,), 1, 64, 0, on)
        assert gpu.reached() == {0, 1}
    on = gpu.Device(watched=True, left_out=0)
    with pytest.raises(
        gpu.EmulationError, match="race: thread 1 of block 0 changes what thread 0 behind sync 1 has read"
    ):
        gpu.unit_on(text, on).run("kernel", (rows,), 1, 64, 0, on)


# ---- arithmetic

EXPRESSIONS = {
    "__popc(0xf0u) + 10 * __popcll(0xf0f0ull)": 84,
    "__ffs(8) + 10 * __ffs(0) + 100 * __ffsll(1ll << 40)": 4104,
    "__clz(1) + 100 * __clz(0) + 10000 * __clzll(1ll)": 633231,
    "int(__umulhi(0x80000000u, 6u))": 3,
    "int(__umul64hi(1ull << 63, 6ull))": 3,
    "int(__brev(6u))": 0x60000000,
    "int(__float_as_uint(1.0f))": 0x3F800000,
    "int(__uint_as_float(0x40400000u))": 3,
    "int(__double_as_longlong(1.0) >> 32)": 0x3FF00000,
    "int(__longlong_as_double(0x4008000000000000ll))": 3,
    "int(__float2ll_rn(2.5f) + 10 * __float2ll_rn(3.5f))": 42,
    "min(3, 4) + 10 * max(3, 4) + 100 * int(min(3.0f, 4.0f))": 343,
    "int(make_float4(1, 2, 3, 4).w + make_int4(1, 2, 3, 4).x + make_uint2(5, 6).y)": 11,
    "int(clock64() > 0)": 1,
    "int(blockDim.x + 1000 * gridDim.x)": 32019,
}


def test_intrinsics_are_those_of_the_manual():
    body = "".join(f"if (blockIdx.x == {k}) out[n] = {expression};" for k, expression in enumerate(EXPRESSIONS))
    found = run(body.replace("32019", ""), threads=32, blocks=len(EXPRESSIONS))
    expected = list(EXPRESSIONS.values())
    expected[-1] = 32 + 1000 * len(EXPRESSIONS)
    assert [row[0] for row in found] == expected


@pytest.mark.parametrize("ulp", [-1, 0, 1])
def test_an_approximate_reciprocal_is_off_by_as_much_as_was_asked_for(ulp):
    body = """
        const float x = n == 0 ? 3.0f : n == 1 ? -0.7f : n == 2 ? 0.0f : n == 3 ? 3e38f : 1e-40f;
        float r;
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
        out[n] = __float_as_int(r);"""
    found = np.array(run(body, threads=5, reciprocal_ulp=ulp), np.int32)
    exact = (1 / np.array([3, -0.7], np.float32)).view(np.int32)
    assert found[:2].tolist() == (exact + ulp).tolist()
    assert found[2:].view(np.float32).tolist() == [np.inf, 0, np.inf]


def test_pins_of_registers_and_prefetches_vanish():
    body = """
        float f = n;
        double d = n;
        int r = n;
        asm volatile("" : "+f"(f));
        asm volatile("" : "+d"(d), "+r"(r));
        asm volatile("prefetch.global.L2 [%0];" ::"l"(out + (n + 1)));
        out[n] = int(f) + int(d) + r;"""
    assert run(body) == [3 * n for n in range(64)]
