// Tiles of equal numbers of consecutive entries, independent of rows, for kernels that cut a matrix by entries. Each
// lane of a warp has OF_LANE consecutive entries of a tile.

constexpr int WARPS = THREADS / 32;
// Column index of positions after the last entry.
constexpr u32 BEYOND = NONE - 1;

// A lane's entries of a tile that is entirely within the array.
template <class X> __device__ __forceinline__ Few<X, OF_LANE> of_lane(const X* array, i64 tile, u32 lane) {
    constexpr int WIDE = 16 / sizeof(X) < OF_LANE ? 16 / sizeof(X) : OF_LANE;
    const Few<X, WIDE>* loads = (const Few<X, WIDE>*)array + (tile * 32 + lane) * (OF_LANE / WIDE);
    Few<X, OF_LANE> entries;
#pragma unroll
    for (int q = 0; q < OF_LANE / WIDE; q++) {
        const Few<X, WIDE> load = stream(loads + q);
#pragma unroll
        for (int k = 0; k < WIDE; k++) entries.at[q * WIDE + k] = load.at[k];
    }
    return entries;
}

// A lane's elements of a tile, from an array of `count` elements; `beyond` for those past its end.
template <class X>
__device__ __forceinline__ Few<X, OF_LANE> of_lane(const X* array, i64 tile, u32 lane, i64 count, X beyond) {
    if ((tile + 1) * TILE <= count) return of_lane(array, tile, lane);
    Few<X, OF_LANE> entries;
#pragma unroll
    for (int k = 0; k < OF_LANE; k++) {
        const i64 at = tile * TILE + lane * OF_LANE + k;
        entries.at[k] = at < count ? array[at] : beyond;
    }
    return entries;
}

// ---- rows that continue over several warps

// Each warp sends its part of a row that continues in the next warp; the warp in which the row ends waits for the parts
// of the previous warps, which started earlier. The receiver resets each part to empty for the next launch.
constexpr u32 SENT = 1;

// Receives the parts of a row from warps `first` to `end` (exclusive), and returns their sum, in a fixed order. Called
// by all lanes of a warp.
__device__ __forceinline__ real receive(Parcel* parts, i64 first, i64 end) {
    constexpr int AHEAD = 4;
    real sum = 0;
    for (i64 from = first + threadIdx.x % 32; from < end; from += 32 * AHEAD) {
        real part[AHEAD];
        bool all;
        do {
            all = true;
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                part[k] = 0;
                if (from + 32 * k < end) all &= received(parts + from + 32 * k, SENT, part[k]);
            }
        } while (!all);
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            if (from + 32 * k < end) parts[from + 32 * k] = {};
            sum += part[k];
        }
    }
    return warp_sum(sum);
}

// Calls mark(place, row) for the nonempty rows from `first` to `last` (inclusive) that begin in the tile whose first
// entry is `from`; `place` is the position of their first entry in the tile. Called by all lanes of a warp; each lane
// loads several row starts together.
template <class Mark> __device__ __forceinline__ void mark_rows(const RowStarts& rows, u32 first, u32 last, i64 from, Mark mark) {
    constexpr int AHEAD = 4;
    for (u32 at = first + threadIdx.x % 32; at <= last; at += 32 * AHEAD) {
        u32 place[AHEAD], length[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const u32 row = at + 32 * k;
            place[k] = TILE;
            length[k] = 0;
            if (row <= last && row < rows.count) {
                const i64 start = rows.start(row);
                place[k] = u32(start - from);
                length[k] = u32(rows.start(row + 1) - start);
            }
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            if (length[k] != 0 && place[k] < TILE) mark(place[k], at + 32 * k);
        }
    }
}

// Segmented inclusive scan over the lanes; segments begin at the lanes of the bit mask `restarts`.
__device__ __forceinline__ real scan_rows(real sum, u32 restarts) {
    const int lane = threadIdx.x % 32, start = 31 - __clz(restarts & (ALL >> (31 - lane)));
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const real before = __shfl_up_sync(ALL, sum, step);
        if (lane - step >= start) sum += before;
    }
    return sum;
}
