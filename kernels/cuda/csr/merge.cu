// CSR products balanced by work: y_i ← Σ_k v_k x_{c_k} for any distribution of row lengths (merge path, Merrill and
// Garland).
//
// Row ends and entries are merged into one list, in which the end of a row follows its entries. Each warp takes a tile
// with the same number of items, so that neither one row of 100,000 entries nor 100,000 empty rows keep a warp longer
// than others. A warp loads all entries of its tile together and writes the products to shared memory. Then one lane
// sums each row that ends in the tile; rows with a long part are summed by the whole warp.
//
// Parts of a row in earlier warps of the block are passed on through shared memory. A row that crosses blocks is not
// written by `merge`: each block stores its part of the sum as a carry, and `merge_finish` adds these parts in order.
// There are no atomic additions, so every product is bitwise the same.
//
// Memory traffic: 12 B (f64) or 8 B (f32) an entry, 4 or 8 B of offsets a row, 4 B a tile, x and y; 16 B or 8 B a block
// and 12 B a crossing row.

struct Merge {
    RowStarts rows;
    const u32* columns;
    const stored* values;
    // number of rows that end before each tile; tiles are padded to whole thread blocks, and one more number belongs
    // to the end of the merged list
    const u32* first;
    // two for each block: its part of the row that began in an earlier block, and its part of the row that continues in
    // the next block
    real* carries;
    u64 entries;
};

// Rows that cross thread blocks.
struct Crossing {
    const u32* rows;          // [row, first block, last block] of each
    const real* carries;
    u32 count;
};

constexpr int WARPS = THREADS / 32, TILE = 32 * OF_LANE;
// Row parts longer than this are summed by all lanes.
constexpr int LONG = 24;

// Position of an entry in shared memory, padded to prevent bank conflicts of rows of equal length.
__device__ __forceinline__ constexpr int spread(int entry) { return entry + entry / (128 / (int)sizeof(real)); }

// Resident blocks per multiprocessor that registers allow if each thread has eight entries in flight.
constexpr int BLOCKS = sizeof(real) == 8 ? 4 : 5;

extern "C" __global__ __launch_bounds__(THREADS, BLOCKS) void merge(Merge a, const real* x, real* y) {
    begin();
    // for each warp: the products v_k x_{c_k} of its tile's entries
    __shared__ real shared[WARPS][spread(TILE)];
    __shared__ real heads[WARPS], tails[WARPS];
    // for each warp. heads: the part of the sum of the row that began before the warp's tile and ends in it; tails:
    // that of the row that continues in the next tile; head_rows: the row of the head, or NONE; ends: whether any row
    // ends in the tile; begins_here: whether the head's row began in this block
    __shared__ u32 head_rows[WARPS];
    __shared__ bool ends[WARPS], begins_here[WARPS];
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const i64 tile = (i64)blockIdx.x * WARPS + warp, items = (i64)a.rows.count + (i64)a.entries;
    const i64 start = tile * TILE < items ? tile * TILE : items, end = start + TILE < items ? start + TILE : items;
    const i64 row = __ldg(a.first + tile), row_end = __ldg(a.first + tile + 1);
    const i64 entry = start - row;
    const int count = int(end - row_end - entry);
    real* products = shared[warp];

    u32 column[OF_LANE];
    stored v[OF_LANE];
#pragma unroll
    for (int k = 0; k < OF_LANE; k++) {
        const int at = k * 32 + lane;
        column[k] = at < count ? __ldcs(a.columns + entry + at) : NONE;
        v[k] = at < count ? __ldcs(a.values + entry + at) : stored(0);
    }
    // each lane processes one row: one that ends in the tile, or the last one, which continues
    i64 began = 0, ended = 0;
    if (row + lane <= row_end && row + lane < a.rows.count) {
        began = a.rows.start(row + lane);
        ended = a.rows.start(row + lane + 1);
    }
    real at_column[OF_LANE];
#pragma unroll
    for (int k = 0; k < OF_LANE; k++) at_column[k] = column[k] != NONE ? __ldg(x + column[k]) : real(0);
#pragma unroll
    for (int k = 0; k < OF_LANE; k++) products[spread(k * 32 + lane)] = v[k] * at_column[k];
    __syncwarp();

    if (lane == 0) {
        heads[warp] = 0;
        ends[warp] = row < row_end;
        head_rows[warp] = row < row_end && began < entry ? u32(row) : NONE;
        // the row began in this block if its first entry is not before the block's first entry
        const i64 first_tile = (i64)blockIdx.x * WARPS;
        const i64 first_item = first_tile * TILE < items ? first_tile * TILE : items;
        begins_here[warp] = began >= first_item - __ldg(a.first + first_tile);
    }
    __syncwarp();
    real tail = 0;
    for (i64 at = row; at <= row_end; at += 32) {
        if (at > row) {
            began = ended = 0;
            if (at + lane <= row_end && at + lane < a.rows.count) {
                began = a.rows.start(at + lane);
                ended = a.rows.start(at + lane + 1);
            }
        }
        // `here`: the lane's row ends in the tile; `open`: it is the last row, which continues and has the remaining
        // entries
        const bool here = at + lane < row_end, open = at + lane == row_end && at + lane < a.rows.count;
        const int from = began > entry ? int(began - entry) : 0;
        const int to = here ? int(ended - entry) : open ? count : from;
        const bool is_long = to - from > LONG;
        real sum = 0;
        if (!is_long) {
            for (int k = from; k < to; k++) sum += products[spread(k)];
        }
        for (u32 left = __ballot_sync(ALL, is_long); left; left &= left - 1) {
            const int whose = __ffs(left) - 1;
            const int k_from = __shfl_sync(ALL, from, whose), k_to = __shfl_sync(ALL, to, whose);
            real part = 0;
            for (int k = k_from + (int)lane; k < k_to; k += 32) part += products[spread(k)];
            part = warp_sum(part);
            if ((int)lane == whose) sum = part;
        }
        if (here) {
            if (at + lane == row && began < entry) {
                heads[warp] = sum;
            } else {
                y[at + lane] = sum;
            }
        }
        if (open) tail = sum;
    }
    tail = warp_sum(tail);
    if (lane == 0) tails[warp] = tail;
    __syncthreads();

    if (threadIdx.x == 0) {
        real carry = 0, out = 0;
        for (int w = 0; w < WARPS; w++) {
            if (ends[w]) {
                if (head_rows[w] != NONE) {
                    if (begins_here[w]) {
                        y[head_rows[w]] = carry + heads[w];
                    } else {
                        out = carry + heads[w];
                    }
                }
                carry = 0;
            }
            carry += tails[w];
        }
        a.carries[2 * (i64)blockIdx.x] = out;
        a.carries[2 * (i64)blockIdx.x + 1] = carry;
    }
}

// One warp per crossing row.
extern "C" __global__ __launch_bounds__(THREADS) void merge_finish(Crossing a, real* y) {
    begin();
    const u32 lane = threadIdx.x % 32, warps = gridDim.x * (blockDim.x / 32);
    for (i64 i = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / 32; i < a.count; i += warps) {
        const u32 row = __ldg(a.rows + 3 * i), first = __ldg(a.rows + 3 * i + 1), last = __ldg(a.rows + 3 * i + 2);
        real sum = 0;
        for (u32 block = first + lane; block <= last; block += 32) sum += a.carries[2 * (i64)block + (block != last)];
        sum = warp_sum(sum);
        if (lane == 0) y[row] = sum;
    }
}
