// Sizes, tables and memory of the vehicular edge. Units: Mbit, Mbit/s, GHz, mW in costs and W in the radio, g/N0 per W.
#pragma once

typedef Params P;

enum : int {
    T = P::slots, NC = P::clients, NS = P::servers, NE = P::edges, J = P::tasks, S = P::server_choices,
    COMPONENTS = P::components, OPTIONS = 1 + S + NE + 1,
    CAP_LOCAL = P::cap_local, CAP_SERVER = P::cap_server, CAP_EDGE = P::cap_edge, CAP_CLOUD = P::cap_cloud,
    // Nodes that compute, in this order: clients, servers, edges, the cloud.
    EDGE_0 = NC + NS, CLOUD = EDGE_0 + NE, NODES = CLOUD + 1, NOWHERE = 0xffff,
    RECEIVERS = NS + NE, TASKS = NC * J, WORDS = (NC + 63) / 64, COVER_WORDS = (NE + 31) / 32,
    SHARE_SERVER = NC * (CAP_LOCAL + 2), SHARE_EDGE = SHARE_SERVER + NS * CAP_SERVER, SHARE_CLOUD = SHARE_EDGE + NE * CAP_EDGE,
    SHARES = SHARE_CLOUD + CAP_CLOUD, ACTION = SHARES > TASKS ? SHARES : TASKS,
    // A client sends to at most S servers, with at most J tasks, and to one edge.
    PAIRS = NC * (S < J ? S : J) + NC, PAIRS_PADDED = padded_to(PAIRS, PARTS),
    HOPS = (NE + 1) * (NE + 1), PATHS = EDGE_0 + HOPS,
};
static_assert(NODES < NOWHERE, "a node is named by 16 bits");

constexpr bool POOLED = P::slot_tandem, RUNNING = P::running_scales, UNSIGNED = P::unsigned_drift;

enum : int {  // the state, as params.state_shapes says
    LC = 0, V2V = LC + NC, VC = V2V + NS, V2I = VC + NS, I2I = V2I + (POOLED ? NE : NE * (NE + 1)),
    EC = I2I + (POOLED ? NE : NE * NE), I2C = EC + NE, CC = I2C + (POOLED ? 1 : NE), DELAY = CC + 1,
    CPU = DELAY + NC, EPISODIC = CPU + (P::cpu_virtual_queues ? NODES : 0),  // what an episode begins without
    MAX_LC = EPISODIC, MAX_V2V = MAX_LC + NC, MAX_VC = MAX_V2V + NS, MAX_V2I = MAX_VC + NS, MAX_I2I = MAX_V2I + NE,
    MAX_EC = MAX_I2I + NE, MAX_I2C = MAX_EC + NE, MAX_CC = MAX_I2C + 1, MAX_COST = MAX_CC + 1,
    // kinds of cost, within MAX_COST and within a record
    POWER_V2V = 0, POWER_V2I = NC, COST_LC = 2 * NC, COST_VC = 3 * NC, COST_EC = COST_VC + NS, COST_I2I = COST_EC + NE,
    COST_I2C = COST_I2I + NE, COST_CC = COST_I2C + NE, COSTS = COST_CC + 1,
    // queues with a published drift (Q10), within MIN_DRIFT and MAX_DRIFT
    DRIFT_DELAY = 0, DRIFT_LC = NC, DRIFT_VC = 2 * NC, DRIFT_EC = DRIFT_VC + NS, DRIFT_CC = DRIFT_EC + NE, DRIFTS = DRIFT_CC + 1,
    MIN_DRIFT = MAX_COST + COSTS, MAX_DRIFT = MIN_DRIFT + DRIFTS,
    STATE_LENGTH = !RUNNING ? EPISODIC : UNSIGNED ? MAX_DRIFT + DRIFTS : MIN_DRIFT,
};

enum : int {  // the record of a slot; its flows have the order of the queues in the state
    IN = 0, OUT = DELAY, DEP = 2 * DELAY, DELAY_IN = 3 * DELAY, DELAY_OUT = DELAY_IN + NC, RATE_V2V = DELAY_OUT + NC,
    RATE_V2I = RATE_V2V + NC * NS, TARGET = RATE_V2I + NC * NE, ADMITTED = TARGET + TASKS, COST_OF = ADMITTED + TASKS,
    TOTAL_COST = COST_OF + COSTS, TOTAL_DRIFT, SUCCESS, REWARD, ENERGY, JAIN, DROPPED, OBSERVED = DROPPED + 3,
    OBSERVATION = 2 * TASKS + NC + 2 * COMPONENTS + 2 * NS + 3 * NE + 2, RECORD_LENGTH = OBSERVED + OBSERVATION,
};

enum : int {  // rows that are summed over entities
    ROW_COST_CLIENT, ROW_COST_SERVER, ROW_COST_EDGE, ROW_DRIFT_CLIENT, ROW_DRIFT_SERVER, ROW_DRIFT_EDGE, ROW_WATT,
    ROW_CLIENT_GHZ, ROW_SERVER_GHZ, ROW_EDGE_GHZ, ROW_ADMITTED, ROW_UNREACHABLE, ROW_SHARE, ROW_SHARE_SQUARED,
    ROW_DRIFT_DELAY, ROWS = ROW_DRIFT_DELAY + (UNSIGNED ? 1 : 0),
    MOST_ENTITIES = NC > NS ? (NC > NE ? NC : NE) : (NS > NE ? NS : NE), PITCH = padded_to(MOST_ENTITIES, PARTS),
};

enum : int {  // reciprocals of scales: of observed backlogs, wire costs, published drifts, task sizes [Mbit] and work [Mcycles],
              // densities, what a slot brings [Mbit]
    SCALE_BACKLOG = 0, SCALE_I2I = 8, SCALE_I2C = 9, SCALE_DRIFT = 10, SCALE_SIZE = 15, SCALE_WORK = 16, SCALE_DENSITY = 17,
    SCALE_LOAD = 18, SCALES = 19,
};

static_assert(REALS == STATE_LENGTH && OBS == OBSERVATION && NUMBERS == ACTION && AGENTS == 2, "port.py says the same");
static_assert(!TRACE || RECORD == RECORD_LENGTH, "port.py says the same");

enum : int { METRIC_ADMITTED, METRIC_OVERFLOW, METRIC_CAP, METRIC_COVERAGE, METRIC_ENERGY, METRIC_JAIN, METRIC_COUNT };

typedef CLIENT_INDEX ClientIndex;  // u8 where it holds all clients

// Contents of a pool of P scenarios; the Python side reads names and order from this text. Slots come after scenarios.
struct Tables {
    const real* cpu;              // [P, nodes] GHz
    const real* power;            // [P, Nc] mW
    const real* wire;             // [P, Ne, Ne + 1] m to an edge, to the cloud
    const real* link;             // [P, Ne, Ne + 1] Mbit/s of that wire
    const real* inverse_scale;    // [P, SCALES]
    const real* running;          // [..] first running scales, the end of the state
    const u16* count;             // [P, T, Nc] tasks generated
    const int* tallies;           // [P, T, 3] tasks generated, within the task slots, clients that have any
    const real* bits;             // [P, T, Nc, J] Mbit, 0 where there is no task
    const real* inverse_density;  // [P, T, Nc, J] bit/cycle, 1 where there is no task
    const real* offer;            // [P, T, Nc, J] Mbit weighted with the rate, where that is asked for
    const real* demand;           // [P, T, Nc] Mbit/s
    const u16* access;            // [P, T, Nc] access edge, Ne without one
    const u16* server;            // [P, T, Nc, S] node of the k-th server in range, the client itself where there are fewer
    const u32* covered;           // [P, T, Nc, COVER_WORDS] edges in reach, where all of them pay
    const real* scores;           // [P, T, 2 components] of V2V, then V2I distances, scaled
    const real* gain;             // [P, T, receivers, Nc] g/N0, weakest first; negative: equal to the one before
    const ClientIndex* order;     // [P, T, receivers, Nc] whose gain that is
    const double* xy_client;      // [P, T, Nc, 2] m, where gains are drawn, as below
    const double* xy_receiver;    // [P, T, receivers, 2] m
    const i64* key;               // [P, 2] index and seed of the fading
};

// A decision as integers and weights, which are taken as they are.
struct Given {
    const int* target;   // [B, Nc, J] option of each task
    const float* share;  // [B, SHARES]
};

struct Slot;

// Arrays needed only once the shares have been used: pairs of sender and receiver, then rows of what entities contribute.
struct Late {
    alignas(64) u16 sender[PAIRS_PADDED];
    alignas(64) real rate[PAIRS_PADDED];  // signal over noise, then Mbit/s
    union {
        alignas(64) real row[ROWS * PITCH];
#if GAINS_DRAWN
        struct {
            double key[PAIRS_PADDED];  // gain
            u16 sender[PAIRS_PADDED], receiver[PAIRS_PADDED];
        } unsorted;
#endif
    };
};

// Memory shared by the lanes of a block; begins with anything.
struct Scratch {
    alignas(64) real state[STATE_LENGTH];
    union {  // to the end of `decide`, and from there on
        alignas(64) real share[SHARES + !LANE_WALK];  // as chosen, not yet divided by the sum of their block; one more is read, and not used
        Late late;
    };
    alignas(64) u16 node[padded_to(TASKS, 8)];  // the option of each task, then the node where it is to run
    alignas(64) u8 admitted[TASKS];
    alignas(64) real total[NODES];     // sum of a node's CPU weights, 1 if that is 0
    alignas(64) real offered[NODES];   // Mbit admitted
    alignas(64) real service[NODES];   // sum of w_k / c_k over the tasks admitted
    alignas(64) real used[NODES];      // sum of w_k over them
    alignas(64) real spare[NODES];     // sum of the weights left over
    int occupied[NODES];               // tasks admitted
    alignas(64) real path[PATHS];      // Mbit on the way to a node: see path_to
    alignas(64) real waiting[NC];      // mean of it over a client's tasks
    alignas(64) real power_v2v[NC], power_v2i[NC];  // mW
    alignas(64) real rate_up[NC];      // Mbit/s to the access edge
    alignas(64) u8 sends_v2v[NC], sends_v2i[NC];
    u64 member[(NODES - NC + 1) * WORDS];  // [node - Nc] clients with a task admitted at a server, an edge, the cloud; the last row is waste
    u64 upload[(NE + 1) * WORDS];      // [a] clients that send to an edge; without access: the last
    int senders[RECEIVERS];            // to a receiver
    int first[RECEIVERS + 1];          // of the pairs of a receiver
    real capacity[RECEIVERS];          // Mbit/s, sum of its rates
    real reported_v2i[NE + 1], reported_i2i[NE + 1];  // Mbit by access edge, by target; [Ne] of the second: I2C
    real inflow[HOPS];                 // [a, d] Mbit admitted at a for d, in rows of Ne + 1
    real uploaded[NE + 1];             // Mbit sent up at a
    real wired[NE + 1];                // Mbit/s of the wires that the tasks of an edge or of the cloud take
    real haul_edge[NE + 1], haul_cloud[NE + 1];  // Mbit m that an edge pays for
    real dep_v2i[NE * (NE + 1)], dep_i2i[NE * NE], dep_i2c[NE], in_ec[NE];
    real in_cc, cost_cc, drift_cc, ghz_cc;
    real cloud_weight;                 // of the task that the cloud would admit first
    u16 accepted[NC], unreachable[NC]; // tasks of a client
    alignas(64) real partial[ROWS * PARTS];
    alignas(64) real sum[ROWS];
};

// The tables of one scenario and slot; after the last slot those of the last.
struct Slot {
    const real *cpu, *power, *wire, *link, *inverse_scale, *bits, *inverse_density, *offer, *demand, *gain;
    const u16 *count, *access, *server;
    const int* tallies;
    const u32* covered;
    const real* scores;
    const ClientIndex* order;
    const double *xy_client, *xy_receiver;
    const i64* key;
    int t;

    FN explicit Slot(const Place& at) : t(at.t < T ? at.t : T - 1) {
        const Tables& x = at.tables;
        const i64 p = at.scenario, s = p * T + t;
        cpu = x.cpu + p * NODES;
        power = x.power + p * NC;
        wire = x.wire + p * NE * (NE + 1);
        link = x.link + p * NE * (NE + 1);
        inverse_scale = x.inverse_scale + p * SCALES;
        count = x.count + s * NC;
        tallies = x.tallies + s * 3;
        bits = x.bits + s * TASKS;
        inverse_density = x.inverse_density + s * TASKS;
        offer = (P::rate_weighted_bits ? x.offer : x.bits) + s * TASKS;
        demand = x.demand + s * NC;
        access = x.access + s * NC;
        server = x.server + s * NC * S;
        covered = x.covered + s * NC * COVER_WORDS;
        scores = x.scores + s * 2 * COMPONENTS;
        gain = x.gain + s * RECEIVERS * NC;
        order = x.order + s * RECEIVERS * NC;
        xy_client = x.xy_client + s * NC * 2;
        xy_receiver = x.xy_receiver + s * RECEIVERS * 2;
        key = x.key + p * 2;
    }
    FN int tasks_of(int i) const { return count[i] < J ? count[i] : J; }

    // Asks for what walks of a single lane will read, which would otherwise wait for one line of memory after the other.
    FN void foresee() const {
        ask(bits, TASKS);
        ask(inverse_density, TASKS);
        if (P::rate_weighted_bits) ask(offer, TASKS);
        ask(access, NC);
#ifndef __CUDACC__
        ask(server, NC * S);
        ask(count, NC);
        ask(demand, NC);
        ask(power, NC);
        ask(wire, NE * (NE + 1));
        ask(link, NE * (NE + 1));
        if (P::all_covering_pay) ask(covered, NC * COVER_WORDS);
#endif
        if (!GAINS_DRAWN) {
            if (LANE_WALK) ask(gain, RECEIVERS * NC);  // else once it is known whose
            ask(order, RECEIVERS * NC);
        }
    }
};

FN int cap_of(int node) {
    return node < NC ? CAP_LOCAL : node < EDGE_0 ? CAP_SERVER : node < CLOUD ? CAP_EDGE : CAP_CLOUD;
}
FN int share_of(int node) {  // where the CPU weights of a node begin
    return node < NC      ? node * (CAP_LOCAL + 2)
           : node < EDGE_0 ? SHARE_SERVER + (node - NC) * CAP_SERVER
           : node < CLOUD  ? SHARE_EDGE + (node - EDGE_0) * CAP_EDGE
                           : SHARE_CLOUD;
}
