// Rows of FSAI's factor G. For each row g of G, a small system is solved: A[S, S] y = e_last, g = y / √y_last, where S
// is the set of the row's columns, the diagonal last, and e_last is the last unit vector.
//
// T lanes (8, 16 or 32) process a row. Lane i holds row i of A[S, S] = L D Lᵀ, and rows i + T and so on if S is larger.
// The packed lower triangle is in shared memory in double precision, row after row, so that 16 lanes access it without
// bank conflicts. The algorithm, in which a_ik ends as l_ik d_k:
//
//     for each k:  d_k = a_kk;  a_ij -= a_ik a_jk / d_k  for i ≥ j > k
//     z_last = 1;  z_i = −Σ_k>i a_ki z_k / d_i;  g = z / √d_last
//
// Memory traffic: the offsets, columns and values of G once, and for each entry of G a row of A up to its diagonal,
// mostly from caches.

// The matrix A and the factor G, in CSR.
struct Systems {
    RowStarts a;
    const u32* a_columns;
    const real* a_values;
    RowStarts g;
    const u32* g_columns;
    real* g_values;
    // the first row that is too long, does not end on the diagonal, or whose system has a pivot that is not positive or
    // not finite
    u32* failed;
};

// Writes the class of each row: the index in LANES of the smallest number of lanes that is not less than the row's
// length, or the last class for longer rows.
extern "C" __global__ __launch_bounds__(THREADS) void fsai_classes(RowStarts g, unsigned char* classes) {
    begin();
    const i64 threads = (i64)gridDim.x * blockDim.x;
    for (i64 row = (i64)blockIdx.x * blockDim.x + threadIdx.x; row < g.count; row += threads) {
        const i64 length = g.start(row + 1) - g.start(row);
        classes[row] = length <= LANES<0> ? 0 : length <= LANES<1> ? 1 : length <= LANES<2> ? 2 : 3;
    }
}

// Start of a row in a packed lower triangle.
__device__ __forceinline__ int packed(int row) { return row * (row + 1) / 2; }

// Counts the entries of each row up to the diagonal; sets `misfit` if a diagonal entry is missing.
extern "C" __global__ __launch_bounds__(THREADS) void fsai_lower(RowStarts rows, const u32* columns, u32* lengths, u32* misfit) {
    begin();
    const i64 threads = (i64)gridDim.x * blockDim.x;
    for (i64 row = (i64)blockIdx.x * blockDim.x + threadIdx.x; row < rows.count; row += threads) {
        const i64 first = rows.start(row);
        i64 low = first, high = rows.start(row + 1);
        while (low < high) {
            const i64 middle = (low + high) / 2;
            if (__ldg(columns + middle) <= row) low = middle + 1; else high = middle;
        }
        if (low == first || __ldg(columns + low - 1) != row) *misfit = 1;
        lengths[row] = u32(low - first);
    }
}

// Computes the row offsets of the upper triangle. Both triangles include the diagonal.
extern "C" __global__ __launch_bounds__(THREADS) void fsai_upper(RowStarts rows, RowStarts lower, u32* upper) {
    begin();
    const i64 threads = (i64)gridDim.x * blockDim.x;
    for (i64 row = (i64)blockIdx.x * blockDim.x + threadIdx.x; row <= rows.count; row += threads) {
        upper[row] = u32(rows.start(row) - lower.start(row) + row);
    }
}

// Copies the columns of the lower or the upper triangle of a pattern with a full diagonal, that is, the first or the
// last columns of each row, with TRIANGLE_LANES lanes per row. Memory traffic: 4 B an entry twice, and offsets.
extern "C" __global__ __launch_bounds__(THREADS) void fsai_triangle(RowStarts rows, const u32* columns, RowStarts triangle, u32* to, u32 upper) {
    begin();
    const i64 stride = (i64)gridDim.x * (blockDim.x / TRIANGLE_LANES);
    for (i64 row = (i64)blockIdx.x * (blockDim.x / TRIANGLE_LANES) + threadIdx.x / TRIANGLE_LANES; row < rows.count; row += stride) {
        const i64 start = rows.start(row), end = rows.start(row + 1), first = triangle.start(row);
        const i64 length = triangle.start(row + 1) - first, count = length < end - start ? length : end - start;
        const i64 from = upper ? end - count : start;
        for (i64 i = threadIdx.x % TRIANGLE_LANES; i < count; i += TRIANGLE_LANES) to[first + i] = __ldcs(columns + from + i);
    }
}

// Computes one row with T lanes, given by the mask `lanes`; `triangle`, `z` and `members` (the columns in S) are
// workspace for its n entries.
template <int T> __device__ __forceinline__ void solve_row(const Systems& s, u32 row, u32 lanes, double* triangle, double* z, u32* members) {
    const int lane = threadIdx.x % T;
    const i64 first = s.g.start(row);
    const int n = int(s.g.start((i64)row + 1) - first);
    for (int i = lane; i < n; i += T) {
        members[i] = __ldg(s.g_columns + first + i);
        z[i] = i == n - 1;
    }
    __syncwarp(lanes);
    if (n == 0 || members[n - 1] != row) {
        if (lane == 0) atomicMin(s.failed, row);
        return;
    }
    for (int i = lane; i < n; i += T) {
        double* mine = triangle + packed(i);
        for (int j = 0; j <= i; j++) mine[j] = 0;
        const u32 own = members[i];
        const i64 end = s.a.start((i64)own + 1);
        int place = 0;
        for (i64 entry = s.a.start(own); entry < end; entry++) {
            const u32 column = __ldg(s.a_columns + entry);
            if (column > own) break;
            // the loop ends at `members[i]` at the latest, which is `own`, because only columns up to `own` are read
            while (members[place] < column) place++;
            if (members[place] == column) mine[place] = __ldg(s.a_values + entry);
        }
    }
    double pivot = 1, inverse = 1;
    for (int k = 0; k < n; k++) {
        __syncwarp(lanes);
        // all lanes have read the previous pivot, which can be replaced by its inverse
        if (k > 0 && lane == 0) triangle[packed(k - 1) + k - 1] = inverse;
        pivot = triangle[packed(k) + k];
        if (!(pivot > 0 && finite(pivot))) {
            if (lane == 0) atomicMin(s.failed, row);
            return;
        }
        inverse = 1 / pivot;
        for (int i = lane; i < n; i += T) {
            if (i <= k) continue;
            double* mine = triangle + packed(i);
            const double l = mine[k] * inverse;
            const double* other = triangle + packed(k + 1) + k;
            for (int j = k + 1; j <= i; j++) {
                mine[j] -= l * *other;
                other += j + 1;
            }
        }
    }
    for (int k = n - 1; k > 0; k--) {
        __syncwarp(lanes);
        const double above = z[k];
        const double* below = triangle + packed(k);
        for (int i = lane; i < k; i += T) {
            const double sum = z[i] - below[i] * above;
            z[i] = i == k - 1 ? sum * triangle[packed(i) + i] : sum;
        }
    }
    const double scale = 1 / sqrt(pivot);
    for (int i = lane; i < n; i += T) s.g_values[first + i] = real(z[i] * scale);
    // all lanes must have finished before the next row overwrites this one
    __syncwarp(lanes);
}

// Computes rows of at most T entries, with T lanes each.
template <int T> __device__ __forceinline__ void solve_rows(const Systems& s, const u32* rows, u32 count) {
    constexpr int GROUPS = BLOCK / T;
    __shared__ double triangles[GROUPS][T * (T + 1) / 2], z[GROUPS][T];
    __shared__ u32 members[GROUPS][T];
    const int group = threadIdx.x / T;
    const u32 lanes = T == 32 ? ALL : ((1u << (T % 32)) - 1) << (threadIdx.x % 32 / T * T);
    for (i64 at = (i64)blockIdx.x * GROUPS + group; at < count; at += (i64)gridDim.x * GROUPS) {
        solve_row<T>(s, rows[at], lanes, triangles[group], z[group], members[group]);
    }
}

extern "C" __global__ __launch_bounds__(BLOCK) void fsai_8(Systems s, const u32* rows, u32 count) {
    begin();
    solve_rows<8>(s, rows, count);
}
extern "C" __global__ __launch_bounds__(BLOCK) void fsai_16(Systems s, const u32* rows, u32 count) {
    begin();
    solve_rows<16>(s, rows, count);
}
extern "C" __global__ __launch_bounds__(BLOCK) void fsai_32(Systems s, const u32* rows, u32 count) {
    begin();
    solve_rows<32>(s, rows, count);
}

// Computes rows of up to `longest` entries, with one block of 32 threads each; longer rows, which do not fit in shared
// memory, fail.
extern "C" __global__ __launch_bounds__(32) void fsai_long(Systems s, const u32* rows, u32 count, u32 longest) {
    begin();
    extern __shared__ double memory[];
    double* z = memory + packed(longest);
    u32* members = (u32*)(z + longest);
    for (i64 at = blockIdx.x; at < count; at += gridDim.x) {
        const u32 row = rows[at];
        if (s.g.start((i64)row + 1) - s.g.start(row) <= longest) {
            solve_row<32>(s, row, ALL, memory, z, members);
        } else if (threadIdx.x == 0) {
            atomicMin(s.failed, row);
        }
    }
}
