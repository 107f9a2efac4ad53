// Single-pass products of scalar sparse matrices with unknown pattern: one pass finds the columns of a row and their
// values.
//
// A row holds up to CAPACITY columns, unsorted: kernels that read the product as right operand do not need an order.
// Terms are added in the order of the entries of A. Memory traffic: A, a row of B for each entry of A, and the result.

// Rows of columns and values: in CSR, or with the same `capacity` for each row.
struct Rows {
    const u32* offsets;       // null if all rows have the same capacity
    const u32* lengths;
    const u32* columns;
    const double* values;
    u32 capacity;

    __device__ __forceinline__ u32 start(u32 row) const { return offsets ? __ldg(offsets + row) : row * capacity; }
    __device__ __forceinline__ u32 end(u32 row) const { return offsets ? __ldg(offsets + row + 1) : row * capacity + __ldg(lengths + row); }
};

// Rows of the product, each with the same capacity.
struct Kept {
    u32* lengths;
    u32* columns;
    double* values;
    u32* overflow;            // set if a row has too many columns; then the result is invalid
};

constexpr u32 EMPTY = ALL;

__device__ __forceinline__ u32 hashed(u32 column) { return column * 0x9e3779b1u >> 16; }

// Calls add(column, term) for the terms of a row of A B, LANES lanes a row, in the order of the entries of that row of
// A, [entry, last). Between two calls of `__syncwarp`, the lanes of a row add terms of one row of B, in which no column
// occurs twice, so that sums need no atomic additions. All lanes of a warp iterate together: each lane loads what one
// entry of A needs, and the first LANES entries of the next row of B are prefetched one step ahead. LANES is at most
// 32.
template <int LANES, class Add> __device__ __forceinline__ void each_term(
    const Graph& a, const double* a_values, const Rows& b, u32 entry, u32 last, Add add) {
    const u32 lane = threadIdx.x % LANES;
    for (; __any_sync(ALL, entry < last); entry += LANES) {
        u32 start = 0, length = 0;
        double left = 0;
        if (entry + lane < last) {
            const u32 middle = __ldg(a.columns + entry + lane);
            start = b.start(middle);
            length = b.end(middle) - start;
            left = __ldg(a_values + entry + lane);
        }
        u32 from = __shfl_sync(ALL, start, 0, LANES), to = from + __shfl_sync(ALL, length, 0, LANES);
        u32 column = from + lane < to ? __ldg(b.columns + from + lane) : EMPTY;
        double right = from + lane < to ? __ldg(b.values + from + lane) : 0.0;
#pragma unroll 1
        for (int k = 0; k < LANES && __any_sync(ALL, entry + k < last); k++) {
            const u32 own_column = column, rest = from + lane + LANES, stop = to;
            const double factor = __shfl_sync(ALL, left, k, LANES), own = factor * right;
            from = __shfl_sync(ALL, start, k + 1, LANES);
            to = from + (k + 1 < LANES ? __shfl_sync(ALL, length, k + 1, LANES) : 0);
            column = from + lane < to ? __ldg(b.columns + from + lane) : EMPTY;
            right = from + lane < to ? __ldg(b.values + from + lane) : 0.0;
            if (own_column != EMPTY) add(own_column, own);
            for (u32 other = rest; other < stop; other += LANES) add(__ldg(b.columns + other), factor * __ldg(b.values + other));
            __syncwarp();
        }
    }
}

// Computes the rows of A B with up to CAPACITY columns each, accumulated in a hash table of TABLE elements.
template <int LANES, int TABLE, int CAPACITY> __device__ __forceinline__ void rows_in_single_pass(
    const Graph& a, const double* a_values, const Rows& b, const Kept& to) {
    constexpr int GROUPS = THREADS / LANES;
    __shared__ u32 tables[GROUPS][TABLE];
    __shared__ double sums[GROUPS][TABLE];
    const u32 group = threadIdx.x / LANES, lane = threadIdx.x % LANES, row = blockIdx.x * GROUPS + group;
    u32* table = tables[group];
    double* sum = sums[group];
    for (u32 k = lane; k < TABLE; k += LANES) {
        table[k] = EMPTY;
        sum[k] = 0;
    }
    __syncwarp();
    bool full = false;
    const bool inside = row < a.rows;
    each_term<LANES>(a, a_values, b, inside ? a.offsets[row] : 0, inside ? a.offsets[row + 1] : 0, [&](u32 column, double term) {
        u32 at = hashed(column) % TABLE;
        for (u32 tries = 0; tries < TABLE; tries++) {
            // most columns are in the table already: check without an atomic operation
            u32 found = *(volatile u32*)(table + at);
            if (found == EMPTY) found = atomicCAS(table + at, EMPTY, column);
            if (found == EMPTY || found == column) {
                sum[at] += term;
                return;
            }
            at = (at + 1) % TABLE;
        }
        full = true;
    });
    u32 count = 0;
    const u32 before = (1u << threadIdx.x % 32) - 1, group_of_warp = threadIdx.x % 32 / LANES * LANES;
    const u32 all_lanes = (ALL >> (32 - LANES)) << group_of_warp;
#pragma unroll
    for (u32 k = 0; k < TABLE; k += LANES) {
        const u32 column = table[k + lane];
        const u32 there = __ballot_sync(ALL, column != EMPTY) & all_lanes, place = count + __popc(there & before);
        if (inside && column != EMPTY && place < CAPACITY) {
            to.columns[row * CAPACITY + place] = column;
            to.values[row * CAPACITY + place] = sum[k + lane];
        }
        count += __popc(there);
    }
    full |= count > CAPACITY;
    if (inside && lane == 0) to.lengths[row] = count;
    if (full) *to.overflow = 1;
}
#define SINGLE_PASS(CAPACITY, TABLE, LANES)                                                                                     \
    extern "C" __global__ __launch_bounds__(THREADS) void single_pass_##CAPACITY(Graph a, const double* a_values, Rows b, Kept to) { \
        begin();                                                                                                        \
        rows_in_single_pass<LANES, TABLE, CAPACITY>(a, a_values, b, to);                                                           \
    }
SINGLE_PASS(32, 64, 8)
SINGLE_PASS(64, 64, 8)
SINGLE_PASS(128, 128, 16)

// Sorts the rows `kept` by column and makes them contiguous (`columns`, `values`, from `offsets` on); 8 lanes per row.
extern "C" __global__ __launch_bounds__(THREADS) void order_rows(const u32* offsets, u32 rows, Rows kept, u32* columns, double* values) {
    begin();
    const u32 row = (blockIdx.x * blockDim.x + threadIdx.x) / 8;
    if (row >= rows) return;
    const u32 first = offsets[row], count = offsets[row + 1] - first, start = row * kept.capacity;
    for (u32 k = threadIdx.x % 8; k < count; k += 8) {
        const u32 column = __ldg(kept.columns + start + k);
        u32 smaller = 0;
        for (u32 other = 0; other < count; other++) smaller += __ldg(kept.columns + start + other) < column;
        columns[first + smaller] = column;
        values[first + smaller] = __ldg(kept.values + start + k);
    }
}

// Computes the values of C = A B, whose pattern `c` is known, in a hash table of TABLE columns.
template <int LANES, int TABLE> __device__ __forceinline__ void known_rows(
    const Graph& a, const double* a_values, const Rows& b, const Graph& c, double* c_values) {
    constexpr int GROUPS = THREADS / LANES;
    __shared__ u32 tables[GROUPS][TABLE];
    __shared__ double sums[GROUPS][TABLE];
    const u32 group = threadIdx.x / LANES, lane = threadIdx.x % LANES, row = blockIdx.x * GROUPS + group;
    u32* table = tables[group];
    double* sum = sums[group];
    const bool inside = row < a.rows;
    const u32 first = inside ? c.offsets[row] : 0, end = inside ? c.offsets[row + 1] : 0;
    for (u32 k = lane; k < TABLE; k += LANES) {
        table[k] = EMPTY;
        sum[k] = 0;
    }
    __syncwarp();
    for (u32 k = first + lane; k < end; k += LANES) {
        const u32 column = c.columns[k];
        u32 at = hashed(column) % TABLE;
        while (atomicCAS(table + at, EMPTY, column) != EMPTY) at = (at + 1) % TABLE;
    }
    __syncwarp();
    auto place = [&](u32 column) {
        u32 at = hashed(column) % TABLE;
        while (table[at] != column) at = (at + 1) % TABLE;
        return at;
    };
    // rows that were skipped have no columns
    const bool some = first < end;
    each_term<LANES>(a, a_values, b, some ? a.offsets[row] : 0, some ? a.offsets[row + 1] : 0,
                     [&](u32 column, double term) { sum[place(column)] += term; });
    __syncwarp();
    for (u32 k = first + lane; k < end; k += LANES) c_values[k] = sum[place(c.columns[k])];
}
#define KNOWN(TABLE, LANES)                                                                                             \
    extern "C" __global__ __launch_bounds__(THREADS) void known_##TABLE(Graph a, const double* a_values, Rows b, Graph c, double* c_values) { \
        begin();                                                                                                        \
        known_rows<LANES, TABLE>(a, a_values, b, c, c_values);                                                          \
    }
KNOWN(64, 8)
KNOWN(128, 16)
KNOWN(512, 32)
