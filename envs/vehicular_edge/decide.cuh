// Actions and admission (README.md, 2.1 and 2.2).
#pragma once

// A number of a raw action as it acts: not a number is 0, others are clipped.
template <typename Number>
FN Number unit_of(float chosen) {
    Number u = chosen == chosen ? Number(chosen) : Number(0);
    if (SIGNED) u = (u + Number(1)) * Number(0.5);
    return u < Number(0) ? Number(0) : u > Number(1) ? Number(1) : u;
}
// The floor of the product with a number of options, as if that were exact, so that no two precisions disagree.
FN int floor_of(float chosen, int options) {
    if (SIGNED) return int(unit_of<double>(chosen) * options);
    const float u = unit_of<float>(chosen);
    const int rounded = int(u * float(options));
    return rounded - int(fmaf(u, float(options), -float(rounded)) < 0.0f);
}
FN u16 option_of(float chosen) {
    if (P::cloud_only_at_one) return u16(floor_of(chosen, OPTIONS - 1));
    const int option = floor_of(chosen, OPTIONS);
    return u16(option < OPTIONS - 1 ? option : OPTIONS - 1);
}
FN real weight_of(float chosen) {
    return SIGNED ? real(unit_of<double>(chosen)) : chosen == chosen ? clipped(real(chosen), real(0), real(1)) : real(0);
}

static STAGE void read_raw(Scratch& s, const float* raw) {
    for (int k = lane(); k < TASKS; k += LANES) s.node[k] = option_of(raw[k]);
    for (int k = lane(); k < SHARES; k += LANES) s.share[k] = weight_of(raw[ACTION + k]);
    sync();
}

// One number of a raw action; whoever calls it synchronises.
FN void read_number(Scratch& s, int k, float chosen) {
    if (k < TASKS) s.node[k] = option_of(chosen);
    if (k >= ACTION && k < ACTION + SHARES) s.share[k - ACTION] = weight_of(chosen);
}

static STAGE void read_integers(Scratch& s, const int* target, const float* share) {
    const float most = 1e30f;  // a sum of so many is finite
    for (int k = lane(); k < TASKS; k += LANES) {
        const int option = target[k];
        s.node[k] = u16(option < 0 ? 0 : option < OPTIONS ? option : OPTIONS - 1);
    }
    for (int k = lane(); k < SHARES; k += LANES) s.share[k] = share[k] > 0.0f ? real(share[k] < most ? share[k] : most) : real(0);
    sync();
}

// Backlogs as they are observed: of V2I by access edge, of I2I by target, of I2C.
FN void report(Scratch& s) {
    for (int e = lane(); e < NE; e += LANES) {
        real up = 0, wire = 0;
        if (POOLED) {
            up = s.state[V2I + e];
            wire = s.state[I2I + e];
        } else {
            for (int d = 0; d <= NE; d++) up += s.state[V2I + e * (NE + 1) + d];
            for (int a = 0; a < NE; a++) wire += s.state[I2I + a * NE + e];
        }
        s.reported_v2i[e] = up;
        s.reported_i2i[e] = wire;
    }
    if (lane() == LANES - 1) {
        real cloud = 0;
        for (int a = 0; a < (POOLED ? 1 : NE); a++) cloud += s.state[I2C + a];
        s.reported_i2i[NE] = cloud;
    }
    sync();
}

// Index in s.path of the backlog on the way of a client with access edge a to a node.
FN int path_to(int node, int a) { return node + (-int(node >= EDGE_0) & (a * (NE + 1))); }

FN void find_paths(Scratch& s) {
    for (int i = lane(); i < NC; i += LANES) s.path[i] = s.state[LC + i];
    for (int r = lane(); r < NS; r += LANES) s.path[NC + r] = s.state[V2V + r] + s.state[VC + r];
    for (int k = lane(); k < HOPS; k += LANES) {
        const int a = k / (NE + 1), d = k % (NE + 1);
        const real compute = d < NE ? s.state[EC + d] : s.state[CC];
        real way = 0;
        if (POOLED) way = d < NE ? larger(s.state[V2I + d], s.state[I2I + d]) : s.state[I2C];
        else if (a < NE) way = s.reported_v2i[a] + (d < NE ? s.state[I2I + a * NE + d] : s.state[I2C + a]);
        s.path[EDGE_0 + k] = way + compute;
    }
}

// Every CPU block and pair of power weights is divided by its sum.
FN void divide(Scratch& s, const Slot& x) {
    for (int n = lane(); n < NODES; n += LANES) {
        const real* w = s.share + share_of(n);
        const real sum = n < NC ? sum_of(w, CAP_LOCAL) : n < EDGE_0 ? sum_of(w, CAP_SERVER) : sum_of(w, cap_of(n));
        s.total[n] = sum > 0 ? sum : real(1);
        s.spare[n] = sum > 0 ? real(1) : real(0);
        if (n == CLOUD) s.cloud_weight = w[0] / s.total[n];
    }
    for (int i = lane(); i < NC; i += LANES) {
        const real* w = s.share + i * (CAP_LOCAL + 2) + CAP_LOCAL;
        const real sum = w[0] + w[1], whole = sum > 0 ? sum : real(1);
        s.power_v2v[i] = x.power[i] * (w[0] / whole);
        s.power_v2i[i] = x.power[i] * (w[1] / whole);
    }
}

FN int node_of(const Slot& x, int i, int option) {
    const int choice = option < 1 ? 0 : option <= S ? option - 1 : S - 1;
    const int server = x.server[i * S + choice];
    return option == 0 ? i : option <= S ? server : option + (EDGE_0 - S - 1);
}

// A client's mean backlog on the way, from its sum.
FN void set_waiting(Scratch& s, int i, int tasks, real sum) { s.waiting[i] = tasks ? sum / real(tasks) : real(0); }

#if LANE_WALK

// Of two halves of a word that are 0, the lower as bit 0 and the upper as bit 1.
FN u32 zero_halves(u32 x) {
    const u32 zero = ~(((x & 0x7fff7fffu) + 0x7fff7fffu) | x) & 0x80008000u;
    return (zero >> 15 | zero >> 30) & 3;
}

// Of the tasks 8 k .. 8 k + 7 those that are to run at node n, a bit each: eight are compared at the cost of two or three.
FN u32 tasks_at(const Scratch& s, int n, int k) {
    const uint4 nodes = reinterpret_cast<const uint4*>(s.node)[k];
    const u32 both = u32(n) * 0x00010001u;
    return zero_halves(nodes.x ^ both) | zero_halves(nodes.y ^ both) << 2 | zero_halves(nodes.z ^ both) << 4 |
           zero_halves(nodes.w ^ both) << 6;
}

// A lane per node walks the tasks in the order of priority, from task `from` round to it: those of its own rank below the cap
// are admitted.
FN void admit_at(Scratch& s, const Slot& x, int n, int from) {
    const bool local = n < NC, far = n >= EDGE_0;
    const int cap = cap_of(n), e = n - EDGE_0;
    const real *share = s.share + share_of(n), total = s.total[n];
    real offered = 0, service = 0, used = 0, wired = 0;
    int occupied = 0;
    for (int round = local; round < 2; round++) {
        const int begin = local ? n * J : round ? 0 : from, end = local ? n * J + J : round ? from : TASKS;
        for (int k = begin / 8; 8 * k < end && occupied < cap; k++) {
            u32 own = tasks_at(s, n, k);
            if (8 * k < begin) own &= 0xffu << (begin - 8 * k);
            if (8 * k + 8 > end) own &= 0xffu >> (8 * k + 8 - end);
            for (; own && occupied < cap; own &= own - 1) {
                const int task = 8 * k + lowest_set(own), i = task / J, a = far ? x.access[i] : 0;
                if (far && a == NE) continue;
                const real w = share[occupied] / total;
                occupied++;
                offered += x.offer[task];
                service += w * x.inverse_density[task];
                used += w;
                s.admitted[task] = 1;
                if (!local) s.member[(n - NC) * WORDS + i / 64] |= u64(1) << (i % 64);
                if (far && !POOLED) s.inflow[a * (NE + 1) + e] += x.offer[task];
                if (far && POOLED && a != e) wired += x.link[a * (NE + 1) + e];
            }
        }
    }
    s.occupied[n] = occupied;
    s.offered[n] = offered;
    s.service[n] = service;
    s.used[n] = used;
    if (far) s.wired[e] = wired;
}

// Sums up the tasks that an access edge takes up and those that it pays for.
FN void take_up(Scratch& s, const Slot& x, int e, int first) {
    real uploaded = 0, to_edge = 0, to_cloud = 0;
    for (int step = 0, i = first; step < NC; step++, i = i + 1 < NC ? i + 1 : 0) {
        const bool own = x.access[i] == e;
        const bool pays = P::all_covering_pay ? (x.covered[i * COVER_WORDS + e / 32] >> (e % 32)) & 1 : own;
        if (!own && !pays) continue;
        for (int task = i * J; task < i * J + J; task++) {
            const int node = s.node[task];
            if (node < EDGE_0 || node == NOWHERE) continue;
            const bool admitted = s.admitted[task];
            if (own && (admitted || P::rejected_transmit)) {
                if (POOLED) uploaded += x.offer[task];
                s.upload[e * WORDS + i / 64] |= u64(1) << (i % 64);
            }
            if (pays && (admitted || P::all_covering_pay)) {
                const real haul = x.bits[task] * x.wire[e * (NE + 1) + node - EDGE_0];
                if (node < CLOUD) to_edge += haul;
                else to_cloud += haul;
            }
        }
    }
    if (POOLED) s.uploaded[e] = uploaded;
    s.haul_edge[e] = to_edge;
    s.haul_cloud[e] = to_cloud;
}

FN void look_back(Scratch& s, const Slot& x, int i) {
    const int a = x.access[i], tasks = x.tasks_of(i);
    real path = 0;
    int admitted = 0, unreachable = 0;
    bool v2v = false, v2i = false;
    for (int task = i * J; task < i * J + tasks; task++) {
        const int node = s.node[task];
        const bool far = node >= EDGE_0, ok = s.admitted[task];
        path += s.path[path_to(node, a)];
        admitted += ok;
        unreachable += far && a == NE;
        v2v |= ok && node >= NC && !far;
        v2i |= far && a < NE && (ok || P::rejected_transmit);
    }
    set_waiting(s, i, tasks, path);
    s.sends_v2v[i] = v2v;
    s.sends_v2i[i] = v2i;
    s.unreachable[i] = u16(unreachable);
    s.accepted[i] = u16(admitted);
}

FN void admit(Scratch& s, const Slot& x, int first) {
    for (int k = lane(); k < TASKS; k += LANES) {
        const int i = k / J;
        s.node[k] = k - i * J < x.tasks_of(i) ? u16(node_of(x, i, s.node[k])) : u16(NOWHERE);
        s.admitted[k] = 0;
    }
    for (int k = lane(); k < (NODES - NC + 1) * WORDS; k += LANES) s.member[k] = 0;
    for (int k = lane(); k < (NE + 1) * WORDS; k += LANES) s.upload[k] = 0;
    for (int k = lane(); k < HOPS; k += LANES) s.inflow[k] = 0;
    sync();
    for (int n = lane(); n < NODES; n += LANES) admit_at(s, x, n, first * J);
    sync();
    for (int e = lane(); e < NE; e += LANES) take_up(s, x, e, first);
    for (int i = LANES - 1 - lane(); i < NC; i += LANES) look_back(s, x, i);
}

#else

// Tasks in the order of priority, as one thread walks them: those admitted with the weight of each and the total of its node's,
// and those whose way is paid for, either all that are for an edge and for the cloud or what is hauled, once admitted there.
struct Walk {
    int admitted[TASKS + 1], hauled[TASKS + 1], to_edge[TASKS + 1], to_cloud[TASKS + 1];
    int admissions, hauls, edge_tasks, cloud_tasks;
    alignas(64) real weight[TASKS + 1], total[TASKS + 1];
};

// Gives each task its node and, where it is admitted, a weight of the node. Nothing branches on what is drawn:
// what does not count is written all the same, and written over by the next.
static STAGE void rank(Scratch& s, const Slot& x, int first, Walk& walk) {
    int next[NODES], end[NODES], admissions = 0, hauls = 0, edge_tasks = 0, cloud_tasks = 0;
    u16 target[OPTIONS];
    for (int n = 0; n < NODES; n++) {
        next[n] = share_of(n);
        end[n] = share_of(n) + cap_of(n);
    }
    for (int option = S + 1; option < OPTIONS; option++) target[option] = u16(node_of(x, 0, option));  // of every client
    for (int step = 0, i = first; step < NC; step++, i = i + 1 < NC ? i + 1 : 0) {
        const int a = x.access[i], tasks = x.tasks_of(i), connected = a < NE;
        for (int option = 0; option <= S; option++) target[option] = u16(node_of(x, i, option));
        const int before = admissions;
        int v2v = 0, v2i = 0, far_tasks = 0;
        real path = 0, uploaded = s.uploaded[a];
        for (int task = i * J; task < i * J + tasks; task++) {
            const int node = target[s.node[task]], k = next[node], far = node >= EDGE_0, cloud = node == CLOUD;
            const int ok = (connected | !far) & (k < end[node]), sends = far & (P::rejected_transmit ? connected : ok);
            next[node] = k + ok;
            path += s.path[path_to(node, a)];
            v2i |= sends;
            if (POOLED) uploaded += x.offer[task] * real(sends);
            v2v |= ok & (node >= NC) & !far;
            s.node[task] = u16(node);
            s.admitted[task] = u8(ok);
            walk.admitted[admissions] = task;
            walk.weight[admissions] = s.share[k];
            walk.total[admissions] = s.total[node];
            admissions += ok;
            far_tasks += far;
            if (P::all_covering_pay) {
                walk.to_edge[edge_tasks] = walk.to_cloud[cloud_tasks] = task;
                edge_tasks += far - cloud;
                cloud_tasks += cloud;
            } else {
                walk.hauled[hauls] = task;
                hauls += ok & far;
            }
        }
        set_waiting(s, i, tasks, path);
        s.uploaded[a] = uploaded;
        for (int task = i * J + tasks; task < i * J + J; task++) {
            s.node[task] = NOWHERE;
            s.admitted[task] = 0;
            asm("");  // no call of memset for so few
        }
        s.upload[a * WORDS + i / 64] |= u64(v2i) << (i % 64);
        s.sends_v2v[i] = u8(v2v);
        s.sends_v2i[i] = u8(v2i);
        s.unreachable[i] = u16(connected ? 0 : far_tasks);
        s.accepted[i] = u16(admissions - before);
    }
    for (int n = 0; n < NODES; n++) s.occupied[n] = next[n] - share_of(n);
    walk.admissions = admissions;
    walk.hauls = hauls;
    walk.edge_tasks = edge_tasks;
    walk.cloud_tasks = cloud_tasks;
}

// Sums over the tasks admitted, by node and by way. A way is chosen by a mask, since of a select the compiler makes a branch.
static STAGE void gather(Scratch& s, const Slot& x, Walk& walk) {
    enum : int { OFFERED, SERVICE, USED, WIRED, KINDS, OWN = NE * (NE + 1) };  // OWN: a way that is none, for what stays off the wires
    typedef real Terms __attribute__((vector_size(KINDS * sizeof(real))));
    Terms sum[NODES] = {};
    VECTORISE
    for (int n = 0; n < walk.admissions; n++) walk.weight[n] /= walk.total[n];
    for (int n = 0; n < walk.admissions; n++) {
        const int task = walk.admitted[n], node = s.node[task], i = u32(task) / J, a = x.access[i], e = node - EDGE_0;
        const int far = e >= 0, way = OWN - (-far & (OWN - a * (NE + 1) - e));
        const real offer = x.offer[task], w = walk.weight[n];
        const real link = POOLED ? x.link[far * way] * real(far & (a != e)) : real(0);
        sum[node] += Terms{offer, w * x.inverse_density[task], w, link};
        if (!POOLED) s.inflow[way] += offer;
        s.member[(node < NC ? NODES - NC : node - NC) * WORDS + i / 64] |= u64(1) << (i % 64);
    }
    for (int n = 0; n < NODES; n++) {
        s.offered[n] = sum[n][OFFERED];
        s.service[n] = sum[n][SERVICE];
        s.used[n] = sum[n][USED];
    }
    for (int e = 0; e <= NE; e++) s.wired[e] = sum[EDGE_0 + e][WIRED];
}

typedef real Row __attribute__((vector_size(16 * sizeof(real))));
enum : int { ROWS_OF_EDGES = (NE + 15) / 16 };

// What edges pay for the way of tasks to edges and to the cloud: every edge that covers the client, or its access edge for what
// is admitted.
static STAGE void pay(Scratch& s, const Slot& x, const Walk& walk) {
    real* const paid[] = {s.haul_edge, s.haul_cloud};
    if (!P::all_covering_pay) {
        for (int n = 0; n < walk.hauls; n++) {
            const int task = walk.hauled[n], a = x.access[task / J], d = s.node[task] - EDGE_0;
            paid[d == NE][a] += x.bits[task] * x.wire[a * (NE + 1) + d];
        }
        return;
    }
    const int* const tasks[] = {walk.to_edge, walk.to_cloud};
    const int count[] = {walk.edge_tasks, walk.cloud_tasks};
    Row wire[NE + 1][ROWS_OF_EDGES] = {}, covers[NC][ROWS_OF_EDGES];
    for (int e = 0; e < NE; e++)
        for (int d = 0; d <= NE; d++) wire[d][e / 16][e % 16] = x.wire[e * (NE + 1) + d];
    for (int i = 0; i < NC; i++)
        for (int k = 0; k < ROWS_OF_EDGES; k++)
            for (int e = 0; e < 16; e++) covers[i][k][e] = real(x.covered[i * COVER_WORDS + k / 2] >> (16 * (k % 2) + e) & 1);
    for (int far = 0; far < 2; far++) {
        Row sum[ROWS_OF_EDGES] = {};
        for (int n = 0; n < count[far]; n++) {
            const int task = tasks[far][n], d = s.node[task] - EDGE_0;
            for (int k = 0; k < ROWS_OF_EDGES; k++) sum[k] += x.bits[task] * wire[d][k] * covers[task / J][k];
        }
        for (int e = 0; e < NE; e++) paid[far][e] = sum[e / 16][e % 16];
    }
}

static STAGE void admit(Scratch& s, const Slot& x, int first) {
    static thread_local Walk of_thread;
    Walk& walk = kept(of_thread);
    memset(s.member, 0, sizeof s.member);
    memset(s.upload, 0, sizeof s.upload);
    memset(s.inflow, 0, sizeof s.inflow);
    memset(s.uploaded, 0, sizeof s.uploaded);
    memset(s.haul_edge, 0, sizeof s.haul_edge);
    memset(s.haul_cloud, 0, sizeof s.haul_cloud);
    rank(s, x, first, walk);
    gather(s, x, walk);
    pay(s, x, walk);
}

#endif

// Sum of a node's weights from the first place that no task has: of all it is their total, bit by bit, since `sum_of` adds
// fewer than 8 one after another.
FN real left_over(const Scratch& s, int n) {
    const real* const w = s.share + share_of(n);
    const int occupied = s.occupied[n];
    if (n >= NC || CAP_LOCAL >= 8) return sum_of(w + occupied, cap_of(n) - occupied);
    real sum = 0;
    for (int k = 0; k < CAP_LOCAL; k++) {
        const real weight = w[k];
        sum += k < occupied ? real(0) : weight;
    }
    return sum;
}

// Decodes nothing more: who is admitted where, what that brings, and who sends.
FN void decide(Scratch& s, const Slot& x) {
    report(s);
    find_paths(s);
    divide(s, x);
    admit(s, x, P::fixed_priority ? 0 : x.t * NC / T);  // synchronises before it reads of these, and once done with all nodes
    if (!P::empty_places_idle) {
        for (int n = lane(); n < NODES; n += LANES) s.spare[n] = left_over(s, n) / s.total[n];
    }
    sync();
}
