// y = x · Wᵀ (+ bias), or y += that: rows of quantised activations by packed weights.
#include "linear.h"

namespace {

struct Panels {
    const LinearArguments& a;
    int64_t n_rows;
    Worker& worker;
    Output each;

    template <class FORMAT>
    void run() const {
        const int64_t n_panels = ceil_div(a.weights.n, LANES);
        int64_t begin, end;
        if (n_rows <= FEW_ROWS) {
            while (worker.take(n_panels, worker.share(n_panels, 4), &begin, &end))
                for (int64_t panel = begin; panel < end; panel++)
                    from_packed<FORMAT>(a.weights, panel, a.x, 0, n_rows, each);
            return;
        }
        const int64_t stretches = ceil_div(n_rows, ROWS_PER_ITEM);
        const bool apart =
            FORMAT::BITS == 4 && unpacked_bytes(a.weights.k, FORMAT::GROUP) <= SCRATCH_BYTES;
        while (worker.take(n_panels * stretches, 1, &begin, &end)) {
            int64_t panel = begin / stretches, row = begin % stretches * ROWS_PER_ITEM;
            int64_t stop = row + ROWS_PER_ITEM < n_rows ? row + ROWS_PER_ITEM : n_rows;
            if (apart)
                from_unpacked<FORMAT>(a.weights, panel, a.x, row, stop, worker.scratch, each);
            else
                from_packed<FORMAT>(a.weights, panel, a.x, row, stop, each);
        }
    }
};

}  // namespace

extern "C" void op_linear(const void* arguments, const Step& step, Worker& worker) {
    const LinearArguments& a = *(const LinearArguments*)arguments;
    Output each{a, a.y != nullptr ? a.y : step.out};
    for_format(a.weights, Panels{a, rows_of(step, a.rows), worker, each});
}
