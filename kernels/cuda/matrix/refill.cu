// Replaces the values of a matrix by values on the device, given in the order of the entries from which the matrix was
// made.
//
// A map holds for each slot (position in a format's value array, perhaps padding) 1 + the index of its value among the
// caller's values, or 0 for padding. To compute the map, indices are copied into the slots instead of values and read
// back, with as many bits at a time as the storage type represents exactly.
//
// The values of neighbouring slots are mostly close together. A tile of slots loads each sector of 32 B that has values
// for it once, into shared memory; a slot then has a 16-bit index into the loaded sectors.
//
// A refill moves, for each slot, its value and a 2-byte index; for each sector of a tile, 32 B and a 4-byte index. If
// instead each slot loaded its value directly, with an index of 4 B, every sector would be loaded several times, and a
// warp would load 32 sectors that are far apart. Times for 100M slots of a permuted matrix on an H200 (f64), with tiles
// and without: rows of 15 entries in slices 0.63 ms and 0.77, dense blocks of three rows 0.60 and 1.08, dense blocks of
// a symmetric matrix, where half of the values have no slot, 0.72 and 1.09; for matrices that are not permuted 0.50 to
// 0.62 and 0.51 to 0.67. With half as many slots per tile and half as many threads, the permuted matrices take 0.63,
// 0.63 and 0.73. For p1_100M_perm and el3_100M_perm, reordered, a refill takes 0.45 to 0.58 ms in all formats, as long
// as 1.2 to 3.3 products.

// Writes to each entry some bits of 1 + the index of its value: from[entry] or, if `from` is null, the entry's own
// index.
extern "C" __global__ __launch_bounds__(THREADS) void refill_number(const u32* from, i64 count, u32 shift, u32 mask, real* entries) {
    begin();
    const i64 threads = (i64)gridDim.x * blockDim.x;
    for (i64 entry = (i64)blockIdx.x * blockDim.x + threadIdx.x; entry < count; entry += threads) {
        const u32 number = (from ? from[entry] : u32(entry)) + 1;
        entries[entry] = real(number >> shift & mask);
    }
}

// slots[k] ← values[places[k]], or zero if `places[k]` is not below `given`, the number of values.
extern "C" __global__ __launch_bounds__(THREADS) void refill_places(
    const u32* places, i64 count, const real* values, u32 given, real* slots
) {
    begin();
    const i64 threads = (i64)gridDim.x * blockDim.x;
    for (i64 slot = (i64)blockIdx.x * blockDim.x + threadIdx.x; slot < count; slot += threads) {
        const u32 place = places[slot];
        slots[slot] = place < given ? values[place] : real(0);
    }
}

// Reads bits of indices back from the slots, and adds them to the map, shifted to their position.
extern "C" __global__ __launch_bounds__(THREADS) void refill_map(const stored* slots, i64 count, u32 shift, u32* map) {
    begin();
    const i64 threads = (i64)gridDim.x * blockDim.x;
    for (i64 slot = (i64)blockIdx.x * blockDim.x + threadIdx.x; slot < count; slot += threads) {
        map[slot] |= u32(real(slots[slot])) << shift;
    }
}

// Sums duplicates in the order given, as the host does.
extern "C" __global__ __launch_bounds__(THREADS) void refill_sum(RowStarts starts, const u32* from, const real* given, real* sums) {
    begin();
    const i64 threads = (i64)gridDim.x * blockDim.x;
    for (i64 entry = (i64)blockIdx.x * blockDim.x + threadIdx.x; entry < starts.count; entry += threads) {
        const i64 first = starts.start(entry), end = starts.start(entry + 1);
        real sum = first < end ? given[from[first]] : real(0);
        for (i64 k = first + 1; k < end; k++) sum += given[from[k]];
        sums[entry] = sum;
    }
}

// Number of values per sector.
constexpr u32 PER_SECTOR = SECTOR / sizeof(real);
// Index of a slot of padding.
constexpr u32 NOWHERE = 0xffff;

struct Tiles {
    u32* counts;              // number of sectors of each tile
    u32* sectors;             // sector indices of each tile, ascending; `most` words for each tile
    u16* places;              // of each slot: index into the values of its tile's sectors
    u32 tile, most;           // slots per tile (a power of two), and maximum number of sectors per tile
    i64 slots;
};

extern __shared__ __align__(16) unsigned char shared_memory[];

// Finds the sectors of each tile from the map of its slots. If `sectors` is null, only counts them.
extern "C" __global__ __launch_bounds__(THREADS) void refill_tiles(const u32* map, Tiles tiles) {
    begin();
    // for each slot of the tile: the sector of its value, or ALL; then sorted
    u32* const keys = (u32*)shared_memory;
    // the distinct sectors
    u32* const unique = keys + tiles.tile;
    // for each thread: number of distinct sectors in its share of the keys
    __shared__ u32 before[THREADS];
    for (i64 tile = blockIdx.x; tile * tiles.tile < tiles.slots; tile += gridDim.x) {
        const i64 first = tile * tiles.tile;
        const auto number = [&](u32 i) { return first + i < tiles.slots ? map[first + i] : 0; };
        for (u32 i = threadIdx.x; i < tiles.tile; i += blockDim.x) keys[i] = number(i) ? (number(i) - 1) / PER_SECTOR : ALL;
        __syncthreads();
        // bitonic sort (Batcher)
        for (u32 sorted = 2; sorted <= tiles.tile; sorted *= 2) {
            for (u32 apart = sorted / 2; apart; apart /= 2) {
                for (u32 i = threadIdx.x; i < tiles.tile; i += blockDim.x) {
                    const u32 other = i ^ apart, low = keys[i], high = keys[other];
                    if (other > i && (low > high) == !(i & sorted)) keys[i] = high, keys[other] = low;
                }
                __syncthreads();
            }
        }
        const u32 share = tiles.tile / blockDim.x, from = threadIdx.x * share;
        const auto opens = [&](u32 i) { return keys[i] != ALL && (i == 0 || keys[i - 1] != keys[i]); };
        u32 mine = 0;
        for (u32 i = from; i < from + share; i++) mine += opens(i);
        before[threadIdx.x] = mine;
        __syncthreads();
        u32 at = 0, count = 0;
        for (u32 i = 0; i < blockDim.x; i++) at += i < threadIdx.x ? before[i] : 0, count += before[i];
        if (threadIdx.x == 0) tiles.counts[tile] = count;
        if (tiles.sectors) {
            for (u32 i = from; i < from + share; i++) {
                if (opens(i)) unique[at++] = keys[i];
            }
            __syncthreads();
            for (u32 i = threadIdx.x; i < count; i += blockDim.x) tiles.sectors[tile * tiles.most + i] = unique[i];
            for (u32 i = threadIdx.x; i < tiles.tile && first + i < tiles.slots; i += blockDim.x) {
                const u32 wanted = (number(i) - 1) / PER_SECTOR;
                u32 low = 0, high = count;
                while (low < high) {
                    const u32 middle = (low + high) / 2;
                    if (unique[middle] < wanted) low = middle + 1; else high = middle;
                }
                tiles.places[first + i] = number(i) ? low * PER_SECTOR + (number(i) - 1) % PER_SECTOR : NOWHERE;
            }
        }
        __syncthreads();
    }
}

// Starts an asynchronous copy of 16 B, or of fewer at the end of the values, into shared memory; `gathered` waits for
// it.
__device__ __forceinline__ void gather_pack(real* to, const real* given, i64 from, i64 count) {
#if __CUDA_ARCH__ >= 800
    if (from + PACK <= count) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(given + from) : "memory");
        return;
    }
#endif
    for (i64 i = from; i < min(from + PACK, count); i++) to[i - from] = given[i];
}

// Number of pairs of neighbouring slots that a thread processes.
constexpr u32 PAIRS = REFILL_SLOTS<0> / (2 * REFILL_THREADS);

// Writes the values of all slots; one thread block per tile.
extern "C" __global__ __launch_bounds__(REFILL_THREADS) void refill(Tiles tiles, const real* given, i64 count, stored* slots) {
    begin();
    constexpr u32 PACKS = SECTOR / PACK_BYTES;
    // the values in the tile's sectors
    real* const window = (real*)shared_memory;
    const i64 first = (i64)blockIdx.x * tiles.tile, end = min(first + tiles.tile, tiles.slots);
    const u32* sectors = tiles.sectors + (i64)blockIdx.x * tiles.most;
    const u32 packs = __ldg(tiles.counts + blockIdx.x) * PACKS;
    // load `most` sectors, because the number of sectors of this tile is not known yet
#pragma unroll 4
    for (u32 i = threadIdx.x; i < tiles.most * PACKS; i += REFILL_THREADS) {
        const i64 from = (i64)__ldg(sectors + i / PACKS) * PER_SECTOR + i % PACKS * PACK;
        if (i < packs) gather_pack(window + i * PACK, given, from, count);
    }
    Few<u16, 2> place[PAIRS];
    const i64 slot = first + 2 * threadIdx.x;
#pragma unroll
    for (u32 k = 0; k < PAIRS; k++) {
        if (slot + 2 * k * REFILL_THREADS + 1 < end) place[k] = stream((const Few<u16, 2>*)(tiles.places + slot + 2 * k * REFILL_THREADS));
    }
    gathered();
    const auto at = [&](u32 place) { return place == NOWHERE ? real(0) : window[place]; };
#pragma unroll
    for (u32 k = 0; k < PAIRS; k++) {
        if (slot + 2 * k * REFILL_THREADS + 1 >= end) break;
        Few<stored, 2> two;
#pragma unroll
        for (int i = 0; i < 2; i++) two.at[i] = at(place[k].at[i]);
        *(Few<stored, 2>*)(slots + slot + 2 * k * REFILL_THREADS) = two;
    }
    if (end % 2 && threadIdx.x == 0) slots[end - 1] = at(tiles.places[end - 1]);
}

// Copies entries to values that are stored in the same order; in the opposite direction if `back`.
extern "C" __global__ __launch_bounds__(THREADS) void refill_in_order(real* entries, i64 count, stored* values, u32 back) {
    begin();
    const i64 threads = (i64)gridDim.x * blockDim.x;
    for (i64 entry = (i64)blockIdx.x * blockDim.x + threadIdx.x; entry < count; entry += threads) {
        copy_value(entries[entry], values[entry], back);
    }
}
