// Vehicular edge computing: one slot of one environment, by the lanes of its block.
#pragma once
#define READS_NUMBERS
#include "kernels/lanes.cuh"
#include "layout.cuh"
#include "decide.cuh"
#include "radio.cuh"
#include "queues.cuh"

struct Environment {
    typedef ::Scratch Scratch;

    // Empty queues; the first running scales where those are not kept.
    static STAGE void start(Scratch& s, const Place& at, bool fresh) {
        const real* const running = at.tables.running;
        for (int n = lane(); n < (fresh ? REALS : int(EPISODIC)); n += LANES) s.state[n] = n < EPISODIC ? real(0) : running[n - EPISODIC];
        sync();
    }
    FN static void read(Scratch& s, const float* raw) { read_raw(s, raw); }
    FN static bool reads(int k) { return k < TASKS || (k >= ACTION && k < ACTION + SHARES); }
    FN static void read_one(Scratch& s, int k, float number) { read_number(s, k, number); }
    FN static void read(Scratch& s, const Given& given, i64 e) { read_integers(s, given.target + e * TASKS, given.share + e * SHARES); }

    static STAGE void step(Scratch& s, const Place& at, Outcome& out, float* metrics, real* record) {
        const Slot x(at);
        float* const cycles = metrics + METRIC_COUNT;
        Watch watch;
        x.foresee();
        decide(s, x);
        watch.lap(cycles);
        noma(s, x);
        watch.lap(cycles + 1);
        update_queues(s, x, record);
        watch.lap(cycles + 2);
        out.reward[0] = float(judge(s, x, metrics, record));
        if (TRACE) {
            trace(s, x, record);
            Place next = at;
            next.t += 1;
            observe_slot(s, Slot(next), next.t, record + OBSERVED);
        }
        out.terminated[0] = false;
        sync();
    }
    static STAGE void observe(Scratch& s, const Place& at, float* row) {
        observe_slot(s, Slot(at), at.t, row);
    }
};
