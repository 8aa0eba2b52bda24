// Runs CUDA blocks on one thread of the CPU. The threads of a block take turns: one runs up to its next synchronisation, then the
// first of those that need not wait, the last or any, so that one warp may be far ahead of another. If a thread reads what
// another writes without a synchronisation between them, orders disagree; where memory is watched, it is a race by itself.
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include "machine.hpp"

extern "C" {
extern int reached[1024];  // how often threads came to a numbered sync()
}

namespace {
enum Order { ASCENDING, DESCENDING, SHUFFLED };
enum State { READY, AT_BLOCK, AT_WARP, RETURNED };
enum { WARP = 32, STACK = 1 << 18, POISON = 0xff, GUARD = 4096, GUARDED = 0xa5, SLACK = 1 << 18 };

struct Thread {
    State state;
    const char* what;  // it waits in
    unsigned mask;
    Bits value, result;  // brought, and given back
    Join join;
    unsigned source;

    bool waits_like(const Thread& other) const {
        return state == other.state && mask == other.mask && join == other.join && !strcmp(what, other.what);
    }
};

struct Fiber {
    char* stack;
    bool begun;
    ucontext_t start;
    jmp_buf here;
};

Machine machine;
std::vector<Thread> threads;
std::vector<Fiber*> fibers;
jmp_buf scheduler;
std::string failure;
unsigned random_state;
void (*kernel)(const void* const*);
const void* const* arguments;

Thread& running() { return threads[machine.thread.x]; }
void judge();

// Back to the scheduler. The first switch to a fiber is makecontext's, all others are jumps, which cost no system call.
void leave() {
    Fiber& fiber = *fibers[machine.thread.x];
    if (!_setjmp(fiber.here)) _longjmp(scheduler, 1);
}

void live() {
    for (;;) {
        kernel(arguments);
        judge();
        running().state = RETURNED;
        leave();
    }
}

void enter(unsigned number) {
    machine.thread = {number, 0, 0};
    if (_setjmp(scheduler)) return;
    Fiber& fiber = *fibers[number];
    if (fiber.begun) _longjmp(fiber.here, 1);
    fiber.begun = true;
    setcontext(&fiber.start);
}

void prepare_fibers(unsigned count, bool anew) {
    while (fibers.size() < count) fibers.push_back(new Fiber{static_cast<char*>(malloc(STACK)), false, {}, {}});
    for (Fiber* fiber : fibers) {
        if (fiber->begun && !anew) continue;
        fiber->begun = false;
        getcontext(&fiber->start);
        fiber->start.uc_stack.ss_sp = fiber->stack;
        fiber->start.uc_stack.ss_size = STACK;
        fiber->start.uc_link = nullptr;
        makecontext(&fiber->start, live, 0);
    }
}

template <typename... Values>
std::string written(const char* form, Values... values) {
    char line[256];
    snprintf(line, sizeof line, form, values...);
    return line;
}

// ---- races ------------------------------------------------------------------------------------------------------------------
//
// Of kernels that were compiled to tell of their accesses. Two accesses to a byte by different threads of a block, of which one
// changes it, need a barrier between them: __syncthreads or __syncwarp, as CUDA has it, and no vote or shuffle. A thread's life is
// cut into stretches by these; its clock says which stretch of each other thread it has met, its own included. A write that leaves
// what was there harms nobody, which shows when the thread goes on.

typedef std::vector<unsigned> Clock;  // a stretch by thread, 0 before the first

struct Byte {
    int writer = -1;       // who changed it last, and in which stretch
    unsigned written = 0;
    int reader = -1;       // who read it since, where it was one
    unsigned read = 0;
    Clock readers, alike;  // who did where several, and who has written what was there
};

struct Claim {
    const char* at;
    char before;
    unsigned other;
    bool read;
};

enum { WORD = 8 };
struct Word {
    Byte bytes[WORD];
};

std::unordered_map<size_t, Word> words;  // by address
std::vector<Clock> clocks;
std::vector<int> passed;    // the number of the last sync() of each thread
std::vector<Claim> claims;  // of the running thread's last access
int left_out;               // the number of a sync() that is not made, or -1
bool watched, inside;       // the kernel is, and it runs

void forget() {
    inside = watched;
    claims.clear();
    if (!watched) return;
    words.clear();
    clocks.assign(threads.size(), Clock(threads.size(), 0));
    for (unsigned n = 0; n < threads.size(); n++) clocks[n][n] = 1;
    passed.assign(threads.size(), -1);
}

// A barrier of some threads: each has met all stretches up to it.
template <typename Among>
void meet(Among among) {
    if (!watched) return;
    Clock met(threads.size(), 0);
    for (unsigned n = 0; n < threads.size(); n++)
        for (unsigned k = 0; among(threads[n]) && k < threads.size(); k++) met[k] = std::max(met[k], clocks[n][k]);
    for (unsigned n = 0; n < threads.size(); n++) {
        if (!among(threads[n])) continue;
        clocks[n] = met;
        clocks[n][n]++;
    }
}

bool met(unsigned other, unsigned stretch) { return clocks[machine.thread.x][other] >= stretch; }

// After which numbered sync() a thread is.
std::string behind(unsigned n) { return passed[n] < 0 ? std::string() : written(" behind sync %d", passed[n]); }

void fail(const char* at, const char* does, unsigned other, const char* did) {
    const unsigned me = machine.thread.x;
    const long long offset = at - machine.shared;
    const bool shared = offset >= 0 && offset < (1 << 20);
    failure = written("race: thread %u of block %u", me, machine.block.x) + behind(me) +
              written(" %s what thread %u", does, other) + behind(other) + written(" %s without a barrier, ", did) +
              (shared ? written("byte %lld of shared memory", offset) : std::string("in global memory"));
    leave();  // for good
}

// Judges the change that the last access claimed.
void judge() {
    const unsigned me = machine.thread.x;
    for (const Claim& claim : claims) {
        const size_t address = reinterpret_cast<size_t>(claim.at);
        if (*claim.at != claim.before) return fail(claim.at, "changes", claim.other, claim.read ? "has read" : "has written");
        Clock& alike = words[address / WORD].bytes[address % WORD].alike;
        if (alike.empty()) alike.assign(threads.size(), 0);
        alike[me] = 1;
    }
    claims.clear();
}

void note_write(Byte& byte, const char* at) {
    const unsigned me = machine.thread.x;
    if (byte.writer >= 0 && unsigned(byte.writer) != me && !met(unsigned(byte.writer), byte.written)) {
        claims.push_back({at, *at, unsigned(byte.writer), false});
        return;
    }
    if (byte.reader >= 0 && unsigned(byte.reader) != me && !met(unsigned(byte.reader), byte.read)) {
        claims.push_back({at, *at, unsigned(byte.reader), true});
        return;
    }
    for (unsigned n = 0; n < byte.readers.size(); n++)
        if (n != me && byte.readers[n] && !met(n, byte.readers[n])) {
            claims.push_back({at, *at, n, true});
            return;
        }
    byte.writer = int(me);
    byte.written = clocks[me][me];
    byte.reader = -1;
    byte.readers.clear();
    byte.alike.clear();
}

void note_read(Byte& byte, const char* at) {
    const unsigned me = machine.thread.x;
    const bool wrote_it_too = !byte.alike.empty() && byte.alike[me];
    if (byte.writer >= 0 && unsigned(byte.writer) != me && !wrote_it_too && !met(unsigned(byte.writer), byte.written))
        return fail(at, "reads", unsigned(byte.writer), "has written");
    if (byte.readers.empty() && (byte.reader < 0 || unsigned(byte.reader) == me)) {
        byte.reader = int(me);
        byte.read = clocks[me][me];
        return;
    }
    if (byte.readers.empty()) {
        byte.readers.assign(threads.size(), 0);
        byte.readers[unsigned(byte.reader)] = byte.read;
        byte.reader = -1;
    }
    byte.readers[me] = clocks[me][me];
}

void accessed(void* given, unsigned long size, bool writes) {
    if (!inside) return;
    judge();
    const char* const first = static_cast<const char*>(given);
    const char* const stack = fibers[machine.thread.x]->stack;
    if (first >= stack && first < stack + STACK) return;  // a thread's own
    Word* word = nullptr;
    for (const char* at = first; at < first + size; at++) {
        const size_t address = reinterpret_cast<size_t>(at);
        if (!word || address % WORD == 0) word = &words[address / WORD];
        Byte& byte = word->bytes[address % WORD];
        if (writes) note_write(byte, at);
        else note_read(byte, at);
    }
}

// A thread comes to a sync(); tells if it is made.
bool passes(int number) {
    judge();
    if (watched) {
        passed[machine.thread.x] = number;
        reached[number % 1024]++;
    }
    return number != left_out;
}

Bits wait(State state, const char* what, unsigned mask, Bits value, Join join, unsigned source) {
    judge();
    Thread& thread = running();
    thread = {state, what, mask, value, 0, join, source};
    leave();
    return thread.result;
}

Bits wait_for_block(const char* what, Bits value, Join join) { return wait(AT_BLOCK, what, 0, value, join, 0); }

Bits wait_for_warp(const char* what, unsigned mask, Bits value, Join join, unsigned source) {
    const unsigned lane = machine.thread.x % WARP;
    if (!(mask >> lane & 1)) {
        failure = written("thread %u of block %u calls %s with mask %#x, in which it is not", machine.thread.x,
                          machine.block.x, what, mask);
        leave();  // for good
    }
    return wait(AT_WARP, what, mask, value, join, source);
}

// Threads that need not wait.
struct Ready {
    std::vector<Bits> bits;

    void set(unsigned n) { bits[n / 64] |= Bits(1) << n % 64; }
    void clear(unsigned n) { bits[n / 64] &= ~(Bits(1) << n % 64); }
    int first_from(unsigned n) const {
        Bits word = n / 64 < bits.size() ? bits[n / 64] >> n % 64 << n % 64 : 0;
        for (unsigned at = n / 64; at < bits.size(); word = ++at < bits.size() ? bits[at] : 0)
            if (word) return int(64 * at) + __builtin_ctzll(word);
        return -1;
    }
    int last() const {
        for (unsigned at = unsigned(bits.size()); at-- > 0;)
            if (bits[at]) return int(64 * at) + 63 - __builtin_clzll(bits[at]);
        return -1;
    }
};
Ready ready;
unsigned at_block, returned;  // threads that wait for the block, and that are done

void resume(Thread& thread, Bits result) {
    thread.result = result;
    thread.state = READY;
    ready.set(unsigned(&thread - threads.data()));
}

// All that have not returned, if they wait in one place together.
void release_block() {
    if (!at_block || at_block + returned < threads.size()) return;
    Thread* first = nullptr;
    Bits joined = 0;
    for (Thread& thread : threads) {
        if (thread.state == RETURNED) continue;
        if (first && !thread.waits_like(*first)) return;
        joined = first && thread.join ? thread.join(joined, thread.value) : thread.value;
        first = first ? first : &thread;
    }
    meet([](const Thread& thread) { return thread.state != RETURNED; });
    for (Thread& thread : threads)
        if (thread.state != RETURNED) resume(thread, joined);
    at_block = 0;
}

// The lanes that one waits with, if they are all there.
void release_lanes(unsigned number) {
    const Thread leader = threads[number];
    const unsigned begin = number / WARP * WARP, end = begin + WARP < threads.size() ? begin + WARP : unsigned(threads.size());
    bool present[WARP] = {};
    Bits joined = 0;
    for (unsigned n = begin, found = 0; n < end; n++) {
        if (!(leader.mask >> (n - begin) & 1) || threads[n].state == RETURNED) continue;
        if (!threads[n].waits_like(leader)) return;
        present[n - begin] = true;
        joined = leader.join && found++ ? leader.join(joined, threads[n].value) : threads[n].value;
    }
    if (!strcmp(leader.what, "__syncwarp"))
        meet([&](const Thread& thread) {
            const unsigned n = unsigned(&thread - threads.data());
            return n >= begin && n < end && present[n - begin];
        });
    Bits results[WARP];
    for (unsigned lane = 0; lane < end - begin; lane++) {
        const unsigned source = threads[begin + lane].source;
        const bool brought = source < end - begin && present[source];
        results[lane] = leader.join ? joined : brought ? threads[begin + source].value : ~Bits(0);  // of one not there: anything
    }
    for (unsigned lane = 0; lane < end - begin; lane++)
        if (present[lane]) resume(threads[begin + lane], results[lane]);
}

// Threads go on that waited for what a thread did.
void settle(unsigned number) {
    const State state = threads[number].state;
    ready.clear(number);
    at_block += state == AT_BLOCK;
    returned += state == RETURNED;
    if (state != AT_WARP) release_block();
    if (state == AT_WARP) release_lanes(number);
    if (state != RETURNED) return;
    for (unsigned n = number / WARP * WARP; n < threads.size() && n / WARP == number / WARP; n++)
        if (threads[n].state == AT_WARP) release_lanes(n);
}

// Whom each thread waits for, threads that wait alike together.
std::string waiting() {
    std::string all;
    for (unsigned n = 0, next; n < threads.size(); n = next) {
        const Thread& thread = threads[n];
        next = n + 1;
        if (thread.state == RETURNED) {
            while (next < threads.size() && threads[next].state == RETURNED) next++;
            all += written("; threads %u to %u have returned", n, next - 1);
            continue;
        }
        while (next < threads.size() && threads[next].waits_like(thread)) next++;
        all += written("; threads %u to %u wait in %s", n, next - 1, thread.what);
        if (thread.state == AT_WARP) all += written(" with mask %#x", thread.mask);
    }
    return all;
}

unsigned random_below(unsigned bound) {
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % bound;
}

int next_turn(int order) {
    if (order != SHUFFLED) return order == DESCENDING ? ready.last() : ready.first_from(0);
    const int found = ready.first_from(random_below(unsigned(threads.size())));
    return found < 0 ? ready.first_from(0) : found;
}

void run_block(int order) {
    ready.bits.assign((threads.size() + 63) / 64, 0);
    at_block = returned = 0;
    forget();
    for (Thread& thread : threads) {
        thread = {READY, "", 0, 0, 0, nullptr, 0};
        resume(thread, 0);
    }
    while (returned < threads.size()) {
        const int number = next_turn(order);
        if (number < 0) failure = written("block %u is stuck", machine.block.x) + waiting();
        else enter(unsigned(number));
        if (!failure.empty()) return;
        settle(unsigned(number));
    }
}

// The order of blocks.
std::vector<unsigned> blocks_in_turn(unsigned count, int order) {
    std::vector<unsigned> numbers(count);
    for (unsigned n = 0; n < count; n++) numbers[n] = order == DESCENDING ? count - 1 - n : n;
    for (unsigned n = count; order == SHUFFLED && n-- > 1;) std::swap(numbers[n], numbers[random_below(n + 1)]);
    return numbers;
}
}  // namespace

extern "C" {
int reached[1024];
}

extern "C" Machine* the_machine() {
    machine.wait_for_block = wait_for_block;
    machine.wait_for_warp = wait_for_warp;
    machine.access = accessed;
    machine.passes = passes;
    return &machine;
}

// Runs a kernel by `blocks` blocks of `count` threads; gives what went wrong, or nothing.
extern "C" const char* launch(void (*function)(const void* const*), const void* const* given, unsigned blocks, unsigned count,
                              long long shared_bytes, long long dynamic_bytes, int order, int reciprocal_ulp, int watch,
                              int without) {
    static std::vector<char> memory;
    const size_t begin_of_dynamic = (size_t(shared_bytes) + 1023) / 1024 * 1024, guard = begin_of_dynamic + size_t(dynamic_bytes);
    memory.resize(1024 + guard + GUARD + SLACK);  // so that what a fault writes far beyond hits nothing else
    char* const base = memory.data() + (1024 - reinterpret_cast<size_t>(memory.data()) % 1024);
    prepare_fibers(count, !failure.empty());
    failure.clear();
    kernel = function;
    arguments = given;
    threads.resize(count);
    random_state = 1;
    machine.shared = base;
    machine.dynamic = base + begin_of_dynamic;
    machine.threads = {count, 1, 1};
    machine.blocks = {blocks, 1, 1};
    machine.reciprocal_ulp = reciprocal_ulp;
    watched = watch;
    left_out = without;
    for (unsigned block : blocks_in_turn(blocks, order)) {
        machine.block = {block, 0, 0};
        memset(base, POISON, guard);
        memset(base + guard, GUARDED, GUARD);
        run_block(order);
        inside = false;
        for (int n = 0; n < GUARD && failure.empty(); n++)
            if (base[guard + n] != char(GUARDED))
                failure = written("block %u wrote beyond its %lld bytes of dynamic shared memory", block, dynamic_bytes);
        if (!failure.empty()) return failure.c_str();
    }
    return nullptr;
}
