// What a linear product is given, and where its sums go.
#pragma once

#include "op.h"
#include "rows.h"

struct LinearArguments {
    Weights weights;
    Quantised x;          // for weights of 4 and 8 bits
    const float* floats;  // [rows, k], for weights of 16
    const float* bias;    // [n] or null
    float* y;             // [rows, y_stride]; null: the step's `out`
    int64_t y_stride;
    int32_t add;   // y += instead of y =
    int32_t rows;  // RowsOf
};

static void put(const LinearArguments& a, float* y, int64_t column, F sum) {
    int64_t width = a.weights.n - column;
    if (width >= LANES) {
        if (a.bias != nullptr) sum = f_add(sum, f_load(a.bias + column));
        f_store(y + column, a.add ? f_add(f_load(y + column), sum) : sum);
        return;
    }
    float lanes[LANES];
    f_store(lanes, sum);
    for (int64_t i = 0; i < width; i++) {
        float value = a.bias != nullptr ? lanes[i] + a.bias[column + i] : lanes[i];
        y[column + i] = a.add ? y[column + i] + value : value;
    }
}

struct Output {
    const LinearArguments& a;
    float* y;
    void operator()(int64_t row, int64_t panel, F sum) const {
        put(a, y + row * a.y_stride, panel * LANES, sum);
    }
};
