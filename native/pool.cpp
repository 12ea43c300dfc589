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

}  // namespace

struct Pool {
    int count;
    std::vector<std::thread> threads;
    std::vector<uint8_t*> scratch;

    // The running list; written by worker 0 before `round` moves on.
    const Op* ops = nullptr;
    int64_t n_ops = 0;
    const Step* step = nullptr;

    alignas(64) std::atomic<uint64_t> round{0};
    alignas(64) std::atomic<int> arrived{0};
    alignas(64) std::atomic<uint64_t> phase{0};
    alignas(64) std::atomic<int64_t> next{0};
    std::atomic<bool> stopping{false};
    std::atomic<int> sleeping{0};
    std::mutex mutex;
    std::condition_variable wake;
};

namespace {

void wait_for_phase(Pool* pool, uint64_t passed) {
    for (int spins = 0; pool->phase.load(std::memory_order_acquire) == passed; spins++) {
        // On an oversubscribed machine the missing worker may need this very core.
        if (spins < SPINS_IN_STEP) relax();
        else std::this_thread::yield();
    }
}

void barrier(Pool* pool) {
    uint64_t phase = pool->phase.load(std::memory_order_relaxed);
    if (pool->arrived.fetch_add(1, std::memory_order_acq_rel) == pool->count - 1) {
        pool->arrived.store(0, std::memory_order_relaxed);
        pool->next.store(0, std::memory_order_relaxed);
        pool->phase.store(phase + 1, std::memory_order_release);
    } else {
        wait_for_phase(pool, phase);
    }
}

void run_ops(Pool* pool, int index) {
    Worker worker{index, pool->count, &pool->next, pool->scratch[(size_t)index]};
    const Op* ops = pool->ops;
    const int64_t n_ops = pool->n_ops;
    const Step& step = *pool->step;
    for (int64_t i = 0; i < n_ops; i++) {
        ops[i].run(ops[i].arguments, step, worker);
        barrier(pool);
    }
}

void serve(Pool* pool, int index) {
    uint64_t seen = 0;
    for (;;) {
        int spins = 0;
        while (pool->round.load(std::memory_order_acquire) == seen) {
            if (++spins < SPINS_BETWEEN_STEPS) {
                relax();
                continue;
            }
            std::unique_lock<std::mutex> lock(pool->mutex);
            pool->sleeping.fetch_add(1);
            pool->wake.wait(lock, [&] { return pool->round.load() != seen; });
            pool->sleeping.fetch_sub(1);
        }
        seen++;
        if (pool->stopping.load()) return;
        run_ops(pool, index);
    }
}

void start_round(Pool* pool) {
    pool->round.fetch_add(1);
    if (pool->sleeping.load() > 0) {
        // Whoever counted itself holds the mutex until it waits, so no wake-up is lost.
        std::lock_guard<std::mutex> lock(pool->mutex);
        pool->wake.notify_all();
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
    start_round(pool);
    for (std::thread& thread : pool->threads) thread.join();
    for (uint8_t* memory : pool->scratch) ::operator delete(memory, std::align_val_t(64));
    delete pool;
}

int pool_workers(const Pool* pool) { return pool->count; }

void pool_run(Pool* pool, const Op* ops, int64_t n_ops, const Step& step) {
    pool->ops = ops;
    pool->n_ops = n_ops;
    pool->step = &step;
    if (pool->count > 1) start_round(pool);
    run_ops(pool, 0);
}
