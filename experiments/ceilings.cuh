// The fp32 rate of a machine: independent chains of fused multiply-adds, enough to fill its pipelines.
// One text for both compilers: the GPU's kernel, and the CPU's function for vectors as wide as it has.

#ifdef __CUDACC_RTC__

extern "C" __global__ void nothing() {}

// Copies 16 bytes to a thread. Past the L2 cache this is half as fast again as the copies of a CUDA graph itself.
extern "C" __global__ void copy(const uint4* from, uint4* to, long long count) {
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < count) to[i] = from[i];
}

// Each thread runs CHAINS chains of `rounds` fmas; flop = 2 * threads * CHAINS * rounds.
extern "C" __global__ void fma_chains(float* out, int rounds, float factor, float term) {
    float chain[CHAINS];
    for (int i = 0; i < CHAINS; i++) chain[i] = threadIdx.x + i;
#pragma unroll 16  // so that counting rounds takes 2 % of the instructions, not 9 %
    for (int round = 0; round < rounds; round++) {
#pragma unroll
        for (int i = 0; i < CHAINS; i++) chain[i] = fmaf(chain[i], factor, term);
    }
    float sum = 0;
    for (int i = 0; i < CHAINS; i++) sum += chain[i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

#else

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif

typedef float Vector __attribute__((vector_size(4 * LANES)));

// Our flags forbid the compiler to fuse a * b + c, which is what this function is about.
#ifdef __clang__
#define FUSE
#pragma clang fp contract(fast)
#else
#define FUSE __attribute__((optimize("fp-contract=fast")))
#endif

extern "C" int lanes() { return LANES; }

// CHAINS chains of `rounds` vector fmas: 2 * LANES * CHAINS * rounds flop. CHAINS vectors and two constants fit into
// 16 registers, and cover the latency of two fma units.
extern "C" FUSE void fma_chains(float* out, long rounds, float factor, float term) {
    Vector chain[CHAINS], sum = {};
    for (int i = 0; i < CHAINS; i++) chain[i] = sum + (float)i;
    for (long round = 0; round < rounds; round++) {
#pragma GCC unroll 16
        for (int i = 0; i < CHAINS; i++) chain[i] = chain[i] * factor + term;
    }
    for (int i = 0; i < CHAINS; i++) sum += chain[i];
    for (int lane = 0; lane < LANES; lane++) out[lane] = sum[lane];
}

#endif
