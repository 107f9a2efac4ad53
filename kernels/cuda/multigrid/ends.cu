// What goes into a V-cycle and what comes out: single precision, scaled so that the largest entry is near one.

// Entries of a thread that are asked for before the first is used: the compiler would not ask past what is written.
constexpr int TOGETHER = 4;

// Whether a solve has ended: what is queued behind is for nothing. `active` is null outside of steps.
__device__ __forceinline__ bool ended(const u32* active) { return active && !*(volatile const u32*)active; }

// The bits of the largest |r_i|, by their order that of the numbers; more than those of infinity if one is not a number.
// Moves an element a row.
extern "C" __global__ __launch_bounds__(THREADS) void largest(const real* r, i64 n, u64* most, const u32* active) {
    begin();
    if (ended(active)) return;
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
        atomicMax(most, own);
    }
}

// The power of two below a number of these bits; one where there is none.
__device__ __forceinline__ double power_below(u64 bits) {
    const u64 exponent = bits >> 52;
    return exponent == 0 || exponent >= 0x7ff ? 1.0 : __longlong_as_double(exponent << 52);
}

// Whether a cycle is for nothing: its solve has ended, or will with this step, whose ‖r‖² meets the threshold.
struct Ends {
    const Control* control;   // null outside of steps
    u32 known;                // whether `squared` is ‖r‖²
    Number squared;
    u32* goes_on;             // as `active` for the kernels behind
};

// b ← r / size, x ← weight d b where d is; `size` is kept for `widen`. Rows of `r` come in an order. Moves an element and 4 or 12 B a row.
extern "C" __global__ __launch_bounds__(THREADS) void narrow(
    const real* r, Order order, i64 n, const u64* most, double* size, float* b, const float* d, float weight, float* x, Ends ends) {
    begin();
    if (ends.control) {
        bool goes_on = *(volatile const u32*)&ends.control->active;
        // as `end_step` has it
        if (ends.known) {
            const real squared = value(ends.squared);
            goes_on = goes_on && finite(squared) && squared > *(volatile const double*)&ends.control->threshold;
        }
        if (blockIdx.x == 0 && threadIdx.x == 0) *ends.goes_on = goes_on;
        if (!goes_on) return;
    }
    const double of = power_below(*most), down = 1.0 / of;
    if (blockIdx.x == 0 && threadIdx.x == 0) *size = of;
    const i64 threads = (i64)gridDim.x * blockDim.x;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += TOGETHER * threads) {
        real v[TOGETHER];
        float of_diagonal[TOGETHER];
#pragma unroll
        for (int k = 0; k < TOGETHER; k++) {
            const i64 at = i + k * threads;
            v[k] = at < n ? r[order.at(at)] : real(0);
            of_diagonal[k] = d && at < n ? d[at] : 0.0f;
        }
#pragma unroll
        for (int k = 0; k < TOGETHER; k++) {
            const i64 at = i + k * threads;
            if (at >= n) break;
            const float own = float(double(v[k]) * down);
            b[at] = own;
            if (d) x[at] = weight * of_diagonal[k] * own;
        }
    }
}

// z ← scale size x, whose rows are at other places; `most` is zero for the next cycle. Returns ⟨r, z⟩ of this thread if DOT. Moves 4 B and an element a row, two
// if DOT.
template <bool DOT> __device__ __forceinline__ real widened(
    const float* x, Order places, i64 n, const double* size, double scale, const real* r, real* z, u64* most, const u32* active) {
    if (blockIdx.x == 0 && threadIdx.x == 0) *most = 0;
    if (ended(active)) return 0;
    const double up = scale * *size;
    const i64 threads = (i64)gridDim.x * blockDim.x;
    real sum = 0;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += TOGETHER * threads) {
        float v[TOGETHER];
        real of_r[TOGETHER];
#pragma unroll
        for (int k = 0; k < TOGETHER; k++) {
            const i64 at = i + k * threads;
            v[k] = at < n ? x[places.at(at)] : 0.0f;
            of_r[k] = DOT && at < n ? r[at] : real(0);
        }
#pragma unroll
        for (int k = 0; k < TOGETHER; k++) {
            const i64 at = i + k * threads;
            if (at >= n) break;
            const real own = real(double(v[k]) * up);
            z[at] = own;
            if (DOT) sum += of_r[k] * own;
        }
    }
    return sum;
}
extern "C" __global__ __launch_bounds__(THREADS) void widen(
    const float* x, Order places, i64 n, const double* size, double scale, const real* r, real* z, u64* most, const u32* active) {
    begin();
    widened<false>(x, places, n, size, scale, r, z, most, active);
}
extern "C" __global__ __launch_bounds__(THREADS) void widen_dot(
    const float* x, Order places, i64 n, const double* size, double scale, const real* r, real* z, u64* most, const u32* active, Sum out) {
    begin();
    real sum[1] = {widened<true>(x, places, n, size, scale, r, z, most, active)};
    grid_sum(sum, out);
}
