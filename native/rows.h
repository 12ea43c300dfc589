// How products are cut into items: panels of columns and stretches of rows.
#pragma once

#include "op.h"
#include "product.h"

enum RowsOf : int32_t { TOKENS = 0, WANTED = 1 };

OCTAVO_INLINE int64_t rows_of(const Step& step, int32_t which) {
    return which == WANTED ? step.n_wanted : step.n_tokens;
}

// Up to this many rows a panel of 4-bit values is read packed; for more it is taken apart once.
constexpr int64_t FEW_ROWS = 32;
// Rows per item: with k = 2048 their bytes stay in a core's second-level cache.
constexpr int64_t ROWS_PER_ITEM = 256;

template <int ROWS, class FORMAT, class Each>
OCTAVO_INLINE void packed_rows(const Weights& w, int64_t panel, const Quantised& x, int64_t row,
                               const Each& each) {
    F sums[ROWS];
    packed_product<ROWS, FORMAT>(w, w.data + panel * panel_bytes(w), rows_at(x, row), sums);
    for (int r = 0; r < ROWS; r++) each(row + r, panel, sums[r]);
}

template <class FORMAT, class Each>
OCTAVO_INLINE void from_packed(const Weights& w, int64_t panel, const Quantised& x, int64_t row,
                               int64_t end, const Each& each) {
    if (ROW_TILE >= 8)
        for (; row + 8 <= end; row += 8) packed_rows<8, FORMAT>(w, panel, x, row, each);
    if (ROW_TILE >= 4)
        for (; row + 4 <= end; row += 4) packed_rows<4, FORMAT>(w, panel, x, row, each);
    for (; row + 2 <= end; row += 2) packed_rows<2, FORMAT>(w, panel, x, row, each);
    for (; row < end; row++) packed_rows<1, FORMAT>(w, panel, x, row, each);
}

template <int ROWS, class FORMAT, class Each>
OCTAVO_INLINE void unpacked_rows(const Weights& w, const Unpacked& unpacked, int64_t panel,
                                 const Quantised& x, int64_t row, const Each& each) {
    F sums[ROWS];
    unpacked_product<ROWS, FORMAT>(w, unpacked, rows_at(x, row), sums);
    for (int r = 0; r < ROWS; r++) each(row + r, panel, sums[r]);
}

template <class FORMAT, class Each>
OCTAVO_INLINE void from_unpacked(const Weights& w, int64_t panel, const Quantised& x, int64_t row,
                                 int64_t end, uint8_t* memory, const Each& each) {
    Unpacked unpacked = unpack<FORMAT>(w, w.data + panel * panel_bytes(w), memory);
    for (; row + ROW_TILE <= end; row += ROW_TILE)
        unpacked_rows<ROW_TILE, FORMAT>(w, unpacked, panel, x, row, each);
    for (; row < end; row++) unpacked_rows<1, FORMAT>(w, unpacked, panel, x, row, each);
}

// Calls action.run<FORMAT>() for the format of `w`.
template <class Action>
OCTAVO_INLINE void for_format(const Weights& w, const Action& action) {
    if (w.bits == 4 && w.minima) {
        if (w.wide) action.template run<Format<4, 32, true, true>>();
        else action.template run<Format<4, 32, true, false>>();
    } else if (w.bits == 4) {
        action.template run<Format<4, 32, false, false>>();
    } else if (w.group == 16) {
        action.template run<Format<8, 16, false, true>>();
    } else if (w.minima) {
        if (w.wide) action.template run<Format<8, 32, true, true>>();
        else action.template run<Format<8, 32, true, false>>();
    } else {
        action.template run<Format<8, 32, false, false>>();
    }
}
