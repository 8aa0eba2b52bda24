// Currents and boats (README.md, 2.1 to 2.3). Velocities through the water are kept in body axes during a control step, where a turn
// is a small rotation, so that no substep waits for the sine of a heading.
#pragma once
#include "layout.cuh"

FN void add_core(const real* core, real x, real y, real& u, real& v) {
    const real dx = x - core[0], dy = y - core[1];
    const real factor = core[2] * core[3] / larger(dx * dx + dy * dy, squared(P::core_radius));
    u += factor * dy;
    v -= factor * dx;
}

// The current of all cores that the episode has.
FN void current(const Scratch& s, real x, real y, real& u, real& v) {
    u = v = 0;
    const real* const cores = s.state + CORE;
    if (!P::vortex_shadowing) {
        for (int k = 0; k < s.cores(); k++) add_core(cores + 4 * k, x, y, u, v);
        return;
    }
    const int count = s.cores();
    u64 left = count == 64 ? ~u64(0) : (u64(1) << count) - 1, kept = 0;
    while (left) {  // nearest first
        int nearest = 0;
        real least = 0;
        bool first = true;
        for (u64 rest = left; rest; rest &= rest - 1) {
            const int k = lowest_set(rest);
            const real dx = x - cores[4 * k], dy = y - cores[4 * k + 1], d2 = dx * dx + dy * dy;
            if (first || d2 < least) {
                nearest = k;
                least = d2;
                first = false;
            }
        }
        left &= ~(u64(1) << nearest);
        bool counts = true;
        for (u64 rest = kept; rest; rest &= rest - 1) {
            const real *const one = cores + 4 * nearest, *const other = cores + 4 * lowest_set(rest);
            counts &= !((x - one[0]) * (x - other[0]) + (y - one[1]) * (y - other[1]) > 0);
        }
        if (!counts) continue;
        kept |= u64(1) << nearest;
        add_core(cores + 4 * nearest, x, y, u, v);
    }
}

struct Boat {
    real x, y, heading;             // where the control step began, and from `arrive` on where it has led
    real moved_x, moved_y, turned;  // since it began: small numbers, so that sums of substeps round little
    real cosine, sine;
    real u, v, r;          // through the water, in body axes, and yaw rate; of the kinematic boat own speed, nothing, turn rate
    real push, twist;      // N, N m; of the kinematic boat acceleration, nothing
    real vx, vy, turning;  // as reported
    real goal_x, goal_y, far;  // far: from the goal at first, then by how much nearer it came
};

FN real thrust(real before, real rate) { return clipped(before + PERIOD * rate, P::thrust_low, P::thrust_high); }

FN Boat boat_of(const Scratch& s, int i) {
    Boat b;
    const real* const x = s.state;
    b.x = x[POSE + 3 * i];
    b.y = x[POSE + 3 * i + 1];
    b.heading = x[POSE + 3 * i + 2];
    b.goal_x = x[GOAL + 2 * i];
    b.goal_y = x[GOAL + 2 * i + 1];
    b.u = x[THRUSTER ? WATER + 2 * i : SPEED + i];
    b.v = THRUSTER ? x[WATER + 2 * i + 1] : real(0);
    if (THRUSTER) {
        const real left = thrust(x[THRUST + 2 * i], s.order[2 * i]), right = thrust(x[THRUST + 2 * i + 1], s.order[2 * i + 1]);
        b.push = left + right;
        b.twist = P::lever * (left - right);
        b.r = x[YAW + i];
    } else {
        b.push = s.order[2 * i];
        b.twist = 0;
        b.r = s.order[2 * i + 1];
    }
    b.moved_x = b.moved_y = b.turned = b.vx = b.vy = b.turning = b.cosine = b.sine = b.far = 0;
    return b;
}

FN real goal_distance(const Boat& b) {
    const real dx = b.goal_x - b.x, dy = b.goal_y - b.y;
    return root(dx * dx + dy * dy);
}

FN void cast_off(Boat& b) {
    sincos_wide(b.heading, b.sine, b.cosine);
    const real wx = b.u, wy = b.v;
    if (THRUSTER) {
        b.u = b.cosine * wx + b.sine * wy;
        b.v = b.cosine * wy - b.sine * wx;
    }
    b.far = goal_distance(b);
}

FN real within_a_turn(real heading) {
    const real turn = real(2 * PI), lifted = heading < 0 ? heading + turn : heading;
    return lifted >= turn ? lifted - turn : lifted;
}

// An angle of less than a turn either way, of one of less than two.
FN real unwound(real turned) {
    const real turn = real(2 * PI);
    return turned >= turn ? turned - turn : turned <= -turn ? turned + turn : turned;
}

FN void set_ground(Boat& b, real u, real v) {
    b.vx = b.cosine * b.u - b.sine * b.v + u;
    b.vy = b.sine * b.u + b.cosine * b.v + v;
    b.turning = b.r;
}

// One substep in a current (u, v) at the boat.
FN void substep(Boat& b, real u, real v) {
    constexpr real dt = P::dt;
    set_ground(b, u, v);
    b.moved_x += b.vx * dt;
    b.moved_y += b.vy * dt;
    const real turn = b.r * dt;
    real s, c;
    if (TURNS_WIDE) sincos_wide(turn, s, c);
    else sincos_narrow(turn, s, c);
    b.turned = unwound(b.turned + turn);
    const real cosine = b.cosine * c - b.sine * s, sine = b.sine * c + b.cosine * s;
    b.cosine = cosine;
    b.sine = sine;
    if (THRUSTER) {
        constexpr real m = P::mass, X = P::added_surge;
        constexpr real surge = dt / (m - X), sway = dt / m, yaw = dt / (P::inertia - P::added_yaw);
        const real ur = c * b.u + s * b.v, vr = c * b.v - s * b.u, r = b.r;
        real along = X * r * vr, across = X * ur * r;
        if (P::turn_counted_twice) {
            along = m * r * (vr + (cosine * v - sine * u));
            across -= m * r * (ur + (cosine * u + sine * v));
        }
        b.u = ur + (along - (P::surge_drag + P::surge_drag_square * magnitude(ur)) * ur + b.push) * surge;
        b.v = vr + (across - (P::sway_drag + P::sway_drag_square * magnitude(vr)) * vr) * sway;
        b.r = r + (b.twist - X * ur * vr - (P::yaw_drag + P::yaw_drag_square * magnitude(r)) * r) * yaw;
    } else {
        b.u = clipped(b.u + (b.push - P::speed_drag * b.u) * dt, real(0), P::top_speed);
    }
}

// After the last substep, in a current (u, v) at the boat.
FN void arrive(Boat& b, real u, real v) {
    b.x += b.moved_x;
    b.y += b.moved_y;
    b.heading = within_a_turn(b.heading + b.turned);
    sincos_wide(b.heading, b.sine, b.cosine);
    if (!P::velocity_lag) set_ground(b, u, v);
    b.far -= goal_distance(b);
}

FN void put(Scratch& s, int i, const Boat& b) {
    real* const x = s.state;
    x[POSE + 3 * i] = b.x;
    x[POSE + 3 * i + 1] = b.y;
    x[POSE + 3 * i + 2] = b.heading;
    x[GROUND + 2 * i] = b.vx;
    x[GROUND + 2 * i + 1] = b.vy;
    s.gained[i] = b.far;
    s.cosine[i] = b.cosine;
    s.sine[i] = b.sine;
    if (!THRUSTER) {
        x[SPEED + i] = b.u;
        x[ENERGY + i] += magnitude(b.push) / P::acceleration + magnitude(b.r) / P::turn_rate;
        return;
    }
    x[WATER + 2 * i] = b.cosine * b.u - b.sine * b.v;
    x[WATER + 2 * i + 1] = b.sine * b.u + b.cosine * b.v;
    x[YAW + i] = b.r;
    x[REPORTED_YAW + i] = b.turning;
    real spent = 0;
    for (int n = 0; n < 2; n++) {
        real& force = x[THRUST + 2 * i + n];
        force = thrust(force, s.order[2 * i + n]);
        spent += magnitude(force);
    }
    x[ENERGY + i] += spent * PERIOD;
}

#if LANE_WALK

static STAGE void sail(Scratch& s, u64 playing) {
    for (int i = lane(); i < A; i += LANES) {
        if (!(playing >> i & 1)) continue;
        Boat b = boat_of(s, i);
        real u = 0, v = 0;
        cast_off(b);
        for (int k = 0; k < P::substeps; k++) {
            if (C) current(s, b.x + b.moved_x, b.y + b.moved_y, u, v);
            substep(b, u, v);
        }
        if (C && !P::velocity_lag) current(s, b.x + b.moved_x, b.y + b.moved_y, u, v);
        arrive(b, u, v);
        put(s, i, b);
    }
    sync();
}

#else

enum : int { WIDTH = padded_to(TOGETHER * A, 16) };

struct Fleet {  // boats of several environments, a row for each number
    alignas(64) real row[19][WIDTH], x[WIDTH], y[WIDTH], u[WIDTH], v[WIDTH];  // x, y: where each is; u, v: the current there
    alignas(64) real core[C ? C : 1][3][WIDTH];              // x, y, strength of the cores of each one's environment

    FN Boat at(int i) const {
        return {row[0][i], row[1][i], row[2][i], row[3][i], row[4][i], row[5][i], row[6][i], row[7][i], row[8][i], row[9][i],
                row[10][i], row[11][i], row[12][i], row[13][i], row[14][i], row[15][i], row[16][i], row[17][i], row[18][i]};
    }
    FN void set(int i, const Boat& b) {
        row[0][i] = b.x, row[1][i] = b.y, row[2][i] = b.heading, row[3][i] = b.moved_x, row[4][i] = b.moved_y;
        row[5][i] = b.turned, row[6][i] = b.cosine, row[7][i] = b.sine, row[8][i] = b.u, row[9][i] = b.v;
        row[10][i] = b.r, row[11][i] = b.push, row[12][i] = b.twist, row[13][i] = b.vx, row[14][i] = b.vy;
        row[15][i] = b.turning, row[16][i] = b.goal_x, row[17][i] = b.goal_y, row[18][i] = b.far;
    }
};

FN void set_currents(Fleet& fleet) {
    for (int n = 0; n < WIDTH; n++) {
        const Boat b = fleet.at(n);
        fleet.x[n] = b.x + b.moved_x;
        fleet.y[n] = b.y + b.moved_y;
        fleet.u[n] = fleet.v[n] = 0;
    }
    if (P::vortex_shadowing) {
        for (int n = 0; n < boarded * A; n++) current(*aboard[n / A].s, fleet.x[n], fleet.y[n], fleet.u[n], fleet.v[n]);
        return;
    }
    for (int k = 0; k < C; k++) {
        VECTORISE
        for (int n = 0; n < WIDTH; n++) {
            const real core[4] = {fleet.core[k][0][n], fleet.core[k][1][n], 1, fleet.core[k][2][n]};
            add_core(core, fleet.x[n], fleet.y[n], fleet.u[n], fleet.v[n]);
        }
    }
}

// The substeps of all who boarded.
static STAGE void sail() {
    static thread_local Fleet fleet;
    for (int n = 0; n < boarded * A; n++) fleet.set(n, boat_of(*aboard[n / A].s, n % A));
    for (int k = 0; k < C; k++)
        for (int n = 0; n < boarded * A; n++) {
            const Scratch& s = *aboard[n / A].s;
            const real* const core = s.state + CORE + 4 * k;
            fleet.core[k][0][n] = core[0];
            fleet.core[k][1][n] = core[1];
            fleet.core[k][2][n] = k < s.cores() ? core[2] * core[3] : real(0);
        }
    VECTORISE
    for (int i = 0; i < WIDTH; i++) {
        Boat b = fleet.at(i);
        cast_off(b);
        fleet.set(i, b);
    }
    for (int k = 0; k < P::substeps; k++) {
        if (C) set_currents(fleet);
        VECTORISE
        for (int i = 0; i < WIDTH; i++) {
            Boat b = fleet.at(i);
            substep(b, fleet.u[i], fleet.v[i]);
            fleet.set(i, b);
        }
    }
    if (C && !P::velocity_lag) set_currents(fleet);
    VECTORISE
    for (int i = 0; i < WIDTH; i++) {
        Boat b = fleet.at(i);
        arrive(b, fleet.u[i], fleet.v[i]);
        fleet.set(i, b);
    }
    for (int n = 0; n < boarded * A; n++)
        if (aboard[n / A].crew >> n % A & 1) put(*aboard[n / A].s, n % A, fleet.at(n));
}

#endif

// The first reported velocity. The current was left out by the published code, of drawn episodes.
FN void set_first_velocities(Scratch& s, const Place& at) {
    const bool still = P::start_without_current && !SONAR && !(SCENARIOS && at.tables.counts[at.scenario * 6 + 5]);
    for (int i = lane(); i < s.robots(); i += LANES) {
        real u = 0, v = 0, cosine, sine;
        if (C && !still) current(s, s.pose(i)[0], s.pose(i)[1], u, v);
        const real speed = THRUSTER ? real(0) : s.state[SPEED + i];
        sincos_wide(s.pose(i)[2], sine, cosine);
        s.ground(i)[0] = speed * cosine + u;
        s.ground(i)[1] = speed * sine + v;
    }
    sync();
}
