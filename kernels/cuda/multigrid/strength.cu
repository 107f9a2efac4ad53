// Strength of connection, as strength.rs of the host has it: every number is rounded as there, so that both decide alike.
//
// A thread has a node. Moves the matrix once for each of `coupling_rows`, `count_strong` and `fill_strong`.

// ‖A_ij‖
__device__ __forceinline__ double norm(const double* block, u32 size) {
    if (size == 1) return fabs(*block);
    double sum = 0;
    for (u32 k = 0; k < size; k++) sum = __dadd_rn(sum, __dmul_rn(block[k], block[k]));
    return sqrt(sum);
}

// ‖A_ii‖^−½
extern "C" __global__ __launch_bounds__(THREADS) void inverse_roots(Graph a, const double* values, u32 size, double* roots) {
    begin();
    const u32 node = blockIdx.x * blockDim.x + threadIdx.x;
    if (node >= a.rows) return;
    const u32 own = own_place(a, node);
    const double v = own == NONE ? 0.0 : norm(values + (u64)own * size, size);
    roots[node] = v > 0 ? 1.0 / sqrt(v) : 0.0;
}

__device__ __forceinline__ double coupling(double root, double other, double norm) { return __dmul_rn(__dmul_rn(root, other), norm); }

// The strongest connection of each node, and which are left out; marks a matrix with weak ones.
extern "C" __global__ __launch_bounds__(THREADS) void coupling_rows(
    Graph a, const double* values, u32 size, const double* roots, double theta, double dominant, double* strongest, u8* left_out, u32* weak) {
    begin();
    const u32 node = blockIdx.x * blockDim.x + threadIdx.x;
    if (node >= a.rows) return;
    const double root = roots[node];
    double most = 0, least = __longlong_as_double(0x7ff0000000000000ll), sum = 0;
    for (u32 entry = a.offsets[node]; entry < a.offsets[node + 1]; entry++) {
        const u32 column = a.columns[entry];
        if (column == node) continue;
        const double v = norm(values + (u64)entry * size, size), s = coupling(root, roots[column], v);
        most = fmax(most, s);
        least = fmin(least, s);
        sum = __dadd_rn(sum, v);
    }
    strongest[node] = most;
    left_out[node] = __dmul_rn(__dmul_rn(sum, root), root) <= dominant || root == 0;
    if (!(least >= __dmul_rn(theta, most))) *weak = 1;
}

template <bool FILL> __device__ __forceinline__ u32 strong(
    const Graph& a, const double* values, u32 size, const double* roots, double theta, const double* strongest, u32 node, u32* to) {
    const double root = roots[node], own = __dmul_rn(theta, strongest[node]);
    u32 count = 0;
    for (u32 entry = a.offsets[node]; entry < a.offsets[node + 1]; entry++) {
        const u32 column = a.columns[entry];
        const double s = coupling(root, roots[column], norm(values + (u64)entry * size, size));
        if (s >= own || s >= __dmul_rn(theta, strongest[column]) || column == node) {
            if (FILL) to[count] = column;
            count++;
        }
    }
    return count;
}
extern "C" __global__ __launch_bounds__(THREADS) void count_strong(
    Graph a, const double* values, u32 size, const double* roots, double theta, const double* strongest, u32* counts) {
    begin();
    const u32 node = blockIdx.x * blockDim.x + threadIdx.x;
    if (node < a.rows) counts[node] = strong<false>(a, values, size, roots, theta, strongest, node, 0);
}
extern "C" __global__ __launch_bounds__(THREADS) void fill_strong(
    Graph a, const double* values, u32 size, const double* roots, double theta, const double* strongest, const u32* offsets, u32* columns) {
    begin();
    const u32 node = blockIdx.x * blockDim.x + threadIdx.x;
    if (node < a.rows) strong<true>(a, values, size, roots, theta, strongest, node, columns + offsets[node]);
}
