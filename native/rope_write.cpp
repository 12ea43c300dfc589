// From the projection to the cache: norms of q and k per head, rotation, and K and V into the pool.
#include "kv_layout.h"
#include "op.h"

// `cos` and `sin` are [n_positions, rope_dim] with the halves repeated and the first half of `sin`
// negated (octavo.compute.rope); dims past rope_dim pass through. q is multiplied by `scale`.
struct RopeWriteArguments {
    KVPool pool;
    const float* qkv;     // [n_tokens, (n_heads + 2 · kv_heads) · head_dim]
    const float* q_norm;  // [head_dim], or null
    const float* k_norm;  // [head_dim], or null
    const float* cos;
    const float* sin;
    float* q;  // [n_tokens, n_heads · head_dim]
    int64_t n_heads;
    int64_t rope_dim;
    int64_t layer;  // the layer's place in the pool
    int32_t group;  // whose slots
    float eps;
    float scale;
    int32_t padding;
};

namespace {

constexpr int64_t TOKENS_PER_ITEM = 16;

void norm_head(const float* x, const float* weight, int64_t dim, float eps, float* out) {
    F squares = f_zero();
    for (int64_t i = 0; i < dim; i += LANES) squares = f_fma(f_load(x + i), f_load(x + i), squares);
    F inverse = f_set(1.0f / __builtin_sqrtf(f_sum(squares) / (float)dim + eps));
    for (int64_t i = 0; i < dim; i += LANES)
        f_store(out + i, f_mul(f_mul(f_load(x + i), inverse), f_load(weight + i)));
}

// Pairs (i, i + dim/2): out = x · cos + other half · sin.
void rotate(const float* x, const float* cos, const float* sin, int64_t dim, float* out) {
    const int64_t half = dim / 2;
    if (half % LANES) {
        for (int64_t i = 0; i < dim; i++)
            out[i] = x[i] * cos[i] + x[i < half ? i + half : i - half] * sin[i];
        return;
    }
    for (int64_t i = 0; i < dim; i += LANES) {
        F other = f_load(x + (i < half ? i + half : i - half));
        F turned = f_mul(f_load(x + i), f_load(cos + i));
        f_store(out + i, f_add(turned, f_mul(other, f_load(sin + i))));
    }
}

// One head of q or k: normed if there is a weight, and rotated.
void turn_head(const RopeWriteArguments& a, const float* x, const float* weight, int64_t position,
               float* out) {
    const int64_t dim = a.pool.head_dim;
    float normed[MOST_DIMS];
    if (weight != nullptr) {
        norm_head(x, weight, dim, a.eps, normed);
        x = normed;
    }
    rotate(x, a.cos + position * a.rope_dim, a.sin + position * a.rope_dim, a.rope_dim, out);
    for (int64_t i = a.rope_dim; i < dim; i++) out[i] = x[i];
}

// A broken number breaks its whole head: an infinite one alone could give scores that vanish.
void scale_head(float* q, int64_t dim, float scale) {
    F broken = f_zero();
    for (int64_t i = 0; i < dim; i += LANES)
        broken = f_add(broken, f_sub(f_load(q + i), f_load(q + i)));
    F poison = f_set(f_sum(broken));
    for (int64_t i = 0; i < dim; i += LANES)
        f_store(q + i, f_add(f_mul(f_load(q + i), f_set(scale)), poison));
}

void write_one(const RopeWriteArguments& a, const Step& step, int64_t token) {
    const KVPool& pool = a.pool;
    const int64_t dim = pool.head_dim, position = step.positions[token];
    const float* x = a.qkv + token * (a.n_heads + 2 * pool.kv_heads) * dim;
    float* q = a.q + token * a.n_heads * dim;
    for (int64_t head = 0; head < a.n_heads; head++, x += dim, q += dim) {
        turn_head(a, x, a.q_norm, position, q);
        scale_head(q, dim, a.scale);
    }
    const int64_t slot = step.groups[a.group].slots[token];
    if (slot < 0) return;
    const int64_t block = slot / pool.block_tokens, place = slot % pool.block_tokens;
    for (int64_t head = 0; head < pool.kv_heads; head++, x += dim) {
        float k[MOST_DIMS];
        turn_head(a, x, a.k_norm, position, k);
        write_token(pool, slab_at(pool, block, a.layer, KEY, head), KEY, place, k);
        write_token(pool, slab_at(pool, block, a.layer, VALUE, head), VALUE, place,
                    x + pool.kv_heads * dim);
    }
}

}  // namespace

extern "C" void op_rope_write(const void* arguments, const Step& step, Worker& worker) {
    const RopeWriteArguments& a = *(const RopeWriteArguments*)arguments;
    // Neighbours share cache lines of a block: whole stretches of tokens where there are many.
    int64_t size = worker.share(step.n_tokens, 2);
    size = size < TOKENS_PER_ITEM ? size : TOKENS_PER_ITEM;
    int64_t begin, end;
    while (worker.take(step.n_tokens, size, &begin, &end))
        for (int64_t token = begin; token < end; token++) write_one(a, step, token);
}
