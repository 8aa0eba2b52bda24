// Marine navigation: a control step of the robots of one environment, by a group of lanes. README.md is the model.
#pragma once
#define READS_NUMBERS
#define TOGETHER (AGENTS < 2 ? 16 : AGENTS <= 16 ? 32 / AGENTS : 1)
#include "kernels/lanes.cuh"
#include "layout.cuh"
#include "drawing.cuh"
#include "boats.cuh"
#include "perception.cuh"

struct Environment {
    typedef ::Scratch Scratch;

    FN static u64 present(const Scratch& s) { return playing(s, ~u64(0)); }

    static STAGE void start(Scratch& s, const Place& at, bool) {
        begin_scene(s, at);
        set_first_velocities(s, at);
    }

    // NaN and indices that are none act as 0; other numbers as the nearest in the space.
#if CONTINUOUS
    FN static void read_one(Scratch& s, int k, float x) {
        const float inside = x >= -1.0f ? (x <= 1.0f ? x : 1.0f) : x < -1.0f ? -1.0f : 0.0f;
        s.order[k] = P::thrust_rate * real(inside);
    }
#else
    FN static void read_one(Scratch& s, int i, int index) {
        const int own = index >= 0 && index < CHOICES ? index : 0;
        real* const order = s.order + 2 * i;
        if (THRUSTER) {
            order[0] = P::thrust_rate * rate(own / 5);
            order[1] = P::thrust_rate * rate(own % 5);
        } else {
            order[0] = P::acceleration * real(own / 3 - 1);
            order[1] = P::turn_rate * real(own % 3 - 1);
        }
    }
    FN static real rate(int k) { return real(k == 0 ? 0 : k < 3 ? -k : k - 2) * real(0.5); }  // 0, -0.5, -1, 0.5, 1
#endif
    FN static bool reads(int k) { return k < AGENTS * NUMBERS; }
    template <typename Number>
    FN static void read(Scratch& s, const Number* row) {
        for (int k = lane(); k < AGENTS * NUMBERS; k += LANES) read_one(s, k, row[k]);
        sync();
    }

#if !LANE_WALK
    static void board(Scratch& s, const Place& at) { ::board(s, at, playing(s, at.active), at.t + 1); }
    static void depart() {
        sail();
        for (int g = 0; g < boarded; g++) set_objects(*aboard[g].s, aboard[g].crew);
        if (THRUSTER) perceive_all();
        boarded = 0;
    }
#endif

    static STAGE void step(Scratch& s, const Place& at, Outcome& out, float* metrics, real* record) {
        const u64 crew = playing(s, at.active);
#if LANE_WALK
        sail(s, crew);
        set_objects(s, crew);
        if (THRUSTER) {
            Place after = at;
            after.t += 1;
            perceive(s, after, crew);
        }
#endif
        for (int i = lane(); i < A; i += LANES) {
            s.reward[i] = 0;
            s.ended[i] = s.hit[i] = 0;
            if (crew >> i & 1) judge(s, at, i);
            tell(s, i, crew >> i & 1, metrics, out.flags);
            if (TRACE) note(s, i, crew >> i & 1, record + RECORDED * i);
        }
        if (lane() == 0) s.perceived = 1;
        sync();
        bool collided = false, success = s.robots() > 0;
        for (int i = 0; i < A; i++) {
            out.reward[i] = s.reward[i];
            out.terminated[i] = s.ended[i] != 0;
            collided |= s.hit[i] != 0;
            if (i < s.robots()) success &= s.integers[REACHED + i] && !s.integers[HIT_ROBOT + i] && !s.integers[HIT_OBSTACLE + i];
        }
        out.over = (P::stop_at_collision && collided) || s.robots() == 0;
        if (lane() == 0) out.flags[FLAG_SUCCESS] = success;
    }

    // Sets a robot's reward for a step, and its end if the step was its last.
    FN static void judge(Scratch& s, const Place& at, int i) {
        const real *const pose = s.pose(i), *const goal = s.goal(i);
        const real dx = goal[0] - pose[0], dy = goal[1] - pose[1];
        const bool reached = dx * dx + dy * dy <= squared(P::goal_radius);
        const u32 hit = hits_of(s, i, pose[0], pose[1]);
        const bool ends = (reached || hit) && !(P::limit_beats_end && at.t + 1 >= LIMIT);
        real reward = P::step_reward + s.gained[i];
        if (THRUSTER) reward += P::colregs_weight * give_way(s, i);
        if (ends) reward += hit ? P::collision_reward : P::goal_reward;
        s.hit[i] = u8(hit);
        s.ended[i] = ends;
        s.reward[i] = float(reward);
        s.state[RETURNS + i] += reward;
        s.integers[STEPS + i] += 1;
        s.integers[REACHED + i] |= reached;
        s.integers[HIT_OBSTACLE + i] |= int(hit & 1);
        s.integers[HIT_ROBOT + i] |= int(hit >> 1);
    }

    FN static void tell(const Scratch& s, int i, bool played, float* metrics, u8* flags) {
        metrics[METRIC_RETURNS + i] = float(s.state[RETURNS + i]);
        metrics[METRIC_TIME + i] = float(PERIOD * real(s.integers[STEPS + i]));
        metrics[METRIC_ENERGY + i] = float(s.state[ENERGY + i]);
        flags[FLAG_VALID + i] = played;
        flags[FLAG_REACHED + i] = u8(s.integers[REACHED + i]);
        flags[FLAG_HIT_ROBOT + i] = u8(s.integers[HIT_ROBOT + i]);
        flags[FLAG_HIT_OBSTACLE + i] = u8(s.integers[HIT_OBSTACLE + i]);
    }

    FN static void note(const Scratch& s, int i, bool played, real* record) {
        for (int n = 0; n < 3; n++) record[n] = s.state[POSE + 3 * i + n];
        record[3] = s.state[THRUSTER ? THRUST + 2 * i : SPEED + i];
        record[4] = THRUSTER ? s.state[THRUST + 2 * i + 1] : real(0);
        record[5] = real(played);
        record[6] = real(s.integers[REACHED + i]);
        record[7] = real(s.integers[HIT_ROBOT + i] | s.integers[HIT_OBSTACLE + i]);
    }

    static STAGE void observe(Scratch& s, const Place& at, float* rows) {
        const u64 crew = playing(s, at.shown);
        if (!s.perceived) {
            set_objects(s, crew);
            set_axes(s, crew);
            if (THRUSTER) perceive(s, at, crew);
        }
        float* const row = LANE_WALK ? s.row : rows;
        for (int i = lane(); i < A; i += LANES) {
            for (int n = 0; n < OBS && A == 1 && !crew; n++) row[n] = 0.0f;  // of several robots the batch sees to that
            if (!(crew >> i & 1)) continue;
            show_own(s, i, row + OBS * i);
            if (THRUSTER) show_slots(s, i, row + OBS * i + OWN);
            if (KINEMATIC) show_nearest(s, i, row + OBS * i + OWN);
        }
        if (SONAR && crew) show_beams(s, at, row + OWN);
        sync();
        for (int n = lane(); LANE_WALK && n < A * OBS; n += LANES) rows[n] = s.row[n];
        if (lane() == 0) s.perceived = 0;
        sync();
    }
};
