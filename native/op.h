// What an op is: plain data recorded once, and a function that any number of workers run together.
//
// Ops own no memory. Every pointer in their arguments was allocated by the caller and outlives the
// program; what changes from step to step is in `Step`. Mirrored in
// octavo/compute/native/structs.py.
#pragma once

#include <atomic>
#include <cstdint>

// One step's rows in one KV group; see octavo.compute.attention.AttentionRows.
struct GroupRows {
    const int32_t* block_tables;  // [n_rows, table_stride], ids in logical order, 0: none
    const int64_t* slots;         // [n_tokens]: block id · block_tokens + offset, -1: do not store
    int64_t table_stride;
};

struct Step {
    int64_t n_tokens;
    int64_t n_rows;
    int64_t n_wanted;
    const int64_t* tokens;     // [n_tokens]
    const int64_t* positions;  // [n_tokens]
    const int64_t* wanted;     // [n_wanted], numbers of tokens whose hidden state goes out
    const int32_t* row_starts; // [n_rows + 1]
    const int32_t* kv_tokens;  // [n_rows]: positions up to and with the row's last
    const GroupRows* groups;
    const float* input;        // hidden states, for a program that begins with some
    float* out;                // [n_wanted, width]: where the program's last op puts its result
};

// How far an op has come: items handed out, and items finished.
struct alignas(64) Progress {
    std::atomic<int64_t> taken;
    std::atomic<int64_t> done;
};

// What one worker sees while it runs one op. An op takes all its items through `take`, with one
// `total`; before the first call it may look at its arguments and the step, and change nothing.
// An op is over when every item is finished, whoever did it: a worker that the system has put
// aside holds nobody up unless it does so in the middle of an item.
struct Worker {
    int index;
    int count;
    Progress* progress;
    uint8_t* scratch;  // this worker's own, SCRATCH_BYTES, 64-byte aligned
    int64_t total;     // items of the op, once `take` was called
    int64_t held;      // items taken last and not yet reported

    // The next `size` items of [0, total) that nobody has taken; false when there are none. Calling
    // it again says that those taken before are finished.
    bool take(int64_t of, int64_t size, int64_t* begin, int64_t* end) {
        total = of;
        finish();
        int64_t first = progress->taken.load(std::memory_order_relaxed);
        if (first < of) first = progress->taken.fetch_add(size, std::memory_order_relaxed);
        if (first >= of) return false;
        *begin = first;
        *end = first + size < of ? first + size : of;
        held = *end - first;
        return true;
    }

    void finish() {
        if (held > 0) progress->done.fetch_add(held, std::memory_order_release);
        held = 0;
    }

    // Items per claim such that each worker comes about `times` times.
    int64_t share(int64_t all, int64_t times) const {
        int64_t size = all / (count * times);
        return size > 0 ? size : 1;
    }
};

constexpr int64_t SCRATCH_BYTES = 1 << 20;

typedef void (*OpFunction)(const void* arguments, const Step& step, Worker& worker);

struct Op {
    OpFunction run;
    const void* arguments;
};

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
