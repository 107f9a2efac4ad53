// Products of sparse matrices whose entries are dense blocks, and their transposes.
//
//     row i of C:  for each entry k of row i of A, for each entry j of row k of B:  C_ij ← C_ij + A_ik B_kj
//
// Some lanes share a row. Where blocks stand is found in a table in shared memory, once to count and once to fill; then columns
// are put in order by how many of a row are smaller. Where blocks are numbers, what fills adds these, too. Numbers are added entry
// by entry of A, always in one order.

constexpr u32 EMPTY = ALL;

// Waits for the lanes of a row, or more.
template <int LANES> __device__ __forceinline__ void wait() {
    if constexpr (LANES > 32) {
        __syncthreads();
    } else {
        __syncwarp();
    }
}

// Counts the columns of rows, or fills them in. Rows that `skip` has nothing in are empty. Marks that a row has too many; nothing
// is counted once one has.
template <int LANES, int TABLE, bool FILL> __device__ __forceinline__ void rows_of_product(
    const Graph& a, const Graph& b, const u32* skip, const u32* offsets, u32* to, u32* overflow) {
    constexpr int GROUPS = THREADS / LANES;
    __shared__ u32 tables[GROUPS][TABLE], lists[GROUPS][FILL ? TABLE : 1], counts[GROUPS];
    const u32 group = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    u32 *table = tables[group], *list = lists[group];
    if (__syncthreads_or(*(volatile u32*)overflow)) return;
    for (u32 base = blockIdx.x * GROUPS; base < a.rows; base += gridDim.x * GROUPS) {
        const u32 row = base + group;
        for (u32 k = lane; k < TABLE; k += LANES) table[k] = EMPTY;
        if (lane == 0) counts[group] = 0;
        wait<LANES>();
        if (row < a.rows && !(skip && skip[row] == skip[row + 1])) {
            for (u32 entry = a.offsets[row] + lane; entry < a.offsets[row + 1]; entry += LANES) {
                const u32 middle = a.columns[entry], end = b.offsets[middle + 1];
                for (u32 other = b.offsets[middle]; other < end; other++) {
                    const u32 column = b.columns[other];
                    u32 at = column * 0x9e3779b1u >> 16, tries = 0;
                    for (; tries < TABLE; tries++) {
                        at %= TABLE;
                        // most are there already, which takes no atomic operation to see
                        u32 found = *(volatile u32*)(table + at);
                        if (found == column) break;
                        if (found == EMPTY) found = atomicCAS(table + at, EMPTY, column);
                        if (found == EMPTY) {
                            const u32 place = atomicAdd(counts + group, 1u);
                            if (FILL) list[place] = column;
                            break;
                        }
                        if (found == column) break;
                        at++;
                    }
                    if (tries == TABLE) {
                        *overflow = 1;
                        break;
                    }
                }
            }
        }
        wait<LANES>();
        if (row < a.rows) {
            const u32 count = counts[group];
            if (!FILL && lane == 0) to[row] = count;
            if (FILL) {
                const u32 first = offsets[row];
                for (u32 k = lane; k < count; k += LANES) {
                    const u32 column = list[k];
                    u32 smaller = 0;
                    for (u32 other = 0; other < count; other++) smaller += list[other] < column;
                    to[first + smaller] = column;
                }
            }
        }
        wait<LANES>();
    }
}
#define PATTERN(NAME, LANES, TABLE)                                                                                     \
    extern "C" __global__ __launch_bounds__(THREADS) void count_##NAME(Graph a, Graph b, const u32* skip, u32* counts, u32* overflow) { \
        begin();                                                                                                        \
        rows_of_product<LANES, TABLE, false>(a, b, skip, 0, counts, overflow);                                          \
    }                                                                                                                   \
    extern "C" __global__ __launch_bounds__(THREADS) void fill_##NAME(Graph a, Graph b, const u32* skip, const u32* offsets, u32* columns, u32* overflow) { \
        begin();                                                                                                        \
        rows_of_product<LANES, TABLE, true>(a, b, skip, offsets, columns, overflow);                                    \
    }
PATTERN(32, 8, 32)
PATTERN(64, 8, 64)
PATTERN(128, 32, 128)
PATTERN(512, 32, 512)
PATTERN(4096, THREADS, 4096)

// A row of C where blocks are numbers: summed in a table in shared memory, where no two lanes have one column at a time.
template <int LANES, int TABLE> struct SummedRow {
    // no room for them: the table is searched through
    static constexpr bool LISTED = TABLE < 512;
    u32 *table, *list, *count;
    double* sums;

    __device__ __forceinline__ void clear(u32 lane) const {
        for (u32 k = lane; k < TABLE; k += LANES) table[k] = EMPTY;
        if (LISTED && lane == 0) *count = 0;
    }
    __device__ __forceinline__ void add(u32 column, double v) const {
        u32 at = (column * 0x9e3779b1u >> 16) % TABLE;
        while (true) {
            u32 found = *(volatile u32*)(table + at);
            if (found == EMPTY) {
                found = atomicCAS(table + at, EMPTY, column);
                if (found == EMPTY) {
                    sums[at] = v;
                    if (LISTED) list[atomicAdd(count, 1u)] = column;
                    return;
                }
            }
            if (found == column) break;
            at = (at + 1) % TABLE;
        }
        sums[at] += v;
    }
    __device__ __forceinline__ double sum(u32 column) const {
        u32 at = (column * 0x9e3779b1u >> 16) % TABLE;
        while (table[at] != column) at = (at + 1) % TABLE;
        return sums[at];
    }
    // Columns in order, and their sums, from an entry on.
    __device__ __forceinline__ void write(u32 lane, u32 first, u32* columns, double* values) const {
        const u32 *all = LISTED ? list : table, end = LISTED ? *count : TABLE;
        for (u32 k = lane; k < end; k += LANES) {
            const u32 column = all[k];
            if (column == EMPTY) continue;
            u32 place = first;
            for (u32 other = 0; other < end; other++) place += all[other] < column;
            columns[place] = column;
            values[place] = LISTED ? sum(column) : sums[k];
        }
    }
};

// A B where blocks are numbers: columns and numbers of rows that begin where C says. Entries of A are taken one by one, in order, so
// that sums are rounded the same way each time.
template <int LANES, int TABLE> __device__ __forceinline__ void sums_of_product(
    const Graph& a, const double* a_values, const Graph& b, const double* b_values, const Graph& c, u32* columns, double* values) {
    using Sums = SummedRow<LANES, TABLE>;
    constexpr int GROUPS = THREADS / LANES;
    __shared__ u32 tables[GROUPS][TABLE], lists[Sums::LISTED ? GROUPS : 1][Sums::LISTED ? TABLE : 1], counts[Sums::LISTED ? GROUPS : 1];
    __shared__ double sums[GROUPS][TABLE];
    const u32 group = threadIdx.x / LANES, lane = threadIdx.x % LANES, of = Sums::LISTED ? group : 0;
    const Sums row_sums = {tables[group], lists[of], counts + of, sums[group]};
    for (u32 base = blockIdx.x * GROUPS; base < a.rows; base += gridDim.x * GROUPS) {
        const u32 row = base + group;
        const u32 first = row < a.rows ? c.offsets[row] : 0, end = row < a.rows ? c.offsets[row + 1] : 0;
        row_sums.clear(lane);
        wait<LANES>();
        // rows without columns were skipped
        const u32 last = first < end ? a.offsets[row + 1] : 0;
        u32 entry = first < end ? a.offsets[row] : 0;
        if constexpr (LANES > 32) {
            for (; entry < last; entry++) {
                const u32 middle = __ldg(a.columns + entry), stop = __ldg(b.offsets + middle + 1);
                const double left = __ldg(a_values + entry);
                for (u32 k = __ldg(b.offsets + middle) + lane; k < stop; k += LANES) row_sums.add(__ldg(b.columns + k), left * __ldg(b_values + k));
                wait<LANES>();
            }
        } else {
            // whole warps go on together; what an entry needs is asked for by one lane, and a step ahead
            for (; __any_sync(ALL, entry < last); entry += LANES) {
                u32 start = 0, length = 0;
                double left = 0;
                if (entry + lane < last) {
                    const u32 middle = __ldg(a.columns + entry + lane);
                    start = __ldg(b.offsets + middle);
                    length = __ldg(b.offsets + middle + 1) - start;
                    left = __ldg(a_values + entry + lane);
                }
                u32 from = __shfl_sync(ALL, start, 0, LANES), to = from + __shfl_sync(ALL, length, 0, LANES);
                u32 column = from + lane < to ? __ldg(b.columns + from + lane) : EMPTY;
                double right = from + lane < to ? __ldg(b_values + from + lane) : 0.0;
#pragma unroll 1
                for (int k = 0; k < LANES && __any_sync(ALL, entry + k < last); k++) {
                    const double factor = __shfl_sync(ALL, left, k, LANES), own = factor * right;
                    const u32 own_column = column, rest = from + lane + LANES, stop = to;
                    from = __shfl_sync(ALL, start, k + 1, LANES);
                    to = from + (k + 1 < LANES ? __shfl_sync(ALL, length, k + 1, LANES) : 0);
                    column = from + lane < to ? __ldg(b.columns + from + lane) : EMPTY;
                    right = from + lane < to ? __ldg(b_values + from + lane) : 0.0;
                    if (own_column != EMPTY) row_sums.add(own_column, own);
                    for (u32 other = rest; other < stop; other += LANES) row_sums.add(__ldg(b.columns + other), factor * __ldg(b_values + other));
                    __syncwarp();
                }
            }
        }
        wait<LANES>();
        if (first < end) row_sums.write(lane, first, columns, values);
        wait<LANES>();
    }
}
#define SUMS_OF(TABLE, LANES)                                                                                           \
    extern "C" __global__ __launch_bounds__(THREADS) void sums_##TABLE(                                                 \
        Graph a, const double* a_values, Graph b, const double* b_values, Graph c, u32* columns, double* values) {      \
        begin();                                                                                                        \
        sums_of_product<LANES, TABLE>(a, a_values, b, b_values, c, columns, values);                                    \
    }
SUMS_OF(32, 4)
SUMS_OF(64, 8)
SUMS_OF(128, 16)
SUMS_OF(512, 32)
SUMS_OF(4096, THREADS)

// The numbers of A B, summed where they stand, a warp for each row. Blocks of A have `inner` columns, those of B as many rows.
extern "C" __global__ __launch_bounds__(THREADS) void sums_of_blocks(
    Graph a, const double* a_values, Graph b, const double* b_values, Shape shape, u32 inner, Graph c, double* c_values) {
    begin();
    const u32 row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32, size = shape.rows * shape.columns;
    if (row >= c.rows) return;
    const u32 first = c.offsets[row], end = c.offsets[row + 1];
    for (u64 k = (u64)first * size + lane; k < (u64)end * size; k += 32) c_values[k] = 0;
    // rows without columns were skipped
    if (first == end) return;
    for (u32 entry = a.offsets[row]; entry < a.offsets[row + 1]; entry++) {
        __syncwarp();
        const u32 middle = a.columns[entry], start = b.offsets[middle];
        const u32 numbers = (b.offsets[middle + 1] - start) * size;
        const double* left = a_values + (u64)entry * shape.rows * inner;
        for (u32 k = lane; k < numbers; k += 32) {
            const u32 other = start + k / size, within = k % size;
            const u64 place = (u64)place_of(c.columns, first, end, __ldg(b.columns + other)) * size + within;
            const double* right = b_values + (u64)other * inner * shape.columns + within % shape.columns;
            const double* of_row = left + within / shape.columns * inner;
            double sum = 0;
            for (u32 m = 0; m < inner; m++) sum += of_row[m] * __ldg(right + m * shape.columns);
            c_values[place] += sum;
        }
    }
}

// ---- transposes: counts and places by atomics, of whole numbers; the order within a row is made afterwards

extern "C" __global__ __launch_bounds__(THREADS) void count_columns(const u32* columns, u32 entries, u32* counts) {
    begin();
    const u32 entry = blockIdx.x * blockDim.x + threadIdx.x;
    if (entry < entries) atomicAdd(counts + columns[entry], 1u);
}
// Puts entries into the rows of the transpose, in no order, LANES a row; `next` is where each begins, and ends as where it ends.
extern "C" __global__ __launch_bounds__(THREADS) void scatter_entries(Graph a, u32* next, u32* rows, u32* entries) {
    begin();
    constexpr u32 LANES = 4;
    const u32 row = (blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    if (row >= a.rows) return;
    for (u32 entry = a.offsets[row] + threadIdx.x % LANES; entry < a.offsets[row + 1]; entry += LANES) {
        const u32 place = atomicAdd(next + a.columns[entry], 1u);
        rows[place] = row;
        entries[place] = entry;
    }
}
// A warp puts a row in order.
extern "C" __global__ __launch_bounds__(THREADS) void order_entries(
    const u32* offsets, u32 count, const u32* rows, const u32* entries, u32* columns, u32* from) {
    begin();
    const u32 row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= count) return;
    const u32 first = offsets[row], end = offsets[row + 1];
    for (u32 k = first + lane; k < end; k += 32) {
        const u32 entry = entries[k];
        u32 smaller = 0;
        for (u32 other = first; other < end; other++) smaller += __ldg(entries + other) < entry;
        columns[first + smaller] = rows[k];
        from[first + smaller] = entry;
    }
}
// The numbers of a transpose: blocks of A have this shape.
extern "C" __global__ __launch_bounds__(THREADS) void transpose(const u32* from, u64 numbers, Shape shape, const double* a, double* to) {
    begin();
    const u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= numbers) return;
    const u32 size = shape.rows * shape.columns, within = u32(at % size);
    const u64 block = from[at / size];
    to[at] = a[block * size + within % shape.rows * shape.columns + within / shape.rows];
}
