// What quantiles.py does before, between and after its layers on the CPU, each in one pass; and, where nothing stands between
// them but this, whole gradient steps.
#include <stdlib.h>
#include <memory>
#include "adam.cuh"
#include "mlp.cuh"

// cos(pi i tau), i = 0 .. each-1, of fractions tau [count]: out [count, each]. Whole turns go before the cosine.
extern "C" void cosines(const real* tau, i64 count, i64 each, real* out) {
    for (i64 r = 0; r < count; r++) {
        VECTORISE
        for (int i = 0; i < int(each); i++) {
            const real half_turns = real(i) * tau[r];
            real sine, cosine;
            sincos_wide(real(3.14159265358979323846) * (half_turns - 2 * nearest_integer(half_turns / 2)), sine, cosine);
            out[r * each + i] = cosine;
        }
    }
}

FN void rectify(real* x, i64 count) {
    VECTORISE
    for (i64 i = 0; i < count; i++) x[i] = x[i] < 0 ? real(0) : x[i];
}

// The product [rows, q, width] of factors `once` [rows, width] and `each` [rows, q, width], or [1, q, width] where each_rows is 1,
// after ReLU in their places; `once` has it only if rectified.
extern "C" void product_of(real* once, real* each, i64 rectified, i64 rows, i64 each_rows, i64 q, i64 width, real* out) {
    if (rectified) rectify(once, rows * width);
    rectify(each, each_rows * q * width);
    for (i64 r = 0; r < rows; r++)
        for (i64 i = 0; i < q; i++) {
            const real *const a = once + r * width, *const b = each + (each_rows == 1 ? i : r * q + i) * width;
            real* const to = out + (r * q + i) * width;
            VECTORISE
            for (i64 u = 0; u < width; u++) to[u] = a[u] * b[u];
        }
}

// Derivatives by what entered the ReLU of both factors, by_once [rows, width] and by_each [rows, q, width], from those by their
// product.
extern "C" void part(const real* slope, const real* once, const real* each, i64 rectified, i64 rows, i64 q, i64 width,
                     real* by_once, real* by_each) {
    for (i64 r = 0; r < rows; r++) {
        const real* const a = once + r * width;
        real* const sum = by_once + r * width;
        for (i64 i = 0; i < q; i++) {
            const i64 at = (r * q + i) * width;
            VECTORISE
            for (i64 u = 0; u < width; u++) {
                const real s = slope[at + u], b = each[at + u];
                sum[u] = (i ? sum[u] : real(0)) + s * b;
                by_each[at + u] = b > 0 ? s * a[u] : real(0);
            }
        }
        if (!rectified) continue;
        VECTORISE
        for (i64 u = 0; u < width; u++) sum[u] = a[u] > 0 ? sum[u] : real(0);
    }
}

// The quantile Huber loss of each row [rows], and its derivatives [rows, q], of predicted and tau [rows, q] and target [rows, n].
extern "C" void huber(const real* predicted, const real* tau, const real* target, i64 rows, i64 q, i64 n, real* loss, real* slope) {
    enum { TOGETHER = 8 };
    for (i64 r = 0; r < rows; r++) {
        loss[r] = 0;
        for (i64 first = r * q; first < (r + 1) * q; first += TOGETHER) {
            const i64 left = (r + 1) * q - first, count = left < TOGETHER ? left : i64(TOGETHER);
            real x[TOGETHER] = {}, fraction[TOGETHER] = {}, down[TOGETHER] = {}, sum[TOGETHER] = {};
            memcpy(x, predicted + first, size_t(count) * sizeof(real));
            memcpy(fraction, tau + first, size_t(count) * sizeof(real));
            for (i64 j = r * n; j < (r + 1) * n; j++) {
                VECTORISE
                for (int l = 0; l < TOGETHER; l++) {
                    const real error = target[j] - x[l], clamped = clipped(error, real(-1), real(1));
                    const real weighed = magnitude(fraction[l] - (error < 0 ? real(1) : real(0))) * clamped;
                    down[l] -= weighed;
                    sum[l] += weighed * (error - real(0.5) * clamped);
                }
            }
            for (i64 l = 0; l < count; l++) {
                slope[first + l] = down[l] / real(n);
                loss[r] += sum[l] / real(n);
            }
        }
    }
}

// So many numbers, up to a multiple of those of a vector.
FN i64 whole_vectors(i64 count) { return (count + 15) / 16 * 16; }

// A network without actions and with one layer of observations: layers of observations and of cosines, then those of `widths`.
struct Sizes {
    i64 inputs, cosines, rectified, layers;
    i64 widths[];  // [layers + 1]
    i64 of_tau() const { return (inputs + 1) * widths[0]; }  // where numbers of the layer of cosines begin
    i64 of_rest() const { return of_tau() + (cosines + 1) * widths[0]; }
    i64 widest() const {
        i64 found = inputs > cosines ? inputs : cosines;
        for (i64 k = 0; k <= layers; k++) found = widths[k] > found ? widths[k] : found;
        return whole_vectors(found);
    }
};

// What a pass of `rows` observations at q fractions of each leaves, and room for its gradient.
struct Kept {
    const Sizes& s;
    const i64 rows, q, n, F;
    std::unique_ptr<real, decltype(&free)> room{nullptr, free};  // of parts that begin where vectors may
    std::unique_ptr<real*[]> layers;  // the product of both factors [n, F], then what each layer gives [n, *]
    real *of_cosines, *of_obs, *of_tau, *panels, *slopes, *by_product, *by_obs, *by_tau;

    Kept(const Sizes& s, i64 rows, i64 q) : s(s), rows(rows), q(q), n(rows * q), F(s.widths[0]), layers(new real*[s.layers + 1]) {
        const i64 widest = s.widest();
        i64 used = 0;
        const auto take = [&](i64 size) { return used += size = whole_vectors(size), used - size; };
        i64 place[8] = {take(n * s.cosines), take(rows * F), take(n * F), take((n > widest ? n : widest) * widest),
                        take(2 * n * widest), take(n * F), take(rows * F), take(n * F)};
        i64 next = used;
        for (i64 k = 0; k <= s.layers; k++) take(n * s.widths[k]);
        room.reset(static_cast<real*>(aligned_alloc(64, size_t(used) * sizeof(real))));
        real** const parts[8] = {&of_cosines, &of_obs, &of_tau, &panels, &slopes, &by_product, &by_obs, &by_tau};
        for (int i = 0; i < 8; i++) *parts[i] = room.get() + place[i];
        for (i64 k = 0; k <= s.layers; next += whole_vectors(n * s.widths[k++])) layers[k] = room.get() + next;
    }

    real* quantiles() { return layers[s.layers]; }

    void pass(const real* parameters, const real* obs, const real* tau) {
        const i64 widths_of_obs[] = {s.inputs, F}, widths_of_tau[] = {s.cosines, F};
        real *const kept_of_obs[] = {const_cast<real*>(obs), of_obs}, *const kept_of_tau[] = {of_cosines, of_tau};
        const real *const at_tau = parameters + s.of_tau(), *const at_rest = parameters + s.of_rest();
        cosines(tau, n, s.cosines, of_cosines);
        mlp_forward(widths_of_obs, 1, 1, &parameters, rows, kept_of_obs, panels);
        mlp_forward(widths_of_tau, 1, 1, &at_tau, n, kept_of_tau, panels);
        product_of(of_obs, of_tau, s.rectified, rows, rows, q, F, layers[0]);
        mlp_forward(s.widths, s.layers, 1, &at_rest, n, layers.get(), panels);
    }

    // gradient gets that of a loss, whose derivatives by the quantiles are slope [n, outputs].
    void backward(const real* parameters, real* gradient, const real* obs, const real* slope) {
        const i64 widths_of_obs[] = {s.inputs, F}, widths_of_tau[] = {s.cosines, F}, at_tau = s.of_tau(), at_rest = s.of_rest();
        real *const kept_of_obs[] = {const_cast<real*>(obs)}, *const kept_of_tau[] = {of_cosines};
        backward_of(s.widths, s.layers, 0, parameters + at_rest, gradient + at_rest, n, n, layers.get(), slope, slopes, panels,
                    by_product);
        part(by_product, of_obs, of_tau, s.rectified, rows, q, F, by_obs, by_tau);
        backward_of(widths_of_obs, 1, 0, parameters, gradient, rows, rows, kept_of_obs, by_obs, slopes, panels, nullptr);
        backward_of(widths_of_tau, 1, 0, parameters + at_tau, gradient + at_tau, n, n, kept_of_tau, by_tau, slopes, panels, nullptr);
    }
};

// Quantiles [count, rows, q, outputs] of as many batches.
extern "C" void passes(const Sizes* s, const real* parameters, const real* obs, const real* tau, i64 count, i64 rows, i64 q,
                       real* out) {
    Kept kept(*s, rows, q);
    const i64 size = kept.n * s->widths[s->layers];
    for (i64 u = 0; u < count; u++) {
        kept.pass(parameters, obs + u * rows * s->inputs, tau + u * kept.n);
        memcpy(out + u * size, kept.quantiles(), size_t(size) * sizeof(real));
    }
}

// A step of Adam for each of `count` batches, down the mean loss of its rows: of the quantiles of their actions [count, rows] at
// tau [count, rows, q] and targets [count, rows, wanted]. told [3, count] gets the losses, the means of these quantiles, and the
// gradients' norms.
extern "C" void descents(const Sizes* s, real* parameters, real* gradient, real* first, real* second, float* steps, const real* obs,
                         const i64* action, const real* tau, const real* target, i64 count, i64 rows, i64 q, i64 wanted,
                         double limit, double lr, double beta1, double beta2, double epsilon, real* told) {
    Kept kept(*s, rows, q);
    real *const loss = told, *const value = loss + count, *const norm = value + count;
    const i64 n = kept.n, outputs = s->widths[s->layers], numbers = s->of_rest() + [&] {
        i64 found = 0;
        for (i64 k = 0; k < s->layers; k++) found += (s->widths[k] + 1) * s->widths[k + 1];
        return found;
    }();
    const std::unique_ptr<real[]> room(new real[2 * n + rows + n * outputs]);
    real *const predicted = room.get(), *const down = predicted + n, *const losses = down + n, *const slope = losses + rows;
    for (i64 u = 0; u < count; u++, obs += rows * s->inputs, action += rows, tau += n, target += rows * wanted) {
        kept.pass(parameters, obs, tau);
        const real* const found = kept.quantiles();
        double sum = 0.0;
        for (i64 i = 0; i < n; i++) sum += predicted[i] = found[i * outputs + action[i / q]];
        value[u] = real(sum / double(n));
        huber(predicted, tau, target, rows, q, wanted, losses, down);
        sum = 0.0;
        for (i64 r = 0; r < rows; r++) sum += losses[r];
        loss[u] = real(sum / double(rows));
        memset(slope, 0, size_t(n * outputs) * sizeof(real));
        for (i64 i = 0; i < n; i++) slope[i * outputs + action[i / q]] = down[i] / real(rows);
        kept.backward(parameters, gradient, obs, slope);
        adam_limited(parameters, gradient, first, second, steps, norm + u, numbers, limit, lr, beta1, beta2, epsilon);
    }
}
