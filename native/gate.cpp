// The gated half of an MLP: act(x · Gᵀ) · (x · Uᵀ) from quantised activations and weights.
#include "gate.h"

namespace {

template <int ROWS, class FORMAT>
OCTAVO_INLINE void packed_group(const GateArguments& a, int64_t group, int64_t row) {
    F sums[GATE_PANELS * ROWS];
    RowsAt x = rows_at(a.x, row);
    const int64_t bytes = panel_bytes(a.weights);
    for (int p = 0; p < GATE_PANELS; p++)
        packed_product<ROWS, FORMAT>(a.weights,
                                     a.weights.data + (group * GATE_PANELS + p) * bytes, x,
                                     sums + p * ROWS);
    for (int r = 0; r < ROWS; r++) finish(a, row + r, group, sums + r, ROWS);
}

template <class FORMAT>
OCTAVO_INLINE void packed_item(const GateArguments& a, int64_t group, int64_t row, int64_t end) {
    for (; row + ROW_TILE <= end; row += ROW_TILE) packed_group<ROW_TILE, FORMAT>(a, group, row);
    if (ROW_TILE >= 8)
        for (; row + 4 <= end; row += 4) packed_group<4, FORMAT>(a, group, row);
    for (; row + 2 <= end; row += 2) packed_group<2, FORMAT>(a, group, row);
    for (; row < end; row++) packed_group<1, FORMAT>(a, group, row);
}

template <int ROWS, class FORMAT>
OCTAVO_INLINE void unpacked_group(const GateArguments& a, const Unpacked* panels, int64_t group,
                                  int64_t row) {
    F sums[GATE_PANELS * ROWS];
    RowsAt x = rows_at(a.x, row);
    for (int p = 0; p < GATE_PANELS; p++)
        unpacked_product<ROWS, FORMAT>(a.weights, panels[p], x, sums + p * ROWS);
    for (int r = 0; r < ROWS; r++) finish(a, row + r, group, sums + r, ROWS);
}

template <class FORMAT>
OCTAVO_INLINE void unpacked_item(const GateArguments& a, int64_t group, int64_t row, int64_t end,
                                 uint8_t* memory) {
    const Weights& w = a.weights;
    Unpacked panels[GATE_PANELS];
    for (int p = 0; p < GATE_PANELS; p++)
        panels[p] = unpack<FORMAT>(w, w.data + (group * GATE_PANELS + p) * panel_bytes(w),
                                   memory + p * unpacked_bytes(w.k, FORMAT::GROUP));
    for (; row + ROW_TILE <= end; row += ROW_TILE)
        unpacked_group<ROW_TILE, FORMAT>(a, panels, group, row);
    for (; row < end; row++) unpacked_group<1, FORMAT>(a, panels, group, row);
}

struct Items {
    const GateArguments& a;
    int64_t n_rows;
    Worker& worker;

    template <class FORMAT>
    void run() const {
        const int64_t n_groups = a.weights.n / (GATE_PANELS * LANES);
        int64_t begin, end;
        if (n_rows <= FEW_ROWS) {
            while (worker.take(n_groups, worker.share(n_groups, 4), &begin, &end))
                for (int64_t g = begin; g < end; g++) packed_item<FORMAT>(a, g, 0, n_rows);
            return;
        }
        const int64_t stretches = ceil_div(n_rows, ROWS_PER_ITEM);
        const bool apart =
            FORMAT::BITS == 4 &&
            GATE_PANELS * unpacked_bytes(a.weights.k, FORMAT::GROUP) <= SCRATCH_BYTES;
        while (worker.take(n_groups * stretches, 1, &begin, &end)) {
            int64_t group = begin / stretches, row = begin % stretches * ROWS_PER_ITEM;
            int64_t stop = row + ROWS_PER_ITEM < n_rows ? row + ROWS_PER_ITEM : n_rows;
            if (apart) unpacked_item<FORMAT>(a, group, row, stop, worker.scratch);
            else packed_item<FORMAT>(a, group, row, stop);
        }
    }
};

}  // namespace

extern "C" void op_gate(const void* arguments, const Step& step, Worker& worker) {
    const GateArguments& a = *(const GateArguments*)arguments;
    for_format(a.weights, Items{a, step.n_tokens, worker});
}
