// One token for each row of logits, as octavo.compute.sampler says: temperature, then top_k, then
// top_p of what top_k left, then min_p; of equal logits the lower id. A row is one item and is
// computed by itself.
#include "op.h"
#include "philox.h"
#include "simd.h"

#include <algorithm>

// Answers that are no token.
enum Unchosen : int32_t { NOT_FINITE = -1, NOTHING_LEFT = -2, TOO_MANY = -3 };

struct Choice {
    uint64_t seed;
    uint64_t position;
    double top_p;
    double min_p;
    float temperature;  // 0: the likeliest
    int32_t top_k;      // 0: all
    uint32_t choice;
    int32_t shaped;  // the row may hold -infinity: tokens that are forbidden
};

struct ChooseArguments {
    const Choice* choices;  // [n_wanted]
    int32_t* tokens;        // [n_wanted]: ids, or an Unchosen
    int64_t vocab;
};

namespace {

constexpr int64_t PART = 256;  // logits looked at together
constexpr int64_t MOST_PARTS = 4096;
constexpr int64_t MOST_CANDIDATES = 8192;
constexpr float WEIGHTLESS = 128.0f;  // so far below the highest, weights are 0
const float LOWEST = -__builtin_inff();

struct Candidate {
    float logit;
    int32_t id;
};

struct Scratch {
    float highest[MOST_PARTS];
    double sums[MOST_PARTS];
    Candidate candidates[MOST_CANDIDATES];
    double weights[MOST_CANDIDATES];
};
static_assert(sizeof(Scratch) <= SCRATCH_BYTES, "one row's numbers fit a worker's scratch");

// Sixteen numbers of x [n] from i on; past the end -infinity.
OCTAVO_INLINE F piece(const float* x, int64_t i, int64_t n) {
    if (i + LANES <= n) return f_load(x + i);
    float last[LANES];
    for (int64_t j = 0; j < LANES; j++) last[j] = i + j < n ? x[i + j] : LOWEST;
    return f_load(last);
}

class Row {
  public:
    Row(const float* logits, int64_t vocab, const Choice& choice, Scratch& scratch)
        : x(logits), n(vocab), parts(ceil_div(vocab, PART)), choice(choice), scratch(scratch) {}

    int32_t token() {
        if (parts > MOST_PARTS) return TOO_MANY;
        if (!look()) return NOT_FINITE;
        if (highest == LOWEST) return NOTHING_LEFT;
        if (choice.temperature <= 0.0f) return first_highest();
        temperature = std::max(choice.temperature, 1.17549435e-38f);  // 0 / 0 would be NaN
        return choice.top_k > 0 || choice.top_p < 1.0 ? by_rank() : by_id();
    }

  private:
    const float* x;
    int64_t n;
    int64_t parts;
    const Choice& choice;
    Scratch& scratch;
    float highest = LOWEST;
    float temperature = 1.0f;

    int64_t end_of(int64_t part) const { return std::min(n, (part + 1) * PART); }

    // The highest logit of each part and of all; false if one is not a finite number.
    bool look() {
        F broken = f_zero();
        for (int64_t part = 0; part < parts; part++) {
            const int64_t end = end_of(part);
            F most = f_set(LOWEST);
            int64_t i = part * PART;
            for (; i + LANES <= end; i += LANES) {
                F value = f_load(x + i);
                most = f_max(value, most);
                broken = f_add(broken, f_sub(value, value));
            }
            float top = f_highest(most);
            for (; i < end; i++) {
                top = x[i] > top ? x[i] : top;
                broken = f_add(broken, f_set(x[i] - x[i]));
            }
            scratch.highest[part] = top;
            highest = top > highest ? top : highest;
        }
        const float sum = f_sum(broken);
        return choice.shaped || sum == sum;
    }

    int32_t first_highest() const {
        for (int64_t part = 0; part < parts; part++) {
            if (scratch.highest[part] != highest) continue;
            for (int64_t i = part * PART; i < end_of(part); i++)
                if (x[i] == highest) return (int32_t)i;
        }
        return NOT_FINITE;
    }

    F weight_of(F logits) const {
        return f_exp(f_div(f_sub(logits, f_set(highest)), f_set(temperature)));
    }

    // Weights of a part to `to` [PART], those below `least` as 0; their sum.
    float weigh(int64_t part, double least, float* to) const {
        F total = f_zero();
        const int64_t begin = part * PART, end = end_of(part);
        for (int64_t i = begin; i < end; i += LANES) {
            float* at = to + (i - begin);
            f_store(at, weight_of(piece(x, i, end)));
            if (least > 0.0)
                for (int j = 0; j < LANES; j++) at[j] = (double)at[j] < least ? 0.0f : at[j];
            total = f_add(total, f_load(at));
        }
        return f_sum(total);
    }

    // Fills the cumulative sums of the parts; the last is that of all.
    double weigh_parts(double least) {
        float weights[PART];
        double total = 0.0;
        for (int64_t part = 0; part < parts; part++)
            scratch.sums[part] = total += weigh(part, least, weights);
        return total;
    }

    double uniform() const { return uniform_of(choice.seed, choice.choice, choice.position); }

    // Without a limit on ranks no order but that of the ids is needed: the first token at which the
    // cumulative weight exceeds the target, else the last that weighs anything.
    int32_t by_id() {
        const double target = weigh_parts(choice.min_p) * uniform();
        int64_t part = 0;
        double before = 0.0;
        for (int64_t i = 0; i < parts; i++) {
            if (scratch.sums[i] > before) part = i;
            if (scratch.sums[i] > target) break;
            before = scratch.sums[i];
        }
        float weights[PART];
        weigh(part, choice.min_p, weights);
        double sum = part == 0 ? 0.0 : scratch.sums[part - 1];
        int64_t found = part * PART;
        for (int64_t i = part * PART; i < end_of(part) && !(sum > target); i++) {
            if (weights[i - part * PART] > 0.0f) found = i;
            sum += weights[i - part * PART];
        }
        return (int32_t)found;
    }

    // Tokens whose logits are at least `threshold`, in order of ids; -1 if they are too many.
    int64_t collect(float threshold) {
        int64_t count = 0;
        for (int64_t part = 0; part < parts; part++) {
            if (!(scratch.highest[part] >= threshold)) continue;
            for (int64_t i = part * PART; i < end_of(part); i++) {
                if (!(x[i] >= threshold)) continue;
                if (count == MOST_CANDIDATES) return -1;
                scratch.candidates[count++] = {x[i], (int32_t)i};
            }
        }
        return count;
    }

    // Weights of the first `count` candidates; their sum.
    double weigh_candidates(int64_t count) {
        double total = 0.0;
        for (int64_t i = 0; i < count; i += LANES) {
            float weights[LANES];
            for (int64_t j = 0; j < LANES; j++)
                weights[j] = i + j < count ? scratch.candidates[i + j].logit : LOWEST;
            f_store(weights, weight_of(f_load(weights)));
            for (int64_t j = 0; j < LANES && i + j < count; j++)
                total += scratch.weights[i + j] = weights[j];
        }
        return total;
    }

    // The likeliest tokens first, as many as top_k or top_p can keep.
    int32_t by_rank() {
        const bool limited = choice.top_k > 0 && choice.top_k < n;
        const double mass = limited ? 0.0 : weigh_parts(0.0);
        // Weights fall by e with each temperature below the highest logit: go deeper until enough
        // are found. What lies too deep weighs nothing and is never chosen.
        int64_t count = 0;
        for (float depth = 2.0f;; depth *= 2.0f) {
            count = collect(highest - depth * temperature);
            if (count < 0) return TOO_MANY;
            if (depth >= WEIGHTLESS || (limited && count >= choice.top_k)) break;
            if (!limited && weigh_candidates(count) >= choice.top_p * mass) break;
        }
        std::sort(scratch.candidates, scratch.candidates + count,
                  [](const Candidate& a, const Candidate& b) {
                      return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
                  });
        if (limited && count > choice.top_k) count = choice.top_k;
        const double kept = weigh_candidates(count);
        return pick(count, choice.top_p * (limited ? kept : mass));
    }

    // One of the first `count` candidates: kept are those before which the weights have not reached
    // `wanted`, the first one always, without those below min_p.
    int32_t pick(int64_t count, double wanted) {
        double reached = 0.0, total = 0.0;
        int64_t end = 0;
        for (; end < count && (end == 0 || reached < wanted); end++) {
            reached += scratch.weights[end];
            if (scratch.weights[end] < choice.min_p) scratch.weights[end] = 0.0;
            total += scratch.weights[end];
        }
        const double target = uniform() * total;
        double sum = 0.0;
        int64_t found = 0;
        for (int64_t i = 0; i < end && !(sum > target); i++) {
            if (scratch.weights[i] > 0.0) found = i;
            sum += scratch.weights[i];
        }
        return scratch.candidates[found].id;
    }
};

}  // namespace

extern "C" void op_choose(const void* arguments, const Step& step, Worker& worker) {
    const ChooseArguments& a = *(const ChooseArguments*)arguments;
    Scratch& scratch = *(Scratch*)worker.scratch;
    int64_t begin, end;
    while (worker.take(step.n_wanted, 1, &begin, &end))
        a.tokens[begin] =
            Row(step.input + begin * a.vocab, a.vocab, a.choices[begin], scratch).token();
}
