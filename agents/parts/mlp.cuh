// A pass of mlp.py's networks on the CPU, and its gradient: linear layers of any widths with ReLU between.
#include "native.cuh"

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

// Packed matrices lie in panels of WIDE columns, and of LANES where there are fewer left, filled up with zeros.
enum { MOST = SUMS / 4, WIDE = MOST * LANES };
FN i64 width_of_panel(i64 left) { return left >= WIDE ? i64(WIDE) : i64(LANES); }

FN void pack(const real* b, i64 steps, i64 columns, real* panels) {
    for (i64 u = 0, width; u < columns; u += width, panels += steps * width) {
        width = width_of_panel(columns - u);
        const i64 count = columns - u < width ? columns - u : width;
        if (count < width) memset(panels, 0, size_t(steps * width) * sizeof(real));
        for (i64 s = 0; s < steps; s++)
            for (i64 l = 0; l < count; l++) panels[s * width + l] = b[s * columns + u + l];
    }
}

// The same of the transpose of b [columns, steps].
FN void pack_transposed(const real* b, i64 steps, i64 columns, real* panels) {
    for (i64 u = 0, width; u < columns; u += width, panels += steps * width) {
        width = width_of_panel(columns - u);
        const i64 count = columns - u < width ? columns - u : width;
        if (count < width) memset(panels, 0, size_t(steps * width) * sizeof(real));
        for (i64 l = 0; l < count; l++)
            for (i64 s = 0; s < steps; s++) panels[s * width + l] = b[(u + l) * steps + s];
    }
}

// R rows from a on times a panel of C vectors. It is a function of its own, for inlined into a large one its sums leave registers.
template <int R, int C>
__attribute__((noinline)) void block_of(const real* a, i64 a_row, i64 a_step, const real* panel, i64 steps, real (*block)[C * LANES]) {
    product_block<R, C>(
        a, a_row, a_step, steps, [&](i64 s, int v) { return *(const Vector*)(panel + s * C * LANES + v); },
        [](int, int) { return Vector{}; }, [&](int r, int v, Vector sum) { *(Vector*)(block[r] + v) = sum; });
}

// Of the product below R rows from row i on, times a panel that begins with column u of `columns`.
template <int R, int C, typename Finish>
FN void product_of_panel(const real* a, i64 a_row, i64 a_step, const real* panel, i64 i, i64 steps, i64 u, i64 columns,
                         Finish finish) {
    alignas(64) real block[R][C * LANES];
    block_of<R, C>(a + i * a_row, a_row, a_step, panel, steps, block);
    for (int r = 0; r < R; r++)
        for (int v = 0; v < C * LANES; v += LANES)
            finish(i + r, u + v, columns - u - v, *(const Vector*)(block[r] + v));
}

// The product of a [rows, steps], whose numbers lie a_row and a_step apart, and packed b [steps, columns]: finish(row, column,
// count, vector) gets its numbers from a column on, of which `count` are there.
template <typename Finish>
FN void product(const real* a, i64 a_row, i64 a_step, const real* panels, i64 rows, i64 steps, i64 columns, Finish finish) {
    for (i64 u = 0, width; u < columns; u += width, panels += steps * width) {
        width = width_of_panel(columns - u);
        i64 i = 0;
        if (width == WIDE) {
            for (; i + 4 <= rows; i += 4)
                product_of_panel<4, MOST>(a, a_row, a_step, panels, i, steps, u, columns, finish);
            for (; i < rows; i++)
                product_of_panel<1, MOST>(a, a_row, a_step, panels, i, steps, u, columns, finish);
        } else {
            for (; i + SUMS <= rows; i += SUMS)
                product_of_panel<SUMS, 1>(a, a_row, a_step, panels, i, steps, u, columns, finish);
            for (; i < rows; i++)
                product_of_panel<1, 1>(a, a_row, a_step, panels, i, steps, u, columns, finish);
        }
    }
}

// The output of layer k of network i: kept[k] [networks, rows, widths[k]], of k = 0 the inputs [rows, widths[0]] of all.
FN real* layer_of(real* const* kept, const i64* widths, i64 k, i64 i, i64 rows) {
    return kept[k] + (k ? i * rows * widths[k] : 0);
}

// Of several networks of these widths kept[k] gets what layer k gives, NaN where its inputs have one. There is room for the panels
// of a layer.
extern "C" void mlp_forward(const i64* widths, i64 layers, i64 networks, const real* const* parameters, i64 rows, real* const* kept,
                            real* panels) {
    for (i64 i = 0; i < networks; i++) {
        const real* weight = parameters[i];
        for (i64 k = 0; k < layers; k++) {
            const i64 inputs = widths[k], outputs = widths[k + 1];
            const real* const bias = weight + outputs * inputs;
            real* const out = layer_of(kept, widths, k + 1, i, rows);
            const bool rectified = k + 1 < layers;
            pack_transposed(weight, inputs, outputs, panels);
            product(layer_of(kept, widths, k, i, rows), inputs, 1, panels, rows, inputs, outputs,
                    [&](i64 r, i64 u, i64 count, Vector sum) {
                        sum += vector_of(bias + u, count);
                        write(out + r * outputs + u, count, rectified ? (sum < Vector{} ? Vector{} : sum) : sum);
                    });
            weight = bias + outputs;
        }
    }
}

// Of one network kept[k] [rows, widths[k]] is what layer k gave; slope [rows, widths[layers]] is that of the loss by the outputs.
// There is room for two layers' slopes and for the panels of a layer. Unless they are null, gradient gets that by the
// parameters, and by_first [rows, widths[0]] the slope by the inputs.
FN void backward_of(const i64* widths, i64 layers, i64 i, const real* parameters, real* gradient, i64 rows, i64 kept_rows,
                    real* const* kept, const real* slope, real* slopes, real* panels, real* by_first) {
    i64 place = 0, widest = 0;
    for (i64 k = 0; k < layers; k++) {
        place += widths[k + 1] * (widths[k] + 1);
        widest = widths[k] > widest ? widths[k] : widest;
    }
    for (i64 k = layers; k-- > 0;) {
        const i64 inputs = widths[k], outputs = widths[k + 1];
        place -= outputs * (inputs + 1);
        const real* const in = layer_of(kept, widths, k, i, kept_rows);
        if (gradient) {
            real *const weight = gradient + place, *const bias = weight + outputs * inputs;
            pack(in, rows, inputs, panels);
            product(slope, 1, outputs, panels, outputs, rows, inputs, [&](i64 r, i64 u, i64 count, Vector sum) {
                write(weight + r * inputs + u, count, sum);
            });
            memset(bias, 0, size_t(outputs) * sizeof(real));
            for (i64 r = 0; r < rows; r++)
                for (i64 o = 0; o < outputs; o++) bias[o] += slope[r * outputs + o];
        }
        if (k == 0 && !by_first) return;
        real* const by_inputs = k == 0 ? by_first : slopes + k % 2 * rows * widest;
        pack(parameters + place, outputs, inputs, panels);
        product(slope, outputs, 1, panels, rows, outputs, inputs, [&](i64 r, i64 u, i64 count, Vector sum) {
            const Vector active = vector_of(in + r * inputs + u, count);
            write(by_inputs + r * inputs + u, count, k == 0 ? sum : active > Vector{} ? sum : Vector{});
        });
        slope = by_inputs;
    }
}

// The same of several networks, whose slopes and by_first lie one after the other; `kept` is of `kept_rows`, of which the first
// `rows` count. gradients may be null.
extern "C" void mlp_backward(const i64* widths, i64 layers, i64 networks, const real* const* parameters, real* const* gradients,
                             i64 rows, i64 kept_rows, real* const* kept, const real* slope, real* slopes, real* panels,
                             real* by_first) {
    for (i64 i = 0; i < networks; i++)
        backward_of(widths, layers, i, parameters[i], gradients ? gradients[i] : nullptr, rows, kept_rows, kept,
                    slope + i * rows * widths[layers], slopes, panels, by_first ? by_first + i * rows * widths[0] : nullptr);
}
