// What an op is: plain data recorded once, and a function that any number of workers run together.
//
// Ops own no memory. Every pointer in their arguments was allocated by the caller and outlives the
// program; what changes from step to step is in `Step`. Mirrored in octavo/compute/native_ops.py:
// `octavo_sizes` lets a test hold the two against each other.
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

// What one worker sees while all of them run one op. `next` starts at 0 for each op.
struct Worker {
    int index;
    int count;
    std::atomic<int64_t>* next;
    uint8_t* scratch;  // this worker's own, SCRATCH_BYTES, 64-byte aligned

    // The next `size` items of [0, total) that nobody has taken; false when there are none.
    bool take(int64_t total, int64_t size, int64_t* begin, int64_t* end) {
        int64_t first = next->fetch_add(size, std::memory_order_relaxed);
        if (first >= total) return false;
        *begin = first;
        *end = first + size < total ? first + size : total;
        return true;
    }

    // Items per claim such that each worker comes about `times` times.
    int64_t share(int64_t total, int64_t times) const {
        int64_t size = total / (count * times);
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
