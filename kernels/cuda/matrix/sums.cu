// Exclusive prefix sums over the threads of a block, for kernels that compact arrays.

// Returns the sum over the preceding threads of the block; `all` receives the sum over all threads.
__device__ __forceinline__ u32 sum_before(u32 own, u32& all) {
    __shared__ u32 warps[THREADS / 32];
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 sum = own;
#pragma unroll
    for (u32 step = 1; step < 32; step *= 2) {
        const u32 before = __shfl_up_sync(ALL, sum, step);
        if (lane >= step) sum += before;
    }
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    u32 before = 0;
    all = 0;
#pragma unroll
    for (u32 w = 0; w < THREADS / 32; w++) {
        if (w < warp) before += warps[w];
        all += warps[w];
    }
    __syncthreads();
    return before + sum - own;
}
