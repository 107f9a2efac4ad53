// Permutes matrices so that nodes are numbered aggregate by aggregate. Row lengths are computed with one thread per
// row; rows are copied with a few lanes each.

// Row lengths in the new order; `order` has the old row of each new one.
extern "C" __global__ __launch_bounds__(THREADS) void numbered_lengths(Graph a, const u32* order, u32* lengths) {
    begin();
    const u32 row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < a.rows) lengths[row] = a.offsets[order[row] + 1] - a.offsets[order[row]];
}
// Rows in the new order, with `size` values per entry. `order` has the old row of each new one, `offsets` the new row
// offsets, and `names` the new number of each column; if `names` is null, columns keep their numbers. If `to` is null,
// there are no values.
extern "C" __global__ __launch_bounds__(THREADS) void numbered_rows(
    Graph a, const double* values, u32 size, const u32* order, const u32* names, const u32* offsets, u32* columns, double* to, u32 lanes) {
    begin();
    const u32 row = (blockIdx.x * blockDim.x + threadIdx.x) / lanes, lane = threadIdx.x % lanes;
    if (row >= a.rows) return;
    const u32 of = order[row], first = a.offsets[of], length = a.offsets[of + 1] - first, start = offsets[row];
    for (u32 k = lane; k < length; k += lanes) {
        const u32 column = __ldg(a.columns + first + k);
        columns[start + k] = names ? __ldg(names + column) : column;
    }
    for (u64 k = lane; to && k < (u64)length * size; k += lanes) to[(u64)start * size + k] = __ldg(values + (u64)first * size + k);
}
// The permutation (`order`: old number of each new node) and its inverse (`places`): first the nodes that have an
// aggregate, listed aggregate by aggregate in `members`, then the others. The tentative prolongator `t` has one entry
// in the row of each of the former.
extern "C" __global__ __launch_bounds__(THREADS) void number_nodes(Graph t, const u32* members, u32* order, u32* places) {
    begin();
    const u32 node = blockIdx.x * blockDim.x + threadIdx.x;
    if (node >= t.rows) return;
    const u32 joined = t.offsets[t.rows], before = t.offsets[node];
    if (node < joined) {
        order[node] = members[node];
        places[members[node]] = node;
    }
    if (before == t.offsets[node + 1]) {
        order[joined + node - before] = node;
        places[node] = joined + node - before;
    }
}
