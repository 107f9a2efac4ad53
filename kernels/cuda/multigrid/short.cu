// Rows with few columns, one thread each. A thread block has SHORT_THREADS threads; a row has at most SHORT columns.

// Accumulator of a thread's row: columns and, if SUMS, their sums. Elements of different threads are interleaved, so
// that threads use different banks of shared memory.
template <bool SUMS> struct ShortRow {
    u32* columns;             // stride SHORT_THREADS between elements
    double* sums;
    u32 count;
    bool overflow;

    // Adds a term to a column. The linear search is short, since most columns recur soon.
    __device__ __forceinline__ void add(u32 column, double term) {
        u32 at = 0;
        while (at < count && columns[at * SHORT_THREADS] != column) at++;
        if (at == SHORT) {
            overflow = true;
            return;
        }
        if (at == count) {
            columns[at * SHORT_THREADS] = column;
            if (SUMS) sums[at * SHORT_THREADS] = 0;
            count++;
        }
        if (SUMS) sums[at * SHORT_THREADS] += term;
    }

    // Sorts by column.
    __device__ __forceinline__ void sort() {
        for (u32 k = 1; k < count; k++) {
            const u32 column = columns[k * SHORT_THREADS];
            const double sum = SUMS ? sums[k * SHORT_THREADS] : 0.0;
            u32 at = k;
            for (; at > 0 && columns[(at - 1) * SHORT_THREADS] > column; at--) {
                columns[at * SHORT_THREADS] = columns[(at - 1) * SHORT_THREADS];
                if (SUMS) sums[at * SHORT_THREADS] = sums[(at - 1) * SHORT_THREADS];
            }
            columns[at * SHORT_THREADS] = column;
            if (SUMS) sums[at * SHORT_THREADS] = sum;
        }
    }
};

// Processes one row per thread, which `find(row, list)` accumulates: writes its number of columns to `counts` or, if
// FILL, its columns and values from `offsets` on. The rows of a thread block are contiguous in the result, so
// neighbouring threads write neighbouring entries.
template <bool FILL, class Find> __device__ __forceinline__ void short_rows(
    u32 rows, const u32* offsets, u32* counts, u32* columns, double* values, u32* overflow, Find find) {
    // for each thread: the columns and sums of its row, and where the row starts among the entries of the thread block;
    // for each of these entries, its thread
    __shared__ u32 columns_of[SHORT][SHORT_THREADS], starts[FILL ? SHORT_THREADS : 1];
    __shared__ double sums_of[FILL ? SHORT : 1][SHORT_THREADS];
    __shared__ u8 thread_of[FILL ? SHORT * SHORT_THREADS : 1];
    const u32 own = threadIdx.x, first_row = blockIdx.x * SHORT_THREADS, row = first_row + own;
    ShortRow<FILL> list{&columns_of[0][own], &sums_of[0][own], 0, false};
    if (row < rows) find(row, list);
    if (list.overflow) *overflow = 1;
    if constexpr (!FILL) {
        if (row < rows) counts[row] = list.count;
        return;
    } else {
        list.sort();
        const u32 first = offsets[first_row], last = offsets[min(first_row + SHORT_THREADS, rows)];
        const u32 start = row < rows ? offsets[row] - first : 0;
        starts[own] = start;
        for (u32 k = 0; k < list.count; k++) thread_of[start + k] = own;
        __syncthreads();
        for (u32 k = own; k < last - first; k += SHORT_THREADS) {
            const u32 of = thread_of[k], slot = k - starts[of];
            columns[first + k] = columns_of[slot][of];
            values[first + k] = sums_of[slot][of];
        }
    }
}
