// Products of small dense blocks with several vectors: the columns of X, packed row by row (packed.cu). bsr_blocks.cu
// describes the layout. Each row is summed in the same order as in a product with one vector.
//
// Memory traffic: the matrix once, as many bytes as a product with one vector; each column of Y once; each
// column of X three times, because packing reads it and writes the packed copy, which the product reads. For
// each dense block of B x B values, B packed rows of X are gathered: for B = 3 and 8 columns of f64,
// 3 x 64 B = 6 sectors of 32 B. In 8 products with one vector, each gather of 24 B is in 1 or 2 sectors, so
// they read about 12.

// Returns this thread's part of ⟨x, y⟩ for its column of X and Y if DOT is true, else 0. Here a lane is a
// group of `width` threads, one for each column (packed.cu), so a warp has 32 / `width` lanes. All lanes of a
// block row must be in one warp.
template <class Column, int B, bool DOT> __device__ __forceinline__ real multiply_many(const Bsr<Column>& a, const Columns& c, const Packed& x) {
    constexpr int U = Fit<B>::IN_FLIGHT;
    constexpr int WIDE = B * B % VALUES == 0 ? VALUES : 1, LOADS = B * B / WIDE;
    constexpr bool SHORT = sizeof(Column) == 2;
    const u32 log_lanes = 31 - __clz(a.lanes), warps = gridDim.x * WARPS, parts = a.slices << x.log_width;
    real xy = 0;
    for (u32 part = blockIdx.x * WARPS + threadIdx.x / 32; part < parts; part += warps) {
        const u32 slice = part >> x.log_width, lane = (part * x.lanes() & 31) + x.lane;
        const u32 first = __ldg(a.starts + slice), groups = __ldg(a.starts + slice + 1) - first;
        const Few<stored, WIDE>* values = (const Few<stored, WIDE>*)a.values + (i64)first * (LOADS * 32) + lane;
        const Column* columns = a.columns + (i64)first * 32 + lane;
        const u32* bases = a.bases + first;
        real sum[B];
#pragma unroll
        for (int i = 0; i < B; i++) sum[i] = 0;
        // block columns are loaded one iteration ahead, so that values and gathers of x are in flight at the same time
        u32 column[U];
        const auto load_columns = [&](u32 g) {
#pragma unroll
            for (int u = 0; u < U; u++) {
                Column place = PADDING<Column>;
                u32 base = 0;
                if (g + u < groups) {
                    place = __ldcs(columns + u * 32);
                    if (SHORT) base = __ldg(bases + u);
                }
                column[u] = place == PADDING<Column> ? NONE : base + place;
            }
            columns += U * 32;
            bases += U;
        };
        load_columns(0);
        for (u32 g = 0; g < groups; g += U) {
            if (column[0] == NONE) break;
            Few<stored, WIDE> v[U][LOADS];
#pragma unroll
            for (int u = 0; u < U; u++) {
#pragma unroll
                for (int e = 0; e < B * B; e++) v[u][e / WIDE].at[e % WIDE] = 0;
                if (g + u < groups) {
#pragma unroll
                    for (int q = 0; q < LOADS; q++) v[u][q] = stream(values + (u * LOADS + q) * 32);
                }
            }
            real at_column[U][B];
#pragma unroll
            for (int u = 0; u < U; u++) {
#pragma unroll
                for (int j = 0; j < B; j++) at_column[u][j] = column[u] != NONE ? x[column[u] * B + j] : real(0);
            }
            load_columns(g + U);
#pragma unroll
            for (int u = 0; u < U; u++) {
#pragma unroll
                for (int j = 0; j < B; j++) {
#pragma unroll
                    for (int i = 0; i < B; i++) {
                        const int e = j * B + i;
                        sum[i] += v[u][e / WIDE].at[e % WIDE] * at_column[u][j];
                    }
                }
            }
            values += U * LOADS * 32;
        }
#pragma unroll
        for (int i = 0; i < B; i++) sum[i] = x.sum_of_lanes(sum[i], a.lanes);
        const u32 place = (slice << 5 - log_lanes) + (lane >> log_lanes);
        if (place < a.rows && (lane & (a.lanes - 1)) == 0 && x.is_column) {
            const u32 row = a.order ? __ldg(a.order + place) : place;
#pragma unroll
            for (int i = 0; i < B; i++) {
                c.y[x.column][row * B + i] = sum[i];
                if (DOT) xy += x[row * B + i] * sum[i];
            }
        }
    }
    return xy;
}

#define KERNELS(NAME, COLUMN, B)                                                                                        \
    extern "C" __global__ __launch_bounds__(THREADS, Fit<B>::BLOCKS) void NAME(Bsr<COLUMN> a, Columns c, const real* packed) { \
        begin();                                                                                                        \
        multiply_many<COLUMN, B, false>(a, c, Packed(c, packed));                                                          \
    }                                                                                                                   \
    extern "C" __global__ __launch_bounds__(THREADS, Fit<B>::BLOCKS) void NAME##_dot(Bsr<COLUMN> a, Columns c, const real* packed, Sum sum) { \
        begin();                                                                                                        \
        const Packed x(c, packed);                                                                                      \
        x.sums(multiply_many<COLUMN, B, true>(a, c, x), c.count, sum);                                                              \
    }
KERNELS(bsr_2_wide_many, u32, 2)
KERNELS(bsr_3_wide_many, u32, 3)
KERNELS(bsr_4_wide_many, u32, 4)
KERNELS(bsr_6_wide_many, u32, 6)
KERNELS(bsr_2_short_many, u16, 2)
KERNELS(bsr_3_short_many, u16, 3)
KERNELS(bsr_4_short_many, u16, 4)
KERNELS(bsr_6_short_many, u16, 6)
