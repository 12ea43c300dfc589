// Chunks that several workers took, put together in order: one result per query.
#include "attention.h"

namespace {

void merge_head(const AttentionArguments& a, int64_t row, int64_t token, int64_t head) {
    const int64_t dim = a.pool.head_dim;
    float total[MOST_DIMS];
    Totals totals{f_set(-__builtin_inff()), f_zero()};
    for (int64_t i = 0; i < dim; i += LANES) f_store(total + i, f_zero());
    const int64_t chunks = a.plan->last_chunk[row] - a.plan->first_chunk[row] + 1;
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        const int64_t at = (a.plan->first_partial[row] + chunk) * a.n_heads + head;
        F old, fresh;
        merge(totals, f_set(a.stats[2 * at]), f_set(a.stats[2 * at + 1]), &old, &fresh);
        for (int64_t i = 0; i < dim; i += LANES)
            f_store(total + i,
                    merge_sum(f_load(total + i), old, f_load(a.sums + at * dim + i), fresh));
    }
    float l[LANES];
    f_store(l, totals.l);
    finish(total, l[0], dim, a.out + (token * a.n_heads + head) * dim);
}

}  // namespace

extern "C" void op_attention_merge(const void* arguments, const Step& step, Worker& worker) {
    const AttentionArguments& a = *(const AttentionArguments*)arguments;
    const int64_t total = a.plan->n_merged * a.n_heads;
    int64_t begin, end;
    while (worker.take(total, worker.share(total, 4), &begin, &end))
        for (int64_t i = begin; i < end; i++) {
            const int64_t row = a.plan->merged[i / a.n_heads];
            merge_head(a, row, step.row_starts[row], i % a.n_heads);
        }
}
