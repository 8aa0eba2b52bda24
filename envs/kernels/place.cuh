// What an environment's physics is given besides its state, and what a step gives back.
#pragma once
#include "philox.cuh"

struct Tables;  // what scenarios hold: of kernel.cuh, where its port has any

// Agents that have rows of their own in observations, rewards and flags: all, or one for all.
enum : int { AGENT_ROWS = JOINT ? 1 : AGENTS };

// Where an environment is, and what keys its noise.
struct Place {
    const Tables& tables;
    const real* bounds;  // [BOUNDS] of reset
    i64 environment;     // of the batch: rows of tables [B, ...]
    int scenario;        // of the pool: rows of tables [scenarios, ...]
    int t;               // steps of the episode so far
    u32 index, episode;  // of the environment and its episode, in the noise counter
    u64 key;             // the seed
    u64 active;          // bit a: agent a plays

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
};
