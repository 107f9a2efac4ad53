// Packs the columns of X row by row: each packed row has `width` numbers, one for each column and zeros for the rest.
//
// Per row, reads an element of each column and writes `width` elements. A warp reads 32 / width consecutive entries of
// each column, which are whole sectors of f64 for every width.
extern "C" __global__ __launch_bounds__(THREADS) void pack(Columns c, u64 rows, real* packed) {
    begin();
    constexpr int U = 4;
    const u32 column = threadIdx.x % c.width, shift = 31 - __clz(c.width);
    const bool is_column = column < c.count;
    const real* from = c.x[column];
    const u64 threads = (u64)gridDim.x * blockDim.x, end = rows << shift;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < end; i += U * threads) {
        real v[U];
#pragma unroll
        for (int u = 0; u < U; u++) v[u] = is_column && i + u * threads < end ? __ldg(from + (i + u * threads >> shift)) : real(0);
#pragma unroll
        for (int u = 0; u < U; u++) {
            if (i + u * threads < end) packed[i + u * threads] = v[u];
        }
    }
}
