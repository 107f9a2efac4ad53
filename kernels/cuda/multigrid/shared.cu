// Rows of a level whose other rows are in other memories. The columns are those of the own nodes, as many as there are
// rows, followed by those of ghosts.

// Copies `count` columns from `columns`, plus `shift`, and `count` blocks of `size` values from `values`.
__device__ __forceinline__ void copy_row(u32 count, const u32* columns, u32 shift, const double* values, u32 size, u32* to_columns, double* to_values) {
    for (u32 k = threadIdx.x % LANES; k < count; k += LANES) to_columns[k] = columns[k] + shift;
    for (u32 k = threadIdx.x % LANES; k < count * size; k += LANES) to_values[k] = values[k];
}

// `to` ← the columns, with the node itself in place of each ghost, which has no effect on aggregation.
extern "C" __global__ __launch_bounds__(THREADS) void hide_ghosts(Graph a, u32* to) {
    begin();
    const u32 row = (blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    if (row >= a.rows) return;
    for (u32 entry = a.offsets[row] + threadIdx.x % LANES; entry < a.offsets[row + 1]; entry += LANES) {
        const u32 column = a.columns[entry];
        to[entry] = column < a.rows ? column : row;
    }
}

// The number of entries of each row in columns of ghosts, or in own columns.
extern "C" __global__ __launch_bounds__(THREADS) void count_part(Graph a, u32 ghosts, u32* counts) {
    begin();
    const u32 row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= a.rows) return;
    const u32 first = a.offsets[row], end = a.offsets[row + 1], middle = place_of(a.columns, first, end, a.rows);
    counts[row] = ghosts ? end - middle : middle - first;
}
// Copies these entries to rows that begin at `offsets`; columns of ghosts are counted from zero, and `lines` receives
// the row of each of their entries.
extern "C" __global__ __launch_bounds__(THREADS) void copy_part(
    Graph a, const double* values, u32 size, u32 ghosts, const u32* offsets, u32* columns, double* to, u32* lines) {
    begin();
    const u32 row = (blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    if (row >= a.rows) return;
    const u32 first = offsets[row], count = offsets[row + 1] - first;
    const u32 from = ghosts ? a.offsets[row + 1] - count : a.offsets[row], shift = ghosts ? 0u - a.rows : 0;
    copy_row(count, a.columns + from, shift, values + (u64)from * size, size, columns + first, to + (u64)first * size);
    if (ghosts) for (u32 k = threadIdx.x % LANES; k < count; k += LANES) lines[first + k] = row;
}

// Writes the rows of [A, B], with as many own columns as there are rows; B has entries in rows `lines` only, and `b` is
// these rows. `offsets` is zero before.
extern "C" __global__ __launch_bounds__(THREADS) void join_rows(
    Graph a, const double* values, const u32* lines, Graph b, const double* others, u32 size, u32* offsets, u32* columns, double* to) {
    begin();
    const u32 row = (blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    if (row >= a.rows) return;
    const u32 line = place_of(lines, 0, b.rows, row);
    const u32 from = a.offsets[row], beside = b.offsets[line], first = from + beside;
    const u32 own = a.offsets[row + 1] - from, more = line < b.rows && lines[line] == row ? b.offsets[line + 1] - beside : 0;
    if (threadIdx.x % LANES == 0) offsets[row + 1] = first + own + more;
    copy_row(own, a.columns + from, 0, values + (u64)from * size, size, columns + first, to + (u64)first * size);
    copy_row(more, b.columns + beside, a.rows, others + (u64)beside * size, size, columns + first + own, to + (u64)(first + own) * size);
}

// `to` ← the columns, of which those from `own` on are replaced by `places`.
extern "C" __global__ __launch_bounds__(THREADS) void rename_columns(const u32* columns, u64 count, u32 own, const u32* places, u32* to) {
    begin();
    const u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= count) return;
    const u32 column = columns[at];
    to[at] = column < own ? column : places[column - own];
}
