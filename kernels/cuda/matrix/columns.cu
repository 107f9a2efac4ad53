// Several vectors that a matrix multiplies together: the columns of X and Y in Y = A X, each stored by itself.

struct Columns {
    const real* x[COLUMNS];
    real* y[COLUMNS];
    u32 count;                // columns, at least one
    u32 width;                // places of a packed row: a power of two, at least `count`
};

// Sums over the threads of a warp of each column; `parts` is in shared memory.
typedef real WarpParts[32][COLUMNS];

// Adds up the parts of all warps and blocks for each column, as `grid_sum` does. Parts of a column are collected one column
// after the other, because parcels of all columns at once would exceed the registers.
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
            // selected from constants: an index known at run time would move the struct to local memory
            real* result = sum.results[0];
#pragma unroll
            for (u32 j = 1; j < COLUMNS; j++) result = j == k ? sum.results[j] : result;
            *result = total[0];
        }
    }
    if (threadIdx.x == 0) *sum.calls = call;
}
// Adds up ⟨x, y⟩ of all columns over the grid; every thread has a part of each.
__device__ __forceinline__ void sum_columns(real (&xy)[COLUMNS], u32 count, const Sum& sum) {
    __shared__ WarpParts parts;
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) {
        const real v = warp_sum(xy[j]);
        if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32][j] = v;
    }
    sum_warps(parts, count, sum);
}
