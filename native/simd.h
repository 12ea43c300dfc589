// Sixteen lanes, whatever the machine has: one set of names, one order of operations.
//
// F: 16 floats. I: 16 int32. B: 64 bytes, four per lane. Every build does the same sums in the same
// order; only `fma` without hardware support rounds twice. Contraction by the compiler is off
// (-ffp-contract=off): a product is fused with a sum only where `fma` says so, so a row gives the
// same bits in every kernel that computes it.
#pragma once

#include <stdint.h>
#include <string.h>

#define OCTAVO_INLINE static inline __attribute__((always_inline))

constexpr int LANES = 16;

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VNNI__)
#include <immintrin.h>
#define OCTAVO_ISA_NAME "avx512"
#define OCTAVO_REGISTERS 32
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>
#define OCTAVO_ISA_NAME "avx2"
#define OCTAVO_REGISTERS 8  // pairs of registers
#else
#define OCTAVO_ISA_NAME "scalar"
#define OCTAVO_REGISTERS 8
#endif

// ---------------------------------------------------------------- scalar conversions, all builds

OCTAVO_INLINE float bits_to_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

OCTAVO_INLINE uint32_t float_to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

OCTAVO_INLINE float bf16_to_float(uint16_t half) { return bits_to_float((uint32_t)half << 16); }

// Round to nearest, ties to even; a NaN stays one.
OCTAVO_INLINE uint16_t float_to_bf16(float value) {
    uint32_t bits = float_to_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

// IEEE half precision, subnormals included.
OCTAVO_INLINE float f16_to_float(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t rest = half & 0x7fffu;
    if (rest >= 0x7c00u) return bits_to_float(sign | 0x7f800000u | ((rest & 0x3ffu) << 13));
    if (rest >= 0x400u) return bits_to_float(sign | ((rest << 13) + (112u << 23)));
    float small = (float)rest * bits_to_float(103u << 23);  // rest · 2^-24
    return bits_to_float(sign | float_to_bits(small));
}

// Round to nearest, ties to even, subnormals included; beyond 65504 it is 65504. A NaN stays one.
OCTAVO_INLINE uint16_t float_to_f16(float value) {
    uint32_t bits = float_to_bits(value), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    // Below 2^-14 the codes count units of 2^-24: those of a float between 1/2 and 1.
    uint32_t small = float_to_bits(bits_to_float(rest) + 0.5f) - float_to_bits(0.5f);
    uint32_t large = ((rest + 0xfffu + (rest >> 13 & 1)) >> 13) - (112u << 10);
    uint32_t code = rest < (113u << 23) ? small : rest >= 0x477fe000u ? 0x7bffu : large;
    return (uint16_t)(sign | code);
}

// ------------------------------------------------------------------------------------ AVX-512
#if OCTAVO_REGISTERS == 32

typedef __m512 F;
typedef __m512i I;
typedef __m512i B;

OCTAVO_INLINE F f_set(float x) { return _mm512_set1_ps(x); }
OCTAVO_INLINE F f_zero() { return _mm512_setzero_ps(); }
OCTAVO_INLINE F f_load(const float* p) { return _mm512_loadu_ps(p); }
OCTAVO_INLINE void f_store(float* p, F x) { _mm512_storeu_ps(p, x); }
OCTAVO_INLINE F f_add(F a, F b) { return _mm512_add_ps(a, b); }
OCTAVO_INLINE F f_sub(F a, F b) { return _mm512_sub_ps(a, b); }
OCTAVO_INLINE F f_mul(F a, F b) { return _mm512_mul_ps(a, b); }
OCTAVO_INLINE F f_div(F a, F b) { return _mm512_div_ps(a, b); }
OCTAVO_INLINE F f_fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
OCTAVO_INLINE F f_max(F a, F b) { return _mm512_max_ps(a, b); }
OCTAVO_INLINE F f_min(F a, F b) { return _mm512_min_ps(a, b); }
OCTAVO_INLINE F f_round(F a) { return _mm512_roundscale_ps(a, 8); }  // to nearest even
OCTAVO_INLINE I f_to_i(F a) { return _mm512_cvtps_epi32(a); }        // to nearest even
OCTAVO_INLINE F i_to_f(I a) { return _mm512_cvtepi32_ps(a); }
OCTAVO_INLINE F f_abs(F a) { return _mm512_abs_ps(a); }
// a · 2^n for whole n in [-126, 127]
OCTAVO_INLINE F f_scale2(F a, I n) {
    I bits = _mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23);
    return _mm512_mul_ps(a, _mm512_castsi512_ps(bits));
}
OCTAVO_INLINE I i_set(int32_t x) { return _mm512_set1_epi32(x); }
OCTAVO_INLINE I i_load(const int32_t* p) { return _mm512_loadu_si512(p); }
OCTAVO_INLINE void i_store(int32_t* p, I x) { _mm512_storeu_si512(p, x); }
OCTAVO_INLINE I i_add(I a, I b) { return _mm512_add_epi32(a, b); }
OCTAVO_INLINE int32_t i_sum(I a) { return _mm512_reduce_add_epi32(a); }
OCTAVO_INLINE B b_load(const uint8_t* p) { return _mm512_loadu_si512(p); }
OCTAVO_INLINE void b_store(uint8_t* p, B x) { _mm512_storeu_si512(p, x); }
OCTAVO_INLINE B b_low(B x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }
OCTAVO_INLINE B b_high(B x) {
    return _mm512_and_si512(_mm512_srli_epi16(x, 4), _mm512_set1_epi8(15));
}
// Four signed bytes at p, the same in every lane.
OCTAVO_INLINE I quad(const int8_t* p) {
    int32_t four;
    memcpy(&four, p, 4);
    return _mm512_set1_epi32(four);
}
// acc + per lane the product of four unsigned bytes with four signed ones. Exact.
template <int BITS>
OCTAVO_INLINE I dot4(I acc, B unsigned_bytes, I signed_quad) {
    return _mm512_dpbusd_epi32(acc, unsigned_bytes, signed_quad);
}
OCTAVO_INLINE F f16_load(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p));
}
OCTAVO_INLINE F bf16_load(const uint16_t* p) {
    I wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
// 32 bf16 as 16 pairs: the first and the second of each pair.
OCTAVO_INLINE void bf16_pairs(const uint16_t* p, F* first, F* second) {
    I both = _mm512_loadu_si512(p);
    *first = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
    *second = _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32((int)0xffff0000u)));
}
OCTAVO_INLINE F i8_load(const int8_t* p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p)));
}
OCTAVO_INLINE void i8_store(int8_t* p, I x) {
    _mm_storeu_si128((__m128i*)p, _mm512_cvtepi32_epi8(x));
}

// e4m3 bytes divided by 256: the bits of a half whose exponent counts from eight below. No NaN.
OCTAVO_INLINE F f8_load(const uint8_t* p) {
    __m256i wide = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i*)p));
    __m256i half = _mm256_srai_epi16(_mm256_slli_epi16(wide, 8), 1);
    return _mm512_cvtph_ps(_mm256_and_si256(half, _mm256_set1_epi16((int16_t)0xbfff)));
}

// --------------------------------------------------------------------------------------- AVX2
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

struct F {
    __m256 lo, hi;
};
struct I {
    __m256i lo, hi;
};
typedef I B;

#define OCTAVO_F2(name, op) \
    OCTAVO_INLINE F name(F a, F b) { return {op(a.lo, b.lo), op(a.hi, b.hi)}; }
OCTAVO_F2(f_add, _mm256_add_ps)
OCTAVO_F2(f_sub, _mm256_sub_ps)
OCTAVO_F2(f_mul, _mm256_mul_ps)
OCTAVO_F2(f_div, _mm256_div_ps)
OCTAVO_F2(f_max, _mm256_max_ps)
OCTAVO_F2(f_min, _mm256_min_ps)
#undef OCTAVO_F2
OCTAVO_INLINE F f_set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
OCTAVO_INLINE F f_zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
OCTAVO_INLINE F f_load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
OCTAVO_INLINE void f_store(float* p, F x) {
    _mm256_storeu_ps(p, x.lo);
    _mm256_storeu_ps(p + 8, x.hi);
}
OCTAVO_INLINE F f_fma(F a, F b, F c) {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
OCTAVO_INLINE F f_round(F a) { return {_mm256_round_ps(a.lo, 8), _mm256_round_ps(a.hi, 8)}; }
OCTAVO_INLINE I f_to_i(F a) { return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }
OCTAVO_INLINE F i_to_f(I a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
OCTAVO_INLINE F f_abs(F a) {
    const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    return {_mm256_and_ps(a.lo, mask), _mm256_and_ps(a.hi, mask)};
}
OCTAVO_INLINE __m256 scale2_half(__m256 a, __m256i n) {
    __m256i bits = _mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(a, _mm256_castsi256_ps(bits));
}
OCTAVO_INLINE F f_scale2(F a, I n) { return {scale2_half(a.lo, n.lo), scale2_half(a.hi, n.hi)}; }
OCTAVO_INLINE I i_set(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
OCTAVO_INLINE I i_load(const int32_t* p) {
    return {_mm256_loadu_si256((const __m256i*)p), _mm256_loadu_si256((const __m256i*)(p + 8))};
}
OCTAVO_INLINE void i_store(int32_t* p, I x) {
    _mm256_storeu_si256((__m256i*)p, x.lo);
    _mm256_storeu_si256((__m256i*)(p + 8), x.hi);
}
OCTAVO_INLINE I i_add(I a, I b) {
    return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
OCTAVO_INLINE int32_t i_sum(I a) {
    __m256i eight = _mm256_add_epi32(a.lo, a.hi);
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}
OCTAVO_INLINE B b_load(const uint8_t* p) { return i_load((const int32_t*)p); }
OCTAVO_INLINE void b_store(uint8_t* p, B x) { i_store((int32_t*)p, x); }
OCTAVO_INLINE B b_low(B x) {
    const __m256i mask = _mm256_set1_epi8(15);
    return {_mm256_and_si256(x.lo, mask), _mm256_and_si256(x.hi, mask)};
}
OCTAVO_INLINE B b_high(B x) {
    return b_low({_mm256_srli_epi16(x.lo, 4), _mm256_srli_epi16(x.hi, 4)});
}
OCTAVO_INLINE I quad(const int8_t* p) {
    int32_t four;
    memcpy(&four, p, 4);
    return i_set(four);
}
// Sums of two products must fit 16 bits: 4-bit values do, 8-bit ones are taken as two nibbles.
OCTAVO_INLINE __m256i dot4_small(__m256i acc, __m256i u, __m256i s) {
    return _mm256_add_epi32(
        acc, _mm256_madd_epi16(_mm256_maddubs_epi16(u, s), _mm256_set1_epi16(1)));
}
OCTAVO_INLINE __m256i dot4_large(__m256i acc, __m256i u, __m256i s) {
    const __m256i mask = _mm256_set1_epi8(15);
    __m256i low = _mm256_maddubs_epi16(_mm256_and_si256(u, mask), s);
    __m256i high = _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16(u, 4), mask), s);
    acc = _mm256_add_epi32(acc, _mm256_madd_epi16(low, _mm256_set1_epi16(1)));
    return _mm256_add_epi32(acc, _mm256_madd_epi16(high, _mm256_set1_epi16(16)));
}
template <int BITS>
OCTAVO_INLINE I dot4(I acc, B u, I s) {
    if (BITS == 4) return {dot4_small(acc.lo, u.lo, s.lo), dot4_small(acc.hi, u.hi, s.hi)};
    return {dot4_large(acc.lo, u.lo, s.lo), dot4_large(acc.hi, u.hi, s.hi)};
}
OCTAVO_INLINE F f16_load(const uint16_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)),
            _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(p + 8)))};
}
OCTAVO_INLINE __m256 bf16_half(const uint16_t* p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
OCTAVO_INLINE F bf16_load(const uint16_t* p) { return {bf16_half(p), bf16_half(p + 8)}; }
OCTAVO_INLINE void bf16_pairs(const uint16_t* p, F* first, F* second) {
    I both = i_load((const int32_t*)p);
    const __m256i mask = _mm256_set1_epi32((int)0xffff0000u);
    *first = {_mm256_castsi256_ps(_mm256_slli_epi32(both.lo, 16)),
              _mm256_castsi256_ps(_mm256_slli_epi32(both.hi, 16))};
    *second = {_mm256_castsi256_ps(_mm256_and_si256(both.lo, mask)),
               _mm256_castsi256_ps(_mm256_and_si256(both.hi, mask))};
}
OCTAVO_INLINE F i8_load(const int8_t* p) {
    __m128i bytes = _mm_loadu_si128((const __m128i*)p);
    return i_to_f({_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))});
}
OCTAVO_INLINE void i8_store(int8_t* p, I x) {
    int32_t lanes[LANES];
    i_store(lanes, x);
    for (int i = 0; i < LANES; i++) p[i] = (int8_t)lanes[i];
}

// e4m3 bytes divided by 256; see above.
OCTAVO_INLINE F f8_load(const uint8_t* p) {
    __m256i wide = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i*)p));
    __m256i half = _mm256_srai_epi16(_mm256_slli_epi16(wide, 8), 1);
    half = _mm256_and_si256(half, _mm256_set1_epi16((int16_t)0xbfff));
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(half)),
            _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1))};
}

// ------------------------------------------------------------------------------------- scalar
#else

#include <math.h>

struct F {
    float v[LANES];
};
struct I {
    int32_t v[LANES];
};
struct B {
    uint8_t v[4 * LANES];
};

#define OCTAVO_EACH for (int i = 0; i < LANES; i++)
#define OCTAVO_F2(name, expression) \
    OCTAVO_INLINE F name(F a, F b) { \
        F r; \
        OCTAVO_EACH r.v[i] = expression; \
        return r; \
    }
OCTAVO_F2(f_add, a.v[i] + b.v[i])
OCTAVO_F2(f_sub, a.v[i] - b.v[i])
OCTAVO_F2(f_mul, a.v[i] * b.v[i])
OCTAVO_F2(f_div, a.v[i] / b.v[i])
OCTAVO_F2(f_max, a.v[i] > b.v[i] ? a.v[i] : b.v[i])
OCTAVO_F2(f_min, a.v[i] < b.v[i] ? a.v[i] : b.v[i])
#undef OCTAVO_F2
OCTAVO_INLINE F f_set(float x) {
    F r;
    OCTAVO_EACH r.v[i] = x;
    return r;
}
OCTAVO_INLINE F f_zero() { return f_set(0.0f); }
OCTAVO_INLINE F f_load(const float* p) {
    F r;
    memcpy(r.v, p, sizeof r.v);
    return r;
}
OCTAVO_INLINE void f_store(float* p, F x) { memcpy(p, x.v, sizeof x.v); }
OCTAVO_INLINE F f_fma(F a, F b, F c) {
    F r;
    OCTAVO_EACH r.v[i] = a.v[i] * b.v[i] + c.v[i];
    return r;
}
OCTAVO_INLINE F f_round(F a) {
    F r;
    OCTAVO_EACH r.v[i] = rintf(a.v[i]);
    return r;
}
OCTAVO_INLINE I f_to_i(F a) {
    I r;
    OCTAVO_EACH r.v[i] = (int32_t)rintf(a.v[i]);
    return r;
}
OCTAVO_INLINE F i_to_f(I a) {
    F r;
    OCTAVO_EACH r.v[i] = (float)a.v[i];
    return r;
}
OCTAVO_INLINE F f_abs(F a) {
    F r;
    OCTAVO_EACH r.v[i] = fabsf(a.v[i]);
    return r;
}
OCTAVO_INLINE F f_scale2(F a, I n) {
    F r;
    OCTAVO_EACH r.v[i] = a.v[i] * bits_to_float((uint32_t)(n.v[i] + 127) << 23);
    return r;
}
OCTAVO_INLINE I i_set(int32_t x) {
    I r;
    OCTAVO_EACH r.v[i] = x;
    return r;
}
OCTAVO_INLINE I i_load(const int32_t* p) {
    I r;
    memcpy(r.v, p, sizeof r.v);
    return r;
}
OCTAVO_INLINE void i_store(int32_t* p, I x) { memcpy(p, x.v, sizeof x.v); }
OCTAVO_INLINE I i_add(I a, I b) {
    I r;
    OCTAVO_EACH r.v[i] = a.v[i] + b.v[i];
    return r;
}
OCTAVO_INLINE int32_t i_sum(I a) {
    uint32_t sum = 0;  // what wraps, of a broken row, wraps as on the other builds
    OCTAVO_EACH sum += (uint32_t)a.v[i];
    return (int32_t)sum;
}
OCTAVO_INLINE B b_load(const uint8_t* p) {
    B r;
    memcpy(r.v, p, sizeof r.v);
    return r;
}
OCTAVO_INLINE void b_store(uint8_t* p, B x) { memcpy(p, x.v, sizeof x.v); }
OCTAVO_INLINE B b_low(B x) {
    for (int i = 0; i < 4 * LANES; i++) x.v[i] &= 15;
    return x;
}
OCTAVO_INLINE B b_high(B x) {
    for (int i = 0; i < 4 * LANES; i++) x.v[i] >>= 4;
    return x;
}
OCTAVO_INLINE I quad(const int8_t* p) {
    int32_t four;
    memcpy(&four, p, 4);
    return i_set(four);
}
template <int BITS>
OCTAVO_INLINE I dot4(I acc, B u, I s) {
    int8_t four[4];
    memcpy(four, s.v, 4);  // the same in every lane
    OCTAVO_EACH for (int j = 0; j < 4; j++) acc.v[i] += (int)u.v[4 * i + j] * four[j];
    return acc;
}
OCTAVO_INLINE F f16_load(const uint16_t* p) {
    F r;
    OCTAVO_EACH r.v[i] = f16_to_float(p[i]);
    return r;
}
OCTAVO_INLINE F bf16_load(const uint16_t* p) {
    F r;
    OCTAVO_EACH r.v[i] = bf16_to_float(p[i]);
    return r;
}
OCTAVO_INLINE void bf16_pairs(const uint16_t* p, F* first, F* second) {
    OCTAVO_EACH {
        first->v[i] = bf16_to_float(p[2 * i]);
        second->v[i] = bf16_to_float(p[2 * i + 1]);
    }
}
OCTAVO_INLINE F i8_load(const int8_t* p) {
    F r;
    OCTAVO_EACH r.v[i] = (float)p[i];
    return r;
}
OCTAVO_INLINE void i8_store(int8_t* p, I x) { OCTAVO_EACH p[i] = (int8_t)x.v[i]; }
// e4m3 bytes divided by 256; see above.
OCTAVO_INLINE F f8_load(const uint8_t* p) {
    F r;
    OCTAVO_EACH r.v[i] = f16_to_float((uint16_t)((p[i] & 0x80) << 8 | (p[i] & 0x7f) << 7));
    return r;
}
#undef OCTAVO_EACH
#endif

// ------------------------------------------------------------------------- built on the above

// Sum of the lanes, in a fixed order: halves are added until one lane is left.
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#if OCTAVO_REGISTERS == 32
OCTAVO_INLINE __m256 f_lower(F x) { return _mm512_castps512_ps256(x); }
OCTAVO_INLINE __m256 f_upper(F x) { return _mm512_extractf32x8_ps(x, 1); }
#else
OCTAVO_INLINE __m256 f_lower(F x) { return x.lo; }
OCTAVO_INLINE __m256 f_upper(F x) { return x.hi; }
#endif

OCTAVO_INLINE float f_sum(F x) {
    __m256 eight = _mm256_add_ps(f_lower(x), f_upper(x));
    __m128 v = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)));
}

OCTAVO_INLINE float f_highest(F x) {
    __m256 eight = _mm256_max_ps(f_lower(x), f_upper(x));
    __m128 v = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    v = _mm_max_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_max_ss(v, _mm_movehdup_ps(v)));
}
#else
OCTAVO_INLINE float f_sum(F x) {
    float v[LANES];
    f_store(v, x);
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++) v[i] += v[i + width];
    return v[0];
}

OCTAVO_INLINE float f_highest(F x) {
    float v[LANES];
    f_store(v, x);
    float most = v[0];
    for (int i = 1; i < LANES; i++) most = v[i] > most ? v[i] : most;
    return most;
}
#endif

// e^x for x <= 88; below -87 exactly 0, -inf included. Relative error below 3e-7.
// x = n·ln 2 + r with |r| <= ln 2 / 2, then a polynomial of degree 6 in r (Taylor coefficients).
OCTAVO_INLINE F f_exp(F x) {
    const F lowest = f_set(-87.0f);
    F inside = f_min(f_max(x, lowest), f_set(88.0f));
    F n = f_round(f_mul(inside, f_set(1.44269504f)));
    F r = f_fma(n, f_set(-0.693145752f), inside);  // ln 2 in two parts
    r = f_fma(n, f_set(-1.42860677e-6f), r);
    F p = f_fma(r, f_set(1.0f / 720), f_set(1.0f / 120));
    p = f_fma(p, r, f_set(1.0f / 24));
    p = f_fma(p, r, f_set(1.0f / 6));
    p = f_fma(p, r, f_set(0.5f));
    p = f_fma(p, r, f_set(1.0f));
    p = f_fma(p, r, f_set(1.0f));
    F value = f_scale2(p, f_to_i(n));
#if OCTAVO_REGISTERS == 32
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, lowest, _CMP_GE_OQ), value);
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
    return {_mm256_and_ps(value.lo, _mm256_cmp_ps(x.lo, lowest.lo, _CMP_GE_OQ)),
            _mm256_and_ps(value.hi, _mm256_cmp_ps(x.hi, lowest.hi, _CMP_GE_OQ))};
#else
    for (int i = 0; i < LANES; i++)
        if (!(x.v[i] >= -87.0f)) value.v[i] = 0.0f;
    return value;
#endif
}

// x / (1 + e^-x)
OCTAVO_INLINE F f_silu(F x) {
    F e = f_exp(f_min(f_sub(f_zero(), x), f_set(88.0f)));
    return f_div(x, f_add(f_set(1.0f), e));
}

// tanh(x) = 1 - 2 / (e^2x + 1)
OCTAVO_INLINE F f_tanh(F x) {
    F limited = f_min(f_max(x, f_set(-20.0f)), f_set(20.0f));
    F e = f_exp(f_add(limited, limited));
    return f_sub(f_set(1.0f), f_div(f_set(2.0f), f_add(e, f_set(1.0f))));
}

// GELU in its tanh form: x/2 · (1 + tanh(sqrt(2/pi)·(x + 0.044715 x^3)))
OCTAVO_INLINE F f_gelu_tanh(F x) {
    F cube = f_mul(f_mul(x, x), x);
    F inner = f_mul(f_set(0.797884561f), f_fma(cube, f_set(0.044715f), x));
    return f_mul(f_mul(f_set(0.5f), x), f_add(f_set(1.0f), f_tanh(inner)));
}
