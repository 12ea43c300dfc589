// What this machine can do at most, as these builds see it: how fast memory is read, and how fast
// numbers are multiplied that lie in registers and the first-level cache. For measuring only.
#include "op.h"
#include "simd.h"

struct CeilingArguments {
    const uint8_t* data;  // [n] to be read; of the others at least BYTES_IN_CACHE
    float* out;           // one per item, so that no work is for nothing
    int64_t n;            // bytes, a multiple of READ_BYTES; or items
};

namespace {

constexpr int64_t READ_BYTES = 16384;
constexpr int64_t BYTES_IN_CACHE = 4096;
constexpr int64_t ROUNDS = 256;
constexpr int CHAINS = OCTAVO_REGISTERS == 32 ? 16 : 6;  // sums that do not wait for each other

template <int BITS>
void byte_peak(const void* arguments, Worker& worker) {
    const CeilingArguments& a = *(const CeilingArguments*)arguments;
    int64_t begin, end;
    while (worker.take(a.n, 1, &begin, &end)) {
        I sums[CHAINS];
        for (int c = 0; c < CHAINS; c++) sums[c] = i_set(c);
        for (int64_t i = 0; i < ROUNDS; i++) {
            B bytes = b_low(b_load(a.data + 64 * (i % 32)));
            const int8_t* q = (const int8_t*)a.data + 2048 + 64 * (i % 16);
            for (int c = 0; c < CHAINS; c++) sums[c] = dot4<BITS>(sums[c], bytes, quad(q + 4 * c));
        }
        for (int c = 1; c < CHAINS; c++) sums[0] = i_add(sums[0], sums[c]);
        a.out[begin] = (float)i_sum(sums[0]);
    }
}

}  // namespace

extern "C" {

void op_ceiling_read(const void* arguments, const Step&, Worker& worker) {
    const CeilingArguments& a = *(const CeilingArguments*)arguments;
    const int64_t total = a.n / READ_BYTES;
    int64_t begin, end;
    while (worker.take(total, worker.share(total, 8), &begin, &end)) {
        F sums[4] = {f_zero(), f_zero(), f_zero(), f_zero()};
        const float* p = (const float*)(a.data + begin * READ_BYTES);
        const float* stop = (const float*)(a.data + end * READ_BYTES);
        for (; p < stop; p += 4 * LANES)
            for (int c = 0; c < 4; c++) sums[c] = f_add(sums[c], f_load(p + c * LANES));
        a.out[begin] = f_sum(f_add(f_add(sums[0], sums[1]), f_add(sums[2], sums[3])));
    }
}

// ROUNDS · CHAINS vectors of sixteen multiply-adds per item.
void op_ceiling_floats(const void* arguments, const Step&, Worker& worker) {
    const CeilingArguments& a = *(const CeilingArguments*)arguments;
    const F factor = f_load((const float*)a.data), term = f_load((const float*)a.data + LANES);
    int64_t begin, end;
    while (worker.take(a.n, 1, &begin, &end)) {
        F sums[CHAINS];
        for (int c = 0; c < CHAINS; c++) sums[c] = f_set((float)c);
        for (int64_t i = 0; i < ROUNDS; i++)
            for (int c = 0; c < CHAINS; c++) sums[c] = f_fma(sums[c], factor, term);
        for (int c = 1; c < CHAINS; c++) sums[0] = f_add(sums[0], sums[c]);
        a.out[begin] = f_sum(sums[0]);
    }
}

// ROUNDS · CHAINS vectors of 64 multiply-adds per item; bytes below 16 take a shorter way on AVX2.
void op_ceiling_bytes4(const void* arguments, const Step&, Worker& worker) {
    byte_peak<4>(arguments, worker);
}

void op_ceiling_bytes8(const void* arguments, const Step&, Worker& worker) {
    byte_peak<8>(arguments, worker);
}

int64_t octavo_ceiling_vectors() { return ROUNDS * CHAINS; }
}
