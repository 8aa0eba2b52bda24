// Shares the tiles of one kernel call out to threads. A waiting thread looks for work a few microseconds long and then sleeps:
// a team that spins for milliseconds, as OpenMP runtimes do, takes the processor from whatever else runs on the machine.
// Tiles are handed out in small chunks, so that a thread that wakes late delays nobody.
#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
static void pause() { _mm_pause(); }
#else
static void pause() { std::this_thread::yield(); }
#endif

typedef long long i64;
typedef void Kernel(const void* batch, const void* call, i64 first, i64 last);

namespace {
const int SPINS = 400;  // pauses: about 20 microseconds on current x86

struct Pool {
    std::mutex mutex;
    std::condition_variable work, idle;
    std::atomic<unsigned> jobs{0};  // changes with every job
    std::atomic<i64> next{0};
    std::atomic<int> inside{0};     // workers on the present job
    bool open = false;
    Kernel* kernel;
    const void *batch, *call;
    i64 tiles, chunk;
    int wanted = 0;
    std::vector<std::thread> threads;

    void share() {
        for (;;) {
            const i64 first = next.fetch_add(chunk);
            if (first >= tiles) return;
            kernel(batch, call, first, first + chunk < tiles ? first + chunk : tiles);
        }
    }

    void serve(int worker) {
        unsigned seen = 0;
        for (;;) {
            for (int spin = 0; spin < SPINS && jobs.load(std::memory_order_acquire) == seen; spin++) pause();
            {
                std::unique_lock<std::mutex> lock(mutex);
                work.wait(lock, [&] { return jobs.load() != seen; });
                seen = jobs.load();
                if (!open || worker >= wanted) continue;
                inside++;
            }
            share();
            std::lock_guard<std::mutex> lock(mutex);
            if (--inside == 0) idle.notify_one();
        }
    }

    void run(Kernel* k, const void* b, const void* c, i64 n, int count) {
        {
            std::lock_guard<std::mutex> lock(mutex);
            while (int(threads.size()) < count - 1) {
                threads.emplace_back(&Pool::serve, this, int(threads.size()));
                threads.back().detach();
            }
            kernel = k, batch = b, call = c, tiles = n, wanted = count - 1;
            chunk = n / (8 * count) > 0 ? n / (8 * count) : 1;
            next = 0;
            open = true;
            jobs++;
        }
        work.notify_all();
        share();
        for (int spin = 0; spin < SPINS && inside.load(std::memory_order_acquire); spin++) pause();
        std::unique_lock<std::mutex> lock(mutex);
        idle.wait(lock, [&] { return inside == 0; });
        open = false;
    }
};

std::mutex callers;  // one job at a time: two environments in two Python threads take turns
Pool* pool = new Pool;

// A forked child has none of its parent's threads; it starts anew.
void after_fork() {
    new (&callers) std::mutex;
    pool = new Pool;
}
const int registered = pthread_atfork(nullptr, nullptr, after_fork);
}  // namespace

extern "C" void run_on_threads(Kernel* kernel, const void* batch, const void* call, i64 tiles, int threads) {
    if (threads > tiles) threads = int(tiles);
    if (threads <= 1) return kernel(batch, call, 0, tiles);
    std::lock_guard<std::mutex> lock(callers);
    pool->run(kernel, batch, call, tiles, threads);
}
