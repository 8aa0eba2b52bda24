// The batched environment around one Environment, written once for every environment and both compilers.
//
// B environments form groups of equal size, one seed each; a group is cut into tiles of at most TILE environments. A tile is one
// call's worth of vector loops on the CPU, and on the GPU a thread block, or a part of one, with a thread per environment. What
// ends in a block may be counted in any of its tiles; else tiles share nothing, so no result depends on the block, the thread
// count or the order.
#pragma once
#include "episodes.cuh"

#if CONTINUOUS
typedef real Action;   // what Environment::step takes: one number, meant to lie in LOW .. HIGH
typedef float Chosen;  // what a policy chooses
typedef float Stored;  // how a trajectory keeps it
enum { SCORES = 1 };   // outputs of a policy
#else
typedef int Action;    // 0 .. ACTIONS - 1
typedef int Chosen;
typedef u8 Stored;
enum { SCORES = Environment::ACTIONS };
#endif

// Every field is eight bytes; the Python side reads names and order from this text.
struct Batch {
    real* state;           // [STATE, B]
    float* obs;            // [B, OBS]
    float* reward;         // [B]
    u8* terminated;        // [B]
    u8* truncated;         // [B]
    u8* ended;             // [B] either flag
    u8* is_reset;          // [B] NEXT_STEP: this step was a reset
    ELAPSED* elapsed;      // [B] steps of the running episode
    u32* episode;          // [B] episodes since the seed
    float* running_return; // [B] where it does not follow from the length
    float* final_obs;      // [B, OBS] of the last ended episode
    float* episode_return; // [B]
    int* episode_length;   // [B]
    i64* totals;           // [3, tiles] episodes, steps in them, return in units of 2^-20: integers, whose sum over tiles has no order
    double* extremes;      // [4, tiles] shortest, longest, lowest and highest return
    i64* clock;            // [tiles] batched steps since the seed
    real* bounds;          // [BOUNDS] reset box
    u64* seeds;            // [groups]
    i64 num_envs;          // B
    i64 group_size;        // B / groups
    i64 tiles_per_group;
    i64 first_index;       // of environment 0 of each group, in the noise counter
    i64 tiles;
};

// The arguments of one call.
struct Call {
    const void* input;  // actions [B], or a reset mask [B] (null: all)
    i64 steps;          // K
    i64 fresh;          // reset: episode 0 instead of the next one
    i64 default_bounds; // no episode is shorter than FETCH_EVERY
    const float* weights; // linear policy [SCORES, OBS]; MLP: all of its numbers, as in mlp.cuh
    const float* bias;    // [SCORES]
    i64 greedy;         // MLP: the likeliest action instead of a sample
    Stored* actions;    // [K, B]
    float* obs;         // [K, B, OBS]
    u16* obs_bfloat16;  // the same, where the policy's observations are kept in that type
    float* reward;      // [K, B]
    float* log_prob;    // [K, B] MLP
    float* value;       // [K + 1, B] MLP with a critic
    float* bootstrap;   // [K, B] value of the last observation of an episode that was cut off, else 0
    u8* terminated;     // [K, B]
    u8* truncated;      // [K, B]
};

enum { STATE = Environment::STATE, OBS = Environment::OBS, WORDS = 4 };
enum { FETCH_EVERY = 8 };  // steps between fetches of reset numbers
enum Policy { RANDOM, LINEAR, MLP };
constexpr float LARGEST = 3.402823466e38f;

// ---- one environment --------------------------------------------------------------------------------------------------------

struct Span {  // of one tile
    i64 base;   // first environment
    int count;
    u32 index;  // of the first environment in the noise counter
    u64 key;
};

FN Span span_of(const Batch& b, i64 tile) {
    const u32 per_group = u32(b.tiles_per_group);  // B < 2^31, and so is whatever counts tiles
    u32 group = 0, begin = u32(tile);
    if (per_group != u32(b.tiles)) {  // a division is 20 instructions of a GPU, so one group goes without
        group = begin / per_group;
        begin -= group * per_group;
    }
    begin *= TILE;
    const u32 size = u32(b.group_size), rest = size - begin;
    return {i64(group * size + begin), int(rest < TILE ? rest : TILE), u32(b.first_index) + begin, b.seeds[group]};
}

// A tile's sum over the episodes that ended in it. Where the return is so much per step, it follows from the lengths.
struct Episodes {
    static constexpr int PER_STEP = Environment::RETURN_PER_STEP;
    i64 count = 0, steps = 0, returns = 0;
    int shortest = 0x7fffffff, longest = 0;
    float lowest = LARGEST, highest = -LARGEST;

    FN void add(int length, float value) {
        count += 1;
        steps += length;
        shortest = length < shortest ? length : shortest;
        longest = length > longest ? length : longest;
        if (PER_STEP != 0) return;
        returns += units_of(value);
        lowest = value < lowest ? value : lowest;
        highest = value > highest ? value : highest;
    }
    FN void merge(const Episodes& e) {
        count += e.count;
        steps += e.steps;
        shortest = e.shortest < shortest ? e.shortest : shortest;
        longest = e.longest > longest ? e.longest : longest;
        if (PER_STEP != 0) return;
        returns += e.returns;
        lowest = e.lowest < lowest ? e.lowest : lowest;
        highest = e.highest > highest ? e.highest : highest;
    }
    FN void store(const Batch& b, i64 tile) const {
        const i64 n = b.tiles;
        i64* total = b.totals + tile;
        double* extreme = b.extremes + tile;
        total[0] += count;
        total[n] += steps;
        total[2 * n] += PER_STEP == 0 ? returns : PER_STEP * steps * RETURN_UNIT;
        const float of_shortest = float(PER_STEP * shortest), of_longest = float(PER_STEP * longest);
        const float least = PER_STEP == 0 ? lowest : PER_STEP > 0 ? of_shortest : of_longest;
        const float most = PER_STEP == 0 ? highest : PER_STEP > 0 ? of_longest : of_shortest;
        widen(extreme, n, shortest, longest, least, most);
    }
};

FN void load(const Batch& b, i64 i, real* s) {
#pragma unroll
    for (int j = 0; j < STATE; j++) s[j] = b.state[j * b.num_envs + i];
}

FN void save(const Batch& b, i64 i, const real* s) {
#pragma unroll
    for (int j = 0; j < STATE; j++) b.state[j * b.num_envs + i] = s[j];
}

FN void write_row(float* row, const float* obs) {
#ifdef __CUDACC__  // the widest stores that rows are aligned for
    if (OBS % 4 == 0) {
#pragma unroll
        for (int j = 0; j < OBS; j += 4)
            *reinterpret_cast<float4*>(row + j) = make_float4(obs[j], obs[(j + 1) % OBS], obs[(j + 2) % OBS], obs[(j + 3) % OBS]);
        return;
    }
    if (OBS % 2 == 0) {
#pragma unroll
        for (int j = 0; j < OBS; j += 2) *reinterpret_cast<float2*>(row + j) = make_float2(obs[j], obs[(j + 1) % OBS]);
        return;
    }
#endif
#pragma unroll
    for (int j = 0; j < OBS; j++) row[j] = obs[j];
}

FN void observe(const real* s, float* row) {
    float obs[OBS];
    Environment::observe(s, obs);
    write_row(row, obs);
}

// What an unchecked action acts as: the nearest one inside a discrete space; of a continuous one any number, and NaN as 0.
template <typename Given>
FN Action admitted(Given action) {
#if CONTINUOUS
    return action == action ? Action(action) : Action(0);
#else
    return action <= Given(0) ? 0 : action >= Given(Environment::ACTIONS - 1) ? Environment::ACTIONS - 1 : int(action);
#endif
}

template <typename Given>
FN bool outside(Given action) {
#if CONTINUOUS
    return !(action >= Given(Environment::LOW) && action <= Given(Environment::HIGH));
#else
    return action < Given(0) || action >= Given(Environment::ACTIONS);
#endif
}

// An episode begins in a state.
FN void begin(const Batch& b, i64 i, const real* s) {
    save(b, i, s);
    if (!VIEW) observe(s, b.obs + i * OBS);
    b.elapsed[i] = 0;
    if (RUNNING_RETURN) b.running_return[i] = 0.0f;
}

// Rewards are summed only where the return does not follow from the length.
FN float return_of(float running, int length, bool terminated) {
#if RUNNING_RETURN
    return running;
#else
    return Environment::episode_return(length, terminated);
#endif
}

// Writes the info rows of the episode that ended in state s.
FN void finish_episode(const Batch& b, i64 i, const real* s, Episodes& episodes) {
    const int length = b.elapsed[i];
    const float value = return_of(RUNNING_RETURN ? b.running_return[i] : 0.0f, length, b.terminated[i]);
    observe(s, b.final_obs + i * OBS);
    b.episode_return[i] = value;
    b.episode_length[i] = length;
    episodes.add(length, value);
}

// The documented random policy: a Philox block of four words holds PER_WORD actions in each, lowest bits first.
#if CONTINUOUS
enum { PER_WORD = 1 };
#else
enum { PER_WORD = Environment::ACTIONS == 2 ? 32 : 2 };
#endif
enum { PER_BLOCK = 4 * PER_WORD };

FN int word_of_block(i64 t) { return int(t / PER_WORD & 3); }

FN Chosen random_action(u32 word, i64 t) {
#if CONTINUOUS
    return uniform_in(word, float(Environment::LOW), float(Environment::HIGH));
#else
    if (Environment::ACTIONS == 2) return int((word >> (t & 31)) & 1);
    return int((Environment::ACTIONS * ((word >> (t & 1 ? 16 : 0)) & 0xffff)) >> 16);
#endif
}

// The highest of the scores, the lowest such action first; or the one score, clipped to the space.
FN Chosen best_action(const float* scores) {
#if CONTINUOUS
    const float low = float(Environment::LOW), high = float(Environment::HIGH);
    return scores[0] < low ? low : scores[0] > high ? high : scores[0];
#else
    int best = 0;
    float highest = scores[0];
#pragma unroll
    for (int a = 1; a < SCORES; a++) {
        best = scores[a] > highest ? a : best;
        highest = scores[a] > highest ? scores[a] : highest;
    }
    return best;
#endif
}

// What the environment gets: a sample may lie outside the space, and then acts as the nearest number inside.
FN Chosen taken(Chosen action) {
#if CONTINUOUS
    return best_action(&action);
#else
    return action;
#endif
}

FN Chosen linear_action(const float* obs, const float* weights, const float* bias) {
    float scores[SCORES];
#pragma unroll
    for (int a = 0; a < SCORES; a++) {
        scores[a] = bias[a];
#pragma unroll
        for (int j = 0; j < OBS; j++) scores[a] = fused(weights[a * OBS + j], obs[j], scores[a]);
    }
    return best_action(scores);
}

// An observation as a trajectory keeps it, and so as the policy sees it.
FN float kept(float obs, bool narrow) { return narrow ? from_bfloat16(bfloat16(obs)) : obs; }

#if HIDDEN
#include "mlp.cuh"
#endif
#ifdef __CUDACC__
#include "batch_cuda.cuh"
#else
#include "batch_cpu.cuh"
#endif
