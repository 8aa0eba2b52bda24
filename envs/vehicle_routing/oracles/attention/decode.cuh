// A whole walk of the attention model in one launch (README.md, 5.3): LANES lanes of a GPU make one, or the one of a CPU. The text before
// this one defines D, HEADS, LEGS and `Rules`.
#pragma once
#include "kernels/lanes.cuh"
#include "vehicle_routing/walk.cuh"

enum : int { WORDS = (Rules::NODES + 31) / 32, OF_HEAD = D / HEADS, MOVES = 3, ASKED = 3 };
enum : int { WIDE = LANES == 1 ? (OF_HEAD % 16 ? 8 : 16) : 1 };  // numbers of a glimpse that a lane sums side by side
static_assert(D % HEADS == 0 && OF_HEAD % 8 == 0, "a head has 8, 16, .. numbers");

// The Python side reads names and order from this text. B problems of N nodes, W = B samples walks of P places at most.
struct Batch {
    const int* travel;    // [zones, zones]
    const int* zone;      // [B, N], as the next five
    const int* earliest;
    const int* latest;
    const int* demand;
    const int* service;
    const u8* there;
    const real* keys;     // [B, N, 4 D]: key, value, key of the pointer, query
    const real* context;  // [ASKED, D]: what load, clock and step add to a query
    const real* legs;     // [MOVES]
    const real* uniform;  // [W, P], or [samples, P] where problems share them; null: greedy
    const int* first;     // [W]: first node, where it is allowed; null: all are chosen
    short* walk;          // [W, P]
    int* cost;            // [W], as the next two
    int* vehicles;
    u8* ok;
    u32* masks;           // [W, P, WORDS]: what each selection chose from; null: not asked for, as the next
    real* asked;          // [W, P, ASKED]: load, clock and step at each selection
    i64 nodes;
    i64 zones;
    i64 samples;
    i64 places;
    i64 shared;
};
struct Call {
    i64 walks;
};

FN float e_to(float x) { return exponential(x); }
FN double e_to(double x) { return exp(x); }
FN float tanh_of(float x) { return hyperbolic_tangent(x); }
FN double tanh_of(double x) { return tanh(x); }

template <int COUNT>
FN real folded(real* sum) {
    if constexpr (COUNT == 1) return sum[0];
    else {
UNROLL
        for (int k = 0; k < COUNT / 2; k++) sum[k] += sum[k + COUNT / 2];
        return folded<COUNT / 2>(sum);
    }
}
template <int COUNT>
FN real dot(const real* a, const real* b) {
    enum : int { SUMS = COUNT % 16 ? 8 : 16 };
    real sum[SUMS] = {};
    for (int i = 0; i < COUNT; i += SUMS) {
UNROLL
        for (int k = 0; k < SUMS; k++) sum[k] = fused(a[i + k], b[i + k], sum[k]);
    }
    return folded<SUMS>(sum);
}

struct Scratch {
    Walk<Rules> walk;
    int latest[Rules::NODES], list[Rules::NODES];  // list: of the nodes that are allowed, ascending
    u8 may[Rules::NODES];
    u32 allowed[WORDS];
    int count, choice, requests;
    real load, clock, step;  // as a query knows them
    real query[D], glimpse[D], score[Rules::NODES * HEADS], logit[Rules::NODES];
#ifdef __CUDACC__
    enum : int { PITCH = 3 * D + 1 };  // odd, so that lanes with a node each read from different banks
    real held[Rules::NODES * PITCH];
#else
    enum : int { PITCH = 4 * D };
#endif
};

struct Decoder {
    const Batch& batch;
    Scratch& s;
    const i64 number, rows;  // of the walk; the problem's first row
    const Problem p;
    const real* const keys;  // where key, value and pointer are read
    short* const places;

    FN const real* key(int node) const { return keys + node * Scratch::PITCH; }

    FN void begin() const {
        for (int k = lane(); k < batch.places; k += LANES) places[k] = 0;
        for (int node = lane(); node < batch.nodes; node += LANES) s.latest[node] = batch.latest[rows + node];
#ifdef __CUDACC__
        for (int k = lane(); k < batch.nodes * 3 * D; k += LANES)
            s.held[k / (3 * D) * Scratch::PITCH + k % (3 * D)] = batch.keys[(rows + k / (3 * D)) * 4 * D + k % (3 * D)];
#endif
        sync();
        if (lane() == 0) {
            s.walk.start(p, places);
            for (int node = 1; node < batch.nodes; node++)
                if (!batch.there[rows + node]) s.walk.see(node);
            s.requests = Rules::PAIRED ? s.walk.left / 2 : s.walk.left;
        }
        sync();
    }

    // Lists what is allowed.
    FN void look() const {
        for (int node = lane(); node < batch.nodes; node += LANES) s.may[node] = node > 0 && s.walk.allowed(p, node);
        sync();
        if (lane() == 0) {
            int count = 0;
            for (int w = 0; w < WORDS; w++) s.allowed[w] = 0;
            for (int node = 1; node < batch.nodes; node++) {
                s.list[count + 1] = node;  // overwritten by the next one, unless it is allowed
                count += s.may[node];
                s.allowed[node >> 5] |= u32(s.may[node]) << (node & 31);
            }
            const int home = s.walk.depot_allowed(count > 0);
            s.allowed[0] |= u32(home);
            s.list[0] = 0;
            if (!home)
                for (int c = 0; c < count; c++) s.list[c] = s.list[c + 1];
            s.count = count + home;
        }
        sync();
    }

    FN void ask(int step) const {
        if (lane() == 0) {
            s.load = real(s.walk.load) / Rules::CAPACITY;
            s.clock = real(s.walk.clock) / Rules::HORIZON;
            s.step = real(step) / real(2 * (s.requests > 0 ? s.requests : 1));
        }
        sync();
        const real* const here = batch.keys + ((rows + s.walk.at) * 4 + 3) * D;
        for (int k = lane(); k < D; k += LANES)
            s.query[k] = here[k] + fused(s.step, batch.context[2 * D + k], fused(s.clock, batch.context[D + k], s.load * batch.context[k]));
        sync();
    }

    FN void attend() const {
        const int count = s.count;
        for (int k = lane(); k < count * HEADS; k += LANES) {
            const int c = k / HEADS, h = k % HEADS;
            s.score[k] = dot<OF_HEAD>(s.query + h * OF_HEAD, key(s.list[c]) + h * OF_HEAD);
        }
        sync();
        for (int h = lane(); h < HEADS; h += LANES) {
            real most = s.score[h], sum = 0;
            for (int c = 1; c < count; c++) most = s.score[c * HEADS + h] > most ? s.score[c * HEADS + h] : most;
            for (int c = 0; c < count; c++) sum += s.score[c * HEADS + h] = e_to(s.score[c * HEADS + h] - most);
            for (int c = 0; c < count; c++) s.score[c * HEADS + h] /= sum;
        }
        sync();
        for (int k = lane() * WIDE; k < D; k += LANES * WIDE) {
            real sum[WIDE] = {};
            for (int c = 0; c < count; c++) {
                const real weight = s.score[c * HEADS + k / OF_HEAD];
                const real* const value = key(s.list[c]) + D + k;
                for (int i = 0; i < WIDE; i++) sum[i] = fused(weight, value[i], sum[i]);
            }
            for (int i = 0; i < WIDE; i++) s.glimpse[k + i] = sum[i];
        }
        sync();
        for (int c = lane(); c < count; c += LANES) s.logit[c] = dot<D>(s.glimpse, key(s.list[c]) + 2 * D) + of_move(s.list[c]);
        sync();
    }

    // Terms of leg, wait and slack in a node's logit.
    FN real of_move(int node) const {
        if (!LEGS) return 0;
        const int leg = p.leg(s.walk.at, node), arrival = s.walk.clock + leg;
        const int start = node ? s.walk.opening(p, node) : arrival, slack = node ? p.latest[node] - arrival : 0;
        const real unit = real(1) / MOVE_TICKS;
        return batch.legs[0] * (leg * unit) + batch.legs[1] * ((start - s.walk.clock) * unit) + batch.legs[2] * (slack * unit);
    }

    FN int greediest() const {
        int found = 0;
        for (int c = 1; c < s.count; c++) found = s.logit[c] > s.logit[found] ? c : found;
        return s.list[found];
    }
    FN int drawn(real u) const {
        real most = s.logit[0], sum = 0, below = 0;
        for (int c = 1; c < s.count; c++) most = s.logit[c] > most ? s.logit[c] : most;
        most = CLIP * tanh_of(most);
        for (int c = 0; c < s.count; c++) sum += s.logit[c] = e_to(CLIP * tanh_of(s.logit[c]) - most);
        for (int c = 0; c < s.count - 1; c++) {
            below += s.logit[c];
            if (u * sum < below) return s.list[c];
        }
        return s.list[s.count - 1];
    }

    FN void choose(int step) const {
        const bool given = step == 0 && batch.first && s.may[batch.first[number]];
        if (s.count > 1 && !given) {
            ask(step);
            attend();
        } else if (batch.asked) {
            ask(step);
        }
        if (lane() == 0) {
            const real* const uniform = batch.uniform + (batch.shared ? number % batch.samples : number) * batch.places;
            s.choice = given ? batch.first[number] : s.count == 1 ? s.list[0] : batch.uniform ? drawn(uniform[step]) : greediest();
            const i64 row = number * batch.places + step;
            for (int w = 0; batch.masks && w < WORDS; w++) batch.masks[row * WORDS + w] = s.allowed[w];
            if (batch.asked) {
                batch.asked[row * ASKED] = s.load;
                batch.asked[row * ASKED + 1] = s.clock;
                batch.asked[row * ASKED + 2] = s.step;
            }
            s.walk.select(p, s.choice, places);
        }
        sync();
    }

    FN void run() const {
        begin();
        bool stuck = false;
        for (int step = 0; !s.walk.over() && !stuck; step++) {
            look();
            stuck = s.count == 0;  // a request that cannot be served alone
            if (!stuck) choose(step);
        }
        if (lane() == 0) {
            const bool complete = !stuck && s.walk.finish(places);
            const Bill bill = bill_of<Rules>(p, places, s.walk.length);
            batch.cost[number] = bill.cost;
            batch.vehicles[number] = bill.vehicles;
            batch.ok[number] = complete && bill.ok;
        }
        sync();
    }
};

FN void decode_walk(const Batch& batch, Scratch& s, i64 number) {
    const i64 rows = number / batch.samples * batch.nodes;
    const Problem p = {batch.travel, batch.zone + rows, batch.earliest + rows, s.latest, batch.demand + rows, batch.service + rows,
                       int(batch.zones), int(batch.nodes)};
#ifdef __CUDACC__
    const real* const keys = s.held;
#else
    const real* const keys = batch.keys + rows * Scratch::PITCH;
#endif
    const Decoder decoder = {batch, s, number, rows, p, keys, batch.walk + number * batch.places};
    decoder.run();
}

#ifdef __CUDACC__
extern "C" __constant__ const i64 scratch_bytes = sizeof(Scratch);  // of shared memory that a launch asks for
extern "C" __global__ void __launch_bounds__(LANES) decode(Batch batch, Call call) {
    extern __shared__ __align__(16) char memory[];
    decode_walk(batch, *reinterpret_cast<Scratch*>(memory), blockIdx.x);
}
#else
extern "C" void decode(const Batch* batch, const Call*, i64 first, i64 last) {
    Scratch scratch;
    for (i64 number = first; number < last; number++) decode_walk(*batch, scratch, number);
}
#endif
