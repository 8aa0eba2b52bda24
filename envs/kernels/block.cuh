// The batched environment around one Environment that several lanes hold, see lanes.cuh: on the GPU a group or a block of threads,
// on the CPU a thread after all. tile.cuh is its sibling for what one thread can hold.
//
// kernel.cuh gives `struct Tables`, where the port has any (a pointer to each of them, by name), and
//
//   struct Environment {
//       struct Scratch { real state[REALS]; ... };            alignas(16), shared memory, begins with anything. Where the port
//                                                             declares such fields, double doubles[DOUBLES], int integers[INTEGERS]
//       static void start(Scratch&, const Place&, bool fresh);    an episode's first state; fresh: nothing survives from before
//       static void read(Scratch&, const Stored* row);        an action [AGENTS, NUMBERS], float or int, as it was given: unchecked,
//                                                             numbers may be NaN or outside the space, and read admits them
//       static void step(Scratch&, const Place&, Outcome&, float* metrics, real* record);   all lanes know the outcome
//       static void observe(Scratch&, const Place&, float* rows);                           [AGENT_ROWS, OBS]
//   };
//
// All lanes call each of these together and have synchronised when it returns. An action in the environment's own form (Given) is
// read by read(Scratch&, const Given&, i64 environment). READS_NUMBERS says that numbers may also be read one by one, by any lane
// each and none twice: reads(k) whether number k is used, read_one(Scratch&, k, number). A phase before the step, named in PHASES,
// is a function (Scratch&, const Place&) of that name, which finds the action read.
//
// On a CPU, where loops over one environment are short, kernel.cuh may `#define TOGETHER n`: of up to so many environments of a
// thread board(Scratch&, const Place&) is called once their actions are read, then depart() once, then step of each.
//
// An agent that has terminated is no longer active: its rewards are 0, its flags false and, from the next step on, its
// observations 0. The episode is over where no agent is active, where the outcome says so, or at the limit, which truncate those
// that still are. Where ABSENT, an episode may lack agents: present(const Scratch&) gives those that it has, a bit each.
#pragma once
#include "lanes.cuh"
#include "batch.cuh"

typedef Environment::Scratch Memory;
enum : int { RAW = AGENTS * NUMBERS, QUADS = (RAW + 3) / 4 };
static_assert(TILE == 1 && AGENTS <= 64, "an environment is a tile; agents have a bit each");

// ---- one environment --------------------------------------------------------------------------------------------------------

struct Episode {
    int t, scenario;
    u32 number;
    float total;  // return so far
    u64 active;   // agents, a bit each
    i64 clock;    // batched steps since the seed, the present one included
};

constexpr u64 EVERYBODY = AGENTS == 64 ? ~u64(0) : (u64(1) << AGENTS) - 1;

// Agents of the episode.
FN u64 present(const Memory& s) {
#if ABSENT
    return Environment::present(s);
#else
    return EVERYBODY;
#endif
}

FN Place place_at(const Batch& b, i64 e, const Episode& episode, u64 shown = 0) {
    Place at = place_of(b, span_of(b, e), 0, episode.number, episode.scenario, episode.t, episode.active);
    at.shown = shown;
    at.clock = episode.clock;
    return at;
}

template <typename X>
FN void copy(const X* from, X* to, int n) {
    for (int k = lane(); k < n; k += LANES) to[k] = from[k];
}

FN void load(const Batch& b, i64 e, Memory& s, Episode& episode, bool steps) {
    copy(b.state + e * REALS, s.state, REALS);
#ifndef __CUDACC__
    ask(b.state + (e + 1) * REALS, REALS);  // the next one's, while this one steps
#endif
#if DOUBLES
    copy(b.doubles + e * DOUBLES, s.doubles, DOUBLES);
#endif
#if INTEGERS
    copy(b.integers + e * INTEGERS, s.integers, INTEGERS);
#endif
    episode = {b.elapsed[e], SCENARIOS ? b.scenario[e] : 0, b.episode[e], b.running_return[e], 0, b.clock[e] + steps};
    if (JOINT) episode.active = EVERYBODY;
    else
        for (int a = 0; a < AGENTS; a++) episode.active |= u64(b.active[e * AGENTS + a] != 0) << a;
    sync();
}

FN void save(const Batch& b, i64 e, const Memory& s, const Episode& episode) {
    copy(s.state, b.state + e * REALS, REALS);
#if DOUBLES
    copy(s.doubles, b.doubles + e * DOUBLES, DOUBLES);
#endif
#if INTEGERS
    copy(s.integers, b.integers + e * INTEGERS, INTEGERS);
#endif
    if (!JOINT)
        for (int a = lane(); a < AGENTS; a += LANES) b.active[e * AGENTS + a] = episode.active >> a & 1;
    if (lane() == 0) {
        b.elapsed[e] = ELAPSED(episode.t);
        if (SCENARIOS) b.scenario[e] = episode.scenario;
        b.episode[e] = episode.number;
        b.running_return[e] = episode.total;
    }
}

FN void open_episode(const Batch& b, i64 e, Memory& s, Episode& episode, u32 number, bool fresh) {
    const Span span = span_of(b, e);
    u32 word[4] = {span.index, number, 0, STREAM_RESET};
    philox(word[0], word[1], word[2], word[3], span.key);
    const int drawn = SCENARIOS && IN_TURN ? int((u64(span.index) + number) % u64(b.scenarios)) : scenario_of(b, word[0]);
    episode = {0, FROZEN ? 0 : drawn, number, 0.0f, EVERYBODY, episode.clock};
    Environment::start(s, place_at(b, e, episode), fresh);
    episode.active = present(s);
}

// Observations of the agents that `shown` names, zero for the others.
FN void observe(const Batch& b, i64 e, Memory& s, const Episode& episode, u64 shown, float* rows) {
    float* const own = rows + e * AGENT_ROWS * OBS;
    Environment::observe(s, place_at(b, e, episode, shown), own);
    if (JOINT || shown == EVERYBODY) return;
    for (int a = 0; a < AGENT_ROWS; a++)
        for (int k = lane(); k < OBS && !(shown >> a & 1); k += LANES) own[a * OBS + k] = 0.0f;
    sync();
}

FN void count_episode(const Batch& b, i64 e, int length, float value) {
    const i64 n = b.tiles;
    value = counted(value);
    add_to(b.totals + e, 1);
    add_to(b.totals + n + e, length);
    add_to(b.totals + 2 * n + e, units_of(value));
    widen(b.extremes + e, n, length, length, value, value);
}

// One step with the action that has been read. `shown`: its outputs are written, as they are of the last of several steps.
FN void advance(const Batch& b, i64 e, Memory& s, Episode& episode, bool shown) {
    Outcome out;
    out.flags = b.flags + e * FLAGS;
    out.amounts = b.amounts + e * AMOUNTS;
    Environment::step(s, place_at(b, e, episode), out, b.metrics + e * METRICS, b.record + e * RECORD);
    const u64 played = episode.active;
    episode.t += 1;
    const bool late = episode.t >= LIMIT || out.over;
    float sum = 0.0f;
    u64 fell = 0;
    for (int n = 0; n < AGENT_ROWS; n++) {
        if (!JOINT && !(played >> n & 1)) {
            out.reward[n] = 0.0f;
            out.terminated[n] = false;
        }
        sum += out.reward[n];
        fell |= u64(out.terminated[n]) << n;
    }
    const int team = ABSENT ? set_bits(present(s)) : int(AGENT_ROWS);
    episode.total += sum / (team > 0 ? team : 1);
    episode.active = JOINT ? EVERYBODY : played & ~fell;
    const bool ended = late || (JOINT ? fell != 0 : episode.active == 0);
    if (shown && lane() == 0) {
        for (int n = 0; n < AGENT_ROWS; n++) {
            b.reward[e * AGENT_ROWS + n] = out.reward[n];
            b.terminated[e * AGENT_ROWS + n] = out.terminated[n];
            b.truncated[e * AGENT_ROWS + n] = late && (episode.active >> n & 1);
        }
        b.ended[e] = ended;
    }
    u64 seen = played;
    if (ended) {  // of all lanes or of none
        if (!JOINT) episode.active = 0;
        if (shown) {
            observe(b, e, s, episode, played, b.final_obs);
            if (lane() == 0) {
                b.episode_return[e] = episode.total;
                b.episode_length[e] = episode.t;
            }
        }
        if (lane() == 0) count_episode(b, e, episode.t, episode.total);
        if (AUTORESET == SAME_STEP) {
            if (ABSENT && !shown) sync();  // all lanes have counted the team
            open_episode(b, e, s, episode, episode.number + 1, false);
            seen = episode.active;
        }
    }
    if (shown) observe(b, e, s, episode, seen, b.obs);
}

FN void clear_outputs(const Batch& b, i64 e, bool flags) {
    if (lane() != 0) return;
    if (flags) {
        for (int n = 0; n < AGENT_ROWS; n++) b.terminated[e * AGENT_ROWS + n] = b.truncated[e * AGENT_ROWS + n] = 0;
        b.ended[e] = 0;
    }
    for (int n = 0; n < AGENT_ROWS; n++) b.reward[e * AGENT_ROWS + n] = 0.0f;
    for (int n = 0; n < METRICS; n++) b.metrics[e * METRICS + n] = 0.0f;
    for (int n = 0; n < FLAGS; n++) b.flags[e * FLAGS + n] = 0;
    for (int n = 0; n < AMOUNTS; n++) b.amounts[e * AMOUNTS + n] = 0;
}

FN void begin(const Batch& b, i64 e, Memory& s, bool fresh, bool steps) {
    Episode episode;
    load(b, e, s, episode, steps);
    open_episode(b, e, s, episode, fresh ? 0 : episode.number + 1, fresh);
    clear_outputs(b, e, true);
    observe(b, e, s, episode, episode.active, b.obs);
    save(b, e, s, episode);
}

// A step of an environment that has ended: it starts anew or stands still.
FN void stand(const Batch& b, i64 e, Memory& s) {
    if (AUTORESET == NEXT_STEP) begin(b, e, s, false, true);
    else clear_outputs(b, e, false);
}

FN bool stands(const Batch& b, i64 e) { return AUTORESET != SAME_STEP && b.ended[e]; }

FN void read(const Call& call, i64 e, Memory& s) {
#if OWN_FORM
    if (!call.input) return Environment::read(s, call.given, e);
#endif
    Environment::read(s, static_cast<const Stored*>(call.input) + e * RAW);
}

FN void step_one(const Batch& b, const Call& call, i64 e, Memory& s) {
    const bool inert = stands(b, e);
    if (AUTORESET == NEXT_STEP && lane() == 0) b.is_reset[e] = inert;
    if (inert) {
        stand(b, e, s);
    } else {
        const auto last = [&](int n) { return METRICS > 1 ? b.metrics + (e + 1) * METRICS - n : nullptr; };
        Watch whole, reading;
        Episode episode;
        load(b, e, s, episode, true);
        reading.restart();
        read(call, e, s);
        reading.lap(last(2));
        advance(b, e, s, episode, true);
        save(b, e, s, episode);
        whole.lap(last(1));
    }
    if (lane() == 0) add_to(b.clock + e, 1);
}

FN void reset_one(const Batch& b, const Call& call, i64 e, Memory& s) {
    const u8* mask = static_cast<const u8*>(call.input);
    if (!mask || mask[e]) begin(b, e, s, call.fresh, false);  // of all lanes or of none
}

// Observations of the present state, after a state was put in from outside; of agents as well whose episode the last step ended.
FN void observe_one(const Batch& b, const Call&, i64 e, Memory& s) {
    Episode episode;
    load(b, e, s, episode, false);
    u64 shown = episode.active;
    for (int n = 0; n < AGENT_ROWS; n++)
        shown |= u64((b.terminated[e * AGENT_ROWS + n] | b.truncated[e * AGENT_ROWS + n]) != 0) << n;
    observe(b, e, s, episode, shown & present(s), b.obs);
}

// A phase before the step.
#define PHASE(NAME) \
    FN void NAME##_one(const Batch& b, const Call& call, i64 e, Memory& s) { \
        if (stands(b, e)) return; \
        Episode episode; \
        load(b, e, s, episode, true); \
        read(call, e, s); \
        Environment::NAME(s, place_at(b, e, episode)); \
        save(b, e, s, episode); \
    }
#ifdef PHASES
PHASES(PHASE)
#endif

// ---- the random policy ------------------------------------------------------------------------------------------------------

#if LANE_WALK

FN void write_random(const Batch& b, i64 e, u32 clock, Stored* row) {
    const Span span = span_of(b, e);
    for (int quad = lane(); quad < QUADS; quad += LANES) {
        u32 word[4];
        random_words(span.index, quad, clock, span.key, word);
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (4 * quad + k < RAW) row[4 * quad + k] = random_number(word[k], (4 * quad + k) % NUMBERS);
    }
}

#ifdef READS_NUMBERS
FN void read_random(const Batch& b, i64 e, u32 clock, Memory& s) {
    const Span span = span_of(b, e);
    for (int quad = lane(); quad < QUADS; quad += LANES) {
        bool read = false;
        for (int k = 0; k < 4; k++) read |= Environment::reads(4 * quad + k);
        if (!read) continue;
        u32 word[4];
        random_words(span.index, quad, clock, span.key, word);
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (Environment::reads(4 * quad + k))
                Environment::read_one(s, 4 * quad + k, random_number(word[k], (4 * quad + k) % NUMBERS));
    }
    sync();
}
#else
FN void read_random(const Batch& b, i64 e, u32 clock, Memory& s) {
    const Span span = span_of(b, e);
    Stored row[RAW];  // every lane has all of it
    for (int quad = 0; quad < QUADS; quad++) {
        u32 word[4];
        random_words(span.index, quad, clock, span.key, word);
        for (int k = 0; k < 4; k++)
            if (4 * quad + k < RAW) row[4 * quad + k] = random_number(word[k], (4 * quad + k) % NUMBERS);
    }
    Environment::read(s, row);
}
#endif

#else

static STAGE void write_random(const Batch& b, i64 e, u32 clock, Stored* row) {
    enum : int { BLOCKS = QUADS <= 16 ? 16 : 32 };  // of four numbers, drawn at once: their words stay in the nearest cache
    const Span span = span_of(b, e);
    for (int first = 0; first < QUADS; first += BLOCKS) {
        alignas(64) u32 word[4][BLOCKS];
        alignas(64) Stored drawn[4 * BLOCKS];
        for (int q = 0; q < BLOCKS; q++) {
            word[0][q] = span.index;
            word[1][q] = u32(first + q);
            word[2][q] = clock;
            word[3][q] = STREAM_RANDOM_POLICY;
        }
        philox_many(word[0], word[1], word[2], word[3], BLOCKS, span.key);
        for (int q = 0; q < BLOCKS; q++)
            for (int k = 0; k < 4; k++) drawn[4 * q + k] = random_number(word[k][q], (4 * (first + q) + k) % NUMBERS);
        const int left = RAW - 4 * first;
        if (left >= 4 * BLOCKS) memcpy(row + 4 * first, drawn, sizeof drawn);
        else memcpy(row + 4 * first, drawn, left * sizeof(Stored));
    }
}

FN void read_random(const Batch& b, i64 e, u32 clock, Memory& s) {
    Stored row[RAW];
    write_random(b, e, clock, row);
    Environment::read(s, row);
}

#endif

// The random policy's actions for the next K steps; needs no memory that lanes share.
FN void random_one(const Batch& b, const Call& call, i64 e) {
    const u32 clock = u32(b.clock[e]);
    for (i64 k = 0; k < call.steps; k++) write_random(b, e, clock + u32(k), call.actions + (k * b.num_envs + e) * RAW);
}

#if LANE_WALK || !defined(TOGETHER)

// K steps of the random policy with the state in shared memory.
FN void rollout_one(const Batch& b, const Call& call, i64 e, Memory& s) {
    const u32 clock = u32(b.clock[e]);
    const int steps = int(call.steps);
    Episode episode;
    load(b, e, s, episode, false);
    for (int k = 0; k < steps; k++) {
        episode.clock += 1;
        read_random(b, e, clock + k, s);
        advance(b, e, s, episode, k == steps - 1);
    }
    save(b, e, s, episode);
    if (lane() == 0) add_to(b.clock + e, steps);
}

#else

// The steps of environments first .. first + n - 1, n <= TOGETHER, with actions that are given or, in a roll-out, random.
template <bool RANDOM>
static void steps_together(const Batch& b, const Call& call, i64 first, int n) {
    static thread_local Memory of_thread[TOGETHER];
    Memory* const memory = kept(of_thread);
    Episode episode[TOGETHER];
    bool inert[TOGETHER];
    const int steps = RANDOM ? int(call.steps) : 1;
    for (int j = 0; j < n; j++) {
        inert[j] = stands(b, first + j);
        if (AUTORESET == NEXT_STEP) b.is_reset[first + j] = inert[j];
        if (inert[j]) stand(b, first + j, memory[j]);
        else load(b, first + j, memory[j], episode[j], false);
    }
    for (int k = 0; k < steps; k++) {
        for (int j = 0; j < n; j++) {
            if (inert[j]) continue;
            episode[j].clock += 1;
            if (RANDOM) read_random(b, first + j, u32(b.clock[first + j]) + u32(k), memory[j]);
            else read(call, first + j, memory[j]);
            Environment::board(memory[j], place_at(b, first + j, episode[j]));
        }
        Environment::depart();
        for (int j = 0; j < n; j++)
            if (!inert[j]) advance(b, first + j, memory[j], episode[j], k == steps - 1);
    }
    for (int j = 0; j < n; j++) {
        if (!inert[j]) save(b, first + j, memory[j], episode[j]);
        b.clock[first + j] += steps;
    }
}

#define KERNEL_TOGETHER(NAME, RANDOM) \
    EXPORT void NAME(const Batch* b, const Call* call, i64 first, i64 last) { \
        for (i64 e = call->first + first; e < call->first + last; e += TOGETHER) { \
            const i64 left = call->first + last - e; \
            steps_together<RANDOM>(*b, *call, e, int(left < TOGETHER ? left : TOGETHER)); \
        } \
    }

#endif

// ---- kernels ----------------------------------------------------------------------------------------------------------------

#ifdef __CUDACC__

// Bytes from one group's memory to the next, so that the groups of a warp, which all read the same of theirs, share few banks.
enum : int {
    OWN_WORDS = sizeof(Memory) / 4, APART = IN_WARP > 1 ? padded_to(LANES, alignof(Memory) / 4) : OWN_WORDS % 32,
    STRIDE = 4 * (OWN_WORDS + (APART + 32 - OWN_WORDS % 32) % 32),
};
static_assert(STRIDE % alignof(Memory) == 0, "a group's memory is aligned");

extern "C" __constant__ const i64 scratch_bytes = GROUPS * STRIDE;  // of shared memory that a launch asks for

// Of a group or block; in 32 bits, B being less than 2^31, which takes fewer registers.
FN i64 environment_of(const Call& call) {
    return u32(call.first) + blockIdx.x * GROUPS + group();
}

// In float32 a multiprocessor holds at least 384 threads, so that each may have 168 registers; in float64 registers come first.
#define KERNEL(NAME, FUNCTION) \
    extern "C" __global__ void __launch_bounds__(BLOCK, sizeof(real) == 4 && BLOCK <= 384 ? 384 / BLOCK : 1) NAME(const Batch b, const Call call) { \
        extern __shared__ __align__(64) uint4 shared[]; \
        if (idle()) return; \
        Memory& memory = *reinterpret_cast<Memory*>(reinterpret_cast<char*>(shared) + group() * STRIDE); \
        for (int n = lane(); n < int(sizeof(Memory) / sizeof(uint4)); n += LANES) reinterpret_cast<uint4*>(&memory)[n] = make_uint4(0, 0, 0, 0); \
        sync(); \
        const i64 e = environment_of(call); \
        if (GROUPS == 1 || e < call.end) FUNCTION(b, call, e, memory); \
    }

extern "C" __global__ void __launch_bounds__(BLOCK) random_actions(const Batch b, const Call call) {
    if (idle()) return;
    const i64 e = environment_of(call);
    if (GROUPS == 1 || e < call.end) random_one(b, call, e);
}

#else

// Each handles the environments first .. last-1 of a launch, so that a pool can share them out.
#define KERNEL(NAME, FUNCTION) \
    EXPORT void NAME(const Batch* b, const Call* call, i64 first, i64 last) { \
        static thread_local Memory of_thread; \
        Memory& memory = kept(of_thread); \
        for (i64 e = call->first + first; e < call->first + last; e++) FUNCTION(*b, *call, e, memory); \
    }

#if CONTINUOUS
EXPORT i64 outside_float32(const float* x, i64 count) { return first_outside(x, count); }
#else
EXPORT i64 outside_int32(const int* x, i64 count) { return first_outside(x, count); }
#endif
EXPORT i64 scratch_bytes() { return sizeof(Memory); }

#endif

static_assert(sizeof(Memory) % 16 == 0, "shared memory is cleared sixteen bytes at a time");

#if LANE_WALK || !defined(TOGETHER)
KERNEL(step, step_one)
#else
KERNEL_TOGETHER(step, false)
#endif
KERNEL(reset, reset_one)
KERNEL(observe, observe_one)
#ifndef __CUDACC__
FN void random_one(const Batch& b, const Call& call, i64 e, Memory&) { random_one(b, call, e); }
KERNEL(random_actions, random_one)
#endif
#ifdef PHASES
#define PHASE_KERNEL(NAME) KERNEL(NAME, NAME##_one)
PHASES(PHASE_KERNEL)
#endif
#if AUTORESET == 1 && !defined(PHASES)
#if LANE_WALK || !defined(TOGETHER)
KERNEL(rollout_random, rollout_one)
#else
KERNEL_TOGETHER(rollout_random, true)
#endif
#endif
