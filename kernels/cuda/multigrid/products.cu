// Products of sparse matrices whose entries are dense blocks, and their transposes.
//
//     row i of C:  for each entry k of row i of A, for each entry j of row k of B:  C_ij ← C_ij + A_ik B_kj
//
// A few lanes share a row. The symbolic pass collects the columns of a row of C in a hash table in shared memory, then
// sorts them: the position of a column is the number of smaller ones. The numeric pass adds terms in the order of the
// entries of A, at positions found by binary search or in a hash table.

constexpr u32 EMPTY = ALL;

// Synchronizes the lanes of a row (their warp or block).
template <int LANES> __device__ __forceinline__ void wait() {
    if constexpr (LANES > 32) {
        __syncthreads();
    } else {
        __syncwarp();
    }
}

// Tasks of a symbolic kernel. KEEP: counts the columns of each row, and stores them unsorted in `kept`, which has TABLE
// elements per row. COUNT: counts them. FILL: writes them sorted.
enum Does { KEEP, COUNT, FILL };

// Finds the columns of the rows of A B; rows that are empty in `skip` (row offsets of another pattern, or null) stay
// empty. `to` receives the row lengths (KEEP, COUNT) or the columns, at the row offsets `offsets` (FILL). Sets
// `overflow` if a row has more than TABLE columns; thread blocks that see it set return early.
template <int LANES, int TABLE, Does DOES> __device__ __forceinline__ void rows_of_product(
    const Graph& a, const Graph& b, const u32* skip, const u32* offsets, u32* to, u32* kept, u32* overflow) {
    constexpr int GROUPS = THREADS / LANES;
    // for each row: hash table of its columns, list of them in the order in which they were found, and their number
    __shared__ u32 tables[GROUPS][TABLE], lists[GROUPS][DOES == FILL ? TABLE : 1], counts[GROUPS];
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
                        // most columns are in the table already: check without an atomic operation
                        u32 found = *(volatile u32*)(table + at);
                        if (found == column) break;
                        if (found == EMPTY) found = atomicCAS(table + at, EMPTY, column);
                        if (found == EMPTY) {
                            const u32 place = atomicAdd(counts + group, 1u);
                            if (DOES == KEEP) kept[(u64)row * TABLE + place] = column;
                            if (DOES == FILL) list[place] = column;
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
            if (DOES != FILL && lane == 0) to[row] = count;
            if (DOES == FILL) {
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
#define KEPT(TABLE, LANES)                                                                                              \
    extern "C" __global__ __launch_bounds__(THREADS) void count_##TABLE(Graph a, Graph b, const u32* skip, u32* counts, u32* kept, u32* overflow) { \
        begin();                                                                                                        \
        rows_of_product<LANES, TABLE, KEEP>(a, b, skip, 0, counts, kept, overflow);                                     \
    }
KEPT(32, 8)
KEPT(64, 8)
KEPT(128, 32)
#define FILLED(TABLE, LANES)                                                                                            \
    extern "C" __global__ __launch_bounds__(THREADS) void count_##TABLE(Graph a, Graph b, const u32* skip, u32* counts, u32*, u32* overflow) { \
        begin();                                                                                                        \
        rows_of_product<LANES, TABLE, COUNT>(a, b, skip, 0, counts, 0, overflow);                                       \
    }                                                                                                                   \
    extern "C" __global__ __launch_bounds__(THREADS) void fill_##TABLE(Graph a, Graph b, const u32* skip, const u32* offsets, u32* columns, u32* overflow) { \
        begin();                                                                                                        \
        rows_of_product<LANES, TABLE, FILL>(a, b, skip, offsets, columns, 0, overflow);                                 \
    }
FILLED(512, 32)
FILLED(4096, THREADS)

// ---- one thread per row, for short rows

// Symbolic pass: the length of each row of A B, and its unsorted columns in `kept`, interleaved by row so that
// neighbouring threads write neighbouring elements.
extern "C" __global__ __launch_bounds__(SHORT_THREADS) void count_short(Graph a, Graph b, u32* counts, u32* kept, u32* overflow) {
    begin();
    short_rows<false>(a.rows, 0, counts, 0, 0, overflow, [&](u32 row, ShortRow<false>& list) {
        const u32 last = a.offsets[row + 1];
        for (u32 entry = a.offsets[row]; entry < last; entry++) {
            const u32 middle = __ldg(a.columns + entry), end = __ldg(b.offsets + middle + 1);
            for (u32 other = __ldg(b.offsets + middle); other < end; other++) list.add(__ldg(b.columns + other), 0);
        }
        for (u32 k = 0; k < list.count; k++) kept[(u64)k * a.rows + row] = list.columns[k * SHORT_THREADS];
    });
}

// Numeric pass: adds terms in the order of the entries of A, at positions found by binary search among SHORT columns.
// If KNOWN, the columns are those of C; otherwise they come unsorted from `kept`, and are written to `columns`, too.
template <bool KNOWN> __device__ __forceinline__ void short_sums(
    const Graph& a, const double* a_values, const Graph& b, const double* b_values, const Graph& c, const u32* kept, u32* columns, double* values) {
    // for each thread: the columns and sums of its row, and where the row starts among the entries of the thread block;
    // for each of these entries, its thread
    __shared__ u32 columns_of[SHORT][SHORT_THREADS], starts[SHORT_THREADS];
    __shared__ double sums_of[SHORT][SHORT_THREADS];
    __shared__ u8 thread_of[SHORT * SHORT_THREADS];
    // rows of B, and entries of such a row, that are loaded together
    constexpr u32 ROWS = 4, TERMS_AT_ONCE = 4;
    const u32 own = threadIdx.x, first_row = blockIdx.x * SHORT_THREADS, row = first_row + own;
    const u32 first = c.offsets[min(first_row, c.rows)], all = c.offsets[min(first_row + SHORT_THREADS, c.rows)] - first;
    const u32 start = row < c.rows ? c.offsets[row] : 0, count = row < c.rows ? c.offsets[row + 1] - start : 0;
#pragma unroll
    for (u32 k = 0; k < SHORT; k++) {
        columns_of[k][own] = NONE;
        sums_of[k][own] = 0;
    }
    for (u32 k = 0; k < count; k++) columns_of[k][own] = KNOWN ? __ldg(c.columns + start + k) : __ldg(kept + (u64)k * c.rows + row);
    if (!KNOWN) ShortRow<false>{&columns_of[0][own], 0, count, false}.sort();
    starts[own] = start - first;
    for (u32 k = 0; k < count; k++) thread_of[start - first + k] = own;
    const u32 last = count ? a.offsets[row + 1] : 0;
    for (u32 entry = count ? a.offsets[row] : 0; entry < last; entry += ROWS) {
        u32 from[ROWS], to[ROWS];
        double left[ROWS];
#pragma unroll
        for (u32 q = 0; q < ROWS; q++) {
            const bool there = entry + q < last;
            const u32 middle = there ? __ldg(a.columns + entry + q) : 0;
            from[q] = there ? __ldg(b.offsets + middle) : 0;
            to[q] = there ? __ldg(b.offsets + middle + 1) : 0;
            left[q] = there ? __ldg(a_values + entry + q) : 0.0;
        }
#pragma unroll
        for (u32 q = 0; q < ROWS; q++) {
            for (u32 other = from[q]; other < to[q]; other += TERMS_AT_ONCE) {
                u32 column[TERMS_AT_ONCE];
                double right[TERMS_AT_ONCE];
#pragma unroll
                for (u32 k = 0; k < TERMS_AT_ONCE; k++) {
                    column[k] = other + k < to[q] ? __ldg(b.columns + other + k) : NONE;
                    right[k] = other + k < to[q] ? __ldg(b_values + other + k) : 0.0;
                }
#pragma unroll
                for (u32 k = 0; k < TERMS_AT_ONCE; k++) {
                    if (column[k] == NONE) break;
                    u32 at = 0;
#pragma unroll
                    for (u32 step = SHORT / 2; step; step /= 2) at += columns_of[at + step - 1][own] < column[k] ? step : 0;
                    sums_of[at][own] += left[q] * right[k];
                }
            }
        }
    }
    __syncthreads();
    for (u32 k = own; k < all; k += SHORT_THREADS) {
        const u32 of = thread_of[k], slot = k - starts[of];
        if (!KNOWN) columns[first + k] = columns_of[slot][of];
        values[first + k] = sums_of[slot][of];
    }
}
extern "C" __global__ __launch_bounds__(SHORT_THREADS) void fill_short(
    Graph a, const double* a_values, Graph b, const double* b_values, Graph c, const u32* kept, u32* columns, double* c_values) {
    begin();
    short_sums<false>(a, a_values, b, b_values, c, kept, columns, c_values);
}
extern "C" __global__ __launch_bounds__(SHORT_THREADS) void sums_short(
    Graph a, const double* a_values, Graph b, const double* b_values, Graph c, double* c_values) {
    begin();
    short_sums<true>(a, a_values, b, b_values, c, 0, 0, c_values);
}

// Sorts the columns of each row of `kept`, which has `capacity` elements per row, and writes them to `columns` from
// `offsets` on; 8 lanes per row.
extern "C" __global__ __launch_bounds__(THREADS) void order_kept(const u32* offsets, u32 rows, const u32* kept, u32 capacity, u32* columns) {
    begin();
    const u32 row = (blockIdx.x * blockDim.x + threadIdx.x) / 8;
    if (row >= rows) return;
    const u32 first = offsets[row], count = offsets[row + 1] - first;
    const u32* own = kept + (u64)row * capacity;
    for (u32 k = threadIdx.x % 8; k < count; k += 8) {
        const u32 column = __ldg(own + k);
        u32 smaller = 0;
        for (u32 other = 0; other < count; other++) smaller += __ldg(own + other) < column;
        columns[first + smaller] = column;
    }
}

// The values of A B for 1×1 blocks and long rows: a thread block sums a row in shared memory, in a hash table of its
// columns.
extern "C" __global__ __launch_bounds__(THREADS) void sums_4096(
    Graph a, const double* a_values, Graph b, const double* b_values, Graph c, double* c_values) {
    begin();
    constexpr u32 TABLE = 4096;
    __shared__ u32 table[TABLE];
    __shared__ double sum[TABLE];
    auto place = [&](u32 column) {
        u32 at = (column * 0x9e3779b1u >> 16) % TABLE;
        while (table[at] != column) at = (at + 1) % TABLE;
        return at;
    };
    for (u32 row = blockIdx.x; row < a.rows; row += gridDim.x) {
        const u32 first = c.offsets[row], end = c.offsets[row + 1];
        for (u32 k = threadIdx.x; k < TABLE; k += THREADS) {
            table[k] = EMPTY;
            sum[k] = 0;
        }
        __syncthreads();
        for (u32 k = first + threadIdx.x; k < end; k += THREADS) {
            const u32 column = c.columns[k];
            u32 at = (column * 0x9e3779b1u >> 16) % TABLE;
            while (atomicCAS(table + at, EMPTY, column) != EMPTY) at = (at + 1) % TABLE;
        }
        __syncthreads();
        // rows that were skipped have no columns
        const u32 last = first < end ? a.offsets[row + 1] : 0;
        for (u32 entry = first < end ? a.offsets[row] : 0; entry < last; entry++) {
            const u32 middle = __ldg(a.columns + entry), stop = __ldg(b.offsets + middle + 1);
            const double left = __ldg(a_values + entry);
            for (u32 k = __ldg(b.offsets + middle) + threadIdx.x; k < stop; k += THREADS) sum[place(__ldg(b.columns + k))] += left * __ldg(b_values + k);
            __syncthreads();
        }
        for (u32 k = first + threadIdx.x; k < end; k += THREADS) c_values[k] = sum[place(c.columns[k])];
        __syncthreads();
    }
}

// The values of C = A B, one warp per block of C. For each entry of the row of A, a lane searches the corresponding row
// of B for the block's column; then each lane sums NUMBERS values of the block over the rows of B that have this
// column. Blocks of A have `inner` columns, those of B `inner` rows.
extern "C" __global__ __launch_bounds__(THREADS, 5) void sums_of_blocks(
    Graph a, const double* a_values, Graph b, const double* b_values, Shape shape, u32 inner, Graph c, double* c_values) {
    begin();
    constexpr u32 NUMBERS = 2;
    const u32 lane = threadIdx.x % 32, size = shape.rows * shape.columns;
    const u64 place = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (place >= c.offsets[c.rows]) return;
    const u32 row = place_of(c.offsets, 0, c.rows + 1, u32(place) + 1) - 1, column = __ldg(c.columns + place);
    const u32 end = __ldg(a.offsets + row + 1);
    for (u32 base = 0; base < size; base += 32 * NUMBERS) {
        u32 left[NUMBERS], right[NUMBERS];
        double sum[NUMBERS];
#pragma unroll
        for (u32 n = 0; n < NUMBERS; n++) {
            const u32 within = min(base + 32 * n + lane, size - 1);
            left[n] = within / shape.columns * inner;
            right[n] = within % shape.columns;
            sum[n] = 0;
        }
        for (u32 entries = __ldg(a.offsets + row); entries < end; entries += 32) {
            u32 own = NONE;
            if (entries + lane < end) {
                const u32 middle = __ldg(a.columns + entries + lane), stop = __ldg(b.offsets + middle + 1);
                own = place_of(b.columns, __ldg(b.offsets + middle), stop, column);
                if (own == stop || __ldg(b.columns + own) != column) own = NONE;
            }
            for (u32 found = __ballot_sync(ALL, own != NONE); found; found &= found - 1) {
                const u32 of = __ffs(found) - 1;
                const double* a_block = a_values + (u64)(entries + of) * shape.rows * inner;
                const double* b_block = b_values + (u64)__shfl_sync(ALL, own, of) * inner * shape.columns;
#pragma unroll
                for (u32 n = 0; n < NUMBERS; n++) {
                    if (base + 32 * n >= size) break;
#pragma unroll 3
                    for (u32 m = 0; m < inner; m++) sum[n] += __ldg(a_block + left[n] + m) * __ldg(b_block + right[n] + m * shape.columns);
                }
            }
        }
#pragma unroll
        for (u32 n = 0; n < NUMBERS; n++) {
            const u32 within = base + 32 * n + lane;
            if (within < size) c_values[place * size + within] = sum[n];
        }
    }
}

// ---- transposes: integer atomics count and scatter; each row is sorted afterwards, so the result is deterministic

// Counts the entries of each column.
extern "C" __global__ __launch_bounds__(THREADS) void count_columns(const u32* columns, u32 entries, u32* counts) {
    begin();
    const u32 entry = blockIdx.x * blockDim.x + threadIdx.x;
    if (entry >= entries) return;
    const u32 column = columns[entry], alike = __match_any_sync(__activemask(), column);
    // neighbouring rows share columns, and atomics on one address serialize: aggregate within the warp
    if (threadIdx.x % 32 == __ffs(alike) - 1) atomicAdd(counts + column, u32(__popc(alike)));
}
// Scatters the entries of A into the rows of the transpose, unsorted, with LANES lanes per row of A. Each element of
// `entries` is the entry's position in A (low 32 bits) and its row (high 32 bits). `next` has the start of each row of
// the transpose before the launch, and its end afterwards.
extern "C" __global__ __launch_bounds__(THREADS) void scatter_entries(Graph a, u32* next, u64* entries) {
    begin();
    constexpr u32 LANES = 4;
    const u32 row = (blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    if (row >= a.rows) return;
    for (u32 entry = a.offsets[row] + threadIdx.x % LANES; entry < a.offsets[row + 1]; entry += LANES) {
        const u32 column = a.columns[entry], alike = __match_any_sync(__activemask(), column), lane = threadIdx.x % 32;
        const u32 leader = __ffs(alike) - 1;
        u32 place = lane == leader ? atomicAdd(next + column, u32(__popc(alike))) : 0;
        place = __shfl_sync(alike, place, leader) + __popc(alike & ((1u << lane) - 1));
        entries[place] = (u64)row << 32 | entry;
    }
}
// Sorts the rows of the transpose, one warp per row, and writes the row of A of each entry to `columns` and its
// position in A to `from`: each lane counts, for TOGETHER of its entries at a time, how many entries precede each of
// them.
extern "C" __global__ __launch_bounds__(THREADS) void order_entries(const u32* offsets, u32 count, const u64* entries, u32* columns, u32* from) {
    begin();
    constexpr u32 TOGETHER = 4;
    const u32 row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= count) return;
    const u32 first = offsets[row], end = offsets[row + 1];
    for (u32 k = first + lane; k < end; k += 32 * TOGETHER) {
        u64 own[TOGETHER];
        u32 smaller[TOGETHER];
#pragma unroll
        for (u32 q = 0; q < TOGETHER; q++) {
            own[q] = k + 32 * q < end ? entries[k + 32 * q] : 0;
            smaller[q] = 0;
        }
#pragma unroll 4
        for (u32 other = first; other < end; other++) {
            // positions in A ascend with the row
            const u32 entry = u32(__ldg(entries + other));
#pragma unroll
            for (u32 q = 0; q < TOGETHER; q++) smaller[q] += entry < u32(own[q]);
        }
#pragma unroll
        for (u32 q = 0; q < TOGETHER; q++) {
            if (k + 32 * q >= end) break;
            columns[first + smaller[q]] = u32(own[q] >> 32);
            from[first + smaller[q]] = u32(own[q]);
        }
    }
}
// The values of the transpose of A. `from` has the position in A of each block of the transpose, `shape` is that of the
// blocks of A, and `numbers` is the number of values.
extern "C" __global__ __launch_bounds__(THREADS) void transpose(const u32* from, u64 numbers, Shape shape, const double* a, double* to) {
    begin();
    const u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= numbers) return;
    const u32 size = shape.rows * shape.columns, within = u32(at % size);
    const u64 block = from[at / size];
    to[at] = a[block * size + within % shape.rows * shape.columns + within / shape.rows];
}
