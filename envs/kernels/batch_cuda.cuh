// The GPU form: one thread per environment, one block per tile; of a step, one block per tile or per several.
#pragma once

enum { STEP_BLOCK = 256 };  // threads at most
// Blocks to a multiprocessor, and so registers to a thread, as many as leave none spilled: in float32 48 for a step, which waits
// for memory, and 80 for a roll-out; where the physics is long (LONG_STEP, which kernel.cuh may define) 64 and 128.
#ifndef LONG_STEP
#define LONG_STEP 0
#endif
#define BOUNDS(THREADS, BLOCKS) __launch_bounds__(THREADS, HIDDEN || sizeof(real) == 8 ? 1 : (BLOCKS))
#define KERNEL extern "C" __global__ void BOUNDS(TILE, (LONG_STEP ? 512 : 768) / TILE)
#define STEP extern "C" __global__ void BOUNDS(STEP_BLOCK, LONG_STEP ? 4 : 5)

// The first state of an environment's episode of that number.
FN void first_state(const Batch& b, const Span& span, int lane, u32 episode, real* s) {
    u32 words[WORDS] = {span.index + lane, episode, 0, STREAM_RESET};
    philox(words[0], words[1], words[2], words[3], span.key);
    Environment::reset(s, words, b.bounds);
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
    __shared__ alignas(Episodes) unsigned char storage[sizeof(Episodes) * (STEP_BLOCK / 32)];
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

// What a step reads of an environment.
struct Before {
    real s[STATE];
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
template <typename Given>
FN bool advance(const Batch& b, i64 i, Given action, Before& e) {
    float reward;
    bool terminated;
    Environment::step(e.s, admitted(action), reward, terminated);
    const int length = e.length + 1;
    const bool truncated = length >= LIMIT, ended = terminated | truncated;
    b.reward[i] = reward;
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
    real s[STATE];
    first_state(b, span, lane, episode, s);
    b.episode[i] = episode;
    begin(b, i, s);
}

// A step of an environment that has ended: it starts anew or stands still.
FN void stand(const Batch& b, const Span& span, int lane) {
    const i64 i = span.base + lane;
    b.reward[i] = 0.0f;
    if (AUTORESET != NEXT_STEP) return;
    b.terminated[i] = b.truncated[i] = b.ended[i] = 0;
    start_next(b, span, lane);
}

template <typename Given>
FN void step_one(const Batch& b, const Span& span, int lane, Given action, Episodes& episodes) {
    const i64 i = span.base + lane;
    const bool inert = AUTORESET != SAME_STEP && b.ended[i];
    if (AUTORESET == NEXT_STEP) b.is_reset[i] = inert;
    if (inert) return stand(b, span, lane);
    Before e = before_step(b, i);
    const bool ended = advance(b, i, action, e);
    if (ended) finish_episode(b, i, e.s, episodes);
    if (ended && AUTORESET == SAME_STEP) start_next(b, span, lane);
    else if (!VIEW) observe(e.s, b.obs + i * OBS);
}

// An episode ends in few lanes but in most warps, and a warp takes as long as any of its lanes. COMPACT gathers what has
// ended, so that the block's first warp alone does what follows an end. The older form is here to be compared on a GPU.
#ifndef COMPACT
#define COMPACT 1
#endif
template <typename Given>
FN void step_block(const Batch& b, const Call& call) {
    const int thread = threadIdx.x, lane = thread % TILE;
    const i64 first = i64(blockIdx.x) * (blockDim.x / TILE), tile = first + thread / TILE;  // every warp lies in one tile
    const bool inside = tile < b.tiles;
    const Span span = span_of(b, inside ? tile : first);
    const i64 i = span.base + lane;
    const bool live = inside && lane < span.count;
    const Given* actions = static_cast<const Given*>(call.input);
    Episodes episodes;
    if (COMPACT && AUTORESET == SAME_STEP) {
        __shared__ u16 gathered[STEP_BLOCK];
        __shared__ int count;
        Before e;
        Given action;
        if (thread == 0) count = 0;
        if (inside && lane == 0) b.clock[tile] += 1;
        if (live) {
            e = before_step(b, i);
            action = actions[i];
        }
        __syncthreads();  // all loads are on their way before the first is waited for
        if (live) {
            if (advance(b, i, action, e)) {
                gathered[atomicAdd(&count, 1)] = u16(thread);
            } else if (!VIEW) {
                observe(e.s, b.obs + i * OBS);
            }
        }
        __syncthreads();
        const int ended = count;
        if (thread >= 32 || ended == 0) return;
#pragma unroll 1
        for (int k = thread; k < ended; k += 32) {  // all is read before anything is written, so that no read waits for another
            const int at = gathered[k] % TILE;
            const Span there = span_of(b, first + gathered[k] / TILE);
            const i64 j = there.base + at;
            const u32 episode = b.episode[j] + 1;
            real next[STATE];
            load(b, j, e.s);
            first_state(b, there, at, episode, next);
            finish_episode(b, j, e.s, episodes);
            b.episode[j] = episode;
            begin(b, j, next);
        }
        episodes = over_warp(episodes);
        if (thread == 0) episodes.store(b, first);
    } else {
        if (live) step_one(b, span, lane, actions[i], episodes);
        if (inside && lane == 0) b.clock[tile] += 1;
        add_to_tile(b, first, episodes);
    }
}

// The random policy of one environment, from step to step.
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
    real s[STATE];
    first_state(b, span, threadIdx.x, episode, s);
    b.episode[i] = episode;
    b.terminated[i] = b.truncated[i] = b.ended[i] = 0;
    b.reward[i] = 0.0f;
    begin(b, i, s);
}

// Observations of the present state, after a state was put in from outside.
KERNEL observe(const Batch b, const Call call) {
    const Span span = span_of(b, blockIdx.x);
    if (VIEW || threadIdx.x >= span.count) return;
    real s[STATE];
    load(b, span.base + threadIdx.x, s);
    observe(s, b.obs + (span.base + threadIdx.x) * OBS);
}

// The random policy's actions for the next K steps.
KERNEL random_actions(const Batch b, const Call call) {
    const Span span = span_of(b, blockIdx.x);
    if (threadIdx.x >= span.count) return;
    const i64 clock = b.clock[blockIdx.x];
    RandomPolicy policy(span, threadIdx.x, clock);
    Stored* actions = call.actions + span.base + threadIdx.x;
    for (int k = 0; k < int(call.steps); actions += b.num_envs) {
        *actions = Stored(policy.action(u32(clock) + k));
        policy.go_on(span, threadIdx.x, clock, ++k);
    }
}
#endif

#if AUTORESET == 1
FN void observe_kept(const real* s, float* obs, bool narrow) {
    Environment::observe(s, obs);
#pragma unroll
    for (int j = 0; j < OBS; j++) obs[j] = kept(obs[j], narrow);
}

FN void write_bfloat16(u16* row, const float* obs) {
#pragma unroll
    for (int j = 0; j < OBS; j++) row[j] = bfloat16(obs[j]);
}

#if HIDDEN
FN Chosen choose(const Call& call, const float* numbers, const Span& span, int lane, u32 t, const float* obs, float& log_prob) {
    float scores[SCORES];
    u32 words[4] = {span.index + lane, 0, t, STREAM_SAMPLING};
    network<SCORES>(numbers, obs, scores);
    if (!call.greedy) philox(words[0], words[1], words[2], words[3], span.key);
    return sample(scores, numbers + LOG_STD_AT, call.greedy, words[0], words[1], log_prob);
}
#endif

// K steps with the state in registers. Reset numbers are fetched ahead, all lanes of a warp together, so that a lane whose
// episode ends does not hold up the other 31; the last step is an ordinary one and leaves every buffer as K single steps would.
template <int POLICY, bool TRAJECTORY>
FN void rollout_tile(const Batch& b, const Call& call) {
    constexpr bool BY_LENGTH = Episodes::PER_STEP != 0;
    const i64 tile = blockIdx.x, clock = b.clock[tile];
    const Span span = span_of(b, tile);
    const int lane = threadIdx.x, steps = int(call.steps);
    const i64 i = span.base + lane;
    Episodes episodes;
#if HIDDEN
    __shared__ alignas(16) float numbers[NUMBERS];
    for (int n = lane; n < (call.value ? NUMBERS : CRITIC_AT); n += TILE) numbers[n] = call.weights[n];
    __syncthreads();
#endif
    const unsigned warp = __ballot_sync(0xffffffffu, lane < span.count);
    if (lane < span.count) {
        real next[STATE];
        float obs[OBS], weights[SCORES * OBS], bias[SCORES];
        const Before before = before_step(b, i);
        Before e = before;
        const u32 begun = b.episode[i];
        u32 episode = begun, fetched = begun;
        Chosen action = 0;
        RandomPolicy random(span, lane, clock);  // unless it is the policy, none of it is computed
        const bool narrow = TRAJECTORY && call.obs_bfloat16;
        if (POLICY == LINEAR) {
#pragma unroll
            for (int j = 0; j < SCORES * OBS; j++) weights[j] = call.weights[j];
#pragma unroll
            for (int a = 0; a < SCORES; a++) bias[a] = call.bias[a];
        }
        i64 row = i;  // of [K, B]
        for (int k = 0;; row += b.num_envs) {
            if (POLICY != RANDOM || TRAJECTORY) observe_kept(e.s, obs, narrow);
            if (POLICY == RANDOM) action = random.action(u32(clock) + k);
            if (POLICY == LINEAR) action = linear_action(obs, weights, bias);
#if HIDDEN
            float log_prob;
            action = choose(call, numbers, span, lane, u32(clock) + k, obs, log_prob);
            if (TRAJECTORY) {
                call.log_prob[row] = log_prob;
                if (call.value) network<1>(numbers + CRITIC_AT, obs, call.value + row);
            }
#endif
            if (TRAJECTORY) {
                call.actions[row] = Stored(action);
                if (narrow) write_bfloat16(call.obs_bfloat16 + row * OBS, obs);
                else write_row(call.obs + row * OBS, obs);
            }
            if (k == steps - 1) break;
            if (k % FETCH_EVERY == 0 && __any_sync(warp, fetched != episode + 1)) {
                fetched = episode + 1;
                first_state(b, span, lane, fetched, next);
            }
            float reward;
            bool terminated;
            // The random policy's actions lie in the space.
            Environment::step(e.s, POLICY == RANDOM ? Action(action) : admitted(taken(action)), reward, terminated);
            e.length += 1;
            if (RUNNING_RETURN) e.running += reward;
            const bool truncated = e.length >= LIMIT, ended = terminated | truncated;
            if (TRAJECTORY) {
                call.reward[row] = reward;
                call.terminated[row] = terminated;
                call.truncated[row] = truncated;
#if HIDDEN
                if (call.value) {
                    call.bootstrap[row] = 0.0f;
                    if (truncated && !terminated) {
                        observe_kept(e.s, obs, narrow);
                        network<1>(numbers + CRITIC_AT, obs, call.bootstrap + row);
                    }
                }
#endif
            }
            if (ended) {
                episodes.add(e.length, return_of(e.running, e.length, terminated));
                episode += 1;
                e.length = 0;
                e.running = 0.0f;
                if (episode != fetched) {  // a second reset since the fetch: computed on the spot
                    first_state(b, span, lane, episode, e.s);
                } else {
#pragma unroll
                    for (int j = 0; j < STATE; j++) e.s[j] = next[j];
                }
            }
            k += 1;
            if (POLICY == RANDOM) random.go_on(span, lane, clock, k);
        }
        if (BY_LENGTH) {  // both need no adding up from step to step
            episodes.count = episode - begun;
            episodes.steps = i64(before.length) + (steps - 1) - e.length;
        }
        save(b, i, e.s);
        b.elapsed[i] = e.length;
        b.episode[i] = episode;
        if (RUNNING_RETURN) b.running_return[i] = e.running;
        step_one(b, span, lane, taken(action), episodes);
        if (TRAJECTORY) {
            call.reward[row] = b.reward[i];
            call.terminated[row] = b.terminated[i];
            call.truncated[row] = b.truncated[i];
#if HIDDEN
            if (call.value) {
                call.bootstrap[row] = 0.0f;
                if (b.truncated[i] && !b.terminated[i]) {
#pragma unroll
                    for (int j = 0; j < OBS; j++) obs[j] = kept(b.final_obs[i * OBS + j], narrow);
                    network<1>(numbers + CRITIC_AT, obs, call.bootstrap + row);
                }
                load(b, i, e.s);
                observe_kept(e.s, obs, narrow);
                network<1>(numbers + CRITIC_AT, obs, call.value + row + b.num_envs);
            }
#endif
        }
    }
    __syncthreads();
    if (lane == 0) b.clock[tile] = clock + steps;
    add_to_tile(b, tile, episodes);
}
#if HIDDEN
KERNEL rollout_mlp_statistics(const Batch b, const Call call) { rollout_tile<MLP, false>(b, call); }
KERNEL rollout_mlp_trajectory(const Batch b, const Call call) { rollout_tile<MLP, true>(b, call); }
#else
KERNEL rollout_random_statistics(const Batch b, const Call call) { rollout_tile<RANDOM, false>(b, call); }
KERNEL rollout_random_trajectory(const Batch b, const Call call) { rollout_tile<RANDOM, true>(b, call); }
KERNEL rollout_linear_statistics(const Batch b, const Call call) { rollout_tile<LINEAR, false>(b, call); }
KERNEL rollout_linear_trajectory(const Batch b, const Call call) { rollout_tile<LINEAR, true>(b, call); }
#endif
#endif
