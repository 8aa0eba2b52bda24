// The gradient of PPO's loss written out, the limit on its norm, and Adam, on the CPU: for the two networks of
// envs/kernels/mlp.cuh (two hidden layers of HIDDEN units and tanh, OBS inputs; an actor with OUTPUTS outputs, a critic).
//
// One minibatch is three jobs, each shared out to threads: `prepare` (sums over the advantages, weights laid out for the
// products), `differentiate` (the rows of a learner and shard in a fixed number of parts, each with a gradient of its own, so
// that the sum over parts does not depend on the number of threads), `step` (norm, Adam).
//
// Activations lie row by row, so that all seven products of a network, forward and backward, are the same loop: a few rows
// of one matrix, numbers broadcast, times whole rows of another, sums kept in registers.
#if defined(__clang__)
#pragma clang fp contract(fast)
#define UNROLL_ALL _Pragma("unroll")
#else
#pragma GCC optimize("fp-contract=fast")  // a * b + c of two vectors is one instruction
#define UNROLL_ALL _Pragma("GCC unroll 16")
#endif
#define REAL float
#include "kernels/platform.cuh"

// The widest vectors of the processor. SUMS registers hold sums of products; LANES * COLUMNS units of a row are done at once.
#if defined(__AVX512F__)
enum { LANES = 16, SUMS = 16, MOST_COLUMNS = 4 };
#elif defined(__AVX__)
enum { LANES = 8, SUMS = 8, MOST_COLUMNS = 2 };
#else
enum { LANES = 4, SUMS = 8, MOST_COLUMNS = 2 };
#endif
typedef float Vector __attribute__((vector_size(4 * LANES), may_alias));
enum { COLUMNS = HIDDEN / LANES < MOST_COLUMNS ? HIDDEN / LANES : MOST_COLUMNS, ROWS = SUMS / COLUMNS, TILE = 64 };
enum { SPREADS = CONTINUOUS ? OUTPUTS : 0, FREE = (SPREADS > 4 ? SPREADS + 3 : 4) / 4 * 4 };  // log_std, and its places
enum { POLICY_LOSS, VALUE_LOSS, ENTROPY, APPROX_KL, CLIP_FRACTION, MEANS, GRAD_NORM = MEANS, MINIBATCHES, FIGURES };

constexpr int size_of_network(int outputs) {
    return (HIDDEN * (OBS + HIDDEN + 2) + outputs * (HIDDEN + 1) + 3) / 4 * 4;
}
enum { FREE_AT = size_of_network(OUTPUTS), CRITIC_AT = FREE_AT + FREE, NUMBERS = CRITIC_AT + size_of_network(1) };
enum { WIDTH = NUMBERS + 8 };  // of a gradient with the MEANS behind it

#if CONTINUOUS
typedef float Action;
enum { ACTIONS = OUTPUTS };
#else
typedef u8 Action;
enum { ACTIONS = 1 };
#endif

// Every field is eight bytes; learner.py reads their names here. L learners, S shards, k rows of a shard, P = NUMBERS.
struct Job {
    const float* obs;         // [N, OBS]
    const void* action;       // [N] u8 or [N, OUTPUTS] float
    const float* log_prob;    // [N], as are the next three
    const float* advantage;
    const float* target;
    const float* value;
    const i64* rows;          // [L, S, k]
    float* parameters;        // [L, P]
    float* gradients;         // [L, S, P + 8] with five means behind them
    float* total;             // [L, P + 8] sum over shards, which `step` applies
    float* first;             // [L, P] Adam's moments
    float* second;            // [L, P]
    i64* steps;               // [L]
    const float* rate;        // [L]
    const float* ent_coef;    // [L]
    double* sums;             // [L, S, 3] count, sum and sum of squares of the advantages
    double* totals;           // [L, 3] the same over all shards
    double* figures;          // [L, FIGURES] sums over minibatches
    u8* stopped;              // [L] no further step before the next iteration
    u8* bad;                  // [L, 2] loss, gradient of this minibatch are not finite
    i64* updates;             // [1] calls of `step`
    i64* first_bad;           // [2] the first of them with a loss, gradient that was not finite, or -1
    struct Packed* packed;    // [L]
    struct Part* part;        // [L, S, parts]
    i64 batch_rows;
    i64 learners;
    i64 shards;
    i64 count;                // k
    i64 parts;
    i64 threads;
    i64 norm_adv;
    i64 clip_value;
    double clip;
    double vf_coef;
    double max_grad_norm;     // infinity: no limit
    double target_kl;         // infinity: none
    double beta1;
    double beta2;
    double adam_eps;
    void (*pool)(void (*)(const void*, const void*, i64, i64), const void*, const void*, i64, int);
};

// The numbers of one network as the products want them; rows of weights1 are inputs, the last one the bias.
template <int OUT>
struct alignas(64) Network {
    float weights1[OBS + 1][HIDDEN], weights2[HIDDEN][HIDDEN], bias2[HIDDEN], weights3[OUT][HIDDEN], bias3[(OUT + 15) / 16 * 16];
};
struct alignas(64) Packed {
    Network<OUTPUTS> actor;
    Network<1> critic;
    float actor_across[HIDDEN][HIDDEN], critic_across[HIDDEN][HIDDEN];  // weights2 with inputs as rows
};
struct alignas(64) Gradient {
    Network<OUTPUTS> actor;
    Network<1> critic;
    float spread[(FREE + 15) / 16 * 16];
};
struct Part {
    Gradient gradient;
    double means[8];  // sums over the part's rows, of which `differentiate` makes means
};

// What is gathered and computed for TILE rows.
struct alignas(64) Tile {
    float in[TILE][OBS + 1];  // the last component is 1
    float first[TILE][HIDDEN], second[TILE][HIDDEN], back[TILE][HIDDEN];
    float out[OUTPUTS][TILE], back_out[TILE * OUTPUTS];  // [TILE, outputs of the network]
    float log_prob[TILE], advantage[TILE], target[TILE], value[TILE];
    float term[MEANS][TILE];
    float action[ACTIONS][TILE];
    int count;
};

// Sums over `steps` of a[r, s] * b[s, :], begun by start(r, v) and handed to finish(r, v, sum): R rows, COLUMNS vectors.
template <int R, int A_ROW, int A_STEP, typename Start, typename Finish>
FN void product_block(const float* a, const float* b, int steps, Start start, Finish finish) {
    Vector sum[R][COLUMNS];
    UNROLL_ALL
    for (int r = 0; r < R; r++)
        UNROLL_ALL
        for (int v = 0; v < COLUMNS; v++) sum[r][v] = start(r, v * LANES);
    for (int s = 0; s < steps; s++) {
        Vector row[COLUMNS];
        UNROLL_ALL
        for (int v = 0; v < COLUMNS; v++) row[v] = *(const Vector*)(b + s * HIDDEN + v * LANES);
        UNROLL_ALL
        for (int r = 0; r < R; r++) {
            const float x = a[r * A_ROW + s * A_STEP];
            UNROLL_ALL
            for (int v = 0; v < COLUMNS; v++) sum[r][v] = x * row[v] + sum[r][v];
        }
    }
    UNROLL_ALL
    for (int r = 0; r < R; r++)
        UNROLL_ALL
        for (int v = 0; v < COLUMNS; v++) finish(r, v * LANES, sum[r][v]);
}

// The product of a [rows, steps], whose numbers lie A_ROW and A_STEP apart, and b [steps, HIDDEN].
template <int A_ROW, int A_STEP, typename Start, typename Finish>
FN void product(const float* a, const float* b, int rows, int steps, Start start, Finish finish) {
    for (int u = 0; u < HIDDEN; u += COLUMNS * LANES) {
        int i = 0;
        for (; i + ROWS <= rows; i += ROWS)
            product_block<ROWS, A_ROW, A_STEP>(
                a + i * A_ROW, b + u, steps, [&](int r, int v) { return start(i + r, u + v); },
                [&](int r, int v, Vector sum) { finish(i + r, u + v, sum); });
        for (; i < rows; i++)
            product_block<1, A_ROW, A_STEP>(
                a + i * A_ROW, b + u, steps, [&](int, int v) { return start(i, u + v); },
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

FN void tanh_rows(float* x, int count) {
    VECTORISE
    for (int i = 0; i < count * HIDDEN; i++) x[i] = hyperbolic_tangent(x[i]);
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
    for (int r = 0; r < t.count; r++)
        for (int a = 0; a < OUT; a++) {
            Vector sum = {};
            for (int u = 0; u < HIDDEN; u += LANES) sum += at(t.second, r, u) * *(const Vector*)(w.weights3[a] + u);
            float lane[LANES];
            memcpy(lane, &sum, sizeof lane);
            for (int width = LANES / 2; width; width /= 2)
                for (int l = 0; l < width; l++) lane[l] += lane[l + width];
            t.out[a][r] = lane[0] + w.bias3[a];
        }
}

// Adds the gradient of a network, of whose loss t.back_out is the gradient with respect to the outputs. t.first is used up.
template <int OUT>
static void backward(const Network<OUT>& w, Tile& t, Network<OUT>& g) {
    const float one = 1.0f;
    add_product<1, OUT>(g.weights3, OUT, t.back_out, t.second, t.count);
    for (int r = 0; r < t.count; r++)
        for (int a = 0; a < OUT; a++) g.bias3[a] += t.back_out[r * OUT + a];
    product<OUT, 1>(
        t.back_out, w.weights3[0], t.count, OUT, [](int, int) { return Vector{}; },
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

FN float exponential_of_any(float x) { return x > 0.0f ? 1.0f / exponential(-x) : exponential(x); }

// What the loss needs of a learner and minibatch: 1 / rows, the advantages' mean and 1 / (sd + 1e-8), its coefficients.
struct Scale {
    float weight, mean, inverse, clip, ent_coef, vf_coef;
    bool clip_value;
};

// d loss / d log_prob of one row, and its terms of the statistics.
FN float policy_gradient(const Scale& s, float log_prob, float old, float raw, float& loss, float& kl, float& clipped_share) {
    const float advantage = (raw - s.mean) * s.inverse, difference = log_prob - old;
    const float ratio = exponential_of_any(difference), bounded = clipped(ratio, 1.0f - s.clip, 1.0f + s.clip);
    const float free = -advantage * ratio, held = -advantage * bounded;
    loss = held > free ? held : free;
    kl = ratio - 1.0f - difference;
    clipped_share = fabsf(ratio - 1.0f) > s.clip ? 1.0f : 0.0f;
    return held > free ? 0.0f : free * s.weight;
}

static void actor_loss(const Scale& s, const float* log_std, Tile& t, Gradient& g) {
#if CONTINUOUS
    float narrow[OUTPUTS], base = 0.0f, entropy = 0.0f;
    for (int c = 0; c < OUTPUTS; c++) {
        narrow[c] = exponential_of_any(-log_std[c]);
        base -= log_std[c] + 0.91893853f;         // ln sqrt(2 pi)
        entropy += log_std[c] + 1.41893853f;      // ln sqrt(2 pi e)
    }
    alignas(64) float pull[OUTPUTS][TILE];  // of a row on log_std
#endif
    VECTORISE
    for (int i = 0; i < TILE; i++) {
        float gradient[OUTPUTS];
        float loss, kl, share;
        const bool real_row = i < t.count;
#if CONTINUOUS
        float log_prob = base, z[OUTPUTS];
        for (int c = 0; c < OUTPUTS; c++) {
            z[c] = (t.action[c][i] - t.out[c][i]) * narrow[c];
            log_prob = fused(-0.5f * z[c], z[c], log_prob);
        }
        const float slope = policy_gradient(s, log_prob, t.log_prob[i], t.advantage[i], loss, kl, share);
        for (int c = 0; c < OUTPUTS; c++) {
            gradient[c] = slope * z[c] * narrow[c];
            pull[c][i] = real_row ? slope * (z[c] * z[c] - 1.0f) - s.ent_coef * s.weight : 0.0f;
        }
#else
        float highest = t.out[0][i], sum = 0.0f, weight[OUTPUTS], entropy = 0.0f, log_prob = 0.0f;
        for (int a = 1; a < OUTPUTS; a++) highest = t.out[a][i] > highest ? t.out[a][i] : highest;
        for (int a = 0; a < OUTPUTS; a++) sum += weight[a] = exponential(t.out[a][i] - highest);
        const float normaliser = highest + logarithm(sum), inverse = 1.0f / sum;
        for (int a = 0; a < OUTPUTS; a++) {
            weight[a] *= inverse;
            entropy -= weight[a] * (t.out[a][i] - normaliser);
            log_prob = t.action[0][i] == float(a) ? t.out[a][i] - normaliser : log_prob;
        }
        const float slope = policy_gradient(s, log_prob, t.log_prob[i], t.advantage[i], loss, kl, share);
        for (int a = 0; a < OUTPUTS; a++) {
            const float bonus = s.ent_coef * s.weight * weight[a] * (t.out[a][i] - normaliser + entropy);
            gradient[a] = slope * ((t.action[0][i] == float(a) ? 1.0f : 0.0f) - weight[a]) + bonus;
        }
#endif
        for (int a = 0; a < OUTPUTS; a++) t.back_out[i * OUTPUTS + a] = real_row ? gradient[a] : 0.0f;
        t.term[POLICY_LOSS][i] = real_row ? loss : 0.0f;
        t.term[ENTROPY][i] = real_row ? entropy : 0.0f;
        t.term[APPROX_KL][i] = real_row ? kl : 0.0f;
        t.term[CLIP_FRACTION][i] = real_row ? share : 0.0f;
    }
#if CONTINUOUS
    for (int c = 0; c < OUTPUTS; c++)
        for (int i = 0; i < t.count; i++) g.spread[c] += pull[c][i];
#endif
}

static void critic_loss(const Scale& s, Tile& t) {
    VECTORISE
    for (int i = 0; i < TILE; i++) {
        const float value = t.out[0][i], error = value - t.target[i], change = value - t.value[i];
        const float held = t.value[i] + clipped(change, -s.clip, s.clip) - t.target[i];
        const bool outside = s.clip_value & (fabsf(change) > s.clip) & (held * held > error * error);
        const float loss = outside ? 0.5f * held * held : 0.5f * error * error;
        const float slope = outside ? 0.0f : s.vf_coef * s.weight * error;
        t.back_out[i] = i < t.count ? slope : 0.0f;
        t.term[VALUE_LOSS][i] = i < t.count ? loss : 0.0f;
    }
}

static void gather(const Job& job, const i64* rows, int count, Tile& t) {
    t.count = count;
    for (int i = 0; i < count; i++) {
        const i64 row = rows[i];
        for (int j = 0; j < OBS; j++) t.in[i][j] = job.obs[row * OBS + j];
        t.in[i][OBS] = 1.0f;
        for (int c = 0; c < ACTIONS; c++) t.action[c][i] = float(((const Action*)job.action)[row * ACTIONS + c]);
        t.log_prob[i] = job.log_prob[row];
        t.advantage[i] = job.advantage[row];
        t.target[i] = job.target[row];
        t.value[i] = job.value[row];
    }
}

static void differentiate_part(const Job& job, i64 learner, i64 shard, i64 index) {
    const Packed& w = job.packed[learner];
    Part& part = job.part[(learner * job.shards + shard) * job.parts + index];
    memset(&part, 0, sizeof part);
    const double* totals = job.totals + 3 * learner;
    const double mean = totals[1] / totals[0], squares = totals[2] - totals[1] * mean;
    const double sd = sqrt((squares > 0.0 ? squares : 0.0 * squares) / (totals[0] > 1.0 ? totals[0] - 1.0 : 1.0));
    const Scale scale = {float(1.0 / totals[0]), job.norm_adv ? float(mean) : 0.0f, job.norm_adv ? float(1.0 / (sd + 1e-8)) : 1.0f,
                         float(job.clip), job.ent_coef[learner], float(job.vf_coef), job.clip_value != 0};
    const i64* rows = job.rows + (learner * job.shards + shard) * job.count;
    const i64 begin = job.count * index / job.parts, end = job.count * (index + 1) / job.parts;
    Tile t;
    memset(&t, 0, sizeof t);
    for (i64 base = begin; base < end; base += TILE) {
        gather(job, rows + base, int(end - base < TILE ? end - base : TILE), t);
        forward(w.actor, w.actor_across, t);
        actor_loss(scale, job.parameters + learner * NUMBERS + FREE_AT, t, part.gradient);
        backward(w.actor, t, part.gradient.actor);
        forward(w.critic, w.critic_across, t);
        critic_loss(scale, t);
        backward(w.critic, t, part.gradient.critic);
        for (int m = 0; m < MEANS; m++) {
            float lane[16] = {};
            for (int i = 0; i < TILE; i += 16)
                for (int l = 0; l < 16; l++) lane[l] += t.term[m][i + l];
            for (int l = 0; l < 16; l++) part.means[m] += lane[l];
        }
    }
}

// Weights and biases from mlp.cuh's order into a network's, or back. `Copy` gets the number there and the one here.
template <int OUT, typename Copy>
FN float* walk(float* flat, Network<OUT>& n, Copy copy) {
    for (int j = 0; j < HIDDEN; j++)
        for (int i = 0; i < OBS; i++) copy(flat[j * OBS + i], n.weights1[i][j]);
    flat += HIDDEN * OBS;
    for (int j = 0; j < HIDDEN; j++) copy(flat[j], n.weights1[OBS][j]);
    flat += HIDDEN;
    for (int j = 0; j < HIDDEN * HIDDEN; j++) copy(flat[j], n.weights2[0][j]);
    flat += HIDDEN * HIDDEN;
    for (int j = 0; j < HIDDEN; j++) copy(flat[j], n.bias2[j]);
    flat += HIDDEN;
    for (int j = 0; j < OUT * HIDDEN; j++) copy(flat[j], n.weights3[0][j]);
    flat += OUT * HIDDEN;
    for (int j = 0; j < OUT; j++) copy(flat[j], n.bias3[j]);
    return flat;
}
static void transpose(const float (*in)[HIDDEN], float (*out)[HIDDEN]) {
    for (int i = 0; i < HIDDEN; i++)
        for (int j = 0; j < HIDDEN; j++) out[i][j] = in[j][i];
}

static void prepare(const Job* job, const void*, i64 begin, i64 end) {
    const auto in = [](float& there, float& here) { here = there; };
    for (i64 learner = begin; learner < end; learner++) {
        double* totals = job->totals + 3 * learner;
        totals[0] = totals[1] = totals[2] = 0.0;
        for (i64 shard = learner * job->shards; shard < (learner + 1) * job->shards; shard++) {
            double sum = 0.0, squares = 0.0;
            for (i64 i = 0; i < job->count; i++) {
                const double advantage = job->advantage[job->rows[shard * job->count + i]];
                sum += advantage;
                squares += advantage * advantage;
            }
            const double sums[3] = {double(job->count), sum, squares};
            for (int j = 0; j < 3; j++) totals[j] += job->sums[3 * shard + j] = sums[j];
        }
        Packed& w = job->packed[learner];
        walk(job->parameters + learner * NUMBERS, w.actor, in);
        walk(job->parameters + learner * NUMBERS + CRITIC_AT, w.critic, in);
        transpose(w.actor.weights2, w.actor_across);
        transpose(w.critic.weights2, w.critic_across);
    }
}

static void differentiate(const Job* job, const void*, i64 begin, i64 end) {
    for (i64 i = begin; i < end; i++) {
        const i64 shard = i / job->parts, learner = shard / job->shards;
        if (!job->stopped[learner]) differentiate_part(*job, learner, shard % job->shards, i % job->parts);
    }
}

// The parts of every shard, added up in order, and the shards.
static void collect(const Job* job, const void*, i64 begin, i64 end) {
    const auto out = [](float& there, float& here) { there = here; };
    for (i64 learner = begin; learner < end; learner++) {
        float* const total = job->total + learner * WIDTH;
        memset(total, 0, WIDTH * sizeof(float));
        for (i64 shard = learner * job->shards; shard < (learner + 1) * job->shards; shard++) {
            float* const gradient = job->gradients + shard * WIDTH;
            memset(gradient, 0, WIDTH * sizeof(float));
            if (job->stopped[learner]) continue;
            Part* const part = job->part + shard * job->parts;
            for (i64 p = 1; p < job->parts; p++) {
                float *const sum = (float*)&part[0].gradient, *const more = (float*)&part[p].gradient;
                VECTORISE
                for (int i = 0; i < int(sizeof(Gradient) / sizeof(float)); i++) sum[i] += more[i];
                for (int m = 0; m < MEANS; m++) part[0].means[m] += part[p].means[m];
            }
            walk(gradient, part[0].gradient.actor, out);
            walk(gradient + CRITIC_AT, part[0].gradient.critic, out);
            for (int c = 0; c < SPREADS; c++) gradient[FREE_AT + c] = part[0].gradient.spread[c];
            for (int m = 0; m < MEANS; m++)
                gradient[NUMBERS + m] = float(part[0].means[m] / job->totals[3 * learner]);
            VECTORISE
            for (int i = 0; i < WIDTH; i++) total[i] += gradient[i];
        }
    }
}

// One step of Adam along job->total, whose norm is limited; nothing where the norm is not finite.
static void step(const Job* job, const void*, i64 begin, i64 end) {
    for (i64 learner = begin; learner < end; learner++) {
        u8* const bad = job->bad + 2 * learner;
        bad[0] = bad[1] = 0;
        if (job->stopped[learner]) continue;
        const float* const gradient = job->total + learner * WIDTH;
        double* const figures = job->figures + learner * FIGURES;
        double lane[16] = {}, squares = 0.0;
        for (int i = 0; i + 16 <= NUMBERS; i += 16)
            for (int l = 0; l < 16; l++) lane[l] += double(gradient[i + l]) * gradient[i + l];
        for (int i = NUMBERS / 16 * 16; i < NUMBERS; i++) squares += double(gradient[i]) * gradient[i];
        for (int l = 0; l < 16; l++) squares += lane[l];
        const double norm = sqrt(squares), limit = job->max_grad_norm / (norm + 1e-6);
        const float *const means = gradient + NUMBERS, loss = means[POLICY_LOSS] + means[VALUE_LOSS] + means[ENTROPY];
        for (int m = 0; m < MEANS; m++) figures[m] += means[m];
        figures[GRAD_NORM] += norm;
        figures[MINIBATCHES] += 1.0;
        bad[0] = !isfinite(loss);
        bad[1] = !isfinite(norm);
        job->stopped[learner] = means[APPROX_KL] > job->target_kl;
        if (bad[1] || job->stopped[learner]) continue;
        const double t = double(++job->steps[learner]);
        const float scale = limit < 1.0 ? float(limit) : 1.0f;
        const float beta1 = float(job->beta1), beta2 = float(job->beta2), eps = float(job->adam_eps);
        const float rest1 = float(1.0 - job->beta1), rest2 = float(1.0 - job->beta2);
        const float rate = float(job->rate[learner] / (1.0 - pow(job->beta1, t)));
        const float root = float(1.0 / sqrt(1.0 - pow(job->beta2, t)));
        float* const parameters = job->parameters + learner * NUMBERS;
        float *const first = job->first + learner * NUMBERS, *const second = job->second + learner * NUMBERS;
        VECTORISE
        for (int i = 0; i < NUMBERS; i++) {
            const float g = gradient[i] * scale, m = fused(rest1, g, beta1 * first[i]);
            const float v = fused(rest2 * g, g, beta2 * second[i]);
            first[i] = m;
            second[i] = v;
            parameters[i] -= rate * m / fused(sqrtf(v), root, eps);
        }
    }
}

static void share_out(const Job* job, void (*work)(const Job*, const void*, i64, i64), i64 tiles) {
    if (job->threads > 1 && tiles > 1)
        job->pool((void (*)(const void*, const void*, i64, i64))work, job, nullptr, tiles, int(job->threads));
    else work(job, nullptr, 0, tiles);
}

extern "C" {
// The first place in rows that names no row of the batch, or -1; `prepare` otherwise.
i64 learner_prepare(const Job* job) {
    const i64 places = job->learners * job->shards * job->count;
    u64 any = 0;
    for (i64 i = 0; i < places; i++) any |= u64(job->rows[i]) >= u64(job->batch_rows);
    if (any)
        for (i64 i = 0; i < places; i++)
            if (u64(job->rows[i]) >= u64(job->batch_rows)) return i;
    share_out(job, prepare, job->learners);
    return -1;
}
void learner_gradient(const Job* job) {
    share_out(job, differentiate, job->learners * job->shards * job->parts);
    share_out(job, collect, job->learners);
}
void learner_step(const Job* job) {
    share_out(job, step, job->learners);
    for (i64 i = 0; i < 2 * job->learners; i++)
        if (job->bad[i] && job->first_bad[i % 2] < 0) job->first_bad[i % 2] = job->updates[0];
    job->updates[0]++;
}
i64 learner_update(const Job* job) {
    const i64 wrong = learner_prepare(job);
    if (wrong >= 0) return wrong;
    learner_gradient(job);
    learner_step(job);
    return wrong;
}
i64 learner_bytes_of_packed() { return sizeof(Packed); }
i64 learner_bytes_of_part() { return sizeof(Part); }
}
