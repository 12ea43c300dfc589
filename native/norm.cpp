// RMSNorm of whole rows: into quantised activations, plain floats, or onto the residual stream.
#include "op.h"
#include "rows.h"

// out = x / sqrt(mean(x²) + eps) · weight. `k` is a multiple of 32. Exactly one of `quantised.q`,
// `floats` and `residual` is set.
struct NormArguments {
    const float* x;       // [n_tokens, k]; null: the step's `input`
    const float* weight;  // [k]
    Quantised quantised;
    float* floats;    // [rows, k]
    float* residual;  // [rows, k]: += instead of =
    int64_t k;
    float eps;
    int32_t rows;  // RowsOf
};

extern "C" void op_norm(const void* arguments, const Step& step, Worker& worker) {
    const NormArguments& a = *(const NormArguments*)arguments;
    const int64_t n_rows = rows_of(step, a.rows);
    const float* source = a.x != nullptr ? a.x : step.input;
    float* normed = (float*)worker.scratch;
    int64_t begin, end;
    while (worker.take(n_rows, worker.share(n_rows, 4), &begin, &end)) {
        for (int64_t row = begin; row < end; row++) {
            const float* x = source + row * a.k;
            F squares = f_zero();
            for (int64_t i = 0; i < a.k; i += LANES)
                squares = f_fma(f_load(x + i), f_load(x + i), squares);
            F inverse = f_set(1.0f / __builtin_sqrtf(f_sum(squares) / (float)a.k + a.eps));
            float* out = a.floats != nullptr ? a.floats + row * a.k : normed;
            for (int64_t i = 0; i < a.k; i += LANES)
                f_store(out + i, f_mul(f_mul(f_load(x + i), inverse), f_load(a.weight + i)));
            if (a.quantised.q != nullptr)
                for (int64_t g = 0; g < a.k / 32; g++)
                    quantise_group(normed + 32 * g, a.quantised, row, g);
            if (a.residual != nullptr) {
                float* y = a.residual + row * a.k;
                for (int64_t i = 0; i < a.k; i += LANES)
                    f_store(y + i, f_add(f_load(y + i), f_load(normed + i)));
            }
        }
    }
}
