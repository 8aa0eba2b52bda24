// Fused steps on the CPU.
#pragma once

#if HIDDEN
// Both networks and a sample from the first one's distribution, for a whole tile.
struct PolicyTile {
    alignas(64) float obs[OBS][TILE];
    alignas(64) float scores[SCORES][TILE];
    alignas(64) float value[1][TILE];
    alignas(64) float log_prob[TILE];
    Words sampling;
};

// GREEDY is known when the loop is compiled: a branch in it would stop GCC from vectorising.
template <bool GREEDY>
static void sample_tile(PolicyTile& p, const float* log_std, int count, Chosen* chosen) {
    VECTORISE
    for (int i = 0; i < count; i++) {
        float scores[SCORES];
        for (int a = 0; a < SCORES; a++) scores[a] = p.scores[a][i];
        chosen[i] = sample(scores, log_std, GREEDY, p.sampling.word[0][i], p.sampling.word[1][i], p.log_prob[i]);
    }
}

static void choose_tile(const Call& call, const Span& span, i64 t, PolicyTile& p, Chosen* chosen) {
    network_tile<SCORES>(call.weights, p.obs, span.count, p.scores);
    const float* log_std = call.weights + LOG_STD_AT;
    Words& w = p.sampling;
    if (!call.greedy) {
        for (int i = 0; i < padded(span.count); i++) {
            w.word[0][i] = span.index + i;
            w.word[1][i] = 0;
            w.word[2][i] = u32(t);
            w.word[3][i] = STREAM_SAMPLING;
        }
        philox_many(w.word[0], w.word[1], w.word[2], w.word[3], padded(span.count), span.key);
    }
    if (call.greedy) sample_tile<true>(p, log_std, span.count, chosen);
    else sample_tile<false>(p, log_std, span.count, chosen);
}

// Values of a tile's observations by the critic.
static void value_tile(const Call& call, int count, PolicyTile& p) {
    network_tile<1>(call.weights + CRITIC_AT, p.obs, count, p.value);
}

// Values of rows [count, OBS].
static void value_rows(const Call& call, const float* rows, int count, PolicyTile& p) {
    for (int i = 0; i < count; i++)
        for (int j = 0; j < OBS; j++) p.obs[j][i] = kept(rows[i * OBS + j], call.obs_bfloat16);
    value_tile(call, count, p);
}
#endif

// The states of a tile, an array for each number.
struct Column {
    alignas(64) real of[REALS][TILE];
#if DOUBLES
    alignas(64) double doubles[DOUBLES][TILE];
#endif
#if INTEGERS
    alignas(64) int integers[INTEGERS][TILE];
#endif

    FN State get(int i) const {
        State s;
WRITTEN_OUT
        for (int j = 0; j < REALS; j++) s.of[j] = of[j][i];
#if DOUBLES
WRITTEN_OUT
        for (int j = 0; j < DOUBLES; j++) s.doubles[j] = doubles[j][i];
#endif
#if INTEGERS
WRITTEN_OUT
        for (int j = 0; j < INTEGERS; j++) s.integers[j] = integers[j][i];
#endif
        return s;
    }
    FN void put(int i, const State& s) {
WRITTEN_OUT
        for (int j = 0; j < REALS; j++) of[j][i] = s.of[j];
#if DOUBLES
WRITTEN_OUT
        for (int j = 0; j < DOUBLES; j++) doubles[j][i] = s.doubles[j];
#endif
#if INTEGERS
WRITTEN_OUT
        for (int j = 0; j < INTEGERS; j++) integers[j][i] = s.integers[j];
#endif
    }
};

// Choice of a policy that the loop carries; not an MLP's. Of several numbers there is the random one alone, which is drawn apart.
#if NUMBERS == 1
#define CHOOSE(WORDS, I, T, OBS_) (POLICY == RANDOM ? random_action(WORDS[I], T) : linear_action(OBS_, weights, bias))
#define TAKEN(I) action_of(taken(choice))
#else
#define TAKEN(I) drawn.of(I)
#endif

// K steps with the state kept in cache. Reset numbers are fetched ahead for the whole tile every few steps, so that a reset is a
// select; the last step is an ordinary one, which leaves every buffer as K single steps would.
template <int POLICY, bool TRAJECTORY, bool DEFAULT_BOUNDS>
static void rollout_tile(const Batch& b, const Call& call, i64 tile) {
    constexpr bool CHOSEN_APART = TRAJECTORY || POLICY == MLP;  // in a loop of its own before the step
    constexpr bool KEPT_APART = TAIL > 0 && POLICY == RANDOM;    // observations, in rows
    constexpr int PER_STEP = Episodes::PER_STEP;
    const Span span = span_of(b, tile);
    const i64 base = span.base, clock = b.clock[tile];
    const int count = span.count, lanes = padded(count), width = CHOSEN_APART ? count : lanes;
    Column state = {}, next;
    alignas(64) int length[TILE] = {}, shortest[TILE], longest[TILE] = {};
    alignas(64) u32 episode[TILE] = {}, fetched[TILE] = {};
    alignas(64) float running[TILE] = {}, total[TILE];
#if NUMBERS == 1
    alignas(64) Chosen chosen[TILE];
    Stored actions[TILE];
#else
    Actions drawn;
#endif
    alignas(64) u32 fell[TILE], late[TILE];
    alignas(64) int scenario[TILE] = {}, next_scenario[TILE];
    STORED float weights[SCORES * OBS];
    float bias[SCORES];
    // Loops go on to a whole vector; what they compute there is not used, but tables have rows for environments alone.
    const auto within = [&](int i) { return i < count ? i : 0; };
    const auto at = [&](int i, int t) { return place_of(b, span, within(i), episode[i], SCENARIOS ? scenario[i] : 0, t, 1); };
    Words random, words;
    Episodes episodes;
#if HIDDEN
    static thread_local PolicyTile policy;
    float (*const seen)[TILE] = policy.obs;  // by the policy
#else
    alignas(64) STORED float seen[OBS][TILE];
#endif
    if (POLICY == LINEAR) {
        for (int j = 0; j < SCORES * OBS; j++) weights[j] = call.weights[j];  // one by one: GCC keeps them in registers
        for (int a = 0; a < SCORES; a++) bias[a] = call.bias[a];
    }
    for (int i = 0; i < lanes; i++) shortest[i] = NEVER;
    for (int i = 0; i < count; i++) {
        State s;
        load(b, base + i, s);
        state.put(i, s);
        if (SCENARIOS) scenario[i] = b.scenario[base + i];
        length[i] = b.elapsed[base + i];
        episode[i] = b.episode[base + i];
        if (RUNNING_RETURN) running[i] = b.running_return[base + i];
    }

    for (i64 k = 0; k < call.steps; k++) {
        const i64 t = clock + k, row = k * b.num_envs + base;
        const bool last = k == call.steps - 1;
#if NUMBERS == 1
        if (POLICY == RANDOM && (k == 0 || t % PER_BLOCK == 0)) random_block(span, t, random);
        const u32* word = random.word[word_of_block(t)];
#else
        random_columns(span, t, drawn);
#endif
        if (CHOSEN_APART || last) {
            float* const rows = call.obs + row * OBS;
            u16* const narrow_rows = call.obs_bfloat16 + row * OBS;
            const bool wide = TRAJECTORY && call.obs, narrow = TRAJECTORY && call.obs_bfloat16;
            if (POLICY != RANDOM || (TRAJECTORY && !KEPT_APART)) {
                VECTORISE
                for (int i = 0; i < count; i++) {
                    float obs[OBS];
                    observe_whole(state.get(i), at(i, length[i]), obs);
                    for (int j = 0; j < OBS; j++) seen[j][i] = kept(obs[j], narrow);
                }
            }
#if HIDDEN == 0 && NUMBERS == 1
            VECTORISE
            for (int i = 0; i < count; i++) {
                float obs[OBS];
                for (int j = 0; j < OBS; j++) obs[j] = seen[j][i];
                chosen[i] = CHOOSE(word, i, t, obs);
            }
#endif
#if TAIL
            for (int i = 0; TRAJECTORY && KEPT_APART && i < count; i++)
                keep(state.get(i), at(i, length[i]), rows + i * OBS, narrow ? narrow_rows + i * OBS : nullptr);
#endif
            if (wide && !KEPT_APART) {
                VECTORISE
                for (int i = 0; i < count; i++)
                    for (int j = 0; j < OBS; j++) rows[i * OBS + j] = seen[j][i];
            }
            if (narrow && !KEPT_APART) {
                VECTORISE
                for (int i = 0; i < count; i++)
                    for (int j = 0; j < OBS; j++) narrow_rows[i * OBS + j] = bfloat16(seen[j][i]);
            }
#if HIDDEN
            choose_tile(call, span, t, policy, chosen);
            if (TRAJECTORY) memcpy(call.log_prob + row, policy.log_prob, count * sizeof(float));
            if (TRAJECTORY && call.value) {
                value_tile(call, count, policy);
                memcpy(call.value + row, policy.value, count * sizeof(float));
            }
#endif
#if NUMBERS == 1
            if (TRAJECTORY) {
                Stored* const stored = call.actions + row;
                for (int i = 0; i < count; i++) store(stored + i, chosen[i]);
            }
            for (int i = 0; i < count; i++) store(actions + i, taken(chosen[i]));
#else
            if (TRAJECTORY) store_columns(drawn, count, call.actions + row * NUMBERS);
#endif
        }
        if (last) break;
        if (!CARRIES && k % FETCH_EVERY == 0) {
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
                    State s;
                    const Place first = first_place(b, span, within(i), fetched[i], w);
                    Environment::reset(s, first, w);
                    next.put(i, s);
                    if (SCENARIOS) next_scenario[i] = first.scenario;
                }
            }
        }
        u32 dry = 0, any = 0;
        float* const rewards = call.reward + row;
#if HIDDEN
        Column before_reset;
        alignas(64) int before_scenario[TILE];
#endif
        VECTORISE
        for (int i = 0; i < width; i++) {
            State s = state.get(i);
            Outcome out;
#if NUMBERS == 1
            Chosen choice;
            if (CHOSEN_APART) {
                choice = chosen[i];
            } else {
                float obs[OBS];
                if (POLICY != RANDOM) observe_whole(s, at(i, length[i]), obs);
                choice = CHOOSE(word, i, t, obs);
            }
#endif
            Environment::step(s, TAKEN(i), at(i, length[i]), out);
            const float reward = out.reward[0];
            const bool terminated = out.terminated[0];
#if HIDDEN
            before_reset.put(i, s);
            if (SCENARIOS) before_scenario[i] = scenario[i];
#endif
            const int steps = length[i] + 1;
#if OVER  // in integers: GCC knows no vectors of conditions that come from comparisons of numbers of several widths
            const u32 cut = bit(steps >= LIMIT) | bit(out.over);
            const bool truncated = cut != 0, ended = (cut | bit(terminated)) != 0;
#else
            const bool truncated = steps >= LIMIT, ended = terminated | truncated;
#endif
            if (!DEFAULT_BOUNDS) dry |= u32(ended) & u32(CARRIES || fetched[i] != episode[i] + 1);
            if (PER_STEP != 0) {
                // Minimum and maximum with a neutral value that GCC cannot know to be one: it would turn the statement into a
                // branch around a masked store, wrong half of the time.
                const int as_shortest = ended ? steps : NEVER, as_longest = ended ? steps : 0;
                shortest[i] = as_shortest < shortest[i] ? as_shortest : shortest[i];
                longest[i] = as_longest > longest[i] ? as_longest : longest[i];
            } else {
                any |= u32(ended);
                if (RUNNING_RETURN) {
                    total[i] = running[i] + reward;
                    running[i] = ended ? 0.0f : total[i];
                }
                longest[i] = ended ? steps : 0;  // the length of the episode that ended here
            }
            if (TRAJECTORY) rewards[i] = reward;
            if (TRAJECTORY || PER_STEP == 0) {
                fell[i] = terminated ? 1u : 0u;
                late[i] = truncated ? 1u : 0u;
            }
            episode[i] += ended;
            length[i] = ended ? 0 : steps;
            if (!CARRIES) choose(s, !ended, next.get(i));
            state.put(i, s);
            if (SCENARIOS) scenario[i] = ended ? next_scenario[i] : scenario[i];
        }
        if (PER_STEP == 0 && any)
            for (int i = 0; i < count; i++)
                if (longest[i]) episodes.add(longest[i], return_of(total[i], longest[i], fell[i]));
        if (TRAJECTORY) {
            u8 *const terminated = call.terminated + row, *const truncated = call.truncated + row;
            VECTORISE
            for (int i = 0; i < count; i++) {
                terminated[i] = u8(fell[i]);
                truncated[i] = u8(late[i]);
            }
        }
#if HIDDEN
        if (TRAJECTORY && call.value) {
            u32 cut = 0;
            for (int i = 0; i < count; i++) cut |= late[i] & ~fell[i];
            memset(call.bootstrap + row, 0, count * sizeof(float));
            if (cut) {
                for (int i = 0; i < count; i++) {
                    float obs[OBS];  // of environments that did not end nothing is read
                    const Place ended = place_of(b, span, i, episode[i] - 1, SCENARIOS ? before_scenario[i] : 0, OVER ? longest[i] : LIMIT, 1);
                    observe_whole(before_reset.get(i), ended, obs);
                    for (int j = 0; j < OBS; j++) policy.obs[j][i] = kept(obs[j], call.obs_bfloat16);
                }
                value_tile(call, count, policy);
                for (int i = 0; i < count; i++)
                    if (late[i] & ~fell[i]) call.bootstrap[row + i] = policy.value[0][i];
            }
        }
#endif
        if (!DEFAULT_BOUNDS && dry) {  // a second reset since the fetch: computed on the spot
            for (int i = 0; i < count; i++) {
                if (length[i] != 0 || (!CARRIES && episode[i] == fetched[i])) continue;
                u32 w[4] = {span.index + u32(i), episode[i], 0, STREAM_RESET};
                philox(w[0], w[1], w[2], w[3], span.key);
                State s;
                if (CARRIES) s = state.get(i);
                const Place first = first_place(b, span, i, episode[i], w);
                Environment::reset(s, first, w);
                state.put(i, s);
                if (SCENARIOS) scenario[i] = first.scenario;
            }
        }
    }

    for (int i = 0; i < count; i++) {
        const i64 e = base + i;
        const u32 ended = episode[i] - b.episode[e];
        if (PER_STEP != 0 && ended) {
            Episodes lane;
            lane.count = ended;
            lane.steps = b.elapsed[e] + (call.steps - 1) - length[i];
            lane.returns = PER_STEP * lane.steps * RETURN_UNIT;
            lane.shortest = shortest[i];
            lane.longest = longest[i];
            lane.lowest = float(PER_STEP * (PER_STEP > 0 ? shortest[i] : longest[i]));
            lane.highest = float(PER_STEP * (PER_STEP > 0 ? longest[i] : shortest[i]));
            episodes.merge(lane);
        }
        save(b, e, state.get(i));
        if (SCENARIOS) b.scenario[e] = scenario[i];
        b.elapsed[e] = ELAPSED(length[i]);
        b.episode[e] = episode[i];
        if (RUNNING_RETURN) b.running_return[e] = running[i];
    }
    if (episodes.count) episodes.store(b, tile);
    b.clock[tile] += call.steps - 1;
#if NUMBERS == 1
    step_tile(b, tile, Actions<Stored>{actions});
#else
    step_tile(b, tile, drawn);
#endif
    if (TRAJECTORY) {
        const i64 row = (call.steps - 1) * b.num_envs + base;
        memcpy(call.reward + row, b.reward + base, count * sizeof(float));
        memcpy(call.terminated + row, b.terminated + base, count);
        memcpy(call.truncated + row, b.truncated + base, count);
#if HIDDEN
        if (call.value) {
            value_rows(call, b.final_obs + base * OBS, count, policy);
            for (int i = 0; i < count; i++)
                call.bootstrap[row + i] = b.truncated[base + i] & ~b.terminated[base + i] ? policy.value[0][i] : 0.0f;
            for (int i = 0; i < count; i++) {
                State s;
                float obs[OBS];
                load(b, base + i, s);
                observe_whole(s, at_step(b, span, i, b.elapsed[base + i]), obs);
                for (int j = 0; j < OBS; j++) policy.obs[j][i] = kept(obs[j], call.obs_bfloat16);
            }
            value_tile(call, count, policy);
            memcpy(call.value + row + b.num_envs, policy.value, count * sizeof(float));
        }
#endif
    }
}

template <int POLICY, bool TRAJECTORY>
static void rollout_tiles(const Batch* b, const Call* call, i64 first, i64 last) {
    for (i64 tile = first; tile < last; tile++) {
        if (!CARRIES && call->default_bounds) rollout_tile<POLICY, TRAJECTORY, true>(*b, *call, tile);
        else rollout_tile<POLICY, TRAJECTORY, false>(*b, *call, tile);
    }
}
#define ROLLOUT(NAME, POLICY, TRAJECTORY) \
    EXPORT void rollout_##NAME(const Batch* b, const Call* c, i64 first, i64 last) { \
        rollout_tiles<POLICY, TRAJECTORY>(b, c, first, last); \
    }
#if HIDDEN
ROLLOUT(mlp_statistics, MLP, false)
ROLLOUT(mlp_trajectory, MLP, true)
#else
ROLLOUT(random_statistics, RANDOM, false)
ROLLOUT(random_trajectory, RANDOM, true)
#if NUMBERS == 1
ROLLOUT(linear_statistics, LINEAR, false)
ROLLOUT(linear_trajectory, LINEAR, true)
#endif
#endif
