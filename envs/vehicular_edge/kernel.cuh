// Vehicular edge computing: one slot of one environment, by the lanes of its block.
#pragma once
#include "layout.cuh"
#include "decide.cuh"
#include "radio.cuh"
#include "queues.cuh"

struct Environment {
    enum : int {
        STATE = STATE_LENGTH, OBS = OBSERVATION, REWARDS = 1,
        METRICS = METRIC_COUNT + (PROFILE ? 5 : 0),  // cycles of three stages, and what block.cuh counts
        RECORD = TRACE ? RECORD_LENGTH : 0, AGENTS = 2, RAW = AGENTS * ACTION, TARGETS = TASKS, SHARES = ::SHARES,
    };
    typedef ::Scratch Scratch;
    static constexpr bool FROZEN = P::frozen_scenario;

    // Empty queues; the first running scales where those are not kept.
    static STAGE void start(Scratch& s, const Tables& x, bool fresh) {
        for (int n = lane(); n < (fresh ? STATE : int(EPISODIC)); n += LANES) s.state[n] = n < EPISODIC ? real(0) : x.running[n - EPISODIC];
        sync();
    }
    FN static void read(Scratch& s, const float* raw) { read_raw(s, raw); }
    FN static bool reads(int k) { return k < TASKS || (k >= ACTION && k < ACTION + ::SHARES); }
    FN static void read_one(Scratch& s, int k, float number) { read_number(s, k, number); }
    FN static void read(Scratch& s, const int* targets, const float* shares) { read_integers(s, targets, shares); }

    static STAGE bool step(Scratch& s, const Tables& tables, const Place& at, float* rewards, float* metrics, real* record) {
        const Slot x(tables, at);
        float* const cycles = metrics + METRIC_COUNT;
        Watch watch;
        x.foresee();
        decide(s, x);
        watch.lap(cycles[0]);
        noma(s, x);
        watch.lap(cycles[1]);
        update_queues(s, x, record);
        watch.lap(cycles[2]);
        rewards[0] = float(judge(s, x, metrics, record));
        if (TRACE) {
            trace(s, x, record);
            const Place next = {at.scenario, at.t + 1};
            observe_slot(s, Slot(tables, next), next.t, record + OBSERVED);
        }
        sync();
        return false;
    }
    static STAGE void observe(Scratch& s, const Tables& tables, const Place& at, float* row) {
        observe_slot(s, Slot(tables, at), at.t, row);
    }
};
