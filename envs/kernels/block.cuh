// The batched environment around one Environment that is too large for a thread: a block per environment on the GPU, and on
// the CPU a run of environments per thread. batch.cuh is its sibling for small states.
//
// kernel.cuh gives `struct Tables` (pointers to what a pool of scenarios holds, shared by all environments) and
//
//   struct Environment {
//       enum { STATE, OBS, REWARDS, METRICS, RECORD, RAW };      lengths of one environment's rows; RAW: of a raw action
//       struct Scratch { real state[STATE]; ... };               shared memory of a block; zero when a kernel begins
//       static void start(Scratch&, const Tables&, int scenario, bool fresh);     the state of an episode's first slot
//       static void read(Scratch&, Place, const float* raw);     decodes a raw action [RAW],
//       static void read_one(Scratch&, Place, int k, float);     one number of it,
//       static void read_integers(Scratch&, Place, const int*, const float*);     or integers and shares
//       static bool step(Scratch&, Place, float* rewards, float* metrics, real* record);   whether it terminated
//       static void observe(const Scratch&, Place, float* row);
//   };
//
// Each is called by all lanes. Lanes may read the scratch on entry and have synchronised on return. A Place says which
// scenario and slot an environment is in. Environments share nothing that is written, so no result depends on the block, the
// thread count, the chunk or the order. Everything an environment leaves behind is its rows of the buffers below.
#pragma once

enum AutoresetMode { NEXT_STEP = 0, SAME_STEP = 1, DISABLED = 2 };

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
    u64* seed;              // [1]
    i64 num_envs;           // B
    i64 first_index;        // of environment 0 in the noise counter
    i64 scenarios;          // of the pool
    Tables tables;
};

// The arguments of one call.
struct Call {
    const void* input;      // raw actions [B, RAW], integers [B, ..], or a reset mask [B] (null: all)
    const float* shares;    // [B, ..] beside integers
    float* actions;         // [K, B, RAW] random_actions writes
    i64 steps;              // K
    i64 fresh;              // reset: episode 0 instead of the next one
    i64 first;              // environment that this launch begins with
};
