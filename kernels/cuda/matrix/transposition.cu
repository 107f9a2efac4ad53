// Correspondence of the entries of a matrix and its transpose.

// Position of the first entry of a row whose column is at least `column`; the end of the row if there is none.
__device__ __forceinline__ i64 place_of(const RowStarts& rows, const u32* columns, i64 row, i64 column) {
    i64 low = rows.start(row), high = rows.start(row + 1);
    while (low < high) {
        const i64 middle = (low + high) / 2;
        if (__ldg(columns + middle) < column) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

// Finds in the matrix (`rows`, `columns`) the entry (j, i) for each entry (i, j) of `transposed`, and writes its index
// to `from`, with LANES lanes per row; sets `misfit` if an entry is missing. Both matrices are square. Memory traffic:
// the pattern of `transposed` once, and for each entry about log₂(length) columns of a row of the matrix, mostly from
// caches.
extern "C" __global__ __launch_bounds__(THREADS) void find_mirrored(
    RowStarts rows, const u32* columns, RowStarts transposed, const u32* transposed_columns, u32* from, u32* misfit) {
    begin();
    const i64 stride = (i64)gridDim.x * (blockDim.x / LANES);
    for (i64 i = (i64)blockIdx.x * (blockDim.x / LANES) + threadIdx.x / LANES; i < transposed.count; i += stride) {
        const i64 end = transposed.start(i + 1);
        for (i64 entry = transposed.start(i) + threadIdx.x % LANES; entry < end; entry += LANES) {
            const i64 j = transposed_columns[entry], place = place_of(rows, columns, j, i);
            const bool found = place < rows.start(j + 1) && __ldg(columns + place) == i;
            if (!found) *misfit = 1;
            from[entry] = found ? u32(place) : 0;
        }
    }
}

// Sets `misfit` if a square matrix lacks a diagonal entry. Memory traffic: the offsets, and about log₂(length) columns
// per row.
extern "C" __global__ __launch_bounds__(THREADS) void find_diagonal(RowStarts rows, const u32* columns, u32* misfit) {
    begin();
    const i64 threads = (i64)gridDim.x * blockDim.x;
    for (i64 row = (i64)blockIdx.x * blockDim.x + threadIdx.x; row < rows.count; row += threads) {
        const i64 place = place_of(rows, columns, row, row);
        if (place == rows.start(row + 1) || __ldg(columns + place) != row) *misfit = 1;
    }
}

// to[k] ← values[from[k]]. Memory traffic: 4 B an entry for its index, and each value twice: it is read, mostly from
// caches, and written.
extern "C" __global__ __launch_bounds__(THREADS) void take_from(const u32* from, const real* values, real* to, u64 count) {
    begin();
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 entry = (u64)blockIdx.x * blockDim.x + threadIdx.x; entry < count; entry += stride) {
        to[entry] = __ldg(values + from[entry]);
    }
}
