// Causal attention of a step's tokens over the pool: items of the plan, claimed by the workers.
//
// Query heads that share a KV head are folded into rows, so K and V are read once for all of them
// and for all tokens of a tile. Both products are the same small one, rows by vectors of sixteen:
// q by K gives scores of sixteen tokens a vector, weights by V sixteen dims of the result.
#include "attention.h"

namespace {

// Strides of q and of weights in scratch: constants, so that rows need no pointers of their own.
constexpr int Q_STRIDE = MOST_DIMS + LANES;
constexpr int P_STRIDE = CHUNK + LANES;
// Queries of one item: a tile's, or all query heads of one KV head.
constexpr int MOST_FOLDED = 128;

#if OCTAVO_REGISTERS == 32
constexpr int MOST_TOGETHER = 12;
#else
constexpr int MOST_TOGETHER = 4;
#endif

// Vectors at a time for so many rows: enough sums to hide the latency of fma, and no more than fit.
constexpr int vectors_for(int rows) {
#if OCTAVO_REGISTERS == 32
    return rows == 1 ? 8 : rows <= 4 ? 4 : 2;
#else
    return rows == 1 ? 2 : 1;
#endif
}

// ------------------------------------------------------------------------------------- formats
//
// `first` and `second` are vectors k and k + 1 of a product, k even, at the address of vector k;
// `step` leads from one pair to the next if PAIRED, else from one vector to the next.

struct Floats {
    static constexpr bool PAIRED = false, SCALED = false;
    static constexpr int64_t VECTOR = 64;
    static constexpr float UNIT = 1.0f;
    static F first(const uint8_t* p) { return f_load((const float*)p); }
    static F second(const uint8_t* p, int64_t step) { return f_load((const float*)(p + step)); }
};

struct Brains {
    static constexpr bool PAIRED = true, SCALED = false;
    static constexpr int64_t VECTOR = 64;
    static constexpr float UNIT = 1.0f;
    static F first(const uint8_t* p) {
        F a, b;
        bf16_pairs((const uint16_t*)p, &a, &b);
        return a;
    }
    static F second(const uint8_t* p, int64_t) {
        F a, b;
        bf16_pairs((const uint16_t*)p, &a, &b);
        return b;
    }
};

struct Halves {
    static constexpr bool PAIRED = false, SCALED = false;
    static constexpr int64_t VECTOR = 32;
    static constexpr float UNIT = 1.0f;
    static F first(const uint8_t* p) { return f16_load((const uint16_t*)p); }
    static F second(const uint8_t* p, int64_t step) { return f16_load((const uint16_t*)(p + step)); }
};

struct Bytes {
    static constexpr bool PAIRED = false, SCALED = true;
    static constexpr int64_t VECTOR = 16;
    static constexpr float UNIT = 1.0f;
    static F first(const uint8_t* p) { return i8_load((const int8_t*)p); }
    static F second(const uint8_t* p, int64_t step) { return i8_load((const int8_t*)(p + step)); }
};

struct Minifloats {
    static constexpr bool PAIRED = false, SCALED = true;
    static constexpr int64_t VECTOR = 16;
    static constexpr float UNIT = 256.0f;
    static F first(const uint8_t* p) { return f8_load(p); }
    static F second(const uint8_t* p, int64_t step) { return f8_load(p + step); }
};

// sums[r][j] += a[r][k] · b[j][k] for k in [0, n), in order.
template <int R, int J, int STRIDE, class FORMAT>
OCTAVO_INLINE void multiply(const float* a, const uint8_t* const* b, int64_t step, int64_t n,
                            F (&sums)[R][J]) {
    const int64_t pair = FORMAT::PAIRED ? step : 2 * step;
    int64_t at = 0, k = 0;
    for (; k + 2 <= n; k += 2, at += pair) {
        F first[J], second[J];
#pragma GCC unroll 16
        for (int j = 0; j < J; j++) {
            first[j] = FORMAT::first(b[j] + at);
            second[j] = FORMAT::second(b[j] + at, step);
        }
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
            F x = f_set(a[r * STRIDE + k]), y = f_set(a[r * STRIDE + k + 1]);
#pragma GCC unroll 16
            for (int j = 0; j < J; j++) sums[r][j] = f_fma(x, first[j], sums[r][j]);
#pragma GCC unroll 16
            for (int j = 0; j < J; j++) sums[r][j] = f_fma(y, second[j], sums[r][j]);
        }
    }
    if (k == n) return;
#pragma GCC unroll 16
    for (int j = 0; j < J; j++) {
        F last = FORMAT::first(b[j] + at);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) sums[r][j] = f_fma(f_set(a[r * STRIDE + k]), last, sums[r][j]);
    }
}

// One chunk's K and V of one head: where its sub-blocks begin.
struct Chunk {
    const uint8_t* k[SUB_BLOCKS];
    const uint8_t* v[SUB_BLOCKS];
};

// What some folded rows do with a chunk.
struct Rows {
    const float* q;                   // [rows][Q_STRIDE]
    int32_t from[MOST_TOGETHER];      // the positions of the chunk that each one sees
    int32_t to[MOST_TOGETHER];
    float* sums[MOST_TOGETHER];       // where o goes: as it is, or merged into what is there
    float* m;                         // [rows]
    float* l;                         // [rows]
    bool walking;                     // merge
};

struct Seen {
    int64_t low, high;
    int64_t begin, end;  // sub-blocks
};

template <int R>
OCTAVO_INLINE Seen seen_by(const Rows& rows) {
    int64_t low = rows.from[0], high = rows.to[0];
    for (int r = 1; r < R; r++) {
        low = rows.from[r] < low ? rows.from[r] : low;
        high = rows.to[r] > high ? rows.to[r] : high;
    }
    return {low, high, low / LANES, (high + LANES - 1) / LANES};
}

template <int R, int J, class FORMAT>
OCTAVO_INLINE void score_vectors(const Rows& rows, const Chunk& chunk, int64_t sub_block,
                                 int64_t dim, float* p) {
    F sums[R][J];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 16
        for (int j = 0; j < J; j++) sums[r][j] = f_zero();
    const uint8_t* k[J];
    for (int j = 0; j < J; j++) k[j] = chunk.k[sub_block + j];
    multiply<R, J, Q_STRIDE, FORMAT>(rows.q, k, FORMAT::VECTOR, dim, sums);
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 16
        for (int j = 0; j < J; j++) f_store(p + r * P_STRIDE + (sub_block + j) * LANES, sums[r][j]);
}

template <int R, class FORMAT>
OCTAVO_INLINE void score(const Rows& rows, const Chunk& chunk, const Seen& seen, int64_t dim,
                         float* p) {
    constexpr int J = vectors_for(R);
    int64_t s = seen.begin;
    for (; s + J <= seen.end; s += J) score_vectors<R, J, FORMAT>(rows, chunk, s, dim, p);
    for (; s < seen.end; s++) score_vectors<R, 1, FORMAT>(rows, chunk, s, dim, p);
}

const float INFINITE = __builtin_inff();
const float BELOW[2 * LANES] = {
    INFINITE,  INFINITE,  INFINITE,  INFINITE,  INFINITE,  INFINITE,  INFINITE,  INFINITE,
    INFINITE,  INFINITE,  INFINITE,  INFINITE,  INFINITE,  INFINITE,  INFINITE,  INFINITE,
    -INFINITE, -INFINITE, -INFINITE, -INFINITE, -INFINITE, -INFINITE, -INFINITE, -INFINITE,
    -INFINITE, -INFINITE, -INFINITE, -INFINITE, -INFINITE, -INFINITE, -INFINITE, -INFINITE};

// Scores outside of [from, to), counted from the vector's first, become -infinity. A minimum takes
// its second operand where the first or second is NaN: a broken score that is seen becomes
// +infinity, one that is not seen does not matter.
OCTAVO_INLINE F mask(F x, int64_t from, int64_t to) {
    if (to >= LANES && from <= 0) return f_min(x, f_set(INFINITE));
    to = to < 0 ? 0 : to < LANES ? to : LANES;
    from = from < 0 ? 0 : from < LANES ? from : LANES;
    x = f_min(x, f_load(BELOW + LANES - to));
    return f_min(x, f_sub(f_zero(), f_load(BELOW + LANES - from)));
}

// cap · tanh(x / cap); NaN and infinity become NaN.
OCTAVO_INLINE F soften(F x, float cap) {
    F capped = f_mul(f_tanh(f_div(x, f_set(cap))), f_set(cap));
    return f_add(capped, f_sub(x, x));
}

// One row's scores as the softmax takes them, in place; the highest.
template <class FORMAT>
OCTAVO_INLINE float prepare(const Chunk& chunk, const Seen& seen, int32_t from, int32_t to,
                            int64_t dim, float softcap, float* p) {
    F highest = f_set(-INFINITE);
    for (int64_t s = seen.begin; s < seen.end; s++) {
        F x = f_load(p + s * LANES);
        if (FORMAT::SCALED) {
            F scale = f_load((const float*)(chunk.k[s] + LANES * dim));
            x = f_mul(x, f_mul(scale, f_set(FORMAT::UNIT)));
        }
        if (softcap > 0.0f) x = soften(x, softcap);
        x = mask(x, from - s * LANES, to - s * LANES);
        highest = f_max(highest, x);
        f_store(p + s * LANES, x);
    }
    return f_highest(highest);
}

// One row's scores to weights, in place; their sum.
template <class FORMAT>
OCTAVO_INLINE float weigh(const Chunk& chunk, const Seen& seen, int64_t dim, float m, float* p) {
    F total = f_zero(), top = f_set(m);
    for (int64_t s = seen.begin; s < seen.end; s++) {
        F weight = f_exp(f_sub(f_load(p + s * LANES), top));
        total = f_add(total, weight);
        if (FORMAT::SCALED) {
            F scale = f_load((const float*)(chunk.v[s] + LANES * dim));
            weight = f_mul(weight, f_mul(scale, f_set(FORMAT::UNIT)));
        }
        f_store(p + s * LANES, weight);
    }
    return f_sum(total);
}

// Takes the rows' new m and l into their totals; per row the factors of the sums, old and new.
template <int R>
OCTAVO_INLINE void merge_stats(const Rows& rows, const float* m, const float* l, float* old,
                               float* fresh) {
    float before[2][LANES] = {};
    memcpy(before[0], rows.m, R * sizeof(float));
    memcpy(before[1], rows.l, R * sizeof(float));
    Totals totals{f_load(before[0]), f_load(before[1])};
    F old_factors, fresh_factors;
    merge(totals, f_load(m), f_load(l), &old_factors, &fresh_factors);
    f_store(before[0], totals.m);
    f_store(before[1], totals.l);
    memcpy(rows.m, before[0], R * sizeof(float));
    memcpy(rows.l, before[1], R * sizeof(float));
    f_store(old, old_factors);
    f_store(fresh, fresh_factors);
}

template <int R, int J, class FORMAT>
OCTAVO_INLINE void sum_vectors(const Rows& rows, const Chunk& chunk, const Seen& seen, int64_t dim,
                               int64_t vector, const float* p, const float* old,
                               const float* fresh) {
    F sums[R][J];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 16
        for (int j = 0; j < J; j++) sums[r][j] = f_zero();
    const int64_t step = FORMAT::VECTOR / LANES * dim;
    for (int64_t s = seen.begin; s < seen.end; s++) {
        int64_t first = s == seen.begin ? seen.low % LANES : 0;
        if (FORMAT::PAIRED) first = first / 2 * 2;  // the token before is weighed 0
        const int64_t end = seen.high - s * LANES < LANES ? seen.high - s * LANES : LANES;
        const int64_t skipped = (FORMAT::PAIRED ? first / 2 : first) * step;
        const uint8_t* v[J];
        for (int j = 0; j < J; j++) v[j] = chunk.v[s] + skipped + (vector + j) * FORMAT::VECTOR;
        multiply<R, J, P_STRIDE, FORMAT>(p + s * LANES + first, v, step, end - first, sums);
    }
    for (int j = 0; j < J; j++) {
        const int64_t at = (vector + j) * LANES;
        for (int r = 0; r < R; r++) {
            float* to = rows.sums[r] + at;
            F o = sums[r][j];
            if (rows.walking) o = merge_sum(f_load(to), f_set(old[r]), o, f_set(fresh[r]));
            f_store(to, o);
        }
    }
}

template <int R, class FORMAT>
void attend_rows(const Rows& rows, const Chunk& chunk, int64_t dim, float softcap, float* p) {
    constexpr int J = vectors_for(R);
    const Seen seen = seen_by<R>(rows);
    score<R, FORMAT>(rows, chunk, seen, dim, p);
    float m[LANES] = {}, l[LANES] = {}, old[LANES], fresh[LANES];
    for (int r = 0; r < R; r++)
        m[r] = prepare<FORMAT>(chunk, seen, rows.from[r], rows.to[r], dim, softcap,
                               p + r * P_STRIDE);
    for (int r = 0; r < R; r++) l[r] = weigh<FORMAT>(chunk, seen, dim, m[r], p + r * P_STRIDE);
    if (rows.walking) {
        merge_stats<R>(rows, m, l, old, fresh);
    } else {
        memcpy(rows.m, m, R * sizeof(float));
        memcpy(rows.l, l, R * sizeof(float));
    }
    const int64_t vectors = dim / LANES;
    int64_t i = 0;
    for (; i + J <= vectors; i += J)
        sum_vectors<R, J, FORMAT>(rows, chunk, seen, dim, i, p, old, fresh);
    for (; i < vectors; i++) sum_vectors<R, 1, FORMAT>(rows, chunk, seen, dim, i, p, old, fresh);
}

// How many of `n` rows go together.
int together(int64_t n) {
    if (n >= MOST_TOGETHER) return MOST_TOGETHER;
    return n >= 8 ? 8 : n == 7 ? 4 : (int)n;
}

template <class FORMAT>
void attend_some(int n, const Rows& rows, const Chunk& chunk, int64_t dim, float softcap,
                 float* p) {
    switch (n) {
        case 1: return attend_rows<1, FORMAT>(rows, chunk, dim, softcap, p);
        case 2: return attend_rows<2, FORMAT>(rows, chunk, dim, softcap, p);
        case 3: return attend_rows<3, FORMAT>(rows, chunk, dim, softcap, p);
        case 4: return attend_rows<4, FORMAT>(rows, chunk, dim, softcap, p);
#if OCTAVO_REGISTERS == 32
        case 5: return attend_rows<5, FORMAT>(rows, chunk, dim, softcap, p);
        case 6: return attend_rows<6, FORMAT>(rows, chunk, dim, softcap, p);
        case 8: return attend_rows<8, FORMAT>(rows, chunk, dim, softcap, p);
        default: return attend_rows<12, FORMAT>(rows, chunk, dim, softcap, p);
#endif
    }
}

// ---------------------------------------------------------------------------------------- items

struct Scratch {
    float q[MOST_FOLDED][Q_STRIDE];
    float sums[MOST_FOLDED][MOST_DIMS];
    float p[MOST_TOGETHER][P_STRIDE];
    float m[MOST_FOLDED];
    float l[MOST_FOLDED];
};
static_assert(sizeof(Scratch) <= SCRATCH_BYTES, "one item's numbers fit a worker's scratch");

template <class FORMAT>
struct Items {
    const AttentionArguments& a;
    const Step& step;
    const GroupRows& group;
    Scratch& scratch;
    int64_t dim;
    int64_t heads_per_kv;

    // The sub-blocks of positions [low, high) of `chunk`, in the blocks of `row`. No other entry of
    // the table is read: it may be a block of nobody.
    void locate(int64_t row, int64_t chunk, int64_t low, int64_t high, int64_t head,
                Chunk* found) const {
        const int32_t* table = group.block_tables + row * group.table_stride;
        const int64_t each = sub_block_bytes(a.pool.dtype, dim);
        for (int64_t s = low / LANES; s * LANES < high; s++) {
            const int64_t position = chunk * CHUNK + s * LANES;
            const int64_t block = table[position / a.pool.block_tokens];
            const int64_t inside = position % a.pool.block_tokens / LANES * each;
            found->k[s] = slab_at(a.pool, block, a.layer, KEY, head) + inside;
            found->v[s] = slab_at(a.pool, block, a.layer, VALUE, head) + inside;
        }
    }

    // The query heads of KV head `head` of a token become rows from `first` on.
    void take_queries(int64_t token, int64_t head, int64_t first) const {
        const float* q = a.q + (token * a.n_heads + head * heads_per_kv) * dim;
        for (int64_t i = 0; i < heads_per_kv; i++)
            memcpy(scratch.q[first + i], q + i * dim, (size_t)dim * sizeof(float));
    }

    void see(Rows& rows, int i, int64_t position, int64_t chunk) const {
        const int64_t base = chunk * CHUNK;
        const int64_t from = first_read(position, a.window) - base, to = position + 1 - base;
        rows.from[i] = (int32_t)(from > 0 ? from : 0);
        rows.to[i] = (int32_t)(to < CHUNK ? to : CHUNK);
    }

    // All chunks of `count` tokens of one row, for one KV head.
    void walk(const AttentionItem& item, int64_t head) const {
        const int64_t row = item.row, count = item.count;
        const int64_t row_start = step.row_starts[row], row_end = step.row_starts[row + 1];
        const int64_t token = row_start + item.first;
        const int64_t position = step.kv_tokens[row] - (row_end - token);
        const int64_t n = count * heads_per_kv, last = position + count - 1;
        for (int64_t i = 0; i < count; i++) take_queries(token + i, head, i * heads_per_kv);
        for (int64_t i = 0; i < n; i++) {
            scratch.m[i] = -INFINITE;
            scratch.l[i] = 0.0f;
            memset(scratch.sums[i], 0, (size_t)dim * sizeof(float));
        }
        for (int64_t chunk = first_read(position, a.window) / CHUNK; chunk <= last / CHUNK; chunk++)
            walk_chunk(row, chunk, position, count, head);
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = (token + i / heads_per_kv) * a.n_heads + head * heads_per_kv;
            finish(scratch.sums[i], scratch.l[i], dim, a.out + (at + i % heads_per_kv) * dim);
        }
    }

    // `position` is the first token's. Only those that see something of the chunk take part.
    void walk_chunk(int64_t row, int64_t chunk, int64_t position, int64_t count,
                    int64_t head) const {
        const int64_t base = chunk * CHUNK;
        const int64_t first = base > position ? base - position : 0;
        int64_t end = count;
        if (a.window > 0 && base + CHUNK + a.window - 1 - position < end)
            end = base + CHUNK + a.window - 1 - position;
        const int64_t low = first_read(position + first, a.window) - base;
        const int64_t high = position + end - base;
        Chunk where;
        locate(row, chunk, low > 0 ? low : 0, high < CHUNK ? high : CHUNK, head, &where);
        for (int64_t i = first * heads_per_kv; i < end * heads_per_kv;) {
            const int n = together(end * heads_per_kv - i);
            Rows rows;
            rows.q = scratch.q[i];
            rows.m = scratch.m + i;
            rows.l = scratch.l + i;
            rows.walking = true;
            for (int r = 0; r < n; r++, i++) {
                see(rows, r, position + i / heads_per_kv, chunk);
                rows.sums[r] = scratch.sums[i];
            }
            attend_some<FORMAT>(n, rows, where, dim, a.softcap, scratch.p[0]);
        }
    }

    // One chunk for several rows of one token each.
    void take_chunk(const AttentionItem& item, int64_t head) const {
        const int32_t* members = a.plan->members + item.first;
        const int64_t count = -item.count, each = MOST_FOLDED / heads_per_kv;
        const int64_t row = item.row, chunk = item.chunk;
        const int64_t position = step.kv_tokens[row] - 1, base = chunk * CHUNK;
        const int64_t low = first_read(position, a.window) - base, high = position + 1 - base;
        Chunk where;
        locate(row, chunk, low > 0 ? low : 0, high < CHUNK ? high : CHUNK, head, &where);
        for (int64_t i = 0; i < count; i += each)
            take_members(members + i, count - i < each ? count - i : each, chunk, head, where);
    }

    void take_members(const int32_t* members, int64_t count, int64_t chunk, int64_t head,
                      const Chunk& where) const {
        const int64_t n = count * heads_per_kv;
        for (int64_t i = 0; i < count; i++)
            take_queries(step.row_starts[members[i]], head, i * heads_per_kv);
        for (int64_t i = 0; i < n;) {
            const int at_once = together(n - i);
            Rows rows;
            float* stats[MOST_TOGETHER];
            float m[LANES], l[LANES];
            rows.q = scratch.q[i];
            rows.m = m;
            rows.l = l;
            rows.walking = false;
            for (int r = 0; r < at_once; r++, i++) {
                const int64_t row = members[i / heads_per_kv];
                const int64_t partial =
                    a.plan->first_partial[row] + chunk - a.plan->first_chunk[row];
                const int64_t at = partial * a.n_heads + head * heads_per_kv + i % heads_per_kv;
                see(rows, r, step.kv_tokens[row] - 1, chunk);
                rows.sums[r] = a.sums + at * dim;
                stats[r] = a.stats + 2 * at;
            }
            attend_some<FORMAT>(at_once, rows, where, dim, a.softcap, scratch.p[0]);
            for (int r = 0; r < at_once; r++) {
                stats[r][0] = m[r];
                stats[r][1] = l[r];
            }
        }
    }
};

template <class FORMAT>
void attend(const AttentionArguments& a, const Step& step, Worker& worker) {
    const AttentionPlan& plan = *a.plan;
    const Items<FORMAT> items{a,
                              step,
                              step.groups[a.group],
                              *(Scratch*)worker.scratch,
                              a.pool.head_dim,
                              a.n_heads / a.pool.kv_heads};
    const int64_t heads = a.pool.kv_heads;
    int64_t begin, end;
    while (worker.take(plan.n_items * heads, 1, &begin, &end)) {
        const AttentionItem& item = plan.items[begin / heads];
        if (item.count > 0) items.walk(item, begin % heads);
        else items.take_chunk(item, begin % heads);
    }
}

}  // namespace

extern "C" void op_attention(const void* arguments, const Step& step, Worker& worker) {
    const AttentionArguments& a = *(const AttentionArguments*)arguments;
    switch (a.pool.dtype) {
        case KV_F32: return attend<Floats>(a, step, worker);
        case KV_BF16: return attend<Brains>(a, step, worker);
        case KV_F16: return attend<Halves>(a, step, worker);
        case KV_INT8: return attend<Bytes>(a, step, worker);
        default: return attend<Minifloats>(a, step, worker);
    }
}
