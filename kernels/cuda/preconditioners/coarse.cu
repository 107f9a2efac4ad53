// Coarse-space correction: restriction c = Zᵀ r, dense product e = E c, and prolongation z = M⁻¹ r + Z e, in one launch
// each; and the computation of E as an inverse. The columns of Z span the coarse space.
//
// Memory traffic: for the restriction, r, and an index and `modes` weights a row; fused with the update of r, also q,
// and r a second time. For the dense product, E. For the prolongation, r, z, the diagonal of M⁻¹, and an index and the
// weights a row.

// Rows sorted by aggregate, and the columns of Z: `modes` per aggregate.
struct Aggregates {
    const u32* starts;         // start of each aggregate's rows, and the end
    const u32* rows;           // rows, aggregate by aggregate, followed by those without an aggregate
    const u32* of_row;         // aggregate of each row; NONE for rows without one
    const real* weights;       // entries of Z, [modes][n]: for each mode one per row; null if all are one
    i64 n;                     // number of rows
    u32 count;                 // number of aggregates
    u32 modes;                 // columns of Z per aggregate
    u32 rows_alone;            // rows per block, for the blocks that update rows without an aggregate
};

constexpr int TOGETHER = 3;    // modes summed in one pass over the rows

// Computes the entries of c = Zᵀ r for this block's aggregate: sums over its rows, in a fixed order. Calls update(row)
// once for each row, which returns the entry of r. Blocks with an index of `count` or more update rows without an
// aggregate.
template <class Update> __device__ __forceinline__ void restrict_block(const Aggregates& z, const real* r, real* c, Update& update) {
    const u32 own = blockIdx.x;
    const bool sums = own < z.count;
    const i64 alone = z.starts[z.count];
    const i64 first = sums ? (i64)z.starts[own] : alone + (i64)(own - z.count) * z.rows_alone;
    const i64 end = sums ? (i64)z.starts[own + 1] : min(first + (i64)z.rows_alone, z.n);
    for (u32 mode = 0; mode < z.modes; mode += TOGETHER) {
        real sum[TOGETHER] = {};
        for (i64 k = first + threadIdx.x; k < end; k += blockDim.x) {
            const u32 row = z.rows[k];
            // only the first pass updates r; later passes read the entries that the same thread wrote then
            const real v = mode == 0 ? update(row) : r[row];
            if (!z.weights) {
                sum[0] += v;
            } else {
#pragma unroll
                for (int j = 0; j < TOGETHER; j++) {
                    if (mode + j < z.modes) sum[j] += z.weights[(i64)(mode + j) * z.n + row] * v;
                }
            }
        }
        if (!sums) return;     // the same for all threads of the block
        block_sum(sum);
        if (threadIdx.x == 0) {
#pragma unroll
            for (int j = 0; j < TOGETHER; j++) {
                if (mode + j < z.modes) c[own * z.modes + mode + j] = sum[j];
            }
        }
    }
}

struct Read {
    const real* r;
    __device__ __forceinline__ real operator()(u32 row) { return r[row]; }
};
// c ← Zᵀ r
extern "C" __global__ __launch_bounds__(THREADS) void restrict_rows(Aggregates z, const real* r, real* c) {
    begin();
    Read read{r};
    restrict_block(z, r, c, read);
}

struct Axpy {
    real a;
    const real* q;
    real* r;
    real sum[1];
    __device__ __forceinline__ real operator()(u32 row) {
        const real v = r[row] + a * q[row];
        r[row] = v;
        sum[0] += v * v;
        return v;
    }
};
// r ← r + a q; c ← Zᵀ r; ‖r‖²
extern "C" __global__ __launch_bounds__(THREADS) void update_restrict(Gate gate, Aggregates z, Number a, const real* q, real* r, real* c, Sum out) {
    begin();
    if (closed(gate)) return;
    Axpy axpy{value(a), q, r, {0}};
    restrict_block(z, r, c, axpy);
    grid_sum(axpy.sum, out);
}

// y ← E c, one warp per row of E; rows are `stride` elements apart, padded with zeros
extern "C" __global__ __launch_bounds__(32 * DENSE_ROWS) void dense_product(const real* e, u32 n, u32 stride, const real* c, real* y) {
    begin();
    const u32 row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x & 31;
    if (row >= n) return;
    const Pack* entries = (const Pack*)(e + (i64)row * stride);
    const Pack* numbers = (const Pack*)c;
    real sum[PACK] = {};
#pragma unroll 4
    for (u32 k = lane; k < stride / PACK; k += 32) {
        const Pack v = entries[k], x = numbers[k];
#pragma unroll
        for (int j = 0; j < PACK; j++) sum[j] += v.at[j] * x.at[j];
    }
    real total = 0;
#pragma unroll
    for (int j = 0; j < PACK; j++) total += sum[j];
    total = warp_sum(total);
    if (lane == 0) y[row] = total;
}

// to ← d ∘ r + Z e (∘: entry by entry), or to ← to + Z e if d is null; returns this thread's part of ⟨r, to⟩
__device__ __forceinline__ real prolong_rows(const Aggregates& z, const real* d, const real* r, const real* e, real* to) {
    real sum = 0;
    const i64 stride = (i64)gridDim.x * blockDim.x;
#pragma unroll 2
    for (i64 row = (i64)blockIdx.x * blockDim.x + threadIdx.x; row < z.n; row += stride) {
        const real v = r[row];
        real own = d ? d[row] * v : to[row];
        const u32 aggregate = z.of_row[row];
        if (aggregate != NONE) {
            if (!z.weights) {
                own += e[aggregate];
            } else {
                for (u32 mode = 0; mode < z.modes; mode++) own += z.weights[mode * z.n + row] * e[aggregate * z.modes + mode];
            }
        }
        to[row] = own;
        sum += v * own;
    }
    return sum;
}
extern "C" __global__ __launch_bounds__(THREADS) void prolong(Gate gate, Aggregates z, const real* d, const real* r, const real* e, real* to) {
    begin();
    if (closed(gate)) return;
    prolong_rows(z, d, r, e, to);
}
extern "C" __global__ __launch_bounds__(THREADS) void prolong_dot(Gate gate, Aggregates z, const real* d, const real* r, const real* e, real* to, Sum out) {
    begin();
    if (closed(gate)) return;
    real sum[1] = {prolong_rows(z, d, r, e, to)};
    grid_sum(sum, out);
}

// Copies blocks of `modes` rows and columns, `entries` values in total, to their positions in the dense matrix `a`;
// `places` has the block row and the block column of each block.
extern "C" __global__ __launch_bounds__(THREADS) void expand(double* a, u32 stride, const u32* places, const double* blocks, u32 modes, u64 entries) {
    begin();
    const u64 k = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= entries) return;
    const u64 block = k / (modes * modes);
    const u32 entry = k % (modes * modes);
    const u64 row = (u64)places[2 * block] * modes + entry / modes, column = (u64)places[2 * block + 1] * modes + entry % modes;
    a[row * stride + column] = blocks[k];
}

// ---- the inverse in double precision: Gauss-Jordan elimination with panels k of 32 rows, without pivoting
//
//     D = A_kk⁻¹    R = D A_k,:    R_:k = D    W = A_:k    A_i,: ← A_i,: − W_i R    A_k,: ← R
//
// Two launches a panel. Thread t of a block processes column t % 32 of a panel, and rows t / 32 + CONCURRENT s for s =
// 0, 1, …

// Number of rows of a panel that a block processes at the same time.
constexpr u32 CONCURRENT = THREADS / PANEL;

// Computes R and W for the panel that begins at row `first`; one block for 32 columns of R and 32 rows of W. Every
// block inverts A_kk redundantly. `failed` receives [row + 1, pivot] of the first pivot that is not above `least`.
extern "C" __global__ __launch_bounds__(THREADS) void invert_panel(const double* a, u32 n, u32 stride, u32 first, const double* least, double* r, double* w, double* failed) {
    begin();
    // d: A_kk, later D; t: the rows of the panel in this block's 32 columns
    __shared__ double d[PANEL][PANEL + 1], t[PANEL][PANEL + 1];
    const u32 rows = min(PANEL, n - first), j = threadIdx.x % PANEL, top = threadIdx.x / PANEL;
    const u32 column = blockIdx.x * PANEL + j;
    for (u32 i = top; i < PANEL; i += CONCURRENT) {
        const i64 row = (i64)(first + i) * stride;
        // a smaller last panel is padded with the identity
        d[i][j] = i < rows && j < rows ? a[row + first + j] : i == j ? 1.0 : 0.0;
        t[i][j] = i < rows && column < stride ? a[row + column] : 0.0;
    }
    __syncthreads();
    for (u32 k = 0; k < PANEL; k++) {
        const double pivot = d[k][k], inverse = 1.0 / pivot, above = d[k][j];
        double next[PANEL / CONCURRENT];
#pragma unroll
        for (u32 s = 0; s < PANEL / CONCURRENT; s++) {
            const u32 i = top + CONCURRENT * s;
            const double left = d[i][k];
            if (i == k) {
                next[s] = j == k ? inverse : above * inverse;
            } else {
                next[s] = j == k ? -left * inverse : d[i][j] - left * (above * inverse);
            }
        }
        if (blockIdx.x == 0 && threadIdx.x == 0 && k < rows && failed[0] == 0.0 && !(pivot > least[first + k] && finite(pivot))) {
            failed[0] = first + k + 1;
            failed[1] = pivot;
        }
        __syncthreads();
#pragma unroll
        for (u32 s = 0; s < PANEL / CONCURRENT; s++) d[top + CONCURRENT * s][j] = next[s];
        __syncthreads();
    }
    for (u32 i = top; i < PANEL; i += CONCURRENT) {
        double sum = 0;
#pragma unroll 8
        for (u32 k = 0; k < PANEL; k++) sum += d[i][k] * t[k][j];
        const bool own = column >= first && column - first < rows;
        if (column < stride) r[(i64)i * stride + column] = i >= rows ? 0.0 : own ? d[i][column - first] : sum;
        const u32 row = blockIdx.x * PANEL + i;
        if (row < n) w[row * PANEL + j] = j < rows ? a[(i64)row * stride + first + j] : 0.0;
    }
}

// Updates A with R and W; one block for 32 rows and 32 columns of A.
extern "C" __global__ __launch_bounds__(THREADS) void update_panel(double* a, u32 n, u32 stride, u32 first, const double* r, const double* w) {
    begin();
    // this block's 32 rows of W, and its 32 columns of R
    __shared__ double left[PANEL][PANEL + 1], above[PANEL][PANEL + 1];
    const u32 rows = min(PANEL, n - first), j = threadIdx.x % PANEL, top = threadIdx.x / PANEL;
    const u32 column = blockIdx.x * PANEL + j, corner = blockIdx.y * PANEL;
    for (u32 i = top; i < PANEL; i += CONCURRENT) {
        left[i][j] = corner + i < n ? w[(corner + i) * PANEL + j] : 0.0;
        above[i][j] = column < stride ? r[(i64)i * stride + column] : 0.0;
    }
    __syncthreads();
    if (column >= stride) return;
    const bool own_column = column >= first && column - first < rows;
    for (u32 i = top; i < PANEL; i += CONCURRENT) {
        const u32 row = corner + i;
        if (row >= n) break;
        double* entry = a + (i64)row * stride + column;
        if (row >= first && row - first < rows) {
            *entry = above[row - first][j];
            continue;
        }
        double sum = own_column ? 0.0 : *entry;
#pragma unroll 8
        for (u32 k = 0; k < PANEL; k++) sum -= left[i][k] * above[k][j];
        *entry = sum;
    }
}

// Writes the inverse to E, rounded to the element type. The lower triangle is written to both triangles, so that E is
// exactly symmetric.
extern "C" __global__ __launch_bounds__(THREADS) void round_inverse(const double* a, u32 n, u32 stride, real* e) {
    begin();
    const u32 column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    if (column >= stride) return;
    double v = 0;
    if (column < n) v = column <= row ? a[(i64)row * stride + column] : a[(i64)column * stride + row];
    e[(i64)row * stride + column] = real(v);
}
