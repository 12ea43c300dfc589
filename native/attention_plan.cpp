// A step's attention cut into items, once for all layers of a group.
#include "attention.h"

namespace {

struct Planner {
    const Step& step;
    const AttentionPlanArguments& a;
    AttentionPlan& plan;
    const GroupRows& group;
    int64_t n_members = 0;
    int64_t n_partials = 0;

    int64_t row_tokens(int64_t row) const {
        return step.row_starts[row + 1] - step.row_starts[row];
    }

    void add(int64_t row, int64_t first, int64_t count, int64_t chunk) {
        plan.items[plan.n_items++] = {(int32_t)row, (int32_t)first, (int32_t)count, (int32_t)chunk};
    }

    // The last tokens read the most: they come first.
    void walk(int64_t row) {
        const int64_t each =
            a.heads_per_kv < TILE_ROWS_MOST ? TILE_ROWS_MOST / a.heads_per_kv : 1;
        const int64_t n = row_tokens(row);
        for (int64_t first = (n - 1) / each * each; first >= 0; first -= each)
            add(row, first, n - first < each ? n - first : each, 0);
    }

    // Chunks of a row of one token, and room for their partials if there are several and any left.
    void place_single(int64_t row) {
        const int64_t position = step.kv_tokens[row] - 1;
        const int64_t first = first_read(position, a.window) / CHUNK, last = position / CHUNK;
        plan.first_partial[row] = -1;
        plan.first_chunk[row] = (int32_t)first;
        plan.last_chunk[row] = (int32_t)last;
        const int64_t chunks = last - first + 1;
        if (chunks == 1 || n_partials + chunks > plan.partial_capacity) return;
        plan.first_partial[row] = (int32_t)n_partials;
        n_partials += chunks;
        plan.merged[plan.n_merged++] = (int32_t)row;
    }

    void add_chunk(int64_t chunk, const int32_t* rows, int64_t count) {
        for (int64_t i = 0; i < count; i += TOGETHER_MOST) {
            const int64_t together = count - i < TOGETHER_MOST ? count - i : TOGETHER_MOST;
            add(rows[i], n_members, -together, chunk);
            for (int64_t j = 0; j < together; j++) plan.members[n_members++] = rows[i + j];
        }
    }

    // Whether `row` reads every position of the chunk, so that it may read it with others.
    bool reads_whole(int64_t row, int64_t chunk) const {
        const int64_t position = step.kv_tokens[row] - 1;
        const int64_t first = chunk * CHUNK, last = first + CHUNK - 1;
        return first_read(position, a.window) <= first && position >= last;
    }

    // Blocks that hold some of the chunk; a block may be longer than it.
    const int32_t* blocks_of(int64_t row, int64_t chunk) const {
        return group.block_tables + row * group.table_stride + chunk * CHUNK / a.block_tokens;
    }

    bool same_blocks(int64_t one, int64_t other, int64_t chunk) const {
        const int64_t first = chunk * CHUNK, last = first + CHUNK - 1;
        const int32_t *x = blocks_of(one, chunk), *y = blocks_of(other, chunk);
        // From the last one, which tells most.
        for (int64_t i = last / a.block_tokens - first / a.block_tokens; i >= 0; i--)
            if (x[i] != y[i]) return false;
        return true;
    }

    void add_alone(int64_t row, int64_t from) {
        for (int64_t chunk = from; chunk <= plan.last_chunk[row]; chunk++) {
            const int32_t one = (int32_t)row;
            add_chunk(chunk, &one, 1);
        }
    }

    // Moves to the front of order[begin, end) the rows that read `chunk` as its first does.
    int64_t gather(int64_t begin, int64_t end, int64_t chunk) {
        const int32_t first = plan.order[begin];
        int64_t found = begin + 1;
        if (!reads_whole(first, chunk)) return found;
        for (int64_t i = begin + 1; i < end; i++) {
            const int32_t row = plan.order[i];
            if (!reads_whole(row, chunk) || !same_blocks(first, row, chunk)) continue;
            plan.order[i] = plan.order[found];
            plan.order[found++] = row;
        }
        return found;
    }

    // Rows together from `chunk` on are ranges of `order`; `ends` holds each range's end at its
    // beginning. One chunk further each range falls into those that still agree; a row left alone
    // takes its remaining chunks alone, and is looked at no more.
    void share(int64_t chunk, int64_t n) {
        while (n > 0) {
            int64_t kept = 0;
            for (int64_t begin = 0; begin < n;) {
                const int64_t end = plan.ends[begin];
                for (int64_t at = begin; at < end;) {
                    const int64_t stop = gather(at, end, chunk);
                    if (stop - at == 1) {
                        add_alone(plan.order[at], chunk);
                    } else {
                        add_chunk(chunk, plan.order + at, stop - at);
                        for (int64_t i = at; i < stop; i++)
                            plan.order[kept + i - at] = plan.order[i];
                        plan.ends[kept] = (int32_t)(kept + stop - at);
                        kept += stop - at;
                    }
                    at = stop;
                }
                begin = end;
            }
            n = kept;
            chunk++;
        }
    }

    void run() {
        plan.n_items = plan.n_merged = 0;
        for (int64_t row = 0; row < step.n_rows; row++) {
            plan.first_partial[row] = -1;
            if (row_tokens(row) > 1) walk(row);
            else place_single(row);
        }
        int64_t shared = 0;
        for (int64_t row = 0; row < step.n_rows; row++) {
            if (row_tokens(row) > 1) continue;
            if (plan.first_partial[row] < 0) add(row, 0, 1, 0);
            else if (a.share && plan.first_chunk[row] == 0) plan.order[shared++] = (int32_t)row;
            else add_alone(row, plan.first_chunk[row]);
        }
        if (shared == 0) return;
        plan.ends[0] = (int32_t)shared;
        share(0, shared);
    }
};

}  // namespace

extern "C" void op_attention_plan(const void* arguments, const Step& step, Worker& worker) {
    int64_t begin, end;
    if (!worker.take(1, 1, &begin, &end)) return;
    const AttentionPlanArguments& a = *(const AttentionPlanArguments*)arguments;
    Planner{step, a, *a.plan, step.groups[a.group]}.run();
}
