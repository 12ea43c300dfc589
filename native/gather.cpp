// The rows that are wanted, out of all tokens': the end of a program of layers.
#include "op.h"

#include <string.h>

struct GatherArguments {
    const float* x;  // [n_tokens, k]
    int64_t k;
};

extern "C" void op_gather(const void* arguments, const Step& step, Worker& worker) {
    const GatherArguments& a = *(const GatherArguments*)arguments;
    int64_t begin, end;
    while (worker.take(step.n_wanted, worker.share(step.n_wanted, 1), &begin, &end))
        for (int64_t i = begin; i < end; i++)
            memcpy(step.out + i * a.k, a.x + step.wanted[i] * a.k, (size_t)a.k * sizeof(float));
}
