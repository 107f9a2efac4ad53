// Smoothed prolongation P = (I − ω D⁻¹ A) T in a single pass, for 1×1 blocks and rows of the tentative prolongator T
// with at most one entry: P_ij = T_ij − ω d_i Σ_k a_ik T_kj, where d_i is entry i of D⁻¹, and k runs over those columns
// of row i of A that belong to aggregate j.
//
// A few lanes share a row. Each entry's term and aggregate are put into shared memory. The lane of the first entry of
// an aggregate sums the terms of that aggregate, in the order of entries, and finds its position by counting the
// smaller aggregates. Memory traffic per row: a row of A, and a row of T for each of its entries.

// The row of T of a node: its aggregate (NONE if it has none) and its value, in one 16-byte load.
struct alignas(16) Joined {
    double value;
    u32 aggregate, unused;
};
__device__ __forceinline__ Joined joined_to(const Joined* joined, u32 node) {
    const uint4 bits = __ldg((const uint4*)joined + node);
    return {__hiloint2double(bits.y, bits.x), bits.z, 0};
}
// Writes the row of T of each node.
extern "C" __global__ __launch_bounds__(THREADS) void join_values(Graph t, const double* values, Joined* joined) {
    begin();
    const u32 node = blockIdx.x * blockDim.x + threadIdx.x;
    if (node >= t.rows) return;
    const u32 place = t.offsets[node];
    const bool there = place < t.offsets[node + 1];
    joined[node] = {there ? values[place] : 0.0, there ? t.columns[place] : NONE, 0};
}

struct Smoothing {
    // `strong` has the pattern of `a`, with the row itself in place of the column of each weak connection; its columns
    // are null if all connections are strong
    Graph a, strong;
    const Joined* joined;     // row of T of each node
    const double* values;     // of A
    const double* inverse;    // D⁻¹
    double omega, positive;
};

// Task of a kernel, for each row of P: COUNT its columns; FILL_IN columns and values; REFILL the values for known
// columns.
enum Does { COUNT, FILL_IN, REFILL };

// Computes the rows of P with LANES lanes each. Sets `overflow` if a row of A has more than CAPACITY entries.
template <int LANES, int CAPACITY, Does DOES> __device__ __forceinline__ void smoothed_rows(
    const Smoothing& of, const u32* offsets, u32* counts, u32* columns, double* values, u32* overflow) {
    constexpr int GROUPS = THREADS / LANES, OWN = CAPACITY / LANES;
    constexpr bool FILL = DOES != COUNT;
    // one more element, so that the groups of lanes use different banks of shared memory
    __shared__ u32 keys_of[GROUPS][CAPACITY + 1];
    __shared__ double terms_of[GROUPS][FILL ? CAPACITY + 1 : 1];
    const u32 row = (blockIdx.x * blockDim.x + threadIdx.x) / LANES, lane = threadIdx.x % LANES;
    u32* keys = keys_of[threadIdx.x / LANES];
    double* terms = terms_of[threadIdx.x / LANES];
    const bool inside = row < of.a.rows;
    const Joined mine = joined_to(of.joined, inside ? row : 0);
    // nodes without an aggregate have an empty row
    const bool kept = inside && mine.aggregate != NONE;
    const u32 first = kept ? of.a.offsets[row] : 0;
    u32 length = kept ? of.a.offsets[row + 1] - first : 0;
    if (length > CAPACITY) {
        if (lane == 0) *overflow = 1;
        length = CAPACITY;
    }
    const bool all_strong = !of.strong.columns;
    // lumped diagonal: the sum of the diagonal and the weak entries
    double diagonal = 0;
    for (u32 k = lane; k < length; k += LANES) {
        const u32 column = __ldg(of.a.columns + first + k);
        const bool is_strong = all_strong || __ldg(of.strong.columns + first + k) == column;
        const Joined other = joined_to(of.joined, column);
        keys[k] = is_strong ? other.aggregate : NONE;
        if constexpr (FILL) {
            const double v = __ldg(of.values + first + k);
            if (!is_strong || column == row) diagonal += v;
            // with lumping, the diagonal's term is added below
            const bool later = column == row && !all_strong;
            terms[k] = is_strong && !later ? v * other.value : 0.0;
        }
    }
    __syncwarp();
    double factor = 0, own_value = 0;
    u32 own_key = NONE;
    if constexpr (FILL) {
        for (int step = LANES / 2; step; step /= 2) diagonal += __shfl_xor_sync(ALL, diagonal, step);
        if (kept) {
            double inverse = of.inverse[row];
            if (!all_strong && diagonal * inverse > of.positive) inverse = 1.0 / diagonal;
            factor = -of.omega * inverse;
            own_key = mine.aggregate;
            own_value = mine.value;
            if (!all_strong) own_value *= 1.0 + factor * diagonal;
        }
    }
    if constexpr (DOES == REFILL) {
        const u32 end = kept ? offsets[row + 1] : 0;
        for (u32 k = kept ? offsets[row] + lane : 0; k < end; k += LANES) {
            const u32 key = __ldg(columns + k);
            double sum = key == own_key ? own_value : 0.0;
            for (u32 other = 0; other < length; other++) {
                if (keys[other] == key) sum += factor * terms[other];
            }
            values[k] = sum;
        }
        return;
    }
    double sums[OWN];
    u32 own[OWN], count = 0;
#pragma unroll
    for (int s = 0; s < OWN; s++) {
        const u32 k = lane + s * LANES;
        own[s] = k < length ? keys[k] : NONE;
        for (u32 other = 0; other < k && own[s] != NONE; other++) {
            if (keys[other] == own[s]) own[s] = NONE;
        }
        count += own[s] != NONE;
        if constexpr (FILL) {
            sums[s] = own[s] == own_key ? own_value : 0.0;
            for (u32 other = k; other < length && own[s] != NONE; other++) {
                if (keys[other] == own[s]) sums[s] += factor * terms[other];
            }
        }
    }
    if constexpr (!FILL) {
        for (int step = LANES / 2; step; step /= 2) count += __shfl_xor_sync(ALL, count, step);
        if (inside && lane == 0) counts[row] = count;
    } else {
        __syncwarp();
#pragma unroll
        for (int s = 0; s < OWN; s++) {
            if (lane + s * LANES < length) keys[lane + s * LANES] = own[s];
        }
        __syncwarp();
#pragma unroll
        for (int s = 0; s < OWN; s++) {
            if (own[s] == NONE) continue;
            u32 place = offsets[row];
            for (u32 other = 0; other < length; other++) place += keys[other] < own[s];
            columns[place] = own[s];
            values[place] = sums[s];
        }
    }
}
// One thread per row, for short rows of P.
template <bool FILL> __device__ __forceinline__ void short_smoothed(
    const Smoothing& of, const u32* offsets, u32* counts, u32* columns, double* values, u32* overflow) {
    short_rows<FILL>(of.a.rows, offsets, counts, columns, values, overflow, [&](u32 row, ShortRow<FILL>& list) {
        const Joined mine = joined_to(of.joined, row);
        // nodes without an aggregate have an empty row
        if (mine.aggregate == NONE) return;
        const u32 first = of.a.offsets[row], end = of.a.offsets[row + 1];
        const bool all_strong = !of.strong.columns;
        double inverse = 0, own = 0;
        if constexpr (FILL) {
            inverse = of.inverse[row];
            own = mine.value;
            if (!all_strong) {
                // lump the weak entries into the diagonal
                double diagonal = 0;
                for (u32 k = first; k < end; k++) {
                    const u32 column = __ldg(of.a.columns + k);
                    if (column == row || __ldg(of.strong.columns + k) != column) diagonal += __ldg(of.values + k);
                }
                if (diagonal * inverse > of.positive) inverse = 1.0 / diagonal;
                own *= 1.0 - of.omega * inverse * diagonal;
            }
        }
        const double factor = -of.omega * inverse;
        list.add(mine.aggregate, own);
        // load the data of several entries before the first is used
        constexpr u32 TOGETHER = 4;
        for (u32 k = first; k < end; k += TOGETHER) {
            u32 aggregate[TOGETHER];
            double term[TOGETHER];
#pragma unroll
            for (u32 q = 0; q < TOGETHER; q++) {
                bool there = k + q < end;
                const u32 column = there ? __ldg(of.a.columns + k + q) : row;
                const Joined other = joined_to(of.joined, column);
                // the diagonal's term was added above
                if (!all_strong && there) there = column != row && __ldg(of.strong.columns + k + q) == column;
                aggregate[q] = there ? other.aggregate : NONE;
                term[q] = FILL && there ? factor * (__ldg(of.values + k + q) * other.value) : 0.0;
            }
#pragma unroll
            for (u32 q = 0; q < TOGETHER; q++) {
                if (aggregate[q] != NONE) list.add(aggregate[q], term[q]);
            }
        }
    });
}
extern "C" __global__ __launch_bounds__(SHORT_THREADS) void count_smoothed_short(Smoothing of, u32* counts, u32* overflow) {
    begin();
    short_smoothed<false>(of, 0, counts, 0, 0, overflow);
}
extern "C" __global__ __launch_bounds__(SHORT_THREADS) void fill_smoothed_short(
    Smoothing of, const u32* offsets, u32* columns, double* values, u32* overflow) {
    begin();
    short_smoothed<true>(of, offsets, 0, columns, values, overflow);
}

#define SMOOTHED(CAPACITY, LANES)                                                                                           \
    extern "C" __global__ __launch_bounds__(THREADS) void count_smoothed_##CAPACITY(Smoothing of, u32* counts, u32* overflow) { \
        begin();                                                                                                        \
        smoothed_rows<LANES, CAPACITY, COUNT>(of, 0, counts, 0, 0, overflow);                                               \
    }                                                                                                                   \
    extern "C" __global__ __launch_bounds__(THREADS) void fill_smoothed_##CAPACITY(                                         \
        Smoothing of, const u32* offsets, u32* columns, double* values, u32* overflow) {                                \
        begin();                                                                                                        \
        smoothed_rows<LANES, CAPACITY, FILL_IN>(of, offsets, 0, columns, values, overflow);                                 \
    }
#define REFILLED(CAPACITY, LANES)                                                                                           \
    extern "C" __global__ __launch_bounds__(THREADS) void refill_smoothed_##CAPACITY(                                       \
        Smoothing of, const u32* offsets, u32* columns, double* values, u32* overflow) {                                \
        begin();                                                                                                        \
        smoothed_rows<LANES, CAPACITY, REFILL>(of, offsets, 0, columns, values, overflow);                                  \
    }
REFILLED(32, 4)
REFILLED(64, 8)
REFILLED(128, 16)
SMOOTHED(32, 8)
SMOOTHED(64, 16)
SMOOTHED(128, 32)
