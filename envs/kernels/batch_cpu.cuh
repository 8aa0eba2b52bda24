// The CPU form: branch-free vector loops over a tile, then a scalar pass over the few environments whose episode ended.
// Every exported function handles the tiles first .. last-1, so that a pool can share them out.
#pragma once
#include <string.h>

#define EXPORT extern "C" __attribute__((visibility("default")))
enum { NEVER = 0x7ffffffe };  // longer than any episode
enum { VECTOR = 16 };  // loops over stack arrays run to a multiple of this, so that they need no remainder

static inline int padded(int count) { return (count + VECTOR - 1) / VECTOR * VECTOR; }

// Positions of the non-zero bytes of flags [TILE], which is zero from count on.
static inline int collect(const u8* flags, int count, int* positions) {
    int found = 0;
    for (int i = 0; i < count; i += 64) {
        u64 bits = 0;
        for (int j = 0; j < 8 && i + 8 * j < TILE; j++) {
            u64 bytes;
            memcpy(&bytes, flags + i + 8 * j, 8);
            bits |= ((bytes * 0x0102040810204080ull) >> 56) << (8 * j);  // eight bytes of 0 or 1 to eight bits
        }
        for (; bits; bits &= bits - 1) positions[found++] = i + __builtin_ctzll(bits);
    }
    return found;
}

struct alignas(64) Words {
    u32 word[4][TILE];
};

static inline void reset_words(const Span& span, const int* positions, int count, const u32* episode, Words& w) {
    for (int k = 0; k < count; k++) {
        w.word[0][k] = span.index + positions[k];
        w.word[1][k] = episode[positions[k]];
    }
    for (int k = count; k < padded(count); k++) w.word[0][k] = w.word[1][k] = 0;
    memset(w.word[2], 0, sizeof(u32) * padded(count));
    for (int k = 0; k < padded(count); k++) w.word[3][k] = STREAM_RESET;
    philox_many(w.word[0], w.word[1], w.word[2], w.word[3], padded(count), span.key);
}

// The listed environments of a tile start their next episode (b.episode already names it).
static inline void start_episodes(const Batch& b, const Span& span, const int* positions, int count) {
    if (count == 0) return;
    Words w;
    reset_words(span, positions, count, b.episode + span.base, w);
    for (int k = 0; k < count; k++) {
        const u32 words[4] = {w.word[0][k], w.word[1][k], w.word[2][k], w.word[3][k]};
        start_episode(b, span.base + positions[k], words);
    }
}

template <typename Action>
static void step_tile(const Batch& b, i64 tile, const Action* actions) {
    const Span span = span_of(b, tile);
    const i64 base = span.base;
    const int count = span.count;
    alignas(64) u32 inert[TILE], fell[TILE];
    alignas(64) u8 newly[TILE] = {}, resetting[TILE] = {};
    int positions[TILE];

    if (AUTORESET != SAME_STEP) {
        VECTORISE
        for (int i = 0; i < count; i++) inert[i] = resetting[i] = b.ended[base + i];
    }
    VECTORISE
    for (int i = 0; i < count; i++) {
        const bool live = AUTORESET == SAME_STEP || !inert[i];
        real before[STATE], s[STATE];
        float reward, obs[OBS];
        bool terminated;
        load(b, base + i, before);
        for (int j = 0; j < STATE; j++) s[j] = before[j];
        Environment::step(s, nearest(actions[i]), reward, terminated);
        for (int j = 0; j < STATE; j++) s[j] = live ? s[j] : before[j];
        save(b, base + i, s);
        b.reward[base + i] = live ? reward : 0.0f;
        if (RUNNING_RETURN) b.running_return[base + i] += live ? reward : 0.0f;
        fell[i] = terminated ? 1u : 0u;
        if (!VIEW) {
            Environment::observe(s, obs);
            for (int j = 0; j < OBS; j++) b.obs[(base + i) * OBS + j] = obs[j];
        }
    }
    // A byte may alias anything, so pointers are taken out of the struct before bytes are written, here and below.
    ELAPSED* const elapsed = b.elapsed + base;
    u8 *const terminated = b.terminated + base, *const truncated = b.truncated + base, *const ended = b.ended + base;
    VECTORISE
    for (int i = 0; i < count; i++) {
        const u8 live = AUTORESET == SAME_STEP || !inert[i];
        const ELAPSED length = ELAPSED(elapsed[i] + live);
        const u8 down = live ? u8(fell[i]) : terminated[i], late = live ? u8(length >= LIMIT) : truncated[i];
        elapsed[i] = length;
        terminated[i] = down;
        truncated[i] = late;
        ended[i] = down | late;
        newly[i] = (down | late) & live;
    }
    b.clock[tile] += 1;

    if (AUTORESET == NEXT_STEP) {
        const int count_resets = collect(resetting, count, positions);
        memcpy(b.is_reset + base, resetting, count);
        for (int k = 0; k < count_resets; k++) {
            const i64 i = base + positions[k];
            b.terminated[i] = b.truncated[i] = b.ended[i] = 0;
            b.episode[i] += 1;
        }
        start_episodes(b, span, positions, count_resets);
    }
    const int count_ended = collect(newly, count, positions);
    if (count_ended == 0) return;
    Episodes episodes;
    for (int k = 0; k < count_ended; k++) {
        const i64 i = base + positions[k];
        real s[STATE];
        load(b, i, s);
        finish_episode(b, i, s, episodes);
        if (AUTORESET == SAME_STEP) b.episode[i] += 1;
    }
    episodes.store(b, tile);
    if (AUTORESET == SAME_STEP) start_episodes(b, span, positions, count_ended);
}

template <typename Action>
static void step_tiles(const Batch* batch, const Call* call, i64 first, i64 last) {
    const Batch b = *batch;
    const Action* actions = static_cast<const Action*>(call->input);
    for (i64 tile = first; tile < last; tile++) step_tile(b, tile, actions + span_of(b, tile).base);
}
EXPORT void step_uint8(const Batch* b, const Call* c, i64 first, i64 last) { step_tiles<u8>(b, c, first, last); }
EXPORT void step_int32(const Batch* b, const Call* c, i64 first, i64 last) { step_tiles<int>(b, c, first, last); }
EXPORT void step_int64(const Batch* b, const Call* c, i64 first, i64 last) { step_tiles<i64>(b, c, first, last); }

// The first environment whose action lies outside the space, or -1.
template <typename Action>
static i64 invalid_action(const Action* actions, i64 count) {
    u32 any = 0;
    VECTORISE
    for (i64 i = 0; i < count; i++) any |= actions[i] < Action(0) || actions[i] >= Action(Environment::ACTIONS);
    if (any)
        for (i64 i = 0; i < count; i++)
            if (actions[i] < Action(0) || actions[i] >= Action(Environment::ACTIONS)) return i;
    return -1;
}
EXPORT i64 invalid_uint8(const u8* actions, i64 count) { return invalid_action(actions, count); }
EXPORT i64 invalid_int32(const int* actions, i64 count) { return invalid_action(actions, count); }
EXPORT i64 invalid_int64(const i64* actions, i64 count) { return invalid_action(actions, count); }

EXPORT void reset(const Batch* batch, const Call* call, i64 first, i64 last) {
    const Batch b = *batch;
    const u8* mask = static_cast<const u8*>(call->input);
    for (i64 tile = first; tile < last; tile++) {
        const Span span = span_of(b, tile);
        int positions[TILE], count = 0;
        for (int i = 0; i < span.count; i++)
            if (!mask || mask[span.base + i]) positions[count++] = i;
        for (int k = 0; k < count; k++) {
            const i64 i = span.base + positions[k];
            b.episode[i] = call->fresh ? 0 : b.episode[i] + 1;
            b.terminated[i] = b.truncated[i] = b.ended[i] = 0;
            b.reward[i] = 0.0f;
        }
        start_episodes(b, span, positions, count);
    }
}

// Observations of the present state, after a state was put in from outside.
EXPORT void observe(const Batch* batch, const Call*, i64 first, i64 last) {
    for (i64 tile = first; tile < last; tile++) {
        const Span span = span_of(*batch, tile);
        for (i64 i = span.base; i < span.base + span.count; i++) {
            real s[STATE];
            load(*batch, i, s);
            if (!VIEW) observe(s, batch->obs + i * OBS);
        }
    }
}

static inline void random_words(const Span& span, i64 block, Words& w) {
    for (int i = 0; i < padded(span.count); i++) {
        w.word[0][i] = span.index + i;
        w.word[1][i] = 0;
        w.word[2][i] = u32(block);
        w.word[3][i] = STREAM_RANDOM_POLICY;
    }
    philox_many(w.word[0], w.word[1], w.word[2], w.word[3], padded(span.count), span.key);
}

// The random policy's actions for the next K steps.
EXPORT void random_actions(const Batch* b, const Call* call, i64 first, i64 last) {
    for (i64 tile = first; tile < last; tile++) {
        const Span span = span_of(*b, tile);
        Words w;
        for (i64 k = 0; k < call->steps; k++) {
            const i64 t = b->clock[tile] + k;
            if (k == 0 || t % BITS == 0) random_words(span, t / BITS, w);
            const u32* word = w.word[(t >> 5) & 3];
            u8* row = call->actions + k * b->num_envs + span.base;
            VECTORISE
            for (int i = 0; i < span.count; i++) row[i] = u8((word[i] >> (t & 31)) & 1);
        }
    }
}

#if AUTORESET == 1
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
#endif
