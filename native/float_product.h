// The inner product of 16-bit weights with rows of floats: tiles of a few panels by a few rows.
//
// Every sum is its own chain, sum = fma(weight, x, sum) in the order of k from zero, however many
// rows and panels share a tile: one row alone and one among hundreds give the same bits. Several
// panels side by side keep the multipliers busy where rows are few.
#pragma once

#include "rows.h"

// A tile's sums, a pair of weights and the x they meet stay in registers.
#if OCTAVO_REGISTERS == 32
constexpr int FLOAT_ROWS = 4, FLOAT_PANELS = 4;
#else
constexpr int FLOAT_ROWS = 2, FLOAT_PANELS = 2;
#endif
constexpr int64_t FLOAT_PREFETCH_BYTES = 1024;

// Weights of two neighbouring k, from 64 bytes.
template <bool HALF>
OCTAVO_INLINE void weight_pair(const uint8_t* p, F* first, F* second) {
    const uint16_t* values = (const uint16_t*)p;
    if (HALF) {
        *first = f16_load(values);
        *second = f16_load(values + LANES);
    } else {
        bf16_pairs(values, first, second);
    }
}

// ROWS rows, x [.., w.k], by PANELS neighbouring panels: sums[panel · ROWS + row].
template <int ROWS, int PANELS, bool HALF>
OCTAVO_INLINE void float_product(const Weights& w, int64_t panel, const float* x, F* sums) {
    const int64_t bytes = panel_bytes(w), k = w.k;
    const uint8_t* at = w.data + panel * bytes;
    F own[PANELS * ROWS];
    for (int i = 0; i < PANELS * ROWS; i++) own[i] = f_zero();
    for (int64_t i = 0; i < k; i += 2, at += 64) {
        for (int p = 0; p < PANELS; p++) {
            F first, second;
            __builtin_prefetch(at + p * bytes + FLOAT_PREFETCH_BYTES);
            weight_pair<HALF>(at + p * bytes, &first, &second);
            for (int r = 0; r < ROWS; r++) {
                F sum = f_fma(first, f_set(x[r * k + i]), own[p * ROWS + r]);
                own[p * ROWS + r] = f_fma(second, f_set(x[r * k + i + 1]), sum);
            }
        }
    }
    for (int i = 0; i < PANELS * ROWS; i++) sums[i] = own[i];
}

// Calls action.run<HALF>() for the kind of 16-bit weights.
template <class Action>
OCTAVO_INLINE void for_half(const Weights& w, const Action& action) {
    if (w.half) action.template run<true>();
    else action.template run<false>();
}

// Claims (block, rows [row, end)) until none are left: each(block, row, end).
template <class Each>
OCTAVO_INLINE void float_items(Worker& worker, int64_t n_blocks, int64_t n_rows, const Each& each) {
    const int64_t stretches = ceil_div(n_rows, ROWS_PER_ITEM), total = n_blocks * stretches;
    const int64_t size = stretches == 1 ? worker.share(total, 4) : 1;
    int64_t begin, end;
    while (worker.take(total, size, &begin, &end)) {
        for (int64_t item = begin; item < end; item++) {
            int64_t row = item % stretches * ROWS_PER_ITEM;
            int64_t stop = row + ROWS_PER_ITEM < n_rows ? row + ROWS_PER_ITEM : n_rows;
            each(item / stretches, row, stop);
        }
    }
}
