// Whole blocks: copied in part, zeroed, and decoded. Called from outside of a step.
#include "kv_layout.h"

namespace {

// The first `n` of `each` tokens' numbers, `bytes` per token; the rest become zeros.
void copy_run(const uint8_t* from, uint8_t* to, int64_t n, int64_t each, int64_t bytes) {
    memcpy(to, from, (size_t)(n * bytes));
    memset(to + n * bytes, 0, (size_t)((each - n) * bytes));
}

// The second token of a pair of bf16 values, zeroed over all dims.
void copy_first_of_pairs(const uint8_t* from, uint8_t* to, int64_t head_dim) {
    const uint16_t* source = (const uint16_t*)from;
    uint16_t* target = (uint16_t*)to;
    for (int64_t i = 0; i < head_dim; i++) {
        target[2 * i] = source[2 * i];
        target[2 * i + 1] = 0;
    }
}

// Part of a sub-block: 0 < n < 16 tokens.
void copy_tokens(const KVPool& pool, int64_t part, const uint8_t* from, uint8_t* to, int64_t n) {
    const int64_t dim = pool.head_dim;
    const int64_t bytes = pool.dtype == KV_F32 ? 4 : pool.dtype < KV_INT8 ? 2 : 1;
    if (part == KEY) {
        const int64_t together = pool.dtype == KV_BF16 ? 2 : 1;  // dims side by side
        const int64_t run = LANES * together * bytes;
        for (int64_t i = 0; i < dim / together; i++)
            copy_run(from + i * run, to + i * run, n, LANES, together * bytes);
    } else if (pool.dtype == KV_BF16) {
        copy_run(from, to, n / 2, LANES / 2, dim * 4);
        if (n % 2) copy_first_of_pairs(from + n / 2 * dim * 4, to + n / 2 * dim * 4, dim);
    } else {
        copy_run(from, to, n, LANES, dim * bytes);
    }
    if (pool.dtype >= KV_INT8) copy_run(from + LANES * dim, to + LANES * dim, n, LANES, 4);
}

void copy_slab(const KVPool& pool, int64_t part, const uint8_t* from, uint8_t* to, int64_t n) {
    const int64_t each = sub_block_bytes(pool.dtype, pool.head_dim);
    const int64_t whole = n / LANES, sub_blocks = pool.block_tokens / LANES;
    copy_run(from, to, whole, sub_blocks, each);
    if (n % LANES) copy_tokens(pool, part, from + whole * each, to + whole * each, n % LANES);
}

}  // namespace

extern "C" {

int64_t octavo_kv_slab_bytes(int32_t dtype, int64_t head_dim, int64_t block_tokens) {
    return slab_bytes(dtype, head_dim, block_tokens);
}

// The first `n_tokens` tokens of block `source` to block `target`, `n_layers` layers; the rest of
// the target still holds what an earlier owner left, and becomes zeros.
void octavo_kv_copy(const KVPool* pool, int64_t n_layers, int64_t source, int64_t target,
                    int64_t n_tokens) {
    for (int64_t layer = 0; layer < n_layers; layer++)
        for (int64_t part = KEY; part <= VALUE; part++)
            for (int64_t head = 0; head < pool->kv_heads; head++)
                copy_slab(*pool, part, slab_at(*pool, source, layer, part, head),
                          slab_at(*pool, target, layer, part, head), n_tokens);
}

void octavo_kv_zero(const KVPool* pool, int64_t block) {
    memset(pool->memory + block * pool->block_bytes, 0, (size_t)pool->block_bytes);
}

// A block's K or V as plain numbers: out [kv_heads][block_tokens][head_dim].
void octavo_kv_read(const KVPool* pool, int64_t layer, int64_t part, int64_t block, float* out) {
    const int64_t each = sub_block_bytes(pool->dtype, pool->head_dim);
    for (int64_t head = 0; head < pool->kv_heads; head++) {
        uint8_t* slab = slab_at(*pool, block, layer, part, head);
        for (int64_t token = 0; token < pool->block_tokens; token++)
            for (int64_t dim = 0; dim < pool->head_dim; dim++)
                *out++ = read_number(*pool, slab + token / LANES * each, part, token % LANES, dim);
    }
}
}
