// Compressed sparse rows by speculative segmented sums (Liu and Vinter): y_i ← Σ_k v_k x_{c_k}, from plain arrays. Nothing is
// prepared, and nothing of the matrix is stored twice.
//
// A bunch of threads, here a warp, walks tiles of 128 neighbouring entries:
//
//     boundaries of tiles are looked up among the places where rows start: rows [start, stop) end in the tile;
//     where rows begin, a descriptor in shared memory has a flag; the first entry of the tile has one always;
//     products are added up from flag to flag, and what the row before has so far to the first;
//     the k-th sum goes to y[start + k], as if every row had entries; the sum of a row that goes on, to the next tile;
//     a tile with fewer sums than rows is dirty: its range is recorded.
//
// Where a bunch's first row began in an earlier bunch, it is synchronised: each bunch sends what it has of the row that goes on,
// and the bunch in which the row ends waits for these parts and adds them up in order. (In the second stage, an H200 takes 0.0107 ms for
// 0.0089, dc2_like, f64.) The second stage, `speculative_finish`, moves the sums of dirty tiles to their rows and sets rows without
// entries to zero. Ranges come in any order and have no row in common, so every product is bitwise the same. The second stage
// tells the host whether there were any ranges: where the first product of a matrix found no tile dirty, later ones are one launch.
//
// Departures from the paper:
// 1. a dirty tile, too, hands the sum of its last row on, where the paper's listing drops it;
// 2. rows that began before the tile leave no flag, where the listing writes to a negative place;
// 3. a bunch that starts with a row writes it, where the listing adds it to what y held before; and what is synchronised is
//    written, not added;
// 4. rows before the first entry belong to the first tile, where the listing leaves them as they were;
// 5. the warp searches for the first row of its bunch together; other boundaries are met while it reads where rows start;
// 6. a tile of more rows than it can have entries is dirty for certain: its sums go to their rows at once, found where these
//    begin, and only zeros are left to the second stage, in ranges of ROWS_OF_RANGE rows;
// 7. tiles of 4 entries a lane and up to 16 of them for both elements, as coordinates take them (theirs: 8 or 4, and 7).
//
// Moves 12 B (f64) or 8 B (f32) an entry, 4 or 8 B of offsets a row, x and y; 16 B or 8 B a bunch; 8 B a dirty tile, and the
// offsets and y of its rows once more.

// What the first stage leaves to the second.
struct Unfinished {
    Parcel* parts;            // of each bunch: what it has of the row that goes on
    // where the host is the synchroniser, in place of parts:
    real* carries;            // of each bunch: of the row that began before, of the row that goes on
    u32* rows;                // that each bunch's first entry is of, where that row began before; NONE where it did not
    u32* counts;              // of ranges; of blocks of the second stage that are done
    uint2* ranges;            // from one row to another, the first with FILL where only zeros are missing
    u64* told;                // in host memory: twice the number of the matrix, and one more where there are ranges
    u64 number;
};

struct Speculative {
    RowStarts rows;
    const u32* columns;
    const stored* values;
    Unfinished left;
    u64 count;                // entries
    u32 tiles, tiles_of_bunch;
};

// Rows that a warp then goes through, many on their way at once; among more, each lane searches its own.
constexpr int NEAR = 8 * TILE;

// Whether lanes ask for entries of x that are 32 apart, so that what a warp asks for together lies together: the first level of
// cache takes as long as there are lines of 128 B to look up, and neighbours in a row are often in one. (lp_like on an H200, f32: 25
// lines of 32 entries where neighbours of a lane would have 32, 0.077 ms for 0.090. In f64 the way through shared memory costs what
// is saved.)
constexpr bool TURNED = sizeof(real) == sizeof(u32);

// A lane's part of a tile of an array of `count`, 32 apart, with `beyond` where it has ended.
template <class X> __device__ __forceinline__ Few<X, OF_LANE> apart(const X* array, i64 tile, u32 lane, i64 count, X beyond) {
    Few<X, OF_LANE> entries;
    const X* from = array + (tile * TILE + lane);
    if ((tile + 1) * TILE <= count) {
#pragma unroll
        for (int k = 0; k < OF_LANE; k++) entries.at[k] = __ldcs(from + k * 32);
        return entries;
    }
#pragma unroll
    for (int k = 0; k < OF_LANE; k++) entries.at[k] = tile * TILE + k * 32 + lane < count ? from[k * 32] : beyond;
    return entries;
}

// What a warp has of x for a tile goes through shared memory to the lanes that multiply it.
__device__ __forceinline__ void turn_in(real* turned, const real (&x)[OF_LANE], u32 lane) {
#pragma unroll
    for (int k = 0; k < OF_LANE; k++) turned[k * 32 + lane] = x[k];
}
__device__ __forceinline__ void turn_out(const real* turned, real (&x)[OF_LANE], u32 lane) {
    const Few<real, OF_LANE> own = ((const Few<real, OF_LANE>*)turned)[lane];
#pragma unroll
    for (int k = 0; k < OF_LANE; k++) x[k] = own.at[k];
}

// The last row from `low` on and before `high` that starts at or before an entry, found by a warp; row `low` does.
__device__ __forceinline__ u32 row_by_warp(const RowStarts& rows, i64 entry, u32 low, u32 high) {
    const u32 lane = threadIdx.x % 32;
    while (high - low > 32) {
        const u32 probe = low + u64(high - low) * (lane + 1) / 33;
        const int passed = __popc(__ballot_sync(ALL, rows.start(probe) <= entry));
        const u32 next_low = __shfl_sync(ALL, probe, passed ? passed - 1 : 0);
        const u32 next_high = __shfl_sync(ALL, probe, passed < 32 ? passed : 31);
        if (passed) low = next_low;
        if (passed < 32) high = next_high;
    }
    const bool starts = low + lane < high && rows.start(low + lane) <= entry;
    return low + __popc(__ballot_sync(ALL, starts)) - 1;
}

// The rows of a lane's entries, all of them from `first` to `last`, searched for together: a step waits for memory once. (More parts
// a step need more registers than there are.)
__device__ __forceinline__ Few<u32, OF_LANE> search_rows(const RowStarts& rows, i64 entry, u32 first, u32 last) {
    Few<u32, OF_LANE> found;
#pragma unroll
    for (int k = 0; k < OF_LANE; k++) found.at[k] = first;
    for (u32 left = last - first + 1; left > 1;) {
        const u32 part = (left + 1) / 2;
#pragma unroll
        for (int k = 0; k < OF_LANE; k++) {
            if (part <= last - found.at[k] && rows.start(found.at[k] + part) <= entry + k) found.at[k] += part;
        }
        left = part;
    }
    return found;
}

// The place of the first of `ranges` that a warp records.
__device__ __forceinline__ u32 ranges_for(const Unfinished& left, u32 ranges) {
    u32 place = 0;
    if (threadIdx.x % 32 == 0) place = atomicAdd(left.counts, ranges);
    return __shfl_sync(ALL, place, 0);
}

// The first stage. Rows that bunches share are added up here, or with CARRIES left to the host.
template <bool CARRIES> __device__ __forceinline__ void speculate(const Speculative& a, const real* x, real* y) {
    // of far tiles; before, of what is turned
    __shared__ alignas(16) u32 tables[WARPS][TILE];
    // what each bunch has of its first row, that row, and the bunch where it begins
    __shared__ real heads[WARPS];
    __shared__ uint2 shared_rows[WARPS];
    __shared__ u32 descriptors[WARPS][32];
    // ranges of each bunch that are not told yet, and how many
    __shared__ uint2 dirty[WARPS][MOST_TILES];
    __shared__ u32 dirty_tiles[WARPS];
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const i64 bunch = (i64)blockIdx.x * WARPS + warp, count = (i64)a.count;
    i64 tile = bunch * a.tiles_of_bunch;
    const i64 end = tile + a.tiles_of_bunch < a.tiles ? tile + a.tiles_of_bunch : a.tiles;
    if (tile >= end) return;
    if (lane == 0) dirty_tiles[warp] = 0;
    u32* descriptor = descriptors[warp];
    u32* table = tables[warp];

    u32 start = NONE;             // not found yet
    bool continues = false;       // the row `start` began before this tile
    bool is_shared = false;       // and before this bunch
    real transmitted = 0;         // what it has in this bunch so far
    for (; tile < end; tile++) {
        const i64 from = tile * TILE, to = from + TILE < count ? from + TILE : count;
        const Few<u32, OF_LANE> columns = TURNED ? apart(a.columns, tile, lane, count, BEYOND) : of_lane(a.columns, tile, lane, count, BEYOND);
        const Few<stored, OF_LANE> values = of_lane(a.values, tile, lane, count, stored(0));
        const auto begin_of = [&](u32 row) { return row <= a.rows.count ? a.rows.start(row) : to + 1; };
        // where the first rows behind `start` begin, asked for before anything is waited for
        i64 first_begins = 0;
        if (start != NONE) first_begins = begin_of(start + 1 + lane);
        real product[OF_LANE];
#pragma unroll
        for (int k = 0; k < OF_LANE; k++) product[k] = columns.at[k] != BEYOND ? __ldg(x + columns.at[k]) : real(0);
        if (start == NONE) {
            start = tile > 0 ? row_by_warp(a.rows, from, 0, a.rows.count + 1) : 0;
            is_shared = continues = a.rows.start(start) < from;
            if (CARRIES) {
                if (lane == 0) a.left.rows[bunch] = is_shared ? start : NONE;
            } else {
                if (lane == 0) shared_rows[warp] = make_uint2(is_shared ? start : NONE, u32(a.rows.start(start) / TILE) / a.tiles_of_bunch);
            }
            first_begins = begin_of(start + 1 + lane);
        }

        // the descriptor, and the row that the next tile starts with
        __syncwarp();
        if (TURNED) turn_in((real*)table, product, lane);
        descriptor[lane] = 0;
        __syncwarp();
        if (TURNED) turn_out((const real*)table, product, lane);
#pragma unroll
        for (int k = 0; k < OF_LANE; k++) product[k] *= values.at[k];
        u32 stop = start;
        bool open = true, more = true;
        const auto pass = [&](i64 begins) {
            if (begins < to) ((unsigned char*)descriptor)[begins - from] = 1;
            if (__any_sync(ALL, begins == to)) open = false;
            const int passed = __popc(__ballot_sync(ALL, begins <= to));
            stop += passed;
            more = passed == 32;
        };
        pass(first_begins);
        for (int batch = 1; batch < NEAR_BATCHES && more; batch++) pass(begin_of(stop + 1 + lane));
        const bool is_far = more;
        __syncwarp();
        u32 flags = (descriptor[lane] * 0x01020408u) >> 24;   // a bit for each byte
        Few<u32, OF_LANE> found{};
        if (is_far) {
            // most often it is not far away
            u32 behind = a.rows.count + 1;
            if (behind - stop > NEAR && a.rows.start(stop + NEAR) > to) behind = stop + NEAR;
            stop = row_by_warp(a.rows, to, stop, behind);
            open = a.rows.start(stop) < to;
            flags = 0;
            if (stop - start <= NEAR) {
                // rows leave their mark where they begin, but those without entries
#pragma unroll
                for (int k = 0; k < OF_LANE; k++) table[k * 32 + lane] = 0;
                __syncwarp();
                mark_rows(a.rows, start + 1, stop, from, [&](u32 place, u32 row) { table[place] = row - start; });
                __syncwarp();
#pragma unroll
                for (int k = 0; k < OF_LANE; k++) {
                    const u32 mark = table[lane * OF_LANE + k];
                    flags |= u32(mark != 0) << k;
                    found.at[k] = start + mark;
                }
                __syncwarp();
            } else {
                const i64 own = from + lane * OF_LANE;
                found = search_rows(a.rows, own, start, stop);
#pragma unroll
                for (int k = 0; k < OF_LANE; k++) {
                    if (own + k < to && a.rows.start(found.at[k]) == own + k) flags |= 1u << k;
                }
            }
        }
        if (lane == 0) flags |= 1;

        // segments that begin before this lane, and in all
        u32 before_here = 0, segments = 0;
#pragma unroll
        for (int k = 0; k < OF_LANE; k++) {
            const u32 begin = __ballot_sync(ALL, flags >> k & 1);
            before_here += __popc(begin & ~(ALL << lane));
            segments += __popc(begin);
        }
        if (is_far) {
            u32 segment = before_here;
#pragma unroll
            for (int k = 0; k < OF_LANE; k++) {
                if (flags >> k & 1) table[segment++] = found.at[k];
            }
            __syncwarp();
        }
        const auto put = [&](u32 segment, real sum) {
            if (segment == 0 && is_shared) {
                if (CARRIES) {
                    a.left.carries[2 * bunch] = sum;
                } else {
                    heads[warp] = sum;
                }
            } else {
                y[is_far ? table[segment] : start + segment] = sum;
            }
        };

        if (lane == 0 && continues) product[0] += transmitted;
        // `head`: what this lane has of a segment that began before; `tail`: of its last
        real head = 0, tail = product[0];
        bool begun = flags & 1;
        u32 segment = before_here + begun;    // the lane's next
#pragma unroll
        for (int k = 1; k < OF_LANE; k++) {
            if (flags >> k & 1) {
                if (begun) {
                    put(segment - 1, tail);
                } else {
                    head = tail;
                }
                begun = true;
                segment++;
                tail = product[k];
            } else {
                tail += product[k];
            }
        }
        const real sum = scan_rows(tail, __ballot_sync(ALL, begun));
        const real sum_before = __shfl_up_sync(ALL, sum, 1);
        if (lane > 0 && begun) put(before_here - 1, flags & 1 ? sum_before : sum_before + head);
        if (lane == 31 && !open) put(segments - 1, sum);
        transmitted = open ? __shfl_sync(ALL, sum, 31) : real(0);

        const u32 sums = segments - open;
        if (is_far) {
            const u32 cut = (stop - start + ROWS_OF_RANGE - 1) / ROWS_OF_RANGE, place = ranges_for(a.left, cut);
            for (u32 i = lane; i < cut; i += 32) {
                const u32 first = start + i * ROWS_OF_RANGE;
                a.left.ranges[place + i] = make_uint2(first | FILL, first + ROWS_OF_RANGE < stop ? first + ROWS_OF_RANGE : stop);
            }
        } else if (sums < stop - start) {
            if (lane == 0) dirty[warp][dirty_tiles[warp]++] = make_uint2(start, stop);
        }
        if (sums > 0) is_shared = false;
        continues = open;
        start = stop;
    }
    if (lane == 0) {
        if (CARRIES) {
            a.left.carries[2 * bunch + 1] = transmitted;
        } else if (continues) {
            send(a.left.parts + bunch, transmitted, SENT);
        }
    }
    __syncwarp();
    const u32 ranges = dirty_tiles[warp];
    if (ranges > 0) {
        // one addition for all: tens of thousands would wait for each other
        const u32 place = ranges_for(a.left, ranges);
        if (lane < ranges) a.left.ranges[place + lane] = dirty[warp][lane];
    }
    if (CARRIES) return;
    // the first row is the synchroniser's: where it ends, what earlier bunches have of it is added
    const uint2 shared_row = shared_rows[warp];
    if (shared_row.x == NONE || is_shared) return;
    const real parts = receive(a.left.parts, shared_row.y, bunch);
    if (lane == 0) y[shared_row.x] = parts + heads[warp];
}
extern "C" __global__ __launch_bounds__(THREADS, 5) void speculative(Speculative a, const real* x, real* y) {
    begin();
    speculate<false>(a, x, y);
}
extern "C" __global__ __launch_bounds__(THREADS, 5) void speculative_carrying(Speculative a, const real* x, real* y) {
    begin();
    speculate<true>(a, x, y);
}

// Moves the sums of a dirty tile to their rows, by a warp: all are read before one is written.
__device__ __forceinline__ void rearrange(const RowStarts& rows, i64 start, i64 stop, real* y) {
    const u32 lane = threadIdx.x % 32;
    real sum[NEAR_BATCHES];
    bool moves[NEAR_BATCHES];
    i64 from = start;
#pragma unroll
    for (int batch = 0; batch < NEAR_BATCHES; batch++) {
        const i64 row = start + batch * 32 + lane;
        const bool has_entries = row < stop && rows.start(row) < rows.start(row + 1);
        const u32 all = __ballot_sync(ALL, has_entries);
        const i64 slot = from + __popc(all & ~(ALL << lane));
        // the first row may be another bunch's as well: it stays where it is
        moves[batch] = row < stop && !(has_entries && slot == row);
        sum[batch] = has_entries && slot != row ? y[slot] : real(0);
        from += __popc(all);
    }
    __syncwarp();
#pragma unroll
    for (int batch = 0; batch < NEAR_BATCHES; batch++) {
        if (moves[batch]) y[start + batch * 32 + lane] = sum[batch];
    }
}

extern "C" __global__ __launch_bounds__(THREADS) void speculative_finish(Speculative a, real* y) {
    begin();
    const u32 ranges = *(volatile u32*)a.left.counts, warps = gridDim.x * WARPS;
    for (i64 i = (i64)blockIdx.x * WARPS + threadIdx.x / 32; i < ranges; i += warps) {
        const uint2 range = a.left.ranges[i];
        const i64 start = range.x & ~FILL, stop = range.y;
        if (range.x & FILL) {
            for (i64 row = start + threadIdx.x % 32; row < stop; row += 32) {
                if (a.rows.start(row) == a.rows.start(row + 1)) y[row] = 0;
            }
        } else {
            rearrange(a.rows, start, stop, y);
        }
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) *(volatile u64*)a.left.told = 2 * a.left.number + (ranges > 0);
    // the last block to come here sets the counts back for the next product; no block reads them after it has
    if (ranges == 0) return;
    __syncthreads();
    if (threadIdx.x == 0 && atomicAdd(a.left.counts + 1, 1u) == gridDim.x - 1) a.left.counts[0] = a.left.counts[1] = 0;
}
