// The gated half of an MLP: act(x · Gᵀ) · (x · Uᵀ), straight into quantised activations.
#include "op.h"
#include "rows.h"

enum Activation : int32_t { SILU = 0, GELU_TANH = 1 };

// `weights` holds G and U in turns of two panels: G 0, G 1, U 0, U 1, G 2, … so that 32 columns of
// the result, one group, come from four neighbouring panels. weights.n is twice the result's width.
struct GateArguments {
    Weights weights;
    Quantised x;
    Quantised out;  // k = weights.n / 2
    const float* bias;  // [weights.n] in the order of the panels, or null
    int32_t activation;
    int32_t padding;
};

namespace {

constexpr int PANELS = 4;

F activate(int32_t kind, F x) { return kind == SILU ? f_silu(x) : f_gelu_tanh(x); }

// One row's four sums to one group of the result.
void finish(const GateArguments& a, int64_t row, int64_t group, const F* sums, int stride) {
    F part[PANELS];
    for (int p = 0; p < PANELS; p++) {
        part[p] = sums[p * stride];
        if (a.bias != nullptr)
            part[p] = f_add(part[p], f_load(a.bias + (group * PANELS + p) * LANES));
    }
    float values[2 * LANES];
    f_store(values, f_mul(activate(a.activation, part[0]), part[2]));
    f_store(values + LANES, f_mul(activate(a.activation, part[1]), part[3]));
    quantise_group(values, a.out, row, group);
}

template <int ROWS, class FORMAT>
OCTAVO_INLINE void packed_group(const GateArguments& a, int64_t group, int64_t row) {
    F sums[PANELS * ROWS];
    RowsAt x = rows_at(a.x, row);
    const int64_t bytes = panel_bytes(a.weights);
    for (int p = 0; p < PANELS; p++)
        packed_product<ROWS, FORMAT>(a.weights, a.weights.data + (group * PANELS + p) * bytes, x,
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
    F sums[PANELS * ROWS];
    RowsAt x = rows_at(a.x, row);
    for (int p = 0; p < PANELS; p++)
        unpacked_product<ROWS, FORMAT>(a.weights, panels[p], x, sums + p * ROWS);
    for (int r = 0; r < ROWS; r++) finish(a, row + r, group, sums + r, ROWS);
}

template <class FORMAT>
OCTAVO_INLINE void unpacked_item(const GateArguments& a, int64_t group, int64_t row, int64_t end,
                                 uint8_t* memory) {
    const Weights& w = a.weights;
    Unpacked panels[PANELS];
    for (int p = 0; p < PANELS; p++)
        panels[p] = unpack<FORMAT>(w, w.data + (group * PANELS + p) * panel_bytes(w),
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
        const int64_t n_groups = a.weights.n / (PANELS * LANES);
        int64_t begin, end;
        if (n_rows <= FEW_ROWS) {
            while (worker.take(n_groups, worker.share(n_groups, 4), &begin, &end))
                for (int64_t g = begin; g < end; g++) packed_item<FORMAT>(a, g, 0, n_rows);
            return;
        }
        const int64_t stretches = ceil_div(n_rows, ROWS_PER_ITEM);
        const bool apart =
            FORMAT::BITS == 4 &&
            PANELS * unpacked_bytes(a.weights.k, FORMAT::GROUP) <= SCRATCH_BYTES;
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
