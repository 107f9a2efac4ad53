// Converts a vector to or from single precision, and multiplies it by a factor. Memory traffic: one element and 4 B for
// each entry.

extern "C" __global__ __launch_bounds__(THREADS) void to_single(i64 n, const real* x, double factor, float* y) {
    begin();
    const i64 threads = (i64)gridDim.x * blockDim.x;
#pragma unroll 4
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += threads) y[i] = float(double(x[i]) * factor);
}

extern "C" __global__ __launch_bounds__(THREADS) void from_single(i64 n, const float* x, double factor, real* y) {
    begin();
    const i64 threads = (i64)gridDim.x * blockDim.x;
#pragma unroll 4
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += threads) y[i] = real(double(x[i]) * factor);
}
