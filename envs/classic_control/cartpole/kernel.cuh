// CartPole: Barto, Sutton, Anderson (1983), as in Gymnasium's CartPole-v1. Params holds the constants of port.py.
#include "kernels/state.cuh"

struct CartPole {
    static constexpr int RETURN_PER_STEP = Params::sutton_barto_reward ? 0 : 1;

    // state: x (m), x_dot (m/s), theta (rad), theta_dot (rad/s)
    static FN void reset(State& s, const Place& at, const u32* words) {
        for (int j = 0; j < REALS; j++) s[j] = uniform(words[j], at.bounds[0], at.bounds[1]);
    }

    static FN void step(State& s, Action action, const Place&, Outcome& out) {
        constexpr real total_mass = Params::masscart + Params::masspole;
        constexpr real polemass_length = Params::masspole * Params::length;
        constexpr real inverse_mass = real(1) / total_mass;
        constexpr real tau = Params::tau;
        real &x = s[0], &x_dot = s[1], &theta = s[2], &theta_dot = s[3];

        real sin_theta, cos_theta;
        sincos_narrow(theta, sin_theta, cos_theta);
        const real force = action ? Params::force_mag : -Params::force_mag;
        const real push = fused(polemass_length * theta_dot * theta_dot, sin_theta, force) * inverse_mass;
        const real inertia = Params::length * fused(-Params::masspole * inverse_mass * cos_theta, cos_theta, real(4.0 / 3.0));
        const real theta_acc = fused(Params::gravity, sin_theta, -cos_theta * push) / inertia;
        const real x_acc = fused(-polemass_length * inverse_mass * theta_acc, cos_theta, push);

        if (Params::kinematics_integrator_is_euler) {
            x = fused(tau, x_dot, x);
            x_dot = fused(tau, x_acc, x_dot);
            theta = fused(tau, theta_dot, theta);
            theta_dot = fused(tau, theta_acc, theta_dot);
        } else {  // semi-implicit: velocities first
            x_dot = fused(tau, x_acc, x_dot);
            x = fused(tau, x_dot, x);
            theta_dot = fused(tau, theta_acc, theta_dot);
            theta = fused(tau, theta_dot, theta);
        }

        const bool terminated = (magnitude(x) > Params::x_threshold) | (magnitude(theta) > Params::theta_threshold_radians);
        out.terminated[0] = terminated;
        out.reward[0] = Params::sutton_barto_reward ? (terminated ? -1.0f : 0.0f) : 1.0f;
    }

    static FN void observe(const State& s, const Place&, float* obs) {
        for (int j = 0; j < OBS; j++) obs[j] = float(s[j]);
    }

    static FN float episode_return(int length, bool terminated) {
        return Params::sutton_barto_reward ? (terminated ? -1.0f : 0.0f) : float(length);
    }
};

typedef CartPole Environment;
