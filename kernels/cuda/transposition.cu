// Entries of a matrix with rows for columns.

// Finds in `rows` the entry (j, i) for each entry (i, j) of `transposed`, 8 lanes a row; marks a matrix that has it not. Both
// are square. Moves both patterns, one of them some log₂ of a row's length times, most of it from caches.
extern "C" __global__ __launch_bounds__(256) void find_mirrored(
    RowStarts rows, const u32* columns, RowStarts transposed, const u32* transposed_columns, u32* from, u32* misfit) {
    begin();
    const i64 stride = (i64)gridDim.x * (blockDim.x / 8);
    for (i64 i = (i64)blockIdx.x * (blockDim.x / 8) + threadIdx.x / 8; i < transposed.count; i += stride) {
        const i64 end = transposed.start(i + 1);
        for (i64 entry = transposed.start(i) + threadIdx.x % 8; entry < end; entry += 8) {
            const i64 j = transposed_columns[entry];
            i64 low = rows.start(j), high = rows.start(j + 1);
            const i64 last = high;
            while (low < high) {
                const i64 middle = (low + high) / 2;
                if (__ldg(columns + middle) < i) {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            const bool found = low < last && __ldg(columns + low) == i;
            if (!found) *misfit = 1;
            from[entry] = found ? u32(low) : 0;
        }
    }
}

// Moves 4 B an entry, what it reads, most of it from caches, and what it writes.
extern "C" __global__ __launch_bounds__(256) void take_from(const u32* from, const real* values, real* to, u64 count) {
    begin();
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 entry = (u64)blockIdx.x * blockDim.x + threadIdx.x; entry < count; entry += stride) {
        to[entry] = __ldg(values + from[entry]);
    }
}
