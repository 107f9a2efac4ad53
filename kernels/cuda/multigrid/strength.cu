// Strength of connection, with the definition of strength.rs on the host. Operations on which a decision depends are
// rounded as on the host, so that both find the same strong connections.
//
// A few lanes share a node. `size` is the number of elements of a block A_ij of the matrix. Memory traffic:
// `coupling_rows` and `strong` read the matrix once each.

// ‖A_ij‖, the Frobenius norm
__device__ __forceinline__ double norm(const double* block, u32 size) {
    if (size == 1) return fabs(*block);
    double sum = 0;
    for (u32 k = 0; k < size; k++) sum = __dadd_rn(sum, __dmul_rn(block[k], block[k]));
    return sqrt(sum);
}

// roots_i ← ‖A_ii‖^−½; zero if there is no diagonal block or it is zero
extern "C" __global__ __launch_bounds__(THREADS) void inverse_roots(Graph a, const double* values, u32 size, double* roots) {
    begin();
    const u32 node = blockIdx.x * blockDim.x + threadIdx.x;
    if (node >= a.rows) return;
    const u32 own = own_place(a, node);
    const double v = own == NONE ? 0.0 : norm(values + (u64)own * size, size);
    roots[node] = v > 0 ? 1.0 / sqrt(v) : 0.0;
}

// The strength of a connection, ‖A_ij‖ (‖A_ii‖ ‖A_jj‖)^−½, from the inverse roots (`inverse_roots`) of both nodes.
__device__ __forceinline__ double coupling(double root, double other, double norm) { return __dmul_rn(__dmul_rn(root, other), norm); }

// Calls visit(entry, whether it exists) for the entries of a lane's node, LANES at a time; all lanes of a warp call
// together.
template <int LANES, class Visit> __device__ __forceinline__ void each_entry(const Graph& a, u32 node, Visit visit) {
    const u32 end = node < a.rows ? a.offsets[node + 1] : 0;
    u32 entry = (node < a.rows ? a.offsets[node] : 0) + threadIdx.x % LANES;
    for (; __any_sync(ALL, entry - threadIdx.x % LANES < end); entry += LANES) visit(entry, entry < end);
}

// Computes for each node the strength of its strongest connection, and whether it is left out of aggregation, because
// ‖A_ii‖ is large (`dominant`: DOMINANT in kernels/multigrid.rs). Sets `weak` if some connection is below `theta`
// times its node's strongest one, with at most one write per thread block.
template <int LANES> __device__ __forceinline__ void coupling_of_rows(
    const Graph& a, const double* values, u32 size, const double* roots, double theta, double dominant, double* strongest, u8* left_out, u32* weak) {
    const u32 node = (blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    const double root = node < a.rows ? roots[node] : 0.0;
    double most = 0, least = __longlong_as_double(0x7ff0000000000000ll), sum = 0;
    each_entry<LANES>(a, node, [&](u32 entry, bool there) {
        const u32 column = there ? a.columns[entry] : node;
        const double v = column == node ? 0.0 : norm(values + (u64)entry * size, size);
        if (column != node) {
            const double s = coupling(root, roots[column], v);
            most = fmax(most, s);
            least = fmin(least, s);
        }
        sum += v;
    });
#pragma unroll
    for (int step = LANES / 2; step; step /= 2) {
        most = fmax(most, __shfl_xor_sync(ALL, most, step));
        least = fmin(least, __shfl_xor_sync(ALL, least, step));
        sum += __shfl_xor_sync(ALL, sum, step);
    }
    // close to the threshold, where the last bits decide, sum again in the order of the host: entry by entry
    const bool close = fabs(sum * root * root - dominant) <= 1e-9 * dominant;
    if (__any_sync(ALL, close)) {
        sum = 0;
        each_entry<LANES>(a, node, [&](u32 entry, bool there) {
            const double v = !there || a.columns[entry] == node ? 0.0 : norm(values + (u64)entry * size, size);
#pragma unroll
            for (int k = 0; k < LANES; k++) sum = __dadd_rn(sum, __shfl_sync(ALL, v, k, LANES));
        });
    }
    if (node < a.rows && threadIdx.x % LANES == 0) {
        strongest[node] = most;
        left_out[node] = __dmul_rn(__dmul_rn(sum, root), root) <= dominant || root == 0;
    }
    if (__syncthreads_or(node < a.rows && !(least >= __dmul_rn(theta, most))) && threadIdx.x == 0) *weak = 1;
}

// Writes the columns of strong connections, and the node itself in place of weak ones. A connection is strong if it is
// at least `theta` times the strongest one of either node.
template <int LANES> __device__ __forceinline__ void strong_columns(
    const Graph& a, const double* values, u32 size, const double* roots, double theta, const double* strongest, u32* to) {
    const u32 node = (blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    const double root = node < a.rows ? roots[node] : 0.0, own = node < a.rows ? __dmul_rn(theta, strongest[node]) : 0.0;
    each_entry<LANES>(a, node, [&](u32 entry, bool there) {
        if (!there) return;
        const u32 column = a.columns[entry];
        const double s = coupling(root, roots[column], norm(values + (u64)entry * size, size));
        to[entry] = s >= own || s >= __dmul_rn(theta, strongest[column]) ? column : node;
    });
}

#define STRENGTH(LANES)                                                                                                 \
    extern "C" __global__ __launch_bounds__(THREADS) void coupling_rows_##LANES(                                        \
        Graph a, const double* values, u32 size, const double* roots, double theta, double dominant, double* strongest, u8* left_out, u32* weak) { \
        begin();                                                                                                        \
        coupling_of_rows<LANES>(a, values, size, roots, theta, dominant, strongest, left_out, weak);                    \
    }                                                                                                                   \
    extern "C" __global__ __launch_bounds__(THREADS) void strong_##LANES(                                               \
        Graph a, const double* values, u32 size, const double* roots, double theta, const double* strongest, u32* to) { \
        begin();                                                                                                        \
        strong_columns<LANES>(a, values, size, roots, theta, strongest, to);                                            \
    }
STRENGTH(4)
STRENGTH(16)
// Writes the same as `strong_columns`, from a pattern of the strong connections alone.
extern "C" __global__ __launch_bounds__(THREADS) void spread_strong(Graph a, Graph strong, u32* to) {
    begin();
    const u32 node = blockIdx.x * blockDim.x + threadIdx.x;
    if (node >= a.rows) return;
    u32 next = strong.offsets[node];
    const u32 end = strong.offsets[node + 1];
    for (u32 entry = a.offsets[node]; entry < a.offsets[node + 1]; entry++) {
        const bool kept = next < end && strong.columns[next] == a.columns[entry];
        to[entry] = kept ? a.columns[entry] : node;
        next += kept;
    }
}
