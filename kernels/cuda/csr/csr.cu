// CSR products. csr_rows.cu describes the memory traffic.

// Returns this thread's part of ⟨x, y⟩ if DOT.
template <class Offset, bool DOT> __device__ __forceinline__ real multiply(const Csr<Offset>& a, const real* x, real* y) {
    const u32 lane = threadIdx.x % a.lanes, rows_of_warp = 32 / a.lanes;
    const u32 row_of_warp = threadIdx.x % 32 / a.lanes;
    const i64 warps = (i64)gridDim.x * blockDim.x / 32;
    const i64 warp = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    real xy = 0;
    // all lanes of a warp run the same number of iterations, because sums use shuffles
    for (i64 first = warp * rows_of_warp; first < a.rows; first += warps * rows_of_warp) {
        const i64 row = first + row_of_warp;
        real sum = 0;
        if (row < a.rows) {
            const Offset start = __ldg(a.offsets + row), end = __ldg(a.offsets + row + 1);
            sum = part_of_row(a.columns + start, a.values + start, u32(end - start), lane, a.lanes, [&](u32 column) { return __ldg(x + column); });
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
