// Inputs of an environment's physics besides its state, and the outcome of a step.
#pragma once
#include "philox.cuh"

struct Tables;  // what scenarios hold: of kernel.cuh, where its port has any

// Agents that have rows of their own in observations, rewards and flags: all, or one for all.
enum : int { AGENT_ROWS = JOINT ? 1 : AGENTS };

// Place of an environment, and the key of its noise.
struct Place {
    const Tables& tables;
    const real* bounds;  // [BOUNDS] of reset
    i64 environment;     // of the batch: rows of tables [B, ...]
    int scenario;        // of the pool: rows of tables [scenarios, ...]
    int t;               // steps of the episode so far
    u32 index, episode;  // of the environment and its episode, in the noise counter
    u64 key;             // the seed
    u64 active;          // bit a: agent a plays
    u64 shown = 0;       // in an observation: agents that observe, who played the step that the state comes from, or begin
    i64 clock = 0;       // of several lanes: batched steps since the seed, of which this one is the last

    FN bool plays(int agent) const { return active >> agent & 1; }

    // Four random words. Streams 1 .. 2^31 - 1 are the environment's own; reset, step and observe take different ones, for
    // all of them may ask at the same t.
    FN void noise(u32 stream, u32* words) const {
        words[0] = index;
        words[1] = episode;
        words[2] = u32(t);
        words[3] = stream;
        philox(words[0], words[1], words[2], words[3], key);
    }
};

struct Outcome {
    float reward[AGENT_ROWS];
    bool terminated[AGENT_ROWS];
    bool over = false;  // the episode ends for all, which truncates those who still play; of one lane where kernel.cuh says OVER
#if SEVERAL_LANES
    u8* flags;          // [FLAGS] of the step, which it sets
    int* amounts;       // [AMOUNTS], likewise
#elif METRICS
    float metrics[METRICS];
#endif
};
