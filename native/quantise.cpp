// Rows of floats to quantised activations.
#include "op.h"
#include "rows.h"

struct QuantiseArguments {
    const float* x;  // [n_tokens, k], k a multiple of 32
    Quantised to;
};

extern "C" void op_quantise(const void* arguments, const Step& step, Worker& worker) {
    const QuantiseArguments& a = *(const QuantiseArguments*)arguments;
    const int64_t n_groups = a.to.k / 32, total = step.n_tokens * n_groups;
    int64_t begin, end;
    while (worker.take(total, worker.share(total, 4), &begin, &end))
        for (int64_t i = begin; i < end; i++)
            quantise_group(a.x + 32 * i, a.to, i / n_groups, i % n_groups);
}
