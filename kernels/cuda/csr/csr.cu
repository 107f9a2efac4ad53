// CSR products: y_i ← Σ_k v_k x_{c_k} over the entries of row i.
//
// Moves 12 B (f64) or 8 B (f32) an entry, 4 or 8 B of offsets a row, x and y. A row has 1, 2, 4, 8, 16 or 32 lanes,
// each with four entries in flight; their sums are added in a fixed order.

template <class Offset> struct Csr {
    const Offset* offsets;
    const u32* columns;
    const stored* values;
    u32 rows;
    u32 lanes;                // per row
};

// This lane's part of a row's sum: entries lane, lane + lanes, …, AHEAD of them in flight.
__device__ __forceinline__ real part_of_row(const u32* columns, const stored* values, u32 length, u32 lane, u32 lanes, const real* x) {
    real sum = 0;
    for (u32 k = lane; k < length; k += AHEAD * lanes) {
        u32 column[AHEAD];
        stored v[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const u32 at = k + u * lanes;
            column[u] = at < length ? __ldcs(columns + at) : NONE;
            v[u] = at < length ? __ldcs(values + at) : stored(0);
        }
        // never true; keeps the compiler from sinking the loads above
        if (column[0] == NONE) break;
        real at_column[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) at_column[u] = column[u] != NONE ? __ldg(x + column[u]) : real(0);
#pragma unroll
        for (int u = 0; u < AHEAD; u++) sum += v[u] * at_column[u];
    }
    return sum;
}

// Returns this thread's part of ⟨x, y⟩ if DOT.
template <class Offset, bool DOT> __device__ __forceinline__ real multiply(const Csr<Offset>& a, const real* x, real* y) {
    const u32 lane = threadIdx.x % a.lanes, rows_of_warp = 32 / a.lanes;
    const u32 row_of_warp = threadIdx.x % 32 / a.lanes;
    const i64 warps = (i64)gridDim.x * blockDim.x / 32;
    const i64 warp = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    real xy = 0;
    // all lanes of a warp stay together for the shuffles
    for (i64 first = warp * rows_of_warp; first < a.rows; first += warps * rows_of_warp) {
        const i64 row = first + row_of_warp;
        real sum = 0;
        if (row < a.rows) {
            const Offset start = __ldg(a.offsets + row), end = __ldg(a.offsets + row + 1);
            sum = part_of_row(a.columns + start, a.values + start, u32(end - start), lane, a.lanes, x);
        }
        for (u32 step = a.lanes / 2; step; step /= 2) sum += __shfl_down_sync(ALL, sum, step, a.lanes);
        if (row < a.rows && lane == 0) {
            y[row] = sum;
            if (DOT) xy += __ldg(x + row) * sum;
        }
    }
    return xy;
}

extern "C" __global__ __launch_bounds__(THREADS, 6) void csr_short(Csr<u32> a, const real* x, real* y) {
    begin();
    multiply<u32, false>(a, x, y);
}
extern "C" __global__ __launch_bounds__(THREADS, 6) void csr_long(Csr<u64> a, const real* x, real* y) {
    begin();
    multiply<u64, false>(a, x, y);
}
extern "C" __global__ __launch_bounds__(THREADS, 6) void csr_short_dot(Csr<u32> a, const real* x, real* y, Sum sum) {
    begin();
    real xy[1] = {multiply<u32, true>(a, x, y)};
    grid_sum(xy, sum);
}
extern "C" __global__ __launch_bounds__(THREADS, 6) void csr_long_dot(Csr<u64> a, const real* x, real* y, Sum sum) {
    begin();
    real xy[1] = {multiply<u64, true>(a, x, y)};
    grid_sum(xy, sum);
}
