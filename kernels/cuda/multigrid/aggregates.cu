// Aggregation with the algorithm of aggregates.rs on the host: rounds choose roots at mutual distances above two, then
// the other nodes join the aggregate of a root nearby. In each round, what a node becomes depends only on the state
// before the round, so both find the same aggregates.
//
// Memory traffic of a round: the rows of undecided nodes, and one number per node; with lists of undecided nodes,
// nothing for decided nodes.

// Marks a root, in place of its priority.
constexpr u32 ROOT = ALL;

// A hash of 32 bits, one-to-one.
__device__ __forceinline__ u32 scrambled(u32 bits) {
    bits = (bits ^ bits >> 16) * 0x85ebca6bu;
    bits = (bits ^ bits >> 13) * 0xc2b2ae35u;
    return bits ^ bits >> 16;
}

// `drawn` ← the pseudo-random priority of each node; zero for nodes that are left out. In later rounds, a decided node
// has ROOT or zero instead.
extern "C" __global__ __launch_bounds__(THREADS) void draw(const u8* left_out, u32 nodes, u32* drawn, u32* largest) {
    begin();
    const u32 node = blockIdx.x * blockDim.x + threadIdx.x;
    if (node >= nodes) return;
    drawn[node] = left_out[node] ? 0 : scrambled(node + 1);
    // 1 marks an undecided node; the first round replaces it
    largest[node] = left_out[node] ? 0 : 1;
}

// Nodes that a round visits: those of a list, or all if there is no list.
struct Nodes {
    const u32* list;
    const u32* count;
    u32 all;

    __device__ __forceinline__ u32 size() const { return list ? *count : all; }
    __device__ __forceinline__ u32 at(u32 place) const { return list ? __ldg(list + place) : place; }
};

template <class Visit> __device__ __forceinline__ void each_node(const Nodes& nodes, Visit visit) {
    const u32 size = nodes.size(), threads = gridDim.x * blockDim.x;
    for (u32 place = blockIdx.x * blockDim.x + threadIdx.x; place < size; place += threads) visit(nodes.at(place));
}
// The largest of `numbers` (priorities) among a node and its neighbours. Loads TOGETHER neighbours at once, because
// this loop is bound by latency.
__device__ __forceinline__ u32 most_among(const Graph& a, const u32* numbers, u32 node) {
    constexpr u32 TOGETHER = 8;
    const u32 first = a.offsets[node], end = a.offsets[node + 1];
    u32 most = numbers[node];
    for (u32 entry = first; entry < end; entry += TOGETHER) {
        u32 column[TOGETHER], number[TOGETHER];
#pragma unroll
        for (u32 k = 0; k < TOGETHER; k++) column[k] = entry + k < end ? __ldg(a.columns + entry + k) : node;
#pragma unroll
        for (u32 k = 0; k < TOGETHER; k++) number[k] = numbers[column[k]];
#pragma unroll
        for (u32 k = 0; k < TOGETHER; k++) most = max(most, number[k]);
    }
    return most;
}
__device__ __forceinline__ bool is_open(u32 number) { return number != 0 && number != ROOT; }

// `largest` ← the largest priority among each node and its neighbours. Entries of `largest` that are ROOT or zero are
// final and are not recomputed.
extern "C" __global__ __launch_bounds__(THREADS) void find_largest(Graph a, Nodes nodes, const u32* drawn, u32* largest) {
    begin();
    each_node(nodes, [&](u32 node) {
        if (!is_open(largest[node])) return;
        largest[node] = most_among(a, drawn, node);
    });
}
// Decides nodes: those with the highest priority within distance two become roots; those with a root within distance
// two become zero. Sets `open`, unless it is null, if undecided nodes remain; one write per block, because writes to
// one address serialize.
extern "C" __global__ __launch_bounds__(THREADS) void decide(Graph a, Nodes nodes, const u32* largest, u32* drawn, u32* open) {
    begin();
    bool some = false;
    each_node(nodes, [&](u32 node) {
        const u32 own = drawn[node];
        if (!is_open(own)) return;
        const u32 most = most_among(a, largest, node);
        const bool decided = most == own || most == ROOT;
        some |= !decided;
        if (decided) drawn[node] = most == own ? ROOT : 0;
    });
    if (__syncthreads_or(some) && open && threadIdx.x == 0) *open = 1;
}
// Writes the undecided nodes of `nodes` (whose entry of `numbers` is neither ROOT nor zero) to `kept`, and their number
// to `count`, which must be zero before. Their order is arbitrary and does not affect the aggregates.
extern "C" __global__ __launch_bounds__(THREADS) void keep_open(Nodes nodes, const u32* numbers, u32* kept, u32* count) {
    begin();
    // `before`: for each warp, the number of nodes that earlier warps write; `first`: index in `kept` of the block's
    // first node
    __shared__ u32 before[THREADS / 32], first;
    const u32 size = nodes.size(), warp = threadIdx.x / 32;
    for (u32 base = blockIdx.x * THREADS; base < size; base += gridDim.x * THREADS) {
        const u32 node = base + threadIdx.x < size ? nodes.at(base + threadIdx.x) : NONE;
        const bool keeps = node != NONE && is_open(numbers[node]);
        const u32 all = __ballot_sync(ALL, keeps);
        if (threadIdx.x % 32 == 0) before[warp] = __popc(all);
        __syncthreads();
        if (threadIdx.x == 0) {
            u32 sum = 0;
            for (u32 w = 0; w < THREADS / 32; w++) {
                const u32 own = before[w];
                before[w] = sum;
                sum += own;
            }
            first = atomicAdd(count, sum);
        }
        __syncthreads();
        if (keeps) kept[first + before[warp] + __popc(all & ((1u << threadIdx.x % 32) - 1))] = node;
        __syncthreads();
    }
}

// `marks` ← 1 for roots, 0 for other nodes.
extern "C" __global__ __launch_bounds__(THREADS) void mark_roots(const u32* drawn, u32 nodes, u32* marks) {
    begin();
    const u32 node = blockIdx.x * blockDim.x + threadIdx.x;
    if (node < nodes) marks[node] = drawn[node] == ROOT;
}

// Roots and their neighbours join the root's aggregate, whose number is the root's entry of `numbers`. `near` receives
// the aggregate of each node, NONE if it has none yet.
extern "C" __global__ __launch_bounds__(THREADS) void join_roots(Graph a, const u32* drawn, const u32* numbers, const u8* left_out, u32* near) {
    begin();
    const u32 node = blockIdx.x * blockDim.x + threadIdx.x;
    if (node >= a.rows) return;
    u32 of = NONE;
    if (drawn[node] == ROOT) {
        of = numbers[node];
    } else if (!left_out[node]) {
        for (u32 entry = a.offsets[node]; entry < a.offsets[node + 1]; entry++) {
            const u32 other = a.columns[entry];
            if (drawn[other] != ROOT) continue;
            of = numbers[other];
            break;
        }
    }
    near[node] = of;
}
// Other nodes join the aggregate to which most of their neighbours belong, by `near`; in a tie, the one of the first
// such neighbour. `of_node` receives the aggregate of each node, NONE if it has none. `joined` is 1 for nodes that have
// an aggregate.
extern "C" __global__ __launch_bounds__(THREADS) void join_most(Graph a, const u32* near, const u8* left_out, u32* of_node, u32* joined) {
    begin();
    const u32 node = blockIdx.x * blockDim.x + threadIdx.x;
    if (node >= a.rows) return;
    u32 of = near[node];
    if (of == NONE && !left_out[node]) {
        const u32 first = a.offsets[node], end = a.offsets[node + 1];
        u32 most = 0;
        // for short rows, the aggregates of the neighbours (the votes) are loaded once, into registers
        constexpr u32 TOGETHER = 16;
        if (end - first <= TOGETHER) {
            u32 vote[TOGETHER];
#pragma unroll
            for (u32 k = 0; k < TOGETHER; k++) vote[k] = first + k < end ? near[a.columns[first + k]] : NONE;
#pragma unroll
            for (u32 k = 0; k < TOGETHER; k++) {
                u32 count = 0;
#pragma unroll
                for (u32 other = k; other < TOGETHER; other++) count += vote[other] == vote[k];
                if (vote[k] != NONE && count > most) {
                    most = count;
                    of = vote[k];
                }
            }
            of_node[node] = of;
            joined[node] = of != NONE;
            return;
        }
        for (u32 entry = first; entry < end; entry++) {
            const u32 vote = near[a.columns[entry]];
            if (vote == NONE) continue;
            u32 count = 0;
            for (u32 other = entry; other < end; other++) count += near[a.columns[other]] == vote;
            if (count > most) {
                most = count;
                of = vote;
            }
        }
    }
    of_node[node] = of;
    joined[node] = of != NONE;
}

// Fills in the columns of the tentative prolongator T: the row of a node that has an aggregate has one entry, in the
// column of the aggregate.
extern "C" __global__ __launch_bounds__(THREADS) void fill_joined(const u32* of_node, u32 nodes, const u32* offsets, u32* columns) {
    begin();
    const u32 node = blockIdx.x * blockDim.x + threadIdx.x;
    if (node < nodes && of_node[node] != NONE) columns[offsets[node]] = of_node[node];
}

// Orthonormalizes the near-null-space vectors on each aggregate, one warp each, by Gram-Schmidt applied twice.
// `members` are the rows of Tᵀ and `entries` the positions of their blocks in T. Blocks of T have `size` rows and
// `modes` columns; blocks of the coarse vectors have `modes` rows and columns. Reads the vectors `values` of the fine
// level, and writes the values of T to `t` and the vectors of the coarse level to `coarse`. A vector is set to zero on
// an aggregate if at most the fraction `dependent` of its norm remains.
extern "C" __global__ __launch_bounds__(THREADS) void orthonormal(
    Graph members, const u32* entries, u32 size, u32 modes, const double* values, double dependent, double* t, double* coarse) {
    begin();
    const u32 aggregate = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (aggregate >= members.rows) return;
    const u32 first = members.offsets[aggregate], rows = (members.offsets[aggregate + 1] - first) * size;
    double* own_coarse = coarse + (u64)aggregate * modes * modes;
    for (u32 k = lane; k < modes * modes; k += 32) own_coarse[k] = 0;
    __syncwarp();
    auto place = [&](u32 row) { return ((u64)entries[first + row / size] * size + row % size) * modes; };
    auto sum_of = [&](double v) {
        for (int step = 16; step; step >>= 1) v += __shfl_xor_sync(ALL, v, step);
        return v;
    };
    for (u32 mode = 0; mode < modes; mode++) {
        double whole = 0;
        for (u32 row = lane; row < rows; row += 32) {
            const u64 node = members.columns[first + row / size];
            const double v = values[(node * size + row % size) * modes + mode];
            if (mode > 0) t[place(row) + mode] = v;
            whole += v * v;
        }
        whole = sqrt(sum_of(whole));
        for (int pass = 0; pass < 2; pass++) {
            for (u32 k = 0; k < mode; k++) {
                double shared = 0;
                for (u32 row = lane; row < rows; row += 32) shared += t[place(row) + mode] * t[place(row) + k];
                shared = sum_of(shared);
                if (lane == 0) own_coarse[k * modes + mode] += shared;
                for (u32 row = lane; row < rows; row += 32) t[place(row) + mode] -= shared * t[place(row) + k];
            }
        }
        double rest = 0;
        for (u32 row = lane; row < rows && mode > 0; row += 32) rest += t[place(row) + mode] * t[place(row) + mode];
        rest = mode > 0 ? sqrt(sum_of(rest)) : whole;
        const bool kept = rest > dependent * whole;
        const double scale = kept ? 1.0 / rest : 0.0;
        if (lane == 0) own_coarse[mode * modes + mode] = kept ? rest : 0.0;
        for (u32 row = lane; row < rows; row += 32) {
            // the first vector is only scaled
            const u64 node = members.columns[first + row / size];
            const double v = mode > 0 ? t[place(row) + mode] : values[(node * size + row % size) * modes];
            t[place(row) + mode] = v * scale;
        }
    }
}
