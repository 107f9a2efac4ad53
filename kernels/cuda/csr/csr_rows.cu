// Rows of CSR: y_i ← Σ_k v_k x_{c_k} over the entries of row i.
//
// Memory traffic: 12 B (f64) or 8 B (f32) an entry, 4 or 8 B of offsets a row, x and y. A row has 1, 2, 4, 8, 16 or 32
// lanes, each with four entries in flight; their sums are added in a fixed order.

template <class Offset> struct Csr {
    const Offset* offsets;
    const u32* columns;
    const stored* values;
    u32 rows;
    u32 lanes;                // lanes per row
};

// This lane's part of a row's sum: entries lane, lane + lanes, …, of which AHEAD are loaded at the same time.
template <class Gather> __device__ __forceinline__ real part_of_row(
    const u32* columns, const stored* values, u32 length, u32 lane, u32 lanes, Gather x_at) {
    real sum = 0;
    for (u32 k = lane; k < length; k += AHEAD * lanes) {
        u32 column[AHEAD];
        stored v[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const u32 at = k + u * lanes;
            column[u] = at < length ? __ldcs(columns + at) : NONE;
            v[u] = at < length ? __ldcs(values + at) : stored(0);
        }
        // never true; prevents the compiler from moving the loads above to their uses
        if (column[0] == NONE) break;
        real at_column[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) at_column[u] = column[u] != NONE ? x_at(column[u]) : real(0);
#pragma unroll
        for (int u = 0; u < AHEAD; u++) sum += v[u] * at_column[u];
    }
    return sum;
}
