// Shares the tiles of one kernel call out to threads. A waiting thread looks for work a few microseconds long and then sleeps:
// a team that spins for milliseconds, as OpenMP runtimes do, takes the processor from whatever else runs on the machine.
// Every thread has its own part of the tiles, the same at each call, so that their memory stays in its cache; who is done
// helps the others, so that a thread that wakes late delays nobody.
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
const int MOST_THREADS = 1024;

struct alignas(64) Part {
    std::atomic<i64> next{0};
    i64 end = 0;
};

struct Pool {
    std::mutex mutex;
    std::condition_variable work, idle;
    std::atomic<unsigned> jobs{0};  // changes with every job
    std::atomic<int> inside{0};     // workers on the present job
    bool open = false;
    Kernel* kernel;
    const void *batch, *call;
    i64 chunk;
    int sharing = 0;  // threads on the present job, the caller included
    Part parts[MOST_THREADS];
    std::vector<std::thread> threads;

    void work_on(Part& part) {
        for (;;) {
            const i64 first = part.next.fetch_add(chunk, std::memory_order_relaxed);
            if (first >= part.end) return;
            kernel(batch, call, first, first + chunk < part.end ? first + chunk : part.end);
        }
    }

    void share(int self) {
        for (int k = 0; k < sharing; k++) work_on(parts[(self + k) % sharing]);
    }

    void serve(int worker) {
        unsigned seen = 0;
        for (;;) {
            for (int spin = 0; spin < SPINS && jobs.load(std::memory_order_acquire) == seen; spin++) pause();
            {
                std::unique_lock<std::mutex> lock(mutex);
                work.wait(lock, [&] { return jobs.load() != seen; });
                seen = jobs.load();
                if (!open || worker >= sharing) continue;
                inside++;
            }
            share(worker);
            std::lock_guard<std::mutex> lock(mutex);
            if (--inside == 0) idle.notify_one();
        }
    }

    void run(Kernel* k, const void* b, const void* c, i64 n, int count) {
        {
            std::lock_guard<std::mutex> lock(mutex);
            while (int(threads.size()) < count - 1) {
                threads.emplace_back(&Pool::serve, this, int(threads.size()) + 1);
                threads.back().detach();
            }
            kernel = k, batch = b, call = c, sharing = count;
            chunk = n / (8 * count) > 0 ? n / (8 * count) : 1;
            for (int t = 0; t < count; t++) {
                parts[t].next = n * t / count;
                parts[t].end = n * (t + 1) / count;
            }
            open = true;
            jobs++;
        }
        work.notify_all();
        share(0);
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
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    if (threads <= 1) return kernel(batch, call, 0, tiles);
    std::lock_guard<std::mutex> lock(callers);
    pool->run(kernel, batch, call, tiles, threads);
}
