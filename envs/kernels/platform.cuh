// What differs between the two compilers, and nothing else: NVRTC for the GPU, C++17 for the CPU.
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
#else
#define FN inline __attribute__((always_inline))
#ifdef __clang__
#define VECTORISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define VECTORISE _Pragma("GCC ivdep")
#endif
#include <math.h>
#endif

typedef REAL real;  // float, or double for the float64 build

FN float fused(float a, float b, float c) { return fmaf(a, b, c); }  // a * b + c, rounded once
FN double fused(double a, double b, double c) { return fma(a, b, c); }
FN float magnitude(float a) { return fabsf(a); }
FN double magnitude(double a) { return fabs(a); }

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
