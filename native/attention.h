// Attention over the paged pool: what the plan, the kernel and the merge share.
//
// Positions are cut into chunks of CHUNK, counted from 0 whatever a row's window and length. A
// query takes each chunk that it sees anything of, in order: its scores, their highest m, the
// weights e^(s - m), their sum l, and o = the weights' sum over V; then (m, l, o) is merged into
// the sums of the chunks before. Whether one worker walks all chunks or several take one each and a
// second op merges, whoever sits beside it in the batch, a query's numbers go through the same
// operations in the same order: its result has the same bits.
#pragma once

#include "kv_layout.h"
#include "op.h"

constexpr int64_t CHUNK = 128;
constexpr int64_t SUB_BLOCKS = CHUNK / LANES;
// Folded rows (queries times the query heads that share a KV head) of one item.
constexpr int64_t TILE_ROWS_MOST = 48;
// Rows of several requests that read one chunk together: fewer and there is more to share out.
constexpr int64_t TOGETHER_MOST = 32;

// What one worker does for one KV head. `count` > 0: it walks all chunks of `count` tokens of row
// `row`, from token `first` (of the row) on. `count` < 0: chunk `chunk` alone, for the -count rows
// from members[first] on, whose blocks there are the same; their results go to the partials.
struct AttentionItem {
    int32_t row;
    int32_t first;
    int32_t count;
    int32_t chunk;
};

// One step's work in one (group, window), for every layer. The caller allocates the arrays:
// `items` for partial_capacity + max tokens, `members` for partial_capacity, the others for max
// rows.
struct AttentionPlan {
    int64_t n_items;
    int64_t n_merged;
    int64_t partial_capacity;  // (row, chunk) pairs that the partials have room for
    AttentionItem* items;
    int32_t* members;
    int32_t* first_partial;  // [rows]: where a row's partials begin, -1: it has none
    int32_t* first_chunk;    // [rows]
    int32_t* last_chunk;     // [rows]
    int32_t* merged;         // the rows that have partials
    int32_t* order;          // the plan's own
    int32_t* ends;           // the plan's own
};

struct AttentionPlanArguments {
    AttentionPlan* plan;
    int64_t block_tokens;
    int64_t window;  // a query at p reads (p - window, p]; 0: all of [0, p]
    int64_t heads_per_kv;
    int32_t group;
    int32_t share;  // 0: rows never read a chunk together
};

// Serves op_attention and op_attention_merge.
struct AttentionArguments {
    KVPool pool;
    const AttentionPlan* plan;
    const float* q;  // [n_tokens, n_heads · head_dim], scaled already
    float* out;      // as q
    float* stats;    // [partial_capacity, n_heads, 2]: m and l
    float* sums;     // [partial_capacity, n_heads, head_dim]: o
    int64_t n_heads;
    int64_t layer;  // the layer's place in the pool
    int64_t window;
    int32_t group;
    float softcap;  // 0: none
};

// The sums of up to sixteen queries, one per lane; `m` starts at -infinity, `l` and all o at 0.
struct Totals {
    F m;
    F l;
};

// Takes a chunk's (m, l) into the totals; o follows as fma(o, *fresh, total · *old).
OCTAVO_INLINE void merge(Totals& totals, F m, F l, F* old, F* fresh) {
    // Finite even where neither has seen anything: infinity less itself would be NaN.
    F highest = f_max(f_max(totals.m, m), f_set(-3e38f));
    *old = f_exp(f_sub(totals.m, highest));
    *fresh = f_exp(f_sub(m, highest));
    totals.l = f_fma(l, *fresh, f_mul(totals.l, *old));
    totals.m = highest;
}

OCTAVO_INLINE F merge_sum(F total, F old, F o, F fresh) {
    return f_fma(o, fresh, f_mul(total, old));
}

// The result of a query: its weighted sum over the sum of weights. A broken score has made `l` 0 or
// NaN, and the result NaN.
OCTAVO_INLINE void finish(const float* sum, float l, int64_t dim, float* out) {
    F inverse = f_set(1.0f / l);
    for (int64_t i = 0; i < dim; i += LANES) f_store(out + i, f_mul(f_load(sum + i), inverse));
}

// First position that a query at `position` reads.
OCTAVO_INLINE int64_t first_read(int64_t position, int64_t window) {
    return window > 0 && position >= window ? position - window + 1 : 0;
}
