// Symmetric matrices, in which each pair of mirrored dense blocks within a block of rows is stored once.
//
// A thread block processes a block of nodes with B rows each, with the window of halo_windows.cu, and accumulates sums
// in shared memory. A pair (i, j) of nodes in the block is stored at one of its ends and contributes to both sums: y_i
// += A_ij x_j in registers of the thread that has i, y_j += A_ijᵀ x_i in shared memory. Pairs are grouped into steps,
// each followed by a barrier. The pairs of a step have different i and different j (a matching), so no atomic additions
// are needed, and the order of additions is fixed. Pairs of nodes in different blocks are stored at both ends; they
// fill slots that steps leave empty.
//
// Nodes are sorted by the number of pairs stored at them, in slices of 32, one node per lane; a thread has R nodes.
// Group s of a slice belongs to step s: element (i, j) of the dense block at lane l is element (i B + j) 32 + l of the
// group. Of diagonal blocks, the upper triangle is stored, row by row.
//
// Memory traffic: 8 + 2/B² B (f64) or 4 + 2/B² B (f32) for the two mirrored entries of a pair within a block, and for
// each entry of a diagonal block or of a pair that crosses blocks; windows as in halo_windows.cu; x and y.
//
// Faster than Halo for several rows per node and matrices larger than the L2 cache: el3_100M_perm on an H200 0.129 ms
// (f64), Halo 0.190, each for a matrix reordered into clusters as large as its blocks (bench `cuda_spmv`, with and
// without `--pairs`). If a matrix fits in the cache, bytes are not the bottleneck (el3_10M_perm 0.030, Halo 0.023).
//
// With one row per node it is slower than Halo: a pair saves a quarter of the bytes, but takes three accesses to shared
// memory with random bank conflicts instead of one per entry. Times for p1_100M_perm in ms, f64 / f32: Halo 0.264-0.278
// / 0.166-0.173; this kernel 0.326 / 0.218. Variants that were tried and not kept: two or three steps in flight in
// registers, with blocks of 512 rows, 0.280 / 0.188; steps copied into a ring buffer in shared memory 0.300 / 0.185;
// pairs only within the 128 rows of a warp, without barriers, 0.314 / 0.248. Barriers are not the cause: without them
// (and with wrong sums) this kernel takes the same time.

struct Symmetric {
    Windows windows;
    const u32* slices;        // first group of each slice of 32 nodes, and the end
    const u32* steps;         // for each block, number of steps that end with a barrier
    const u16* order;         // node (within its block) at each place, that is, in the sorted order
    const u16* columns;       // position in the window of each pair's other node
    const stored* values;
    const stored* diagonals;  // upper triangles of the diagonal blocks
    u32 window;               // number of nodes of the largest window, including the zero; sums are stored after it
};

extern __shared__ __align__(16) unsigned char shared_memory[];

template <int B> constexpr int HALF = B * (B + 1) / 2;
// Number of nodes per thread, limited by registers.
template <int B> constexpr int NODES = sizeof(real) == 8 ? NODES_OF_8<B> : NODES_OF_4<B>;

// A dense block, and the position of its column in the window.
template <int B> struct Slot {
    stored v[B * B];
    u32 place;

    __device__ __forceinline__ void load(const Symmetric& a, u32 group, u32 lane) {
        const stored* values = a.values + ((i64)group * (B * B * 32) + lane);
#pragma unroll
        for (int e = 0; e < B * B; e++) v[e] = __ldcs(values + e * 32);
        place = __ldcs(a.columns + ((i64)group * 32 + lane));
    }
};

// Returns this thread's part of ⟨x, y⟩ if DOT is true.
template <int B, bool DOT> __device__ __forceinline__ real multiply(const Symmetric& a, const real* __restrict__ x, real* __restrict__ y) {
    constexpr int R = NODES<B>, T = SYMMETRIC_THREADS<B>, WARPS = T / 32;
    // one thread block per block of nodes
    const Block at(a.windows, blockIdx.x);
    const u32 first = at.first, own = at.rows, steps = __ldg(a.steps + blockIdx.x);
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    real* const window = (real*)shared_memory;
    real* const sums = window + a.window * B;
    at.gather_window<B, T>(a.windows, x, window);
    for (u32 i = threadIdx.x; i < own * B; i += T) sums[i] = 0;

    u32 start[R], groups[R], node[R], most = steps;
#pragma unroll
    for (int r = 0; r < R; r++) {
        const u32 place = (r * WARPS + warp) * 32 + lane, slice = first / 32 + r * WARPS + warp;
        start[r] = groups[r] = 0;
        node[r] = place < own ? __ldg(a.order + first + place) : own;
        if (place / 32 * 32 < own) {
            start[r] = __ldg(a.slices + slice);
            groups[r] = __ldg(a.slices + slice + 1) - start[r];
        }
        most = max(most, groups[r]);
    }
    // number of dense blocks loaded ahead: for B = 1, one for each of the thread's nodes; for B = 2 and 3, one;
    // otherwise none
    constexpr int AHEAD = B == 1 ? R : B <= 3 ? 1 : 0;
    Slot<B> next[AHEAD ? AHEAD : 1];
#pragma unroll
    for (int r = 0; r < AHEAD; r++) {
        if (groups[r] > 0) next[r].load(a, start[r], lane);
    }
    gathered();
    real mine[R][B];
#pragma unroll
    for (int r = 0; r < R; r++) {
#pragma unroll
        for (int i = 0; i < B; i++) mine[r][i] = 0;
    }
    for (u32 s = 0; s < most; s++) {
        Slot<B> now[AHEAD > 1 ? AHEAD : 1];
        if (AHEAD > 1) {
#pragma unroll
            for (int r = 0; r < AHEAD; r++) {
                now[r] = next[r];
                if (s + 1 < groups[r]) next[r].load(a, start[r] + s + 1, lane);
            }
        }
#pragma unroll
        for (int r = 0; r < R; r++) {
            if (AHEAD == 1) {
                now[0] = next[0];
                const int then = r + 1 < R ? r + 1 : 0;
                const u32 at = r + 1 < R ? s : s + 1;
                if (at < groups[then]) next[0].load(a, start[then] + at, lane);
            }
            if (AHEAD == 0 && s < groups[r]) now[0].load(a, start[r] + s, lane);
            if (s >= groups[r]) continue;
            const Slot<B>& slot = now[AHEAD > 1 ? r : 0];
            const real* x_j = window + slot.place * B;
#pragma unroll
            for (int i = 0; i < B; i++) {
#pragma unroll
                for (int j = 0; j < B; j++) mine[r][i] += slot.v[i * B + j] * x_j[j];
            }
            if (slot.place < own) {
                const real* x_i = window + node[r] * B;
#pragma unroll
                for (int j = 0; j < B; j++) {
                    real sum = 0;
#pragma unroll
                    for (int i = 0; i < B; i++) sum += slot.v[i * B + j] * x_i[i];
                    sums[slot.place * B + j] += sum;
                }
            }
        }
        if (s < steps) __syncthreads();
    }
    real xy = 0;
#pragma unroll
    for (int r = 0; r < R; r++) {
        if (node[r] >= own) continue;
        const real* x_i = window + node[r] * B;
        const stored* d = a.diagonals + ((i64)(first / 32 + r * WARPS + warp) * (32 * HALF<B>) + lane);
        real sum[B];
#pragma unroll
        for (int i = 0; i < B; i++) sum[i] = mine[r][i] + sums[node[r] * B + i];
        int e = 0;
#pragma unroll
        for (int i = 0; i < B; i++) {
#pragma unroll
            for (int j = i; j < B; j++) {
                const real v = __ldcs(d + 32 * e++);
                sum[i] += v * x_i[j];
                if (j != i) sum[j] += v * x_i[i];
            }
        }
#pragma unroll
        for (int i = 0; i < B; i++) {
            sums[node[r] * B + i] = sum[i];
            if (DOT) xy += x_i[i] * sum[i];
        }
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < own * B; i += T) y[(i64)first * B + i] = sums[i];
    return xy;
}

#define KERNELS(NAME, B)                                                                                                \
    extern "C" __global__ __launch_bounds__(SYMMETRIC_THREADS<B>, SYMMETRIC_BLOCKS<B>) void NAME(Symmetric a, const real* x, real* y) {        \
        begin();                                                                                                        \
        multiply<B, false>(a, x, y);                                                                                    \
    }                                                                                                                   \
    extern "C" __global__ __launch_bounds__(SYMMETRIC_THREADS<B>, SYMMETRIC_BLOCKS<B>) void NAME##_dot(Symmetric a, const real* x, real* y, Sum sum) { \
        begin();                                                                                                        \
        real xy[1] = {multiply<B, true>(a, x, y)};                                                                      \
        grid_sum(xy, sum);                                                                                              \
    }
KERNELS(symmetric_1, 1)
KERNELS(symmetric_2, 2)
KERNELS(symmetric_3, 3)
KERNELS(symmetric_4, 4)
KERNELS(symmetric_6, 6)

// Index of the entry of a row in a column; NO_ENTRY if there is none.
constexpr i64 NO_ENTRY = -1;
__device__ __forceinline__ i64 find(const RowStarts& rows, const u32* columns, i64 row, u32 column) {
    i64 low = rows.start(row), high = rows.start(row + 1);
    const i64 end = high;
    while (low < high) {
        const i64 middle = (low + high) / 2;
        if (columns[middle] < column) low = middle + 1; else high = middle;
    }
    return low < end && columns[low] == column ? low : NO_ENTRY;
}

// Copies values from CSR entries (`rows`, `columns`, `entries`) to `values` and `diagonals`, or back, for nodes with
// `size` rows; one thread block per block of nodes. For a pair of mirrored entries that is stored once, the value of
// the entry below the diagonal is copied.
extern "C" __global__ __launch_bounds__(THREADS, 4) void symmetric_copy_values(
    Symmetric a, RowStarts rows, const u32* columns, real* entries, stored* values, stored* diagonals, u32 size, u32 back) {
    begin();
    const Block at(a.windows, blockIdx.x);
    const u32 first = at.first, own = at.own;
    const auto move = [&](stored& slot, u32 row, u32 column, bool paired) {
        const bool turned = paired && row < column;
        const i64 entry = turned ? find(rows, columns, column, row) : find(rows, columns, row, column);
        if (entry == NO_ENTRY) {
            if (!back) slot = 0;
            return;
        }
        copy_value(entries[entry], slot, back);
        if (!back || !paired || row == column) return;
        const i64 mirrored = turned ? find(rows, columns, row, column) : find(rows, columns, column, row);
        if (mirrored != NO_ENTRY) entries[mirrored] = slot;
    };
    for (u32 place = threadIdx.x; place < (own + 31) / 32 * 32; place += blockDim.x) {
        const u32 slice = first / 32 + place / 32, lane = place % 32, group = a.slices[slice], end = a.slices[slice + 1];
        if (place >= own) continue;
        const u32 node = first + a.order[first + place];
        u32 e = 0;
        for (u32 i = 0; i < size; i++) {
            for (u32 j = i; j < size; j++, e++) {
                move(diagonals[((i64)slice * (size * (size + 1) / 2) + e) * 32 + lane], node * size + i, node * size + j, true);
            }
        }
        for (u32 g = group; g < end; g++) {
            const u32 where = a.columns[(i64)g * 32 + lane];
            if (where >= at.zero()) continue;
            const u32 other = at.node(a.windows, where);
            for (u32 k = 0; k < size * size; k++) {
                move(values[((i64)g * (size * size) + k) * 32 + lane], node * size + k / size, other * size + k % size, where < own);
            }
        }
    }
}
