// Products of matrices in slices with several vectors, whose columns are packed (packed.cu). sliced_rows.cu describes
// the layout. Each row is summed in the same order as in a product with one vector.
//
// Moves the matrix once, as many bytes as a product with one vector; x and y of each column, and x once more to pack
// it. A gather reads as many elements as there are columns: 2 sectors for 8 columns of f64, instead of 8 sectors in 8
// products with one vector.

// The sum over a lane's slots in `groups` groups from `first` on, for this thread's column.
template <class Column, int G> __device__ __forceinline__ real part_of_column(const Sliced<Column>& a, i64 first, u32 groups, u32 lane, const Packed& x) {
    constexpr int U = SLOTS_IN_FLIGHT / G;
    constexpr bool SHORT = sizeof(Column) == 2;
    const Few<stored, G>* values = (const Few<stored, G>*)a.values + first * 32 + lane;
    const Few<Column, G>* columns = (const Few<Column, G>*)a.columns + first * 32 + lane;
    const Few<u32, G>* bases = (const Few<u32, G>*)a.bases + first;
    real sum = 0;
    for (u32 g = 0; g < groups; g += U) {
        Few<stored, G> v[U];
        u32 column[SLOTS_IN_FLIGHT];
#pragma unroll
        for (int u = 0; u < U; u++) {
            Few<Column, G> place;
            Few<u32, G> base;
#pragma unroll
            for (int k = 0; k < G; k++) {
                v[u].at[k] = 0;
                place.at[k] = PADDING<Column>;
                base.at[k] = 0;
            }
            if (g + u < groups) {
                place = stream(columns + u * 32);
                v[u] = stream(values + u * 32);
                if (SHORT) base = bases[u];
            }
#pragma unroll
            for (int k = 0; k < G; k++) column[u * G + k] = place.at[k] == PADDING<Column> ? NONE : base.at[k] + place.at[k];
        }
        if (column[0] == NONE) break;
        real at_column[SLOTS_IN_FLIGHT];
#pragma unroll
        for (int i = 0; i < SLOTS_IN_FLIGHT; i++) at_column[i] = column[i] != NONE ? x[column[i]] : real(0);
#pragma unroll
        for (int i = 0; i < SLOTS_IN_FLIGHT; i++) sum += v[i / G].at[i % G] * at_column[i];
        if (column[SLOTS_IN_FLIGHT - 1] == NONE) break;
        values += U * 32;
        columns += U * 32;
        bases += U;
    }
    return sum;
}

// If DOT, returns this thread's part of ⟨x, y⟩ for its column. A row has at most as many lanes as a warp.
template <class Column, int G, bool DOT> __device__ __forceinline__ real multiply_many(const Sliced<Column>& a, const Columns& c, const Packed& x) {
    const u32 log_lanes = 31 - __clz(a.lanes), warps = gridDim.x * (blockDim.x / 32), parts = a.slices << x.log_width;
    real xy = 0;
    for (u32 part = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; part < parts; part += warps) {
        const u32 slice = part >> x.log_width, lane = (part * x.lanes() & 31) + x.lane;
        const u32 place = (slice << 5 - log_lanes) + (lane >> log_lanes);
        i64 first = (i64)slice * a.width;
        u32 groups = a.width;
        if (a.starts) {
            first = __ldg(a.starts + slice);
            groups = __ldg(a.starts + slice + 1) - u32(first);
        }
        if (a.lengths) groups = place < a.rows ? (__ldg(a.lengths + place) + G * a.lanes - 1) / (G * a.lanes) : 0;
        const real sum = x.sum_of_lanes(part_of_column<Column, G>(a, first, groups, lane, x), a.lanes);
        if (place < a.rows && (lane & (a.lanes - 1)) == 0 && x.is_column) {
            const u32 row = a.order ? __ldg(a.order + place) : place;
            c.y[x.column][row] = sum;
            if (DOT) xy += x[row] * sum;
        }
    }
    return xy;
}

// Resident blocks per multiprocessor that registers allow with eight entries in flight.
template <bool DOT> constexpr int BLOCKS = DOT ? 3 : 4;

#define KERNELS(NAME, COLUMN, G)                                                                                        \
    extern "C" __global__ __launch_bounds__(THREADS, BLOCKS<false>) void NAME(Sliced<COLUMN> a, Columns c, const real* packed) { \
        begin();                                                                                                        \
        multiply_many<COLUMN, G, false>(a, c, Packed(c, packed));                                                          \
    }                                                                                                                   \
    extern "C" __global__ __launch_bounds__(THREADS, BLOCKS<true>) void NAME##_dot(Sliced<COLUMN> a, Columns c, const real* packed, Sum sum) { \
        begin();                                                                                                        \
        const Packed x(c, packed);                                                                                      \
        x.sums(multiply_many<COLUMN, G, true>(a, c, x), c.count, sum);                                                              \
    }
KERNELS(sliced_wide_many, u32, 1)
KERNELS(sliced_wide_packed_many, u32, VALUES)
KERNELS(sliced_short_many, u16, 1)
KERNELS(sliced_short_packed_many, u16, VALUES)
