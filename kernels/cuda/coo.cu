// Coordinates: y_i ← Σ v_k x_{c_k} over the entries k whose row is i, sorted by row.
//
// Warps take chunks of equally many entries, however these spread over the rows, and walk them in tiles of 4 neighbouring
// entries for each lane:
//
//     a lane adds up its products row by row and writes the rows that begin and end within its entries;
//     what its last row has so far goes to the lanes behind it, by a scan over the warp that restarts with each row;
//     the lane with a row's last entry writes the row;
//     what the tile's last row has so far goes to the next tile.
//
// A row that crosses the border of a chunk is not written: each chunk carries its part out, and `coo_finish` adds the
// parts of such rows in order. Nothing is added atomically, so every product is bitwise the same. (One launch, in which the
// chunk that comes last adds up the row, took 3 to 5 % longer on an H200: circuit_1M 0.0137 ms for 0.0131, f64.) But for
// `coo_atomic`, which adds the parts of such rows to zeros in y, in whatever order chunks come.
//
// Moves 16 B (f64) or 12 B (f32) an entry, x and y; 16 B or 8 B a chunk and 12 B a crossing row; 4 B a row without
// entries, which `coo_finish` sets to zero.

// `CsrByEntries` has no row for each entry: a warp finds those of a tile in the places where rows start. It moves 4 B less
// an entry, and 4 or 8 B a row and 4 B a tile more (load balance, CSRI of Anzt et al.).

// Rows, columns and values of a lane's entries.
struct Entries {
    Few<u32, OF_LANE> rows, columns;
    Few<stored, OF_LANE> values;
};

struct Coo {
    static constexpr bool IS_PADDED = true;
    const u32* rows;          // of entries, the last repeated to a multiple of the tile
    const u32* columns;
    const stored* values;     // zero beyond the last entry
    real* carries;            // of each chunk: of its first row, of its last
    u32 tiles;                // of all chunks
    u32 tiles_of_chunk;

    __device__ __forceinline__ u32 first_row(i64 tile) const { return __ldg(rows + tile * TILE); }
    // Whether a tile's first row has entries before it.
    __device__ __forceinline__ bool continues(i64 tile) const { return __ldg(rows + (tile * TILE - 1)) == first_row(tile); }
    __device__ __forceinline__ Entries entries(i64 tile, u32 lane) const {
        const Few<u32, OF_LANE> columns = of_lane(this->columns, tile, lane);
        return {of_lane(rows, tile, lane), columns, of_lane(values, tile, lane)};
    }
};

struct CsrByEntries {
    static constexpr bool IS_PADDED = false;
    RowStarts rows;
    const u32* first;         // row of each tile's first entry, and of the last entry
    const u32* columns;
    const stored* values;
    real* carries;            // as of `Coo`
    u64 count;                // entries
    u32 tiles, tiles_of_chunk;

    __device__ __forceinline__ u32 first_row(i64 tile) const { return __ldg(first + tile); }
    __device__ __forceinline__ bool continues(i64 tile) const { return rows.start(first_row(tile)) < tile * TILE; }
    __device__ __forceinline__ Entries entries(i64 tile, u32 lane) const {
        const Few<u32, OF_LANE> columns = of_lane(this->columns, tile, lane, (i64)count, BEYOND);
        const Few<stored, OF_LANE> values = of_lane(this->values, tile, lane, (i64)count, stored(0));
        return {rows_of_lane(tile, lane), columns, values};
    }
    // Rows that begin in the tile leave their mark at their first entry; a lane's rows are those of the last marks.
    __device__ __forceinline__ Few<u32, OF_LANE> rows_of_lane(i64 tile, u32 lane) const {
        __shared__ Few<u32, OF_LANE> marks[WARPS][32];
        const u32 row = first_row(tile), last = first_row(tile + 1);
        const i64 from = tile * TILE, to = from + TILE;
        Few<u32, OF_LANE> found;
        if (last - row > NEAR) {
            u32 here = row;
#pragma unroll
            for (int k = 0; k < OF_LANE; k++) {
                here = (u32)rows.row_of(from + lane * OF_LANE + k, here, (i64)last + 1);
                found.at[k] = here;
            }
            return found;
        }
        Few<u32, OF_LANE>* of_warp = marks[threadIdx.x / 32];
        __syncwarp();
        of_warp[lane] = {0, 0, 0, 0};
        __syncwarp();
        for (u32 at = row + 1 + lane; at <= last; at += 32) {
            const i64 start = rows.start(at);
            // rows without entries leave none
            if (start < to && start < rows.start(at + 1)) of_warp[(start - from) / OF_LANE].at[(start - from) % OF_LANE] = at - row;
        }
        __syncwarp();
        found = of_warp[lane];
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

// Rows that cross the borders of chunks, and rows without entries.
struct Rest {
    const u32* crossing;      // [row, first chunk, last chunk] each
    const u32* empty;
    const real* carries;
    u32 crossings, empties;
};

// Where the sum of a row goes: into y, or out of the chunk.
struct Target {
    real* y;
    real* carries;            // of this chunk
    u32 first, last;          // rows that other chunks share; NONE where they do not
};

// What becomes of y: it is written, added to, or written but for the rows that chunks share, which are added atomically.
enum Onto { WRITE, ADD, ATOMIC };

template <Onto ONTO> __device__ __forceinline__ void put(const Target& target, u32 row, real sum) {
    if (ONTO == ATOMIC && (row == target.first || row == target.last)) {
        atomicAdd(target.y + row, sum);
    } else if (row == target.first) {
        target.carries[0] = sum;
    } else if (row == target.last) {
        target.carries[1] = sum;
    } else {
        target.y[row] = ONTO == ADD ? target.y[row] + sum : sum;
    }
}

// y ← A x, or y ← y + A x, but for the rows in `Rest`.
template <Onto ONTO, class Matrix> __device__ __forceinline__ void multiply(const Matrix& a, const real* x, real* y) {
    const u32 lane = threadIdx.x % 32;
    const i64 chunk = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    i64 tile = chunk * a.tiles_of_chunk;
    const i64 end = tile + a.tiles_of_chunk < a.tiles ? tile + a.tiles_of_chunk : a.tiles;
    if (tile >= end) return;

    Target target{y, a.carries + 2 * chunk, NONE, NONE};
    u32 open_row = a.first_row(tile);
    if (tile > 0 && a.continues(tile)) target.first = open_row;
    if (end < a.tiles && a.continues(end)) target.last = a.first_row(end);

    // `open_row`: the row of the entry before this tile
    real open_sum = 0;            // what it has so far
    for (; tile < end; tile++) {
        const Entries entries = a.entries(tile, lane);
        const Few<u32, OF_LANE>&rows = entries.rows, &columns = entries.columns;
        // never so; the compiler asks for all of the above before it can know
        if (columns.at[0] == NONE) return;
        real product[OF_LANE];
#pragma unroll
        for (int k = 0; k < OF_LANE; k++) {
            const bool here = Matrix::IS_PADDED || columns.at[k] != BEYOND;
            product[k] = here ? entries.values.at[k] * __ldg(x + columns.at[k]) : real(0);
        }

        // `head`: what this lane has of its first row; `tail`: of its last
        real head = 0, tail = product[0];
        bool one_row = true;
#pragma unroll
        for (int k = 1; k < OF_LANE; k++) {
            if (rows.at[k] == rows.at[k - 1]) {
                tail += product[k];
            } else {
                if (one_row) {
                    head = tail;
                } else {
                    put<ONTO>(target, rows.at[k - 1], tail);
                }
                one_row = false;
                tail = product[k];
            }
        }

        // the entry before this lane's: its row, and after the scan what that row has up to there
        u32 row_before = __shfl_up_sync(ALL, rows.at[OF_LANE - 1], 1);
        if (lane == 0) row_before = open_row;
        const bool continues = rows.at[0] == row_before;
        // the first lane takes over from the tile before
        if (lane == 0 && !continues) put<ONTO>(target, open_row, open_sum);
        real sum = tail;
        if (lane == 0 && continues && one_row) sum += open_sum;
        sum = scan_rows(sum, __ballot_sync(ALL, lane == 0 || !one_row || !continues));
        real sum_before = __shfl_up_sync(ALL, sum, 1);
        if (lane == 0) sum_before = open_sum;

        // rows that end: the first of a lane with several, and the last of a lane whose neighbour goes on with another
        if (!one_row) put<ONTO>(target, rows.at[0], continues ? sum_before + head : head);
        const u32 row_behind = __shfl_down_sync(ALL, rows.at[0], 1);
        if (lane < 31 && row_behind != rows.at[OF_LANE - 1]) put<ONTO>(target, rows.at[OF_LANE - 1], sum);
        open_row = __shfl_sync(ALL, rows.at[OF_LANE - 1], 31);
        open_sum = __shfl_sync(ALL, sum, 31);
    }
    if (lane == 0) put<ONTO>(target, open_row, open_sum);
}

extern "C" __global__ __launch_bounds__(256, 5) void coo(Coo a, const real* x, real* y) {
    multiply<WRITE>(a, x, y);
}
extern "C" __global__ __launch_bounds__(256, 5) void coo_add(Coo a, const real* x, real* y) {
    multiply<ADD>(a, x, y);
}
// Over zeros.
extern "C" __global__ __launch_bounds__(256, 5) void coo_atomic(Coo a, const real* x, real* y) {
    multiply<ATOMIC>(a, x, y);
}
extern "C" __global__ __launch_bounds__(256, 5) void csr_by_entries(CsrByEntries a, const real* x, real* y) {
    multiply<WRITE>(a, x, y);
}

// The rows of `rest`: a warp each for those that cross the borders of chunks, a thread each for those without entries.
template <Onto ONTO> __device__ __forceinline__ void finish(const Rest& rest, real* y) {
    const u32 lane = threadIdx.x % 32;
    const i64 thread = (i64)blockIdx.x * blockDim.x + threadIdx.x, threads = (i64)gridDim.x * blockDim.x;
    for (i64 i = thread / 32; i < rest.crossings; i += threads / 32) {
        const u32 row = __ldg(rest.crossing + 3 * i), last = __ldg(rest.crossing + 3 * i + 2);
        const u32 first = __ldg(rest.crossing + 3 * i + 1);
        // the first chunk's last row is every later chunk's first
        real sum = 0;
        for (u32 chunk = first + lane; chunk <= last; chunk += 32) sum += rest.carries[2 * (i64)chunk + (chunk == first)];
        sum = warp_sum(sum);
        if (lane == 0) y[row] = ONTO == ADD ? y[row] + sum : sum;
    }
    if (ONTO == ADD) return;
    for (i64 i = thread; i < rest.empties; i += threads) y[__ldg(rest.empty + i)] = 0;
}
extern "C" __global__ __launch_bounds__(256) void coo_finish(Rest rest, real* y) { finish<WRITE>(rest, y); }
extern "C" __global__ __launch_bounds__(256) void coo_finish_add(Rest rest, real* y) { finish<ADD>(rest, y); }

// Coordinates of the last entries of each row: `here` are those, `all` the matrix they are of.
struct Taken {
    RowStarts all, here;
    const u32* columns;       // of all
    u32 last_row, last_column;
    u64 slots;                // with padding, which repeats the last row and column
};

// Calls visit(slot, row, its entry of `all`): `all` may be of another pattern than what the matrix was made from.
template <class Visit> __device__ __forceinline__ void each_slot(const Taken& a, Visit visit) {
    const i64 threads = (i64)gridDim.x * blockDim.x, count = a.here.start(a.here.count);
    for (i64 slot = (i64)blockIdx.x * blockDim.x + threadIdx.x; slot < count; slot += threads) {
        const i64 row = a.here.row_of(slot, 0, a.here.count);
        const i64 entry = a.all.start(row + 1) - (a.here.start(row + 1) - slot);
        if (entry >= a.all.start(row)) visit(slot, row, entry);
    }
}

// Rows and columns of all slots.
extern "C" __global__ __launch_bounds__(256) void coo_places(Taken a, u32* rows, u32* columns) {
    each_slot(a, [&](i64 slot, i64 row, i64 entry) {
        rows[slot] = row;
        columns[slot] = a.columns[entry];
    });
    const i64 threads = (i64)gridDim.x * blockDim.x, count = a.here.start(a.here.count);
    for (i64 slot = count + (i64)blockIdx.x * blockDim.x + threadIdx.x; slot < (i64)a.slots; slot += threads) {
        rows[slot] = a.last_row;
        columns[slot] = a.last_column;
    }
}

// Takes values from entries that lie row by row, or gives them back.
extern "C" __global__ __launch_bounds__(256) void coo_exchange(Taken a, real* entries, stored* values, u32 back) {
    each_slot(a, [&](i64 slot, i64, i64 entry) { exchange(entries[entry], values[slot], back); });
}
