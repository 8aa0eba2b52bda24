// Differences between the two compilers, and nothing else: NVRTC for the GPU, C++17 for the CPU.
// Only correctly rounded operations appear in float32 physics (+ - * /, sqrt, a written fma, the polynomials below), and both
// compilers run with contraction off, so that one source gives the same bits on both.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#ifdef __CUDACC__
#define FN __device__ __forceinline__
#define VECTORISE
#define UNROLL _Pragma("unroll")
#define WRITTEN_OUT _Pragma("unroll")
#else
#define FN inline __attribute__((always_inline))
#ifdef __clang__
#define VECTORISE _Pragma("clang loop vectorize(assume_safety)")
#define UNROLL _Pragma("unroll")
#define WRITTEN_OUT _Pragma("unroll")
#else
#define VECTORISE _Pragma("GCC ivdep")
#define UNROLL _Pragma("GCC unroll 8")
#define WRITTEN_OUT _Pragma("GCC unroll 256")  // so that a loop around it can be vectorised
#endif
#include <math.h>
#include <string.h>
#endif

typedef REAL real;  // float, or double for the float64 build

FN float fused(float a, float b, float c) { return fmaf(a, b, c); }  // a * b + c, rounded once
FN double fused(double a, double b, double c) { return fma(a, b, c); }
FN float magnitude(float a) { return fabsf(a); }
FN double magnitude(double a) { return fabs(a); }
FN real clipped(real a, real low, real high) { return a < low ? low : a > high ? high : a; }

// sin x and cos x for |x| <= 0.4189, minimax polynomials in x^2, error below 1 ulp. One call to a library's sincos would stop
// GCC from vectorising the loop around it.
FN void sincos_narrow(float x, float& sine, float& cosine) {
    const float z = x * x;
    float p = fused(z, -1.9768864e-4f, 8.333286e-3f);
    p = fused(z, p, -1.6666667e-1f);
    sine = fused(x * z, p, x);
    float q = fused(z, -1.3845442e-3f, 4.1666571e-2f);
    q = fused(z, q, -0.5f);
    cosine = fused(z, q, 1.0f);
}
FN void sincos_narrow(double x, double& sine, double& cosine) {  // Taylor: the first term left out is below 1e-20
    const double z = x * x;
    double p = fused(z, -1.0 / 1307674368000.0, 1.0 / 6227020800.0);
    p = fused(z, p, -1.0 / 39916800.0);
    p = fused(z, p, 1.0 / 362880.0);
    p = fused(z, p, -1.0 / 5040.0);
    p = fused(z, p, 1.0 / 120.0);
    p = fused(z, p, -1.0 / 6.0);
    sine = fused(x * z, p, x);
    double q = fused(z, 1.0 / 20922789888000.0, -1.0 / 87178291200.0);
    q = fused(z, q, 1.0 / 479001600.0);
    q = fused(z, q, -1.0 / 3628800.0);
    q = fused(z, q, 1.0 / 40320.0);
    q = fused(z, q, -1.0 / 720.0);
    q = fused(z, q, 1.0 / 24.0);
    q = fused(z, q, -0.5);
    cosine = fused(z, q, 1.0);
}

// The same for |x| <= 100, error at most 2 ulp: x less the nearest multiple of pi / 2, in three parts whose products with that
// multiple are exact in the fused operation, then polynomials up to pi / 4. Adding 1.5 * 2^(mantissa bits) rounds to an integer.
FN float nearest_integer(float x) { return (x + 12582912.0f) - 12582912.0f; }
FN double nearest_integer(double x) { return (x + 6755399441055744.0) - 6755399441055744.0; }

FN void sincos_quarter(float x, float& sine, float& cosine) {
    const float z = x * x;
    float p = fused(z, -1.95180953596719e-4f, 8.332188241183758e-3f);
    p = fused(z, p, -1.6666655242443085e-1f);
    sine = fused(x * z, p, x);
    float q = fused(z, 2.4432327336398885e-5f, -1.3887309469282627e-3f);
    q = fused(z, q, 4.166664555668831e-2f);
    q = fused(z, q, -0.5f);
    cosine = fused(z, q, 1.0f);
}
FN void sincos_quarter(double x, double& sine, double& cosine) { sincos_narrow(x, sine, cosine); }

FN float less_half_pis(float n, float x) {
    return fused(n, 1.7151245e-15f, fused(n, 4.371138828673793e-8f, fused(n, -1.5707963705062866f, x)));
}
FN double less_half_pis(double n, double x) {
    return fused(n, 1.4973849048591698e-33, fused(n, -6.123233995736766e-17, fused(n, -1.5707963267948966, x)));
}

template <typename T>
FN void sincos_wide(T x, T& sine, T& cosine) {
    const T n = nearest_integer(x * T(0.63661977236758134308));
    T s, c;
    sincos_quarter(less_half_pis(n, x), s, c);
    const int quadrant = int(n);
    const T odd_sine = quadrant & 1 ? c : s, odd_cosine = quadrant & 1 ? s : c;
    sine = quadrant & 2 ? -odd_sine : odd_sine;
    cosine = (quadrant + 1) & 2 ? -odd_cosine : odd_cosine;
}

// x on the circle, in [-pi, pi) up to rounding, for |x| <= 100.
template <typename T>
FN T wrapped(T x) {
    return less_half_pis(T(4) * nearest_integer(x * T(0.15915494309189533577)), x);
}

#ifdef __CUDACC__
FN u32 bits_of(float x) { return __float_as_uint(x); }
FN float of_bits(u32 x) { return __uint_as_float(x); }
#else
FN u32 bits_of(float x) { return __builtin_bit_cast(u32, x); }
FN float of_bits(u32 x) { return __builtin_bit_cast(float, x); }
#endif

// bfloat16, rounded to nearest, ties to even.
FN u16 bfloat16(float x) {
    const u32 bits = bits_of(x);
    return u16((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
FN float from_bfloat16(u16 x) { return of_bits(u32(x) << 16); }

// e^x for -87 <= x <= 0 (below: e^-87), error at most 2 ulp.
FN float exponential(float x) {
    const float y = x < -87.0f ? -87.0f : x, n = nearest_integer(y * 1.44269504f);
    const float r = fused(n, 2.12194440e-4f, fused(n, -0.693359375f, y));
    float p = fused(r, 1.381956972181797e-3f, 8.368692360818386e-3f);
    p = fused(r, p, 4.1668280959129333e-2f);
    p = fused(r, p, 1.666652113199234e-1f);
    p = fused(r, p, 0.4999999403953552f);
    p = fused(r, p, 1.0f);
    p = fused(r, p, 1.0f);
    return p * of_bits(u32(int(n) + 127) << 23);
}

// ln x for a positive normal x, error at most 2 ulp: x = 2^n m with m near 1, then the series of 2 artanh((m - 1) / (m + 1)).
FN float logarithm(float x) {
    const u32 bits = bits_of(x);
    const int n = int(bits - 0x3f3504f3u) >> 23;  // m in [sqrt(1/2), sqrt(2))
    const float m = of_bits(bits - (u32(n) << 23)), s = (m - 1.0f) / (m + 1.0f), z = s * s;
    float p = fused(z, 0.22222222f, 0.28571429f);
    p = fused(z, p, 0.4f);
    p = fused(z, p, 0.66666667f);
    const float ln_m = fused(s * z, p, 2.0f * s);
    return fused(float(n), 0.693359375f, fused(float(n), -2.12194440e-4f, ln_m));
}

// a / b of the tangent below, correctly rounded. Its divisors lie between 1 and 2.5 and its quotients are at most 1, so a GPU
// needs neither the question nor the branch of its own division. One correction is enough for every x, whichever neighbour of
// 1 / b the GPU's estimate is, but for one x near 6e-8, where b = 2 - 2^-23: there it has to be the nearest, as in its own division.
FN float quotient(float a, float b) {
#ifdef __CUDACC__
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b));
    r = fused(r, fused(-b, r, 1.0f), r);
    const float q = a * r;
    return fused(r, fused(-b, q, a), q);
#else
    return a / b;
#endif
}

// tanh x, error below 9e-8, and below 3.3e-7 of the value: (1 - e) / (1 + e) with e = e^(-2 |x|) = 2^n (1 + v). The polynomial
// is v / g, where g = -log2(1 + v) and |g| <= 1/2, so that no bit of 1 - e is lost where x is small and n is 0.
FN float hyperbolic_tangent(float x) {
    const float y = 10.4f < magnitude(x) ? 10.4f : magnitude(x);  // beyond, it rounds to 1; NaN stays
    const float shifted = fused(y, -2.88539004f, 12582912.0f), g = fused(y, 2.88539004f, shifted - 12582912.0f);
    float p = fused(g, 1.53533576e-4f, -1.33988215e-3f);
    p = fused(g, p, 9.61838663e-3f);
    p = fused(g, p, -5.55033088e-2f);
    p = fused(g, p, 2.40226328e-1f);
    p = fused(g, p, -6.93147182e-1f);
    const float v = g * p, scale = of_bits((bits_of(shifted) << 23) + 0x3f800000u);  // 2^n: n lies in the last bits
    const float t = quotient(fused(-scale, v, 1.0f - scale), fused(scale, 1.0f + v, 1.0f));
    return of_bits(bits_of(t) ^ (bits_of(x) & 0x80000000u));
}
