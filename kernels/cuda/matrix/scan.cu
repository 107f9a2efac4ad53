// Exclusive prefix sums in place, in three launches: each block sums its numbers, the sums of blocks are scanned, and
// each block scans its numbers.

// Computes the sum of each block's numbers. Memory traffic: 4 B a number.
extern "C" __global__ __launch_bounds__(THREADS) void sum_blocks(const u32* numbers, u32 count, u32* sums) {
    begin();
    const u64 first = (u64)blockIdx.x * NUMBERS_OF_BLOCK;
    u32 sum = 0, all;
    for (u64 i = first + threadIdx.x; i < first + NUMBERS_OF_BLOCK && i < count; i += THREADS) sum += numbers[i];
    sum_before(sum, all);
    if (threadIdx.x == 0) sums[blockIdx.x] = all;
}

// Replaces sums by their exclusive prefix sums, followed by the total. One block.
extern "C" __global__ __launch_bounds__(THREADS) void scan_sums(u32* sums, u32 count) {
    begin();
    u32 carried = 0;
    for (u32 base = 0; base < count; base += THREADS) {
        const u32 i = base + threadIdx.x;
        u32 all;
        const u32 before = sum_before(i < count ? sums[i] : 0, all);
        if (i < count) sums[i] = carried + before;
        carried += all;
    }
    if (threadIdx.x == 0) sums[count] = carried;
}

// Replaces numbers by their exclusive prefix sums: those within each block, plus the sum of earlier blocks. `numbers`
// has one more element, for the total. Memory traffic: 8 B a number.
extern "C" __global__ __launch_bounds__(THREADS) void scan_blocks(u32* numbers, u32 count, const u32* sums) {
    begin();
    const u64 first = (u64)blockIdx.x * NUMBERS_OF_BLOCK;
    u32 carried = sums[blockIdx.x];
    for (u64 base = first; base < first + NUMBERS_OF_BLOCK && base < count; base += THREADS) {
        const u64 i = base + threadIdx.x;
        u32 all;
        const u32 before = sum_before(i < count ? numbers[i] : 0, all);
        if (i < count) numbers[i] = carried + before;
        carried += all;
    }
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) numbers[count] = sums[gridDim.x];
}
