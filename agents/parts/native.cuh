// Products of small matrices on the CPU: a few rows of one matrix, numbers broadcast, times whole rows of another, the sums kept
// in registers.
#pragma once

#if defined(__clang__)
#pragma clang fp contract(fast)
#define UNROLL_ALL _Pragma("unroll")
#else
#pragma GCC optimize("fp-contract=fast")  // a * b + c of two vectors is one instruction
#define UNROLL_ALL _Pragma("GCC unroll 16")
#endif
#include "kernels/platform.cuh"

// The widest vectors of the processor. SUMS registers hold sums of products.
#if defined(__AVX512F__)
enum { LANES = 64 / sizeof(real), SUMS = 16 };
#elif defined(__AVX__)
enum { LANES = 32 / sizeof(real), SUMS = 8 };
#else
enum { LANES = 16 / sizeof(real), SUMS = 8 };
#endif
typedef real Vector __attribute__((vector_size(LANES * sizeof(real)), may_alias));

// Sums over `steps` of a[r, s] * b[s, :], begun by start(r, v) and handed to finish(r, v, sum): R rows, C vectors. Numbers of a
// lie a_row and a_step apart; load(s, v) is a vector of b.
template <int R, int C, typename Load, typename Start, typename Finish>
FN void product_block(const real* a, i64 a_row, i64 a_step, i64 steps, Load load, Start start, Finish finish) {
    Vector sum[R][C];
    UNROLL_ALL
    for (int r = 0; r < R; r++)
        UNROLL_ALL
        for (int v = 0; v < C; v++) sum[r][v] = start(r, v * LANES);
    for (i64 s = 0; s < steps; s++) {
        Vector row[C];
        UNROLL_ALL
        for (int v = 0; v < C; v++) row[v] = load(s, v * LANES);
        UNROLL_ALL
        for (int r = 0; r < R; r++) {
            const real x = a[r * a_row + s * a_step];
            UNROLL_ALL
            for (int v = 0; v < C; v++) sum[r][v] = x * row[v] + sum[r][v];
        }
    }
    UNROLL_ALL
    for (int r = 0; r < R; r++)
        UNROLL_ALL
        for (int v = 0; v < C; v++) finish(r, v * LANES, sum[r][v]);
}
