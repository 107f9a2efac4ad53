// Histogram of row lengths, from which the host finds a quantile without sorting the rows.
//
// Bin k counts the lengths from low + k 2^shift to low + (k + 1) 2^shift − 1; lengths below `low` are not counted,
// longer ones are counted in an overflow bin. Blocks count in shared memory and add to global memory once. Memory
// traffic: 4 or 8 B of offsets a row.

extern "C" __global__ __launch_bounds__(THREADS) void count_lengths(RowStarts rows, i64 low, u32 shift, u32* bins) {
    begin();
    __shared__ u32 counts[BINS + 1];
    for (u32 bin = threadIdx.x; bin <= BINS; bin += blockDim.x) counts[bin] = 0;
    __syncthreads();
    const i64 threads = (i64)gridDim.x * blockDim.x;
    for (i64 row = (i64)blockIdx.x * blockDim.x + threadIdx.x; row < rows.count; row += threads) {
        const i64 above = rows.start(row + 1) - rows.start(row) - low;
        if (above < 0) continue;
        const i64 bin = above >> shift;
        atomicAdd(counts + (bin < BINS ? bin : BINS), 1u);
    }
    __syncthreads();
    for (u32 bin = threadIdx.x; bin <= BINS; bin += blockDim.x) {
        if (counts[bin]) atomicAdd(bins + bin, counts[bin]);
    }
}
