// The networks of mlp.py on the CPU, of any widths: linear layers with ReLU between, forward and backward.
#include "product.cuh"

typedef real Loose __attribute__((vector_size(LANES * sizeof(real)), aligned(sizeof(real)), may_alias));

// Up to LANES numbers as a vector, and back.
FN Vector vector_of(const real* numbers, i64 count) {
    if (count >= LANES) return *(const Loose*)numbers;
    Vector v = {};
    memcpy(&v, numbers, size_t(count) * sizeof(real));
    return v;
}
FN void write(real* numbers, i64 count, Vector v) {
    if (count >= LANES) *(Loose*)numbers = v;
    else memcpy(numbers, &v, size_t(count) * sizeof(real));
}

// b [steps, columns], whose numbers lie b_step and b_column apart, as panels [steps, LANES] filled up with zeros.
FN void pack(const real* b, i64 b_step, i64 b_column, i64 steps, i64 columns, real* panels) {
    for (i64 u = 0; u < columns; u += LANES, panels += steps * LANES) {
        const i64 count = columns - u < LANES ? columns - u : i64(LANES);
        if (count < LANES) memset(panels, 0, size_t(steps * LANES) * sizeof(real));
        for (i64 s = 0; s < steps; s++)
            for (i64 l = 0; l < count; l++) panels[s * LANES + l] = b[s * b_step + (u + l) * b_column];
    }
}

// The product of a [rows, steps], whose numbers lie a_row and a_step apart, and packed b [steps, columns]. A vector of it is begun
// by start(row, column, count) and handed to finish(row, column, count, sum); the first `count` lanes are there.
template <typename Start, typename Finish>
FN void product(const real* a, i64 a_row, i64 a_step, const real* panels, i64 rows, i64 steps, i64 columns, Start start,
                Finish finish) {
    for (i64 u = 0; u < columns; u += LANES, panels += steps * LANES) {
        const auto load = [&](i64 s, int) { return *(const Vector*)(panels + s * LANES); };
        i64 i = 0;
        for (; i + SUMS <= rows; i += SUMS)
            product_block<SUMS, 1>(
                a + i * a_row, a_row, a_step, steps, load, [&](int r, int) { return start(i + r, u, columns - u); },
                [&](int r, int, Vector sum) { finish(i + r, u, columns - u, sum); });
        for (; i < rows; i++)
            product_block<1, 1>(
                a + i * a_row, a_row, a_step, steps, load, [&](int, int) { return start(i, u, columns - u); },
                [&](int, int, Vector sum) { finish(i, u, columns - u, sum); });
    }
}

extern "C" {
// kept[0] [rows, widths[0]] are the inputs; kept[k] [rows, widths[k]], the outputs of layer k, are written.
void mlp_forward(const i64* widths, i64 layers, const real* parameters, i64 rows, real* const* kept, real* panels) {
    for (i64 k = 0; k < layers; k++) {
        const i64 inputs = widths[k], outputs = widths[k + 1];
        const real *const weight = parameters, *const bias = weight + outputs * inputs;
        const bool hidden = k + 1 < layers;
        real* const out = kept[k + 1];
        pack(weight, 1, inputs, inputs, outputs, panels);
        product(
            kept[k], inputs, 1, panels, rows, inputs, outputs,
            [&](i64, i64 u, i64 count) { return vector_of(bias + u, count); },
            [&](i64 r, i64 u, i64 count, Vector sum) {
                write(out + r * outputs + u, count, hidden ? (sum < Vector{} ? Vector{} : sum) : sum);
            });
        parameters = bias + outputs;
    }
}

// slope [rows, widths[layers]] of the loss by the outputs; `slopes` has room for those by two layers' outputs.
void mlp_backward(const i64* widths, i64 layers, const real* parameters, real* gradient, i64 rows, const real* const* kept,
                  const real* slope, real* slopes, real* panels) {
    i64 place = 0, widest = 0;
    for (i64 k = 0; k < layers; k++) {
        place += widths[k + 1] * (widths[k] + 1);
        widest = widths[k] > widest ? widths[k] : widest;
    }
    for (i64 k = layers; k-- > 0;) {
        const i64 inputs = widths[k], outputs = widths[k + 1];
        place -= outputs * (inputs + 1);
        const real* const in = kept[k];
        real *const weight = gradient + place, *const bias = weight + outputs * inputs;
        pack(in, inputs, 1, rows, inputs, panels);
        product(
            slope, 1, outputs, panels, outputs, rows, inputs, [](i64, i64, i64) { return Vector{}; },
            [&](i64 r, i64 u, i64 count, Vector sum) { write(weight + r * inputs + u, count, sum); });
        memset(bias, 0, size_t(outputs) * sizeof(real));
        for (i64 r = 0; r < rows; r++)
            for (i64 o = 0; o < outputs; o++) bias[o] += slope[r * outputs + o];
        if (k == 0) return;
        real* const by_inputs = slopes + k % 2 * rows * widest;
        pack(parameters + place, inputs, 1, outputs, inputs, panels);
        product(
            slope, outputs, 1, panels, rows, outputs, inputs, [](i64, i64, i64) { return Vector{}; },
            [&](i64 r, i64 u, i64 count, Vector sum) {
                const Vector active = vector_of(in + r * inputs + u, count);
                write(by_inputs + r * inputs + u, count, active > Vector{} ? sum : Vector{});
            });
        slope = by_inputs;
    }
}
}
