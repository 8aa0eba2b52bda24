// MountainCar with a continuous force, as in Gymnasium's MountainCarContinuous-v0. Params holds the constants of port.py.
#include "kernels/state.cuh"

struct MountainCarContinuous {
    static constexpr real LOW = -1, HIGH = 1;  // of an action
    static constexpr int RETURN_PER_STEP = 0;

    // state: position (m), velocity (m per step)
    static FN void reset(State& s, const Place& at, const u32* words) {
        s[0] = uniform(words[0], at.bounds[0], at.bounds[1]);
        s[1] = real(0);
    }

    static FN void step(State& s, Action action, const Place&, Outcome& out) {
        real &position = s[0], &velocity = s[1];

        real sine, cosine;
        sincos_wide(real(3) * position, sine, cosine);
        velocity += clipped(action, LOW, HIGH) * Params::power - real(0.0025) * cosine;
        velocity = clipped(velocity, -Params::max_speed, Params::max_speed);
        const real moved = position + velocity;
        position = clipped(moved, Params::min_position, Params::max_position);
        velocity = (moved <= Params::min_position) & (velocity < 0) ? real(0) : velocity;  // stopped by the wall

        const bool terminated = (position >= Params::goal_position) & (velocity >= Params::goal_velocity);
        out.terminated[0] = terminated;
        out.reward[0] = float((terminated ? real(100) : real(0)) - action * action * real(0.1));  // of the unclipped action
    }

    static FN void observe(const State& s, const Place&, float* obs) {
        obs[0] = float(s[0]);
        obs[1] = float(s[1]);
    }
};

typedef MountainCarContinuous Environment;
