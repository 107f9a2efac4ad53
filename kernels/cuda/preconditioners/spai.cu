// Rows of a sparse approximate inverse. Row k of the inverse solves a least-squares problem, min ‖Σ_j m_j a_j − e_k‖,
// where j runs over the columns of the row, m_j are its values, a_j is row j of the matrix, and e_k is the k-th unit
// vector. (For a right inverse by columns, both matrices are transposed.)
//
// The problem, with the a_j as columns and e_k as last column, is solved by modified Gram-Schmidt without square roots,
// in double precision. Below, a_k and a_j are columns by number:
//
//     for each column k:  s_kj = ⟨a_k, a_j⟩ for j ≥ k;  a_j ← a_j − a_k s_kj / s_kk for j > k
//     then solve  S m = s_last,  where S = (s_kj) is upper triangular
//
// This is as backward stable as Householder reflections (Björck 1967), and needs only one reduction over lanes per
// step, for all columns together.
//
// A small problem is solved by a warp, in registers: a lane has R rows of each of K columns. For each entry, its row
// within the problem is computed once, in the setup, and stored in one byte. Larger problems are solved by a block, in
// shared memory or, if they do not fit, in device memory; there, the row of each entry is recomputed in each solve.
// Rows of the inverse with the same pattern, such as the unknowns of a node, have problems that differ in e_k only: a
// block solves up to 4 of them together.
//
// Memory traffic: the offsets, columns and values of the inverse once, and for each of its entries the values of a row
// of the matrix, mostly from caches; in addition, for problems of a warp the stored bytes, for other problems twice the
// columns of these rows. A step of a warp's problem with C columns left takes 4 R C flops a lane, about C + 2 shuffles,
// and C products through shared memory.

// ---- sums

// Sums C numbers over the lanes of a warp. Lane `lane_of(C, i)` receives the i-th sum; `which` is set to the index of
// the sum that the calling lane receives, or to C or more if it receives none.
template <int C> __device__ __forceinline__ double sums(double (&p)[C], int& which) {
    int width = C, own = C;
    which = 0;
#pragma unroll
    for (int step = 16; step; step /= 2) {
        const bool upper = threadIdx.x & step;
        if (width == 1) {
            p[0] += __shfl_xor_sync(ALL, p[0], step);
            continue;
        }
        const int half = (width + 1) / 2;
#pragma unroll
        for (int i = 0; i < C; i++) {
            if (i >= half) continue;
            const double low = p[i], high = i + half < width ? p[i + half < C ? i + half : 0] : 0.0;
            p[i] = (upper ? high : low) + __shfl_xor_sync(ALL, upper ? low : high, step);
        }
        which += upper ? half : 0;
        own = upper ? own - half : own < half ? own : half;
        width = half;
    }
    if (own < 1) which = C;
    return p[0];
}
__device__ __forceinline__ constexpr int lane_of(int columns, int i) {
    int lane = 0;
    for (int step = 16; step; step /= 2) {
        if (columns == 1) continue;
        const int half = (columns + 1) / 2;
        if (i >= half) {
            lane += step;
            i -= half;
        }
        columns = half;
    }
    return lane;
}

__device__ __forceinline__ double sum_of_lanes(double v) {
#pragma unroll
    for (int step = 16; step; step /= 2) v += __shfl_xor_sync(ALL, v, step);
    return v;
}

// ---- solving

// Solves S m = s for up to 32 L unknowns with a warp. Row k of S is stored at `products + k * apart`, its diagonal
// first and the right-hand sides last, of which number `member` is used. Returns false if a column is linearly
// dependent on the previous ones.
template <int L> __device__ __forceinline__ bool substitute(const double* products, i64 apart, int n, int member, int rows, real* solution) {
    const int lane = threadIdx.x % 32;
    double diagonal[L], inverse[L], right[L], above[L];
#pragma unroll
    for (int l = 0; l < L; l++) {
        const int i = lane + 32 * l;
        diagonal[l] = i < n ? products[i * apart] : 1.0;
        right[l] = i < n ? products[i * apart + n - i + member] : 0.0;
        inverse[l] = 1 / diagonal[l];
        above[l] = 0;
    }
#pragma unroll
    for (int h = 0; h < L; h++) {
        for (int i = 32 * h; i < 32 * (h + 1) && i < n - 1; i++) {
            const double scale = __shfl_sync(ALL, inverse[h], i % 32);
#pragma unroll
            for (int l = h; l < L; l++) {
                const int j = lane + 32 * l;
                if (j <= i || j >= n) continue;
                const double s = products[i * apart + j - i];
                above[l] += s * s * scale;
            }
        }
    }
    bool independent = true;
#pragma unroll
    for (int l = 0; l < L; l++) {
        const double norm = sqrt(diagonal[l]);
        // rounding errors leave at most this norm of a column that is linearly dependent on the previous ones
        const double rounding = EPSILON * (norm + sqrt(above[l])) * (1 + rows);
        independent &= norm > rounding && finite(norm);
    }
    if (!__all_sync(ALL, independent)) return false;
#pragma unroll
    for (int h = L - 1; h >= 0; h--) {
        for (int j = (n < 32 * (h + 1) ? n : 32 * (h + 1)) - 1; j >= 32 * h && j > 0; j--) {
            const double solved = __shfl_sync(ALL, right[h] * inverse[h], j % 32);
#pragma unroll
            for (int l = 0; l <= h; l++) {
                const int i = lane + 32 * l;
                if (i < j) right[l] -= products[i * apart + j - i] * solved;
            }
        }
    }
#pragma unroll
    for (int l = 0; l < L; l++) {
        const int i = lane + 32 * l;
        if (i < n) solution[i] = real(right[l] * inverse[l]);
    }
    return true;
}

// Records for row k the norm of the residual, whose square is the sum of `rest` over the lanes of a warp; or, if the
// columns are not independent, that the row is refused.
__device__ __forceinline__ void report(const Systems& s, u32 k, bool independent, double rest) {
    rest = sum_of_lanes(rest);
    if (threadIdx.x % 32) return;
    if (independent) {
        s.residuals[k] = sqrt(rest);
    } else {
        atomicMin(s.refused, k);
    }
}

// ---- a warp's problems

// Number of columns whose products are reduced together; limited by registers.
constexpr int GROUP = 8;

// Computes the inner products of the first column with C columns from `from` on; x[c][r] is the lane's r-th entry of
// column c.
template <int C, int K, int R> __device__ __forceinline__ void sum_columns(const double (&x)[K][R], int from, double* products) {
    double p[C];
#pragma unroll
    for (int c = 0; c < C; c++) {
        p[c] = x[0][0] * x[from + c][0];
#pragma unroll
        for (int r = 1; r < R; r++) p[c] += x[0][r] * x[from + c][r];
    }
    int which;
    const double sum = sums<C>(p, which);
    if (which < C) products[from + which] = sum;
}

// Of the `left` remaining columns (at most C), eliminates all but C − 4, or all but one if C ≤ 4, then calls itself for
// C − 4. The eliminated column is always the first; the others move up by one.
template <int C, int K, int R> __device__ __forceinline__ void eliminate(double (&x)[K][R], double* products, int left) {
    for (; left > (C > 4 ? C - 4 : 1); left--) {
        double w[R];
#pragma unroll
        for (int g = 0; g < C; g += GROUP) {
            constexpr int REST = C % GROUP ? C % GROUP : GROUP;
            if (g + GROUP <= C) {
                sum_columns<GROUP>(x, g, products);
            } else {
                sum_columns<REST>(x, g, products);
            }
        }
        __syncwarp();
        const double inverse = 1 / products[0];
#pragma unroll
        for (int r = 0; r < R; r++) w[r] = x[0][r] * inverse;
#pragma unroll
        for (int c = 1; c < C; c++) {
            const double s = products[c];
#pragma unroll
            for (int r = 0; r < R; r++) x[c - 1][r] = x[c][r] - s * w[r];
        }
#pragma unroll
        for (int r = 0; r < R; r++) x[C - 1][r] = 0;
        products += K;
    }
    if constexpr (C > 4) eliminate<C - 4>(x, products, left);
}

// Number of entries in flight per lane.
constexpr int FLIGHT = 8;

// Fills a zeroed dense problem with n unknowns, whose columns begin `apart` elements apart, at the stored `places` of
// its entries. If one of the a_j is empty, returns false, and the problem is incomplete.
__device__ __forceinline__ bool fill(const Systems& s, const u8* places, i64 first, int n, double* dense, int apart) {
    const u32 lane = threadIdx.x;
    i64 shift = 0;
    u32 length = 0;
    if (lane < n) {
        const i64 row = __ldg(s.m_columns + first + lane);
        shift = s.a.start(row);
        length = u32(s.a.start(row + 1) - shift);
    }
    // the entries of a column are recognized by the flag of its first entry, which an empty a_j lacks
    if (!__all_sync(ALL, lane >= n || length > 0)) return false;
    const u32 end = sum_up_to(length), entries = __shfl_sync(ALL, end, 31);
    // offset from an entry's position in the problem to its position in the matrix
    shift -= end - length;
    int begun = -1;
    for (u32 from = 0; from <= entries; from += 32 * FLIGHT) {
        u32 place[FLIGHT];
        int j[FLIGHT];
        double value[FLIGHT];
#pragma unroll
        for (int f = 0; f < FLIGHT; f++) {
            const u32 entry = from + 32 * f + lane;
            place[f] = entry <= entries ? __ldg(places + entry) : 0;
        }
#pragma unroll
        for (int f = 0; f < FLIGHT; f++) {
            const u32 entry = from + 32 * f + lane, firsts = __ballot_sync(ALL, place[f] & FIRST);
            j[f] = begun + __popc(firsts & (2u << lane) - 1);
            begun += __popc(firsts);
            const i64 at = __shfl_sync(ALL, shift, j[f]) + entry;
            value[f] = entry < entries ? double(__ldg(s.a_values + at)) : 1.0;
        }
#pragma unroll
        for (int f = 0; f < FLIGHT; f++) {
            const u32 entry = from + 32 * f + lane;
            if (entry <= entries) dense[j[f] * apart + (place[f] & ~FIRST)] = value[f];
        }
    }
    return true;
}

// Solves problems with fewer than K unknowns and at most 32 R rows; one block of one warp each.
template <int R, int K> __device__ __forceinline__ void solve_in_registers(const Systems& s, const Launch& launch) {
    constexpr int ROWS = 32 * R;
    __shared__ double2 memory[K * ROWS / 2];
    double* dense = (double*)memory;
    const int lane = threadIdx.x;
    for (i64 turn = blockIdx.x; turn < launch.count; turn += gridDim.x) {
        const u32 k = __ldg(launch.rows + turn);
        const i64 first = s.m.start(k);
        const int n = int(s.m.start((i64)k + 1) - first);
#pragma unroll
        for (int i = 0; i < K * ROWS / 2; i += 32) memory[i + lane] = make_double2(0, 0);
        __syncwarp();
        const bool full = fill(s, s.places + __ldg(s.starts + k), first, n, dense, ROWS);
        __syncwarp();
        double x[K][R];
#pragma unroll
        for (int c = 0; c < K; c++) {
#pragma unroll
            for (int r = 0; r < R; r++) x[c][r] = dense[c * ROWS + 32 * r + lane];
        }
        __syncwarp();
        eliminate<K>(x, dense, n + 1);
        double rest = 0;
#pragma unroll
        for (int r = 0; r < R; r++) rest += x[0][r] * x[0][r];
        report(s, k, full && substitute<1>(dense, K, n, 0, ROWS, s.m_values + first), rest);
        // the next problem overwrites this one
        __syncwarp();
    }
}

// ---- a block's problems

// Number of columns that a warp processes together.
constexpr int COLUMNS = 4;

// Eliminates column k from the columns after it; there are `columns` columns with 32 T rows, or with any number of rows
// if T is 0.
template <int T> __device__ __forceinline__ void eliminate_column(double* dense, int apart, int columns, int k) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const double* pivot = dense + (i64)k * apart + lane;
    // stored in the previous column, which is no longer needed
    double* products = dense + (i64)(k - 1) * apart;
    if constexpr (T > 0) {
        double v[T];
#pragma unroll
        for (int t = 0; t < T; t++) v[t] = pivot[32 * t];
        for (int j = k + 1 + warp; j < columns; j += WARPS * COLUMNS) {
            double x[COLUMNS][T], p[1 + COLUMNS];
            p[0] = 0;
#pragma unroll
            for (int t = 0; t < T; t++) p[0] += v[t] * v[t];
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                p[1 + c] = 0;
                if (j + WARPS * c >= columns) continue;
                const double* column = dense + (j + WARPS * c) * apart + lane;
#pragma unroll
                for (int t = 0; t < T; t++) x[c][t] = column[32 * t];
#pragma unroll
                for (int t = 0; t < T; t++) p[1 + c] += v[t] * x[c][t];
            }
            int which;
            const double sum = sums<1 + COLUMNS>(p, which);
            const double diagonal = __shfl_sync(ALL, sum, lane_of(1 + COLUMNS, 0)), inverse = 1 / diagonal;
            if (which == 0 && warp == 0) products[0] = diagonal;
            if (which > 0 && which <= COLUMNS) {
                const int other = j + WARPS * (which - 1);
                if (other < columns) products[other - k] = sum;
            }
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                const double w = __shfl_sync(ALL, sum, lane_of(1 + COLUMNS, 1 + c)) * inverse;
                if (j + WARPS * c >= columns) continue;
                double* column = dense + (j + WARPS * c) * apart + lane;
#pragma unroll
                for (int t = 0; t < T; t++) column[32 * t] = x[c][t] - w * v[t];
            }
        }
    } else {
        const int rows = apart - lane;
        double diagonal = 0;
        for (int r = 0; r < rows; r += 32) diagonal += pivot[r] * pivot[r];
        diagonal = sum_of_lanes(diagonal);
        if (threadIdx.x == 0) products[0] = diagonal;
        for (int j = k + 1 + warp; j < columns; j += WARPS) {
            double* column = dense + (i64)j * apart + lane;
            double sum = 0;
            for (int r = 0; r < rows; r += 32) sum += pivot[r] * column[r];
            sum = sum_of_lanes(sum);
            if (lane == 0) products[j - k] = sum;
            const double w = sum / diagonal;
            for (int r = 0; r < rows; r += 32) column[r] -= w * pivot[r];
        }
    }
}

// Solves problems of at most 32 T rows, or of any number of rows if T is 0; one block each.
template <int T> __device__ __forceinline__ void solve_in_memory(const Systems& s, const Launch& launch) {
    extern __shared__ double2 memory[];
    // starts and ends of `Walk`, and workspace of `Table::count`
    __shared__ i64 starts[MOST_UNKNOWNS];
    __shared__ u32 ends[MOST_UNKNOWNS], counts[WARPS];
    Walk walk{starts, ends};
    u32* const keys = T || !launch.scratch ? (u32*)memory : (u32*)(launch.scratch + blockIdx.x * launch.numbers);
    const Table table{keys, keys + launch.slots, launch.slots};
    double* workspace = (double*)(table.numbers + table.slots);
    const int warp = threadIdx.x / 32;
    for (i64 turn = blockIdx.x; turn < launch.count; turn += gridDim.x) {
        const u32* members = launch.rows + turn * MEMBERS;
        const u32 k = __ldg(members);
        const i64 first = s.m.start(k);
        const int n = int(s.m.start((i64)k + 1) - first);
        int columns = n;
#pragma unroll
        for (int i = 0; i < MEMBERS; i++) columns += __ldg(members + i) != NONE;
        table.clear<WARPS>();
        walk.find<WARPS>(s, first, n);
        collect<WARPS>(s, k, walk, table);
        __syncthreads();
        const int rows = table.count<WARPS>(counts);
        // distance of columns, at most `BlockKernel::apart` of spai.rs
        const int apart = T ? 32 * T : ((rows > columns ? rows : columns) + 1) / 2 * 2;
        double* dense = workspace + apart;
        for (i64 i = threadIdx.x; i < (i64)columns * apart; i += 32 * WARPS) dense[i] = 0;
        __syncthreads();
        walk.each<WARPS>(s, [&](int j, u32, i64 entry, u32 column) {
            dense[(i64)j * apart + table.number(column)] = __ldg(s.a_values + entry);
        });
        if (threadIdx.x < columns - n) dense[(i64)(n + threadIdx.x) * apart + table.number(__ldg(members + threadIdx.x))] = 1;
        __syncthreads();
        for (int column = 0; column < n; column++) {
            eliminate_column<T>(dense, apart, columns, column);
            __syncthreads();
        }
        if (n + warp < columns) {
            const u32 member = __ldg(members + warp);
            double rest = 0;
            for (int r = threadIdx.x % 32; r < rows; r += 32) {
                const double x = dense[(i64)(n + warp) * apart + r];
                rest += x * x;
            }
            report(s, member, substitute<4>(workspace, apart, n, warp, rows, s.m_values + s.m.start(member)), rest);
        }
        // the next problem overwrites this one
        __syncthreads();
    }
}

// ---- the kernel of this file

template <int ROWS, int UNKNOWNS> __device__ __forceinline__ void solve(const Systems& s, const Launch& launch) {
    if constexpr (UNKNOWNS > 0) {
        solve_in_registers<ROWS / 32, UNKNOWNS + 1>(s, launch);
    } else {
        solve_in_memory<ROWS / 32>(s, launch);
    }
}

// Solves problems with at most KERNEL_ROWS rows (0: any number) and at most KERNEL_UNKNOWNS unknowns, by a warp each;
// if KERNEL_UNKNOWNS is 0, by a block each. Each file has one kernel, so that only those needed are compiled.
extern "C" __global__ __launch_bounds__(KERNEL_UNKNOWNS ? 32 : 32 * WARPS, KERNEL_BLOCKS) void spai_solve(Systems s, Launch launch) {
    begin();
    solve<KERNEL_ROWS, KERNEL_UNKNOWNS>(s, launch);
}
