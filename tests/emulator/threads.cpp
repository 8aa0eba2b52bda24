// Runs CUDA blocks on one thread of the CPU. The threads of a block take turns: one runs up to its next synchronisation, then the
// first of those that need not wait, the last or any, so that one warp may be far ahead of another. If a thread reads what
// another writes without a synchronisation between them, orders disagree.
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <string>
#include <vector>

#include "machine.hpp"

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

// Back to the scheduler. The first switch to a fiber is makecontext's, all others are jumps, which cost no system call.
void leave() {
    Fiber& fiber = *fibers[machine.thread.x];
    if (!_setjmp(fiber.here)) _longjmp(scheduler, 1);
}

void live() {
    for (;;) {
        kernel(arguments);
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

Bits wait(State state, const char* what, unsigned mask, Bits value, Join join, unsigned source) {
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

// Which threads need not wait.
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
    Bits results[WARP];
    for (unsigned lane = 0; lane < end - begin; lane++) {
        const unsigned source = threads[begin + lane].source;
        const bool brought = source < end - begin && present[source];
        results[lane] = leader.join ? joined : brought ? threads[begin + source].value : ~Bits(0);  // of one not there: anything
    }
    for (unsigned lane = 0; lane < end - begin; lane++)
        if (present[lane]) resume(threads[begin + lane], results[lane]);
}

// What may go on because of what a thread did.
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

extern "C" Machine* the_machine() {
    machine.wait_for_block = wait_for_block;
    machine.wait_for_warp = wait_for_warp;
    return &machine;
}

// Runs a kernel by `blocks` blocks of `count` threads; gives what went wrong, or nothing.
extern "C" const char* launch(void (*function)(const void* const*), const void* const* given, unsigned blocks, unsigned count,
                              long long shared_bytes, long long dynamic_bytes, int order, int reciprocal_ulp) {
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
    for (unsigned block : blocks_in_turn(blocks, order)) {
        machine.block = {block, 0, 0};
        memset(base, POISON, guard);
        memset(base + guard, GUARDED, GUARD);
        run_block(order);
        for (int n = 0; n < GUARD && failure.empty(); n++)
            if (base[guard + n] != char(GUARDED))
                failure = written("block %u wrote beyond its %lld bytes of dynamic shared memory", block, dynamic_bytes);
        if (!failure.empty()) return failure.c_str();
    }
    return nullptr;
}
