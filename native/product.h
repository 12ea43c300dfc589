// The inner products: sixteen output columns of a few rows.
//
// Every path does, per row and column and in the order of the groups,
//     sum = fma(float(integer dot), scale_w · scale_x, sum);  sum = fma(minimum, moment, sum)
// The integer dot is exact, so one row alone and one among hundreds give the same bits.
#pragma once

#include "weights.h"

// Rows whose sums stay in registers.
#if OCTAVO_REGISTERS == 32
constexpr int ROW_TILE = 8;
#else
constexpr int ROW_TILE = 2;
#endif
constexpr int64_t PREFETCH_BYTES = 2048;

// A value is scale · (stored - zero), or scale · stored + minimum: never both.
template <int BITS_, int GROUP_, bool MINIMA_, bool WIDE_>
struct Format {
    static constexpr int BITS = BITS_;
    static constexpr int GROUP = GROUP_;
    static constexpr bool MINIMA = MINIMA_;
    static constexpr bool WIDE = WIDE_;
    static constexpr int QUADS = GROUP / 4;
    static constexpr int VECTORS = QUADS * BITS / 8;
    static constexpr int64_t NUMBERS = WIDE ? 64 : 32;
    static constexpr int64_t BYTES = VECTORS * 64 + NUMBERS * (MINIMA ? 2 : 1);
};

// The integer dot starts at what the stored zero adds to it.
template <class FORMAT>
OCTAVO_INLINE I first_dot(const RowsAt& x, int64_t group, int row, int32_t zero) {
    if (FORMAT::MINIMA) return i_set(0);
    const int32_t* sums = FORMAT::GROUP == 32 ? x.sum32 : x.sum16;
    return i_set(-zero * sums[group * TILE_ROWS + row]);
}

template <class FORMAT>
OCTAVO_INLINE F add_group(F sum, I dot, F scale, F minimum, const RowsAt& x, int64_t group,
                          int row) {
    int64_t at = group * FORMAT::GROUP / 32 * TILE_ROWS + row;
    sum = f_fma(i_to_f(dot), f_mul(scale, f_set(x.scale[at])), sum);
    return FORMAT::MINIMA ? f_fma(minimum, f_set(x.moment[at]), sum) : sum;
}

// ROWS rows of one tile by one packed panel.
template <int ROWS, class FORMAT>
OCTAVO_INLINE void packed_product(const Weights& w, const uint8_t* panel, const RowsAt& x,
                                  F* sums) {
    constexpr int HALF = FORMAT::QUADS / 2;
    for (int r = 0; r < ROWS; r++) sums[r] = f_zero();
    const int64_t n_groups = w.k / FORMAT::GROUP;
    for (int64_t g = 0; g < n_groups; g++, panel += FORMAT::BYTES) {
        for (int64_t line = 0; line < FORMAT::BYTES; line += 64)
            __builtin_prefetch(panel + PREFETCH_BYTES + line);
        I dots[ROWS];
        for (int r = 0; r < ROWS; r++) dots[r] = first_dot<FORMAT>(x, g, r, w.zero);
        const int8_t* q = x.q + g * FORMAT::GROUP * TILE_ROWS;
        for (int j = 0; j < FORMAT::VECTORS; j++, q += 4 * TILE_ROWS) {
            B both = b_load(panel + 64 * j);
            B low = FORMAT::BITS == 4 ? b_low(both) : both;
            for (int r = 0; r < ROWS; r++) dots[r] = dot4<FORMAT::BITS>(dots[r], low, quad(q + 4 * r));
            if (FORMAT::BITS != 4) continue;
            B high = b_high(both);
            for (int r = 0; r < ROWS; r++)
                dots[r] = dot4<4>(dots[r], high, quad(q + 4 * (HALF * TILE_ROWS + r)));
        }
        const uint8_t* numbers_at = panel + 64 * FORMAT::VECTORS;
        F scale = numbers<FORMAT::WIDE>(numbers_at);
        F minimum =
            FORMAT::MINIMA ? numbers<FORMAT::WIDE>(numbers_at + FORMAT::NUMBERS) : f_zero();
        for (int r = 0; r < ROWS; r++)
            sums[r] = add_group<FORMAT>(sums[r], dots[r], scale, minimum, x, g, r);
    }
}

// A panel taken apart once for many rows: bytes [k/4][64], scales and minima [k/group][16] floats.
struct Unpacked {
    uint8_t* bytes;
    float* scale;
    float* minimum;
};

OCTAVO_INLINE int64_t unpacked_bytes(int64_t k, int64_t group) {
    return LANES * k + 2 * 64 * (k / group);
}

template <class FORMAT>
OCTAVO_INLINE Unpacked unpack(const Weights& w, const uint8_t* panel, uint8_t* memory) {
    const int64_t n_groups = w.k / FORMAT::GROUP;
    float* scale = (float*)(memory + LANES * w.k);
    Unpacked to{memory, scale, scale + LANES * n_groups};
    for (int64_t g = 0; g < n_groups; g++, panel += FORMAT::BYTES) {
        uint8_t* bytes = to.bytes + g * FORMAT::GROUP * LANES;
        for (int j = 0; j < FORMAT::VECTORS; j++) {
            B both = b_load(panel + 64 * j);
            b_store(bytes + 64 * j, FORMAT::BITS == 4 ? b_low(both) : both);
            if (FORMAT::BITS == 4) b_store(bytes + 64 * (FORMAT::VECTORS + j), b_high(both));
        }
        const uint8_t* at = panel + 64 * FORMAT::VECTORS;
        f_store(to.scale + LANES * g, numbers<FORMAT::WIDE>(at));
        if (FORMAT::MINIMA)
            f_store(to.minimum + LANES * g, numbers<FORMAT::WIDE>(at + FORMAT::NUMBERS));
    }
    return to;
}

// As `packed_product` from an unpacked panel.
template <int ROWS, class FORMAT>
OCTAVO_INLINE void unpacked_product(const Weights& w, const Unpacked& panel, const RowsAt& x,
                                    F* sums) {
    for (int r = 0; r < ROWS; r++) sums[r] = f_zero();
    const int8_t* q = x.q;
    const uint8_t* bytes = panel.bytes;
    for (int64_t g = 0; g < w.k / FORMAT::GROUP; g++) {
        I dots[ROWS];
        for (int r = 0; r < ROWS; r++) dots[r] = first_dot<FORMAT>(x, g, r, w.zero);
        for (int j = 0; j < FORMAT::QUADS; j++, q += 4 * TILE_ROWS, bytes += 64) {
            B four = b_load(bytes);
            for (int r = 0; r < ROWS; r++)
                dots[r] = dot4<FORMAT::BITS>(dots[r], four, quad(q + 4 * r));
        }
        F scale = f_load(panel.scale + LANES * g);
        F minimum = FORMAT::MINIMA ? f_load(panel.minimum + LANES * g) : f_zero();
        for (int r = 0; r < ROWS; r++)
            sums[r] = add_group<FORMAT>(sums[r], dots[r], scale, minimum, x, g, r);
    }
}
