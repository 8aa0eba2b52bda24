// Adam (Kingma and Ba, 2015) along a gradient whose norm is limited, on the CPU.
#pragma once
#include <limits>
#include "kernels/platform.cuh"

FN double norm_of(const real* x, i64 count) {
    double lane[16] = {}, squares = 0.0;
    for (i64 i = 0; i + 16 <= count; i += 16)
        for (int l = 0; l < 16; l++) lane[l] += double(x[i + l]) * x[i + l];
    for (i64 i = count / 16 * 16; i < count; i++) squares += double(x[i]) * x[i];
    for (int l = 0; l < 16; l++) squares += lane[l];
    return sqrt(squares);
}

// A moment that nothing feeds any more falls to numbers below the smallest normal one, where 0.9 * m rounds to m for ever, and each
// of whose products takes a hundred cycles.
FN real normal_or_0(real moment) { return magnitude(moment) < std::numeric_limits<real>::min() ? real(0) : moment; }

// The t-th step, t from 1, along gradient * min(1, limit / norm).
FN void adam_step(real* parameters, const real* gradient, real* first, real* second, i64 count, double norm, double limit,
                  double t, double lr, double beta1, double beta2, double epsilon) {
    const double share = limit / (norm + 1e-6);
    const real scale = share < 1.0 ? real(share) : real(1), decay1 = real(beta1), decay2 = real(beta2), eps = real(epsilon);
    const real rest1 = real(1.0 - beta1), rest2 = real(1.0 - beta2);
    const real rate = real(lr / (1.0 - pow(beta1, t))), root = real(1.0 / sqrt(1.0 - pow(beta2, t)));
    VECTORISE
    for (i64 i = 0; i < count; i++) {
        const real g = gradient[i] * scale, m = normal_or_0(fused(rest1, g, decay1 * first[i]));
        const real v = normal_or_0(fused(rest2 * g, g, decay2 * second[i]));
        first[i] = m;
        second[i] = v;
        parameters[i] -= rate * m / fused(sqrt(v), root, eps);
    }
}

extern "C" void adam_limited(real* parameters, const real* gradient, real* first, real* second, float* steps, real* norm,
                             i64 count, double limit, double lr, double beta1, double beta2, double epsilon) {
    const double found = norm_of(gradient, count);
    *norm = real(found);
    if (isfinite(found)) adam_step(parameters, gradient, first, second, count, found, limit, ++*steps, lr, beta1, beta2, epsilon);
}
