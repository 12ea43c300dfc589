// What the Python side calls besides the ops' own addresses.
#include "pool.h"
#include "simd.h"

extern "C" {

const char* octavo_isa() { return OCTAVO_ISA_NAME; }

void* octavo_pool_create(int32_t n_workers) { return pool_create(n_workers); }

void octavo_pool_destroy(void* pool) { pool_destroy(static_cast<Pool*>(pool)); }

void octavo_run(void* pool, const Op* ops, int64_t n_ops, const Step* step) {
    pool_run(static_cast<Pool*>(pool), ops, n_ops, *step);
}
}
