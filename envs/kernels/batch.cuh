// The batched environment around one Environment, written once for every environment and both compilers.
//
// B environments form groups of equal size, one seed each; a group is cut into tiles of at most TILE environments. A tile is a
// thread block on the GPU (one thread per environment) and one call's worth of vector loops on the CPU. Tiles share nothing, so
// no result depends on the block, the thread count or the order.
#pragma once

enum AutoresetMode { NEXT_STEP = 0, SAME_STEP = 1, DISABLED = 2 };

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
    i64* totals;           // [3, tiles] episodes, steps in them, return in units of 2^-20: integers, so that order cannot matter
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
    const float* weights; // linear policy [ACTIONS, OBS]
    const float* bias;    // [ACTIONS]
    u8* actions;        // [K, B]
    float* obs;         // [K, B, OBS]
    float* reward;      // [K, B]
    u8* terminated;     // [K, B]
    u8* truncated;      // [K, B]
};

enum { STATE = Environment::STATE, OBS = Environment::OBS, WORDS = 4, RETURN_UNIT = 1 << 20 };
enum { FETCH_EVERY = 8, BITS = 128 };  // steps between fetches of reset numbers; random actions in one Philox block
enum Policy { RANDOM, LINEAR };
constexpr float LARGEST = 3.402823466e38f;

// ---- one environment --------------------------------------------------------------------------------------------------------

struct Span {  // of one tile
    i64 base;   // first environment
    int count;
    u32 index;  // of the first environment in the noise counter
    u64 key;
};

FN Span span_of(const Batch& b, i64 tile) {
    const i64 group = tile / b.tiles_per_group, begin = (tile - group * b.tiles_per_group) * TILE, rest = b.group_size - begin;
    return {group * b.group_size + begin, int(rest < TILE ? rest : TILE), u32(b.first_index + begin), b.seeds[group]};
}

// A tile's sum over the episodes that ended in it.
struct Episodes {
    i64 count = 0, steps = 0, returns = 0;
    int shortest = 0x7fffffff, longest = 0;
    float lowest = LARGEST, highest = -LARGEST;

    FN void add(int length, float value) {
        count += 1;
        steps += length;
        returns += llrint(double(value) * RETURN_UNIT);
        shortest = length < shortest ? length : shortest;
        longest = length > longest ? length : longest;
        lowest = value < lowest ? value : lowest;
        highest = value > highest ? value : highest;
    }
    FN void merge(const Episodes& e) {
        count += e.count;
        steps += e.steps;
        returns += e.returns;
        shortest = e.shortest < shortest ? e.shortest : shortest;
        longest = e.longest > longest ? e.longest : longest;
        lowest = e.lowest < lowest ? e.lowest : lowest;
        highest = e.highest > highest ? e.highest : highest;
    }
    FN void store(const Batch& b, i64 tile) const {
        i64* total = b.totals + tile;
        double* extreme = b.extremes + tile;
        const i64 n = b.tiles;
        total[0] += count;
        total[n] += steps;
        total[2 * n] += returns;
        extreme[0] = shortest < extreme[0] ? shortest : extreme[0];
        extreme[n] = longest > extreme[n] ? longest : extreme[n];
        extreme[2 * n] = lowest < extreme[2 * n] ? lowest : extreme[2 * n];
        extreme[3 * n] = highest > extreme[3 * n] ? highest : extreme[3 * n];
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
#ifdef __CUDACC__
    if (OBS % 4 == 0) {
#pragma unroll
        for (int j = 0; j < OBS; j += 4)
            *reinterpret_cast<float4*>(row + j) = make_float4(obs[j], obs[(j + 1) % OBS], obs[(j + 2) % OBS], obs[(j + 3) % OBS]);
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

// An action outside the space acts as the nearest one inside.
template <typename Action>
FN int nearest(Action action) {
    return action <= Action(0) ? 0 : action >= Action(Environment::ACTIONS - 1) ? Environment::ACTIONS - 1 : int(action);
}

FN void start_episode(const Batch& b, i64 i, const u32* words) {
    real s[STATE];
    Environment::reset(s, words, b.bounds);
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

// The documented random policy: bit t mod 128 of Philox block t div 128, word first.
FN int random_action(const u32* words, i64 t) {
    const u32 low = t & 32 ? words[1] : words[0], high = t & 32 ? words[3] : words[2];  // selects: registers cannot be indexed
    return ((t & 64 ? high : low) >> (t & 31)) & 1;
}

FN int linear_action(const float* obs, const float* weights, const float* bias) {
    int best = 0;
    float highest = 0.0f;
#pragma unroll
    for (int a = 0; a < Environment::ACTIONS; a++) {
        float score = bias[a];
#pragma unroll
        for (int j = 0; j < OBS; j++) score = fused(weights[a * OBS + j], obs[j], score);
        best = a == 0 ? 0 : score > highest ? a : best;
        highest = a == 0 || score > highest ? score : highest;
    }
    return best;
}

#ifdef __CUDACC__
#include "batch_cuda.cuh"
#else
#include "batch_cpu.cuh"
#endif
