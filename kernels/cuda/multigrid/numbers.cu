// Values of a level: the inverse diagonal, the prolongation smoother I − ω D⁻¹ A, conversion between scalar and block
// matrices, and rounding to single precision.

// The inverse of the diagonal, permuted by `places`; zero where the diagonal is zero. `refused` becomes the first
// nonempty row whose diagonal is not positive, `least` the smallest nonzero inverse.
extern "C" __global__ __launch_bounds__(THREADS) void invert_diagonal(
    Graph a, const double* values, u32 size, Order places, double* inverse, u32* refused, u64* least) {
    begin();
    __shared__ u64 warps[THREADS / 32];
    const u32 row = blockIdx.x * blockDim.x + threadIdx.x;
    u64 smallest = ~0ull;
    if (row < a.rows * size) {
        const u32 node = row / size, within = row % size, own = own_place(a, node);
        const double entry = own == NONE ? 0.0 : values[(u64)own * size * size + within * (size + 1)];
        const double v = entry == 0 ? 0.0 : 1.0 / entry;
        bool right = v > 0 && finite(v);
        // the bits of positive numbers, as integers, have the same order
        if (right) smallest = min(smallest, (u64)__double_as_longlong(v));
        if (entry == 0) {
            right = true;
            for (u32 k = a.offsets[node]; k < a.offsets[node + 1]; k++) {
                for (u32 j = 0; j < size; j++) right &= values[((u64)k * size + within) * size + j] == 0;
            }
        }
        inverse[places.at(row)] = v;
        if (!right) atomicMin(refused, row);
    }
    for (int step = 16; step; step >>= 1) smallest = min(smallest, __shfl_xor_sync(ALL, smallest, step));
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = smallest;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < THREADS / 32; w++) smallest = min(smallest, warps[w]);
        // atomics on one address serialize: skip those without effect
        if (smallest < *(volatile u64*)least) atomicMin(least, smallest);
    }
}
// to ← inverse / scale in single precision; one where `inverse` is zero.
extern "C" __global__ __launch_bounds__(THREADS) void round_diagonal(const double* inverse, u32 rows, double scale, float* to) {
    begin();
    const u32 row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const double v = inverse[row];
    to[row] = v == 0 ? 1.0f : float(v / scale);
}
// Pseudo-random values between −1 and 1. The value of a row depends on its number before the permutation,
// `order.at(row)`.
extern "C" __global__ __launch_bounds__(THREADS) void noise(Order order, u32 rows, float* to) {
    begin();
    const u32 row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    u64 bits = (u64)(order.at(row) + 1) * 0x9e3779b97f4a7c15ull;
    bits = (bits ^ bits >> 31) * 0xd6e8feb86659fd93ull;
    to[row] = float(bits >> 40) / float(1u << 23) - 1.0f;
}

// I − ω D⁻¹ A, block by block.
extern "C" __global__ __launch_bounds__(THREADS) void smoothing(
    Graph a, const double* values, u32 size, const double* inverse, double omega, double* to) {
    begin();
    const u32 row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= a.rows * size) return;
    const u32 node = row / size, within = row % size;
    const double factor = -omega * inverse[row];
    for (u32 k = a.offsets[node]; k < a.offsets[node + 1]; k++) {
        for (u32 j = 0; j < size; j++) {
            const u64 at = ((u64)k * size + within) * size + j;
            to[at] = factor * values[at] + (a.columns[k] == node && j == within ? 1.0 : 0.0);
        }
    }
}
// I − ω D⁻¹ A on strong connections, for 1×1 blocks, with weak entries lumped into the diagonal. D is the lumped
// diagonal if that exceeds the fraction `positive` of the original one, otherwise the original.
extern "C" __global__ __launch_bounds__(THREADS) void strong_smoothing(
    Graph a, const double* values, Graph strong, const double* inverse, double omega, double positive, double* to) {
    begin();
    const u32 row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= a.rows) return;
    const u32 first = a.offsets[row], end = a.offsets[row + 1];
    double diagonal = 0;
    for (u32 k = first; k < end; k++) {
        const u32 column = a.columns[k];
        if (column == row || strong.columns[k] != column) diagonal += values[k];
    }
    double own = inverse[row];
    if (diagonal * own > positive) own = 1.0 / diagonal;
    for (u32 k = first; k < end; k++) {
        const u32 column = a.columns[k];
        const double entry = strong.columns[k] == column ? -omega * own * values[k] : 0.0;
        to[k] = column == row ? 1.0 - omega * own * diagonal : entry;
    }
}

// Constant near-null-space vectors, one for each unknown of a node: one in this unknown, zero in the others.
extern "C" __global__ __launch_bounds__(THREADS) void constant_modes(u64 numbers, u32 size, double* to) {
    begin();
    const u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < numbers) to[at] = at / size % size == at % size;
}

// Expands rows of blocks to scalar rows: row offsets.
extern "C" __global__ __launch_bounds__(THREADS) void expand_offsets(Graph a, Shape shape, u32* offsets) {
    begin();
    const u32 row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row > a.rows * shape.rows) return;
    const u32 node = row / shape.rows, first = a.offsets[node] * shape.columns;
    const u32 width = node < a.rows ? (a.offsets[node + 1] - a.offsets[node]) * shape.columns : 0;
    offsets[row] = first * shape.rows + row % shape.rows * width;
}
// Expands rows of blocks to scalar rows: columns (unless null), and values times `scale`; one warp per row of blocks.
extern "C" __global__ __launch_bounds__(THREADS) void expand_numbers(Graph a, Shape shape, const double* values, double scale, u32* columns, float* to) {
    begin();
    const u32 node = (blockIdx.x * blockDim.x + threadIdx.x) / 32, size = shape.rows * shape.columns;
    if (node >= a.rows) return;
    const u32 first = a.offsets[node], width = (a.offsets[node + 1] - first) * shape.columns;
    for (u32 k = threadIdx.x % 32; k < width * shape.rows; k += 32) {
        const u32 row = k / width, entry = k % width / shape.columns, column = k % width % shape.columns;
        const u64 at = (u64)first * size + k;
        to[at] = float(values[(u64)(first + entry) * size + row * shape.columns + column] * scale);
        if (columns) columns[at] = a.columns[first + entry] * shape.columns + column;
    }
}
// Converts values to double precision: those at `places`, or all if `places` is null.
extern "C" __global__ __launch_bounds__(THREADS) void widen_entries(const real* values, const u32* places, u64 count, double* to) {
    begin();
    const u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) to[at] = double(values[places ? places[at] : at]);
}
// Row offsets of the pattern of nodes, whose scalar rows have equal patterns and columns grouped by node.
extern "C" __global__ __launch_bounds__(THREADS) void node_offsets(const u32* offsets, u32 nodes, u32 size, u32* to) {
    begin();
    const u32 node = blockIdx.x * blockDim.x + threadIdx.x;
    if (node <= nodes) to[node] = offsets[(u64)node * size] / (size * size);
}
// Gathers the entries of scalar rows (`columns`, `values`) into blocks of `size` rows and columns, whose row offsets
// are `offsets`, and writes the columns of nodes (unless `to_columns` is null); one warp per node.
extern "C" __global__ __launch_bounds__(THREADS) void gather_blocks(
    const u32* offsets, u32 nodes, u32 size, const u32* columns, const real* values, u32* to_columns, double* to) {
    begin();
    const u32 node = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (node >= nodes) return;
    const u32 first = offsets[node], count = offsets[node + 1] - first, square = size * size;
    for (u32 k = threadIdx.x % 32; k < count * square; k += 32) {
        const u32 block = k / square, within = k % square;
        const u64 from = (u64)first * square + (u64)(within / size) * count * size + block * size + within % size;
        to[(u64)first * square + k] = double(values[from]);
        if (to_columns && within == 0) to_columns[first + block] = columns[from] / size;
    }
}
// Gathers the entries of scalar rows (`starts`, `columns`, `values`) into blocks of which some elements have no entry;
// `offsets` and `of_nodes` are the pattern of blocks, and `to` must be zero before. Each entry finds its block by
// binary search. One warp per node.
extern "C" __global__ __launch_bounds__(THREADS) void fill_blocks(
    const u32* offsets, u32 nodes, u32 size, const u32* starts, const u32* columns, const real* values,
    const u32* of_nodes, double* to) {
    begin();
    const u32 node = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (node >= nodes) return;
    for (u32 row = 0; row < size; ++row) {
        const u64 number = (u64)node * size + row;
        for (u32 k = starts[number] + threadIdx.x % 32; k < starts[number + 1]; k += 32) {
            const u32 column = columns[k];
            u32 low = offsets[node], high = offsets[node + 1];
            while (high - low > 1) {
                const u32 middle = low + (high - low) / 2;
                if (of_nodes[middle] <= column / size) low = middle;
                else high = middle;
            }
            to[((u64)low * size + row) * size + column % size] = double(values[k]);
        }
    }
}
// Expands a block matrix, times `scale`, to a dense matrix with rows `stride` elements apart. The diagonal is also
// multiplied by `lift`; a zero on the diagonal becomes one. One warp per row of blocks; `to` must be zero before.
extern "C" __global__ __launch_bounds__(THREADS) void expand_dense(
    Graph a, const double* values, u32 size, double scale, double lift, u32 stride, double* to, double* diagonal) {
    begin();
    const u32 node = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32, square = size * size;
    if (node >= a.rows) return;
    const u32 first = a.offsets[node], count = a.offsets[node + 1] - first;
    for (u32 k = lane; k < count * square; k += 32) {
        const u32 row = node * size + k % square / size, column = a.columns[first + k / square] * size + k % size;
        if (row != column) to[(u64)row * stride + column] = values[(u64)first * square + k] * scale;
    }
    const u32 own = own_place(a, node);
    for (u32 k = lane; k < size; k += 32) {
        const u32 row = node * size + k;
        const double v = own == NONE ? 0.0 : values[(u64)own * square + k * (size + 1)] * scale;
        to[(u64)row * stride + row] = v == 0 ? 1.0 : v * lift;
        diagonal[row] = v == 0 ? 1.0 : v * lift;
    }
}
