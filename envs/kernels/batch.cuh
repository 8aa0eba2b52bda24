// Parts that every batch has, whether one thread holds an environment (tile.cuh) or several (block.cuh).
//
// B environments form groups of equal size, one seed each; a group is cut into tiles of at most TILE environments. Tiles share
// nothing that is written, so no result depends on the launch, the thread count or the order.
#pragma once
#include "place.cuh"

// Type of a policy's action as it is stored: [K, B, AGENTS, NUMBERS].
#if CONTINUOUS
typedef float Stored;
#elif SEVERAL_LANES  // of which the CPU's form makes one
typedef int Stored;
#else
typedef u8 Stored;
#endif

// Every field is eight bytes; the Python side reads names and order from this text, then those of Tables.
struct Batch {
    real* state;            // [REALS, B], of several lanes [B, REALS]; as are the next two
    double* doubles;
    int* integers;
    float* obs;             // [B, AGENT_ROWS, OBS]
    float* reward;          // [B, AGENT_ROWS]
    u8* terminated;         // [B, AGENT_ROWS]
    u8* truncated;          // [B, AGENT_ROWS]
    u8* active;             // [B, AGENTS] who plays on
    u8* ended;              // [B] the episode is over
    u8* is_reset;           // [B] NEXT_STEP: this step was a reset
    ELAPSED* elapsed;       // [B] steps of the running episode
    u32* episode;           // [B] episodes since the seed
    int* scenario;          // [B] of the pool
    float* running_return;  // [B] where it does not follow from the length
    float* final_obs;       // [B, AGENT_ROWS, OBS] of the last ended episode
    float* episode_return;  // [B] mean of the agents
    int* episode_length;    // [B]
    float* metrics;         // [B, METRICS] of the last step
    u8* flags;              // [B, FLAGS] of the last step
    int* amounts;           // [B, AMOUNTS] of the last step
    real* record;           // [B, RECORD] of the last step, where kept
    i64* totals;            // [3, tiles] episodes, steps in them, return in units of 2^-20: integers, whose sum over tiles has no order
    double* extremes;       // [4, tiles] shortest, longest, lowest and highest return
    i64* clock;             // [tiles] batched steps since the seed
    real* bounds;           // [BOUNDS] reset box
    u64* seeds;             // [groups]
    i64 num_envs;           // B
    i64 group_size;         // B / groups
    i64 tiles_per_group;
    i64 first_index;        // of environment 0 of each group, in the noise counter
    i64 tiles;
    i64 scenarios;          // of the pool
    Tables tables;
};

// The arguments of one call.
struct Call {
    const void* input;    // actions [B, AGENTS, NUMBERS], or a reset mask [B] (null: all)
    i64 steps;            // K
    i64 fresh;            // reset: episode 0 instead of the next one
    i64 first;            // environment that a launch of several lanes begins with,
    i64 end;              // and before which it ends
    i64 default_bounds;   // no episode is shorter than FETCH_EVERY
    const float* weights; // linear policy [SCORES, OBS]; MLP: all of its numbers, as in mlp.cuh
    const float* bias;    // [SCORES]
    i64 greedy;           // MLP: the likeliest action instead of a sample
    Stored* actions;      // [K, B, AGENTS, NUMBERS]
    float* obs;           // [K, B, OBS]
    u16* obs_bfloat16;    // the same, where the policy's observations are kept in that type
    float* reward;        // [K, B]
    float* log_prob;      // [K, B] MLP
    float* value;         // [K + 1, B] MLP with a critic
    float* bootstrap;     // [K, B] value of the last observation of an episode that was cut off, else 0
    u8* terminated;       // [K, B]
    u8* truncated;        // [K, B]
    Given given;          // an action in the environment's own form, where `input` is null
};

enum AutoresetMode { NEXT_STEP = 0, SAME_STEP = 1, DISABLED = 2 };
enum : int { RETURN_UNIT = 1 << 20 };  // sums of returns are integers of this many to one, so that order cannot matter

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

FN Place place_of(const Batch& b, const Span& span, int lane, u32 episode, int scenario, int t, u64 active) {
    return {b.tables, b.bounds, span.base + lane, scenario, t, span.index + lane, episode, span.key, active};
}

// The scenario of an episode, from the first of its reset's words.
FN int scenario_of(const Batch& b, u32 word) { return SCENARIOS ? int(word % u32(b.scenarios)) : 0; }

// A return in units of 1 / RETURN_UNIT; one that does not fit is cut off, and seen by the extremes.
FN i64 units_of(float value) {
    const float limit = 8796092497920.0f;  // the number below 2^43
    const float kept = value > -limit ? (value < limit ? value : limit) : -limit;
    return llrintf(kept * RETURN_UNIT);  // the product is exact
}

// A return as statistics take it: one that is no number is the largest, which has no place in a sum, so that there is no mean.
FN float counted(float value) { return value == value ? value : 3.402823466e38f; }

// What is added to, lowered or raised in memory, where nobody reads it in the same launch: a GPU queues it and waits for nothing.
FN void add_to(i64* sum, i64 value) {
#ifdef __CUDACC__
    atomicAdd(reinterpret_cast<u64*>(sum), u64(value));
#else
    *sum += value;
#endif
}
#ifdef __CUDACC__
// Doubles that are no NaN have the order of their bits: from 0 up as signed integers, below it as unsigned ones, backwards.
FN i64 ordered_bits(double value) { return __double_as_longlong(value + 0.0); }  // there is no -0
#endif
FN void lower_to(double* least, double value) {
#ifdef __CUDACC__
    const i64 bits = ordered_bits(value);
    if (bits >= 0) atomicMin(reinterpret_cast<i64*>(least), bits);
    else atomicMax(reinterpret_cast<u64*>(least), u64(bits));
#else
    *least = value < *least ? value : *least;
#endif
}
FN void raise_to(double* most, double value) {
#ifdef __CUDACC__
    const i64 bits = ordered_bits(value);
    if (bits >= 0) atomicMax(reinterpret_cast<i64*>(most), bits);
    else atomicMin(reinterpret_cast<u64*>(most), u64(bits));
#else
    *most = value > *most ? value : *most;
#endif
}

// Shortest, longest, lowest and highest of a column of `extremes` [4, n], by those of some episodes.
FN void widen(double* extreme, i64 n, int shortest, int longest, float lowest, float highest) {
    lower_to(extreme, shortest);
    raise_to(extreme + n, longest);
    if (lowest == lowest) lower_to(extreme + 2 * n, lowest);
    if (highest == highest) raise_to(extreme + 3 * n, highest);
}

// ---- actions: bounds of their numbers, and the random policy ----------------------------------------------------------------

// Lowest and highest of number k; of several choices 0 and the last.
FN float lowest_of(int k) {
    constexpr float low[] = {ACTION_LOW};
    return sizeof(low) == sizeof(float) ? low[0] : low[k];
}
FN float highest_of(int k) {
    constexpr float high[] = {ACTION_HIGH};
    return sizeof(high) == sizeof(float) ? high[0] : high[k];
}

template <typename X>
FN bool outside(X x, int k) {
    return !(x >= X(lowest_of(k)) && x <= X(highest_of(k)));
}

// Number k of an action drawn with a word: uniform in the box, or one of the choices.
FN Stored random_number(u32 word, int k) {
#if CONTINUOUS
    return uniform_in(word, lowest_of(k), highest_of(k));
#else
    return Stored((u64(word) * u32(highest_of(k) + 1.0f)) >> 32);
#endif
}

// Words of four of those numbers at a step of the clock, whose low half counts: number k is word k % 4 of block k / 4.
FN void random_words(u32 index, int quad, u32 clock, u64 key, u32* word) {
    word[0] = index;
    word[1] = u32(quad);
    word[2] = clock;
    word[3] = STREAM_RANDOM_POLICY;
    philox(word[0], word[1], word[2], word[3], key);
}

// ---- what a CPU exports beside kernels ----------------------------------------------------------------------------------------

#ifndef __CUDACC__
#define EXPORT extern "C" __attribute__((visibility("default")))

// The place of the first of `count` numbers of actions that lies outside the space, or -1.
template <typename X>
static i64 first_outside(const X* numbers, i64 count) {
    constexpr i64 AT_ONCE = 512 / NUMBERS * NUMBERS > 0 ? 512 / NUMBERS * NUMBERS : NUMBERS;
    for (i64 begin = 0; begin < count; begin += AT_ONCE) {
        const i64 end = begin + AT_ONCE < count ? begin + AT_ONCE : count;
        u32 any = 0;
        const X* const next_but_one = numbers + end + AT_ONCE;
        for (i64 i = 0; i < AT_ONCE; i += 64 / i64(sizeof(X))) __builtin_prefetch(next_but_one + i);
        VECTORISE
        for (i64 i = begin; i < end; i++) any |= outside(numbers[i], int(i % NUMBERS));
        for (i64 i = begin; any && i < end; i++)
            if (outside(numbers[i], int(i % NUMBERS))) return i;
    }
    return -1;
}
#endif
