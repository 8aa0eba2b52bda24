// The GPU form of a tile: one thread per environment. A block holds one tile; one that steps, or whose policy is an MLP, may hold several.
#pragma once

#ifndef LONG_STEP
#define LONG_STEP 0
#endif
enum { BLOCK = 256, STEP_BLOCK = 128 };  // threads at most, of a block that steps: warps share nothing
// Blocks to a multiprocessor, and so registers to a thread, as many as leave none spilled: in float32 48 for a step, which waits
// for memory, and 80 for a roll-out; where the physics is long (LONG_STEP 1, which kernel.cuh may define) 64 and 128, with noise in
// a step besides (2) 128 for both, where many numbers live through it (3) 168 for a step, and for a roll-out as many as there are.
// Before sm_80 a multiprocessor holds fewer threads than that.
#define BOUNDS(THREADS, BLOCKS) \
    __launch_bounds__(THREADS, HIDDEN || sizeof(real) == 8 || __CUDA_ARCH__ < 800 ? 1 : (BLOCKS))
#define KERNEL extern "C" __global__ void BOUNDS(HIDDEN ? int(BLOCK) : TILE, TILE < 64 || LONG_STEP == 3 ? 1 : (LONG_STEP ? 512 : 768) / TILE)
#define STEP extern "C" __global__ void BOUNDS(STEP_BLOCK, LONG_STEP == 3 ? 3 : LONG_STEP == 2 ? 4 : LONG_STEP ? 8 : 10)

// Place of a thread in a block of one tile or of SEVERAL; every warp lies in one.
template <bool SEVERAL>
struct Thread {
    i64 first, tile;  // of the block, of the thread
    bool inside;      // the last block may have tiles to spare
    int lane;
    Span span;
    bool live;        // has an environment
    i64 i;

    FN Thread(const Batch& b)
        : first(SEVERAL ? i64(blockIdx.x) * (blockDim.x / TILE) : blockIdx.x), tile(SEVERAL ? first + threadIdx.x / TILE : first),
          inside(!SEVERAL || tile < b.tiles), lane(SEVERAL ? threadIdx.x % TILE : threadIdx.x),
          span(span_of(b, inside ? tile : first)), live(inside && lane < span.count), i(span.base + lane) {}
    FN i64 clock(const Batch& b) const { return b.clock[inside ? tile : first]; }
    FN void add_to_clock(const Batch& b, int steps) const {
        if (inside && lane == 0) add_to(b.clock + tile, steps);
    }
};

// The first state of an environment's episode of that number, and where that is; where it CARRIES, from that of the episode before.
FN Place first_state(const Batch& b, const Span& span, int lane, u32 episode, State& s) {
    u32 words[WORDS] = {span.index + lane, episode, 0, STREAM_RESET};
    philox(words[0], words[1], words[2], words[3], span.key);
    const Place at = first_place(b, span, lane, episode, words);
    Environment::reset(s, at, words);
    return at;
}

// The sum over a warp, in its first lane.
FN Episodes over_warp(Episodes episodes) {
    const unsigned all = 0xffffffffu;
#pragma unroll
    for (int distance = 16; distance; distance >>= 1) {
        Episodes other;
        other.count = __shfl_down_sync(all, episodes.count, distance);
        other.steps = __shfl_down_sync(all, episodes.steps, distance);
        other.returns = __shfl_down_sync(all, episodes.returns, distance);
        other.shortest = __shfl_down_sync(all, episodes.shortest, distance);
        other.longest = __shfl_down_sync(all, episodes.longest, distance);
        other.lowest = __shfl_down_sync(all, episodes.lowest, distance);
        other.highest = __shfl_down_sync(all, episodes.highest, distance);
        episodes.merge(other);
    }
    return episodes;
}

// Adds the episodes of a warp's threads to their tile's totals: a few by each thread for itself, more as one sum.
FN void add_to_tile(const Batch& b, i64 tile, const Episodes& episodes) {
    const unsigned ended = __ballot_sync(0xffffffffu, episodes.count != 0);
    if (__popc(ended) > 8) {
        const Episodes sum = over_warp(episodes);
        if (threadIdx.x % 32 == 0) sum.store(b, tile);
    } else if (episodes.count != 0) {
        episodes.store(b, tile);
    }
}

// Numbers of an environment that a step reads.
struct Before {
    State s;
    int length;
    float running;
};

// A load before this stays before it, and so is on its way while those after it are begun.
FN void stay(float& x) { asm volatile("" : "+f"(x)); }
FN void stay(double& x) { asm volatile("" : "+d"(x)); }

FN Before before_step(const Batch& b, i64 i) {
    Before e;
    e.length = b.elapsed[i];
    e.running = RUNNING_RETURN ? b.running_return[i] : 0.0f;
    load(b, i, e.s);
#pragma unroll
    for (int j = 0; j < REALS && LONG_STEP != 3; j++) stay(e.s.of[j]);  // of many numbers that would take registers
    return e;
}

// An observation that is not yet in its row: where it ends with a row of a table, where that is, and the numbers before it.
typedef const float* Source;
struct Row {
    float head[HEAD];
    Source tail = nullptr;  // null: nothing is to be written
};

// Writes an observation, or leaves it to `write_rows`.
FN void observe_into(const Batch& b, const State& s, const Place& at, Row& own) {
#if TAIL
    Environment::observe(s, at, own.head);
    own.tail = Environment::tail(s, at);
#else
    if (!VIEW) observe(s, at, b.obs + at.environment * OBS);
#endif
}

// Each warp writes the rows of its threads one after the other, so that neighbours write neighbours.
FN void write_rows(const Row& own, float* row) {
#if TAIL
    enum { PITCH = HEAD | 1, ROUNDS = (OBS + 31) / 32 };  // odd, so that 32 heads lie in 32 banks
    __shared__ float heads[(HIDDEN ? int(BLOCK) : int(STEP_BLOCK)) * PITCH];
    __shared__ Source tails[HIDDEN ? int(BLOCK) : int(STEP_BLOCK)];
    const int warp = threadIdx.x & ~31, first = threadIdx.x % 32;
    float* const rows = row - i64(first) * OBS;
#pragma unroll
    for (int j = 0; j < HEAD; j++) heads[threadIdx.x * PITCH + j] = own.head[j];
    tails[threadIdx.x] = own.tail;
    __syncwarp();
#pragma unroll 4
    for (int k = 0; k < 32; k++) {
        const Source tail = tails[warp + k];
        if (!tail) continue;
        float number[ROUNDS];
#pragma unroll
        for (int n = 0; n < ROUNDS; n++) {
            const int j = first + 32 * n;
            if (j < OBS) number[n] = j < HEAD ? heads[(warp + k) * PITCH + j] : tail[j - HEAD];
        }
#pragma unroll
        for (int n = 0; n < ROUNDS; n++)
            if (first + 32 * n < OBS) rows[k * OBS + first + 32 * n] = number[n];
    }
#endif
}

// The first state of an episode of that number, which is noted down.
FN Place begin_next(const Batch& b, const Span& span, int lane, u32 episode, State& s) {
    const i64 i = span.base + lane;
    const Place at = first_state(b, span, lane, episode, s);
    b.episode[i] = episode;
    if (SCENARIOS) b.scenario[i] = at.scenario;
    return at;
}

// A step of an environment that has ended: it starts anew or stands still.
FN void stand(const Batch& b, const Span& span, int lane, Row& own) {
    const i64 i = span.base + lane;
    b.reward[i] = 0.0f;
    clear_metrics(b, i);
    if (AUTORESET != NEXT_STEP) return;
    b.terminated[i] = b.truncated[i] = b.ended[i] = 0;
    b.elapsed[i] = 0;
    if (RUNNING_RETURN) b.running_return[i] = 0.0f;
    State s;
    if (CARRIES) load(b, i, s);
    const Place first = begin_next(b, span, lane, b.episode[i] + 1, s);
    save(b, i, s);
    observe_into(b, s, first, own);
}

// One step of one environment. Nothing that it writes is read again, so that no load waits for a store.
FN void step_one(const Batch& b, const Span& span, int lane, Action action, Episodes& episodes, Row& own) {
    const i64 i = span.base + lane;
    const bool inert = AUTORESET != SAME_STEP && b.ended[i];
    if (AUTORESET == NEXT_STEP) b.is_reset[i] = inert;
    if (inert) return stand(b, span, lane, own);
    Before e = before_step(b, i);
    const Place at = at_step(b, span, lane, e.length);
    u32 episode = at.episode;
    int scenario = at.scenario;
    Outcome out;
    Environment::step(e.s, action, at, out);
    const float reward = out.reward[0];
    const bool terminated = out.terminated[0];
    e.length += 1;
    e.running += reward;
    const bool truncated = e.length >= LIMIT || (OVER && out.over), ended = terminated | truncated;
    if (ended) episode = b.episode[i];  // on its way while all else is written
    b.reward[i] = reward;
#if METRICS
#pragma unroll
    for (int n = 0; n < METRICS; n++) b.metrics[i * METRICS + n] = out.metrics[n];
#endif
    b.terminated[i] = terminated;
    b.truncated[i] = truncated;
    b.ended[i] = ended;
    if (ended) {
        const Place last = place_of(b, span, lane, episode, scenario, e.length, 1);
        finish_episode(b, last, e.s, e.length, return_of(e.running, e.length, terminated), episodes);
        if (AUTORESET == SAME_STEP) {
            scenario = begin_next(b, span, lane, ++episode, e.s).scenario;
            e.length = 0;
            e.running = 0.0f;
        }
    }
    save(b, i, e.s);
    b.elapsed[i] = e.length;
    if (RUNNING_RETURN) b.running_return[i] = e.running;
    observe_into(b, e.s, place_of(b, span, lane, episode, scenario, e.length, 1), own);
}

template <typename Given>
FN void step_block(const Batch& b, const Call& call) {
    const Thread<true> at(b);
    Episodes episodes;
    Row own;
    at.add_to_clock(b, 1);
    if (at.live) step_one(b, at.span, at.lane, action_of(static_cast<const Given*>(call.input), at.i), episodes, own);
    write_rows(own, b.obs + at.i * OBS);
    add_to_tile(b, at.tile, episodes);
}

// The random policy of one environment, from step to step.
#if NUMBERS == 1
struct RandomPolicy {
    u32 words[4];
    u32 word;  // that has the step's action; of 32 actions shifted, so that it is the lowest bit

    FN RandomPolicy(const Span& span, int lane, i64 t) {
        fetch(span, lane, t);
        word = word_at(t);
        if (PER_WORD == 32) word >>= u32(t) % 32;
    }
    FN Chosen action(u32 t) const { return PER_WORD == 32 ? Chosen(word & 1) : random_action(word, t); }
    // Goes on to step clock + k from the one before.
    FN void go_on(const Span& span, int lane, i64 clock, int k) {
        const u32 t = u32(clock) + k;
        if (t % PER_BLOCK == 0) fetch(span, lane, clock + k);
        if (t % PER_WORD == 0) word = word_at(t);
        else if (PER_WORD == 32) word >>= 1;
    }

  private:
    FN void fetch(const Span& span, int lane, i64 t) {
        words[0] = span.index + lane;
        words[1] = 0;
        words[2] = u32(t / PER_BLOCK);
        words[3] = STREAM_RANDOM_POLICY;
        philox(words[0], words[1], words[2], words[3], span.key);
    }
    FN u32 word_at(u32 t) const {  // by selects: registers cannot be indexed
        const int at = word_of_block(t);
        return at & 2 ? (at & 1 ? words[3] : words[2]) : (at & 1 ? words[1] : words[0]);
    }
};
#else
struct RandomPolicy {
    const Span& span;
    int lane;

    FN RandomPolicy(const Span& span, int lane, i64) : span(span), lane(lane) {}
    FN Chosen action(u32 t) const { return random_action(span, lane, t); }
    FN void go_on(const Span&, int, i64, int) {}
};
#endif

#if HIDDEN == 0  // the module of an MLP has rollouts alone
#if CONTINUOUS
STEP step_float32(const Batch b, const Call call) { step_block<float>(b, call); }
STEP step_float64(const Batch b, const Call call) { step_block<double>(b, call); }
#else
STEP step_uint8(const Batch b, const Call call) { step_block<u8>(b, call); }
STEP step_int32(const Batch b, const Call call) { step_block<int>(b, call); }
STEP step_int64(const Batch b, const Call call) { step_block<i64>(b, call); }
#endif

KERNEL reset(const Batch b, const Call call) {
    const Span span = span_of(b, blockIdx.x);
    const u8* mask = static_cast<const u8*>(call.input);
    const i64 i = span.base + threadIdx.x;
    if (threadIdx.x >= span.count || (mask && !mask[i])) return;
    const u32 episode = call.fresh ? 0 : b.episode[i] + 1;
    State s;
    if (CARRIES) load(b, i, s);
    const Place at = first_state(b, span, threadIdx.x, episode, s);
    b.episode[i] = episode;
    b.terminated[i] = b.truncated[i] = b.ended[i] = 0;
    b.reward[i] = 0.0f;
    clear_metrics(b, i);
    begin(b, at, s);
}

// Observations of the present state, after a state was put in from outside.
KERNEL observe(const Batch b, const Call call) {
    const Span span = span_of(b, blockIdx.x);
    if (VIEW || threadIdx.x >= span.count) return;
    const i64 i = span.base + threadIdx.x;
    State s;
    load(b, i, s);
    observe(s, at_step(b, span, threadIdx.x, b.elapsed[i]), b.obs + i * OBS);
}

// The random policy's actions for the next K steps.
KERNEL random_actions(const Batch b, const Call call) {
    const Span span = span_of(b, blockIdx.x);
    if (threadIdx.x >= span.count) return;
    const i64 clock = b.clock[blockIdx.x];
    RandomPolicy policy(span, threadIdx.x, clock);
    Stored* actions = call.actions + (span.base + threadIdx.x) * NUMBERS;
    for (int k = 0; k < int(call.steps); actions += b.num_envs * NUMBERS) {
        store(actions, policy.action(u32(clock) + k));
        policy.go_on(span, threadIdx.x, clock, ++k);
    }
}
#endif

#if AUTORESET == 1
#include "rollout_cuda.cuh"
#endif
