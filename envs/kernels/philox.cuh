// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3, SC'11).
// key = seed, counter = (environment index, episode, step, stream): a number depends on nothing else.
#pragma once
#include "platform.cuh"

enum Stream : u32 { STREAM_RESET = 0, STREAM_RANDOM_POLICY = 0x80000000u, STREAM_SAMPLING = 0x80000001u };

FN void philox_round(u32& c0, u32& c1, u32& c2, u32& c3, u32 k0, u32 k1) {
    const u64 p0 = u64(0xD2511F53u) * c0, p1 = u64(0xCD9E8D57u) * c2;
    c0 = u32(p1 >> 32) ^ c1 ^ k0;
    c1 = u32(p1);
    c2 = u32(p0 >> 32) ^ c3 ^ k1;
    c3 = u32(p0);
}

FN void philox(u32& c0, u32& c1, u32& c2, u32& c3, u64 key) {
    u32 k0 = u32(key), k1 = u32(key >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        philox_round(c0, c1, c2, c3, k0, k1);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

// low + (high - low) * u with u = (word >> 8) * 2^-24; product and sum are rounded apart.
template <typename T>
FN T uniform_in(u32 word, T low, T high) {
    const T unit = T(int(word >> 8)) * T(5.9604644775390625e-8);
    return low + (high - low) * unit;
}
FN real uniform(u32 word, real low, real high) { return uniform_in<real>(word, low, high); }

#ifndef __CUDACC__
// The same for `count` counters [4][count], 64-byte aligned and padded to a multiple of 16.
#ifdef __AVX512F__
#include <immintrin.h>
// GCC 12 multiplies whole 64-bit lanes where a 32x32 product is meant, at three times the cost; hence these few intrinsics.
static inline void philox_many(u32* c0, u32* c1, u32* c2, u32* c3, int count, u64 key) {
    const __m512i m0 = _mm512_set1_epi64(0xD2511F53u), m1 = _mm512_set1_epi64(0xCD9E8D57u);
    const auto multiply = [](__m512i c, __m512i m, __m512i& high, __m512i& low) {
        const __m512i even = _mm512_mul_epu32(c, m);
        const __m512i odd = _mm512_mul_epu32(_mm512_shuffle_epi32(c, _MM_PERM_DDBB), m);
        high = _mm512_mask_shuffle_epi32(odd, 0x5555, even, _MM_PERM_DDBB);
        low = _mm512_mask_shuffle_epi32(even, 0xAAAA, odd, _MM_PERM_CCAA);
    };
    for (int i = 0; i < count; i += 16) {
        __m512i a = _mm512_load_si512(c0 + i), b = _mm512_load_si512(c1 + i);
        __m512i c = _mm512_load_si512(c2 + i), d = _mm512_load_si512(c3 + i);
        u32 k0 = u32(key), k1 = u32(key >> 32);
        for (int round = 0; round < 10; round++) {
            __m512i high0, low0, high1, low1;
            multiply(a, m0, high0, low0);
            multiply(c, m1, high1, low1);
            a = _mm512_ternarylogic_epi32(high1, b, _mm512_set1_epi32(int(k0)), 0x96);  // 0x96: xor of three
            c = _mm512_ternarylogic_epi32(high0, d, _mm512_set1_epi32(int(k1)), 0x96);
            b = low1;
            d = low0;
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        _mm512_store_si512(c0 + i, a);
        _mm512_store_si512(c1 + i, b);
        _mm512_store_si512(c2 + i, c);
        _mm512_store_si512(c3 + i, d);
    }
}
#else
static inline void philox_many(u32* c0, u32* c1, u32* c2, u32* c3, int count, u64 key) {
    VECTORISE
    for (int i = 0; i < count; i++) philox(c0[i], c1[i], c2[i], c3[i], key);
}
#endif
#endif
