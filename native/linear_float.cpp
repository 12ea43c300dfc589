// y = x · Wᵀ (+ bias), or y += that: rows of floats by weights of 16 bits.
#include "float_product.h"
#include "linear.h"

namespace {

template <int ROWS, int PANELS, bool HALF>
OCTAVO_INLINE void tile(const LinearArguments& a, int64_t panel, int64_t row, const Output& out) {
    F sums[PANELS * ROWS];
    float_product<ROWS, PANELS, HALF>(a.weights, panel, a.floats + row * a.weights.k, sums);
    for (int p = 0; p < PANELS; p++)
        for (int r = 0; r < ROWS; r++) out(row + r, panel + p, sums[p * ROWS + r]);
}

template <int PANELS, bool HALF>
OCTAVO_INLINE void stretch(const LinearArguments& a, int64_t panel, int64_t row, int64_t end,
                           const Output& out) {
    for (; row + FLOAT_ROWS <= end; row += FLOAT_ROWS)
        tile<FLOAT_ROWS, PANELS, HALF>(a, panel, row, out);
    for (; row + 2 <= end; row += 2) tile<2, PANELS, HALF>(a, panel, row, out);
    for (; row < end; row++) tile<1, PANELS, HALF>(a, panel, row, out);
}

struct Blocks {
    const LinearArguments& a;
    int64_t n_rows;
    Worker& worker;
    Output out;

    template <bool HALF>
    void run() const {
        const int64_t n_panels = ceil_div(a.weights.n, LANES);
        float_items(worker, ceil_div(n_panels, FLOAT_PANELS), n_rows,
                    [&](int64_t block, int64_t row, int64_t end) {
                        int64_t panel = block * FLOAT_PANELS;
                        if (panel + FLOAT_PANELS <= n_panels) {
                            stretch<FLOAT_PANELS, HALF>(a, panel, row, end, out);
                            return;
                        }
                        for (; panel < n_panels; panel++)
                            stretch<1, HALF>(a, panel, row, end, out);
                    });
    }
};

}  // namespace

extern "C" void op_linear_float(const void* arguments, const Step& step, Worker& worker) {
    const LinearArguments& a = *(const LinearArguments*)arguments;
    Output out{a, a.y != nullptr ? a.y : step.out};
    for_half(a.weights, Blocks{a, rows_of(step, a.rows), worker, out});
}
