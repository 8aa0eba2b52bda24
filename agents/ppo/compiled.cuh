// The gradient of PPO's loss written out, the limit on its norm, and Adam, on the CPU: for the two networks of
// envs/kernels/mlp.cuh (two hidden layers of HIDDEN units and tanh, OBS inputs; an actor with OUTPUTS outputs, a critic).
//
// A minibatch is four jobs, each shared out to threads: `prepare` (sums over the advantages, weights laid out for the
// products), `differentiate` (the rows of a learner and shard in a fixed number of parts, each with a gradient of its own,
// so that no sum depends on the number of threads), `collect` (sums over parts), `step` (norm, Adam).
#include "../parts/actor_critic.cuh"
#include "../parts/adam.cuh"

enum { LOG_STDS = CONTINUOUS ? OUTPUTS : 0, FREE = (LOG_STDS > 4 ? LOG_STDS + 3 : 4) / 4 * 4 };  // and their places
enum { FREE_AT = size_of_network(OUTPUTS), CRITIC_AT = FREE_AT + FREE, NUMBERS = CRITIC_AT + size_of_network(1) };
enum { WIDTH = NUMBERS + 8 };  // of a gradient with the MEANS behind it

// Metrics of a minibatch; the first MEANS are means over rows.
enum { POLICY_LOSS, VALUE_LOSS, ENTROPY, APPROX_KL, CLIP_FRACTION, MEANS, GRAD_NORM = MEANS, MINIBATCHES, METRICS };
#if CONTINUOUS
typedef float Action;
enum { ACTIONS = OUTPUTS };
#else
typedef u8 Action;
enum { ACTIONS = 1 };
#endif

// Every field is eight bytes; compiled.py reads their names here. L learners, S shards, k rows of a shard, P = NUMBERS.
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
    double* totals;           // [L, 3] count, sum and sum of squares of the advantages, over all shards
    double* metrics;          // [L, METRICS] sums over minibatches
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

struct alignas(64) Packed {
    Network<OUTPUTS> actor;
    Network<1> critic;
    float actor_across[HIDDEN][HIDDEN], critic_across[HIDDEN][HIDDEN];  // weights2 with inputs as rows
};
struct alignas(64) Gradient {
    Network<OUTPUTS> actor;
    Network<1> critic;
    float log_std[(FREE + 15) / 16 * 16];
};
struct Part {
    Gradient gradient;
    double sums[8];  // over the part's rows, of which `collect` makes the MEANS
};

// Columns of a tile's rows of the batch besides the inputs, and their terms of the MEANS.
struct alignas(64) Samples {
    float log_prob[TILE], advantage[TILE], target[TILE], value[TILE];
    float action[ACTIONS][TILE];
    float term[MEANS][TILE];
};

// e^x; infinity from 87 on, so that a ratio which has run away is not taken for a number.
FN float exponential_of_any(float x) {
    return x > 87.0f ? INFINITY : x > 0.0f ? 1.0f / exponential(-x) : exponential(x);
}

// Constants of the loss of a learner and minibatch: 1 / rows, the advantages' mean and 1 / (sd + 1e-8), its coefficients.
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
static void actor_loss(const Scale& s, const float* log_std, Tile& t, Samples& rows, float* back_log_std) {
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
            z[c] = (rows.action[c][i] - out[c]) * narrow[c];
            log_prob = fused(-0.5f * z[c], z[c], log_prob);
        }
        const float slope = policy_gradient(s, log_prob, rows.log_prob[i], rows.advantage[i], loss, kl, share);
        UNROLL_ALL
        for (int c = 0; c < OUTPUTS; c++) {
            gradient[c] = slope * z[c] * narrow[c];
            const float of_spread = slope * (z[c] * z[c] - 1.0f) - s.ent_coef * s.weight;
            pull[c][i] = filled ? of_spread : 0.0f;
        }
#else
        const float action = rows.action[0][i];
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
        const float slope = policy_gradient(s, log_prob, rows.log_prob[i], rows.advantage[i], loss, kl, share);
        UNROLL_ALL
        for (int a = 0; a < OUTPUTS; a++) {
            const float chosen = action == float(a) ? 1.0f : 0.0f;
            gradient[a] = slope * (chosen - chance[a]) + s.ent_coef * s.weight * chance[a] * (out[a] + entropy);
        }
#endif
        UNROLL_ALL
        for (int a = 0; a < OUTPUTS; a++) t.back_out[a][i] = filled ? gradient[a] : 0.0f;
        rows.term[POLICY_LOSS][i] = filled ? loss : 0.0f;
        rows.term[ENTROPY][i] = filled ? entropy : 0.0f;
        rows.term[APPROX_KL][i] = filled ? kl : 0.0f;
        rows.term[CLIP_FRACTION][i] = filled ? share : 0.0f;
    }
#if CONTINUOUS
    UNROLL_ALL
    for (int c = 0; c < OUTPUTS; c++) back_log_std[c] += sum_of(pull[c]);
#endif
}

// The same of the critic's output. Where the limited value is the worse one, it does not depend on the output.
static void critic_loss(const Scale& s, Tile& t, Samples& rows) {
    const int count = t.count;
    VECTORISE
    for (int i = 0; i < TILE; i++) {
        const float value = t.out[0][i], error = value - rows.target[i], change = value - rows.value[i];
        const float held = rows.value[i] + clipped(change, -s.clip, s.clip) - rows.target[i];
        const bool outside = s.clip_value & (fabsf(change) > s.clip) & (held * held > error * error);
        const float loss = outside ? 0.5f * held * held : 0.5f * error * error;
        const float slope = outside ? 0.0f : s.vf_coef * s.weight * error;
        t.back_out[0][i] = i < count ? slope : 0.0f;
        rows.term[VALUE_LOSS][i] = i < count ? loss : 0.0f;
    }
}

// The rows of the batch that a tile computes with.
static void gather(const Job& job, const i64* places, int count, Tile& t, Samples& rows) {
    t.count = count;
    for (int i = 0; i < count; i++) {
        const i64 row = places[i];
        for (int j = 0; j < OBS; j++) t.in[i][j] = job.obs[row * OBS + j];
        t.in[i][OBS] = 1.0f;
        for (int c = 0; c < ACTIONS; c++) rows.action[c][i] = float(((const Action*)job.action)[row * ACTIONS + c]);
        rows.log_prob[i] = job.log_prob[row];
        rows.advantage[i] = job.advantage[row];
        rows.target[i] = job.target[row];
        rows.value[i] = job.value[row];
    }
}

static void differentiate_part(const Job& job, i64 learner, i64 shard, i64 index) {
    const Packed& w = job.packed[learner];
    Part& part = job.part[(learner * job.shards + shard) * job.parts + index];
    memset(&part, 0, sizeof part);
    const double* totals = job.totals + 3 * learner;
    const double mean = totals[1] / totals[0], squares = totals[2] - totals[1] * mean;
    const double sd = sqrt((squares < 0.0 ? 0.0 : squares) / (totals[0] > 1.0 ? totals[0] - 1.0 : 1.0));
    const Scale scale = {float(1.0 / totals[0]),
                         job.norm_adv ? float(mean) : 0.0f,
                         job.norm_adv ? float(1.0 / (sd + 1e-8)) : 1.0f,
                         float(job.clip),
                         job.ent_coef[learner],
                         float(job.vf_coef),
                         job.clip_value != 0};
    const i64* places = job.rows + (learner * job.shards + shard) * job.count;
    const i64 begin = job.count * index / job.parts, end = job.count * (index + 1) / job.parts;
    Tile t;
    Samples rows;
    memset(&t, 0, sizeof t);
    memset(&rows, 0, sizeof rows);
    for (i64 base = begin; base < end; base += TILE) {
        gather(job, places + base, int(end - base < TILE ? end - base : i64(TILE)), t, rows);
        forward(w.actor, w.actor_across, t);
        actor_loss(scale, job.parameters + learner * NUMBERS + FREE_AT, t, rows, part.gradient.log_std);
        backward(w.actor, t, part.gradient.actor);
        forward(w.critic, w.critic_across, t);
        critic_loss(scale, t, rows);
        backward(w.critic, t, part.gradient.critic);
        for (int m = 0; m < MEANS; m++) part.sums[m] += sum_of(rows.term[m]);
    }
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
            totals[0] += double(job->count);
            totals[1] += sum;
            totals[2] += squares;
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
                for (int m = 0; m < MEANS; m++) part[0].sums[m] += part[p].sums[m];
            }
            walk(gradient, part[0].gradient.actor, out);
            walk(gradient + CRITIC_AT, part[0].gradient.critic, out);
            for (int c = 0; c < LOG_STDS; c++) gradient[FREE_AT + c] = part[0].gradient.log_std[c];
            for (int m = 0; m < MEANS; m++)
                gradient[NUMBERS + m] = float(part[0].sums[m] / job->totals[3 * learner]);
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
        double* const metrics = job->metrics + learner * METRICS;
        const double norm = norm_of(gradient, NUMBERS);
        const float *const means = gradient + NUMBERS, loss = means[POLICY_LOSS] + means[VALUE_LOSS] + means[ENTROPY];
        for (int m = 0; m < MEANS; m++) metrics[m] += means[m];
        metrics[GRAD_NORM] += norm;
        metrics[MINIBATCHES] += 1.0;
        bad[0] = !isfinite(loss);
        bad[1] = !isfinite(norm);
        job->stopped[learner] = means[APPROX_KL] > job->target_kl;
        if (bad[1] || job->stopped[learner]) continue;
        const i64 at = learner * NUMBERS;
        adam_step(job->parameters + at, gradient, job->first + at, job->second + at, NUMBERS, norm, job->max_grad_norm,
                  double(++job->steps[learner]), job->rate[learner], job->beta1, job->beta2, job->adam_eps);
    }
}

static void share_out(const Job* job, void (*work)(const Job*, const void*, i64, i64), i64 tiles) {
    if (job->threads > 1 && tiles > 1)
        job->pool((void (*)(const void*, const void*, i64, i64))work, job, nullptr, tiles, int(job->threads));
    else work(job, nullptr, 0, tiles);
}

extern "C" {
// The first place in rows that names no row of the batch, or -1; `prepare` otherwise.
i64 ppo_prepare(const Job* job) {
    const i64 places = job->learners * job->shards * job->count;
    u64 any = 0;
    for (i64 i = 0; i < places; i++) any |= u64(job->rows[i]) >= u64(job->batch_rows);
    if (any)
        for (i64 i = 0; i < places; i++)
            if (u64(job->rows[i]) >= u64(job->batch_rows)) return i;
    share_out(job, prepare, job->learners);
    return -1;
}
void ppo_gradient(const Job* job) {
    share_out(job, differentiate, job->learners * job->shards * job->parts);
    share_out(job, collect, job->learners);
}
void ppo_step(const Job* job) {
    share_out(job, step, job->learners);
    for (i64 i = 0; i < 2 * job->learners; i++)
        if (job->bad[i] && job->first_bad[i % 2] < 0) job->first_bad[i % 2] = job->updates[0];
    job->updates[0]++;
}
i64 ppo_update(const Job* job) {
    const i64 wrong = ppo_prepare(job);
    if (wrong >= 0) return wrong;
    ppo_gradient(job);
    ppo_step(job);
    return wrong;
}
i64 ppo_bytes_of_packed() { return sizeof(Packed); }
i64 ppo_bytes_of_part() { return sizeof(Part); }
}
