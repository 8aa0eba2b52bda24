// The GPU form: one thread per environment, one block per tile.
#pragma once

#define KERNEL extern "C" __global__ void __launch_bounds__(TILE, 1)  // registers before occupancy: no spills

FN void words_of(const Span& span, int lane, u32 episode, u32* words) {
    words[0] = span.index + lane;
    words[1] = episode;
    words[2] = 0;
    words[3] = STREAM_RESET;
    philox(words[0], words[1], words[2], words[3], span.key);
}

// Adds the threads' episodes to the tile's totals: shuffles within a warp, then warp by warp, always in the same order.
FN void add_to_tile(const Batch& b, i64 tile, Episodes episodes) {
    __shared__ alignas(Episodes) unsigned char storage[sizeof(Episodes) * (TILE / 32)];
    Episodes* of_warp = reinterpret_cast<Episodes*>(storage);
    if (!__syncthreads_or(episodes.count != 0)) return;
    if (__any_sync(0xffffffffu, episodes.count != 0)) {
#pragma unroll
        for (int distance = 16; distance; distance >>= 1) {
            Episodes other;
            other.count = __shfl_down_sync(0xffffffffu, episodes.count, distance);
            other.steps = __shfl_down_sync(0xffffffffu, episodes.steps, distance);
            other.returns = __shfl_down_sync(0xffffffffu, episodes.returns, distance);
            other.shortest = __shfl_down_sync(0xffffffffu, episodes.shortest, distance);
            other.longest = __shfl_down_sync(0xffffffffu, episodes.longest, distance);
            other.lowest = __shfl_down_sync(0xffffffffu, episodes.lowest, distance);
            other.highest = __shfl_down_sync(0xffffffffu, episodes.highest, distance);
            episodes.merge(other);
        }
    }
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = episodes;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < TILE / 32; warp++) episodes.merge(of_warp[warp]);
        episodes.store(b, tile);
    }
}

template <typename Given>
FN void step_one(const Batch& b, const Span& span, int lane, Given action, Episodes& episodes) {
    const i64 i = span.base + lane;
    const bool inert = AUTORESET != SAME_STEP && b.ended[i];
    if (AUTORESET == NEXT_STEP) b.is_reset[i] = inert;
    if (inert) {
        b.reward[i] = 0.0f;
        if (AUTORESET == NEXT_STEP) {
            u32 words[WORDS];
            const u32 episode = b.episode[i] + 1;
            b.episode[i] = episode;
            b.terminated[i] = b.truncated[i] = b.ended[i] = 0;
            words_of(span, lane, episode, words);
            start_episode(b, i, words);
        }
        return;
    }
    real s[STATE];
    float reward;
    bool terminated;
    load(b, i, s);
    Environment::step(s, admitted(action), reward, terminated);
    const int length = b.elapsed[i] + 1;
    const bool truncated = length >= LIMIT, ended = terminated | truncated;
    b.reward[i] = reward;
    b.terminated[i] = terminated;
    b.truncated[i] = truncated;
    b.ended[i] = ended;
    if (RUNNING_RETURN) b.running_return[i] += reward;
    if (ended) {
        b.elapsed[i] = length;
        finish_episode(b, i, s, episodes);
        if (AUTORESET == SAME_STEP) {
            u32 words[WORDS];
            const u32 episode = b.episode[i] + 1;
            b.episode[i] = episode;
            words_of(span, lane, episode, words);
            start_episode(b, i, words);
            return;
        }
    } else {
        b.elapsed[i] = length;
    }
    save(b, i, s);
    if (!VIEW) observe(s, b.obs + i * OBS);
}

template <typename Given>
FN void step_tile(const Batch& b, const Call& call) {
    const i64 tile = blockIdx.x;
    const Span span = span_of(b, tile);
    const int lane = threadIdx.x;
    Episodes episodes;
    if (lane < span.count) step_one(b, span, lane, static_cast<const Given*>(call.input)[span.base + lane], episodes);
    if (lane == 0) b.clock[tile] += 1;
    add_to_tile(b, tile, episodes);
}
FN void random_words(const Span& span, int lane, i64 t, u32* words) {
    words[0] = span.index + lane;
    words[1] = 0;
    words[2] = u32(t / PER_BLOCK);
    words[3] = STREAM_RANDOM_POLICY;
    philox(words[0], words[1], words[2], words[3], span.key);
}

FN u32 word_for(const u32* words, i64 t) {  // by selects: registers cannot be indexed
    const int at = word_of_block(t);
    return at & 2 ? (at & 1 ? words[3] : words[2]) : (at & 1 ? words[1] : words[0]);
}

#if HIDDEN == 0  // the module of an MLP has rollouts alone
#if CONTINUOUS
KERNEL step_float32(const Batch b, const Call call) { step_tile<float>(b, call); }
KERNEL step_float64(const Batch b, const Call call) { step_tile<double>(b, call); }
#else
KERNEL step_uint8(const Batch b, const Call call) { step_tile<u8>(b, call); }
KERNEL step_int32(const Batch b, const Call call) { step_tile<int>(b, call); }
KERNEL step_int64(const Batch b, const Call call) { step_tile<i64>(b, call); }
#endif

KERNEL reset(const Batch b, const Call call) {
    const Span span = span_of(b, blockIdx.x);
    const u8* mask = static_cast<const u8*>(call.input);
    const i64 i = span.base + threadIdx.x;
    if (threadIdx.x >= span.count || (mask && !mask[i])) return;
    const u32 episode = call.fresh ? 0 : b.episode[i] + 1;
    u32 words[WORDS];
    b.episode[i] = episode;
    b.terminated[i] = b.truncated[i] = b.ended[i] = 0;
    b.reward[i] = 0.0f;
    words_of(span, threadIdx.x, episode, words);
    start_episode(b, i, words);
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
    const i64 clock = b.clock[blockIdx.x], i = span.base + threadIdx.x;
    u32 words[4];
    for (i64 k = 0; k < call.steps; k++) {
        const i64 t = clock + k;
        if (k == 0 || t % PER_BLOCK == 0) random_words(span, threadIdx.x, t, words);
        call.actions[k * b.num_envs + i] = Stored(random_action(word_for(words, t), t));
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
FN Chosen choose(const Call& call, const float* numbers, const Span& span, int lane, i64 t, const float* obs, float& log_prob) {
    float scores[SCORES];
    u32 words[4] = {span.index + lane, 0, u32(t), STREAM_SAMPLING};
    network<SCORES>(numbers, obs, scores);
    if (!call.greedy) philox(words[0], words[1], words[2], words[3], span.key);
    return sample(scores, numbers + LOG_STD_AT, call.greedy, words[0], words[1], log_prob);
}
#endif

// K steps with the state in registers. Reset numbers are fetched ahead, all lanes of a warp together, so that a lane whose
// episode ends does not hold up the other 31; the last step is an ordinary one and leaves every buffer as K single steps would.
template <int POLICY, bool TRAJECTORY>
FN void rollout_tile(const Batch& b, const Call& call) {
    const i64 tile = blockIdx.x, clock = b.clock[tile];
    const Span span = span_of(b, tile);
    const int lane = threadIdx.x;
    const i64 i = span.base + lane;
    Episodes episodes;
#if HIDDEN
    __shared__ alignas(16) float numbers[NUMBERS];
    for (int n = lane; n < (call.value ? NUMBERS : CRITIC_AT); n += TILE) numbers[n] = call.weights[n];
    __syncthreads();
#endif
    const unsigned warp = __ballot_sync(0xffffffffu, lane < span.count);
    if (lane < span.count) {
        real s[STATE], next[STATE];
        float obs[OBS], weights[SCORES * OBS], bias[SCORES];
        u32 random[4], words[WORDS];
        u32 episode = b.episode[i], fetched = episode;
        int length = b.elapsed[i];
        Chosen action = 0;
        float running = RUNNING_RETURN ? b.running_return[i] : 0.0f;
        const bool narrow = TRAJECTORY && call.obs_bfloat16;
        load(b, i, s);
        if (POLICY == LINEAR) {
#pragma unroll
            for (int j = 0; j < SCORES * OBS; j++) weights[j] = call.weights[j];
#pragma unroll
            for (int a = 0; a < SCORES; a++) bias[a] = call.bias[a];
        }
        for (i64 k = 0; k < call.steps; k++) {
            const i64 t = clock + k, row = k * b.num_envs + i;
            observe_kept(s, obs, narrow);
            if (POLICY == RANDOM) {
                if (k == 0 || t % PER_BLOCK == 0) random_words(span, lane, t, random);
                action = random_action(word_for(random, t), t);
            } else if (POLICY == LINEAR) {
                action = linear_action(obs, weights, bias);
            }
#if HIDDEN
            float log_prob;
            action = choose(call, numbers, span, lane, t, obs, log_prob);
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
            if (k == call.steps - 1) break;
            if (k % FETCH_EVERY == 0 && __any_sync(warp, fetched != episode + 1)) {
                fetched = episode + 1;
                words_of(span, lane, fetched, words);
                Environment::reset(next, words, b.bounds);
            }
            float reward;
            bool terminated;
            Environment::step(s, admitted(taken(action)), reward, terminated);
            length += 1;
            running += reward;
            const bool truncated = length >= LIMIT, ended = terminated | truncated;
            if (TRAJECTORY) {
                call.reward[row] = reward;
                call.terminated[row] = terminated;
                call.truncated[row] = truncated;
#if HIDDEN
                if (call.value) {
                    call.bootstrap[row] = 0.0f;
                    if (truncated && !terminated) {
                        observe_kept(s, obs, narrow);
                        network<1>(numbers + CRITIC_AT, obs, call.bootstrap + row);
                    }
                }
#endif
            }
            if (ended) {
                episodes.add(length, return_of(running, length, terminated));
                episode += 1;
                length = 0;
                running = 0.0f;
                if (episode != fetched) {  // a second reset since the fetch: computed on the spot
                    words_of(span, lane, episode, words);
                    Environment::reset(s, words, b.bounds);
                } else {
#pragma unroll
                    for (int j = 0; j < STATE; j++) s[j] = next[j];
                }
            }
        }
        save(b, i, s);
        b.elapsed[i] = length;
        b.episode[i] = episode;
        if (RUNNING_RETURN) b.running_return[i] = running;
        step_one(b, span, lane, taken(action), episodes);
        if (TRAJECTORY) {
            const i64 row = (call.steps - 1) * b.num_envs + i;
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
                load(b, i, s);
                observe_kept(s, obs, narrow);
                network<1>(numbers + CRITIC_AT, obs, call.value + row + b.num_envs);
            }
#endif
        }
    }
    __syncthreads();
    if (lane == 0) b.clock[tile] = clock + call.steps;
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
