// Storage by diagonals: y_i ← Σ_d v_{i,d} x_{i + o_d}, without column indices.
//
// A slice is processed by a warp and has 32 · ROWS rows (the template parameter ROWS is 1 or 4); a lane has every 32nd
// of them, so that a warp loads 32 consecutive entries of x together. Within a slice, the values of a diagonal are
// contiguous. Row l + 32 (q W + k) of a slice is value k of lane l in load q, where W is the number of values per load.
//
// Memory traffic: 8 B (f64) or 4 B (f32) a slot (stored value, including padding), x and y. For neighbouring diagonals,
// x is in the L1 cache, because a thread block has consecutive rows.

struct Dia {
    const int* offsets;       // of diagonals, padded with NOWHERE to a multiple of BATCH
    const stored* values;
    u32 rows, cols, slices;
    u32 diagonals;
};

// A single vector x: each thread is a lane. Packed (packed.cu) has the same interface for several vectors.
struct Unpacked {
    const real* x;
    u32 lane;
    static constexpr u32 log_width = 0;

    __device__ __forceinline__ Unpacked(const real* x) : x(x), lane(threadIdx.x % 32) {}
    __device__ __forceinline__ u32 lanes() const { return 32; }
    __device__ __forceinline__ real operator[](u32 row) const { return __ldg(x + row); }
};

// Calls `row_is` with each row and its sum.
template <int ROWS, class X, class Row> __device__ __forceinline__ void each_row(const Dia& a, const X& x, Row row_is) {
    constexpr int WIDE = ROWS < VALUES ? ROWS : VALUES, LOADS = ROWS / WIDE;
    constexpr int U = ROWS == 1 ? BATCH : BATCH / 2;
    const u32 warps = gridDim.x * (blockDim.x / 32);
    const i64 parts = (i64)a.slices << x.log_width;
    for (i64 part = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; part < parts; part += warps) {
        const i64 slice = part >> x.log_width;
        const u32 lane = (u32(part) * x.lanes() & 31) + x.lane;
        const u32 first = u32(slice) * (32 * ROWS) + lane;
        const Few<stored, WIDE>* values = (const Few<stored, WIDE>*)a.values + slice * a.diagonals * (32 * LOADS) + lane;
        real sum[ROWS];
#pragma unroll
        for (int p = 0; p < ROWS; p++) sum[p] = 0;
        for (u32 d = 0; d < a.diagonals; d += U) {
            Few<int, 4> offset[U / 4];
            Few<stored, WIDE> v[U][LOADS];
            real at_diagonal[U][ROWS];
#pragma unroll
            for (int u = 0; u < U / 4; u++) offset[u] = ((const Few<int, 4>*)(a.offsets + d))[u];
#pragma unroll
            for (int u = 0; u < U; u++) {
#pragma unroll
                for (int q = 0; q < LOADS; q++) {
#pragma unroll
                    for (int k = 0; k < WIDE; k++) v[u][q].at[k] = 0;
                    if (d + u < a.diagonals) v[u][q] = stream(values + (u * LOADS + q) * 32);
                }
            }
            // never true; prevents the compiler from moving the loads of values to their uses
            if (offset[0].at[0] == NOWHERE) break;
#pragma unroll
            for (int u = 0; u < U; u++) {
#pragma unroll
                for (int p = 0; p < ROWS; p++) {
                    // negative columns wrap around to large indices
                    const u32 column = first + 32 * p + u32(offset[u / 4].at[u % 4]);
                    at_diagonal[u][p] = column < a.cols ? x[column] : real(0);
                }
            }
#pragma unroll
            for (int u = 0; u < U; u++) {
#pragma unroll
                for (int p = 0; p < ROWS; p++) sum[p] += v[u][p / WIDE].at[p % WIDE] * at_diagonal[u][p];
            }
            values += U * LOADS * 32;
        }
#pragma unroll
        for (int p = 0; p < ROWS; p++) {
            const u32 row = first + 32 * p;
            if (row < a.rows) row_is(row, sum[p]);
        }
    }
}
