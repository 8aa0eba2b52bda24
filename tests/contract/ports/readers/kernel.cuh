// Readers: see port.py.
#define OVER 1
#define CARRIES 1
#define TAIL 5
#include "kernels/state.cuh"

struct Tables {
    const float* pages;  // [7, 5]
};

struct Readers {
    static constexpr int RETURN_PER_STEP = 0;

    static FN void reset(State& s, const Place& at, const u32* words) {
        s[0] = uniform(words[1], real(-1), real(1));
        s.integers[0] = at.episode == 0 ? 0 : s.integers[0] + 1;
    }

    static FN void step(State& s, Action action, const Place& at, Outcome& out) {
        s[0] = s[0] * Params::inertia + action[0] - action[1];
        out.reward[0] = float(s[0]);
        out.terminated[0] = s[0] > real(2.6);
        out.over = at.t + 1 == 25;
        out.metrics[0] = float(at.t);
        out.metrics[1] = float(s.integers[0]);
    }

    static FN void observe(const State& s, const Place&, float* obs) { obs[0] = float(s[0]); }

    static FN const float* tail(const State&, const Place& at) { return at.tables.pages + (at.index + u32(at.t)) % 7 * 5; }
};

typedef Readers Environment;
