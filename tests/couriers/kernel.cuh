// Couriers: see port.py. Streams of noise: 1 at the start, 2 in a step; words[a] is agent a's.
#include "kernels/lanes.cuh"

struct Tables {
    const real* wind;  // [scenarios]
};

struct Couriers {
    struct alignas(16) Scratch {
        double doubles[DOUBLES];  // battery
        real state[REALS];        // heading
        int integers[INTEGERS];   // trips
        int action[AGENTS];
    };
    FN static void start(Scratch& s, const Place& at, bool) {
        u32 words[4];
        at.noise(1, words);
        for (int a = lane(); a < AGENTS; a += LANES) {
            s.state[a] = uniform(words[a], real(-3), real(3));
            s.doubles[a] = 1.0;
            s.integers[a] = 0;
        }
        sync();
    }

    FN static void read(Scratch& s, const int* row) {
        for (int a = lane(); a < AGENTS; a += LANES) s.action[a] = row[a] < 0 ? 0 : row[a] > 2 ? 2 : row[a];
        sync();
    }

    FN static void step(Scratch& s, const Place& at, Outcome& out, float*, real*) {
        u32 words[4];
        at.noise(2, words);
        for (int a = lane(); a < AGENTS; a += LANES) {
            if (!at.plays(a)) continue;
            const real turned = s.state[a] + (real(s.action[a] - 1) + at.tables.wind[at.scenario]);
            const real pi = real(3.141592653589793);
            s.state[a] = turned > pi ? turned - 2 * pi : turned < -pi ? turned + 2 * pi : turned;
            s.doubles[a] -= double(Params::drain) * (1.0 + double(uniform(words[a], real(0), real(1))));
            s.integers[a] += s.action[a] == 2;
        }
        sync();
        for (int a = 0; a < AGENTS; a++) {
            out.reward[a] = float(s.state[a] * real(0.5)) + float(s.integers[a]);
            out.terminated[a] = s.doubles[a] <= 0.0;
        }
        sync();
    }

    FN static void observe(Scratch& s, const Place& at, float* rows) {
        for (int a = lane(); a < AGENTS; a += LANES) {
            rows[OBS * a] = float(s.state[a]);
            rows[OBS * a + 1] = float(s.doubles[a]);
            rows[OBS * a + 2] = float(s.integers[a]);
            rows[OBS * a + 3] = float(at.tables.wind[at.scenario]);
        }
        sync();
    }
};

typedef Couriers Environment;
