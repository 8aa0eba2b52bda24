// Fused steps on a GPU.
#pragma once

FN void observe_kept(const State& s, const Place& at, float* obs, bool narrow) {
    observe_whole(s, at, obs);
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

// The action that a policy's choice is to the environment; the random policy's lies in the space.
template <int POLICY>
FN Action as_chosen(Chosen chosen) {
#if NUMBERS == 1
    return POLICY == RANDOM ? Action(chosen) : action_of(taken(chosen));
#else
    return action_of(chosen);
#endif
}

// K steps with the state in registers. Reset numbers are fetched ahead, all lanes of a warp together, so that a lane whose
// episode ends does not hold up the other 31; the last step is an ordinary one and leaves every buffer as K single steps would.
template <int POLICY, bool TRAJECTORY>
FN void rollout_tile(const Batch& b, const Call& call) {
    constexpr bool BY_LENGTH = Episodes::PER_STEP != 0, KEPT_APART = TAIL > 0 && POLICY == RANDOM;
    const Thread<HIDDEN != 0> at(b);
    const Span& span = at.span;
    const i64 clock = at.clock(b), i = at.i;
    const int lane = at.lane, steps = int(call.steps);
    Episodes episodes;
    Row own;
#if HIDDEN
    __shared__ alignas(16) float numbers[NETWORK_NUMBERS];
    for (int n = threadIdx.x; n < (call.value ? NETWORK_NUMBERS : CRITIC_AT); n += blockDim.x) numbers[n] = call.weights[n];
    __syncthreads();
#endif
    const unsigned warp = __ballot_sync(0xffffffffu, at.live);
    if (at.live) {
        State next;
        float obs[OBS], weights[SCORES * OBS], bias[SCORES];
        const Before before = before_step(b, i);
        Before e = before;
        const u32 begun = b.episode[i];
        u32 episode = begun, fetched = begun;
        Chosen action = {};
        int scenario = SCENARIOS ? b.scenario[i] : 0, next_scenario = 0;
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
            const Place here = place_of(b, span, lane, episode, scenario, e.length, 1);
            if (POLICY != RANDOM || (TRAJECTORY && !KEPT_APART)) observe_kept(e.s, here, obs, narrow);
            if (POLICY == RANDOM) action = random.action(u32(clock) + k);
#if NUMBERS == 1
            if (POLICY == LINEAR) action = linear_action(obs, weights, bias);
#endif
#if HIDDEN
            float log_prob;
            action = choose(call, numbers, span, lane, u32(clock) + k, obs, log_prob);
            if (TRAJECTORY) {
                call.log_prob[row] = log_prob;
                if (call.value) network<1>(numbers + CRITIC_AT, obs, call.value + row);
            }
#endif
            if (TRAJECTORY) {
                store(call.actions + row * NUMBERS, action);
#if TAIL
                if (KEPT_APART) keep(e.s, here, call.obs + row * OBS, narrow ? call.obs_bfloat16 + row * OBS : nullptr);
                else
#endif
                if (narrow) write_bfloat16(call.obs_bfloat16 + row * OBS, obs);
                else write_row<OBS>(call.obs + row * OBS, obs);
            }
            if (k == steps - 1) break;
            if (!CARRIES && k % FETCH_EVERY == 0 && __any_sync(warp, fetched != episode + 1)) {
                fetched = episode + 1;
                next_scenario = first_state(b, span, lane, fetched, next).scenario;
            }
            Outcome out;
            Environment::step(e.s, as_chosen<POLICY>(action), here, out);
            const float reward = out.reward[0];
            const bool terminated = out.terminated[0];
            e.length += 1;
            if (RUNNING_RETURN) e.running += reward;
            const bool truncated = e.length >= LIMIT || (OVER && out.over), ended = terminated | truncated;
            if (TRAJECTORY) {
                call.reward[row] = reward;
                call.terminated[row] = terminated;
                call.truncated[row] = truncated;
#if HIDDEN
                if (call.value) {
                    call.bootstrap[row] = 0.0f;
                    if (truncated && !terminated) {
                        observe_kept(e.s, place_of(b, span, lane, episode, scenario, e.length, 1), obs, narrow);
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
                if (CARRIES || episode != fetched) {  // a second reset since the fetch: computed on the spot
                    scenario = first_state(b, span, lane, episode, e.s).scenario;
                } else {
                    e.s = next;
                    scenario = next_scenario;
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
        if (SCENARIOS) b.scenario[i] = scenario;
        step_one(b, span, lane, action_of(taken(action)), episodes, own);
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
                observe_kept(e.s, at_step(b, span, lane, b.elapsed[i]), obs, narrow);
                network<1>(numbers + CRITIC_AT, obs, call.value + row + b.num_envs);
            }
#endif
        }
    }
    write_rows(own, b.obs + i * OBS);
    __syncthreads();  // every warp has read the clock
    at.add_to_clock(b, steps);
    add_to_tile(b, at.tile, episodes);
}
#if HIDDEN
KERNEL rollout_mlp_statistics(const Batch b, const Call call) { rollout_tile<MLP, false>(b, call); }
KERNEL rollout_mlp_trajectory(const Batch b, const Call call) { rollout_tile<MLP, true>(b, call); }
#else
KERNEL rollout_random_statistics(const Batch b, const Call call) { rollout_tile<RANDOM, false>(b, call); }
KERNEL rollout_random_trajectory(const Batch b, const Call call) { rollout_tile<RANDOM, true>(b, call); }
#if NUMBERS == 1
KERNEL rollout_linear_statistics(const Batch b, const Call call) { rollout_tile<LINEAR, false>(b, call); }
KERNEL rollout_linear_trajectory(const Batch b, const Call call) { rollout_tile<LINEAR, true>(b, call); }
#endif
#endif
