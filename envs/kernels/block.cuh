// The batched environment around one Environment that is too large for a thread: a block per environment on the GPU, and on
// the CPU a run of environments per thread. batch.cuh is its sibling for small states.
//
// kernel.cuh gives `struct Tables` (pointers to what a pool of scenarios holds, shared by all environments) and
//
//   struct Environment {
//       enum { STATE, OBS, REWARDS, METRICS, RECORD,          lengths of one environment's rows
//              RAW, TARGETS, SHARES };                        of a raw action, and of the integer form and its shares
//       struct Scratch { real state[STATE]; ... };            shared memory of a block; zero when a kernel begins
//       static const bool FROZEN;                             every episode plays scenario 0
//       static void start(Scratch&, Tables&, bool fresh);     an episode's first state; fresh: nothing survives from before
//       static void read(Scratch&, const float* raw);         decodes a raw action,
//       static bool reads(int k); static void read_one(Scratch&, int k, float);    or its numbers one by one,
//       static void read(Scratch&, const int* targets, const float* shares);       or integers and shares
//       static bool step(Scratch&, Tables&, Place, float* rewards, float* metrics, real* record);   whether it terminated
//       static void observe(Scratch&, Tables&, Place, float* row);
//   };
//
// All lanes call each of these together and have synchronised when it returns (read_one apart). Environments share nothing
// that is written, so no result depends on the block, the thread count, the chunk or the order. All that an environment leaves
// behind is in its rows of the buffers below.
#pragma once
#include "episodes.cuh"

// Every field is eight bytes; the Python side reads names and order from this text, then those of Tables.
struct Batch {
    real* state;            // [B, STATE]
    float* obs;             // [B, OBS]
    float* reward;          // [B, REWARDS]
    u8* terminated;         // [B]
    u8* truncated;          // [B]
    u8* ended;              // [B] either flag
    u8* is_reset;           // [B] NEXT_STEP: this step was a reset
    int* elapsed;           // [B] steps of the running episode
    u32* episode;           // [B] episodes since the seed
    int* scenario;          // [B] of the pool
    float* running_return;  // [B]
    float* final_obs;       // [B, OBS] of the last ended episode
    float* episode_return;  // [B]
    int* episode_length;    // [B]
    float* metrics;         // [B, METRICS] of the last step
    real* record;           // [B, RECORD] of the last step, where kept
    i64* totals;            // [3, B] episodes, steps in them, return in units of 2^-20
    double* extremes;       // [4, B] shortest, longest, lowest and highest return
    i64* clock;             // [B] batched steps since the seed
    u64* seeds;             // [1]
    i64 num_envs;           // B
    i64 first_index;        // of environment 0 in the noise counter
    i64 scenarios;          // of the pool
    Tables tables;
};

// The arguments of one call.
struct Call {
    const void* input;      // raw actions [B, RAW], integers [B, TARGETS], or a reset mask [B] (null: all)
    const float* shares;    // [B, SHARES] beside integers, null with raw actions
    float* actions;         // [K, B, RAW] random_actions writes
    i64 steps;              // K
    i64 fresh;              // reset: episode 0 instead of the next one
    i64 first;              // environment that this launch begins with
};

typedef Environment::Scratch Memory;
enum : int { QUADS = (Environment::RAW + 3) / 4 };
constexpr float LOWEST_ACTION = SIGNED ? -1.0f : 0.0f;

// ---- one environment --------------------------------------------------------------------------------------------------------

struct Episode {
    int t, scenario;
    u32 number;
    float total;  // return so far

    FN Place place() const { return {scenario, t}; }
};

FN void load(const Batch& b, i64 e, Memory& s, Episode& episode) {
    for (int n = lane(); n < Environment::STATE; n += LANES) s.state[n] = b.state[e * Environment::STATE + n];
    episode = {b.elapsed[e], b.scenario[e], b.episode[e], b.running_return[e]};
    sync();
}

FN void save(const Batch& b, i64 e, const Memory& s, const Episode& episode) {
    for (int n = lane(); n < Environment::STATE; n += LANES) b.state[e * Environment::STATE + n] = s.state[n];
    if (lane() == 0) {
        b.elapsed[e] = episode.t;
        b.scenario[e] = episode.scenario;
        b.episode[e] = episode.number;
        b.running_return[e] = episode.total;
    }
}

FN void open_episode(const Batch& b, i64 e, Memory& s, Episode& episode, u32 number, bool fresh) {
    u32 word[4] = {u32(b.first_index + e), number, 0, STREAM_RESET};
    philox(word[0], word[1], word[2], word[3], *b.seeds);
    episode = {0, Environment::FROZEN ? 0 : int(word[0] % u32(b.scenarios)), number, 0.0f};
    Environment::start(s, b.tables, fresh);
}

FN void observe(const Batch& b, i64 e, Memory& s, const Episode& episode, float* rows) {
    Environment::observe(s, b.tables, episode.place(), rows + e * Environment::OBS);
}

FN void count_episode(const Batch& b, i64 e, int length, float value) {
    const i64 n = b.num_envs;
    b.totals[e] += 1;
    b.totals[n + e] += length;
    b.totals[2 * n + e] += units_of(value);
    widen(b.extremes + e, n, length, length, value, value);
}

// One step with the action that has been read. `shown`: its outputs are written, as they are of the last of several steps.
FN void advance(const Batch& b, i64 e, Memory& s, Episode& episode, bool shown) {
    float reward[Environment::REWARDS];
    const bool terminated = Environment::step(
        s, b.tables, episode.place(), reward, b.metrics + e * Environment::METRICS, b.record + e * Environment::RECORD);
    episode.t += 1;
    for (int n = 0; n < Environment::REWARDS; n++) episode.total += reward[n];
    const bool truncated = episode.t >= LIMIT, ended = terminated | truncated;
    if (shown && lane() == 0) {
        for (int n = 0; n < Environment::REWARDS; n++) b.reward[e * Environment::REWARDS + n] = reward[n];
        b.terminated[e] = terminated;
        b.truncated[e] = truncated;
        b.ended[e] = ended;
    }
    if (ended) {  // of all lanes or of none
        if (shown) {
            observe(b, e, s, episode, b.final_obs);
            if (lane() == 0) {
                b.episode_return[e] = episode.total;
                b.episode_length[e] = episode.t;
            }
        }
        if (lane() == 0) count_episode(b, e, episode.t, episode.total);
        if (AUTORESET == SAME_STEP) open_episode(b, e, s, episode, episode.number + 1, false);
    }
    if (shown) observe(b, e, s, episode, b.obs);
}

// A step of an environment that has ended: it starts anew or stands still.
FN void stand(const Batch& b, i64 e, Memory& s) {
    Episode episode;
    load(b, e, s, episode);
    if (AUTORESET == NEXT_STEP) {
        open_episode(b, e, s, episode, episode.number + 1, false);
        observe(b, e, s, episode, b.obs);
        save(b, e, s, episode);
    }
    if (lane() == 0) {
        if (AUTORESET == NEXT_STEP) b.terminated[e] = b.truncated[e] = b.ended[e] = 0;
        for (int n = 0; n < Environment::REWARDS; n++) b.reward[e * Environment::REWARDS + n] = 0.0f;
        for (int n = 0; n < Environment::METRICS; n++) b.metrics[e * Environment::METRICS + n] = 0.0f;
    }
}

FN void step_one(const Batch& b, const Call& call, i64 e, Memory& s) {
    const bool inert = AUTORESET != SAME_STEP && b.ended[e];
    if (AUTORESET == NEXT_STEP && lane() == 0) b.is_reset[e] = inert;
    if (inert) {
        stand(b, e, s);
    } else {
        float* const cycles = b.metrics + (e + 1) * Environment::METRICS;  // its last two: of reading an action, of all
        Watch whole, reading;
        Episode episode;
        load(b, e, s, episode);
        reading.restart();
        if (call.shares) {
            const int* targets = static_cast<const int*>(call.input);
            Environment::read(s, targets + e * Environment::TARGETS, call.shares + e * Environment::SHARES);
        } else {
            Environment::read(s, static_cast<const float*>(call.input) + e * Environment::RAW);
        }
        reading.lap(cycles[-2]);
        advance(b, e, s, episode, true);
        save(b, e, s, episode);
        whole.lap(cycles[-1]);
    }
    if (lane() == 0) b.clock[e] += 1;
}

FN void reset_one(const Batch& b, const Call& call, i64 e, Memory& s) {
    const u8* mask = static_cast<const u8*>(call.input);
    if (mask && !mask[e]) return;  // of all lanes or of none
    Episode episode;
    load(b, e, s, episode);
    open_episode(b, e, s, episode, call.fresh ? 0 : episode.number + 1, call.fresh);
    if (lane() == 0) {
        b.terminated[e] = b.truncated[e] = b.ended[e] = 0;
        for (int n = 0; n < Environment::REWARDS; n++) b.reward[e * Environment::REWARDS + n] = 0.0f;
        for (int n = 0; n < Environment::METRICS; n++) b.metrics[e * Environment::METRICS + n] = 0.0f;
    }
    observe(b, e, s, episode, b.obs);
    save(b, e, s, episode);
}

// Observations of the present state, after a state was put in from outside.
FN void observe_one(const Batch& b, const Call&, i64 e, Memory& s) {
    Episode episode;
    load(b, e, s, episode);
    observe(b, e, s, episode, b.obs);
}

// ---- the random policy: number k of a raw action is word k % 4 of block k / 4, keyed by environment and clock ----------------

FN void random_words(const Batch& b, i64 e, i64 clock, int quad, u32* word) {
    word[0] = u32(b.first_index + e);
    word[1] = u32(quad);
    word[2] = u32(clock);
    word[3] = STREAM_RANDOM_POLICY;
    philox(word[0], word[1], word[2], word[3], *b.seeds);
}

#if LANE_WALK

FN void read_random(const Batch& b, i64 e, i64 clock, Memory& s) {
    for (int quad = lane(); quad < QUADS; quad += LANES) {
        bool read = false;
        for (int k = 0; k < 4; k++) read |= Environment::reads(4 * quad + k);
        if (!read) continue;
        u32 word[4];
        random_words(b, e, clock, quad, word);
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (Environment::reads(4 * quad + k))
                Environment::read_one(s, 4 * quad + k, uniform_in(word[k], LOWEST_ACTION, 1.0f));
    }
    sync();
}

FN void write_random(const Batch& b, i64 e, i64 clock, float* row) {
    for (int quad = lane(); quad < QUADS; quad += LANES) {
        u32 word[4];
        random_words(b, e, clock, quad, word);
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (4 * quad + k < Environment::RAW) row[4 * quad + k] = uniform_in(word[k], LOWEST_ACTION, 1.0f);
    }
}

#else

enum : int { QUADS_PADDED = padded_to(QUADS, 16) };

static STAGE void fill_random(const Batch& b, i64 e, i64 clock, float* row) {  // [4 * QUADS_PADDED]
    alignas(64) u32 word[4][QUADS_PADDED];
    for (int quad = 0; quad < QUADS_PADDED; quad++) {
        word[0][quad] = u32(b.first_index + e);
        word[1][quad] = u32(quad);
        word[2][quad] = u32(clock);
        word[3][quad] = STREAM_RANDOM_POLICY;
    }
    philox_many(word[0], word[1], word[2], word[3], QUADS_PADDED, *b.seeds);
    for (int quad = 0; quad < QUADS_PADDED; quad++)
        for (int k = 0; k < 4; k++) row[4 * quad + k] = uniform_in(word[k][quad], LOWEST_ACTION, 1.0f);
}

FN void read_random(const Batch& b, i64 e, i64 clock, Memory& s) {
    alignas(64) float row[4 * QUADS_PADDED];
    fill_random(b, e, clock, row);
    Environment::read(s, row);
}

FN void write_random(const Batch& b, i64 e, i64 clock, float* row) {
    alignas(64) float padded[4 * QUADS_PADDED];
    fill_random(b, e, clock, padded);
    memcpy(row, padded, Environment::RAW * sizeof(float));
}

#endif

// The random policy's actions for the next K steps; needs no memory that lanes share.
FN void random_one(const Batch& b, const Call& call, i64 e) {
    const i64 clock = b.clock[e];
    for (i64 k = 0; k < call.steps; k++)
        write_random(b, e, clock + k, call.actions + (k * b.num_envs + e) * Environment::RAW);
}

// K steps of the random policy with the state in shared memory.
FN void rollout_one(const Batch& b, const Call& call, i64 e, Memory& s) {
    const i64 clock = b.clock[e];
    Episode episode;
    load(b, e, s, episode);
    for (i64 k = 0; k < call.steps; k++) {
        read_random(b, e, clock + k, s);
        advance(b, e, s, episode, k == call.steps - 1);
    }
    save(b, e, s, episode);
    if (lane() == 0) b.clock[e] = clock + call.steps;
}

// ---- kernels ----------------------------------------------------------------------------------------------------------------

#ifdef __CUDACC__

extern "C" __constant__ const i64 scratch_bytes = sizeof(Memory);  // of shared memory that a launch asks for

// In float32 a multiprocessor holds at least 384 lanes, so that each may have 168 registers; in float64 registers come first.
#define KERNEL(NAME, FUNCTION) \
    extern "C" __global__ void __launch_bounds__(LANES, sizeof(real) == 4 ? 384 / LANES : 1) NAME(const Batch b, const Call call) { \
        extern __shared__ __align__(64) uint4 shared[]; \
        for (int n = lane(); n < int(sizeof(Memory) / sizeof(uint4)); n += LANES) shared[n] = make_uint4(0, 0, 0, 0); \
        sync(); \
        FUNCTION(b, call, call.first + blockIdx.x, *reinterpret_cast<Memory*>(shared)); \
    }

extern "C" __global__ void __launch_bounds__(LANES) random_actions(const Batch b, const Call call) {
    random_one(b, call, call.first + blockIdx.x);
}

#else

// Each handles the environments first .. last-1 of a launch, so that a pool can share them out.
#define KERNEL(NAME, FUNCTION) \
    extern "C" __attribute__((visibility("default"))) void NAME(const Batch* b, const Call* call, i64 first, i64 last) { \
        static thread_local Memory memory; \
        for (i64 e = call->first + first; e < call->first + last; e++) FUNCTION(*b, *call, e, memory); \
    }

// The first of `count` numbers that lies outside the space, or -1.
template <typename Number>
static i64 first_outside(const Number* numbers, i64 count, Number low, Number high) {
    for (i64 begin = 0; begin < count; begin += 4096) {
        const i64 end = begin + 4096 < count ? begin + 4096 : count;
        u32 any = 0;
        for (i64 k = begin; k < end; k++) any |= !(numbers[k] >= low && numbers[k] <= high);
        for (i64 k = begin; any && k < end; k++)
            if (!(numbers[k] >= low && numbers[k] <= high)) return k;
    }
    return -1;
}
extern "C" __attribute__((visibility("default"))) i64 outside_float32(const float* x, i64 count, float low, float high) {
    return first_outside(x, count, low, high);
}
extern "C" __attribute__((visibility("default"))) i64 outside_int32(const int* x, i64 count, int low, int high) {
    return first_outside(x, count, low, high);
}
extern "C" __attribute__((visibility("default"))) i64 scratch_bytes() { return sizeof(Memory); }

#endif

static_assert(sizeof(Memory) % 16 == 0, "shared memory is cleared sixteen bytes at a time");

KERNEL(step, step_one)
KERNEL(reset, reset_one)
KERNEL(observe, observe_one)
#ifndef __CUDACC__
FN void random_one(const Batch& b, const Call& call, i64 e, Memory&) { random_one(b, call, e); }
KERNEL(random_actions, random_one)
#endif
#if AUTORESET == 1
KERNEL(rollout_random, rollout_one)
#endif
