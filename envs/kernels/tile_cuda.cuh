// The GPU form of a tile: one thread per environment. A block holds one tile; one that steps, or whose policy is an MLP, may hold several.
#pragma once

#ifndef LONG_STEP
#define LONG_STEP 0
#endif
enum { BLOCK = 256, STEP_BLOCK = LONG_STEP == 3 ? 128 : 256 };  // threads at most
// Blocks to a multiprocessor, and so registers to a thread, as many as leave none spilled: in float32 48 for a step, which waits
// for memory, and 80 for a roll-out; where the physics is long (LONG_STEP 1, which kernel.cuh may define) 64 and 128, with noise in
// a step besides (2) 128 for both, where many numbers live through it (3) 168 for a step, and for a roll-out as many as there are.
// Before sm_80 a multiprocessor holds fewer threads than that.
#define BOUNDS(THREADS, BLOCKS) \
    __launch_bounds__(THREADS, HIDDEN || sizeof(real) == 8 || __CUDA_ARCH__ < 800 ? 1 : (BLOCKS))
#define KERNEL extern "C" __global__ void BOUNDS(HIDDEN ? int(BLOCK) : TILE, TILE < 64 || LONG_STEP == 3 ? 1 : (LONG_STEP ? 512 : 768) / TILE)
#define STEP extern "C" __global__ void BOUNDS(STEP_BLOCK, LONG_STEP == 3 ? 3 : LONG_STEP == 2 ? 2 : LONG_STEP ? 4 : 5)

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

// Adds the episodes of a block's threads to a tile's totals: within each warp, then warp by warp, always in the same order.
FN void add_to_tile(const Batch& b, i64 tile, Episodes episodes) {
    __shared__ alignas(Episodes) unsigned char storage[sizeof(Episodes) * (BLOCK / 32)];
    Episodes* of_warp = reinterpret_cast<Episodes*>(storage);
    if (!__syncthreads_or(episodes.count != 0)) return;
    if (__any_sync(0xffffffffu, episodes.count != 0)) episodes = over_warp(episodes);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = episodes;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < blockDim.x / 32; warp++) episodes.merge(of_warp[warp]);
        episodes.store(b, tile);
    }
}

// Numbers of an environment that a step reads.
struct Before {
    State s;
    int length;
    float running;
};

FN Before before_step(const Batch& b, i64 i) {
    Before e;
    load(b, i, e.s);
    e.length = b.elapsed[i];
    e.running = RUNNING_RETURN ? b.running_return[i] : 0.0f;
    return e;
}

// The physics of a step and all that every step writes; whether the episode ended.
FN bool advance(const Batch& b, const Span& span, int lane, Action action, Before& e) {
    const i64 i = span.base + lane;
    Outcome out;
    Environment::step(e.s, action, at_step(b, span, lane, e.length), out);
    const float reward = out.reward[0];
    const bool terminated = out.terminated[0];
    const int length = e.length + 1;
    const bool truncated = length >= LIMIT || (OVER && out.over), ended = terminated | truncated;
    b.reward[i] = reward;
#if METRICS
#pragma unroll
    for (int n = 0; n < METRICS; n++) b.metrics[i * METRICS + n] = out.metrics[n];
#endif
    b.terminated[i] = terminated;
    b.truncated[i] = truncated;
    b.ended[i] = ended;
    b.elapsed[i] = length;
    if (RUNNING_RETURN) b.running_return[i] = e.running + reward;
    save(b, i, e.s);
    return ended;
}

FN void start_next(const Batch& b, const Span& span, int lane) {
    const i64 i = span.base + lane;
    const u32 episode = b.episode[i] + 1;
    State s;
    if (CARRIES) load(b, i, s);
    const Place at = first_state(b, span, lane, episode, s);
    b.episode[i] = episode;
    begin(b, at, s);
}

// A step of an environment that has ended: it starts anew or stands still.
FN void stand(const Batch& b, const Span& span, int lane) {
    const i64 i = span.base + lane;
    b.reward[i] = 0.0f;
    clear_metrics(b, i);
    if (AUTORESET != NEXT_STEP) return;
    b.terminated[i] = b.truncated[i] = b.ended[i] = 0;
    start_next(b, span, lane);
}

FN void step_one(const Batch& b, const Span& span, int lane, Action action, Episodes& episodes) {
    const i64 i = span.base + lane;
    const bool inert = AUTORESET != SAME_STEP && b.ended[i];
    if (AUTORESET == NEXT_STEP) b.is_reset[i] = inert;
    if (inert) return stand(b, span, lane);
    Before e = before_step(b, i);
    const bool ended = advance(b, span, lane, action, e);
    const Place at = at_step(b, span, lane, e.length + 1);
    if (ended) finish_episode(b, at, e.s, episodes);
    if (ended && AUTORESET == SAME_STEP) start_next(b, span, lane);
    else if (!VIEW) observe(e.s, at, b.obs + i * OBS);
}

typedef const float* Source;
// An observation that ends with a row of a table: the numbers before it, and where that is.
struct Row {
    float head[HEAD];
    Source tail = nullptr;  // null: nothing is to be written
};

FN void observe_apart(const State& s, const Place& at, Row& own) {
#if TAIL
    Environment::observe(s, at, own.head);
    own.tail = Environment::tail(s, at);
#endif
}

// Each warp writes the rows of its lanes one after the other, so that neighbours write neighbours.
FN void write_rows(const Row& own, float* row) {
#if TAIL
    enum { PITCH = HEAD | 1, ROUNDS = (OBS + 31) / 32 };  // odd, so that 32 heads lie in 32 banks
    __shared__ float heads[STEP_BLOCK * PITCH];
    __shared__ Source tails[STEP_BLOCK];
    const int warp = threadIdx.x & ~31, first = threadIdx.x % 32;
    float* const block = row - i64(first) * OBS;
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
            if (first + 32 * n < OBS) block[k * OBS + first + 32 * n] = number[n];
    }
#endif
}

// An episode ends in few lanes but in most warps, and a warp takes as long as any of its lanes. COMPACT gathers what has
// ended, so that the block's first warp alone does what follows an end. The older form is here to be compared on a GPU.
#ifndef COMPACT
#define COMPACT 1
#endif
template <typename Given>
FN void step_block(const Batch& b, const Call& call) {
    const Thread<true> at(b);
    const Given* actions = static_cast<const Given*>(call.input);
    Episodes episodes;
    if (COMPACT && AUTORESET == SAME_STEP) {
        __shared__ u16 gathered[STEP_BLOCK];
        __shared__ int count;
        Before e;
        Action action;
        if (threadIdx.x == 0) count = 0;
        at.add_to_clock(b, 1);
        if (at.live) {
            e = before_step(b, at.i);
            action = action_of(actions, at.i);
        }
        __syncthreads();  // all loads are on their way before the first is waited for
        Row own;
        if (at.live) {
            if (advance(b, at.span, at.lane, action, e)) {
                gathered[atomicAdd(&count, 1)] = u16(threadIdx.x);
            } else if (!VIEW) {
                const Place here = at_step(b, at.span, at.lane, e.length + 1);
                if (TAIL) observe_apart(e.s, here, own);
                else observe(e.s, here, b.obs + at.i * OBS);
            }
        }
        __syncthreads();
        write_rows(own, b.obs + at.i * OBS);
        const int ended = count;
        if (threadIdx.x >= 32 || ended == 0) return;
#pragma unroll 1
        for (int k = threadIdx.x; k < ended; k += 32) {  // reads before writes, so that no read waits for another
            const int lane = gathered[k] % TILE;
            const Span span = span_of(b, at.first + gathered[k] / TILE);
            const i64 i = span.base + lane;
            const u32 episode = b.episode[i] + 1;
            const Place last = at_step(b, span, lane, b.elapsed[i]);
            State next;
            load(b, i, e.s);
            if (CARRIES) next = e.s;
            const Place first = first_state(b, span, lane, episode, next);
            finish_episode(b, last, e.s, episodes);
            b.episode[i] = episode;
            begin(b, first, next);
        }
        episodes = over_warp(episodes);
        if (threadIdx.x == 0) episodes.store(b, at.first);
    } else {
        if (at.live) step_one(b, at.span, at.lane, action_of(actions, at.i), episodes);
        at.add_to_clock(b, 1);
        add_to_tile(b, at.first, episodes);
    }
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
