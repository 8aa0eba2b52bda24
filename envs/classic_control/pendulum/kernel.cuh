// Pendulum swing-up, as in Gymnasium's Pendulum-v1. Params holds the constants of port.py.
#include "kernels/state.cuh"

struct Pendulum {
    static constexpr real LOW = -2, HIGH = 2;  // of an action: torque (N m)
    static constexpr int RETURN_PER_STEP = 0;

    // state: theta (rad, 0 is upright, kept within half a turn), theta_dot (rad/s)
    static FN void reset(State& s, const Place& at, const u32* words) {
        s[0] = wrapped(uniform(words[0], -at.bounds[0], at.bounds[0]));
        s[1] = uniform(words[1], -at.bounds[1], at.bounds[1]);
    }

    static FN void step(State& s, Action action, const Place&, Outcome& out) {
        constexpr real pull = real(3.0) * Params::g / (real(2.0) * Params::l);
        constexpr real drive = real(3.0) / (Params::m * Params::l * Params::l);
        real &theta = s[0], &theta_dot = s[1];

        const real torque = clipped(action, LOW, HIGH);
        theta = wrapped(theta);
        out.reward[0] = float(-(theta * theta + real(0.1) * theta_dot * theta_dot + real(0.001) * torque * torque));

        real sine, cosine;
        sincos_wide(theta, sine, cosine);
        theta_dot = fused(pull * sine + drive * torque, Params::dt, theta_dot);
        theta_dot = clipped(theta_dot, -Params::max_speed, Params::max_speed);
        theta = wrapped(fused(theta_dot, Params::dt, theta));
        out.terminated[0] = false;
    }

    static FN void observe(const State& s, const Place&, float* obs) {
        real sine, cosine;
        sincos_wide(s[0], sine, cosine);
        obs[0] = float(cosine);
        obs[1] = float(sine);
        obs[2] = float(s[1]);
    }
};

typedef Pendulum Environment;
