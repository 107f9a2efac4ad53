// The pattern of a square matrix as a graph; shared by the kernels that compute orderings.


struct Graph {
    RowStarts rows;
    const u32* columns;
    u32 longest;              // rows with more entries count as empty

    // Returns the start of a vertex's adjacency list, which may include the vertex itself; `count` receives its length.
    __device__ __forceinline__ i64 neighbours(u32 vertex, u32& count) const {
        const i64 start = rows.start(vertex), length = rows.start((i64)vertex + 1) - start;
        count = length > longest ? 0 : (u32)length;
        return start;
    }
};

// Pseudo-random bits (the 32-bit finalizer of MurmurHash3).
__device__ __forceinline__ u32 scrambled(u32 bits) {
    bits = (bits ^ bits >> 16) * 0x85ebca6bu;
    bits = (bits ^ bits >> 13) * 0xc2b2ae35u;
    return bits ^ bits >> 16;
}

__device__ __forceinline__ u64 warp_max(u64 v) {
#pragma unroll
    for (int step = 16; step; step >>= 1) {
        const u64 other = __shfl_xor_sync(ALL, v, step);
        v = other > v ? other : v;
    }
    return v;
}

// Counters for up to 32 keys, one per lane of a warp; further keys are ignored.
struct Tally {
    u32 key = NONE, sum = 0, len = 0;

    // Counts the keys of all lanes, except NONE: adds one to the counter of each lane's key. New keys are stored in the
    // order of lanes.
    __device__ __forceinline__ void add(u32 of_lane) {
        const u32 lane = threadIdx.x % 32;
        u32 rest = __ballot_sync(ALL, of_lane != NONE);
        while (rest) {
            const u32 next = __shfl_sync(ALL, of_lane, __ffs(rest) - 1);
            const u32 same = __ballot_sync(ALL, of_lane == next);
            const bool known = __ballot_sync(ALL, key == next) != 0;
            if (known ? key == next : lane == len) {
                key = next;
                sum += __popc(same);
            }
            if (!known && len < 32) len++;
            rest &= ~same;
        }
    }
};
