#include "pool.h"

#include <condition_variable>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

// A step's ops follow each other within microseconds; between steps there is Python for some
// hundred. Longer waits are slept through, so that an idle engine costs nothing and the event loop
// has a core to run on.
constexpr int SPINS_IN_STEP = 1 << 11;
constexpr int SPINS_BETWEEN_STEPS = 1 << 11;

inline void relax() {
#if defined(__x86_64__)
    _mm_pause();
#else
    std::this_thread::yield();
#endif
}

// Spins a while, then lets others run: the one that is waited for may need this very core.
template <class Ready>
void wait_until(const Ready& ready) {
    for (int spins = 0; !ready(); spins++) {
        if (spins < SPINS_IN_STEP) relax();
        else std::this_thread::yield();
    }
}

// One word says which round it is, whether a worker may still join, and how many have.
constexpr uint64_t ONE_ROUND = 1 << 17, OPEN = 1 << 16, JOINED = OPEN - 1;

}  // namespace

struct Pool {
    int count;
    std::vector<std::thread> threads;
    std::vector<uint8_t*> scratch;

    // The running list; changed only while no worker has joined.
    const Op* ops = nullptr;
    int64_t n_ops = 0;
    const Step* step = nullptr;
    std::vector<Progress> progress;

    alignas(64) std::atomic<uint64_t> gate{0};
    std::atomic<bool> stopping{false};
    std::atomic<int> sleeping{0};
    std::mutex mutex;
    std::condition_variable wake;
};

namespace {

void run_ops(Pool* pool, int index) {
    Worker worker{index, pool->count, nullptr, pool->scratch[(size_t)index], 0, 0};
    for (int64_t i = 0; i < pool->n_ops; i++) {
        Progress& progress = pool->progress[(size_t)i];
        worker.progress = &progress;
        worker.total = 0;
        pool->ops[i].run(pool->ops[i].arguments, *pool->step, worker);
        worker.finish();
        wait_until([&] { return progress.done.load(std::memory_order_acquire) == worker.total; });
    }
}

// False if the round was closed before.
bool join(Pool* pool) {
    uint64_t gate = pool->gate.load(std::memory_order_acquire);
    while (gate & OPEN)
        if (pool->gate.compare_exchange_weak(gate, gate + 1, std::memory_order_acq_rel)) return true;
    return false;
}

void leave(Pool* pool) { pool->gate.fetch_sub(1, std::memory_order_release); }

uint64_t round_of(const Pool* pool) {
    return pool->gate.load(std::memory_order_acquire) / ONE_ROUND;
}

void sleep_until_round_after(Pool* pool, uint64_t seen) {
    std::unique_lock<std::mutex> lock(pool->mutex);
    pool->sleeping.fetch_add(1);
    pool->wake.wait(lock, [&] { return pool->gate.load() / ONE_ROUND != seen; });
    pool->sleeping.fetch_sub(1);
}

void serve(Pool* pool, int index) {
    uint64_t seen = 0;
    for (;;) {
        for (int spins = 0; round_of(pool) == seen; spins++) {
            if (spins < SPINS_BETWEEN_STEPS) relax();
            else sleep_until_round_after(pool, seen);
        }
        seen = round_of(pool);
        if (pool->stopping.load()) return;
        if (!join(pool)) continue;
        run_ops(pool, index);
        leave(pool);
    }
}

void open_round(Pool* pool) {
    pool->gate.store((pool->gate.load() / ONE_ROUND + 1) * ONE_ROUND + OPEN);
    if (pool->sleeping.load() > 0) {
        // Whoever counted itself holds the mutex until it waits, so no wake-up is lost.
        std::lock_guard<std::mutex> lock(pool->mutex);
        pool->wake.notify_all();
    }
}

void close_round(Pool* pool) {
    pool->gate.fetch_and(~OPEN);
    wait_until([&] { return (pool->gate.load(std::memory_order_acquire) & JOINED) == 0; });
}

void reset_progress(Pool* pool, int64_t n_ops) {
    if ((int64_t)pool->progress.size() < n_ops)
        pool->progress = std::vector<Progress>((size_t)n_ops);
    for (int64_t i = 0; i < n_ops; i++) {
        pool->progress[(size_t)i].taken.store(0, std::memory_order_relaxed);
        pool->progress[(size_t)i].done.store(0, std::memory_order_relaxed);
    }
}

}  // namespace

Pool* pool_create(int n_workers) {
    Pool* pool = new (std::nothrow) Pool;
    if (pool == nullptr) return nullptr;
    pool->count = n_workers;
    try {
        for (int i = 0; i < n_workers; i++)
            pool->scratch.push_back(static_cast<uint8_t*>(
                ::operator new((size_t)SCRATCH_BYTES, std::align_val_t(64))));
        for (int i = 1; i < n_workers; i++) pool->threads.emplace_back(serve, pool, i);
    } catch (...) {
        pool_destroy(pool);
        return nullptr;
    }
    return pool;
}

void pool_destroy(Pool* pool) {
    pool->stopping.store(true);
    open_round(pool);
    for (std::thread& thread : pool->threads) thread.join();
    for (uint8_t* memory : pool->scratch) ::operator delete(memory, std::align_val_t(64));
    delete pool;
}

void pool_run(Pool* pool, const Op* ops, int64_t n_ops, const Step& step) {
    reset_progress(pool, n_ops);
    pool->ops = ops;
    pool->n_ops = n_ops;
    pool->step = &step;
    if (pool->count > 1) open_round(pool);
    run_ops(pool, 0);
    if (pool->count > 1) close_round(pool);
}
