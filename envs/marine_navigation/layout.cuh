// Sizes, tables and memory of marine navigation (README.md). Axes: A robots, C vortex cores, O obstacles.
#pragma once

typedef Params P;

constexpr bool THRUSTER = P::version_is_thruster, SONAR = P::version_is_sonar, KINEMATIC = P::version_is_kinematic;

enum : int {
    A = AGENTS, C = P::cores, O = P::obstacles, K = O + A,  // objects: obstacles, then robots
    SLOTS = 5, BEAMS = 11, PROPOSALS = 500, KNOTS = 4096,
    SEEN = 6,  // numbers of a neighbour in a slot: x, y, velocity x, y, radius, and 1 if the rules of the road concern it
    // The state, as layout.state_shapes says.
    POSE = 0, WATER = 3 * A, SPEED = WATER, YAW = WATER + 2 * A, REPORTED_YAW = YAW + A, THRUST = REPORTED_YAW + A,
    GROUND = THRUSTER ? THRUST + 2 * A : SPEED + A, GOAL = GROUND + 2 * A, CORE = GOAL + 2 * A, OBSTACLE = CORE + 4 * C,
    RETURNS = OBSTACLE + 3 * O, ENERGY = RETURNS + A, STATE_LENGTH = ENERGY + A,
    COUNTS = 0, ASKED = 3, BLIND = 4, NOISE_ID = 5, STEPS = NOISE_ID + A, REACHED = STEPS + A, HIT_ROBOT = REACHED + A,
    HIT_OBSTACLE = HIT_ROBOT + A, INTEGERS_LENGTH = HIT_OBSTACLE + A,
    OWN = THRUSTER ? 7 : 4, OBSERVATION = THRUSTER ? OWN + 6 * SLOTS : SONAR ? OWN + 2 * BEAMS : OWN + 7 * SLOTS,
    // Numbers and flags of a step, as port.py says.
    METRIC_RETURNS = 0, METRIC_TIME = A, METRIC_ENERGY = 2 * A, METRICS_LENGTH = 3 * A,
    FLAG_VALID = 0, FLAG_REACHED = A, FLAG_HIT_ROBOT = 2 * A, FLAG_HIT_OBSTACLE = 3 * A, FLAG_SUCCESS = 4 * A, FLAGS_LENGTH = 4 * A + 1,
    RECORDED = 8,  // of a robot
    KP = padded_to(K, LANE_WALK ? 4 : 16),  // of the CPU's vector loops
    ALIGNMENT = LANE_WALK ? 16 : 64,
};
static_assert(REALS == STATE_LENGTH && INTEGERS == INTEGERS_LENGTH && OBS == OBSERVATION, "port.py says the same");
static_assert(METRICS == METRICS_LENGTH && FLAGS == FLAGS_LENGTH && (!TRACE || RECORD == RECORDED * A), "port.py says the same");
static_assert(K <= 64 && LANES <= 32, "objects have a bit each; a robot has a lane");

constexpr double PI = 3.14159265358979323846;
constexpr real PERIOD = real(P::substeps) * P::dt;

// The Python side reads names and order from this text.
struct Tables {
    const real* knots;        // [4096] of the inverse distribution function of xi
    const real* beam;         // [11, 2] cosine, sine
    const i64* begins;        // [stages] batched steps from which a setting holds
    const double* below;      // [stages + 1] cumulative weights of a mix, and their sum
    const int* asked;         // [stages, 3] robots, cores, obstacles
    const double* distance;   // [stages] m, D_min
    const int* counts;        // [scenarios, 6] robots, cores, obstacles, robots asked for, blind ones, 1 if from a file
    const double* robots;     // [scenarios, A, 6] start x, y, goal x, y, heading, own speed
    const double* cores;      // [scenarios, C, 4] x, y, sense, circulation over 2 pi
    const double* obstacles;  // [scenarios, O, 3] x, y, radius
};

struct Drawing {  // of an episode: rows of four
    double robot[4 * A];                   // start x, y, goal x, y
    double core[4 * (C ? C : 1)];          // x, y, 1 if clockwise, edge speed
    double obstacle[4 * (O ? O : 1)];      // x, y, radius
};

// Memory shared by the lanes of a group. When a launch begins, `perceived` is false, as it is when one ends; all else holds any numbers.
struct alignas(ALIGNMENT) Scratch {
    alignas(ALIGNMENT) real state[REALS];
    int integers[INTEGERS];
    int perceived;                  // cosine, sine, objects and slots are of this state and its observers
    real order[2 * A];              // of the action: rates of thrust, or acceleration and turn rate
    real gained[A], cosine[A], sine[A];
    real angle[A];                  // COLREGs
    float reward[A];
    u8 hit[A], ended[A];            // hit: 1 an obstacle, 2 a robot
    u8 slots[A], place[A][SLOTS];   // neighbours, nearest first: rows of `slot`
    alignas(ALIGNMENT) real slot[A][SLOTS][SEEN];
    alignas(ALIGNMENT) real x[KP], y[KP], vx[KP], vy[KP], radius[KP];  // of objects that are there; of others x is infinite
    union {
        Drawing drawing;
        float row[LANE_WALK ? A * OBS : 1];
    };

    FN int robots() const { return at_most(integers[COUNTS], A); }
    FN int cores() const { return at_most(integers[COUNTS + 1], C); }
    FN int obstacles() const { return at_most(integers[COUNTS + 2], O); }
    FN static int at_most(int count, int room) { return count < room ? count : room; }
    FN real* pose(int i) { return state + POSE + 3 * i; }
    FN real* goal(int i) { return state + GOAL + 2 * i; }
    FN real* ground(int i) { return state + GROUND + 2 * i; }
    FN bool blind(int i) const { return KINEMATIC && i >= integers[ASKED] - integers[BLIND]; }
};

#if !LANE_WALK
// An environment of several whose boats and observers a thread of the CPU takes together.
struct Aboard {
    Scratch* s;
    u64 crew, key;
    u32 index, episode, t;
    const real* knots;
};
static thread_local Aboard aboard[TOGETHER];
static thread_local int boarded = 0;
#endif

FN float root(float a) { return sqrtf(a); }
FN double root(double a) { return sqrt(a); }
FN float arc_tangent(float y, float x) { return atan2f(y, x); }
FN double arc_tangent(double y, double x) { return atan2(y, x); }
FN float arc_sine(float a) { return asinf(a); }
FN double arc_sine(double a) { return asin(a); }
FN constexpr real squared(real a) { return a * a; }

// Robots that the episode has and that play.
FN u64 playing(const Scratch& s, u64 active) { return active & ((u64(1) << s.robots()) - 1); }

FN void words_of(const Place& at, u32 step, u32 stream, u32* words) {
    words[0] = at.index;
    words[1] = at.episode;
    words[2] = step;
    words[3] = stream;
    philox(words[0], words[1], words[2], words[3], at.key);
}
