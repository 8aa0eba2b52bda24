// The GPU's form of a block kernel on the CPU. The lanes take turns: each runs up to its next synchronisation, in an order that
// can be chosen. If a lane reads what another writes without a synchronisation between them, orders disagree.
#include <stdlib.h>
#include <ucontext.h>

enum Order { ASCENDING, DESCENDING, SHUFFLED };
extern "C" __attribute__((visibility("default"))) int order_of_lanes = ASCENDING;

static ucontext_t scheduler, lanes_at[LANES];
static int running;
static bool finished[LANES];
static void (*body)();

int lane() { return running; }
void sync() { swapcontext(&lanes_at[running], &scheduler); }

static void run_lane() {
    body();
    finished[running] = true;
}

// Runs a function by all lanes. Lanes that end while others still synchronise have not synchronised equally often.
static void on_lanes(void (*function)()) {
    static char* stacks = static_cast<char*>(malloc(size_t(LANES) << 17));
    static u32 random = 1;
    int turn[LANES];
    body = function;
    for (int n = 0; n < LANES; n++) {
        turn[n] = order_of_lanes == DESCENDING ? LANES - 1 - n : n;
        finished[n] = false;
        getcontext(&lanes_at[n]);
        lanes_at[n].uc_stack.ss_sp = stacks + (size_t(n) << 17);
        lanes_at[n].uc_stack.ss_size = size_t(1) << 17;
        lanes_at[n].uc_link = &scheduler;
        makecontext(&lanes_at[n], run_lane, 0);
    }
    for (int done = 0; done < LANES;) {
        if (order_of_lanes == SHUFFLED)
            for (int n = LANES - 1; n > 0; n--) {
                random = random * 1664525u + 1013904223u;
                const int other = int((random >> 8) % u32(n + 1)), kept = turn[n];
                turn[n] = turn[other];
                turn[other] = kept;
            }
        if (done) abort();
        for (int n = 0; n < LANES; n++) {
            running = turn[n];
            swapcontext(&scheduler, &lanes_at[running]);
        }
        for (int n = 0; n < LANES; n++) done += finished[n];
    }
}

#define KERNEL(NAME, FUNCTION) \
    static const Batch* batch_of_##NAME; \
    static const Call* call_of_##NAME; \
    static i64 environment_of_##NAME; \
    static void body_of_##NAME() { \
        static Memory memory; \
        if (lane() == 0) memset(static_cast<void*>(&memory), 0xff, sizeof memory);  /* not a number, unless it is cleared */ \
        sync(); \
        for (size_t n = lane(); n < sizeof memory / 4; n += LANES) reinterpret_cast<u32*>(&memory)[n] = 0; \
        sync(); \
        FUNCTION(*batch_of_##NAME, *call_of_##NAME, environment_of_##NAME, memory); \
    } \
    extern "C" __attribute__((visibility("default"))) void NAME(const Batch* b, const Call* call, i64 first, i64 last) { \
        batch_of_##NAME = b; \
        call_of_##NAME = call; \
        for (i64 e = call->first + first; e < call->first + last; e++) { \
            environment_of_##NAME = e; \
            on_lanes(body_of_##NAME); \
        } \
    }
