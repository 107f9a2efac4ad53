// Input and output of a V-cycle: conversion to single precision, scaled so that the largest entry is near one, and
// back.
//
// A cycle works on at most VECTORS columns (right-hand sides). The columns of r and z are stored separately; the
// vectors of the cycle are packed: each row stores 2^log_width numbers, one for each column and zeros for the rest.
// Compiled once with VECTORS = 1 and once with VECTORS = COLUMNS.

// Number of entries that a thread loads before it uses the first. The loops are unrolled explicitly, because the
// compiler does not move loads above stores.
constexpr int TOGETHER = 4;

// Whether the solve has ended, so that queued kernels have nothing to do. `active` is null if the cycle is applied on
// its own, not within a queued iteration of a solver.
__device__ __forceinline__ bool ended(const u32* active) { return active && !*(volatile const u32*)active; }

// The solve's vectors: `count` columns of r and of z. A row of the cycle's vectors stores 2^log_width numbers.
struct Outside {
    const real* r[VECTORS];
    real* z[VECTORS];
    u32 count, log_width;

    // The column that this row of thread blocks (blockIdx.y) processes.
    __device__ __forceinline__ u32 own() const { return VECTORS == 1 ? 0 : blockIdx.y; }
    __device__ __forceinline__ u32 shift() const { return VECTORS == 1 ? 0 : log_width; }
};
// A sum for each column.
struct Sums {
    Sum of[VECTORS];
};

// Computes the bits of the largest |r_i|: compared as integers, they have the order of the numbers, and a NaN exceeds
// infinity. Memory traffic: one element of r per row.
extern "C" __global__ __launch_bounds__(THREADS) void largest(const __grid_constant__ Outside v, i64 n, u64* most, const u32* active) {
    begin();
    if (ended(active)) return;
    const real* r = v.r[v.own()];
    u64 own = 0;
    const i64 threads = (i64)gridDim.x * blockDim.x;
#pragma unroll 4
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += threads) {
        const u64 bits = __double_as_longlong(fabs(double(r[i])));
        own = own > bits ? own : bits;
    }
#pragma unroll
    for (int step = 16; step; step >>= 1) {
        const u64 other = __shfl_xor_sync(ALL, own, step);
        own = own > other ? own : other;
    }
    __shared__ u64 warps[THREADS / 32];
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = own;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < THREADS / 32; w++) own = own > warps[w] ? own : warps[w];
        atomicMax(most + v.own(), own);
    }
}

// The power of two not above the number with these bits; one if that is zero, subnormal, infinite or NaN.
__device__ __forceinline__ double power_below(u64 bits) {
    const u64 exponent = bits >> 52;
    return exponent == 0 || exponent >= 0x7ff ? 1.0 : __longlong_as_double(exponent << 52);
}

// Whether a cycle can be skipped: its solve has ended, or ends with this iteration, whose ‖r‖² meets the threshold.
struct Ends {
    const Control* control;   // null if not within a queued iteration of a solver
    u32 known;                // whether `squared` is ‖r‖²
    Number squared;
    u32* goes_on;             // read as `active` by the kernels that follow
};

// b ← r / size for each column, where `size` = 2^⌊log₂ max|r_i|⌋ is stored for `widen`. If d (the inverse diagonal) is
// not null, also computes the first smoothing step x ← weight d b. r is read through the permutation `order`. Numbers
// of a packed row beyond the last column become zero. Memory traffic per row and column: one element of r, and 4 B or,
// with d, 12 B.
extern "C" __global__ __launch_bounds__(THREADS) void narrow(
    const __grid_constant__ Outside v, Order order, i64 n, const u64* most, double* size, float* b, const float* d, float weight, float* x, Ends ends) {
    begin();
    if (ends.control) {
        bool goes_on = *(volatile const u32*)&ends.control->active;
        // the same condition as in `end_step`
        if (ends.known) {
            const real squared = value(ends.squared);
            goes_on = goes_on && finite(squared) && squared > *(volatile const double*)&ends.control->threshold;
        }
        if (blockIdx.x == 0 && threadIdx.x == 0) *ends.goes_on = goes_on;
        if (!goes_on) return;
    }
    const i64 threads = (i64)gridDim.x * blockDim.x, first = (i64)blockIdx.x * blockDim.x + threadIdx.x, places = n << v.shift();
    // the column of all numbers that this thread writes, since 2^log_width divides the number of threads
    const u32 column = u32(first) & ((1u << v.shift()) - 1);
    const bool is_column = VECTORS == 1 || column < v.count;
    const real* r = v.r[VECTORS == 1 ? 0 : column];
    const double of = is_column ? power_below(most[column]) : 1.0, down = 1.0 / of;
    if (first == column && is_column) size[column] = of;
    for (i64 i = first; i < places; i += TOGETHER * threads) {
        real of_r[TOGETHER];
        float of_diagonal[TOGETHER];
#pragma unroll
        for (int k = 0; k < TOGETHER; k++) {
            const i64 at = i + k * threads;
            of_r[k] = is_column && at < places ? r[order.at(at >> v.shift())] : real(0);
            of_diagonal[k] = d && at < places ? d[at >> v.shift()] : 0.0f;
        }
#pragma unroll
        for (int k = 0; k < TOGETHER; k++) {
            const i64 at = i + k * threads;
            if (at >= places) break;
            const float own = float(double(of_r[k]) * down);
            b[at] = own;
            if (d) x[at] = weight * of_diagonal[k] * own;
        }
    }
}

// z ← scale · size · x: `size` undoes the scaling of `narrow`, and `scale` that of the matrix, because the levels store
// scale · A. x is read through the permutation `places`. Resets `most` for the next cycle. Returns this thread's part
// of ⟨r, z⟩ if DOT. Memory traffic per row: 4 B of x and one element of z, also one of r if DOT.
template <bool DOT> __device__ __forceinline__ real widened(
    const Outside& v, const float* x, Order places, i64 n, const double* size, double scale, u64* most, const u32* active) {
    const u32 column = v.own();
    const real* r = v.r[column];
    real* z = v.z[column];
    if (blockIdx.x == 0 && threadIdx.x == 0) most[column] = 0;
    if (ended(active)) return 0;
    const double up = scale * size[column];
    const i64 threads = (i64)gridDim.x * blockDim.x;
    real sum = 0;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += TOGETHER * threads) {
        float of_x[TOGETHER];
        real of_r[TOGETHER];
#pragma unroll
        for (int k = 0; k < TOGETHER; k++) {
            const i64 at = i + k * threads;
            of_x[k] = at < n ? x[(places.at(at) << v.shift()) + column] : 0.0f;
            of_r[k] = DOT && at < n ? r[at] : real(0);
        }
#pragma unroll
        for (int k = 0; k < TOGETHER; k++) {
            const i64 at = i + k * threads;
            if (at >= n) break;
            const real own = real(double(of_x[k]) * up);
            z[at] = own;
            if (DOT) sum += of_r[k] * own;
        }
    }
    return sum;
}
extern "C" __global__ __launch_bounds__(THREADS) void widen(
    const __grid_constant__ Outside v, const float* x, Order places, i64 n, const double* size, double scale, u64* most, const u32* active) {
    begin();
    widened<false>(v, x, places, n, size, scale, most, active);
}
extern "C" __global__ __launch_bounds__(THREADS) void widen_dot(
    const __grid_constant__ Outside v, const float* x, Order places, i64 n, const double* size, double scale, u64* most, const u32* active,
    const __grid_constant__ Sums sums) {
    begin();
    real sum[1] = {widened<true>(v, x, places, n, size, scale, most, active)};
    Sum out = sums.of[v.own()];
    // a cycle on several columns never runs on several GPUs: sum on this one only
    if (VECTORS > 1) out.team = nullptr;
    grid_sum(sum, out);
}
