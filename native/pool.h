// Worker threads that run a list of ops together, each op once the one before is finished.
#pragma once

#include "op.h"

struct Pool;

Pool* pool_create(int n_workers);  // null if a thread cannot be made
void pool_destroy(Pool* pool);

// Runs ops[0..n) on all workers; the caller is worker 0. One caller at a time.
void pool_run(Pool* pool, const Op* ops, int64_t n_ops, const Step& step);
