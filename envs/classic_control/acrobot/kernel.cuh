// Acrobot: Sutton (1996), as in Gymnasium's Acrobot-v1. Params holds the constants of port.py.
#define LONG_STEP 1
#include "kernels/state.cuh"

struct Acrobot {
    static constexpr int RETURN_PER_STEP = 0;

    // state: theta1 (rad, 0 hangs down), theta2 (rad, relative to the first link), their speeds (rad/s)
    static FN void reset(State& s, const Place& at, const u32* words) {
        for (int j = 0; j < REALS; j++) s[j] = uniform(words[j], at.bounds[0], at.bounds[1]);
    }

    // Angular accelerations in state s (m: mass, l: length, c: centre of mass, i: moment of inertia).
    static FN void accelerations(const real* s, real torque, real& acc1, real& acc2) {
        constexpr real m1 = Params::LINK_MASS_1, m2 = Params::LINK_MASS_2, l1 = Params::LINK_LENGTH_1;
        constexpr real c1 = Params::LINK_COM_POS_1, c2 = Params::LINK_COM_POS_2, i = Params::LINK_MOI, g = real(9.8);
        constexpr real coupling = m2 * l1 * c2;
        real sin1, cos1, sin2, cos2;
        sincos_wide(s[0], sin1, cos1);
        sincos_wide(s[1], sin2, cos2);
        const real speed1 = s[2], speed2 = s[3];
        const real sin12 = fused(sin1, cos2, cos1 * sin2);  // of theta1 + theta2

        const real d1 = fused(2 * coupling, cos2, m1 * c1 * c1 + m2 * (l1 * l1 + c2 * c2) + 2 * i);
        const real d2 = fused(coupling, cos2, m2 * c2 * c2 + i);
        const real phi2 = m2 * c2 * g * sin12;
        const real swing = coupling * sin2;
        const real phi1 = fused(-swing * speed2, fused(real(2), speed1, speed2), fused((m1 * c1 + m2 * l1) * g, sin1, phi2));
        const real centrifugal = Params::book_or_nips_is_book ? swing * speed1 * speed1 : real(0);
        // Numerator and denominator of the original times d1, which saves a division.
        acc2 = fused(d2, phi1, d1 * (torque - centrifugal - phi2)) / fused(m2 * c2 * c2 + i, d1, -d2 * d2);
        acc1 = -fused(d2, acc2, phi1) / d1;
    }

    static FN void step(State& s, Action action, const Place&, Outcome& out) {
        constexpr real dt = Params::dt, half = Params::dt / 2;
        const real torque = real(action - 1);

        // One step of the classical Runge-Kutta method. A stage: speeds and accelerations in a state.
        real at[REALS], speed1[4], speed2[4], acc1[4], acc2[4];
        UNROLL
        for (int stage = 0; stage < 4; stage++) {
            const real h = stage == 3 ? dt : half;
            const int before = stage == 0 ? 0 : stage - 1;
            at[0] = stage == 0 ? s[0] : fused(h, speed1[before], s[0]);
            at[1] = stage == 0 ? s[1] : fused(h, speed2[before], s[1]);
            at[2] = stage == 0 ? s[2] : fused(h, acc1[before], s[2]);
            at[3] = stage == 0 ? s[3] : fused(h, acc2[before], s[3]);
            speed1[stage] = at[2];
            speed2[stage] = at[3];
            accelerations(at, torque, acc1[stage], acc2[stage]);
        }
        s[0] = wrapped(fused(dt / 6, total(speed1), s[0]));
        s[1] = wrapped(fused(dt / 6, total(speed2), s[1]));
        s[2] = clipped(fused(dt / 6, total(acc1), s[2]), -Params::MAX_VEL_1, Params::MAX_VEL_1);
        s[3] = clipped(fused(dt / 6, total(acc2), s[3]), -Params::MAX_VEL_2, Params::MAX_VEL_2);

        real sin1, cos1, sin2, cos2;
        sincos_wide(s[0], sin1, cos1);
        sincos_wide(s[1], sin2, cos2);
        const bool terminated = -cos1 - fused(cos1, cos2, -sin1 * sin2) > real(1);
        out.terminated[0] = terminated;
        out.reward[0] = terminated ? 0.0f : -1.0f;
    }

    static FN real total(const real* stage) { return stage[0] + real(2) * (stage[1] + stage[2]) + stage[3]; }

    static FN void observe(const State& s, const Place&, float* obs) {
        real sin1, cos1, sin2, cos2;
        sincos_wide(s[0], sin1, cos1);
        sincos_wide(s[1], sin2, cos2);
        obs[0] = float(cos1);
        obs[1] = float(sin1);
        obs[2] = float(cos2);
        obs[3] = float(sin2);
        obs[4] = float(s[2]);
        obs[5] = float(s[3]);
    }

    static FN float episode_return(int length, bool terminated) { return float(terminated - length); }
};

typedef Acrobot Environment;
