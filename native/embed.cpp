// Rows of a packed embedding matrix as floats.
#include "op.h"
#include "rows.h"

struct EmbedArguments {
    Weights weights;
    float* x;  // [n_tokens, k]
    float scale;
    int32_t padding;
};

namespace {

float number(const Weights& w, const uint8_t* p, int64_t column) {
    return w.wide ? ((const float*)p)[column] : f16_to_float(((const uint16_t*)p)[column]);
}

// Column `column` of a packed panel: one output row of the matrix.
void row_of(const Weights& w, const uint8_t* panel, int64_t column, float* x) {
    if (w.bits == 16 && w.half) {
        const uint16_t* values = (const uint16_t*)panel;
        for (int64_t i = 0; i < w.k; i++) x[i] = f16_to_float(values[i * LANES + column]);
        return;
    }
    if (w.bits == 16) {
        const uint16_t* pairs = (const uint16_t*)panel;
        for (int64_t i = 0; i < w.k; i++)
            x[i] = bf16_to_float(pairs[(i / 2 * LANES + column) * 2 + i % 2]);
        return;
    }
    const int64_t value_bytes = LANES * w.group * w.bits / 8, number_bytes = w.wide ? 64 : 32;
    for (int64_t g = 0; g < w.k / w.group; g++, panel += group_bytes(w), x += w.group) {
        float scale = number(w, panel + value_bytes, column);
        float minimum = w.minima ? number(w, panel + value_bytes + number_bytes, column) : 0.0f;
        for (int32_t i = 0; i < w.group; i++) {
            int32_t half = w.group / 2, place = w.bits == 4 ? i % half : i;
            int32_t byte = panel[(place / 4 * LANES + column) * 4 + place % 4];
            int32_t stored = w.bits == 8 ? byte : i < half ? byte & 15 : byte >> 4;
            x[i] = scale * (float)(stored - w.zero) + minimum;
        }
    }
}

}  // namespace

extern "C" void op_embed(const void* arguments, const Step& step, Worker& worker) {
    const EmbedArguments& a = *(const EmbedArguments*)arguments;
    int64_t begin, end;
    while (worker.take(step.n_tokens, worker.share(step.n_tokens, 4), &begin, &end)) {
        for (int64_t i = begin; i < end; i++) {
            int64_t token = step.tokens[i];
            float* x = a.x + i * a.weights.k;
            row_of(a.weights, a.weights.data + token / LANES * panel_bytes(a.weights),
                   token % LANES, x);
            if (a.scale != 1.0f)
                for (int64_t j = 0; j < a.weights.k; j++) x[j] *= a.scale;
        }
    }
}
