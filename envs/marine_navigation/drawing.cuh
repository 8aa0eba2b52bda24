// Drawing of an episode's scenario (README.md, 4.1 and 4.2): proposals and the rules that accept them, in double, as written.
#pragma once
#include "layout.cuh"

enum : u32 { STREAM_PROPOSAL = 0, STREAM_ROBOT = 1, STREAM_CORE = 2, STREAM_OBSTACLE = 3, STREAM_MIX = 4 };

FN double unit_of(u32 word) { return double(int(word >> 8)) * 5.9604644775390625e-8; }
FN double between(double low, double high, u32 word) { return low + (high - low) * unit_of(word); }
FN double distance(double ax, double ay, double bx, double by) {
    const double dx = ax - bx, dy = ay - by;
    return sqrt(dx * dx + dy * dy);
}

// The first lane for which it holds, -1 if there is none; all lanes ask together.
FN int first_lane(bool holds) {
#ifdef __CUDACC__
    return __ffs(int((__ballot_sync(of_group(), holds) & of_group()) >> first_of_group())) - 1;
#else
    return holds ? 0 : -1;
#endif
}

struct Found {
    int robots, cores, obstacles;
};

FN bool inside_map(double x, double y, double r) { return x - r >= 0.0 && x + r <= WIDTH_M && y - r >= 0.0 && y + r <= WIDTH_M; }

FN bool clear_of_robots(const Drawing& d, const Found& found, double x, double y, double least) {
    bool clear = true;
    for (int i = 0; i < found.robots; i++) {
        const double* const robot = d.robot + 4 * i;
        clear &= distance(x, y, robot[0], robot[1]) >= least && distance(x, y, robot[2], robot[3]) >= least;
    }
    return clear;
}

struct Robots {
    static FN double* rows(Drawing& d) { return d.robot; }
    static FN void propose(const Place& at, int n, double* row) {
        u32 words[4];
        words_of(at, n, STREAM_PROPOSAL, words);
        for (int k = 0; k < 4; k++) row[k] = between(START_MARGIN, WIDTH_M - START_MARGIN, words[k]);
    }
    static FN bool accepts(const Drawing& d, const double* row, const Found&, int count, double least) {
        bool accepted = !(distance(row[2], row[3], row[0], row[1]) < least);
        for (int i = 0; i < count; i++) {
            const double* const robot = d.robot + 4 * i;
            accepted &= distance(robot[0], robot[1], row[0], row[1]) > CLEAR && distance(robot[2], robot[3], row[2], row[3]) > CLEAR;
        }
        return accepted;
    }
};

// The sonar's: the first pair that is farther apart than D_min.
struct Farther {
    static FN double* rows(Drawing& d) { return d.robot; }
    static FN void propose(const Place& at, int n, double* row) { Robots::propose(at, n, row); }
    static FN bool accepts(const Drawing&, const double* row, const Found&, int, double least) {
        return distance(row[2], row[3], row[0], row[1]) > least;
    }
};

struct Cores {
    static FN double* rows(Drawing& d) { return d.core; }
    static FN void propose(const Place& at, int n, double* row) {
        u32 words[4];
        words_of(at, n, STREAM_CORE, words);
        row[0] = WIDTH_M * unit_of(words[0]);
        row[1] = WIDTH_M * unit_of(words[1]);
        row[2] = double(words[2] >> 31);
        row[3] = between(EDGE_SPEED_LOW, EDGE_SPEED_HIGH, words[3]);
    }
    static FN bool accepts(const Drawing& d, const double* row, const Found& found, int count, double) {
        bool accepted = inside_map(row[0], row[1], CORE_RADIUS) && clear_of_robots(d, found, row[0], row[1], CORE_RADIUS + CLEAR);
        for (int i = 0; i < count; i++) accepted &= apart(row, d.core + 4 * i);
        return accepted;
    }
    static FN bool apart(const double* one, const double* other) {
        const double own = CORE_RADIUS * one[3], theirs = CORE_RADIUS * other[3], d = distance(one[0], one[1], other[0], other[1]);
        const double most = own > theirs ? own : theirs, least = own > theirs ? theirs : own;
        if (one[2] == other[2]) return d >= (own + theirs) / SAME_TURN_SPEED;
        if (d <= 2 * CORE_RADIUS) return P::opposite_cores_overlap && d < 2 * CORE_RADIUS;
        return most <= (OPPOSITE * least / CORE_RADIUS) * (d - 2 * CORE_RADIUS);
    }
};

struct Obstacles {
    static FN double* rows(Drawing& d) { return d.obstacle; }
    static FN void propose(const Place& at, int n, double* row) {
        u32 words[4];
        words_of(at, n, STREAM_OBSTACLE, words);
        for (int k = 0; k < 2; k++) row[k] = between(OBSTACLE_MARGIN, WIDTH_M - OBSTACLE_MARGIN, words[k]);
        row[2] = between(OBSTACLE_LOW, OBSTACLE_HIGH, words[2]);
        row[3] = 0.0;
    }
    static FN bool accepts(const Drawing& d, const double* row, const Found& found, int count, double) {
        const double r = row[2];
        bool accepted = inside_map(row[0], row[1], r) && clear_of_robots(d, found, row[0], row[1], r + CLEAR);
        for (int i = 0; i < found.cores; i++) accepted &= distance(row[0], row[1], d.core[4 * i], d.core[4 * i + 1]) > CORE_RADIUS + r;
        for (int i = 0; i < count; i++) {
            const double* const other = d.obstacle + 4 * i;
            accepted &= distance(row[0], row[1], other[0], other[1]) > other[2] + r;
        }
        return accepted;
    }
};

// One stage, until it is full or proposals end. Each lane tests another proposal against what was accepted; the first that passes
// is accepted, and those behind it are tested once more, which is the rule of one after the other.
template <typename Stage>
FN int place(Drawing& d, const Place& at, int wanted, const Found& found, double least) {
    int count = 0;
    for (int n = 0; n < PROPOSALS && count < wanted;) {
        double row[4];
        Stage::propose(at, n + lane(), row);
        const int first = first_lane(n + lane() < PROPOSALS && Stage::accepts(d, row, found, count, least));
        if (first == lane())
            for (int k = 0; k < 4; k++) Stage::rows(d)[4 * count + k] = row[k];
        sync();
        count += first >= 0;
        n += first >= 0 ? first + 1 : LANES;
    }
    return count;
}

// The pair farthest apart of all proposals, where none is over D_min.
FN void keep_farthest(Drawing& d, const Place& at) {
    double far = -1.0;
    for (int n = 0; n < PROPOSALS; n++) {
        double row[4];
        Robots::propose(at, n, row);
        const double apart = distance(row[2], row[3], row[0], row[1]);
        for (int k = 0; k < 4 && lane() == 0; k++) d.robot[k] = apart > far ? row[k] : d.robot[k];
        far = apart > far ? apart : far;
    }
    sync();
}

FN int setting_of(const Place& at) {
    int setting = 0;
#if MIXED
    u32 words[4];
    words_of(at, 0, STREAM_MIX, words);
    const double mark = unit_of(words[0]) * at.tables.below[STAGES];
    for (int k = 0; k < STAGES - 1; k++) setting += at.tables.below[k] <= mark;
#else
    for (int k = 1; k < STAGES; k++) setting += at.tables.begins[k] <= at.clock;
#endif
    return setting;
}

FN Found draw(Drawing& d, const Place& at, const int* asked, double least) {
    Found found = {0, 0, 0};
    if (SONAR) {
        found.robots = place<Farther>(d, at, 1, found, least);
        if (!found.robots) keep_farthest(d, at);
        found.robots = 1;
    } else {
        found.robots = place<Robots>(d, at, asked[0], found, least);
    }
    if (C) found.cores = place<Cores>(d, at, asked[1], found, 0.0);
    if (O) found.obstacles = place<Obstacles>(d, at, asked[2], found, 0.0);
    return found;
}

// State of an episode's beginning, but for the velocities over ground.
static STAGE void begin_scene(Scratch& s, const Place& at) {
#if SCENARIOS
    const int* const counts = at.tables.counts + at.scenario * 6;
    const Found found = {counts[0], counts[1], counts[2]};
    const int asked = counts[3], blind = counts[4];
    const double* const robots = at.tables.robots + at.scenario * A * 6;
    const double* const cores = at.tables.cores + at.scenario * (C ? C : 1) * 4;
    const double* const obstacles = at.tables.obstacles + at.scenario * (O ? O : 1) * 3;
#else
    const int setting = setting_of(at);
    Drawing& d = s.drawing;
    const int asked = at.tables.asked[3 * setting], blind = P::non_cooperative;
    const Found found = draw(d, at, at.tables.asked + 3 * setting, at.tables.distance[setting]);
#endif
    for (int n = lane(); n < REALS; n += LANES) s.state[n] = 0;
    for (int n = lane(); n < INTEGERS; n += LANES) s.integers[n] = 0;
    sync();
    for (int i = lane(); i < found.robots; i += LANES) {
        u32 words[4];
        words_of(at, i, STREAM_ROBOT, words);
        s.integers[NOISE_ID + i] = int((u64(words[2] >> 8) * u64(5 * asked)) >> 24);
#if SCENARIOS
        const double* const place = robots + 6 * i;
        const double heading = place[4], speed = place[5];
#else
        const double* const place = d.robot + 4 * i;
        const double heading = between(0.0, 2 * PI, words[0]), speed = between(0.0, TOP_SPEED, words[1]);
#endif
        s.pose(i)[0] = real(place[0]);
        s.pose(i)[1] = real(place[1]);
        s.pose(i)[2] = real(heading);
        s.goal(i)[0] = real(place[2]);
        s.goal(i)[1] = real(place[3]);
        if (!THRUSTER) s.state[SPEED + i] = real(speed);
    }
    for (int k = lane(); k < found.cores; k += LANES) {
        real* const core = s.state + CORE + 4 * k;
#if SCENARIOS
        for (int n = 0; n < 4; n++) core[n] = real(cores[4 * k + n]);
#else
        const double* const drawn = d.core + 4 * k;
        core[0] = real(drawn[0]);
        core[1] = real(drawn[1]);
        core[2] = drawn[2] > 0 ? real(1) : real(-1);
        core[3] = real(CORE_RADIUS * drawn[3]);
#endif
    }
    for (int k = lane(); k < found.obstacles; k += LANES)
        for (int n = 0; n < 3; n++)
#if SCENARIOS
            s.state[OBSTACLE + 3 * k + n] = real(obstacles[3 * k + n]);
#else
            s.state[OBSTACLE + 3 * k + n] = real(d.obstacle[4 * k + n]);
#endif
    if (lane() == 0) {
        s.integers[COUNTS] = found.robots;
        s.integers[COUNTS + 1] = found.cores;
        s.integers[COUNTS + 2] = found.obstacles;
        s.integers[ASKED] = asked;
        s.integers[BLIND] = blind;
        s.perceived = 0;
    }
    sync();
}
