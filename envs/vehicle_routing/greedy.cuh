// The greedy oracle (README.md, 5): a walk that always goes to the allowed node of the smallest key.
#pragma once
#include "layout.cuh"

// The problem of all decisions up to the present one, of which each lane has its own nodes until they synchronise.
FN Problem problem_of(Scratch& s, const Place& at, int twin) {
    Nodes& n = s.nodes;
    const int nodes = PER * (s.integers[DECIDED] + 1) + 1;
    for (int node = lane(); node < nodes; node += LANES) {
        if (node == 0) {
            n.zone[0] = DEPOT;
            continue;
        }
        const int* const window = window_of(s, twin, node);
        n.zone[node] = zone_of(window);
        n.earliest[node] = window[1];
        n.latest[node] = window[2];
        if (PAIRED && MAX_RIDE_TICKS && (node & 1))
            n.earliest[node] = larger_of(window[1], window_of(s, twin, node + 1)[1] - MAX_RIDE_TICKS);
        n.demand[node] = demand_of(s, at, node);
        n.service[node] = service_of(s, at, node);
    }
    return {at.tables.travel, n.zone, n.earliest, n.latest, n.demand, n.service, ZONES, nodes};
}

FN u64 key_of(const Problem& p, const Walk<Rules>& walk, int node) {
    const int leg = p.leg(walk.at, node), start = walk.opening(p, node);
    return u64(u32(NEAREST ? leg : SOONEST ? start : start + 3 * leg)) << 32 | u32(node);  // ties to the lowest index
}

static STAGE void walk_greedily(Scratch& s, const Place& at, int twin, int* places) {
    const Problem p = problem_of(s, at, twin);
    Walk<Rules>& walk = s.nodes.walk;
    if (lane() == 0) walk.start(p, places);
    sync();
    bool stuck = false;
    while (!walk.over()) {
        u64 best = ~u64(0);
        for (int node = 1 + lane(); node < p.nodes; node += LANES) {
            if (walk.seen(node)) continue;
            const u64 key = key_of(p, walk, node);
            if (key < best && walk.allowed(p, node)) best = key;  // in this order: to be allowed is what takes time to tell
        }
        best = least(best);
        stuck = best == ~u64(0) && !walk.depot_allowed(false);  // a request that cannot be served alone
        if (stuck) break;
        sync();
        if (lane() == 0) walk.select(p, best == ~u64(0) ? 0 : int(u32(best)), places);
        sync();
    }
    if (lane() == 0) {
        const bool complete = walk.finish(places) && !stuck;
        Bill bill = bill_of<Rules>(p, places, walk.length);
        bill.ok &= complete;
        s.bill[twin] = bill;
        for (int k = walk.length; k < PLACES; k++) places[k] = 0;
    }
    sync();
}
