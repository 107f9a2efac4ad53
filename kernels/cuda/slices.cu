// Fills slices from entries that lie row by row, and gives these back. sliced.cu says where slots lie.
//
// A warp has a slice, as in the products. Moves what it reads and what it writes, once.

struct Slices {
    const u32* starts;        // of slices, in groups; null where all have `width` groups
    const u32* order;         // the row at each place; null where rows stand in order
    u32 rows, count, width;
    u32 lanes;                // of a row
    u32 pack;                 // neighbouring slots of a lane
    u32 longest;              // entries of a row, at most: the rest is stored elsewhere
};

constexpr u32 PADDING = ~0u;
constexpr u16 SHORT_PADDING = u16(~u16(0));
constexpr i64 NO_ENTRY = -1;

// visit(slot, which 32 of a warp it is of, entry): the lanes of a warp together.
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

extern "C" __global__ __launch_bounds__(256) void slices_wide(Slices a, RowStarts rows, const u32* columns, u32* slots) {
    begin();
    each_slot(a, rows, [&](i64 slot, i64, i64 entry) { slots[slot] = entry != NO_ENTRY ? columns[entry] : PADDING; });
}

// Columns as offsets from the smallest of the 32 that a warp reads at once; marks a matrix where these need more bits.
extern "C" __global__ __launch_bounds__(256) void slices_short(
    Slices a, RowStarts rows, const u32* columns, u32* bases, u16* slots, u32* misfit) {
    begin();
    each_slot(a, rows, [&](i64 slot, i64 read, i64 entry) {
        const u32 column = entry != NO_ENTRY ? columns[entry] : PADDING;
        u32 base = column;
#pragma unroll
        for (int step = 16; step; step /= 2) {
            const u32 other = __shfl_xor_sync(ALL, base, step);
            if (other < base) base = other;
        }
        if (column != PADDING && column - base >= SHORT_PADDING) *misfit = 1;
        slots[slot] = column != PADDING ? u16(column - base) : SHORT_PADDING;
        if (threadIdx.x % 32 == 0) bases[read] = base != PADDING ? base : 0;
    });
}

// Takes values from entries, zeros for padding, or gives them back.
extern "C" __global__ __launch_bounds__(256) void slices_exchange(Slices a, RowStarts rows, real* entries, stored* slots, u32 back) {
    begin();
    each_slot(a, rows, [&](i64 slot, i64, i64 entry) {
        if (entry != NO_ENTRY) {
            exchange(entries[entry], slots[slot], back);
        } else if (!back) {
            slots[slot] = 0;
        }
    });
}
