// The networks of actor_critic.py for the CPU: OBS inputs, two hidden layers of HIDDEN units and tanh; forward and backward.
//
// Activations lie row by row, so that all seven products of a network are the same loop: a few rows of one matrix, numbers
// broadcast, times whole rows of another, the sums kept in registers.
#pragma once

#define REAL float
#include "native.cuh"

enum { MOST_COLUMNS = SUMS / 4, TILE = 64 };  // LANES * COLUMNS units of a row are done at once
enum { COLUMNS = HIDDEN / LANES < MOST_COLUMNS ? HIDDEN / LANES : MOST_COLUMNS, ROWS = SUMS / COLUMNS };

// The numbers of one network as the products want them; rows of weights1 are inputs, the last one the bias.
template <int OUT>
struct alignas(64) Network {
    float weights1[OBS + 1][HIDDEN], weights2[HIDDEN][HIDDEN], bias2[HIDDEN];
    float weights3[OUT][HIDDEN], bias3[(OUT + 15) / 16 * 16];
};

// Numbers of a network where envs/kernels/mlp.cuh would read them.
constexpr int size_of_network(int outputs) {
    return (HIDDEN * (OBS + HIDDEN + 2) + outputs * (HIDDEN + 1) + 3) / 4 * 4;
}

// Weights and biases from mlp.cuh's order into a network's, or back. `Copy` gets the number there and the one here.
template <int OUT, typename Copy>
FN float* walk(float* flat, Network<OUT>& n, Copy copy) {
    float *const weights2 = (float*)n.weights2, *const weights3 = (float*)n.weights3;
    for (int j = 0; j < HIDDEN; j++)
        for (int i = 0; i < OBS; i++) copy(flat[j * OBS + i], n.weights1[i][j]);
    flat += HIDDEN * OBS;
    for (int j = 0; j < HIDDEN; j++) copy(flat[j], n.weights1[OBS][j]);
    flat += HIDDEN;
    for (int j = 0; j < HIDDEN * HIDDEN; j++) copy(flat[j], weights2[j]);
    flat += HIDDEN * HIDDEN;
    for (int j = 0; j < HIDDEN; j++) copy(flat[j], n.bias2[j]);
    flat += HIDDEN;
    for (int j = 0; j < OUT * HIDDEN; j++) copy(flat[j], weights3[j]);
    flat += OUT * HIDDEN;
    for (int j = 0; j < OUT; j++) copy(flat[j], n.bias3[j]);
    return flat;
}

// out = in, turned over.
static void transpose(const float (*in)[HIDDEN], float (*out)[HIDDEN]) {
    for (int i = 0; i < HIDDEN; i += 4)
        for (int j = 0; j < HIDDEN; j += 4) {  // a block of 4 x 4 is turned over in registers
            float block[4][4];
            for (int x = 0; x < 4; x++)
                for (int y = 0; y < 4; y++) block[y][x] = in[j + x][i + y];
            for (int y = 0; y < 4; y++)
                for (int x = 0; x < 4; x++) out[i + y][j + x] = block[y][x];
        }
}

// Numbers that a network computes for TILE rows, of which the first `count` are there.
struct alignas(64) Tile {
    float in[TILE][OBS + 1];  // the last component is 1
    float first[TILE][HIDDEN], second[TILE][HIDDEN], back[TILE][HIDDEN];
    float out[OUTPUTS][TILE], back_out[OUTPUTS][TILE];
    int count;
};

// The product of a [rows, steps], whose numbers lie A_ROW and A_STEP apart, and b [steps, HIDDEN].
template <int A_ROW, int A_STEP, typename Start, typename Finish>
FN void product(const float* a, const float* b, int rows, int steps, Start start, Finish finish) {
    for (int u = 0; u < HIDDEN; u += COLUMNS * LANES) {
        const auto load = [&](i64 s, int v) { return *(const Vector*)(b + s * HIDDEN + u + v); };
        int i = 0;
        for (; i + ROWS <= rows; i += ROWS)
            product_block<ROWS, COLUMNS>(
                a + i * A_ROW, A_ROW, A_STEP, steps, load, [&](int r, int v) { return start(i + r, u + v); },
                [&](int r, int v, Vector sum) { finish(i + r, u + v, sum); });
        for (; i < rows; i++)
            product_block<1, COLUMNS>(
                a + i * A_ROW, A_ROW, A_STEP, steps, load, [&](int, int v) { return start(i, u + v); },
                [&](int, int v, Vector sum) { finish(i, u + v, sum); });
    }
}
FN Vector& at(float (*matrix)[HIDDEN], int row, int unit) { return *(Vector*)(matrix[row] + unit); }

// sums[a, :] += the sum over a tile's rows of factor[row, a] * matrix[row, :].
template <int A_ROW, int A_STEP>
FN void add_product(float (*sums)[HIDDEN], int rows, const float* factor, float (*matrix)[HIDDEN], int count) {
    product<A_ROW, A_STEP>(
        factor, matrix[0], rows, count, [&](int r, int u) { return at(sums, r, u); },
        [&](int r, int u, Vector sum) { at(sums, r, u) = sum; });
}

FN float sum_of(const float* row) {
    float lane[16] = {}, sum = 0.0f;
    for (int i = 0; i < TILE; i += 16)
        for (int l = 0; l < 16; l++) lane[l] += row[i + l];
    for (int l = 0; l < 16; l++) sum += lane[l];
    return sum;
}

FN void tanh_rows(float* x, int count) {
    VECTORISE
    for (int i = 0; i < count * HIDDEN; i++) x[i] = hyperbolic_tangent(x[i]);
}

// Adds the upper half of each row's first `WIDE` numbers to the lower half, until there are four.
template <int WIDE>
FN void fold(float (*rows)[LANES], int count) {
    if (WIDE > 4) {
        for (int r = 0; r < count; r++)
            for (int l = 0; l < WIDE / 2; l++) rows[r][l] += rows[r][l + WIDE / 2];
        fold<(WIDE > 4 ? WIDE / 2 : 4)>(rows, count);
    }
}

template <int OUT>
static void forward(const Network<OUT>& w, const float (*across)[HIDDEN], Tile& t) {
    product<OBS + 1, 1>(
        t.in[0], w.weights1[0], t.count, OBS + 1, [](int, int) { return Vector{}; },
        [&](int r, int u, Vector sum) { at(t.first, r, u) = sum; });
    tanh_rows(t.first[0], t.count);
    product<HIDDEN, 1>(
        t.first[0], across[0], t.count, HIDDEN, [&](int, int u) { return *(const Vector*)(w.bias2 + u); },
        [&](int r, int u, Vector sum) { at(t.second, r, u) = sum; });
    tanh_rows(t.second[0], t.count);
    for (int a = 0; a < OUT; a++) {
        alignas(64) float lane[TILE][LANES];
        for (int r = 0; r < t.count; r++) {
            Vector sum = {};
            for (int u = 0; u < HIDDEN; u += LANES) sum += at(t.second, r, u) * *(const Vector*)(w.weights3[a] + u);
            *(Vector*)lane[r] = sum;
        }
        fold<LANES>(lane, t.count);
        for (int r = 0; r < t.count; r++)
            t.out[a][r] = (lane[r][0] + lane[r][1]) + (lane[r][2] + lane[r][3]) + w.bias3[a];
    }
}

// Adds the gradient of a network, of whose loss t.back_out is the gradient with respect to the outputs. t.first is used up.
template <int OUT>
static void backward(const Network<OUT>& w, Tile& t, Network<OUT>& g) {
    const float one = 1.0f;
    add_product<TILE, 1>(g.weights3, OUT, t.back_out[0], t.second, t.count);
    for (int a = 0; a < OUT; a++) g.bias3[a] += sum_of(t.back_out[a]);
    product<1, TILE>(
        t.back_out[0], w.weights3[0], t.count, OUT, [](int, int) { return Vector{}; },
        [&](int r, int u, Vector sum) {
            const Vector y = at(t.second, r, u);
            at(t.back, r, u) = sum - sum * y * y;
        });
    add_product<1, HIDDEN>(g.weights2, HIDDEN, t.back[0], t.first, t.count);
    add_product<0, 0>(&g.bias2, 1, &one, t.back, t.count);
    product<HIDDEN, 1>(
        t.back[0], w.weights2[0], t.count, HIDDEN, [](int, int) { return Vector{}; },
        [&](int r, int u, Vector sum) {
            const Vector x = at(t.first, r, u);
            at(t.first, r, u) = sum - sum * x * x;
        });
    add_product<1, OBS + 1>(g.weights1, OBS + 1, t.in[0], t.first, t.count);
}
