// Crypto trading: a bar of the account of one environment (README.md is the model).
#pragma once
#include "layout.cuh"
#include "ruled.cuh"
#if PUBLISHED
#include "published.cuh"
#else
#include "clean.cuh"
#endif

enum : u32 { STREAM_START = 1 };

struct CryptoTrading {
    static constexpr int RETURN_PER_STEP = 0;

    // First bar and bar after the last of an episode's window.
    static FN void set_window(State& s, const Place& at) {
        const Tables& tables = at.tables;
        i64 row = WINDOWS_IN_TURN ? i64((u64(at.index) + at.episode) % u64(SEGMENTS)) : at.environment, offset = 0;
        if (P::starts_is_random) {
            u32 words[4];
            at.noise(STREAM_START, words);
            const i64 place = i64(u64(words[0]) * u64(tables.places[SEGMENTS]) >> 32);
            for (row = 0; tables.places[row + 1] <= place; row++) {}
            offset = place - tables.places[row];
        }
        const int first = tables.windows[2 * row] + int(offset);
        s.integers[FIRST] = first;
        s.integers[LAST] = P::starts_is_random ? first + WINDOW : tables.windows[2 * row + 1];
    }

    static FN void reset(State& s, const Place& at, const u32*) {
        const bool carries = P::carry_over & (at.episode > 0);
        set_window(s, at);
        const double* const first = at.tables.price + s.integers[FIRST] * N;
        double benchmark = 0;
        for (int i = 0; i < N; i++) {
            const double units = FAIR ? 0.0 : CAPITAL / (N * first[i] * (TWO ? 1.0 + FEE_BUY : 1.0));
            s[HOLDINGS + i] = 0;
            s[UNITS + i] = real(units);
            s.integers[AGE + i] = 0;
            if (CLEAN) s[AVERAGE + i] = 0;
            if (STOPS) s[PEAK + i] = 0;
            benchmark += double(s[UNITS + i]) * first[(L - 1) * N + i];
        }
        s.doubles[CASH] = s.doubles[VALUE] = CAPITAL;
        if (!carries) s.doubles[BENCHMARK] = FAIR ? CAPITAL : benchmark;
        if (P::terminal_sum && !carries) s.doubles[RUNNING] = 0;
    }

    static FN void step(State& s, const Action& action, const Place& at, Outcome& out) {
#if PUBLISHED
        step_published(s, action, at, out);
#else
        step_clean(s, action, at, out);
#endif
    }

    static FN void observe(const State& s, const Place& at, float* obs) {
#if PUBLISHED
        observe_published(s, at, obs);
#else
        observe_clean(s, at, obs);
#endif
    }

    // Features of the bar and of those before it.
    static FN const float* tail(const State& s, const Place& at) {
        const int bar = P::leak_features ? s.integers[LAST] - 1 : row_at(s, at.t);
        return at.tables.features + i64(ROWS - 1 - (bar < ROWS ? bar : ROWS - 1)) * F;
    }
};

typedef CryptoTrading Environment;
