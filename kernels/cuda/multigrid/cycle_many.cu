// The products of cycle.cu for several columns (right-hand sides). All vectors except the diagonals are packed
// (packed.cu). Results are bitwise equal to those of separate cycles.
//
// Memory traffic: the matrix once for all columns, as in sliced_rows.cu or dia_rows.cu; x; and 4 B per row and column
// for each vector of Update. With eight columns, a gather uses all 32 B of a sector; with one column, it uses 4 B.
//
// Kernels do not check `update.ended()`, unlike those of cycle.cu. Solves in lockstep (iterations of all columns made
// together) read the residuals after each iteration and queue no further ones, so `active` is null. A cycle that
// another solve has queued beyond its end would only write vectors of the cycle: `widen` (ends.cu), which writes z,
// checks the flag.

// Applies an Update to one column of a packed row.
struct OfColumn {
    const Update& update;
    u32 log_width, column;

    __device__ __forceinline__ void operator()(u32 row, real sum) const { update.update(row, ((u64)row << log_width) + column, sum); }
};

#define KERNEL(NAME, BLOCKS, MATRIX, ...)                                                                               \
    extern "C" __global__ __launch_bounds__(THREADS, BLOCKS) void NAME(MATRIX a, const real* packed, Update update, u32 width) { \
        begin();                                                                                                        \
        const Packed x(width, width, packed);                                                                           \
        each_row<__VA_ARGS__>(a, x, OfColumn{update, x.log_width, x.column});                                           \
    }
KERNEL(update_wide_many, sizeof(real) == 8 ? 4 : 5, Sliced<u32>, u32, 1)
KERNEL(update_wide_packed_many, sizeof(real) == 8 ? 4 : 5, Sliced<u32>, u32, VALUES)
KERNEL(update_short_many, sizeof(real) == 8 ? 4 : 5, Sliced<u16>, u16, 1)
KERNEL(update_short_packed_many, sizeof(real) == 8 ? 4 : 5, Sliced<u16>, u16, VALUES)
KERNEL(update_dia_1_many, sizeof(real) == 8 ? 2 : 4, Dia, 1)
KERNEL(update_dia_4_many, sizeof(real) == 8 ? 2 : 4, Dia, 4)

// Y ← E C, with the result of `dense_product` (coarse.cu) for each column.
extern "C" __global__ __launch_bounds__(32 * DENSE_ROWS) void dense_product_many(const real* e, u32 n, u32 stride, const real* c, real* y, u32 width) {
    begin();
    const u32 row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x & 31;
    if (row >= n) return;
    const Pack* entries = (const Pack*)(e + (i64)row * stride);
    real sum[COLUMNS][PACK] = {};
    for (u32 k = lane; k < stride / PACK; k += 32) {
        const Pack v = entries[k];
        const real* x = c + (u64)k * PACK * width;
#pragma unroll
        for (int j = 0; j < PACK; j++) {
#pragma unroll
            for (int i = 0; i < COLUMNS; i++) {
                if (i < width) sum[i][j] += v.at[j] * __ldg(x + j * width + i);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < COLUMNS; i++) {
        real total = 0;
#pragma unroll
        for (int j = 0; j < PACK; j++) total += sum[i][j];
        total = warp_sum(total);
        if (lane == 0 && i < width) y[row * width + i] = total;
    }
}
