// r ← b − A x in twice the precision: the rounding errors of products and sums are accumulated separately (Dot2 of
// Ogita, Rump and Oishi 2005). One warp per row. Memory traffic: 12 B (f64) or 8 B (f32) an entry, offsets, x, b and r.
// Used at the end of a solve close to the attainable accuracy, and for restarts.

// Operations with one rounding each, which the compiler does not contract to fused multiply-adds.
__device__ __forceinline__ double times(double a, double b) { return __dmul_rn(a, b); }
__device__ __forceinline__ float times(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double plus(double a, double b) { return __dadd_rn(a, b); }
__device__ __forceinline__ float plus(float a, float b) { return __fadd_rn(a, b); }

// A sum and its accumulated rounding errors.
struct Sum2 {
    real high, low;

    // Adds `b` to the sum, and `below`, the rounding error of `b`, to the errors.
    __device__ __forceinline__ void add(real b, real below) {
        const real sum = plus(high, b), back = plus(sum, -high);
        const real taken = plus(plus(high, -plus(sum, -back)), plus(b, -back));
        high = sum;
        low = plus(low, plus(taken, below));
    }
};

extern "C" __global__ __launch_bounds__(THREADS) void residual(RowStarts rows, const u32* columns, const real* values, const real* b, const real* x, real* r) {
    begin();
    const u32 lane = threadIdx.x & 31;
    const i64 warps = (i64)gridDim.x * (blockDim.x / 32);
    for (i64 row = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / 32; row < rows.count; row += warps) {
        Sum2 sum = {lane ? real(0) : b[row], 0};
        const i64 end = rows.start(row + 1);
        for (i64 entry = rows.start(row) + lane; entry < end; entry += 32) {
            const real v = values[entry], at = x[columns[entry]], product = times(v, at);
            sum.add(-product, -fma(v, at, -product));
        }
        for (u32 half = 16; half; half >>= 1) {
            const real high = __shfl_down_sync(ALL, sum.high, half), low = __shfl_down_sync(ALL, sum.low, half);
            sum.add(high, low);
        }
        if (lane == 0) r[row] = plus(sum.high, sum.low);
    }
}
