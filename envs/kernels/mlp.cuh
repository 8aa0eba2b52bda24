// A small policy inside the rollout: two hidden layers of HIDDEN units and tanh for the actor, the same for the critic.
//
// The numbers lie one after another: of each network weights [HIDDEN, OBS], bias, weights [HIDDEN, HIDDEN], bias, weights
// [outputs, HIDDEN], bias, padded to a multiple of four; between the two networks log_std, in four places.
#pragma once

FN constexpr int network_size(int outputs) {
    return (HIDDEN * (OBS + HIDDEN + 2) + outputs * (HIDDEN + 1) + 3) / 4 * 4;
}
enum { LOG_STD_AT = network_size(SCORES), CRITIC_AT = LOG_STD_AT + 4, NETWORK_NUMBERS = CRITIC_AT + network_size(1) };

struct Layers {
    const float *weights1, *bias1, *weights2, *bias2, *weights3, *bias3;
};
FN Layers layers_at(const float* numbers, int outputs) {
    const float *bias1 = numbers + HIDDEN * OBS, *weights2 = bias1 + HIDDEN, *bias2 = weights2 + HIDDEN * HIDDEN;
    const float* weights3 = bias2 + HIDDEN;
    return {numbers, bias1, weights2, bias2, weights3, weights3 + outputs * HIDDEN};
}

// The action drawn by two words of noise, or the likeliest one, and the logarithm of its probability (density).
FN Chosen sample(const float* scores, const float* log_std, bool greedy, u32 word0, u32 word1, float& log_prob) {
#if CONTINUOUS
    // Box and Muller; the first uniform number lies in (0, 1].
    const float radius = sqrtf(-2.0f * logarithm(float(int(word0 >> 8) + 1) * 5.9604644775390625e-8f));
    float sine, cosine;
    sincos_wide(float(int(word1 >> 8)) * (6.2831853f * 5.9604644775390625e-8f), sine, cosine);
    const float normal = greedy ? 0.0f : radius * cosine, spread = log_std[0];
    const float deviation = spread > 0.0f ? 1.0f / exponential(-spread) : exponential(spread);
    log_prob = -0.5f * normal * normal - spread - 0.91893853f;  // ln sqrt(2 pi)
    return fused(normal, deviation, scores[0]);
#else
    const int likeliest = best_action(scores);
    // Loops start at 0 also where 1 would do: those of one round, which two actions have, become branches in GCC.
    float highest = scores[0], sum = 0.0f, weight[SCORES];
    for (int a = 0; a < SCORES; a++) highest = scores[a] > highest ? scores[a] : highest;
    for (int a = 0; a < SCORES; a++) sum += weight[a] = exponential(scores[a] - highest);
    // Inverse distribution function: the first action whose cumulative weight exceeds u times the sum.
    const float target = uniform_in(word0, 0.0f, 1.0f) * sum;
    int drawn = 0;
    float cumulative = 0.0f, score = scores[0];
    for (int a = 0; a < SCORES - 1; a++) {
        cumulative += weight[a];
        drawn += target >= cumulative;
    }
    const int action = greedy ? likeliest : drawn;
    for (int a = 0; a < SCORES; a++) score = action == a ? scores[a] : score;
    log_prob = score - highest - logarithm(sum);
    return action;
#endif
}

#ifdef __CUDACC__
// One environment's outputs. The second layer is never stored: each of its units goes straight into the outputs.
template <int OUTPUTS>
FN void network(const float* numbers, const float* obs, float* out) {
    const Layers w = layers_at(numbers, OUTPUTS);
    float first[HIDDEN];
#pragma unroll
    for (int j = 0; j < HIDDEN; j++) {
        first[j] = w.bias1[j];
#pragma unroll
        for (int i = 0; i < OBS; i++) first[j] = fused(w.weights1[j * OBS + i], obs[i], first[j]);
        first[j] = hyperbolic_tangent(first[j]);
    }
#pragma unroll
    for (int a = 0; a < OUTPUTS; a++) out[a] = w.bias3[a];
#pragma unroll 1
    for (int j = 0; j < HIDDEN; j += 4) {  // four chains, to hide the latency of one
        float unit[4];
#pragma unroll
        for (int u = 0; u < 4; u++) unit[u] = w.bias2[j + u];
#pragma unroll
        for (int i = 0; i < HIDDEN; i += 4) {
#pragma unroll
            for (int u = 0; u < 4; u++) {
                const float4 row = *reinterpret_cast<const float4*>(w.weights2 + (j + u) * HIDDEN + i);
                unit[u] = fused(row.x, first[i], unit[u]);
                unit[u] = fused(row.y, first[i + 1], unit[u]);
                unit[u] = fused(row.z, first[i + 2], unit[u]);
                unit[u] = fused(row.w, first[i + 3], unit[u]);
            }
        }
#pragma unroll
        for (int u = 0; u < 4; u++) {
            unit[u] = hyperbolic_tangent(unit[u]);
#pragma unroll
            for (int a = 0; a < OUTPUTS; a++) out[a] = fused(w.weights3[a * HIDDEN + j + u], unit[u], out[a]);
        }
    }
}
#else
// A layer is computed for BLOCK environments and AT_ONCE units at a time, whose sums stay in registers. With AVX-512 these are 16
// registers of the 32: every input loads 4 vectors of environments and 4 weights, and these feed 16 multiply-adds, enough to
// hide the latency of one (4 cycles, 2 a cycle) and the loads. With AVX2 they are 8 of 16, with NEON 16 of 32.
#ifdef __AVX512F__
enum { WIDEST = 64 };
#else
enum { WIDEST = 16 };
#endif
enum { BLOCK = TILE < WIDEST ? TILE : WIDEST, AT_ONCE = 4 };

// N units for a block of environments, in the order of operations that the GPU has: a sum begins with the bias and goes on input
// by input, so that no bit depends on the size of a block. The loops over lanes become single registers.
template <int INPUTS, int N, bool TANH>
static inline void units(const float* weights, const float* bias, const float (*in)[BLOCK], float (*out)[BLOCK]) {
    alignas(64) float sum[N][BLOCK];
    for (int u = 0; u < N; u++)
        for (int l = 0; l < BLOCK; l++) sum[u][l] = bias[u];
    for (int i = 0; i < INPUTS; i++) {
        UNROLL
        for (int u = 0; u < N; u++) {
            const float weight = weights[u * INPUTS + i];
            VECTORISE
            for (int l = 0; l < BLOCK; l++) sum[u][l] = fused(weight, in[i][l], sum[u][l]);
        }
    }
    for (int u = 0; u < N; u++) {
        VECTORISE
        for (int l = 0; l < BLOCK; l++) out[u][l] = TANH ? hyperbolic_tangent(sum[u][l]) : sum[u][l];
    }
}

template <int INPUTS, int UNITS, bool TANH>
static inline void layer(const float* weights, const float* bias, const float (*in)[BLOCK], float (*out)[BLOCK]) {
    constexpr int WHOLE = UNITS / AT_ONCE * AT_ONCE, REST = UNITS - WHOLE;
    for (int j = 0; j < WHOLE; j += AT_ONCE) units<INPUTS, AT_ONCE, TANH>(weights + j * INPUTS, bias + j, in, out + j);
    if (REST) units<INPUTS, REST ? REST : 1, TANH>(weights + WHOLE * INPUTS, bias + WHOLE, in, out + WHOLE);
}

// A tile's outputs.
template <int OUTPUTS>
static void network_tile(const float* numbers, const float (*obs)[TILE], int count, float (*out)[TILE]) {
    const Layers w = layers_at(numbers, OUTPUTS);
    alignas(64) STORED float in[OBS][BLOCK] = {};
    alignas(64) float first[HIDDEN][BLOCK], second[HIDDEN][BLOCK], last[OUTPUTS][BLOCK];
    for (int from = 0; from < count; from += BLOCK) {
        const int lanes = count - from < BLOCK ? count - from : BLOCK;
        for (int i = 0; i < OBS; i++) memcpy(in[i], obs[i] + from, lanes * sizeof(float));
        layer<OBS, HIDDEN, true>(w.weights1, w.bias1, in, first);
        layer<HIDDEN, HIDDEN, true>(w.weights2, w.bias2, first, second);
        layer<HIDDEN, OUTPUTS, false>(w.weights3, w.bias3, second, last);
        for (int a = 0; a < OUTPUTS; a++) memcpy(out[a] + from, last[a], lanes * sizeof(float));
    }
}
#endif
