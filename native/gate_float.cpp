// The gated half of an MLP: act(x · Gᵀ) · (x · Uᵀ) from floats and weights of 16 bits.
#include "float_product.h"
#include "gate.h"

namespace {

template <int ROWS, bool HALF>
OCTAVO_INLINE void tile(const GateArguments& a, int64_t group, int64_t row) {
    F sums[GATE_PANELS * ROWS];
    const float* x = a.floats + row * a.weights.k;
    for (int p = 0; p < GATE_PANELS; p += FLOAT_PANELS)
        float_product<ROWS, FLOAT_PANELS, HALF>(a.weights, group * GATE_PANELS + p, x,
                                                sums + p * ROWS);
    for (int r = 0; r < ROWS; r++) finish(a, row + r, group, sums + r, ROWS);
}

struct Groups {
    const GateArguments& a;
    int64_t n_rows;
    Worker& worker;

    template <bool HALF>
    void run() const {
        float_items(worker, a.weights.n / (GATE_PANELS * LANES), n_rows,
                    [&](int64_t group, int64_t row, int64_t end) {
                        for (; row + FLOAT_ROWS <= end; row += FLOAT_ROWS)
                            tile<FLOAT_ROWS, HALF>(a, group, row);
                        for (; row + 2 <= end; row += 2) tile<2, HALF>(a, group, row);
                        for (; row < end; row++) tile<1, HALF>(a, group, row);
                    });
    }
};

}  // namespace

extern "C" void op_gate_float(const void* arguments, const Step& step, Worker& worker) {
    const GateArguments& a = *(const GateArguments*)arguments;
    for_half(a.weights, Groups{a, step.n_tokens, worker});
}
