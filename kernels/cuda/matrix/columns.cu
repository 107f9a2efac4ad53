// Several vectors that a matrix is multiplied with together: the columns of X and Y in Y = A X, each in a separate
// array.

struct Columns {
    const real* x[COLUMNS];
    real* y[COLUMNS];
    u32 count;                // number of columns, at least one
    u32 width;                // numbers per packed row: a power of two, at least `count`
};

// In shared memory, for each warp of a block and each column: the sum over the warp's threads.
typedef real WarpParts[32][COLUMNS];

// Adds the parts of all warps and blocks for each column, as `grid_sum` does. Columns are collected one after the
// other, because registers do not suffice for the parcels of all columns.
__device__ __forceinline__ void sum_warps(const WarpParts& parts, u32 count, const Sum& sum) {
    const u32 call = *(volatile u32*)sum.calls + 1;
    __syncthreads();
    if (threadIdx.x < count) {
        real total = 0;
        for (u32 warp = 0; warp < blockDim.x / 32; warp++) total += parts[warp][threadIdx.x];
        send(sum.parcels + (u64)threadIdx.x * gridDim.x + blockIdx.x, total, call);
    }
    if (blockIdx.x != gridDim.x - 1) return;
#pragma unroll 1
    for (u32 k = 0; k < count; k++) {
        real total[1] = {};
        collect(total, sum.parcels + (u64)k * gridDim.x, call);
        block_sum(total);
        if (threadIdx.x == 0) {
            if (sum.team) sum_in_team(*sum.team, total);
            // select with constant indices: an index known at run time only would move the struct to local memory
            real* result = sum.results[0];
#pragma unroll
            for (u32 j = 1; j < COLUMNS; j++) result = j == k ? sum.results[j] : result;
            *result = total[0];
        }
    }
    if (threadIdx.x == 0) *sum.calls = call;
}
// Sums ⟨x, y⟩ of each column over the grid; every thread has a part of each sum.
__device__ __forceinline__ void sum_columns(real (&xy)[COLUMNS], u32 count, const Sum& sum) {
    __shared__ WarpParts parts;
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) {
        const real v = warp_sum(xy[j]);
        if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32][j] = v;
    }
    sum_warps(parts, count, sum);
}
