// Products of matrices stored by diagonals with several vectors, each of which is stored separately. dia_rows.cu
// describes the layout. Each row is summed in the same order as in a product with one vector.
//
// Memory traffic: the matrix once, 8 B (f64) or 4 B (f32) a slot (stored value, including padding); x and y of each
// vector. For neighbouring diagonals, x is in the L1 cache.

// The rows that a warp processes together: OWN per lane, which is the number of values per load, but at most MOST
// because of registers.
template <int ROWS, int MOST> struct Part {
    static constexpr int WIDE = ROWS < VALUES ? ROWS : VALUES, LOADS = ROWS / WIDE, OWN = WIDE < MOST ? WIDE : MOST;
    static constexpr int OF_SLICE = ROWS / OWN, NEXT = LOADS * 32 * WIDE / OWN;
    u32 first;                // first row of this lane; its other rows follow at distances of 32
    const Few<stored, OWN>* values;   // of the first diagonal; those of the next diagonal are NEXT elements further

    __device__ __forceinline__ Part(const Dia& a, i64 part) {
        const i64 load = part / OF_SLICE * a.diagonals * LOADS + part % OF_SLICE * OWN / WIDE;
        const u32 lane = threadIdx.x % 32;
        first = u32(part) * (32 * OWN) + lane;
        values = (const Few<stored, OWN>*)(a.values + (load * 32 + lane) * WIDE + part % OF_SLICE * OWN % WIDE);
    }
    // Loads the values and columns of U diagonals, beginning with the d-th.
    template <int U> __device__ __forceinline__ void load(const Dia& a, u32 d, Few<stored, OWN> (&v)[U], u32 (&column)[U][OWN]) const {
#pragma unroll
        for (int u = 0; u < U; u++) {
            const u32 offset = a.offsets[d + u];
#pragma unroll
            for (int k = 0; k < OWN; k++) {
                v[u].at[k] = 0;
                // negative columns wrap around to large indices
                column[u][k] = first + 32 * k + offset;
            }
            if (d + u < a.diagonals) v[u] = stream(values + (d + u) * NEXT);
        }
    }
    // Loads x at U diagonals.
    template <int U> __device__ __forceinline__ void gather_x(const Dia& a, const real* x, const u32 (&column)[U][OWN], real (&at)[U][OWN]) const {
#pragma unroll
        for (int u = 0; u < U; u++) {
#pragma unroll
            for (int k = 0; k < OWN; k++) at[u][k] = column[u][k] < a.cols ? __ldg(x + column[u][k]) : real(0);
        }
    }
    // Adds the products of U diagonals.
    template <int U> __device__ __forceinline__ void add(const Few<stored, OWN> (&v)[U], const real (&at)[U][OWN], real (&sum)[OWN]) const {
#pragma unroll
        for (int u = 0; u < U; u++) {
#pragma unroll
            for (int k = 0; k < OWN; k++) sum[k] += v[u].at[k] * at[u][k];
        }
    }
    // Writes the sums and, if DOT, returns this thread's part of ⟨x, y⟩.
    template <bool DOT> __device__ __forceinline__ real finish(const Dia& a, const real* x, real* y, const real (&sum)[OWN]) const {
        real xy = 0;
#pragma unroll
        for (int k = 0; k < OWN; k++) {
            const u32 row = first + 32 * k;
            if (row >= a.rows) continue;
            y[row] = sum[k];
            if (DOT) xy += __ldg(x + row) * sum[k];
        }
        return xy;
    }
};

// If DOT, adds this thread's part of ⟨x, y⟩ for each vector x to `xy`.
template <int ROWS, bool DOT> __device__ __forceinline__ void multiply_many(const Dia& a, const Columns& c, real (&xy)[COLUMNS]) {
    using Rows = Part<ROWS, PACK>;
    constexpr int OWN = Rows::OWN, U = BATCH / 2;
    const u32 warps = gridDim.x * (blockDim.x / 32);
    const i64 parts = (i64)a.slices * Rows::OF_SLICE;
    for (i64 index = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; index < parts; index += warps) {
        const Rows part(a, index);
        real sum[COLUMNS][OWN] = {};
        for (u32 d = 0; d < a.diagonals; d += U) {
            Few<stored, OWN> v[U];
            u32 column[U][OWN];
            part.load(a, d, v, column);
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) {
                if (j >= c.count) break;
                real at[U][OWN];
                part.gather_x(a, c.x[j], column, at);
                part.add(v, at, sum[j]);
            }
        }
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
            if (j >= c.count) break;
            const real part_of_dot = part.template finish<DOT>(a, c.x[j], c.y[j], sum[j]);
            if (DOT) xy[j] += part_of_dot;
        }
    }
}

// Like `multiply_many`, but for at most BATCH diagonals: all values of the rows stay in registers, and x of the next
// vector is loaded while one is multiplied.
template <int ROWS, bool DOT> __device__ __forceinline__ void multiply_few(const Dia& a, const Columns& c, real (&xy)[COLUMNS]) {
    using Rows = Part<ROWS, 2>;
    constexpr int OWN = Rows::OWN;
    const u32 warps = gridDim.x * (blockDim.x / 32);
    const i64 parts = (i64)a.slices * Rows::OF_SLICE;
    for (i64 index = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; index < parts; index += warps) {
        const Rows part(a, index);
        Few<stored, OWN> v[BATCH];
        u32 column[BATCH][OWN];
        part.load(a, 0, v, column);
        real even[BATCH][OWN], odd[BATCH][OWN];
        part.gather_x(a, c.x[0], column, even);
        // elements of `c.x` after the last vector repeat it
#pragma unroll
        for (int j = 0; j < COLUMNS; j += 2) {
            if (j >= c.count) break;
            part.gather_x(a, c.x[j + 1], column, odd);
            real sum[OWN] = {};
            part.add(v, even, sum);
            const real of_even = part.template finish<DOT>(a, c.x[j], c.y[j], sum);
            if (DOT) xy[j] += of_even;
            if (j + 1 >= c.count) break;
            if (j + 2 < COLUMNS) part.gather_x(a, c.x[j + 2], column, even);
            real next[OWN] = {};
            part.add(v, odd, next);
            const real of_odd = part.template finish<DOT>(a, c.x[j + 1], c.y[j + 1], next);
            if (DOT) xy[j + 1] += of_odd;
        }
    }
}

#define KERNELS(NAME, ROWS, MULTIPLY)                                                                                         \
    extern "C" __global__ __launch_bounds__(THREADS, 2) void NAME(Dia a, Columns c) {                                   \
        begin();                                                                                                        \
        real xy[COLUMNS];                                                                                               \
        MULTIPLY<ROWS, false>(a, c, xy);                                                                                     \
    }                                                                                                                   \
    extern "C" __global__ __launch_bounds__(THREADS, 2) void NAME##_dot(Dia a, Columns c, Sum sum) {                    \
        begin();                                                                                                        \
        real xy[COLUMNS] = {};                                                                                          \
        MULTIPLY<ROWS, true>(a, c, xy);                                                                                      \
        sum_columns(xy, c.count, sum);                                                                                  \
    }
KERNELS(dia_1_many, 1, multiply_many)
KERNELS(dia_4_many, 4, multiply_many)
KERNELS(dia_1_few_many, 1, multiply_few)
KERNELS(dia_4_few_many, 4, multiply_few)
