// Philox4x32-10: a random number as a function of a key and a counter. The same numbers as
// octavo.compute.philox, whose source is named there.
#pragma once

#include <stdint.h>

// One number in [0, 1) with 53 random bits for each (seed, choice, position).
static inline double uniform_of(uint64_t seed, uint32_t choice, uint64_t position) {
    uint32_t c[4] = {(uint32_t)position, (uint32_t)(position >> 32), choice, 0};
    uint32_t k[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (int round = 0; round < 10; round++) {
        const uint64_t first = (uint64_t)c[0] * 0xD2511F53u, second = (uint64_t)c[2] * 0xCD9E8D57u;
        const uint32_t next[4] = {(uint32_t)(second >> 32) ^ c[1] ^ k[0], (uint32_t)second,
                                  (uint32_t)(first >> 32) ^ c[3] ^ k[1], (uint32_t)first};
        for (int i = 0; i < 4; i++) c[i] = next[i];
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    const uint64_t bits = (uint64_t)c[0] << 21 | c[1] >> 11;
    return (double)bits * 0x1p-53;
}
