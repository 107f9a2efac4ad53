// Rows in slices, multiplied by several vectors: the columns of X, packed row by row (packed.cu). sliced_rows.cu
// describes the layout. Each row is summed in the same order as in a product with one vector.

// The sum over a lane's slots in `groups` groups, beginning with `first`, for this thread's column of X.
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

// Calls row_is(row, sum) for each row and each column of X, on the first lane of the row. The 32 lanes of a slice are
// in `width` warps of a block (`width`: numbers of a packed row), whose number of warps is a multiple of `width`. As
// `sum_of_warps` has barriers, all threads of a block make the same number of passes through the loop.
template <class Column, int G, class Row> __device__ __forceinline__ void each_row(const Sliced<Column>& a, const Packed& x, Row row_is) {
    const u32 log_lanes = 31 - __clz(a.lanes), own = threadIdx.x / 32, warps = blockDim.x / 32, parts = a.slices << x.log_width;
    for (u32 begin = blockIdx.x * warps; begin < parts; begin += gridDim.x * warps) {
        const u32 part = begin + own, slice = part >> x.log_width, lane = (part * x.lanes() & 31) + x.lane;
        const u32 place = (slice << 5 - log_lanes) + (lane >> log_lanes);
        const bool is_slice = slice < a.slices;
        i64 first = (i64)slice * a.width;
        u32 groups = is_slice ? a.width : 0;
        if (a.starts && is_slice) {
            first = __ldg(a.starts + slice);
            groups = __ldg(a.starts + slice + 1) - u32(first);
        }
        if (a.lengths) groups = place < a.rows ? (__ldg(a.lengths + place) + G * a.lanes - 1) / (G * a.lanes) : 0;
        const u32 of_row = lane & (a.lanes - 1);
        const real sum = x.sum_of_warps(part_of_column<Column, G>(a, first, groups, lane, x), of_row, a.lanes);
        if (place < a.rows && of_row == 0) row_is(a.order ? __ldg(a.order + place) : place, sum);
    }
}
