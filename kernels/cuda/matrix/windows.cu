// Halos of blocks of rows: the columns that a block reads outside the range of its own rows.

// Number of bits by which a 32-bit hash is shifted right to give an index of a block's hash table of columns.
constexpr int HASHED = 19;
static_assert(TABLE == 1 << 32 - HASHED, "a place for each hash");

// Finds the halo of each block of `height` rows. If `halo` is null, writes its length to `starts`; otherwise writes its
// columns, ascending, to `halo` from `starts` on. One thread block per block of rows. Sets `misfit` if a halo has more
// than `most` columns; `most` is at most half of the table. Memory traffic: 4 B an entry, and 4 B a column of a halo.
extern "C" __global__ __launch_bounds__(THREADS) void window_halos(
    RowStarts rows, const u32* columns, u32 height, u32 most, u32* starts, u32* halo, u32* misfit) {
    begin();
    // `table`: hash table of the distinct columns outside, later a list of them; `found`: number of columns; `taken`:
    // length of the list
    __shared__ u32 table[TABLE];
    __shared__ u32 found, taken;
    const i64 first = (i64)blockIdx.x * height, last = min((i64)rows.count, first + height);
    for (u32 i = threadIdx.x; i < TABLE; i += blockDim.x) table[i] = NONE;
    if (threadIdx.x == 0) found = taken = 0;
    __syncthreads();
    const i64 end = rows.start(last);
    for (i64 entry = rows.start(first) + threadIdx.x; entry < end; entry += blockDim.x) {
        const u32 column = __ldcs(columns + entry);
        if (column >= first && column < last) continue;
        u32 at = (column * 0x9e3779b9u) >> HASHED;
        // stop once there are too many columns; each thread may still add one, for which the table has space
        while (*(volatile u32*)&found <= most) {
            const u32 there = atomicCAS(table + at, NONE, column);
            if (there == NONE) atomicAdd(&found, 1u);
            if (there == NONE || there == column) break;
            at = (at + 1) % TABLE;
        }
    }
    __syncthreads();
    const u32 count = found;
    if (count > most) {
        if (threadIdx.x == 0) *misfit = 1;
        return;
    }
    if (!halo) {
        if (threadIdx.x == 0) starts[blockIdx.x] = count;
        return;
    }
    // compact the table in place, with all its columns in registers
    constexpr u32 HELD = TABLE / THREADS;
    u32 held[HELD];
#pragma unroll
    for (u32 i = 0; i < HELD; i++) held[i] = table[i * THREADS + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < HELD; i++) {
        if (held[i] != NONE) table[atomicAdd(&taken, 1u)] = held[i];
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
        const u32 column = table[i];
        u32 before = starts[blockIdx.x];
        for (u32 k = 0; k < count; k++) before += table[k] < column;
        halo[before] = column;
    }
}
