// Rows in slices: ELLPACK, ELLPACK-R, SELL-P and SELL-C-σ.
//
// A slice is processed by a warp: 32 / T rows with T lanes each. Its slots (stored positions, including padding) form
// groups of 32 · G, with G consecutive slots for each lane, so that loads are coalesced and G slots wide. Entry j of a
// row is in group j / (G T), in the row's lane (j / G) % T, as slot j % G of that lane.
//
// Memory traffic: 12 B (f64) or 8 B (f32) a slot; with 16-bit columns 10 or 6 B, and 4 B for the base of 32 slots; 4 B
// a slice; 4 B a row for its length and 4 B for its element of `order`, if these arrays exist; x and y. A lane loads
// eight slots before it uses the first of them. It stops after eight slots if the last of these is padding; the rest of
// its part of the row, all padding, is not read.

template <class Column> struct Sliced {
    const u32* starts;        // first group of each slice, and the end; null if all have `width` groups
    const u32* order;         // row at each place (position in the sorted order); null if rows are not sorted
    const u32* bases;         // with 16-bit columns: G per group, the k-th for the k-th slots of all lanes
    const Column* columns;
    const u32* lengths;       // length of each row; null if padding marks the end of a row
    const stored* values;
    u32 rows, slices, width;
    u32 lanes;                // T: lanes per row
};

// Column of a slot without an entry: all bits are set.
template <class Column> constexpr Column PADDING = Column(~Column(0));

// The sum over a lane's slots in `groups` groups from `first` on.
template <class Column, int G> __device__ __forceinline__ real part_of_row(const Sliced<Column>& a, i64 first, u32 groups, const real* x) {
    constexpr int U = SLOTS_IN_FLIGHT / G;
    constexpr bool SHORT = sizeof(Column) == 2;
    const u32 lane = threadIdx.x % 32;
    const Few<stored, G>* values = (const Few<stored, G>*)a.values + first * 32 + lane;
    const Few<Column, G>* columns = (const Few<Column, G>*)a.columns + first * 32 + lane;
    const Few<u32, G>* bases = (const Few<u32, G>*)a.bases + first;
    real sum = 0;
    for (u32 g = 0; __any_sync(ALL, g < groups); g += U) {
        Few<stored, G> v[U];
        Few<Column, G> column[U];
        Few<u32, G> base[U];
#pragma unroll
        for (int u = 0; u < U; u++) {
#pragma unroll
            for (int k = 0; k < G; k++) {
                v[u].at[k] = 0;
                column[u].at[k] = PADDING<Column>;
                base[u].at[k] = 0;
            }
            if (g + u < groups) {
                column[u] = stream(columns + u * 32);
                v[u] = stream(values + u * 32);
                if (SHORT) base[u] = bases[u];
            }
        }
        // this branch comes after all loads, because otherwise the compiler would load values only after the columns
        // have arrived
        if (__all_sync(ALL, column[0].at[0] == PADDING<Column>)) break;
        real at_column[SLOTS_IN_FLIGHT];
#pragma unroll
        for (int i = 0; i < SLOTS_IN_FLIGHT; i++) {
            const Column c = column[i / G].at[i % G];
            at_column[i] = c != PADDING<Column> ? __ldg(x + (base[i / G].at[i % G] + c)) : real(0);
        }
#pragma unroll
        for (int i = 0; i < SLOTS_IN_FLIGHT; i++) sum += v[i / G].at[i % G] * at_column[i];
        if (column[U - 1].at[G - 1] == PADDING<Column>) groups = 0;
        values += U * 32;
        columns += U * 32;
        bases += U;
    }
    return sum;
}

// Calls row_is(row, sum) for each row, on the first lane of the row.
template <class Column, int G, class Row> __device__ __forceinline__ void each_row(const Sliced<Column>& a, const real* x, Row row_is) {
    const u32 lane = threadIdx.x % 32, rows_of_slice = 32 / a.lanes;
    const u32 warps = gridDim.x * (blockDim.x / 32);
    for (i64 slice = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; slice < a.slices; slice += warps) {
        const i64 place = slice * rows_of_slice + lane / a.lanes;
        i64 first = slice * a.width;
        u32 groups = a.width;
        if (a.starts) {
            first = __ldg(a.starts + slice);
            groups = __ldg(a.starts + slice + 1) - u32(first);
        }
        if (a.lengths) groups = place < a.rows ? (__ldg(a.lengths + place) + G * a.lanes - 1) / (G * a.lanes) : 0;
        real sum = part_of_row<Column, G>(a, first, groups, x);
        for (u32 step = a.lanes / 2; step; step /= 2) sum += __shfl_down_sync(ALL, sum, step, a.lanes);
        if (place < a.rows && lane % a.lanes == 0) row_is(a.order ? __ldg(a.order + place) : u32(place), sum);
    }
}
