// Counters: see port.py. Streams of noise: 1 in a step, 2 in an observation.
#define LONG_STEP 2
#include "kernels/state.cuh"

struct Tables {
    const real* weight;   // [scenarios]
    const int* patience;  // [B] steps to the right that end an episode
};

struct Counters {
    static FN void reset(State& s, const Place& at, const u32* words) {
        s[0] = uniform(words[1], real(-1), real(1));
        s[1] = uniform(words[2], real(-1), real(1));
        s[2] = at.tables.weight[at.scenario];
        s.doubles[0] = 0.0;
        s.integers[0] = s.integers[1] = 0;
    }

    static FN void step(State& s, Action action, const Place& at, Outcome& out) {
        u32 words[4];
        at.noise(1, words);
        const real push = s[2] * action[0] + action[1] * real(0.25) + action[2];
        s[0] = s[0] + push + uniform(words[0], -Params::shake, Params::shake);
        s[1] = s[1] * real(0.5) + real(at.t);
        s.doubles[0] += double(push);
        s.integers[0] += s[0] > 0;
        s.integers[1] = int(words[1] & 7);
        out.reward[0] = float(s[0]);
        out.terminated[0] = s.integers[0] >= at.tables.patience[at.environment];
    }

    static FN void observe(const State& s, const Place& at, float* obs) {
        u32 words[4];
        at.noise(2, words);
        for (int j = 0; j < 3; j++) obs[j] = float(s[j]);
        obs[3] = float(s.doubles[0]);
        obs[4] = float(s.integers[0]);
        obs[5] = float(s.integers[1]);
        obs[6] = float(uniform(words[0], real(-1), real(1)));
    }
};

typedef Counters Environment;
