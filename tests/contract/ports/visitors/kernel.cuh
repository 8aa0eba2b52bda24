// Visitors: see port.py. Streams of noise: 2 in a step, 4 at a start; words[a] is agent a's, words[3] says whether a step ends all.
#include "kernels/lanes.cuh"

struct Tables {
    const real* home;  // [scenarios]
};

struct Environment {
    struct alignas(16) Scratch {
        real state[REALS];        // place [A]
        int integers[INTEGERS];   // here [A]
        int action[AGENTS];
    };

    FN static u64 present(const Scratch& s) {
        u64 found = 0;
        for (int a = 0; a < AGENTS; a++) found |= u64(s.integers[a]) << a;
        return found;
    }
    FN static void start(Scratch& s, const Place& at, bool) {
        u32 words[4];
        at.noise(4, words);
        for (int a = lane(); a < AGENTS; a += LANES) {
            s.integers[a] = words[a] % 4 != 0;
            s.state[a] = at.tables.home[at.scenario] + uniform(words[a], real(-1), real(1));
        }
        sync();
    }
    FN static void read(Scratch& s, const int* row) {
        for (int a = lane(); a < AGENTS; a += LANES) s.action[a] = row[a];
        sync();
    }
    FN static void step(Scratch& s, const Place& at, Outcome& out, float* metrics, real*) {
        u32 words[4];
        at.noise(2, words);
        for (int a = lane(); a < AGENTS; a += LANES) {
            const real pace = real(s.action[a] - 1) * real(0.5) + uniform(words[a], real(-0.25), real(0.25));
            if (at.plays(a)) s.state[a] += pace;
            metrics[1 + a] = float(pace);
            out.flags[a] = magnitude(s.state[a]) > 1;
            out.amounts[1 + a] = s.action[a] - 1 - 70000 * a;
        }
        sync();
        for (int a = 0; a < AGENTS; a++) {
            out.reward[a] = float(s.state[a]);
            out.terminated[a] = magnitude(s.state[a]) > Params::goal;
        }
        out.over = words[3] % 8 == 0;
        if (lane() == 0) {
            metrics[0] = float(at.clock);
            out.flags[AGENTS] = at.active == (u64(1) << AGENTS) - 1;
            out.amounts[0] = at.scenario;
        }
    }
    FN static void observe(Scratch& s, const Place& at, float* rows) {
        for (int a = lane(); a < AGENTS; a += LANES) {
            rows[OBS * a] = float(s.state[a]);
            rows[OBS * a + 1] = float(set_bits(at.shown));
            rows[OBS * a + 2] = float(at.clock) + 1.0f;
        }
        sync();
    }
};
