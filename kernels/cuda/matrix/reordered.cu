// Rows of a symmetrically permuted square matrix, with sorted columns.


// One warp per row. The columns of a row are distinct; the position of an entry in the new row is the number of entries
// with a smaller new column. Memory traffic: each entry, 12 B (f64) or 8 B (f32), twice, 12 or 16 B a row, and the
// gathered new index of each column, which comes from caches if neighbouring rows have similar columns.
extern "C" __global__ __launch_bounds__(THREADS) void reorder_rows(
    RowStarts old, const u32* columns, const real* values, const u32* old_of_new, const u32* new_of_old, RowStarts rows,
    u32* new_columns, real* new_values) {
    begin();
    const u32 lane = threadIdx.x % 32;
    const i64 warps = (i64)gridDim.x * (blockDim.x / 32);
    for (i64 row = (i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; row < rows.count; row += warps) {
        const i64 from = old.start(old_of_new[row]), to = rows.start(row);
        const u32 count = u32(rows.start(row + 1) - to);
        for (u32 base = 0; base < count; base += 32) {
            const bool is = base + lane < count;
            const u32 own = is ? __ldg(new_of_old + __ldcs(columns + from + base + lane)) : NONE;
            const real value = is ? __ldcs(values + from + base + lane) : real(0);
            u32 before = 0;
            for (u32 others = 0; others < count; others += 32) {
                u32 theirs = own;
                if (others != base) theirs = others + lane < count ? __ldg(new_of_old + columns[from + others + lane]) : NONE;
                const u32 end = min(32u, count - others);
                for (u32 k = 0; k < end; k++) before += __shfl_sync(ALL, theirs, k) < own;
            }
            if (is) {
                new_columns[to + before] = own;
                new_values[to + before] = value;
            }
        }
    }
}
