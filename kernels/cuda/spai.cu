// Rows of a sparse approximate inverse, each from a least-squares problem of its own: min ‖Σ_j m_j a_j − e_k‖ over the columns
// j of row k of the inverse, where a_j is row j of the matrix (both transposed for columns).
//
// A warp has a row. Each lane walks one of the a_j (and one e_k): the least column that any stands at is the next row of the
// dense problem, its numbers those of the lanes that stand there, zero elsewhere. So rows come sorted, and nothing is looked
// for twice. Householder's reflections, in double precision, then take one column after the other:
//
//     v = x − α e₁, α = −‖x‖ sign x₁;   a ← a − v (2 vᵀa / vᵀv)      for all columns behind, e_k the last
//
// four columns at once, 8 lanes each, with v in registers.
//
// Moves the inverse once, its rows and columns, and for each entry of it a row of the matrix, most of it from caches.

struct Systems {
    RowStarts a;
    const u32* a_columns;
    const real* a_values;
    RowStarts m;
    const u32* m_columns;
    real* m_values;
    double* residuals;        // of rows
    u32* refused;             // the least row whose a_j depend on each other
};

// The rows that a launch computes, and those that have no room in it.
struct Rows {
    const u32* rows;          // null for all
    u32 count;
    u32 room;                 // numbers of a dense problem
    double* scratch;          // room for each block, null for shared memory
    u32* left;                // rows without room; null where nobody asks
    u32* left_count;
};

constexpr u32 NONE = ~0u;
constexpr double EPSILON = 2.220446049250313e-16;

__device__ __forceinline__ u32 least_of_warp(u32 v) {
#if __CUDA_ARCH__ >= 800
    return __reduce_min_sync(ALL, v);
#else
#pragma unroll
    for (int step = 16; step; step /= 2) {
        const u32 other = __shfl_xor_sync(ALL, v, step);
        if (other < v) v = other;
    }
    return v;
#endif
}

// The sum over 8 neighbouring lanes, in each of them.
__device__ __forceinline__ double sum_of_8(double v) {
#pragma unroll
    for (int step = 4; step; step /= 2) v += __shfl_xor_sync(ALL, v, step);
    return v;
}

// Numbers from row to row, so that 8 rows of 2 columns stand in different banks.
__device__ __forceinline__ int stride(int columns) { return columns + (6 - columns % 4) % 4; }

// Fills the dense problem of row k and returns its number of rows; 0 where there is no room. The walks of a lane are L at most.
template <int L> __device__ __forceinline__ int gather(const Systems& s, u32 k, i64 first, int n, u32 room, double* dense) {
    const int lane = threadIdx.x % 32, width = stride(n + 1);
    i64 at[L], end[L];
    u32 head[L];
    double number[L];
    // where a walk stands
    const auto look = [&](int l) {
        const bool there = at[l] < end[l];
        head[l] = there ? __ldg(s.a_columns + at[l]) : NONE;
        number[l] = there ? double(__ldg(s.a_values + at[l])) : 0.0;
    };
#pragma unroll
    for (int l = 0; l < L; l++) {
        const int j = lane + 32 * l;
        at[l] = end[l] = 0;
        if (j < n) {
            const i64 row = __ldg(s.m_columns + first + j);
            at[l] = s.a.start(row);
            end[l] = s.a.start(row + 1);
        }
        look(l);
        if (j == n) {
            head[l] = k;
            number[l] = 1;
        }
    }
    for (int rows = 0;; rows++) {
        u32 least = head[0];
#pragma unroll
        for (int l = 1; l < L; l++) {
            if (head[l] < least) least = head[l];
        }
        least = least_of_warp(least);
        if (least == NONE) return rows;
        if ((u64)(rows + 1) * width > room) return 0;
#pragma unroll
        for (int l = 0; l < L; l++) {
            const int j = lane + 32 * l;
            const bool here = head[l] == least;
            if (j <= n) dense[(i64)rows * width + j] = here ? number[l] : 0.0;
            if (here) {
                at[l]++;
                look(l);
            }
        }
    }
}

// Triangularises the first n columns of a dense problem of n + 1; false if one of them depends on those before it. At most
// 8 T rows; as many as there are if T is 0.
template <int T> __device__ __forceinline__ bool triangularise(double* dense, int rows, int n) {
    const int lane = threadIdx.x % 32, width = stride(n + 1), own = lane % 8, group = lane / 8;
    const int turns = T ? T : (rows + 7) / 8;
    for (int k = 0; k < n; k++) {
        if (k >= rows) return false;
        double v[T ? T : 1], above = 0, below = 0;
#pragma unroll
        for (int t = 0; t < turns; t++) {
            const int r = 8 * t + own;
            const double x = r < rows ? dense[(i64)r * width + k] : 0.0;
            if (r < k) {
                above += x * x;
            } else {
                below += x * x;
            }
            if (T) v[T ? t : 0] = r < k ? 0.0 : x;
        }
        const double top = dense[(i64)k * width + k];
        below = sum_of_8(below);
        above = sum_of_8(above);
        const double norm = sqrt(below);
        // what rounding leaves of a dependent column
        const double rounding = EPSILON * (norm + sqrt(above)) * (1 + rows - k);
        if (!(norm > rounding && finite(norm))) return false;
        const double alpha = top < 0 ? norm : -norm;
        // 2 / vᵀv
        const double factor = 1 / (below + fabs(top) * norm);
        const auto entry = [&](int r, double x) { return r == k ? x - alpha : x; };
        if (T) {
#pragma unroll
            for (int t = 0; t < turns; t++) v[T ? t : 0] = entry(8 * t + own, v[T ? t : 0]);
        }
        // v where it is not in registers: column k
        const auto reflection = [&](int t, int r) { return T ? v[T ? t : 0] : entry(r, dense[(i64)r * width + k]); };
        for (int j = k + 1 + group; j - group <= n; j += 4) {
            double x[T ? T : 1], sum = 0;
#pragma unroll
            for (int t = 0; t < turns; t++) {
                const int r = 8 * t + own;
                const bool there = r >= k && r < rows && j <= n;
                const double y = there ? dense[(i64)r * width + j] : 0.0;
                if (T) x[T ? t : 0] = y;
                if (there) sum += y * reflection(t, r);
            }
            const double w = sum_of_8(sum) * factor;
#pragma unroll
            for (int t = 0; t < turns; t++) {
                const int r = 8 * t + own;
                if (r < k || r >= rows || j > n) continue;
                double* at = dense + (i64)r * width + j;
                *at = (T ? x[T ? t : 0] : *at) - w * reflection(t, r);
            }
        }
        __syncwarp();
        if (lane == 0) dense[(i64)k * width + k] = alpha;
    }
    __syncwarp();
    return true;
}

// The rows of a launch: L walks of a lane at most, dense problems of 8 MOST rows at most; of any number if MOST is 0.
template <int L, int MOST> __device__ __forceinline__ void solve(const Systems& s, const Rows& launch, double* dense) {
    const int lane = threadIdx.x;
    for (i64 turn = blockIdx.x; turn < launch.count; turn += gridDim.x) {
        const u32 k = launch.rows ? launch.rows[turn] : u32(turn);
        const i64 first = s.m.start(k);
        const i64 length = s.m.start((i64)k + 1) - first;
        const bool walks = length < 32 * L;
        const int n = walks ? int(length) : 0, width = stride(n + 1);
        const int rows = walks ? gather<L>(s, k, first, n, launch.room, dense) : 0;
        if (rows == 0 || (MOST && rows > 8 * MOST)) {
            if (lane == 0 && launch.left) launch.left[atomicAdd(launch.left_count, 1u)] = k;
            __syncwarp();
            continue;
        }
        __syncwarp();
        bool independent;
        if (MOST && rows <= 4 * MOST) {
            independent = triangularise<MOST / 2>(dense, rows, n);
        } else {
            independent = triangularise<MOST>(dense, rows, n);
        }
        if (!independent) {
            if (lane == 0) atomicMin(s.refused, k);
            __syncwarp();
            continue;
        }
        double rest = 0;
        for (int r = n + lane; r < rows; r += 32) {
            const double x = dense[(i64)r * width + n];
            rest += x * x;
        }
#pragma unroll
        for (int step = 16; step; step /= 2) rest += __shfl_xor_sync(ALL, rest, step);
        if (lane == 0) s.residuals[k] = sqrt(rest);
        for (int i = n - 1; i >= 0; i--) {
            const double solved = dense[(i64)i * width + n] / dense[(i64)i * width + i];
            if (lane == 0) s.m_values[first + i] = real(solved);
            for (int r = lane; r < i; r += 32) dense[(i64)r * width + n] -= dense[(i64)r * width + i] * solved;
            __syncwarp();
        }
        // the next row is written over this one
        __syncwarp();
    }
}

extern "C" __global__ __launch_bounds__(32, 12) void spai_small(Systems s, Rows launch) {
    begin();
    extern __shared__ double room[];
    solve<1, 12>(s, launch, room);
}
extern "C" __global__ __launch_bounds__(32) void spai_medium(Systems s, Rows launch) {
    begin();
    extern __shared__ double room[];
    solve<4, 32>(s, launch, room);
}
extern "C" __global__ __launch_bounds__(32) void spai_large(Systems s, Rows launch) {
    begin();
    solve<4, 0>(s, launch, launch.scratch + (u64)blockIdx.x * launch.room);
}
