// Sorts rows by class (a stable counting sort), for kernels that each process the rows of one class.
//
// Each block has a contiguous share of the rows. It counts its rows of each class; in a second kernel it places its
// rows after all rows of earlier classes and after the rows of the same class in earlier blocks. Memory traffic: the
// class of each row (1 B) twice, its index (4 B) once, and the counts of each block.

typedef unsigned char u8;

constexpr u32 WARPS = THREADS / 32;

// Counts the rows of each class: the count of class c in the share of block p is stored at c · blocks + p.
extern "C" __global__ __launch_bounds__(THREADS) void class_count(const u8* classes, u32 rows, u32 share, u32* counts) {
    begin();
    // number of rows of each class in this block's share
    __shared__ u32 own[CLASSES];
    if (threadIdx.x < CLASSES) own[threadIdx.x] = 0;
    __syncthreads();
    const u64 first = (u64)blockIdx.x * share, end = first + share < rows ? first + share : rows;
    for (u64 row = first + threadIdx.x; row < end; row += blockDim.x) atomicAdd(own + classes[row], 1u);
    __syncthreads();
    if (threadIdx.x < CLASSES) counts[threadIdx.x * gridDim.x + blockIdx.x] = own[threadIdx.x];
}

// Writes the rows of each class to `list`, and the start of each class, and the end, to `starts`.
extern "C" __global__ __launch_bounds__(THREADS) void class_place(
    const u8* classes, u32 rows, u32 share, const u32* counts, u32* starts, u32* list) {
    begin();
    // for each class. next: position in `list` of the block's next row of the class; all: number of its rows in all
    // blocks; of_warps: number of its rows in each warp, then the position of the first of them
    __shared__ u32 next[CLASSES], all[CLASSES], of_warps[WARPS][CLASSES];
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (u32 c = warp; c < CLASSES; c += WARPS) {
        u32 before = 0, sum = 0;
        for (u32 p = lane; p < gridDim.x; p += 32) {
            const u32 count = counts[c * gridDim.x + p];
            sum += count;
            if (p < blockIdx.x) before += count;
        }
#pragma unroll
        for (int step = 16; step; step /= 2) {
            before += __shfl_xor_sync(ALL, before, step);
            sum += __shfl_xor_sync(ALL, sum, step);
        }
        if (lane == 0) {
            next[c] = before;
            all[c] = sum;
        }
    }
    __syncthreads();
    if (threadIdx.x < CLASSES) {
        u32 start = 0;
        for (u32 c = 0; c < threadIdx.x; c++) start += all[c];
        next[threadIdx.x] += start;
        if (blockIdx.x == 0) starts[threadIdx.x] = start;
        if (blockIdx.x == 0 && threadIdx.x == CLASSES - 1) starts[CLASSES] = rows;
    }
    const u64 first = (u64)blockIdx.x * share, end = first + share < rows ? first + share : rows;
    for (u64 base = first; base < end; base += blockDim.x) {
        const u64 row = base + threadIdx.x;
        // a thread without a row belongs to no class
        const u32 own = row < end ? classes[row] : CLASSES, same = __match_any_sync(ALL, own);
        of_warps[warp][lane] = 0;
        __syncwarp();
        const u32 rank = __popc(same & ((1u << lane) - 1));
        if (rank == 0 && own < CLASSES) of_warps[warp][own] = __popc(same);
        __syncthreads();
        if (threadIdx.x < CLASSES) {
            u32 place = next[threadIdx.x];
            for (u32 w = 0; w < WARPS; w++) {
                const u32 count = of_warps[w][threadIdx.x];
                of_warps[w][threadIdx.x] = place;
                place += count;
            }
            next[threadIdx.x] = place;
        }
        __syncthreads();
        if (own < CLASSES) list[of_warps[warp][own] + rank] = (u32)row;
        // all threads must have read these counts before the next iteration overwrites them
        __syncthreads();
    }
}
