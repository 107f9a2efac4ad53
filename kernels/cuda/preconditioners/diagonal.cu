// The diagonal of a CSR matrix, and its inverse. None of these kernels is used within an iteration of a solve.

// Finds the position of the diagonal entry within each row; all bits are set if a row has none. 32 bits suffice for a
// position within a row. Memory traffic: offsets, 4 B a row, and about log₂(length) columns per row.
extern "C" __global__ __launch_bounds__(256) void diagonal_places(RowStarts rows, const u32* columns, u32* places) {
    begin();
    const i64 threads = (i64)gridDim.x * blockDim.x;
    for (i64 row = (i64)blockIdx.x * blockDim.x + threadIdx.x; row < rows.count; row += threads) {
        const i64 first = rows.start(row), end = rows.start(row + 1);
        i64 low = first, high = end;
        while (low < high) {
            const i64 middle = (low + high) / 2;
            if (__ldg(columns + middle) < row) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        places[row] = low < end && __ldg(columns + low) == row ? u32(low - first) : ALL;
    }
}

// Copies the entries at these positions; writes zero for a row without one. Memory traffic per row: the offset, 4 B for
// the position, a sector of values, and the result.
extern "C" __global__ __launch_bounds__(256) void diagonal_take(RowStarts rows, const u32* places, const real* values, real* diagonal) {
    begin();
    const i64 threads = (i64)gridDim.x * blockDim.x;
    for (i64 row = (i64)blockIdx.x * blockDim.x + threadIdx.x; row < rows.count; row += threads) {
        const u32 place = places[row];
        diagonal[row] = place == ALL ? real(0) : values[rows.start(row) + place];
    }
}

// Finds the first row whose diagonal entry has no finite nonzero inverse; `refused` is unchanged if there is no such
// row. Memory traffic: an element a row.
extern "C" __global__ __launch_bounds__(256) void diagonal_check(i64 n, const real* diagonal, u32* refused) {
    begin();
    const i64 threads = (i64)gridDim.x * blockDim.x;
    for (i64 row = (i64)blockIdx.x * blockDim.x + threadIdx.x; row < n; row += threads) {
        const real inverse = real(1) / diagonal[row];
        if (!finite(inverse) || inverse == real(0)) atomicMin(refused, u32(row));
    }
}

// d_i ← 1 / a_ii. Memory traffic: two elements a row.
extern "C" __global__ __launch_bounds__(256) void diagonal_invert(i64 n, const real* diagonal, real* inverse) {
    begin();
    const i64 threads = (i64)gridDim.x * blockDim.x;
    for (i64 row = (i64)blockIdx.x * blockDim.x + threadIdx.x; row < n; row += threads) {
        inverse[row] = real(1) / diagonal[row];
    }
}
