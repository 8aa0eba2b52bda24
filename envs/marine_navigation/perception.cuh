// Sight of obstacles and of other robots, and collisions with them (README.md, 2.4 and 2.5).
#pragma once
#include "layout.cuh"

enum : u32 { STREAM_PERCEPTION = 256, PER_OBSERVER = 128, ROBOT_OBJECT = 32 };
constexpr real NOWHERE = real(1e30), UNIT = real(5.9604644775390625e-8);
// Beyond it, and an object's largest radius, nothing is seen: no noise is longer than sqrt(48 ln 2) standard deviations.
constexpr real FARTHEST = P::perception_range + real(5.7683) * P::position_noise;

// Obstacles, and the robots named, where they are in world axes.
FN void set_objects(Scratch& s, u64 robots) {
    for (int k = lane(); k < (LANE_WALK ? K : KP); k += LANES) {
        s.x[k] = NOWHERE;
        s.y[k] = s.vx[k] = s.vy[k] = s.radius[k] = 0;
    }
    sync();
    for (int k = lane(); k < s.obstacles(); k += LANES) {
        const real* const obstacle = s.state + OBSTACLE + 3 * k;
        s.x[k] = obstacle[0];
        s.y[k] = obstacle[1];
        s.radius[k] = obstacle[2];
    }
    for (int i = lane(); i < A; i += LANES) {
        if (!(robots >> i & 1)) continue;
        s.x[O + i] = s.pose(i)[0];
        s.y[O + i] = s.pose(i)[1];
        s.vx[O + i] = s.ground(i)[0];
        s.vy[O + i] = s.ground(i)[1];
        s.radius[O + i] = P::collision_radius;
    }
    sync();
}

FN void set_axes(Scratch& s, u64 robots) {
    for (int i = lane(); i < A; i += LANES)
        if (robots >> i & 1) sincos_wide(s.pose(i)[2], s.sine[i], s.cosine[i]);
    sync();
}

// 1: robot i is in an obstacle, 2: in another robot.
FN u32 hits_of(const Scratch& s, int i, real x, real y) {
    u32 hit = 0;
    VECTORISE
    for (int k = 0; k < (LANE_WALK ? K : KP); k++) {
        const real dx = s.x[k] - x, dy = s.y[k] - y;
        const bool touches = dx * dx + dy * dy <= squared(P::collision_radius + s.radius[k]);
        hit |= touches & (k != O + i) ? (k < O ? 1u : 2u) : 0u;
    }
    return s.blind(i) ? hit & 1 : hit;
}

// The five of the smallest gaps, nearest first; of equals the first.
struct Nearest {
    real gap[SLOTS];
    int id[SLOTS], count;

    FN Nearest() : count(0) {
UNROLL
        for (int q = 0; q < SLOTS; q++) {
            gap[q] = NOWHERE;
            id[q] = 0;
        }
    }
    FN bool wants(real distance) const { return distance < gap[SLOTS - 1]; }
    FN int room() const { return count < SLOTS ? count : id[SLOTS - 1]; }  // of five, where one who is wanted finds a place
    FN void admit(real distance, int one) {
        count += count < SLOTS;
UNROLL
        for (int q = SLOTS - 1; q >= 0; q--) {
            const bool behind = gap[q] > distance;
            if (q < SLOTS - 1) {
                gap[q + 1] = behind ? gap[q] : gap[q + 1];
                id[q + 1] = behind ? id[q] : id[q + 1];
            }
            gap[q] = behind ? distance : gap[q];
            id[q] = behind ? one : id[q];
        }
    }
};

// Written fused, since GCC 12 fuses a sum and a difference of products side by side even with -ffp-contract=off.
FN void to_body(const Scratch& s, int i, real x, real y, real& ahead, real& starboard) {
    ahead = fused(s.cosine[i], x, s.sine[i] * y);
    starboard = fused(s.cosine[i], y, -s.sine[i] * x);
}

// ---- the thruster version ---------------------------------------------------------------------------------------------------

FN void normals(u32 first, u32 second, real& x, real& y) {
    const real radius = root(real(-2) * natural_log(real(int(first >> 8) + 1) * UNIT));
    real sine, cosine;
    sincos_wide(real(2 * PI) * (real(int(second >> 8)) * UNIT), sine, cosine);
    x = radius * cosine;
    y = radius * sine;
}

// Linear between the knots; the place among these, 4095 u, is exact in integers.
FN real von_mises(u32 word, const real* knots) {
    const u32 u = word >> 8, low = (u & 4095) << 12, borrow = low < u;
    const u32 knot = (u >> 12) - borrow, rest = low - u + (borrow << 24);
    return knots[knot] + real(int(rest)) * UNIT * (knots[knot + 1] - knots[knot]);
}

struct Neighbour {
    real x, y, vx, vy, radius, gap;  // in body axes of the observer
    int seen, concerns;
};

// The rules of the road ask to give way, as far as boxes and angles say so. e: own velocity.
FN bool concerned(const Neighbour& one, real eu, real ev) {
    const real speed2 = one.vx * one.vx + one.vy * one.vy;
    const real c = one.vx / root(speed2), s = one.vy / root(speed2);
    const real x = -(c * one.x + s * one.y), y = s * one.x - c * one.y, ex = c * eu + s * ev, ey = c * ev - s * eu;
    const bool head_on = (x >= real(HEAD_ON_FIRST)) & (x <= real(HEAD_ON_LAST)) & (magnitude(y) <= real(HEAD_ON_WIDE)) & (ex < 0) & (magnitude(ey) < -ex);
    const bool behind = (x >= real(CROSSING_FIRST)) & (x <= real(CROSSING_LAST)) & (y >= real(CROSSING_LEAST)) & (y <= 0);
    const bool crossing = behind & (y <= real(-CROSSING_SLOPE) * x) & (ey >= magnitude(ex));
    return (speed2 >= real(SLOW * SLOW)) & (eu * eu + ev * ev >= real(SLOW * SLOW)) & (head_on | crossing);
}

// An object at (dx, dy) from its observer, whose axes are (c, s) and whose velocity is (eu, ev) in them.
FN Neighbour neighbour(const u32* words, u32 word, const real* knots, real dx, real dy, real vx, real vy, real radius, real c, real s, real eu, real ev) {
    real nx, ny, nu, nv;
    normals(words[0], words[1], nx, ny);
    normals(words[2], words[3], nu, nv);
    const real x = dx + P::position_noise * nx, y = dy + P::position_noise * ny;
    const real u = vx + P::velocity_noise * nu, v = vy + P::velocity_noise * nv;
    Neighbour one;
    one.x = c * x + s * y;
    one.y = c * y - s * x;
    one.vx = c * u + s * v;
    one.vy = c * v - s * u;
    one.radius = radius * (P::radius_mean + P::radius_spread * (von_mises(word, knots) * real(1 / PI)));
    const real distance = root(x * x + y * y);
    one.gap = distance - one.radius;
    one.seen = distance <= P::perception_range + one.radius;
    one.concerns = concerned(one, eu, ev);
    return one;
}

FN u32 stream_of(const Scratch& s, int i, int k) {
    return STREAM_PERCEPTION + PER_OBSERVER * u32(P::shared_noise ? s.integers[NOISE_ID + i] : i) + 2 * u32(k < O ? k : int(ROBOT_OBJECT) + k - O);
}

FN bool near(const Scratch& s, int i, int k, real x, real y) {
    const real dx = s.x[k] - x, dy = s.y[k] - y;
    return (dx * dx + dy * dy <= squared(FARTHEST + s.radius[k] * (P::radius_mean + P::radius_spread))) & (k != O + i);
}

FN void keep(real* slot, const Neighbour& one) {
    slot[0] = one.x;
    slot[1] = one.y;
    slot[2] = one.vx;
    slot[3] = one.vy;
    slot[4] = one.radius;
    slot[5] = real(one.concerns);
}

#if LANE_WALK

FN void perceive(Scratch& s, const Place& at, u64 observers) {
    for (int i = lane(); i < A; i += LANES) {
        s.slots[i] = 0;
        if (!(observers >> i & 1)) continue;
        const real x = s.pose(i)[0], y = s.pose(i)[1], c = s.cosine[i], n = s.sine[i];
        real eu, ev;
        to_body(s, i, s.ground(i)[0], s.ground(i)[1], eu, ev);
        Nearest nearest;
        for (int k = 0; k < K; k++) {
            if (!near(s, i, k, x, y)) continue;
            u32 words[4], more[4];
            const u32 stream = stream_of(s, i, k);
            words_of(at, u32(at.t), stream, words);
            words_of(at, u32(at.t), stream + 1, more);
            const Neighbour one = neighbour(words, more[0], at.tables.knots, s.x[k] - x, s.y[k] - y, s.vx[k], s.vy[k], s.radius[k], c, n, eu, ev);
            if (!one.seen || !nearest.wants(one.gap)) continue;
            const int room = nearest.room();
            keep(s.slot[i][room], one);
            nearest.admit(one.gap, room);
        }
        s.slots[i] = u8(nearest.count);
UNROLL
        for (int q = 0; q < SLOTS; q++) s.place[i][q] = u8(nearest.id[q]);
    }
    sync();
}

#else

enum : int { PAIRS = padded_to(TOGETHER * A * K, 16) };

struct Pairs {  // of observers and objects that may be seen, by environment, observer and object
    int count, end[TOGETHER * A];  // of an observer's
    u8 group[PAIRS], observer[PAIRS], object[PAIRS];
    alignas(64) u32 word[4][2 * PAIRS];
    alignas(64) real dx[PAIRS], dy[PAIRS], vx[PAIRS], vy[PAIRS], radius[PAIRS], c[PAIRS], s[PAIRS], wx[PAIRS], wy[PAIRS];
    alignas(64) real gap[PAIRS];
    alignas(64) int seen[PAIRS], concerns[PAIRS];
};

// of environments first .. last - 1 of those who boarded.
FN void find_pairs(int first, int last, Pairs& pairs) {
    int n = 0;
    for (int both = first * A; both < last * A; both++) {
        const int g = both / A, i = both % A;
        const Scratch& s = *aboard[g].s;
        pairs.end[both] = n;
        if (!(aboard[g].crew >> i & 1)) continue;
        alignas(64) int here[KP];
        const real x = s.state[POSE + 3 * i], y = s.state[POSE + 3 * i + 1];
        VECTORISE
        for (int k = 0; k < KP; k++) here[k] = near(s, i, k, x, y);
        for (int k = 0; k < K; k++) {
            pairs.group[n] = u8(g);
            pairs.observer[n] = u8(i);
            pairs.object[n] = u8(k);
            n += here[k];
        }
        pairs.end[both] = n;
    }
    pairs.count = n;
}

FN void describe(Pairs& pairs) {
    for (int n = 0; n < pairs.count; n++) {
        const Aboard& of = aboard[pairs.group[n]];
        Scratch& s = *of.s;
        const int i = pairs.observer[n], k = pairs.object[n];
        pairs.word[0][n] = of.index;
        pairs.word[1][n] = of.episode;
        pairs.word[2][n] = of.t;
        pairs.word[3][n] = stream_of(s, i, k);
        pairs.dx[n] = s.x[k] - s.pose(i)[0];
        pairs.dy[n] = s.y[k] - s.pose(i)[1];
        pairs.vx[n] = s.vx[k];
        pairs.vy[n] = s.vy[k];
        pairs.radius[n] = s.radius[k];
        pairs.c[n] = s.cosine[i];
        pairs.s[n] = s.sine[i];
        pairs.wx[n] = s.state[GROUND + 2 * i];
        pairs.wy[n] = s.state[GROUND + 2 * i + 1];
    }
}

// Sight of the observers of environments first .. last - 1, whose seeds are one.
static STAGE void perceive(int first, int last) {
    static thread_local Pairs pairs;
    Pairs& p = pairs;
    find_pairs(first, last, p);
    const int N = padded_to(p.count, 16);
    describe(p);
    for (int n = 0; n < N; n++) {
        for (int k = 0; k < 3; k++) p.word[k][N + n] = p.word[k][n];
        p.word[3][N + n] = p.word[3][n] + 1;
    }
    philox_many(p.word[0], p.word[1], p.word[2], p.word[3], 2 * N, aboard[first].key);
    const real* const knots = aboard[first].knots;
    VECTORISE
    for (int n = 0; n < N; n++) {
        const u32 words[4] = {p.word[0][n], p.word[1][n], p.word[2][n], p.word[3][n]};
        const Neighbour one = neighbour(words, p.word[0][N + n], knots, p.dx[n], p.dy[n], p.vx[n], p.vy[n], p.radius[n], p.c[n], p.s[n],
                                        p.c[n] * p.wx[n] + p.s[n] * p.wy[n], p.c[n] * p.wy[n] - p.s[n] * p.wx[n]);
        p.dx[n] = one.x;
        p.dy[n] = one.y;
        p.vx[n] = one.vx;
        p.vy[n] = one.vy;
        p.radius[n] = one.radius;
        p.gap[n] = one.gap;
        p.seen[n] = one.seen;
        p.concerns[n] = one.concerns;
    }
    int n = 0;
    for (int both = first * A; both < last * A; both++) {
        const int i = both % A;
        Scratch& s = *aboard[both / A].s;
        Nearest nearest;
        for (; n < p.end[both]; n++)
            if (p.seen[n]) nearest.admit(p.gap[n], n);
        s.slots[i] = u8(nearest.count);
        for (int q = 0; q < nearest.count; q++) {
            const int one = nearest.id[q];
            s.place[i][q] = u8(q);
            keep(s.slot[i][q], {p.dx[one], p.dy[one], p.vx[one], p.vy[one], p.radius[one], 0, 1, p.concerns[one]});
        }
    }
}

FN void board(Scratch& s, const Place& at, u64 crew, int t) {
    aboard[boarded++] = {&s, crew, at.key, at.index, at.episode, u32(t), at.tables.knots};
}

FN void perceive_all() {
    for (int first = 0, last = 0; first < boarded; first = last) {
        while (last < boarded && aboard[last].key == aboard[first].key) last++;
        perceive(first, last);
    }
}

FN void perceive(Scratch& s, const Place& at, u64 observers) {
    board(s, at, observers, at.t);
    perceive(0, 1);
    boarded = 0;
}

#endif

// The angle by which the nearest neighbour that asks for it is to be given way, 0 without one.
FN real give_way(const Scratch& s, int i) {
    for (int q = 0; q < s.slots[i]; q++) {
        const real* const one = s.slot[i][s.place[i][q]];
        if (one[5] == 0) continue;
        const real distance = root(one[0] * one[0] + one[1] * one[1]), bound = one[4] + real(MARGIN);
        if (!(distance >= bound)) continue;
        real eu, ev;
        to_body(s, i, s.state[GROUND + 2 * i], s.state[GROUND + 2 * i + 1], eu, ev);
        const real past = arc_tangent(one[1], one[0]) + arc_sine(bound / distance) +
                          arc_tangent(P::collision_radius, root(distance * distance - bound * bound));
        const real angle = wrapped(past - arc_tangent(ev, eu));
        if (angle > 0) return angle;
    }
    return 0;
}

// ---- rows of observations ----------------------------------------------------------------------------------------------------

FN void show_slots(const Scratch& s, int i, float* row) {
    for (int q = 0; q < SLOTS; q++) {
        const bool there = q < s.slots[i];
        const real* const one = s.slot[i][there ? s.place[i][q] : 0];
        for (int n = 0; n < 5; n++) row[5 * q + n] = there ? float(one[n]) : 0.0f;
        row[5 * SLOTS + q] = float(there);
    }
}

// Five obstacles (x, y, radius), five robots (x, y, velocity).
FN void show_nearest(const Scratch& s, int i, float* row) {
    Nearest obstacles, robots;
    const real x = s.state[POSE + 3 * i], y = s.state[POSE + 3 * i + 1];
    for (int k = 0; k < O; k++) {
        const real dx = s.x[k] - x, dy = s.y[k] - y, d2 = dx * dx + dy * dy;
        if (!(d2 <= squared(P::perception_range + s.radius[k]))) continue;
        const real gap = root(d2) - s.radius[k];
        if (obstacles.wants(gap)) obstacles.admit(gap, k);
    }
    for (int k = O; k < K && !s.blind(i); k++) {
        const real dx = s.x[k] - x, dy = s.y[k] - y, d2 = dx * dx + dy * dy;
        if (k == O + i || !(d2 <= squared(P::perception_range + real(HULL_RADIUS)))) continue;
        if (robots.wants(d2)) robots.admit(d2, k);
    }
UNROLL
    for (int q = 0; q < SLOTS; q++) {
        const bool stands = q < obstacles.count, sails = q < robots.count;
        const int k = obstacles.id[q], j = robots.id[q];
        real ahead, side, u, v;
        to_body(s, i, s.x[k] - x, s.y[k] - y, ahead, side);
        row[3 * q] = stands ? float(ahead) : 0.0f;
        row[3 * q + 1] = stands ? float(side) : 0.0f;
        row[3 * q + 2] = stands ? float(s.radius[k]) : 0.0f;
        to_body(s, i, s.x[j] - x, s.y[j] - y, ahead, side);
        to_body(s, i, s.vx[j], s.vy[j], u, v);
        float* const robot = row + 3 * SLOTS + 4 * q;
        robot[0] = sails ? float(ahead) : 0.0f;
        robot[1] = sails ? float(side) : 0.0f;
        robot[2] = sails ? float(u) : 0.0f;
        robot[3] = sails ? float(v) : 0.0f;
    }
}

// The points that the beams of robot 0 hit. A beam that starts within an obstacle hits its far side.
FN void show_beams(const Scratch& s, const Place& at, float* row) {
    const real x = s.state[POSE], y = s.state[POSE + 1];
    int first = 0, end = s.obstacles();
    if (P::nearest_centre_only) {
        real least = NOWHERE;
        for (int k = 0; k < end; k++) {
            const real dx = s.x[k] - x, dy = s.y[k] - y, d2 = dx * dx + dy * dy;
            first = d2 < least ? k : first;
            least = d2 < least ? d2 : least;
        }
        end = end ? first + 1 : 0;
    }
    for (int b = lane(); b < BEAMS; b += LANES) {
        const real c = at.tables.beam[2 * b], n = at.tables.beam[2 * b + 1];
        real nearest = NOWHERE;
        for (int k = first; k < end; k++) {
            real ahead, side;
            to_body(s, 0, s.x[k] - x, s.y[k] - y, ahead, side);
            const real along = c * ahead + n * side, across = c * side - n * ahead, reach2 = squared(s.radius[k]) - across * across;
            if (reach2 < 0) continue;
            const real reach = root(reach2), hit = along >= reach ? along - reach : along + reach;
            if (hit < 0 || hit > P::perception_range) continue;
            if (P::beam_break && hit > nearest) break;
            nearest = hit < nearest ? hit : nearest;
        }
        const bool hits = nearest < NOWHERE;
        row[2 * b] = hits ? float(nearest * c) : 0.0f;
        row[2 * b + 1] = hits ? float(nearest * n) : 0.0f;
    }
}

FN void show_own(const Scratch& s, int i, float* row) {
    const real* const x = s.state;
    real ahead, side, u, v;
    to_body(s, i, x[GOAL + 2 * i] - x[POSE + 3 * i], x[GOAL + 2 * i + 1] - x[POSE + 3 * i + 1], ahead, side);
    to_body(s, i, x[GROUND + 2 * i], x[GROUND + 2 * i + 1], u, v);
    row[0] = float(SONAR ? u : ahead);
    row[1] = float(SONAR ? v : side);
    row[2] = float(SONAR ? ahead : u);
    row[3] = float(SONAR ? side : v);
    if (!THRUSTER) return;
    row[4] = float(x[REPORTED_YAW + i]);
    row[5] = float(x[THRUST + 2 * i]);
    row[6] = float(x[THRUST + 2 * i + 1]);
}
