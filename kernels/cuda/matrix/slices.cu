// Cuts rows into slices, fills the slices from entries in CSR order, and copies values back. sliced_rows.cu describes
// the order of slots (stored positions, including padding).
//
// One warp per slice, as in the products. Memory traffic: each array that a kernel reads or writes, once.

struct Slices {
    const u32* starts;        // first group of each slice, and the end; null if all have `width` groups
    const u32* order;         // row at each place (position in the sorted order); null if rows are not sorted
    u32 rows, count, width;
    u32 lanes;                // lanes per row
    u32 pack;                 // number of consecutive slots of a lane
    u32 longest;              // maximum number of entries per row in slices; the others are stored elsewhere
};

constexpr u32 PADDING = ~0u;
constexpr u16 SHORT_PADDING = u16(~u16(0));
constexpr i64 NO_ENTRY = -1;

// Calls visit(slot, set, entry) for every slot, where `set` is the index of the 32 slots that a warp visits together,
// and `entry` is NO_ENTRY for padding. All lanes of a warp call it together.
template <class Visit> __device__ __forceinline__ void each_slot(const Slices& a, const RowStarts& rows, Visit visit) {
    const u32 lane = threadIdx.x % 32, rows_of_slice = 32 / a.lanes, warps = gridDim.x * (blockDim.x / 32);
    for (i64 slice = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; slice < a.count; slice += warps) {
        const i64 place = slice * rows_of_slice + lane / a.lanes;
        i64 first = 0, length = 0;
        if (place < a.rows) {
            const i64 row = a.order ? a.order[place] : place;
            first = rows.start(row);
            length = rows.start(row + 1) - first;
            if (length > a.longest) length = a.longest;
        }
        i64 group = slice * a.width, end = group + a.width;
        if (a.starts) {
            group = a.starts[slice];
            end = a.starts[slice + 1];
        }
        for (i64 at = (i64)(lane % a.lanes) * a.pack; group < end; group++, at += a.lanes * a.pack) {
#pragma unroll 1
            for (u32 k = 0; k < a.pack; k++) {
                const i64 entry = at + k < length ? first + at + k : NO_ENTRY;
                visit((group * 32 + lane) * a.pack + k, group * a.pack + k, entry);
            }
        }
    }
}

// ---- partition of rows

// Lengths from LENGTHS − 1 on have equal sort keys, apart from the low bits of a key, which hold the row's index in the
// window.
constexpr u32 LENGTHS = 1 << 22;
constexpr u32 KEYS = 1024;
static_assert(SORTED_ROWS <= KEYS, "10 bits below 22");

// Computes the number of groups of each slice, with narrow loads (`one`) and with wide ones of `pack` slots (`all`), in
// a window of `count` rows with these lengths, from row `first` on; adds the totals to `sums[0]` and `sums[1]`.
__device__ __forceinline__ void groups_of(
    const u32* lengths, u64 first, u32 count, u32 lanes, u32 pack, u32* one, u32* all, u64* sums) {
    const u32 height = 32 / lanes;
    for (u32 i = threadIdx.x; i < SORTED_ROWS; i += blockDim.x) {
        u32 longest = i < count ? lengths[i] : 0;
        for (u32 step = height / 2; step; step /= 2) {
            const u32 other = __shfl_xor_sync(ALL, longest, step);
            if (other > longest) longest = other;
        }
        if (i % height || i >= count) continue;
        const u64 slice = (first + i) / height;
        one[slice] = (longest + lanes - 1) / lanes;
        all[slice] = (longest + lanes * pack - 1) / (lanes * pack);
        atomicAdd(sums, (u64)one[slice]);
        atomicAdd(sums + 1, (u64)all[slice]);
    }
}

// Sorts KEYS keys with a thread block: bitonic sort (Batcher 1968).
__device__ __forceinline__ void put_in_order(u32* keys) {
    for (u32 size = 2; size <= KEYS; size *= 2) {
        for (u32 apart = size / 2; apart; apart /= 2) {
            for (u32 pair = threadIdx.x; pair < KEYS / 2; pair += blockDim.x) {
                const u32 low = pair / apart * 2 * apart + pair % apart, a = keys[low], b = keys[low + apart];
                // sorted runs alternate between ascending and descending; the last one ascends
                if (a > b == !(low & size)) {
                    keys[low] = b;
                    keys[low + apart] = a;
                }
            }
            __syncthreads();
        }
    }
}

// Computes the number of groups of each slice for rows in the given order and, if `sort`, for rows sorted by descending
// length (stable), in which case `order` receives the row at each place: with narrow loads (`one`, `one_sorted`) and
// with wide ones (`all`, `all_sorted`). Adds the four sums to `totals`. One block per window of SORTED_ROWS rows, whose
// lengths and sort keys are in shared memory. Reads the offsets, and writes 4 B a row and 16 B a slice.
extern "C" __global__ __launch_bounds__(THREADS) void slices_cut(
    RowStarts rows, u32 lanes, u32 pack, u32 sort, u32* order, u32* one, u32* all, u32* one_sorted, u32* all_sorted, u64* totals) {
    begin();
    __shared__ u32 lengths[SORTED_ROWS], keys[KEYS];
    __shared__ u64 sums[4];
    if (threadIdx.x < 4) sums[threadIdx.x] = 0;
    for (u64 first = (u64)blockIdx.x * SORTED_ROWS; first < rows.count; first += (u64)gridDim.x * SORTED_ROWS) {
        const u32 count = rows.count - first < SORTED_ROWS ? u32(rows.count - first) : SORTED_ROWS;
        for (u32 i = threadIdx.x; i < SORTED_ROWS; i += blockDim.x) {
            const u32 length = i < count ? u32(rows.start(first + i + 1) - rows.start(first + i)) : 0;
            lengths[i] = length;
            // a longer row has a smaller key, and all keys are distinct
            const u32 rest = i >= count ? LENGTHS - 1 : length < LENGTHS ? LENGTHS - 1 - length : 0;
            keys[i] = rest << 10 | i;
        }
        for (u32 i = SORTED_ROWS + threadIdx.x; i < KEYS; i += blockDim.x) keys[i] = ALL;
        __syncthreads();
        groups_of(lengths, first, count, lanes, pack, one, all, sums);
        if (sort) {
            put_in_order(keys);
            for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
                const u32 place = keys[i] % KEYS;
                order[first + i] = u32(first + place);
                keys[i] = lengths[place];
            }
            __syncthreads();
            groups_of(keys, first, count, lanes, pack, one_sorted, all_sorted, sums + 2);
        }
        // all threads must have read these arrays before the next iteration overwrites them
        __syncthreads();
    }
    if (threadIdx.x < 4) atomicAdd(totals + threadIdx.x, sums[threadIdx.x]);
}

// ---- columns and values

// Writes the columns of all slots in 32 bits.
extern "C" __global__ __launch_bounds__(THREADS) void slices_wide(Slices a, RowStarts rows, const u32* columns, u32* slots) {
    begin();
    each_slot(a, rows, [&](i64 slot, i64, i64 entry) { slots[slot] = entry != NO_ENTRY ? columns[entry] : PADDING; });
}

// Writes columns as offsets from the smallest of the 32 columns that a warp reads together, and these smallest columns
// to `bases`; sets `misfit` if an offset needs more than 16 bits.
extern "C" __global__ __launch_bounds__(THREADS) void slices_short(
    Slices a, RowStarts rows, const u32* columns, u32* bases, u16* slots, u32* misfit) {
    begin();
    // if `misfit` is set, wide columns will be used
    if (*(volatile u32*)misfit) return;
    each_slot(a, rows, [&](i64 slot, i64 read, i64 entry) {
        const u32 column = entry != NO_ENTRY ? columns[entry] : PADDING;
        u32 base = column;
#pragma unroll
        for (int step = 16; step; step /= 2) {
            const u32 other = __shfl_xor_sync(ALL, base, step);
            if (other < base) base = other;
        }
        // write only if the flag is not set yet, because writes to one address serialize
        if (__any_sync(ALL, column != PADDING && column - base >= SHORT_PADDING) && threadIdx.x % 32 == 0 && !*(volatile u32*)misfit) *misfit = 1;
        slots[slot] = column != PADDING ? u16(column - base) : SHORT_PADDING;
        if (threadIdx.x % 32 == 0) bases[read] = base != PADDING ? base : 0;
    });
}

// Writes the column of each entry in CSR order, from 16-bit `offsets` and `bases` or, if `bases` is null, from `wide`.
extern "C" __global__ __launch_bounds__(THREADS) void slices_columns(
    Slices a, RowStarts rows, const u32* bases, const u32* wide, const u16* offsets, u32* columns) {
    begin();
    each_slot(a, rows, [&](i64 slot, i64 read, i64 entry) {
        if (entry == NO_ENTRY) return;
        const bool none = bases ? offsets[slot] == SHORT_PADDING : wide[slot] == PADDING;
        columns[entry] = none ? 0 : bases ? bases[read] + offsets[slot] : wide[slot];
    });
}

// Copies values from CSR entries to slots, times a factor; padding is set to zero.
extern "C" __global__ __launch_bounds__(THREADS, 6) void slices_scale_values(Slices a, RowStarts rows, const real* entries, real factor, stored* slots) {
    begin();
    each_slot(a, rows, [&](i64 slot, i64, i64 entry) { slots[slot] = entry != NO_ENTRY ? entries[entry] * factor : real(0); });
}

// Copies values from CSR entries to slots, with zeros for padding; in the opposite direction if `back`.
extern "C" __global__ __launch_bounds__(THREADS) void slices_copy_values(Slices a, RowStarts rows, real* entries, stored* slots, u32 back) {
    begin();
    each_slot(a, rows, [&](i64 slot, i64, i64 entry) {
        if (entry != NO_ENTRY) {
            copy_value(entries[entry], slots[slot], back);
        } else if (!back) {
            slots[slot] = 0;
        }
    });
}
