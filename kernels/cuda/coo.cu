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
// chunk that comes last adds up the row, took 3 to 5 % longer on an H200: circuit_1M 0.0137 ms for 0.0131, f64.)
//
// Moves 16 B (f64) or 12 B (f32) an entry, x and y; 16 B or 8 B a chunk and 12 B a crossing row; 4 B a row without
// entries, which `coo_finish` sets to zero.

struct Coo {
    const u32* rows;          // of entries, the last repeated to a multiple of the tile
    const u32* columns;
    const real* values;       // zero beyond the last entry
    real* carries;            // of each chunk: of its first row, of its last
    u32 tiles;                // of all chunks
    u32 tiles_of_chunk;
};

// Rows that cross the borders of chunks, and rows without entries.
struct Rest {
    const u32* crossing;      // [row, first chunk, last chunk] each
    const u32* empty;
    const real* carries;
    u32 crossings, empties;
};

constexpr int OF_LANE = 4;    // entries of a lane in a tile

// Where the sum of a row goes: into y, or out of the chunk.
struct Target {
    real* y;
    real* carries;            // of this chunk
    u32 first, last;          // rows that other chunks share; NONE where they do not
};
constexpr u32 NONE = ~0u;

template <bool ADD> __device__ __forceinline__ void put(const Target& target, u32 row, real sum) {
    if (row == target.first) {
        target.carries[0] = sum;
    } else if (row == target.last) {
        target.carries[1] = sum;
    } else {
        target.y[row] = ADD ? target.y[row] + sum : sum;
    }
}

template <class X> __device__ __forceinline__ Few<X, OF_LANE> of_lane(const X* array, i64 tile, u32 lane) {
    constexpr int WIDE = 16 / sizeof(X) < OF_LANE ? 16 / sizeof(X) : OF_LANE;
    const Few<X, WIDE>* pieces = (const Few<X, WIDE>*)array + (tile * 32 + lane) * (OF_LANE / WIDE);
    Few<X, OF_LANE> entries;
#pragma unroll
    for (int q = 0; q < OF_LANE / WIDE; q++) {
        const Few<X, WIDE> piece = stream(pieces + q);
#pragma unroll
        for (int k = 0; k < WIDE; k++) entries.at[q * WIDE + k] = piece.at[k];
    }
    return entries;
}

// y ← A x, or y ← y + A x if ADD, but for the rows in `Rest`.
template <bool ADD> __device__ __forceinline__ void multiply(const Coo& a, const real* x, real* y) {
    const u32 lane = threadIdx.x % 32;
    const i64 chunk = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    i64 tile = chunk * a.tiles_of_chunk;
    const i64 end = tile + a.tiles_of_chunk < a.tiles ? tile + a.tiles_of_chunk : a.tiles;
    if (tile >= end) return;
    constexpr int TILE = 32 * OF_LANE;

    Target target{y, a.carries + 2 * chunk, NONE, NONE};
    const u32 first_row = __ldg(a.rows + tile * TILE), last_row = __ldg(a.rows + (end * TILE - 1));
    if (tile > 0 && __ldg(a.rows + (tile * TILE - 1)) == first_row) target.first = first_row;
    if (end < a.tiles && __ldg(a.rows + end * TILE) == last_row) target.last = last_row;

    u32 open_row = first_row;     // the row of the entry before this tile, and what it has so far
    real open_sum = 0;
    for (; tile < end; tile++) {
        const Few<u32, OF_LANE> columns = of_lane(a.columns, tile, lane);
        const Few<u32, OF_LANE> rows = of_lane(a.rows, tile, lane);
        const Few<real, OF_LANE> values = of_lane(a.values, tile, lane);
        // never so; the compiler asks for all of the above before it can know
        if (columns.at[0] == NONE) return;
        real product[OF_LANE];
#pragma unroll
        for (int k = 0; k < OF_LANE; k++) product[k] = values.at[k] * __ldg(x + columns.at[k]);

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
                    put<ADD>(target, rows.at[k - 1], tail);
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
        if (lane == 0 && !continues) put<ADD>(target, open_row, open_sum);
        real sum = tail;
        if (lane == 0 && continues && one_row) sum += open_sum;
        // lanes from `start` on share their last row with this one
        const u32 restarts = __ballot_sync(ALL, lane == 0 || !one_row || !continues);
        const int start = 31 - __clz(restarts & (ALL >> (31 - lane)));
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            const real before = __shfl_up_sync(ALL, sum, step);
            if ((int)lane - step >= start) sum += before;
        }
        real sum_before = __shfl_up_sync(ALL, sum, 1);
        if (lane == 0) sum_before = open_sum;

        // rows that end: the first of a lane with several, and the last of a lane whose neighbour goes on with another
        if (!one_row) put<ADD>(target, rows.at[0], continues ? sum_before + head : head);
        const u32 row_behind = __shfl_down_sync(ALL, rows.at[0], 1);
        if (lane < 31 && row_behind != rows.at[OF_LANE - 1]) put<ADD>(target, rows.at[OF_LANE - 1], sum);
        open_row = __shfl_sync(ALL, rows.at[OF_LANE - 1], 31);
        open_sum = __shfl_sync(ALL, sum, 31);
    }
    if (lane == 0) put<ADD>(target, open_row, open_sum);
}

extern "C" __global__ __launch_bounds__(256, 5) void coo(Coo a, const real* x, real* y) {
    multiply<false>(a, x, y);
}
extern "C" __global__ __launch_bounds__(256, 5) void coo_add(Coo a, const real* x, real* y) {
    multiply<true>(a, x, y);
}

// The rows of `rest`: a warp each for those that cross the borders of chunks, a thread each for those without entries.
template <bool ADD> __device__ __forceinline__ void finish(const Rest& rest, real* y) {
    const u32 lane = threadIdx.x % 32;
    const i64 thread = (i64)blockIdx.x * blockDim.x + threadIdx.x, threads = (i64)gridDim.x * blockDim.x;
    for (i64 i = thread / 32; i < rest.crossings; i += threads / 32) {
        const u32 row = __ldg(rest.crossing + 3 * i), last = __ldg(rest.crossing + 3 * i + 2);
        const u32 first = __ldg(rest.crossing + 3 * i + 1);
        // the first chunk's last row is every later chunk's first
        real sum = 0;
        for (u32 chunk = first + lane; chunk <= last; chunk += 32) sum += rest.carries[2 * (i64)chunk + (chunk == first)];
        sum = warp_sum(sum);
        if (lane == 0) y[row] = ADD ? y[row] + sum : sum;
    }
    if (ADD) return;
    for (i64 i = thread; i < rest.empties; i += threads) y[__ldg(rest.empty + i)] = 0;
}
extern "C" __global__ __launch_bounds__(256) void coo_finish(Rest rest, real* y) { finish<false>(rest, y); }
extern "C" __global__ __launch_bounds__(256) void coo_finish_add(Rest rest, real* y) { finish<true>(rest, y); }

// Coordinates of the last entries of each row: `here` are those, `all` the matrix they are of.
struct Taken {
    RowStarts all, here;
    const u32* columns;       // of all
    u32 last_row, last_column;
    u64 slots;                // with padding, which repeats the last row and column
};

// The row that an entry is of: the last that starts at or before it, and is not empty.
__device__ __forceinline__ i64 row_of(const RowStarts& rows, i64 entry) {
    i64 low = 0, high = rows.count;   // start(low) ≤ entry < start(high)
    while (high - low > 1) {
        const i64 middle = (low + high) / 2;
        if (rows.start(middle) <= entry) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

// Rows and columns of all slots.
extern "C" __global__ __launch_bounds__(256) void coo_places(Taken a, u32* rows, u32* columns) {
    const i64 threads = (i64)gridDim.x * blockDim.x, count = a.here.start(a.here.count);
    for (i64 slot = (i64)blockIdx.x * blockDim.x + threadIdx.x; slot < (i64)a.slots; slot += threads) {
        if (slot < count) {
            const i64 row = row_of(a.here, slot);
            rows[slot] = row;
            columns[slot] = a.columns[a.all.start(row + 1) - (a.here.start(row + 1) - slot)];
        } else {
            rows[slot] = a.last_row;
            columns[slot] = a.last_column;
        }
    }
}

// Takes values from entries that lie row by row, or gives them back.
extern "C" __global__ __launch_bounds__(256) void coo_exchange(Taken a, real* entries, real* values, u32 back) {
    const i64 threads = (i64)gridDim.x * blockDim.x, count = a.here.start(a.here.count);
    for (i64 slot = (i64)blockIdx.x * blockDim.x + threadIdx.x; slot < count; slot += threads) {
        const i64 row = row_of(a.here, slot);
        exchange(entries[a.all.start(row + 1) - (a.here.start(row + 1) - slot)], values[slot], back);
    }
}
