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
#if defined(__AVX512F__) && !defined(__clang__)
// GCC 12 multiplies whole 64-bit lanes where a 32x32 product is meant, at three times the cost; hence its own names of a few
// instructions. <immintrin.h> has others for them, but takes longer to read than most environments take to compile.
static inline void philox_many(u32* c0, u32* c1, u32* c2, u32* c3, int count, u64 key) {
    typedef int Lanes __attribute__((vector_size(64), may_alias));
    typedef i64 Products __attribute__((vector_size(64)));
    const Lanes m0 = Lanes{} + int(0xD2511F53u), m1 = Lanes{} + int(0xCD9E8D57u);
    const auto multiply = [](Lanes c, Lanes m, Lanes& high, Lanes& low) {
        const Lanes above = __builtin_ia32_pshufd512_mask(c, 0xF5, Lanes{}, u16(-1));
        const Lanes even = Lanes(__builtin_ia32_pmuludq512_mask(c, m, Products{}, u8(-1)));
        const Lanes odd = Lanes(__builtin_ia32_pmuludq512_mask(above, m, Products{}, u8(-1)));
        high = __builtin_ia32_pshufd512_mask(even, 0xF5, odd, u16(0x5555));
        low = __builtin_ia32_pshufd512_mask(odd, 0xA0, even, u16(0xAAAA));
    };
    for (int i = 0; i < count; i += 16) {
        Lanes a = *(Lanes*)(c0 + i), b = *(Lanes*)(c1 + i), c = *(Lanes*)(c2 + i), d = *(Lanes*)(c3 + i);
        u32 k0 = u32(key), k1 = u32(key >> 32);
        for (int round = 0; round < 10; round++) {
            Lanes high0, low0, high1, low1;
            multiply(a, m0, high0, low0);
            multiply(c, m1, high1, low1);
            a = high1 ^ b ^ int(k0);
            c = high0 ^ d ^ int(k1);
            b = low1;
            d = low0;
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        *(Lanes*)(c0 + i) = a;
        *(Lanes*)(c1 + i) = b;
        *(Lanes*)(c2 + i) = c;
        *(Lanes*)(c3 + i) = d;
    }
}
#else
static inline void philox_many(u32* c0, u32* c1, u32* c2, u32* c3, int count, u64 key) {
    VECTORISE
    for (int i = 0; i < count; i++) philox(c0[i], c1[i], c2[i], c3[i], key);
}
#endif
#endif
