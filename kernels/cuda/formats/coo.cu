// Coordinates (COO): y_i ← Σ v_k x_{c_k} over the entries k with row i, sorted by row.
//
// Each warp takes a chunk with an equal number of entries, independent of row lengths, and processes it in tiles of 4
// neighbouring entries per lane (segmented sum):
//
//     a lane adds up its products row by row and writes the rows that begin and end within its entries;
//     the partial sum of its last row is passed to later lanes, by a scan over the warp that restarts with each row;
//     the lane with a row's last entry writes the row;
//     the partial sum of the tile's last row is passed to the next tile.
//
// Rows much shorter than a chunk end in the chunk in which they begin; the rest of a chunk is padded with zeros that
// belong to its last row. If a row crosses chunks, each chunk sends its part of the sum, and the chunk in which the row
// ends waits for the parts and adds them in order: there are no atomic additions, and every product is bitwise the
// same. Chunks start in order, so a chunk only waits for chunks that are running or done. (Measured on an H200 in f64,
// each relative to the kernel of its time: a second launch for these sums takes 1.14 times as long on dc2_like and 1.08
// times on ins2_like; a counter of finished chunks that is read before the parts takes 1.18 times as long on dc2_like.)
//
// Row indices are compressed: one bit per entry for whether it begins a row, and for each lane the number of rows that
// begin in earlier lanes of its tile. Empty rows are not counted in row indices.
//
// Memory traffic: 12.5 B (f64) or 8.5 B (f32) an entry, x and y; 16 B or 8 B a part of a crossing row and 8 B a chunk;
// if there are empty rows, 4 B for each nonempty row and 4 B for each empty one, which is set to zero. (A row index for
// each entry would make that 16 B or 12 B an entry. benches/record/h200/spmv.csv has the times of this layout on an
// H200.)
//
// `CsrByEntries` (load balance, CSRI of Anzt et al.) has no such bits: a warp finds the rows of a tile among the row
// starts. Its entries are not padded, so a row crosses nearly every border of chunks. Compared with `Coo`, it moves 0.5
// B less per entry, but 4 or 8 B more per row and 4 B more per tile.

// Data that a lane loads for a tile; `word` is used by `Coo` only.
struct Loaded {
    Few<u32, OF_LANE> columns;
    Few<stored, OF_LANE> values;
    u32 word;
};

// Rows of a lane's entries.
struct Own {
    Few<u32, OF_LANE> rows;
    u32 starts;               // bit k: entry k belongs to another row than the entry before it
};

struct Coo {
    static constexpr bool IS_PADDED = true, IS_AHEAD = true;
    const u16* starts;        // of each lane of each tile: `Own::starts`, plus 16 times the starts in earlier lanes
    // of each chunk: row of the preceding entry (NONE for the first chunk), and the chunk in which that row begins
    const uint2* before;
    const u32* rows;          // nonempty rows; null if all are nonempty
    const u32* empty;         // empty rows
    const u32* columns;       // padding has the last column of its row
    const stored* values;     // zero in padding, which yields NaN if the x that the row reads there is infinite or NaN
    Parcel* parts;            // of each chunk: its part of a row that continues in the next chunk
    u32 empties;              // number of empty rows
    u32 tiles;                // number of tiles of all chunks
    u32 tiles_of_chunk;

    // The row of the entry before a chunk, and the chunk in which that row begins.
    __device__ __forceinline__ u32 open(i64 chunk, i64) const { return __ldg(&before[chunk].x); }
    __device__ __forceinline__ u32 first_chunk(i64 chunk, u32) const { return __ldg(&before[chunk].y); }
    // Whether a tile's first row began in an earlier tile.
    __device__ __forceinline__ bool continues(i64 tile) const { return !(__ldg(starts + tile * 32) & 1); }
    __device__ __forceinline__ Loaded load(i64 tile, u32 lane) const {
        return {of_lane(columns, tile, lane), of_lane(values, tile, lane), __ldcs(starts + (tile * 32 + lane))};
    }
    __device__ __forceinline__ Own own(const Loaded& loaded, i64, u32, u32 open_row) const {
        Own own;
        own.starts = loaded.word % 16;
        u32 row = open_row + loaded.word / 16;
#pragma unroll
        for (int k = 0; k < OF_LANE; k++) {
            row += loaded.word >> k & 1;
            own.rows.at[k] = row;
        }
        return own;
    }
};

struct CsrByEntries {
    static constexpr bool IS_PADDED = false, IS_AHEAD = false;
    static constexpr const u32* rows = nullptr;
    RowStarts row_starts;
    const u32* first;         // row of each tile's first entry, then row of the last entry
    const u32* far_at;        // index in `far` of the table of each far tile (of more than ROWS_GONE_THROUGH rows)
    const u32* far;           // tables with the row of each entry of a far tile
    const u32* empty;         // empty rows
    const u32* columns;
    const stored* values;
    Parcel* parts;            // see `Coo`
    u64 count;                // number of entries
    u32 empties, tiles, tiles_of_chunk;   // see `Coo`

    __device__ __forceinline__ u32 first_row(i64 tile) const { return __ldg(first + tile); }
    __device__ __forceinline__ u32 open(i64, i64 tile) const { return first_row(tile); }
    __device__ __forceinline__ u32 first_chunk(i64, u32 row) const { return u32(row_starts.start(row) / TILE) / tiles_of_chunk; }
    __device__ __forceinline__ bool continues(i64 tile) const { return row_starts.start(first_row(tile)) < tile * TILE; }
    __device__ __forceinline__ Loaded load(i64 tile, u32 lane) const {
        return {of_lane(columns, tile, lane, (i64)count, BEYOND), of_lane(values, tile, lane, (i64)count, stored(0)), 0};
    }
    __device__ __forceinline__ Own own(const Loaded&, i64 tile, u32 lane, u32 open_row) const {
        Own own{rows_of_lane(tile, lane), 0};
        u32 before = __shfl_up_sync(ALL, own.rows.at[OF_LANE - 1], 1);
        if (lane == 0) before = open_row;
#pragma unroll
        for (int k = 0; k < OF_LANE; k++) {
            own.starts |= u32(own.rows.at[k] != before) << k;
            before = own.rows.at[k];
        }
        return own;
    }
    // Returns the rows of a lane's entries. `marks` has for each entry of the tile the number (relative to the tile's
    // first row) of the row that begins with it, otherwise 0; the row of an entry is that of the last mark at or before
    // the entry. A far tile has a table instead.
    __device__ __forceinline__ Few<u32, OF_LANE> rows_of_lane(i64 tile, u32 lane) const {
        __shared__ Few<u32, OF_LANE> marks[WARPS][32];
        const u32 row = first_row(tile), last = first_row(tile + 1);
        const i64 from = tile * TILE;
        if (last - row > ROWS_GONE_THROUGH) return of_lane(far, __ldg(far_at + tile), lane);
        Few<u32, OF_LANE>* of_warp = marks[threadIdx.x / 32];
        __syncwarp();
        of_warp[lane] = {0, 0, 0, 0};
        __syncwarp();
        mark_rows(row_starts, row + 1, last, from, [&](u32 place, u32 at) { ((u32*)of_warp)[place] = at - row; });
        __syncwarp();
        Few<u32, OF_LANE> found = of_warp[lane];
#pragma unroll
        for (int k = 1; k < OF_LANE; k++) {
            if (found.at[k] == 0) found.at[k] = found.at[k - 1];
        }
        const u32 before = __ballot_sync(ALL, found.at[OF_LANE - 1] != 0) & ~(ALL << lane);
        const u32 mark = __shfl_sync(ALL, found.at[OF_LANE - 1], before ? 31 - __clz(before) : 0);
#pragma unroll
        for (int k = 0; k < OF_LANE; k++) found.at[k] = row + (found.at[k] ? found.at[k] : before ? mark : 0);
        return found;
    }
};

// Destination of a row's sum: y or, for a row that began in an earlier chunk, `head`.
struct Target {
    real* y;
    const u32* rows;          // null if rows are those of y
    real* head;               // this chunk's part of its first row
    u32 first;                // that row, if it began in an earlier chunk; NONE otherwise

    __device__ __forceinline__ real& entry(u32 row) const { return y[rows ? __ldg(rows + row) : row]; }
};

// Whether sums overwrite y or are added to it.
enum Onto { WRITE, ADD };

template <Onto ONTO> __device__ __forceinline__ void put(const Target& target, u32 row, real sum) {
    if (row == target.first) {
        *target.head = sum;
        return;
    }
    real& entry = target.entry(row);
    entry = ONTO == ADD ? entry + sum : sum;
}

// y ← A x, or y ← y + A x.
template <Onto ONTO, class Matrix> __device__ __forceinline__ void multiply(const Matrix& a, const real* x, real* y) {
    // for each warp: its chunk's part of the row that began in an earlier chunk
    __shared__ real heads[WARPS];
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const i64 thread = (i64)blockIdx.x * blockDim.x + threadIdx.x, chunk = thread / 32;
    if (ONTO == WRITE) {
        for (i64 i = thread; i < a.empties; i += (i64)gridDim.x * blockDim.x) y[__ldg(a.empty + i)] = 0;
    }
    if (chunk * a.tiles_of_chunk >= a.tiles) return;
    u32 tile = u32(chunk) * a.tiles_of_chunk;
    const u32 end = tile + min(a.tiles_of_chunk, a.tiles - tile);

    // load the next tile ahead if registers suffice
    constexpr bool AHEAD = Matrix::IS_AHEAD && ONTO != ADD;
    Loaded loaded;
    if (AHEAD) loaded = a.load(tile, lane);
    // `open_row`: the row of the entry before this tile
    u32 open_row = a.open(chunk, tile);
    real open_sum = 0;            // its sum so far
    Target target{y, a.rows, heads + warp, NONE};
    if (tile > 0 && a.continues(tile)) target.first = open_row;
    const bool goes_on = end < a.tiles && a.continues(end);

    for (bool opens = lane == 0; tile < end; tile++, opens = false) {
        if (!AHEAD) loaded = a.load(tile, lane);
        real product[OF_LANE];
#pragma unroll
        for (int k = 0; k < OF_LANE; k++) {
            const bool here = Matrix::IS_PADDED || loaded.columns.at[k] != BEYOND;
            product[k] = here ? __ldg(x + loaded.columns.at[k]) : real(0);
        }
        const Own own = a.own(loaded, tile, lane, open_row);
#pragma unroll
        for (int k = 0; k < OF_LANE; k++) product[k] *= loaded.values.at[k];
        // load the next tile while this one is summed (without that 1.07 times as long: H200, ins2_like, f64)
        if (AHEAD && tile + 1 < end) loaded = a.load(tile + 1, lane);
        const Few<u32, OF_LANE>& rows = own.rows;
        // if the first entry of a chunk starts a row, the previous chunk writes the row before it
        const u32 starts = opens ? own.starts & ~1u : own.starts;

        // `head`: the sum of this lane's entries of its first row; `tail`: that of its last row
        real head = 0, tail = product[0];
        const bool one_row = starts < 2, continues = !(starts & 1);
#pragma unroll
        for (int k = 1; k < OF_LANE; k++) {
            if (starts >> k & 1) {
                if (starts & ((1u << k) - 2)) {
                    put<ONTO>(target, rows.at[k - 1], tail);
                } else {
                    head = tail;
                }
                tail = product[k];
            } else {
                tail += product[k];
            }
        }

        // the first lane continues the sum of the previous tile
        if (lane == 0 && !continues) put<ONTO>(target, open_row, open_sum);
        real sum = tail;
        if (lane == 0 && continues && one_row) sum += open_sum;
        sum = scan_rows(sum, __ballot_sync(ALL, lane == 0 || !one_row || !continues));
        real sum_before = __shfl_up_sync(ALL, sum, 1);
        if (lane == 0) sum_before = open_sum;

        // write rows that end here: the first row of a lane with several rows, and the last row of a lane if the next
        // lane begins another row
        if (!one_row) put<ONTO>(target, rows.at[0], continues ? sum_before + head : head);
        const u32 starting = __ballot_sync(ALL, !continues);
        if (lane < 31 && starting >> (lane + 1) & 1) put<ONTO>(target, rows.at[OF_LANE - 1], sum);
        open_row = __shfl_sync(ALL, rows.at[OF_LANE - 1], 31);
        open_sum = __shfl_sync(ALL, sum, 31);
    }
    if (lane == 0) {
        if (goes_on) {
            send(a.parts + chunk, open_sum, SENT);
        } else {
            put<ONTO>(target, open_row, open_sum);
        }
    }
    // add the parts of earlier chunks, unless the first row continues beyond this chunk
    if (target.first == NONE || (goes_on && target.first == open_row)) return;
    const real parts = receive(a.parts, a.first_chunk(chunk, target.first), chunk);
    __syncwarp();
    if (lane == 0) {
        real& entry = target.entry(target.first);
        const real sum = parts + heads[warp];
        entry = ONTO == ADD ? entry + sum : sum;
    }
}

extern "C" __global__ __launch_bounds__(THREADS, 5) void coo(Coo a, const real* x, real* y) {
    begin();
    multiply<WRITE>(a, x, y);
}
extern "C" __global__ __launch_bounds__(THREADS, 5) void coo_add(Coo a, const real* x, real* y) {
    begin();
    multiply<ADD>(a, x, y);
}
extern "C" __global__ __launch_bounds__(THREADS, 5) void csr_by_entries(CsrByEntries a, const real* x, real* y) {
    begin();
    multiply<WRITE>(a, x, y);
}

// The entries of a matrix that are stored as coordinates: all entries of each row except the first `skip`. `here` has
// the offsets of each row's slots (stored positions): its entries, then perhaps padding up to the end of a chunk. `all`
// has the row offsets of the whole matrix.
struct Taken {
    RowStarts all, here;
    const u32* columns;       // column of each entry of `all`
    u32 skip;
    u32 last_column;          // column of the matrix's last entry, which padding after the last row repeats
    u64 slots;                // number of slots, including that padding
};

// Calls visit(slot, its entry in `all`, the end of its row in `all`) for every slot. A slot whose entry is not before
// the end is padding. Callers compare both for every slot, not only to find padding: when values are copied, `all` may
// be of another pattern with as many rows and entries.
template <class Visit> __device__ __forceinline__ void each_slot(const Taken& a, Visit visit) {
    const i64 threads = (i64)gridDim.x * blockDim.x, count = a.here.start(a.here.count);
    for (i64 slot = (i64)blockIdx.x * blockDim.x + threadIdx.x; slot < count; slot += threads) {
        const i64 row = a.here.row_of(slot, 0, a.here.count);
        visit(slot, a.all.start(row) + a.skip + (slot - a.here.start(row)), a.all.start(row + 1));
    }
}

// Writes the columns of all slots. Padding reads an element of x that its row reads anyway.
extern "C" __global__ __launch_bounds__(THREADS) void coo_columns(Taken a, u32* columns) {
    begin();
    each_slot(a, [&](i64 slot, i64 entry, i64 end) { columns[slot] = a.columns[entry < end ? entry : end - 1]; });
    const i64 threads = (i64)gridDim.x * blockDim.x, count = a.here.start(a.here.count);
    for (i64 slot = count + (i64)blockIdx.x * blockDim.x + threadIdx.x; slot < (i64)a.slots; slot += threads) {
        columns[slot] = a.last_column;
    }
}

// Computes `starts` for all lanes of all tiles from the starts of the nonempty rows. One thread per lane.
extern "C" __global__ __launch_bounds__(THREADS) void coo_starts(RowStarts rows, u32 tiles, u16* starts) {
    begin();
    const i64 threads = (i64)gridDim.x * blockDim.x, count = rows.start(rows.count);
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < (i64)tiles * 32; i += threads) {
        // number of rows that start before an entry: the index of the first row that starts at the entry or later
        const auto started_before = [&](i64 entry) {
            if (entry >= count) return (i64)rows.count;
            const i64 row = rows.row_of(entry, 0, rows.count);
            return rows.start(row) == entry ? row : row + 1;
        };
        const i64 entry = i * OF_LANE;
        i64 started = started_before(entry);
        u32 word = (started - started_before(entry / TILE * TILE)) * 16;
        for (int k = 0; k < OF_LANE; k++) {
            const i64 behind = started_before(entry + k + 1);
            word |= u32(behind - started) << k;
            started = behind;
        }
        starts[i] = word;
    }
}

// Copies values from CSR entries to slots, or back.
extern "C" __global__ __launch_bounds__(THREADS) void coo_copy_values(Taken a, real* entries, stored* values, u32 back) {
    begin();
    each_slot(a, [&](i64 slot, i64 entry, i64 end) {
        if (entry < end) copy_value(entries[entry], values[slot], back);
    });
}
