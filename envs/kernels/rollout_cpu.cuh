// Fused steps on the CPU.
#pragma once

// K steps with the state kept in cache. Reset numbers are fetched ahead for the whole tile every few steps, so that a reset is a
// select; the last step is an ordinary one, which leaves every buffer as K single steps would.
template <int POLICY, bool TRAJECTORY, bool DEFAULT_BOUNDS>
static void rollout_tile(const Batch& b, const Call& call, i64 tile) {
    const Span span = span_of(b, tile);
    const i64 base = span.base, clock = b.clock[tile];
    const int count = span.count, lanes = padded(count), width = TRAJECTORY ? count : lanes;
    alignas(64) real state[STATE][TILE] = {}, next[STATE][TILE];
    alignas(64) int length[TILE] = {}, shortest[TILE], longest[TILE] = {};
    alignas(64) u32 episode[TILE] = {}, fetched[TILE] = {};
    alignas(64) float running[TILE] = {}, lowest[TILE], highest[TILE];
    alignas(64) i64 returns[TILE] = {};
    alignas(64) u32 chosen[TILE], fell[TILE], late[TILE];
    u8 actions[TILE];
    float weights[Environment::ACTIONS * OBS], bias[Environment::ACTIONS];
    Words random, words;
    if (POLICY == LINEAR) {
        memcpy(weights, call.weights, sizeof weights);
        memcpy(bias, call.bias, sizeof bias);
    }
    for (int i = 0; i < lanes; i++) {
        shortest[i] = NEVER;
        lowest[i] = LARGEST;
        highest[i] = -LARGEST;
    }
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < STATE; j++) state[j][i] = b.state[j * b.num_envs + base + i];
        length[i] = b.elapsed[base + i];
        episode[i] = b.episode[base + i];
        if (RUNNING_RETURN) running[i] = b.running_return[base + i];
    }

    for (i64 k = 0; k < call.steps; k++) {
        const i64 t = clock + k, row = k * b.num_envs + base;
        const bool last = k == call.steps - 1;
        if (POLICY == RANDOM && (k == 0 || t % BITS == 0)) random_words(span, t / BITS, random);
        const u32* bits = random.word[(t >> 5) & 3];
        const int bit = t & 31;
        if (TRAJECTORY || last) {
            float* const rows = call.obs + row * OBS;
            VECTORISE
            for (int i = 0; i < count; i++) {
                real s[STATE];
                float obs[OBS];
                for (int j = 0; j < STATE; j++) s[j] = state[j][i];
                Environment::observe(s, obs);
                chosen[i] = POLICY == RANDOM ? (bits[i] >> bit) & 1 : linear_action(obs, weights, bias);
                if (TRAJECTORY)
                    for (int j = 0; j < OBS; j++) rows[i * OBS + j] = obs[j];
            }
            for (int i = 0; i < count; i++) actions[i] = u8(chosen[i]);
            if (TRAJECTORY) memcpy(call.actions + row, actions, count);
        }
        if (last) break;
        if (k % FETCH_EVERY == 0) {
            u32 used = k == 0;
            for (int i = 0; i < lanes; i++) used |= fetched[i] ^ (episode[i] + 1);
            if (used) {
                for (int i = 0; i < lanes; i++) {
                    words.word[0][i] = span.index + i;
                    words.word[1][i] = fetched[i] = episode[i] + 1;
                    words.word[2][i] = 0;
                    words.word[3][i] = STREAM_RESET;
                }
                philox_many(words.word[0], words.word[1], words.word[2], words.word[3], lanes, span.key);
                VECTORISE
                for (int i = 0; i < lanes; i++) {
                    const u32 w[4] = {words.word[0][i], words.word[1][i], words.word[2][i], words.word[3][i]};
                    real s[STATE];
                    Environment::reset(s, w, b.bounds);
                    for (int j = 0; j < STATE; j++) next[j][i] = s[j];
                }
            }
        }
        u32 dry = 0;
        float* const rewards = call.reward + row;
        VECTORISE
        for (int i = 0; i < width; i++) {
            real s[STATE];
            float reward;
            bool terminated;
            int action;
            for (int j = 0; j < STATE; j++) s[j] = state[j][i];
            if (TRAJECTORY) {
                action = int(chosen[i]);
            } else if (POLICY == RANDOM) {
                action = (bits[i] >> bit) & 1;
            } else {
                float obs[OBS];
                Environment::observe(s, obs);
                action = linear_action(obs, weights, bias);
            }
            Environment::step(s, action, reward, terminated);
            const int steps = length[i] + 1;
            const bool truncated = steps >= LIMIT, ended = terminated | truncated;
            if (!DEFAULT_BOUNDS) dry |= u32(ended) & u32(fetched[i] != episode[i] + 1);
            // Minimum and maximum with a neutral value that GCC cannot know to be one: it would turn the statement into a branch
            // around a masked store, wrong half of the time.
            const int as_shortest = ended ? steps : NEVER, as_longest = ended ? steps : 0;
            shortest[i] = as_shortest < shortest[i] ? as_shortest : shortest[i];
            longest[i] = as_longest > longest[i] ? as_longest : longest[i];
            if (!Environment::RETURN_IS_LENGTH) {
                const float total = running[i] + reward;
                const float value = return_of(total, steps, terminated);
                returns[i] += ended ? llrint(double(value) * RETURN_UNIT) : 0;
                const float as_lowest = ended ? value : LARGEST, as_highest = ended ? value : -LARGEST;
                lowest[i] = as_lowest < lowest[i] ? as_lowest : lowest[i];
                highest[i] = as_highest > highest[i] ? as_highest : highest[i];
                running[i] = ended ? 0.0f : total;
            }
            if (TRAJECTORY) {
                rewards[i] = reward;
                fell[i] = terminated ? 1u : 0u;
                late[i] = truncated ? 1u : 0u;
            }
            episode[i] += ended;
            length[i] = ended ? 0 : steps;
            for (int j = 0; j < STATE; j++) state[j][i] = ended ? next[j][i] : s[j];
        }
        if (TRAJECTORY) {
            u8 *const terminated = call.terminated + row, *const truncated = call.truncated + row;
            VECTORISE
            for (int i = 0; i < count; i++) {
                terminated[i] = u8(fell[i]);
                truncated[i] = u8(late[i]);
            }
        }
        if (!DEFAULT_BOUNDS && dry) {  // a second reset since the fetch: computed on the spot
            for (int i = 0; i < count; i++) {
                if (length[i] != 0 || episode[i] == fetched[i]) continue;
                u32 w[4] = {span.index + u32(i), episode[i], 0, STREAM_RESET};
                philox(w[0], w[1], w[2], w[3], span.key);
                real s[STATE];
                Environment::reset(s, w, b.bounds);
                for (int j = 0; j < STATE; j++) state[j][i] = s[j];
            }
        }
    }

    Episodes episodes;
    for (int i = 0; i < count; i++) {
        const i64 e = base + i;
        const u32 ended = episode[i] - b.episode[e];
        const i64 steps = b.elapsed[e] + (call.steps - 1) - length[i];
        if (ended) {
            const bool is_length = Environment::RETURN_IS_LENGTH;
            Episodes lane;
            lane.count = ended;
            lane.steps = steps;
            lane.returns = is_length ? steps * RETURN_UNIT : returns[i];
            lane.shortest = shortest[i];
            lane.longest = longest[i];
            lane.lowest = is_length ? float(shortest[i]) : lowest[i];
            lane.highest = is_length ? float(longest[i]) : highest[i];
            episodes.merge(lane);
        }
        for (int j = 0; j < STATE; j++) b.state[j * b.num_envs + e] = state[j][i];
        b.elapsed[e] = ELAPSED(length[i]);
        b.episode[e] = episode[i];
        if (RUNNING_RETURN) b.running_return[e] = running[i];
    }
    if (episodes.count) episodes.store(b, tile);
    b.clock[tile] += call.steps - 1;
    step_tile(b, tile, actions);
    if (TRAJECTORY) {
        const i64 row = (call.steps - 1) * b.num_envs + base;
        memcpy(call.reward + row, b.reward + base, count * sizeof(float));
        memcpy(call.terminated + row, b.terminated + base, count);
        memcpy(call.truncated + row, b.truncated + base, count);
    }
}

template <int POLICY, bool TRAJECTORY>
static void rollout_tiles(const Batch* b, const Call* call, i64 first, i64 last) {
    for (i64 tile = first; tile < last; tile++) {
        if (call->default_bounds) rollout_tile<POLICY, TRAJECTORY, true>(*b, *call, tile);
        else rollout_tile<POLICY, TRAJECTORY, false>(*b, *call, tile);
    }
}
EXPORT void rollout_random_statistics(const Batch* b, const Call* c, i64 first, i64 last) { rollout_tiles<RANDOM, false>(b, c, first, last); }
EXPORT void rollout_random_trajectory(const Batch* b, const Call* c, i64 first, i64 last) { rollout_tiles<RANDOM, true>(b, c, first, last); }
EXPORT void rollout_linear_statistics(const Batch* b, const Call* c, i64 first, i64 last) { rollout_tiles<LINEAR, false>(b, c, first, last); }
EXPORT void rollout_linear_trajectory(const Batch* b, const Call* c, i64 first, i64 last) { rollout_tiles<LINEAR, true>(b, c, first, last); }
