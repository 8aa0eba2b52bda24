// Walkers: see port.py. Streams of noise: 1 in the proposal, 2 in a step, 3 in an observation; words[a] is agent a's.
#include "kernels/lanes.cuh"

#define PHASES(PHASE) PHASE(propose)

struct Walkers {
    struct alignas(16) Scratch {
        double doubles[DOUBLES];  // walked
        real state[REALS];        // place [A], wish [A, 2], pull [A]
        int integers[INTEGERS];   // steps
        int action[AGENTS * NUMBERS];

        FN real& place(int a) { return state[a]; }
        FN real& wish(int a, int k) { return state[AGENTS + 2 * a + k]; }
        FN real& pull(int a) { return state[3 * AGENTS + a]; }
    };
    FN static void start(Scratch& s, const Place& at, bool) {
        u32 words[4];
        at.noise(4, words);
        for (int k = lane(); k < REALS; k += LANES) s.state[k] = k < AGENTS ? uniform(words[k], real(-1), real(1)) : real(0);
        for (int a = lane(); a < AGENTS; a += LANES) {
            s.doubles[a] = 0.0;
            s.integers[a] = 0;
        }
        sync();
    }

    FN static void read(Scratch& s, const int* row) {
        for (int k = lane(); k < AGENTS * NUMBERS; k += LANES) {
            const int last = k % NUMBERS ? 4 : 2;
            s.action[k] = row[k] < 0 ? 0 : row[k] > last ? last : row[k];
        }
        sync();
    }

    // A walk to the left, to nowhere or to the right, and so many quarters more.
    FN static void propose(Scratch& s, const Place& at) {
        u32 words[4];
        at.noise(1, words);
        for (int a = lane(); a < AGENTS; a += LANES) {
            s.wish(a, 0) = real(s.action[NUMBERS * a] - 1);
            s.wish(a, 1) = real(s.action[NUMBERS * a + 1] - 2) * real(0.25) + uniform(words[a], real(-0.5), real(0.5));
        }
        sync();
    }

    FN static void step(Scratch& s, const Place& at, Outcome& out, float* metrics, real* record) {
        u32 words[4];
        at.noise(2, words);
        for (int a = lane(); a < AGENTS; a += LANES) {
            if (!at.plays(a)) continue;
            s.place(a) = s.place(a) + s.pull(a) + uniform(words[a], real(-0.25), real(0.25));
            s.doubles[a] += double(magnitude(s.pull(a)));
            s.integers[a] += 1;
        }
        sync();
        for (int a = 0; a < AGENTS; a++) {  // of those who play no more the batch takes nothing
            out.reward[a] = at.plays(a) ? float(s.place(a)) : 99.0f;
            out.terminated[a] = magnitude(s.place(a)) > Params::goal;
        }
        for (int a = lane(); TRACE && a < AGENTS; a += LANES) record[a] = s.pull(a);
        if (lane() == 0) {
            metrics[0] = 0.0f;
            for (int a = 0; a < AGENTS; a++) metrics[0] += float(at.plays(a));
            metrics[1] = float(s.integers[0]);
            metrics[2] = float(s.doubles[0]);
        }
        sync();
    }

    FN static void observe(Scratch& s, const Place& at, float* rows) {
        u32 words[4];
        at.noise(3, words);
        for (int a = lane(); a < AGENTS; a += LANES) {
            rows[OBS * a] = float(s.place(a));
            rows[OBS * a + 1] = float(s.doubles[a]);
            rows[OBS * a + 2] = float(s.integers[a]);
            rows[OBS * a + 3] = float(at.t);
            rows[OBS * a + 4] = float(uniform(words[a], real(-1), real(1)));
        }
        sync();
    }
};

typedef Walkers Environment;
