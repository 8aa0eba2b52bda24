// CUDA's names in device text, for g++: types, intrinsics, synchronisation. Only what CUDA has too, with its types, so that
// text which NVRTC refuses does not compile here either. A translation unit follows it in a namespace without a name.
#include <math.h>
#include <string.h>

#include "machine.hpp"

static const Machine* machine;

#define __device__
#define __host__
#define __global__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define threadIdx (machine->thread)
#define blockIdx (machine->block)
#define blockDim (machine->threads)
#define gridDim (machine->blocks)
enum : int { warpSize = 32 };

// ---- watched memory: what GCC calls before each access where it is to look for races, see threads.cpp ----------------------

#ifdef __SANITIZE_THREAD__
#define UNWATCHED __attribute__((no_sanitize("thread")))
#define CALLED extern "C" UNWATCHED __attribute__((visibility("hidden"))) void
static UNWATCHED void accessed(void* at, unsigned long size, bool writes) {
    if (machine) machine->access(at, size, writes);  // else the library is being loaded
}
#define ACCESS(form, size)                                                     \
    CALLED __tsan_##form##read##size(void* at) { accessed(at, size, false); }  \
    CALLED __tsan_##form##write##size(void* at) { accessed(at, size, true); }
ACCESS(, 1)
ACCESS(, 2)
ACCESS(, 4)
ACCESS(, 8)
ACCESS(, 16)
ACCESS(unaligned_, 2)
ACCESS(unaligned_, 4)
ACCESS(unaligned_, 8)
ACCESS(unaligned_, 16)
#undef ACCESS
CALLED __tsan_read_range(void* at, unsigned long size) { accessed(at, size, false); }
CALLED __tsan_write_range(void* at, unsigned long size) { accessed(at, size, true); }
CALLED __tsan_func_entry(void*) {}
CALLED __tsan_func_exit() {}
CALLED __tsan_init() {}
#undef CALLED
#else
#define UNWATCHED
#endif
#define PASS(number) machine->passes(number)  // what stands before a numbered sync()

// ---- shared memory: each declaration has a place of its own, found out when the library is loaded ----------------------------

static size_t shared_bytes = 0;
template <typename Declared>
struct Shared {
    static size_t place() {
        const size_t begin = (shared_bytes + alignof(Declared) - 1) / alignof(Declared) * alignof(Declared);
        shared_bytes = begin + sizeof(Declared);
        return begin;
    }
    static const size_t begin;
    static Declared& get() { return *reinterpret_cast<Declared*>(machine->shared + begin); }
};
template <typename Declared>
const size_t Shared<Declared>::begin = Shared<Declared>::place();

// ---- vectors and bits -------------------------------------------------------------------------------------------------------

#define VECTORS(T, name)                                                                                     \
    struct alignas(2 * sizeof(T)) name##2 { T x, y; };                                                       \
    struct name##3 { T x, y, z; };                                                                           \
    struct alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16) name##4 { T x, y, z, w; };                       \
    static __forceinline__ name##2 make_##name##2(T x, T y) { return {x, y}; }                                        \
    static __forceinline__ name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                                \
    static __forceinline__ name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
VECTORS(float, float)
VECTORS(double, double)
VECTORS(int, int)
VECTORS(unsigned, uint)
VECTORS(short, short)
VECTORS(unsigned short, ushort)
VECTORS(signed char, char)
VECTORS(unsigned char, uchar)
VECTORS(long long, longlong)
VECTORS(unsigned long long, ulonglong)
#undef VECTORS

template <typename To, typename From>
static inline To same_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "as many bits");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
static inline unsigned __float_as_uint(float x) { return same_bits<unsigned>(x); }
static inline float __uint_as_float(unsigned x) { return same_bits<float>(x); }
static inline int __float_as_int(float x) { return same_bits<int>(x); }
static inline float __int_as_float(int x) { return same_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return same_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return same_bits<double>(x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64; }
static inline unsigned __brev(unsigned x) {
    unsigned reversed = 0;
    for (int n = 0; n < 32; n++) reversed |= (x >> n & 1) << (31 - n);
    return reversed;
}
static inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(static_cast<unsigned long long>(a) * b >> 32); }
static inline int __mulhi(int a, int b) { return int(static_cast<long long>(a) * b >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}

// ---- arithmetic -------------------------------------------------------------------------------------------------------------

static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline int __float2int_rn(float x) { return int(rintf(x)); }
static inline int __float2int_rz(float x) { return int(x); }
static inline long long __float2ll_rn(float x) { return llrintf(x); }
static inline long long __double2ll_rn(double x) { return llrint(x); }
static inline float __int2float_rn(int x) { return float(x); }
static inline float rsqrtf(float x) { return float(1.0 / sqrt(double(x))); }

#define LESSER_AND_GREATER(T)                                 \
    static inline T min(T a, T b) { return a < b ? a : b; }   \
    static inline T max(T a, T b) { return a > b ? a : b; }
LESSER_AND_GREATER(int)
LESSER_AND_GREATER(unsigned)
LESSER_AND_GREATER(long long)
LESSER_AND_GREATER(unsigned long long)
#undef LESSER_AND_GREATER
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }

// rcp.approx.ftz.f32: the reciprocal, off by as many units in the last place as was asked for; subnormal numbers are zero.
static inline float approximate_reciprocal(float x) {
    const float given = fabsf(x) < 1.17549435e-38f ? copysignf(0.0f, x) : x, exact = 1.0f / given;
    if (fabsf(exact) < 1.17549435e-38f) return copysignf(0.0f, exact);
    if (!isfinite(exact)) return exact;
    const float moved = __uint_as_float(__float_as_uint(exact) + unsigned(machine->reciprocal_ulp));
    return fabsf(moved) < 1.17549435e-38f ? copysignf(0.0f, exact) : moved;
}

static inline UNWATCHED long long clock64() {
    static long long time = 0;
    return time += 1000;
}
static inline void __threadfence() {}
static inline void __threadfence_block() {}
template <typename T>
static inline T __ldg(const T* at) { return *at; }

// ---- the threads of a block -------------------------------------------------------------------------------------------------

static inline Bits sum_of(Bits a, Bits b) { return a + b; }
static inline Bits either(Bits a, Bits b) { return a | b; }
static inline Bits both(Bits a, Bits b) { return a & b; }

static inline void __syncthreads() { machine->wait_for_block("__syncthreads", 0, nullptr); }
static inline int __syncthreads_or(int p) { return int(machine->wait_for_block("__syncthreads_or", p != 0, either)); }
static inline int __syncthreads_and(int p) { return int(machine->wait_for_block("__syncthreads_and", p != 0, both)); }
static inline int __syncthreads_count(int p) { return int(machine->wait_for_block("__syncthreads_count", p != 0, sum_of)); }

// ---- the lanes of a warp ----------------------------------------------------------------------------------------------------

static inline unsigned lane_of_warp() { return threadIdx.x % 32; }
static inline void __syncwarp(unsigned mask = 0xffffffffu) { machine->wait_for_warp("__syncwarp", mask, 0, nullptr, 0); }
static inline unsigned ballot(const char* what, unsigned mask, bool p) {
    return unsigned(machine->wait_for_warp(what, mask, Bits(p) << lane_of_warp(), either, 0));
}
static inline unsigned __ballot_sync(unsigned mask, int p) { return ballot("__ballot_sync", mask, p != 0); }
static inline int __any_sync(unsigned mask, int p) { return ballot("__any_sync", mask, p != 0) != 0; }
static inline int __all_sync(unsigned mask, int p) { return ballot("__all_sync", mask, p == 0) == 0; }

template <typename T>
static inline T shuffled(const char* what, unsigned mask, T value, unsigned source) {
    Bits bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = machine->wait_for_warp(what, mask, bits, nullptr, source);
    memcpy(&value, &bits, sizeof value);
    return value;
}
// Within sections of `width` lanes; a lane whose source lies outside of its own gets back what it brought.
#define SHUFFLES(T)                                                                                                        \
    static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32) {                                      \
        const int lane = int(lane_of_warp()), begin = lane / width * width;                                                \
        return shuffled("__shfl_sync", mask, value, unsigned(begin + (source & (width - 1))));                             \
    }                                                                                                                      \
    static inline T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32) {                            \
        const int lane = int(lane_of_warp()), begin = lane / width * width, source = lane - int(distance);                 \
        return shuffled("__shfl_up_sync", mask, value, unsigned(source < begin ? lane : source));                          \
    }                                                                                                                      \
    static inline T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32) {                          \
        const int lane = int(lane_of_warp()), begin = lane / width * width, source = lane + int(distance);                 \
        return shuffled("__shfl_down_sync", mask, value, unsigned(source >= begin + width ? lane : source));               \
    }                                                                                                                      \
    static inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {                                    \
        const int lane = int(lane_of_warp()), begin = lane / width * width, source = lane ^ bits;                          \
        return shuffled("__shfl_xor_sync", mask, value, unsigned(source >= begin + width ? lane : source));                \
    }
SHUFFLES(int)
SHUFFLES(unsigned)
SHUFFLES(long)
SHUFFLES(unsigned long)
SHUFFLES(long long)
SHUFFLES(unsigned long long)
SHUFFLES(float)
SHUFFLES(double)
#undef SHUFFLES

#define REDUCTION(name, T, expression)                                                                  \
    static inline T name(unsigned mask, T value) {                                                      \
        const Join join = [](Bits one, Bits other) {                                                    \
            const T a = T(one), b = T(other);                                                           \
            return Bits(unsigned(expression));                                                          \
        };                                                                                              \
        return T(machine->wait_for_warp(#name, mask, Bits(unsigned(value)), join, 0));                  \
    }
REDUCTION(__reduce_add_sync, unsigned, a + b)
REDUCTION(__reduce_add_sync, int, unsigned(a) + unsigned(b))
REDUCTION(__reduce_min_sync, unsigned, a < b ? a : b)
REDUCTION(__reduce_min_sync, int, a < b ? a : b)
REDUCTION(__reduce_max_sync, unsigned, a > b ? a : b)
REDUCTION(__reduce_max_sync, int, a > b ? a : b)
REDUCTION(__reduce_and_sync, unsigned, a & b)
REDUCTION(__reduce_or_sync, unsigned, a | b)
REDUCTION(__reduce_xor_sync, unsigned, a ^ b)
#undef REDUCTION

// ---- atomics: nobody else runs in between -----------------------------------------------------------------------------------

#define ATOMIC(name, T, expression)            \
    static inline UNWATCHED T name(T* at, T value) { \
        const T old = *at;                     \
        *at = static_cast<T>(expression);                  \
        return old;                            \
    }
#define ATOMICS_OF_INTEGERS(T)                              \
    ATOMIC(atomicMin, T, value < old ? value : old)         \
    ATOMIC(atomicMax, T, value > old ? value : old)         \
    ATOMIC(atomicAnd, T, old & value)                       \
    ATOMIC(atomicOr, T, old | value)                        \
    ATOMIC(atomicXor, T, old ^ value)
#define ATOMICS_OF_WORDS(T)                                 \
    ATOMIC(atomicAdd, T, old + value)                       \
    ATOMIC(atomicExch, T, value)                            \
    static inline UNWATCHED T atomicCAS(T* at, T compare, T value) {  \
        const T old = *at;                                  \
        *at = old == compare ? value : old;                 \
        return old;                                         \
    }
ATOMICS_OF_INTEGERS(int)
ATOMICS_OF_INTEGERS(unsigned)
ATOMICS_OF_INTEGERS(long long)
ATOMICS_OF_INTEGERS(unsigned long long)
ATOMICS_OF_WORDS(int)
ATOMICS_OF_WORDS(unsigned)
ATOMICS_OF_WORDS(unsigned long long)
ATOMIC(atomicAdd, float, old + value)
ATOMIC(atomicAdd, double, old + value)
ATOMIC(atomicExch, float, value)
ATOMIC(atomicSub, int, old - value)
ATOMIC(atomicSub, unsigned, old - value)
#undef ATOMIC
#undef ATOMICS_OF_INTEGERS
#undef ATOMICS_OF_WORDS

extern "C" UNWATCHED __attribute__((visibility("default"))) void use(const Machine* given) { machine = given; }
extern "C" __attribute__((visibility("default"))) long long bytes_of_shared() { return static_cast<long long>(shared_bytes); }
