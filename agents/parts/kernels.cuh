// Parts of a roll-out around the environment, written once for both compilers: sampling noise, keys of the minibatch order,
// advantages, discounted returns.
//
// A kernel's work is cut into tiles: a thread block on the GPU, one thread per item or column; vector loops on the CPU, where an
// exported function handles the tiles first .. last-1. Of a kernel's two structs the first is fixed for the life of a buffer,
// the second holds the arguments of a call. Numbers that change while a CUDA graph is replayed are read through pointers.
#pragma once
#include "kernels/philox.cuh"

constexpr u32 STREAM_ORDER = 0x80000002u;

// Every field of every struct is eight bytes; the Python side reads names and order from this text.
struct Noise {
    int* words;            // [T, B, A, 4 * blocks] Philox words shifted right by 8
    const u64* seeds;      // [groups]
    i64 per_env;           // A * blocks: Philox blocks of one environment and step
    i64 group_size;        // B / groups
    i64 groups;
    i64 first_index;       // of environment 0 of each group, in the noise counter
    i64 tiles_per_group;
    i64 count;             // Philox blocks of a group: T * group_size * per_env
};
struct NoiseCall {
    const i64* clock;      // [1] step of the first row
};

struct Order {
    void* keys;            // [epochs, groups, rows]
    const u64* seeds;      // [groups]
    i64 rows;
    i64 groups;
    i64 tiles_per_segment; // a segment is the rows of one epoch and group
};
struct OrderCall {
    const i64* iteration;  // [1]
};

struct Columns {
    const float* gamma;    // [parts] of equally many columns
    const float* decay;    // [parts] gamma * lambda
    i64 columns;           // N
    i64 per_part;          // N / parts
    float* advantage;      // [T, N]
    float* target;         // [T, N]
    float* running;        // [N] discounted return after the last row
};
struct ColumnsCall {
    i64 steps;             // T
    const float* reward;   // [T, N]
    const float* value;    // [T + 1, N]
    const float* bootstrap; // [T, N] value of the last observation of an episode that was cut off
    const u8* terminated;  // [T, N]
    const u8* truncated;   // [T, N]
    const u8* valid;       // [T, N]
    float* returns;        // [T, N] discounted, up to and with the row
};

#ifdef __CUDACC__
#define KERNEL(name, Fixed, Call, threads, tile)                                                       \
    extern "C" __global__ void __launch_bounds__(threads) name(const Fixed fixed, const Call call) {   \
        tile(fixed, call, i64(blockIdx.x));                                                            \
    }
#else
#define KERNEL(name, Fixed, Call, threads, tile)                                                       \
    extern "C" void name(const Fixed* fixed, const Call* call, i64 first, i64 last) {                  \
        for (i64 number = first; number < last; number++) tile(*fixed, *call, number);                 \
    }
struct alignas(64) Words {
    u32 word[4][ITEMS];
};
#endif

// ---- noise ------------------------------------------------------------------------------------------------------------------

// A tile is ITEMS Philox blocks of one group, counted over [T, group_size, per_env].
FN void noise_tile(const Noise& n, const NoiseCall& call, i64 tile) {
    const i64 group = tile / n.tiles_per_group, begin = (tile - group * n.tiles_per_group) * ITEMS;
    const i64 per_step = n.group_size * n.per_env, clock = *call.clock;
    int* words = n.words + 4 * group * per_step;  // of the group, in the first step
#ifdef __CUDACC__
    const i64 item = begin + threadIdx.x;
    if (item >= n.count) return;
    const i64 t = item / per_step, rest = item - t * per_step, i = rest / n.per_env;
    u32 c0 = u32(n.first_index + i), c1 = u32(rest - i * n.per_env), c2 = u32(clock + t), c3 = STREAM_SAMPLING;
    philox(c0, c1, c2, c3, n.seeds[group]);
    int4* row = reinterpret_cast<int4*>(words + 4 * (t * n.groups * per_step + rest));
    *row = make_int4(int(c0 >> 8), int(c1 >> 8), int(c2 >> 8), int(c3 >> 8));
#else
    const i64 left = n.count - begin;
    const int count = int(left < ITEMS ? left : ITEMS), padded = (count + 15) / 16 * 16;
    const i64 t0 = begin / per_step, rest0 = begin - t0 * per_step;
    Words w;
    i64 i = rest0 / n.per_env, k = rest0 - i * n.per_env, t = t0;
    for (int j = 0; j < padded; j++) {
        w.word[0][j] = u32(n.first_index + i);
        w.word[1][j] = u32(k);
        w.word[2][j] = u32(clock + t);
        w.word[3][j] = STREAM_SAMPLING;
        const bool next_env = ++k == n.per_env;
        k = next_env ? 0 : k;
        i += next_env;
        const bool next_step = i == n.group_size;
        i = next_step ? 0 : i;
        t += next_step;
    }
    philox_many(w.word[0], w.word[1], w.word[2], w.word[3], padded, n.seeds[group]);
    t = t0;
    for (i64 j = 0, rest = rest0; j < count; rest = 0, t++) {  // the rows of one step lie together
        const i64 run = per_step - rest < count - j ? per_step - rest : count - j;
        int* row = words + 4 * (t * n.groups * per_step + rest);
        VECTORISE
        for (i64 m = 0; m < run; m++) {
            row[4 * m] = int(w.word[0][j + m] >> 8);
            row[4 * m + 1] = int(w.word[1][j + m] >> 8);
            row[4 * m + 2] = int(w.word[2][j + m] >> 8);
            row[4 * m + 3] = int(w.word[3][j + m] >> 8);
        }
        j += run;
    }
#endif
}

// ---- order of the minibatches -----------------------------------------------------------------------------------------------

// A tile is ITEMS rows of one segment. The first bit of a word is turned over, so that signed numbers sort as the words do.
FN void order_tile(const Order& o, const OrderCall& call, i64 tile) {
    const i64 segment = tile / o.tiles_per_segment, begin = (tile - segment * o.tiles_per_segment) * ITEMS;
    const i64 epoch = segment / o.groups;
    const u64 key = o.seeds[segment - epoch * o.groups];
    const u32 iteration = u32(*call.iteration);
#ifdef __CUDACC__  // words, for a sort that leaves equals in place
    const i64 position = begin + threadIdx.x;
    if (position >= o.rows) return;
    u32 c0 = u32(position), c1 = u32(epoch), c2 = iteration, c3 = STREAM_ORDER;
    philox(c0, c1, c2, c3, key);
    static_cast<int*>(o.keys)[segment * o.rows + position] = int(c0 ^ 0x80000000u);
#else  // word and position in one number, for a sort of bare numbers
    const i64 left = o.rows - begin;
    const int count = int(left < ITEMS ? left : ITEMS), padded = (count + 15) / 16 * 16;
    Words w;
    for (int j = 0; j < padded; j++) {
        w.word[0][j] = u32(begin) + u32(j);
        w.word[1][j] = u32(epoch);
        w.word[2][j] = iteration;
        w.word[3][j] = STREAM_ORDER;
    }
    philox_many(w.word[0], w.word[1], w.word[2], w.word[3], padded, key);
    u64* keys = static_cast<u64*>(o.keys) + segment * o.rows + begin;
    VECTORISE
    for (int j = 0; j < count; j++) keys[j] = u64(w.word[0][j] ^ 0x80000000u) << 32 | (u32(begin) + u32(j));
#endif
}

// ---- along the columns ------------------------------------------------------------------------------------------------------

// A row that is not valid is passed over: nothing of it is used but that a flag ends the episode.
template <bool MASKED>
FN void advantage_row(const Columns& c, const ColumnsCall& call, i64 at, float gamma, float decay, float& value_later,
                      float& advantage_later) {
    const bool valid = !MASKED || call.valid[at], terminated = call.terminated[at], truncated = call.truncated[at];
    const float value = call.value[at], bootstrap = call.bootstrap[at];
    const float following = terminated ? 0.0f : truncated ? bootstrap : value_later;
    const float later = terminated | truncated ? 0.0f : advantage_later;
    const float one_step = call.reward[at] + gamma * following - value;
    const float advantage = one_step + decay * later;
    c.advantage[at] = valid ? advantage : 0.0f;
    c.target[at] = valid ? advantage + value : 0.0f;
    value_later = valid ? value : terminated | truncated ? 0.0f : value_later;
    advantage_later = valid ? advantage : later;
}

template <bool MASKED>
FN void returns_row(const Columns& c, const ColumnsCall& call, i64 at, float gamma, float& running) {
    const bool valid = !MASKED || call.valid[at], ended = call.terminated[at] | call.truncated[at];
    const float present = gamma * running + call.reward[at];
    call.returns[at] = valid ? present : 0.0f;
    const float kept = valid ? present : running;
    running = ended ? 0.0f : kept;
}

// A tile is COLUMNS columns.
template <bool MASKED>
FN void advantage_tile(const Columns& c, const ColumnsCall& call, i64 tile) {
    const i64 begin = tile * COLUMNS, N = c.columns;
#ifdef __CUDACC__
    const i64 column = begin + threadIdx.x;
    if (column >= N) return;
    const float gamma = c.gamma[column / c.per_part], decay = c.decay[column / c.per_part];
    float value = call.value[call.steps * N + column], advantage = 0.0f;
#pragma unroll 8
    for (i64 t = call.steps - 1; t >= 0; t--)
        advantage_row<MASKED>(c, call, t * N + column, gamma, decay, value, advantage);
#else
    const int count = int(N - begin < COLUMNS ? N - begin : COLUMNS);
    float gamma[COLUMNS], decay[COLUMNS], value[COLUMNS], advantage[COLUMNS];
    for (int j = 0; j < count; j++) {
        gamma[j] = c.gamma[(begin + j) / c.per_part];
        decay[j] = c.decay[(begin + j) / c.per_part];
        value[j] = call.value[call.steps * N + begin + j];
        advantage[j] = 0.0f;
    }
    for (i64 t = call.steps - 1; t >= 0; t--) {
        VECTORISE
        for (int j = 0; j < count; j++)
            advantage_row<MASKED>(c, call, t * N + begin + j, gamma[j], decay[j], value[j], advantage[j]);
    }
#endif
}

template <bool MASKED>
FN void returns_tile(const Columns& c, const ColumnsCall& call, i64 tile) {
    const i64 begin = tile * COLUMNS, N = c.columns;
#ifdef __CUDACC__
    const i64 column = begin + threadIdx.x;
    if (column >= N) return;
    const float gamma = c.gamma[column / c.per_part];
    float running = c.running[column];
#pragma unroll 8
    for (i64 t = 0; t < call.steps; t++) returns_row<MASKED>(c, call, t * N + column, gamma, running);
    c.running[column] = running;
#else
    const int count = int(N - begin < COLUMNS ? N - begin : COLUMNS);
    float gamma[COLUMNS], running[COLUMNS];
    for (int j = 0; j < count; j++) {
        gamma[j] = c.gamma[(begin + j) / c.per_part];
        running[j] = c.running[begin + j];
    }
    for (i64 t = 0; t < call.steps; t++) {
        VECTORISE
        for (int j = 0; j < count; j++) returns_row<MASKED>(c, call, t * N + begin + j, gamma[j], running[j]);
    }
    for (int j = 0; j < count; j++) c.running[begin + j] = running[j];
#endif
}

KERNEL(noise, Noise, NoiseCall, ITEMS, noise_tile)
KERNEL(order, Order, OrderCall, ITEMS, order_tile)
KERNEL(advantage, Columns, ColumnsCall, COLUMNS, advantage_tile<false>)
KERNEL(advantage_of_valid, Columns, ColumnsCall, COLUMNS, advantage_tile<true>)
KERNEL(returns, Columns, ColumnsCall, COLUMNS, returns_tile<false>)
KERNEL(returns_of_valid, Columns, ColumnsCall, COLUMNS, returns_tile<true>)
