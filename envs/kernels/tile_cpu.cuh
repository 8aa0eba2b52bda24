// The CPU form: branch-free vector loops over a tile, then a scalar pass over the few environments whose episode ended.
// Every exported function handles the tiles first .. last-1, so that a pool can share them out.
#pragma once

enum { NEVER = 0x7ffffffe };  // steps; longer than any episode that a machine gets through
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

FN u32 bit(bool x) { return x ? 1u : 0u; }

// s, or the state before where an environment stands still.
FN void choose(State& s, bool live, const State& before) {
WRITTEN_OUT
    for (int j = 0; j < REALS; j++) s.of[j] = live ? s.of[j] : before.of[j];
#if DOUBLES
WRITTEN_OUT
    for (int j = 0; j < DOUBLES; j++) s.doubles[j] = live ? s.doubles[j] : before.doubles[j];
#endif
#if INTEGERS
WRITTEN_OUT
    for (int j = 0; j < INTEGERS; j++) s.integers[j] = live ? s.integers[j] : before.integers[j];
#endif
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
        const Place at = first_place(b, span, positions[k], b.episode[span.base + positions[k]], words);
        State s;
        if (CARRIES) load(b, at.environment, s);
        Environment::reset(s, at, words);
        begin(b, at, s);
    }
}

// The actions of a tile: one number each as they are given, several as columns.
#if NUMBERS == 1
template <typename Given>
struct Actions {
    const Given* given;
    FN Action of(int i) const { return action_of(given, i); }
};
#else
struct Actions {
    alignas(64) Number given[NUMBERS][TILE];
    FN Action of(int i) const {
        Action action;
WRITTEN_OUT
        for (int k = 0; k < NUMBERS; k++) action.of[k] = given[k][i];
        return action;
    }
};
#endif
// Vector loops write rows of a few numbers; of longer ones they leave columns.
enum : bool { BY_COLUMN = !VIEW && HEAD > 8 };

#if NUMBERS == 1
template <typename Given>
static void step_tile(const Batch& b, i64 tile, const Actions<Given>& actions) {
#else
static __attribute__((noinline)) void step_tile(const Batch& b, i64 tile, const Actions& actions) {
#endif
    const Span span = span_of(b, tile);
    const i64 base = span.base;
    const int count = span.count;
    alignas(64) u32 inert[TILE], fell[TILE], over[OVER ? TILE : 1];
    alignas(64) u8 newly[TILE] = {}, resetting[TILE] = {};
    int positions[TILE];
    alignas(64) STORED float head[BY_COLUMN ? int(HEAD) : 1][TILE];
    alignas(64) float metric[METRICS > 0 ? METRICS : 1][TILE];

    if (AUTORESET != SAME_STEP) {
        VECTORISE
        for (int i = 0; i < count; i++) inert[i] = resetting[i] = b.ended[base + i];
    }
    VECTORISE
    for (int i = 0; i < count; i++) {
        const bool live = AUTORESET == SAME_STEP || !inert[i];
        State before;
        Outcome out;
        float obs[HEAD];
        const Place at = at_step(b, span, i, b.elapsed[base + i]);
        load(b, base + i, before);
        State s = before;
        Environment::step(s, actions.of(i), at, out);
        choose(s, live, before);
        save(b, base + i, s);
        b.reward[base + i] = live ? out.reward[0] : 0.0f;
        if (RUNNING_RETURN) b.running_return[base + i] += live ? out.reward[0] : 0.0f;
#if METRICS
WRITTEN_OUT
        for (int n = 0; n < METRICS; n++) metric[n][i] = live ? out.metrics[n] : 0.0f;
#endif
        fell[i] = out.terminated[0] ? 1u : 0u;
        if (OVER) over[i] = out.over ? 1u : 0u;
        if (!VIEW) {
            Environment::observe(s, at_step(b, span, i, b.elapsed[base + i] + live), obs);
WRITTEN_OUT
            for (int j = 0; j < HEAD; j++) (BY_COLUMN ? head[j][i] : b.obs[(base + i) * OBS + j]) = obs[j];
        }
    }
    for (int i = 0; i < count; i++)
        for (int n = 0; n < METRICS; n++) b.metrics[(base + i) * METRICS + n] = metric[n][i];
    for (int i = 0; BY_COLUMN && i < count; i++)
        for (int j = 0; j < HEAD; j++) b.obs[(base + i) * OBS + j] = head[j][i];
    for (int i = 0; TAIL && i < count; i++) {
        State s;
        load(b, base + i, s);
        const bool live = AUTORESET == SAME_STEP || !inert[i];
        write_tail(s, at_step(b, span, i, b.elapsed[base + i] + live), b.obs + (base + i) * OBS);
    }
    // A byte may alias anything, so pointers are taken out of the struct before bytes are written, here and below.
    ELAPSED* const elapsed = b.elapsed + base;
    u8 *const terminated = b.terminated + base, *const truncated = b.truncated + base, *const ended = b.ended + base;
    VECTORISE
    for (int i = 0; i < count; i++) {
        const u8 live = AUTORESET == SAME_STEP || !inert[i];
        const ELAPSED length = ELAPSED(elapsed[i] + live);
        const u8 cut = OVER ? u8(over[i]) : u8(0);
        const u8 down = live ? u8(fell[i]) : terminated[i], late = live ? u8(length >= LIMIT) | cut : truncated[i];
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
        State s;
        load(b, i, s);
        const int length = b.elapsed[i];
        const float value = return_of(RUNNING_RETURN ? b.running_return[i] : 0.0f, length, b.terminated[i]);
        finish_episode(b, at_step(b, span, positions[k], length), s, length, value, episodes);
        if (AUTORESET == SAME_STEP) b.episode[i] += 1;
    }
    episodes.store(b, tile);
    if (AUTORESET == SAME_STEP) start_episodes(b, span, positions, count_ended);
}

template <typename Given>
static void step_tiles(const Batch* batch, const Call* call, i64 first, i64 last) {
    const Batch b = *batch;
    const Given* actions = static_cast<const Given*>(call->input);
    for (i64 tile = first; tile < last; tile++) {
        const Span span = span_of(b, tile);
#if NUMBERS == 1
        step_tile(b, tile, Actions<Given>{actions + span.base});
#else
        Actions columns;
        for (int i = 0; i < span.count; i++)
            for (int k = 0; k < NUMBERS; k++) columns.given[k][i] = admitted(actions[(span.base + i) * NUMBERS + k], k);
        step_tile(b, tile, columns);
#endif
    }
}

// Words of the random policy's block that holds step t, for a whole tile.
static inline void random_block(const Span& span, i64 t, Words& w) {
    for (int i = 0; i < padded(span.count); i++) {
        w.word[0][i] = span.index + i;
        w.word[1][i] = 0;
        w.word[2][i] = u32(t / PER_BLOCK);
        w.word[3][i] = STREAM_RANDOM_POLICY;
    }
    philox_many(w.word[0], w.word[1], w.word[2], w.word[3], padded(span.count), span.key);
}

#if NUMBERS > 1
// The random policy's actions at step t of a whole tile, a row for each number.
static inline void random_columns(const Span& span, i64 t, Actions& actions) {
    for (int quad = 0; 4 * quad < NUMBERS; quad++) {
        Words w;
        for (int i = 0; i < padded(span.count); i++) {
            w.word[0][i] = span.index + i;
            w.word[1][i] = quad;
            w.word[2][i] = u32(t);
            w.word[3][i] = STREAM_RANDOM_POLICY;
        }
        philox_many(w.word[0], w.word[1], w.word[2], w.word[3], padded(span.count), span.key);
        for (int k = 4 * quad; k < NUMBERS && k < 4 * quad + 4; k++) {
            VECTORISE
            for (int i = 0; i < padded(span.count); i++) actions.given[k][i] = Number(random_number(w.word[k % 4][i], k));
        }
    }
}

static inline void store_columns(const Actions& actions, int count, Stored* rows) {
    for (int i = 0; i < count; i++)
        for (int k = 0; k < NUMBERS; k++) rows[i * NUMBERS + k] = Stored(actions.given[k][i]);
}
#endif

#if HIDDEN == 0 && !defined ONLY_ROLLOUTS  // the library of an MLP has rollouts alone
#define FOR_ACTIONS(Given, name) \
    EXPORT void step_##name(const Batch* b, const Call* c, i64 first, i64 last) { step_tiles<Given>(b, c, first, last); } \
    EXPORT i64 outside_##name(const Given* actions, i64 count) { return first_outside(actions, count); }
#if CONTINUOUS
FOR_ACTIONS(float, float32)
FOR_ACTIONS(double, float64)
#else
FOR_ACTIONS(u8, uint8)
FOR_ACTIONS(int, int32)
FOR_ACTIONS(i64, int64)
#endif

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
            clear_metrics(b, i);
        }
        start_episodes(b, span, positions, count);
    }
}

// Observations of the present state, after a state was put in from outside.
EXPORT void observe(const Batch* batch, const Call*, i64 first, i64 last) {
    for (i64 tile = first; tile < last; tile++) {
        const Span span = span_of(*batch, tile);
        for (i64 i = span.base; i < span.base + span.count; i++) {
            State s;
            load(*batch, i, s);
            if (!VIEW) observe(s, at_step(*batch, span, int(i - span.base), batch->elapsed[i]), batch->obs + i * OBS);
        }
    }
}

// The random policy's actions for the next K steps.
EXPORT void random_actions(const Batch* b, const Call* call, i64 first, i64 last) {
    for (i64 tile = first; tile < last; tile++) {
        const Span span = span_of(*b, tile);
        Words w;
        for (i64 k = 0; k < call->steps; k++) {
            const i64 t = b->clock[tile] + k;
            Stored* row = call->actions + (k * b->num_envs + span.base) * NUMBERS;
#if NUMBERS > 1
            Actions actions;
            random_columns(span, t, actions);
            store_columns(actions, span.count, row);
#else
            if (k == 0 || t % PER_BLOCK == 0) random_block(span, t, w);
            const u32* word = w.word[word_of_block(t)];
            VECTORISE
            for (int i = 0; i < span.count; i++) store(row + i, random_action(word[i], t));
#endif
        }
    }
}
#endif

#if AUTORESET == 1 && !defined ONLY_STEPS
#include "rollout_cpu.cuh"
#endif
