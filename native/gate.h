// What the gated half of an MLP is given, and what becomes of its sums.
#pragma once

#include "op.h"
#include "rows.h"

enum Activation : int32_t { SILU = 0, GELU_TANH = 1 };

// `weights` holds G and U in turns of two panels: G 0, G 1, U 0, U 1, G 2, … so that 32 columns of
// the result, one group, come from four neighbouring panels. weights.n is twice the result's width.
// Exactly one of `out.q` and `out_floats` is set.
struct GateArguments {
    Weights weights;
    Quantised x;          // for weights of 4 and 8 bits
    const float* floats;  // [n_tokens, k], for weights of 16
    Quantised out;        // k = weights.n / 2
    float* out_floats;    // [n_tokens, weights.n / 2]
    const float* bias;    // [weights.n] in the order of the panels, or null
    int32_t activation;
    int32_t padding;
};

constexpr int GATE_PANELS = 4;

static F activate(int32_t kind, F x) { return kind == SILU ? f_silu(x) : f_gelu_tanh(x); }

// One row's four sums to one group of the result.
static void finish(const GateArguments& a, int64_t row, int64_t group, const F* sums,
                   int stride) {
    F part[GATE_PANELS];
    for (int p = 0; p < GATE_PANELS; p++) {
        part[p] = sums[p * stride];
        if (a.bias != nullptr)
            part[p] = f_add(part[p], f_load(a.bias + (group * GATE_PANELS + p) * LANES));
    }
    float values[2 * LANES];
    float* to = values;
    if (a.out_floats != nullptr) to = a.out_floats + row * (a.weights.n / 2) + 2 * LANES * group;
    f_store(to, f_mul(activate(a.activation, part[0]), part[2]));
    f_store(to + LANES, f_mul(activate(a.activation, part[1]), part[3]));
    if (a.out_floats == nullptr) quantise_group(values, a.out, row, group);
}
