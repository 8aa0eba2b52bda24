// Sizes, tables and memory of vehicle routing (README.md). Times in ticks.
#pragma once
#include "walk.cuh"

typedef Params P;

constexpr bool PAIRED = P::mode_is_darp, TWIN = !P::reward_is_growth;

enum : int {
    N = P::requests, PER = PAIRED ? 2 : 1, NODES = PER * N + 1,  // nodes of a request, and of a problem at most
    PLACES = P::lookahead_mask ? 4 * N + 2 : 3 * N + 1,          // of a walk
    PROBLEMS = TWIN ? 2 : 1,                                     // the windows that are kept, and those that were offered
    COLUMNS = P::raw_observation ? 6 : 8, ACTIONS = 16,
    // The state, as layout.state_shapes says.
    DECIDED = 0, ANSWERED = 1, FAILED = 2, TRIP = 3, OFFERED = TRIP + N, ORDER = OFFERED + 6 * N, TRAVELLER = ORDER + N,
    KEPT = TRAVELLER + N, ACTION = KEPT + 6 * N, ACCEPTED = ACTION + N, COST = ACCEPTED + N, TWIN_COST = COST + 1,
    WALKED = TWIN_COST + 1, TWIN_WALKED = WALKED + PLACES, INTEGERS_LENGTH = TWIN_WALKED + PLACES,
    FLAG_ACCEPTED = 0, FLAG_FAILED = 1,
    AMOUNT_ANSWERED = 0, AMOUNT_SHIFT = 1, AMOUNT_COST = 2, AMOUNT_VEHICLES = 3, AMOUNT_WALK = 4,
};
static_assert(REALS == 1 && INTEGERS == INTEGERS_LENGTH && OBS == COLUMNS * N && FLAGS == 2 && AMOUNTS == AMOUNT_WALK + PLACES, "port.py says the same");

struct Rules {
    static constexpr bool PAIRED = ::PAIRED, LOOKAHEAD = P::lookahead_mask, ONE_OBLIGATION = P::one_obligation;
    static constexpr bool EARLY_END = P::early_end, SOFT = P::fleet_is_soft, HARD = P::fleet_is_hard;
    static constexpr int CAPACITY = P::capacity, HORIZON = HORIZON_TICKS, MAX_RIDE = MAX_RIDE_TICKS;
    static constexpr int EXTRA_VEHICLE = EXTRA_VEHICLE_TICKS, FLEET_SIZE = P::fleet_size, NODES = ::NODES;
};

// The Python side reads names and order from this text. M trips of a traveller, Z zones, S = PROBLEMS, W = PLACES.
struct Tables {
    const int* travel;      // [Z, Z]
    const float* unit_xy;   // [Z, 2] places in the smallest square round all zones
    const int* trips;       // [n, M, 6]
    const int* trip_count;  // [n]
    const int* threshold;   // [n, M, 2]
    const int* kind;        // [n]
    const int* service;     // [n, M, 2]
    const int* demand;      // [n, M]
    int* nodes;             // [B, S, N] zones, and with the next five a problem for an oracle outside
    int* earliest;
    int* latest;
    int* load;              // demands
    int* stop;              // service times
    u8* there;              // false where there is no request yet
    int* costs;             // [B, S] and with the next three its answers
    short* walks;           // [B, S, W]
    int* vehicles;          // [B, S]
    u8* ok;                 // [B, S]
};

// Routes, by place in their walk.
struct Routes {
    int zone[PLACES], direct[PLACES];  // direct: time to the next place
    int soon[PLACES], late[PLACES], stop[PLACES];
    int ready[PLACES];  // when a vehicle leaves, or NEVER where its route is none
    int room[PLACES];   // when it has to arrive for the rest to be on time
    int load[PLACES];   // as it leaves; of requests with one node as it returns
};

struct Nodes {
    int zone[NODES], earliest[NODES], latest[NODES], demand[NODES], service[NODES];
    Walk<Rules> walk;
};

// Memory shared by the lanes of a group; begins with anything.
struct alignas(16) Scratch {
    real state[REALS];
    int integers[INTEGERS];
    int action;
    Bill bill[PROBLEMS];
    int places[PROBLEMS][PLACES];
    union {
        Routes routes;
        Nodes nodes;
    };
};

FN int smaller_of(int a, int b) { return a < b ? a : b; }
FN int larger_of(int a, int b) { return a > b ? a : b; }

// The upper half of a product: a whole number 0 .. count-1 of a word.
FN int mulhi(u32 word, int count) { return int(u64(word) * u32(count) >> 32); }

// Word 0 of an item's block.
FN u32 word_of(const Place& at, int item, u32 stream) {
    u32 words[4] = {at.index, at.episode, u32(item), stream};
    philox(words[0], words[1], words[2], words[3], at.key);
    return words[0];
}

// The least of what the lanes of a group have.
FN u64 least(u64 own) {
#if LANE_WALK
    static_assert(LANES <= 32 && (LANES & (LANES - 1)) == 0, "a group is within a warp, and halved until one lane is left");
    for (int half = LANES / 2; half; half /= 2) {
        const u64 other = __shfl_xor_sync(of_group(), own, half);
        own = other < own ? other : own;
    }
#endif
    return own;
}

// ---- requests by decision -----------------------------------------------------------------------------------------------------

// A state may be put in from outside, so that what is an index is made to be one.
FN int zone_of(const int* window) { return smaller_of(window[0], ZONES - 1); }

// Traveller of a decision that has been made.
FN int traveller_of(const Scratch& s, int i) { return larger_of(s.integers[TRAVELLER + i], 0); }

FN i64 trip_of(const Scratch& s, int traveller) { return i64(traveller) * TRIPS + smaller_of(s.integers[TRIP + traveller], TRIPS - 1); }

// (zone, e, l) of a node: as kept, or in the twin as offered.
FN const int* window_of(const Scratch& s, int twin, int node) {
    const int i = (node - 1) / PER;
    const int* const row = s.integers + (twin ? OFFERED + 6 * traveller_of(s, i) : KEPT + 6 * i);
    return row + (PAIRED ? 3 * ((node - 1) & 1) : 0);
}
FN int demand_of(const Scratch& s, const Place& at, int node) {
    const int own = PLAIN ? 1 : at.tables.demand[trip_of(s, traveller_of(s, (node - 1) / PER))];
    return PAIRED && !(node & 1) ? -own : own;
}
FN int service_of(const Scratch& s, const Place& at, int node) {
    if (PLAIN) return 0;
    return at.tables.service[2 * trip_of(s, traveller_of(s, (node - 1) / PER)) + (PAIRED ? (node - 1) & 1 : 0)];
}
