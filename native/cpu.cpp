// Which instruction sets this machine and its system allow. Built for the plainest machine.
#include <stdint.h>

#if defined(__x86_64__)
#include <cpuid.h>

namespace {

uint64_t enabled_state() {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

bool all(uint32_t word, uint32_t bits) { return (word & bits) == bits; }

}  // namespace
#endif

// 0: scalar, 1: AVX2 with FMA and F16C, 2: AVX-512 F, BW, DQ, VL with VNNI.
extern "C" int32_t octavo_best_isa() {
#if defined(__x86_64__)
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
    const uint32_t fma = 1u << 12, os_saves = 1u << 27, avx = 1u << 28, f16c = 1u << 29;
    if (!all(c, fma | os_saves | avx | f16c)) return 0;
    const uint64_t vectors = 0x6, wide_vectors = 0xe6, state = enabled_state();
    if ((state & vectors) != vectors) return 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    if (!all(b, 1u << 5 | 1u << 8)) return 0;  // AVX2, BMI2
    const uint32_t f = 1u << 16, dq = 1u << 17, bw = 1u << 30, vl = 1u << 31, vnni = 1u << 11;
    if (all(b, f | dq | bw | vl) && all(c, vnni) && (state & wide_vectors) == wide_vectors)
        return 2;
    return 1;
#else
    return 0;
#endif
}
