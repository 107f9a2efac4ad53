// CSR products by speculative segmented sums (Liu and Vinter): y_i ← Σ_k v_k x_{c_k}, from unmodified CSR arrays,
// without preprocessing.
//
// A bunch of threads, here a warp, processes consecutive tiles of 128 entries:
//
//     find the tile's rows among the row starts: rows [start, stop) end in the tile;
//     set a flag in shared memory for each entry with which a row begins, and for the first entry of the tile;
//     sum products from flag to flag (segmented sum); add the previous tile's open row to the first segment;
//     write the k-th sum to y[start + k], as if no row were empty; pass the sum of an open row to the next tile;
//     if there are fewer sums than rows, the tile is dirty: record its range of rows.
//
// A row that crosses bunches is synchronized: each bunch sends its part of a row that continues, and the bunch in which
// the row ends waits for these parts and adds them in order. (Doing this in the second stage takes 0.0107 ms instead of
// 0.0089 on an H200, dc2_like, f64.) The second stage, `speculative_finish`, moves the sums of dirty tiles to their
// rows and sets empty rows to zero. Ranges are recorded in any order but are disjoint, so every product is bitwise the
// same. The second stage reports to the host whether there were ranges: if the first product of a matrix found no dirty
// tile, later products skip the second stage.
//
// Differs from the paper:
// 1. a dirty tile, too, passes on the sum of its last row; the paper's listing drops it;
// 2. rows that began before the tile set no flag; the paper's listing would write to a negative index;
// 3. a bunch that starts with a new row, and synchronization, overwrite y; the listing adds to the previous content of
//    y;
// 4. empty rows before the first entry belong to the first tile; the listing does not write them;
// 5. all lanes search for the first row of the bunch together; other tile boundaries are found while reading row
//    starts;
// 6. a tile with more rows than entries (a *far* tile) is certainly dirty: its sums are written to their rows
//    immediately, and the second stage only sets empty rows to zero, in ranges of ROWS_OF_RANGE rows;
// 7. for both precisions, a lane has 4 entries of a tile, and a bunch up to 16 tiles, as in coo.cu (paper: 8 or 4
//    entries, and 7 tiles).
//
// Memory traffic: 12 B (f64) or 8 B (f32) an entry, 4 or 8 B of offsets a row, x and y; 16 B or 8 B a bunch; 8 B a
// dirty tile, and the offsets and y of its rows once more.

// Data passed between bunches, and from the first stage to the second.
struct Unfinished {
    Parcel* parts;            // of each bunch: its part of the row that continues in the next bunch
    // if the host synchronizes, instead of parts: of each bunch, its part of the row that began in an earlier bunch, and
    // of the row that continues in the next one
    real* carries;
    u32* rows;                // row of each bunch's first entry if the row began in an earlier bunch; NONE otherwise
    u32* counts;              // [2]: number of ranges, and number of finished blocks of the second stage
    uint2* ranges;            // row ranges, .x to .y (exclusive); FILL in .x: only empty rows must be set to zero
    u64* report;              // report in host memory: twice the matrix's id, plus one if there are ranges
    u64 number;
};

struct Speculative {
    RowStarts rows;
    const u32* columns;
    const stored* values;
    Unfinished left;
    u64 count;                // number of entries
    u32 tiles, tiles_of_bunch;
};

// In a far tile with at most this many rows, the warp reads all row starts in batches; with more, each lane searches
// for the row of each of its entries.
constexpr int NEAR = 8 * TILE;

// Whether a lane loads elements of x for entries 32 apart, so that a load of a warp is for 32 consecutive entries. The
// time of a load grows with the number of its cache lines (128 B), and consecutive entries often share one. (lp_like on
// an H200, f32: 25 lines per load instead of 32, 0.077 ms instead of 0.090. In f64 the transposition through shared
// memory costs as much as it saves.)
constexpr bool TURNED = sizeof(real) == sizeof(u32);

// A lane's elements of a tile, 32 apart, from an array of `count` elements; `beyond` for those past its end.
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

// Transposes a warp's elements of x through shared memory: from entries 32 apart to consecutive entries per lane.
__device__ __forceinline__ void turn_in(real* turned, const real (&x)[OF_LANE], u32 lane) {
#pragma unroll
    for (int k = 0; k < OF_LANE; k++) turned[k * 32 + lane] = x[k];
}
__device__ __forceinline__ void turn_out(const real* turned, real (&x)[OF_LANE], u32 lane) {
    const Few<real, OF_LANE> own = ((const Few<real, OF_LANE>*)turned)[lane];
#pragma unroll
    for (int k = 0; k < OF_LANE; k++) x[k] = own.at[k];
}

// The last row in [low, high) that starts at or before an entry, found by a 33-ary search of a warp. Row `low` must
// start at or before the entry.
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

// The rows of a lane's entries, all within [first, last]: simultaneous binary searches, so that each step waits for
// memory once. (A search with more branches per step needs too many registers.)
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

// Reserves `ranges` elements of `left.ranges`, and returns the index of the first.
__device__ __forceinline__ u32 ranges_for(const Unfinished& left, u32 ranges) {
    u32 place = 0;
    if (threadIdx.x % 32 == 0) place = atomicAdd(left.counts, ranges);
    return __shfl_sync(ALL, place, 0);
}

// The first stage. Parts of a row that crosses bunches are added here or, with CARRIES, on the host.
template <bool CARRIES> __device__ __forceinline__ void speculate(const Speculative& a, const real* x, real* y) {
    // row of each segment of a far tile; before that, workspace for the transposition of x
    __shared__ alignas(16) u32 tables[WARPS][TILE];
    // of each bunch: its part of the first row, that row, and the bunch in which the row begins
    __shared__ real heads[WARPS];
    __shared__ uint2 shared_rows[WARPS];
    // of each bunch: a byte for each entry of its tile, 1 if a row begins there
    __shared__ u32 descriptors[WARPS][32];
    // of each bunch: ranges to be recorded, and their number
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

    u32 start = NONE;             // unknown
    bool continues = false;       // whether row `start` began before this tile
    bool is_shared = false;       // whether it also began before this bunch
    real transmitted = 0;         // sum of row `start` in this bunch so far
    for (; tile < end; tile++) {
        const i64 from = tile * TILE, to = from + TILE < count ? from + TILE : count;
        const Few<u32, OF_LANE> columns = TURNED ? apart(a.columns, tile, lane, count, BEYOND) : of_lane(a.columns, tile, lane, count, BEYOND);
        const Few<stored, OF_LANE> values = of_lane(a.values, tile, lane, count, stored(0));
        const auto begin_of = [&](u32 row) { return row <= a.rows.count ? a.rows.start(row) : to + 1; };
        // starts of the first rows after `start`, loaded before waiting for other loads
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

        // set the flags, and find the row that the next tile starts with
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
        u32 flags = (descriptor[lane] * 0x01020408u) >> 24;   // one bit per byte
        Few<u32, OF_LANE> found{};
        if (is_far) {
            // try the next NEAR rows before searching all rows
            u32 behind = a.rows.count + 1;
            if (behind - stop > NEAR && a.rows.start(stop + NEAR) > to) behind = stop + NEAR;
            stop = row_by_warp(a.rows, to, stop, behind);
            open = a.rows.start(stop) < to;
            flags = 0;
            if (stop - start <= NEAR) {
                // each nonempty row writes its number, relative to `start`, at the position of its first entry in the
                // tile
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

        // number of segments that begin before this lane, and in the tile
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
        // `head`: the lane's part of the segment that began before; `tail`: its part of the last segment
        real head = 0, tail = product[0];
        bool begun = flags & 1;
        u32 segment = before_here + begun;    // index of the lane's next segment
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
        // one atomic addition per bunch, because tens of thousands would serialize
        const u32 place = ranges_for(a.left, ranges);
        if (lane < ranges) a.left.ranges[place + lane] = dirty[warp][lane];
    }
    if (CARRIES) return;
    // the row that began in an earlier bunch ends here: add the earlier bunches' parts
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

// A warp moves the sums of a dirty tile to their rows. All sums are read before the first is written.
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
        // do not write the first row if its sum is in place: another bunch may write it at the same time
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
    if (blockIdx.x == 0 && threadIdx.x == 0) *(volatile u64*)a.left.report = 2 * a.left.number + (ranges > 0);
    // the last block resets the counts for the next product; all other blocks have read them
    if (ranges == 0) return;
    __syncthreads();
    if (threadIdx.x == 0 && atomicAdd(a.left.counts + 1, 1u) == gridDim.x - 1) a.left.counts[0] = a.left.counts[1] = 0;
}
