// Where a token's keys and values lie in the pool, and how they are written there.
//
// The pool is [blocks][layers][K, V][kv_heads][slab]: one block of all layers is one extent. A slab
// is one head's K or V of one block, cut into sub-blocks of 16 tokens, one after the other:
//     f32   K [D][16 tokens], V [16 tokens][D]
//     f16   K [D][16 tokens], V [16 tokens][D], IEEE halves
//     bf16  K [D/2][16 tokens][2 dims], V [8 pairs of tokens][D][2 tokens]
//     int8  K [D][16 tokens] bytes, V [16 tokens][D] bytes, then 16 floats: the tokens' scales
//     fp8   as int8, the bytes being e4m3
// So sixteen tokens' scores, or sixteen dims of a sum of values, come out of the lanes of one
// register without shuffling, whichever instruction set reads them.
#pragma once

#include "simd.h"

enum KVType : int32_t { KV_F32 = 0, KV_BF16 = 1, KV_F16 = 2, KV_INT8 = 3, KV_FP8 = 4 };
enum KVPart : int32_t { KEY = 0, VALUE = 1 };

constexpr int64_t MOST_DIMS = 256;

struct KVPool {
    uint8_t* memory;
    int64_t block_bytes;
    int64_t layer_bytes;
    int64_t part_bytes;    // from K to V of a layer
    int64_t slab_bytes;    // from one head to the next
    int64_t block_tokens;  // a multiple of 16
    int64_t kv_heads;
    int64_t head_dim;  // a multiple of 16, at most MOST_DIMS
    int32_t dtype;     // KVType
    int32_t padding;
};

// Of one sub-block.
OCTAVO_INLINE int64_t sub_block_bytes(int32_t dtype, int64_t head_dim) {
    switch (dtype) {
        case KV_F32: return LANES * head_dim * 4;
        case KV_BF16:
        case KV_F16: return LANES * head_dim * 2;
        default: return LANES * head_dim + LANES * 4;
    }
}

OCTAVO_INLINE int64_t slab_bytes(int32_t dtype, int64_t head_dim, int64_t block_tokens) {
    return block_tokens / LANES * sub_block_bytes(dtype, head_dim);
}

OCTAVO_INLINE uint8_t* slab_at(const KVPool& pool, int64_t block, int64_t layer, int64_t part,
                               int64_t head) {
    return pool.memory + block * pool.block_bytes + layer * pool.layer_bytes +
           part * pool.part_bytes + head * pool.slab_bytes;
}

// ------------------------------------------------------------------------------------------ e4m3

// Bias 7, no infinities; 0x7f and 0xff are NaN.
OCTAVO_INLINE float fp8_to_float(uint8_t code) {
    uint32_t sign = (uint32_t)(code & 0x80) << 24, rest = code & 0x7f;
    if (rest == 0x7f) return bits_to_float(sign | 0x7fc00000u);
    if (rest >= 8) return bits_to_float(sign | ((rest << 20) + (120u << 23)));
    float small = (float)rest * bits_to_float(118u << 23);  // rest · 2^-9
    return bits_to_float(sign | float_to_bits(small));
}

// To nearest, ties to even; beyond 448 it is 448.
OCTAVO_INLINE uint8_t float_to_fp8(float value) {
    uint32_t bits = float_to_bits(value), sign = bits >> 24 & 0x80, rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u) return (uint8_t)(sign | 0x7f);
    // Below 2^-6 the codes count units of 2^-9: those of a float between 2^14 and 2^15.
    uint32_t small = float_to_bits(bits_to_float(rest) + 16384.0f) - float_to_bits(16384.0f);
    uint32_t large = ((rest + 0x7ffffu + (rest >> 20 & 1)) >> 20) - (120u << 3);
    uint32_t code = rest < (121u << 23) ? small : rest >= 0x43e80000u ? 0x7e : large;
    return (uint8_t)(sign | (code < 0x7e ? code : 0x7e));
}

// ---------------------------------------------------------------------------------- reading one

// Where number `dim` of token `token` (of 16) lies in a sub-block, counted in numbers.
OCTAVO_INLINE int64_t place_of(int32_t dtype, int64_t head_dim, int64_t part, int64_t token,
                               int64_t dim) {
    if (dtype != KV_BF16) return part == KEY ? dim * LANES + token : token * head_dim + dim;
    return part == KEY ? (dim / 2 * LANES + token) * 2 + dim % 2
                       : (token / 2 * head_dim + dim) * 2 + token % 2;
}

OCTAVO_INLINE float* scales_of(const KVPool& pool, uint8_t* sub_block) {
    return (float*)(sub_block + LANES * pool.head_dim);
}

OCTAVO_INLINE float read_number(const KVPool& pool, uint8_t* sub_block, int64_t part,
                                int64_t token, int64_t dim) {
    int64_t at = place_of(pool.dtype, pool.head_dim, part, token, dim);
    switch (pool.dtype) {
        case KV_F32: return ((const float*)sub_block)[at];
        case KV_BF16: return bf16_to_float(((const uint16_t*)sub_block)[at]);
        case KV_F16: return f16_to_float(((const uint16_t*)sub_block)[at]);
        case KV_INT8: return (float)(int8_t)sub_block[at] * scales_of(pool, sub_block)[token];
        default: return fp8_to_float(sub_block[at]) * scales_of(pool, sub_block)[token];
    }
}

// ------------------------------------------------------------------------------------ writing one

// Largest magnitude of x; NaN if x holds a NaN or an infinity.
OCTAVO_INLINE float magnitude(const float* x, int64_t n) {
    F most = f_zero(), broken = f_zero();
    for (int64_t i = 0; i < n; i += LANES) {
        F a = f_load(x + i);
        most = f_max(f_abs(a), most);
        broken = f_add(broken, f_sub(a, a));
    }
    return f_highest(most) + f_sum(broken);
}

template <class Number, class Convert>
OCTAVO_INLINE void scatter(const KVPool& pool, uint8_t* sub_block, int64_t part, int64_t token,
                           const float* x, const Convert& convert) {
    Number* to = (Number*)sub_block;
    const int64_t first = place_of(pool.dtype, pool.head_dim, part, token, 0);
    if (pool.dtype == KV_BF16 && part == KEY) {
        for (int64_t i = 0; i < pool.head_dim; i += 2) {
            to[first + i * LANES] = convert(x[i]);
            to[first + i * LANES + 1] = convert(x[i + 1]);
        }
        return;
    }
    const int64_t stride = place_of(pool.dtype, pool.head_dim, part, token, 1) - first;
    for (int64_t i = 0; i < pool.head_dim; i++) to[first + i * stride] = convert(x[i]);
}

// Bytes and a scale: the largest number becomes `largest`. What is too small to divide by is zero;
// broken numbers get a scale that is NaN.
template <class Convert>
OCTAVO_INLINE void scatter_scaled(const KVPool& pool, uint8_t* sub_block, int64_t part,
                                  int64_t token, const float* x, float largest,
                                  const Convert& convert) {
    float most = magnitude(x, pool.head_dim);
    float inverse = most > 1e-30f ? largest / most : 0.0f;
    scales_of(pool, sub_block)[token] = most > 1e-30f || most != most ? most / largest : 0.0f;
    scatter<uint8_t>(pool, sub_block, part, token, x,
                     [&](float value) { return convert(most != most ? 0.0f : value * inverse); });
}

// One head's K or V of one token, x [head_dim], to place `token` of a slab. A vector that holds a
// NaN or an infinity is broken as a whole, so that no weight of 0 and no score of -infinity hides
// it.
OCTAVO_INLINE void write_token(const KVPool& pool, uint8_t* slab, int64_t part, int64_t token,
                               const float* x) {
    uint8_t* sub_block = slab + token / LANES * sub_block_bytes(pool.dtype, pool.head_dim);
    const int64_t place = token % LANES;
    const float most = pool.dtype < KV_INT8 ? magnitude(x, pool.head_dim) : 0.0f;
    const float broken = most != most ? most : 0.0f;
    switch (pool.dtype) {
        case KV_F32:
            scatter<float>(pool, sub_block, part, place, x,
                           [&](float value) { return value + broken; });
            break;
        case KV_BF16:
            scatter<uint16_t>(pool, sub_block, part, place, x,
                              [&](float value) { return float_to_bf16(value + broken); });
            break;
        case KV_F16:
            scatter<uint16_t>(pool, sub_block, part, place, x,
                              [&](float value) { return float_to_f16(value + broken); });
            break;
        case KV_INT8:
            scatter_scaled(pool, sub_block, part, place, x, 127.0f, [](float value) {
                return (uint8_t)(int8_t)__builtin_rintf(value);
            });
            break;
        default:
            scatter_scaled(pool, sub_block, part, place, x, 448.0f,
                           [](float value) { return float_to_fp8(value); });
    }
}
