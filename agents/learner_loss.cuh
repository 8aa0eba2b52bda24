// The loss of PPO for a tile's rows: actor (Categorical, or Gaussian if CONTINUOUS) and critic.
#pragma once
#include "learner_network.cuh"

// e^x; infinity from 87 on, so that a ratio which has run away is not taken for a number.
FN float exponential_of_any(float x) {
    return x > 87.0f ? INFINITY : x > 0.0f ? 1.0f / exponential(-x) : exponential(x);
}

// What the loss needs of a learner and minibatch: 1 / rows, the advantages' mean and 1 / (sd + 1e-8), its coefficients.
struct Scale {
    float weight, mean, inverse, clip, ent_coef, vf_coef;
    bool clip_value;
};

// d loss / d log p of one row, and its terms of what is told. `raw` is the advantage before it is normalised.
FN float policy_gradient(const Scale& s, float log_prob, float old, float raw, float& loss, float& kl, float& outside) {
    const float advantage = (raw - s.mean) * s.inverse, difference = log_prob - old;
    const float ratio = exponential_of_any(difference), bounded = clipped(ratio, 1.0f - s.clip, 1.0f + s.clip);
    const float free = -advantage * ratio, held = -advantage * bounded;
    loss = held > free ? held : free;
    kl = ratio - 1.0f - difference;
    outside = fabsf(ratio - 1.0f) > s.clip ? 1.0f : 0.0f;
    return held > free ? 0.0f : free * s.weight;
}

// The gradient of the loss with respect to the actor's outputs, and to log_std.
static void actor_loss(const Scale& s, const float* log_std, Tile& t, float* back_log_std) {
#if CONTINUOUS
    float narrow[OUTPUTS], base = 0.0f, entropy = 0.0f;
    UNROLL_ALL
    for (int c = 0; c < OUTPUTS; c++) {
        narrow[c] = exponential_of_any(-log_std[c]);
        base -= log_std[c] + 0.91893853f;     // ln sqrt(2 pi)
        entropy += log_std[c] + 1.41893853f;  // ln sqrt(2 pi e)
    }
    alignas(64) float pull[OUTPUTS][TILE];  // of a row on log_std
#endif
    const int count = t.count;
    VECTORISE
    for (int i = 0; i < TILE; i++) {
        float out[OUTPUTS], gradient[OUTPUTS], loss, kl, share;
        UNROLL_ALL
        for (int a = 0; a < OUTPUTS; a++) out[a] = t.out[a][i];
        const bool filled = i < count;
#if CONTINUOUS
        float log_prob = base, z[OUTPUTS];
        UNROLL_ALL
        for (int c = 0; c < OUTPUTS; c++) {
            z[c] = (t.action[c][i] - out[c]) * narrow[c];
            log_prob = fused(-0.5f * z[c], z[c], log_prob);
        }
        const float slope = policy_gradient(s, log_prob, t.log_prob[i], t.advantage[i], loss, kl, share);
        UNROLL_ALL
        for (int c = 0; c < OUTPUTS; c++) {
            gradient[c] = slope * z[c] * narrow[c];
            const float of_spread = slope * (z[c] * z[c] - 1.0f) - s.ent_coef * s.weight;
            pull[c][i] = filled ? of_spread : 0.0f;
        }
#else
        const float action = t.action[0][i];
        float highest = out[0], sum = 0.0f, chance[OUTPUTS], entropy = 0.0f, log_prob = 0.0f;
        UNROLL_ALL
        for (int a = 0; a < OUTPUTS; a++) highest = out[a] > highest ? out[a] : highest;
        UNROLL_ALL
        for (int a = 0; a < OUTPUTS; a++) sum += chance[a] = exponential(out[a] - highest);
        const float normaliser = highest + logarithm(sum), inverse = 1.0f / sum;
        UNROLL_ALL
        for (int a = 0; a < OUTPUTS; a++) {
            chance[a] *= inverse;
            out[a] -= normaliser;
            entropy -= chance[a] * out[a];
            log_prob = action == float(a) ? out[a] : log_prob;
        }
        const float slope = policy_gradient(s, log_prob, t.log_prob[i], t.advantage[i], loss, kl, share);
        UNROLL_ALL
        for (int a = 0; a < OUTPUTS; a++) {
            const float chosen = action == float(a) ? 1.0f : 0.0f;
            gradient[a] = slope * (chosen - chance[a]) + s.ent_coef * s.weight * chance[a] * (out[a] + entropy);
        }
#endif
        UNROLL_ALL
        for (int a = 0; a < OUTPUTS; a++) t.back_out[a][i] = filled ? gradient[a] : 0.0f;
        t.term[POLICY_LOSS][i] = filled ? loss : 0.0f;
        t.term[ENTROPY][i] = filled ? entropy : 0.0f;
        t.term[APPROX_KL][i] = filled ? kl : 0.0f;
        t.term[CLIP_FRACTION][i] = filled ? share : 0.0f;
    }
#if CONTINUOUS
    UNROLL_ALL
    for (int c = 0; c < OUTPUTS; c++) back_log_std[c] += sum_of(pull[c]);
#endif
}

// The same of the critic's output. Where the limited value is the worse one, it does not depend on the output.
static void critic_loss(const Scale& s, Tile& t) {
    const int count = t.count;
    VECTORISE
    for (int i = 0; i < TILE; i++) {
        const float value = t.out[0][i], error = value - t.target[i], change = value - t.value[i];
        const float held = t.value[i] + clipped(change, -s.clip, s.clip) - t.target[i];
        const bool outside = s.clip_value & (fabsf(change) > s.clip) & (held * held > error * error);
        const float loss = outside ? 0.5f * held * held : 0.5f * error * error;
        const float slope = outside ? 0.0f : s.vf_coef * s.weight * error;
        t.back_out[0][i] = i < count ? slope : 0.0f;
        t.term[VALUE_LOSS][i] = i < count ? loss : 0.0f;
    }
}
