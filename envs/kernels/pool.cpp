// Shares the tiles of one kernel call out to threads. A waiting thread looks for work some microseconds long and then sleeps:
// a team that spins for milliseconds, as OpenMP runtimes do, takes the processor from whatever else runs on the machine.
// Every thread has its own part of the tiles, the same at each call, so that their memory stays in its cache. If a thread has
// not begun its part by the time the caller has done its own and looked around a little, the caller does it too.
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
static void relax() { _mm_pause(); }
#else
static void relax() { std::this_thread::yield(); }
#endif

typedef long long i64;
typedef void Kernel(const void* batch, const void* call, i64 first, i64 last);

namespace {
const std::chrono::microseconds PATIENCE(30);  // longer than Python takes between two steps, shorter than a time slice

// Waits for a condition without sleeping, but not longer than PATIENCE.
template <typename Condition>
void look_for(Condition condition) {
    const auto begin = std::chrono::steady_clock::now();
    while (!condition() && std::chrono::steady_clock::now() - begin < PATIENCE) relax();
}

struct Job {
    Kernel* kernel;
    const void *batch, *call;
    i64 tiles;
    int parts;

    void run(int part) const { kernel(batch, call, tiles * part / parts, tiles * (part + 1) / parts); }
};

struct Pool {
    std::mutex mutex;  // guards job, taken and the counting of jobs
    std::condition_variable work, finished;
    std::atomic<unsigned> jobs{0};  // changes with every job
    std::atomic<int> open{0};       // parts of the present job that are not done
    Job job;
    std::vector<bool> taken;  // parts of the present job that somebody works on
    int threads = 0;

    bool take(int part) {
        if (part >= int(taken.size()) || taken[part]) return false;
        return taken[part] = true;
    }

    void done() {
        if (--open == 0) {
            std::lock_guard<std::mutex> lock(mutex);
            finished.notify_one();
        }
    }

    void serve(int part) {
        unsigned seen = 0;
        for (;;) {
            look_for([&] { return jobs != seen; });
            std::unique_lock<std::mutex> lock(mutex);
            work.wait(lock, [&] { return jobs != seen; });
            seen = jobs;
            if (!take(part)) continue;
            const Job mine = job;
            lock.unlock();
            mine.run(part);
            done();
        }
    }

    // False where the system has no more threads: those there are do the work.
    bool begin_thread(int part) {
        try {
            std::thread(&Pool::serve, this, part).detach();
            return true;
        } catch (const std::system_error&) {
            return false;
        }
    }

    void run(const Job& next) {
        {
            std::lock_guard<std::mutex> lock(mutex);
            while (threads < next.parts - 1 && begin_thread(threads + 1)) threads++;
            job = next;
            taken.assign(next.parts, false);
            taken[0] = true;
            open = next.parts;
            jobs++;
        }
        work.notify_all();
        next.run(0);
        open--;
        look_for([&] { return open == 0; });
        std::unique_lock<std::mutex> lock(mutex);
        for (int part = 1; open && part < next.parts; part++) {
            if (!take(part)) continue;
            lock.unlock();
            next.run(part);
            open--;
            lock.lock();
        }
        finished.wait(lock, [&] { return open == 0; });
        taken.clear();  // a thread that wakes only now finds nothing
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
    pool->run({kernel, batch, call, tiles, threads});
}
