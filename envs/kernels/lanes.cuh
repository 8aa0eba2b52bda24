// The lanes that hold one environment: LANES threads of a GPU, a group of a warp's threads or the whole block; on the CPU the
// one thread that has the environment to itself. Physics is written once as `for (int i = lane(); i < n; i += LANES)` with sync()
// wherever a lane reads what another wrote.
#pragma once
#include "place.cuh"

enum : int {
    BLOCK = LANES <= 16 ? 64 : LANES == 32 ? 128 : LANES,  // threads of a GPU's block: 64, so that shared memory has room for more blocks of small groups
    IN_WARP = LANES <= 32 ? 32 / LANES : 1,                // groups of a warp, whose other threads idle
    GROUPS = LANES <= 32 ? BLOCK / 32 * IN_WARP : 1,       // environments of a block
};
static_assert(LANES <= 16 || LANES % 32 == 0, "lanes are up to 16, 32, or several warps");

#ifdef __CUDACC__
#define LANE_WALK 1  // a sum by destination is a walk of its lane over all parts, not one pass with counters
FN int lane() { return GROUPS == 1 ? int(threadIdx.x) : int(threadIdx.x % 32 % LANES); }
FN int group() { return GROUPS == 1 ? 0 : int(threadIdx.x / 32 * IN_WARP + threadIdx.x % 32 / LANES); }
FN bool idle() { return GROUPS > 1 && threadIdx.x % 32 >= IN_WARP * LANES; }
FN int first_of_group() { return threadIdx.x % 32 / LANES * LANES; }  // thread of the warp
FN u32 of_group() { return (LANES == 32 ? 0xffffffffu : (1u << (LANES % 32)) - 1) << first_of_group(); }  // mask of the group's threads
FN void sync() {
    if (GROUPS == 1) __syncthreads();
    else __syncwarp(of_group());
}
#define STAGE __device__ __forceinline__
#else
#define LANE_WALK 0
#undef LANES
#define LANES 1
FN constexpr int lane() { return 0; }
FN void sync() {}
#define STAGE __attribute__((noinline))
// A thread's own memory by an address that is kept, which is otherwise asked for again wherever it is used.
template <typename T>
FN T& kept(T& of_thread) {
    T* own = &of_thread;
    asm("" : "+r"(own));
    return *own;
}
#endif

FN constexpr int padded_to(int count, int multiple) { return (count + multiple - 1) / multiple * multiple; }
FN int lowest_set(u64 bits) {  // of bits != 0
#ifdef __CUDACC__
    return __ffsll(i64(bits)) - 1;
#else
    return __builtin_ctzll(bits);
#endif
}
FN int set_bits(u64 bits) {
#ifdef __CUDACC__
    return __popcll(bits);
#else
    return __builtin_popcountll(bits);
#endif
}

// A profiling build (PROFILE 1) leaves the cycles of an environment's stages behind its metrics; other builds know no clock.
#ifndef PROFILE
#define PROFILE 0
#endif
struct Watch {
#if PROFILE
    i64 last;
#ifdef __CUDACC__
    static FN i64 now() { return clock64(); }
#else
    static FN i64 now() { return i64(__builtin_ia32_rdtsc()); }
#endif
    FN Watch() : last(now()) {}
    FN void restart() { last = now(); }
    // Notes the cycles since the last call; lanes have synchronised.
    FN void lap(float* cycles) {
        const i64 time = now();
        if (lane() == 0) *cycles = float(time - last);
        last = time;
    }
#else
    FN void restart() {}
    FN void lap(const float*) {}
#endif
};

// ln(1 + x) for x >= 0. In float32 from correctly rounded operations alone, so that it vectorises and both compilers agree:
// the logarithm of the rounded sum, then a first-order term for what the rounding lost.
FN float log_of_one_plus(float x) {
    const float sum = 1.0f + x, lost = x - (sum - 1.0f);
    return logarithm(sum) + lost / sum;
}
FN double log_of_one_plus(double x) { return log1p(x); }
FN float natural_log(float x) { return logarithm(x); }
FN double natural_log(double x) { return log(x); }

FN real smaller(real a, real b) { return a < b ? a : b; }
FN real larger(real a, real b) { return a > b ? a : b; }

enum { PARTS = 16 };  // interleaved partial sums

// Asks memory for x[0] .. x[n - 1], which are read soon; reads nothing, so that x may be anything.
template <typename T>
FN void ask(const T* x, int n) {
    const char* const bytes = reinterpret_cast<const char*>(x);
#ifdef __CUDACC__
    for (int k = 32 * lane(); k < n * int(sizeof(T)); k += 32 * LANES) asm volatile("prefetch.global.L2 [%0];" ::"l"(bytes + k));
#else
    for (int k = 0; k < n * int(sizeof(T)); k += 64) __builtin_prefetch(bytes + k);
#endif
}

// x[0] + .. + x[n - 1] by one lane, in one order whatever the number of lanes.
template <typename T>
FN real sum_of(const T* x, int n) {
    real part[8] = {};
    int i = 0;
    for (; i + 8 <= n; i += 8) {
UNROLL
        for (int k = 0; k < 8; k++) part[k] += x[i + k];
    }
    real rest = 0;
    for (; i < n; i++) rest += x[i];
    return (((part[0] + part[4]) + (part[2] + part[6])) + ((part[1] + part[5]) + (part[3] + part[7]))) + rest;
}

// Sums of `count` rows of `pitch` numbers, a multiple of PARTS; the same order and bits for any number of lanes.
FN void sum_rows(const real* rows, int count, int pitch, real* partial, real* sums) {
#if LANE_WALK
    for (int w = lane(); w < count * PARTS; w += LANES) {
        real sum = 0;
        for (int i = w % PARTS; i < pitch; i += PARTS) sum += rows[w / PARTS * pitch + i];
        partial[w] = sum;
    }
    sync();
    for (int r = lane(); r < count; r += LANES) {
        real* part = partial + r * PARTS;
        for (int half = PARTS / 2; half; half /= 2)
            for (int k = 0; k < half; k++) part[k] += part[k + half];
        sums[r] = part[0];
    }
    sync();
#else
    (void)partial;
    for (int r = 0; r < count; r++) {
        real part[PARTS] = {};
        for (int i = 0; i < pitch; i += PARTS)
            for (int k = 0; k < PARTS; k++) part[k] += rows[r * pitch + i + k];
        for (int half = PARTS / 2; half; half /= 2)
            for (int k = 0; k < half; k++) part[k] += part[k + half];
        sums[r] = part[0];
    }
#endif
}
