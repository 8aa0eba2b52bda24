// The GPU's form of a block kernel on the CPU: lanes are threads, synchronisation is a barrier, shared memory is one object.
#include <pthread.h>

#include <thread>
#include <vector>

static thread_local int lane_of_thread;
static pthread_barrier_t barrier_of_lanes;
int lane() { return lane_of_thread; }
void sync() { pthread_barrier_wait(&barrier_of_lanes); }

template <typename Work>
static void on_lanes(Work work) {
    pthread_barrier_init(&barrier_of_lanes, nullptr, LANES);
    std::vector<std::thread> threads;
    for (int n = 0; n < LANES; n++)
        threads.emplace_back([=] {
            lane_of_thread = n;
            work();
        });
    for (std::thread& thread : threads) thread.join();
    pthread_barrier_destroy(&barrier_of_lanes);
}

// Environment after environment by the same lanes; on a GPU each has lanes of its own and memory that begins as zero.
#define KERNEL(NAME, FUNCTION) \
    extern "C" __attribute__((visibility("default"))) void NAME(const Batch* b, const Call* call, i64 first, i64 last) { \
        static Memory memory; \
        on_lanes([=] { \
            for (i64 e = call->first + first; e < call->first + last; e++) { \
                sync(); \
                if (lane() == 0) memset(static_cast<void*>(&memory), 0, sizeof memory); \
                sync(); \
                FUNCTION(*b, *call, e, memory); \
            } \
        }); \
    }
