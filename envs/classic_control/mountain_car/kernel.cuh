// MountainCar: Moore (1990), as in Gymnasium's MountainCar-v0. Params holds the constants of port.py.
#include "kernels/state.cuh"

struct MountainCar {
    static constexpr int RETURN_PER_STEP = -1;

    // state: position (m), velocity (m per step)
    static FN void reset(State& s, const Place& at, const u32* words) {
        s[0] = uniform(words[0], at.bounds[0], at.bounds[1]);
        s[1] = real(0);
    }

    static FN void step(State& s, Action action, const Place&, Outcome& out) {
        real &position = s[0], &velocity = s[1];

        real sine, cosine;
        sincos_wide(real(3) * position, sine, cosine);
        velocity += real(action - 1) * Params::force - Params::gravity * cosine;
        velocity = clipped(velocity, -Params::max_speed, Params::max_speed);
        const real moved = position + velocity;
        position = clipped(moved, Params::min_position, Params::max_position);
        velocity = (moved <= Params::min_position) & (velocity < 0) ? real(0) : velocity;  // stopped by the wall

        const bool terminated = (position >= Params::goal_position) & (velocity >= Params::goal_velocity);
        out.terminated[0] = terminated;
        out.reward[0] = -1.0f;
    }

    static FN void observe(const State& s, const Place&, float* obs) {
        obs[0] = float(s[0]);
        obs[1] = float(s[1]);
    }

    static FN float episode_return(int length, bool terminated) { return -float(length); }
};

typedef MountainCar Environment;
