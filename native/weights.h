// A weight matrix as the products read it, and activations as they are multiplied with it.
#pragma once

#include "simd.h"

// [n, k] in panels of 16 output columns. Bits 4 and 8: a panel is k / group groups one after the
// other, each
//     4 bits: group/8 vectors of 64 bytes; byte b of lane c in vector j holds column c's value at
//             4j + b in its low nibble and at group/2 + 4j + b in its high one
//     8 bits: group/4 vectors; byte b of lane c in vector j is column c's value at 4j + b
//     16 scales, then 16 minima if there are any: f16, or f32 if `wide`
// A value is scale · (stored - zero) + minimum. Bits 16: bf16 as [k/2][16 columns][2], so that one
// vector of 64 bytes holds two of k for each column; if `half`, f16 as [k][16 columns]. Columns past
// n are zeros.
struct Weights {
    const uint8_t* data;
    int64_t n;
    int64_t k;
    int32_t bits;   // 4, 8 or 16
    int32_t group;  // 16 or 32; 0 for 16 bits
    int32_t zero;
    int32_t minima;  // 0 or 1
    int32_t wide;    // 0 or 1
    int32_t half;    // 0 or 1, of 16 bits only
};

// Rows of activations, signed bytes with a scale per group of 32. Eight rows make a tile, in which
// the numbers that are read together lie together: one pointer serves all eight.
constexpr int TILE_ROWS = 8;

struct Quantised {
    int8_t* q;       // [tiles][k/4][8 rows][4]
    float* scale;    // [tiles][k/32][8]
    float* moment;   // [tiles][k/32][8]: scale · sum of the group's bytes
    int32_t* sum32;  // [tiles][k/32][8]
    int32_t* sum16;  // [tiles][k/16][8]
    int64_t k;
};

// The same, from one row on: what the products step through.
struct RowsAt {
    const int8_t* q;
    const float* scale;
    const float* moment;
    const int32_t* sum32;
    const int32_t* sum16;
};

OCTAVO_INLINE RowsAt rows_at(const Quantised& x, int64_t row) {
    int64_t first = row / TILE_ROWS * TILE_ROWS, in_tile = row % TILE_ROWS;
    int64_t groups = first * (x.k / 32) + in_tile;
    return {x.q + first * x.k + 4 * in_tile, x.scale + groups, x.moment + groups, x.sum32 + groups,
            x.sum16 + first * (x.k / 16) + in_tile};
}

OCTAVO_INLINE int64_t group_bytes(const Weights& w) {
    int64_t numbers = w.wide ? 64 : 32;
    return LANES * w.group * w.bits / 8 + numbers * (1 + w.minima);
}

OCTAVO_INLINE int64_t panel_bytes(const Weights& w) {
    return w.bits == 16 ? LANES * w.k * 2 : w.k / w.group * group_bytes(w);
}

// Sixteen scales or minima at p.
template <bool WIDE>
OCTAVO_INLINE F numbers(const uint8_t* p) {
    return WIDE ? f_load((const float*)p) : f16_load((const uint16_t*)p);
}

// One group of 32 values: bytes, scale and sums. A NaN or infinity among them makes the scale NaN,
// so that a row that is broken stays so.
OCTAVO_INLINE void quantise_group(const float* x, const Quantised& to, int64_t row, int64_t group) {
    F a = f_load(x), b = f_load(x + LANES);
    float most = f_highest(f_max(f_abs(a), f_abs(b)));
    float poison = f_sum(f_add(f_sub(a, a), f_sub(b, b)));
    F inverse = f_set(most > 1e-30f ? 127.0f / most : 0.0f);  // smaller is zero
    I qa = f_to_i(f_mul(a, inverse)), qb = f_to_i(f_mul(b, inverse));
    int64_t first = row / TILE_ROWS * TILE_ROWS, in_tile = row % TILE_ROWS;
    int8_t bytes[2 * LANES];
    i8_store(bytes, qa);
    i8_store(bytes + LANES, qb);
    int8_t* q = to.q + first * to.k + 32 * group * TILE_ROWS + 4 * in_tile;
    for (int i = 0; i < 2 * LANES; i += 4) memcpy(q + i * TILE_ROWS, bytes + i, 4);
    const int32_t sums[2] = {i_sum(qa), i_sum(qb)};
    float scale = most / 127.0f + poison;
    int64_t at = first * (to.k / 32) + group * TILE_ROWS + in_tile;
    to.scale[at] = scale;
    to.moment[at] = scale * (float)(sums[0] + sums[1]);
    to.sum32[at] = sums[0] + sums[1];
    int32_t* halves = to.sum16 + first * (to.k / 16) + 2 * group * TILE_ROWS + in_tile;
    halves[0] = sums[0];
    halves[TILE_ROWS] = sums[1];
}
