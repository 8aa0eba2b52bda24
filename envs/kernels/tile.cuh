// The batched environment around one Environment that a thread holds, written once for every environment and both compilers.
//
// A tile is one call's worth of vector loops on the CPU, and on the GPU a thread block, or a part of one, with a thread per
// environment. What ends in a block may be counted in any of its tiles. kernel.cuh gives
//
//   struct Environment {
//       static constexpr int RETURN_PER_STEP;      the return of an episode by its length, where it follows from that, or 0
//       static void reset(State&, const Place&, const u32* words);                    words: four random ones of this episode,
//                                                                                 of which the first chose its scenario
//       static void step(State&, Action, const Place&, Outcome&);                     without branches that depend on the state
//       static void observe(const State&, const Place&, float* obs);
//       static float episode_return(int length, bool terminated);    where it follows from these (RUNNING_RETURN 0)
//   };
//
// and may define
//
//   OVER 1     a step may end its episode by the outcome's `over`, which truncates it
//   CARRIES 1  reset finds in its State that of the episode before, which is anything in episode 0
//   TAIL n     the last n numbers of an observation are a row of a table, and observe writes those before them:
//       static const float* tail(const State&, const Place&);    where the row is
#pragma once
#include "state.cuh"
#include "batch.cuh"

#ifndef OVER
#define OVER 0
#endif
#ifndef CARRIES
#define CARRIES 0
#endif
#ifndef TAIL
#define TAIL 0
#endif
enum { HEAD = OBS - (TAIL) };  // numbers of an observation that observe writes
static_assert(HEAD > 0 && !(TAIL && VIEW), "an observation begins with numbers of its own");
// Storage of a CPU's arrays of OBS times many numbers: long ones, which would fill a thread's stack, lie outside of it.
#if OBS > 1024
#define STORED static thread_local
#else
#define STORED
#endif

#if CONTINUOUS
typedef float Choice;          // of a policy, of one number
enum { SCORES = NUMBERS };     // outputs of a policy
#else
typedef int Choice;
enum { SCORES = CHOICES };
#endif
#if NUMBERS == 1
typedef Choice Chosen;  // what a policy chooses
#else
struct Chosen {
    Choice of[NUMBERS];
};
#endif

enum { FETCH_EVERY = 8 };  // steps between fetches of reset numbers
enum Policy { RANDOM, LINEAR, MLP };
constexpr float LARGEST = 3.402823466e38f;

enum { WORDS = 4 };  // of a reset

// ---- one environment --------------------------------------------------------------------------------------------------------

// A tile's sum over the episodes that ended in it. Where the return is so much per step, it follows from the lengths.
struct Episodes {
#if RUNNING_RETURN
    static constexpr int PER_STEP = 0;
#else
    static constexpr int PER_STEP = Environment::RETURN_PER_STEP;
#endif
    i64 count = 0, steps = 0, returns = 0;
    int shortest = 0x7fffffff, longest = 0;
    float lowest = LARGEST, highest = -LARGEST;

    FN void add(int length, float value) {
        count += 1;
        steps += length;
        shortest = length < shortest ? length : shortest;
        longest = length > longest ? length : longest;
        if (PER_STEP != 0) return;
        value = counted(value);
        returns += units_of(value);
        lowest = value < lowest ? value : lowest;
        highest = value > highest ? value : highest;
    }
    FN void merge(const Episodes& e) {
        count += e.count;
        steps += e.steps;
        shortest = e.shortest < shortest ? e.shortest : shortest;
        longest = e.longest > longest ? e.longest : longest;
        if (PER_STEP != 0) return;
        returns += e.returns;
        lowest = e.lowest < lowest ? e.lowest : lowest;
        highest = e.highest > highest ? e.highest : highest;
    }
    FN void store(const Batch& b, i64 tile) const {
        const i64 n = b.tiles;
        i64* total = b.totals + tile;
        double* extreme = b.extremes + tile;
        add_to(total, count);
        add_to(total + n, steps);
        add_to(total + 2 * n, PER_STEP == 0 ? returns : PER_STEP * steps * RETURN_UNIT);
        const float of_shortest = float(PER_STEP * shortest), of_longest = float(PER_STEP * longest);
        const float least = PER_STEP == 0 ? lowest : PER_STEP > 0 ? of_shortest : of_longest;
        const float most = PER_STEP == 0 ? highest : PER_STEP > 0 ? of_longest : of_shortest;
        widen(extreme, n, shortest, longest, least, most);
    }
};

FN void load(const Batch& b, i64 i, State& s) {
WRITTEN_OUT
    for (int j = 0; j < REALS; j++) s.of[j] = b.state[j * b.num_envs + i];
#if DOUBLES
WRITTEN_OUT
    for (int j = 0; j < DOUBLES; j++) s.doubles[j] = b.doubles[j * b.num_envs + i];
#endif
#if INTEGERS
WRITTEN_OUT
    for (int j = 0; j < INTEGERS; j++) s.integers[j] = b.integers[j * b.num_envs + i];
#endif
}

FN void save(const Batch& b, i64 i, const State& s) {
WRITTEN_OUT
    for (int j = 0; j < REALS; j++) b.state[j * b.num_envs + i] = s.of[j];
#if DOUBLES
WRITTEN_OUT
    for (int j = 0; j < DOUBLES; j++) b.doubles[j * b.num_envs + i] = s.doubles[j];
#endif
#if INTEGERS
WRITTEN_OUT
    for (int j = 0; j < INTEGERS; j++) b.integers[j * b.num_envs + i] = s.integers[j];
#endif
}

// Place of environment `lane` of a tile at step t of its running episode.
FN Place at_step(const Batch& b, const Span& span, int lane, int t) {
    return place_of(b, span, lane, b.episode[span.base + lane], SCENARIOS ? b.scenario[span.base + lane] : 0, t, 1);
}

// The first state of an environment's episode, by the words of its reset.
FN Place first_place(const Batch& b, const Span& span, int lane, u32 episode, const u32* words) {
    return place_of(b, span, lane, episode, scenario_of(b, words[0]), 0, 1);
}

// The first N numbers of a row.
template <int N>
FN void write_row(float* row, const float* obs) {
#ifdef __CUDACC__  // the widest stores that rows are aligned for
    if (OBS % 4 == 0 && N % 4 == 0) {
#pragma unroll
        for (int j = 0; j < N; j += 4)
            *reinterpret_cast<float4*>(row + j) = make_float4(obs[j], obs[(j + 1) % N], obs[(j + 2) % N], obs[(j + 3) % N]);
        return;
    }
    if (OBS % 2 == 0 && N % 2 == 0) {
#pragma unroll
        for (int j = 0; j < N; j += 2) *reinterpret_cast<float2*>(row + j) = make_float2(obs[j], obs[(j + 1) % N]);
        return;
    }
#endif
#pragma unroll
    for (int j = 0; j < N; j++) row[j] = obs[j];
}

// The numbers of an observation that are a row of a table.
FN void write_tail(const State& s, const Place& at, float* row) {
#if TAIL
    const float* const tail = Environment::tail(s, at);
    for (int j = 0; j < (TAIL); j++) row[HEAD + j] = tail[j];
#endif
}

FN void observe(const State& s, const Place& at, float* row) {
    float obs[HEAD];
    Environment::observe(s, at, obs);
    write_row<HEAD>(row, obs);
    write_tail(s, at, row);
}

// All numbers of an observation, not yet in a row of the batch.
FN void observe_whole(const State& s, const Place& at, float* obs) {
    Environment::observe(s, at, obs);
    write_tail(s, at, obs);
}

FN void clear_metrics(const Batch& b, i64 i) {
    for (int n = 0; n < METRICS; n++) b.metrics[i * METRICS + n] = 0.0f;
}

// Number as which an unchecked one acts: the nearest one inside a discrete space; of a continuous one any number, and NaN
// as 0.
template <typename Given>
FN Number admitted(Given number, int k = 0) {
#if CONTINUOUS
    return number == number ? Number(number) : Number(0);
#else
    const int last = int(highest_of(k));
    return number <= Given(0) ? 0 : number >= Given(last) ? last : int(number);
#endif
}

// The action of environment i.
template <typename Given>
FN Action action_of(const Given* actions, i64 i) {
#if NUMBERS == 1
    return admitted(actions[i]);
#else
    Action action;
WRITTEN_OUT
    for (int k = 0; k < NUMBERS; k++) action.of[k] = admitted(actions[i * NUMBERS + k], k);
    return action;
#endif
}
// The action that a policy chose: of a discrete space it is inside.
FN Action action_of(Chosen chosen) {
#if NUMBERS > 1
    return action_of(chosen.of, 0);
#elif CONTINUOUS
    return admitted(chosen);
#else
    return chosen;
#endif
}

FN void store(Stored* row, Chosen chosen) {
#if NUMBERS == 1
    *row = Stored(chosen);
#else
WRITTEN_OUT
    for (int k = 0; k < NUMBERS; k++) row[k] = Stored(chosen.of[k]);
#endif
}

// An episode begins in a state.
FN void begin(const Batch& b, const Place& at, const State& s) {
    const i64 i = at.environment;
    save(b, i, s);
    if (!VIEW) observe(s, at, b.obs + i * OBS);
    b.elapsed[i] = 0;
    if (SCENARIOS) b.scenario[i] = at.scenario;
    if (RUNNING_RETURN) b.running_return[i] = 0.0f;
}

// Rewards are summed only where the return does not follow from the length.
FN float return_of(float running, int length, bool terminated) {
#if RUNNING_RETURN
    return running;
#else
    return Environment::episode_return(length, terminated);
#endif
}

// Writes the info rows of the episode that ended in state s after so many steps with such a return.
FN void finish_episode(const Batch& b, const Place& at, const State& s, int length, float value, Episodes& episodes) {
    const i64 i = at.environment;
    observe(s, at, b.final_obs + i * OBS);
    b.episode_return[i] = value;
    b.episode_length[i] = length;
    episodes.add(length, value);
}

// The documented random policy. One number: a Philox block of four words holds PER_WORD actions in each, lowest bits first.
// Several: as batch.cuh says.
#if CONTINUOUS
enum { PER_WORD = 1 };
#else
enum { PER_WORD = CHOICES == 2 ? 32 : 2 };
#endif
enum { PER_BLOCK = 4 * PER_WORD };

FN int word_of_block(i64 t) { return int(t / PER_WORD & 3); }

#if NUMBERS == 1
FN Chosen random_action(u32 word, i64 t) {
#if CONTINUOUS
    return uniform_in(word, lowest_of(0), highest_of(0));
#else
    if (CHOICES == 2) return int((word >> (t & 31)) & 1);
    return int((CHOICES * ((word >> (t & 1 ? 16 : 0)) & 0xffff)) >> 16);
#endif
}
#else
FN Chosen random_action(const Span& span, int lane, i64 t) {
    Chosen chosen;
    u32 word[4];
WRITTEN_OUT
    for (int k = 0; k < NUMBERS; k++) {
        if (k % 4 == 0) random_words(span.index + lane, k / 4, t, span.key, word);
        chosen.of[k] = Choice(random_number(word[k % 4], k));
    }
    return chosen;
}
#endif

#if NUMBERS == 1  // policies of one number can be carried in the kernel
// The highest of the scores, the lowest such action first; or the one score, clipped to the space.
FN Chosen best_action(const float* scores) {
#if CONTINUOUS
    const float low = lowest_of(0), high = highest_of(0);
    return scores[0] < low ? low : scores[0] > high ? high : scores[0];
#else
    int best = 0;
    float highest = scores[0];
#pragma unroll
    for (int a = 1; a < SCORES; a++) {
        best = scores[a] > highest ? a : best;
        highest = scores[a] > highest ? scores[a] : highest;
    }
    return best;
#endif
}

// Action that the environment gets: a sample may lie outside the space, and then acts as the nearest number inside.
FN Chosen taken(Chosen action) {
#if CONTINUOUS
    return best_action(&action);
#else
    return action;
#endif
}

FN Chosen linear_action(const float* obs, const float* weights, const float* bias) {
    float scores[SCORES];
#pragma unroll
    for (int a = 0; a < SCORES; a++) {
        scores[a] = bias[a];
#pragma unroll
        for (int j = 0; j < OBS; j++) scores[a] = fused(weights[a * OBS + j], obs[j], scores[a]);
    }
    return best_action(scores);
}
#else
FN Chosen taken(const Chosen& action) { return action; }
#endif

// An observation as a trajectory keeps it, and so as the policy sees it.
FN float kept(float obs, bool narrow) { return narrow ? from_bfloat16(bfloat16(obs)) : obs; }

#if TAIL
// An observation that no policy sees, in its row of a trajectory, of which there is one.
FN void keep(const State& s, const Place& at, float* row, u16* narrow_row) {
    const float* const tail = Environment::tail(s, at);
    float obs[HEAD];
    Environment::observe(s, at, obs);
    if (narrow_row) {
        for (int j = 0; j < OBS; j++) narrow_row[j] = bfloat16(j < HEAD ? obs[j < HEAD ? j : 0] : tail[j - HEAD]);
    } else {
        write_row<HEAD>(row, obs);
        for (int j = HEAD; j < OBS; j++) row[j] = tail[j - HEAD];
    }
}
#endif

#if HIDDEN
#include "mlp.cuh"
#endif
#ifdef __CUDACC__
#include "tile_cuda.cuh"
#else
#include "tile_cpu.cuh"
#endif
