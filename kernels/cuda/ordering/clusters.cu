// Clusters of a vertex and its neighbours, and the graph of clusters, as defined in src/ordering/aggregate.rs. Kernels
// read only what earlier launches have written, so the result does not depend on thread scheduling.

constexpr u32 WARPS = THREADS / 32;

// Index of this thread's warp in the launch, and the number of warps.
__device__ __forceinline__ u64 this_warp() { return (u64)blockIdx.x * WARPS + threadIdx.x / 32; }
__device__ __forceinline__ u64 all_warps() { return (u64)gridDim.x * WARPS; }

// ---- clusters

// Computes a pseudo-random number for each vertex, nonzero if the vertex has neighbours. Memory traffic per vertex: 4
// or 8 B of offsets, 4 B for the number, and the first neighbour.
extern "C" __global__ __launch_bounds__(THREADS) void cluster_draws(Graph graph, u32* draws) {
    begin();
    const u64 threads = (u64)gridDim.x * blockDim.x;
    for (u64 v = (u64)blockIdx.x * blockDim.x + threadIdx.x; v < graph.rows.count; v += threads) {
        u32 count;
        const i64 start = graph.neighbours((u32)v, count);
        // columns are distinct, so if there are two, at least one is another vertex
        const bool has_others = count > 1 || (count == 1 && graph.columns[start] != v);
        draws[v] = has_others ? scrambled((u32)v) | 1 : 0;
    }
}

// Marks seeds. A vertex is a seed if its pseudo-random number is larger than those of all neighbours that it is
// compared with, a pseudo-random fraction `share` (in units of 2⁻¹⁶) of its neighbours. Memory traffic: a part of the
// pattern, and gathered pseudo-random numbers.
extern "C" __global__ __launch_bounds__(THREADS) void cluster_seeds(Graph graph, const u32* draws, u32 share, u32* marks) {
    begin();
    const u64 threads = (u64)gridDim.x * blockDim.x;
    for (u64 v = (u64)blockIdx.x * blockDim.x + threadIdx.x; v < graph.rows.count; v += threads) {
        const u32 draw = draws[v];
        u32 count;
        const i64 start = graph.neighbours((u32)v, count);
        bool seed = draw != 0;
        for (u32 k = 0; k < count && seed; k++) {
            const u32 other = graph.columns[start + k];
            if (other == v) continue;
            const u32 theirs = __ldg(draws + other);
            const bool met = ((draw ^ theirs) & 0xffff) <= share;
            const bool beaten = theirs < draw || (theirs == draw && other < v);
            seed = beaten || !met;
        }
        marks[v] = seed;
    }
}

// Labels seeds in ascending order: the label is the seed's element of `ranks`, the exclusive prefix sum of the marks.
extern "C" __global__ __launch_bounds__(THREADS) void cluster_labels(const u32* ranks, u32 vertices, u32* labels) {
    begin();
    const u64 threads = (u64)gridDim.x * blockDim.x;
    for (u64 v = (u64)blockIdx.x * blockDim.x + threadIdx.x; v < vertices; v += threads) {
        labels[v] = ranks[v + 1] > ranks[v] ? ranks[v] : NONE;
    }
}

// Finds for each vertex without a label the label that most of its neighbours have; in a tie, the one with the largest
// hash. A warp processes 32 vertices, one after the other. Memory traffic: the adjacency lists of these vertices, and
// the gathered labels of their neighbours.
extern "C" __global__ __launch_bounds__(THREADS) void cluster_join(
    Graph graph, const u32* draws, const u32* labels, u32* found) {
    begin();
    const u32 lane = threadIdx.x % 32;
    for (u64 first = this_warp() * 32; first < graph.rows.count; first += all_warps() * 32) {
        const u64 own = first + lane;
        u32 waiting = __ballot_sync(ALL, own < graph.rows.count && labels[own] == NONE && draws[own] != 0);
        for (; waiting; waiting &= waiting - 1) {
            const u32 v = (u32)first + __ffs(waiting) - 1;
            u32 count;
            const i64 start = graph.neighbours(v, count);
            Tally tally;
            for (u32 k = 0; k < count; k += 32) {
                const u32 other = k + lane < count ? graph.columns[start + k + lane] : v;
                tally.add(other == v ? NONE : labels[other]);
            }
            const u64 mine = tally.sum ? (u64)tally.sum << 32 | scrambled(tally.key) : 0;
            const u64 best = warp_max(mine);
            // `best` combines sum and hash, which together identify the label
            if (best ? mine == best : lane == 0) found[v] = tally.key;
        }
    }
}

// Assigns the labels found; sets `waiting` if vertices with neighbours remain without a label.
extern "C" __global__ __launch_bounds__(THREADS) void cluster_take(
    u32 vertices, const u32* draws, const u32* found, u32* labels, u32* waiting) {
    begin();
    const u64 threads = (u64)gridDim.x * blockDim.x;
    for (u64 v = (u64)blockIdx.x * blockDim.x + threadIdx.x; v < vertices; v += threads) {
        if (draws[v] == 0 || labels[v] != NONE) continue;
        labels[v] = found[v];
        if (found[v] == NONE) *waiting = 1;
    }
}

// Counts the members of each cluster and assigns each member a position within it, in any order; marks vertices without
// a cluster.
extern "C" __global__ __launch_bounds__(THREADS) void cluster_sizes(
    u32 vertices, const u32* labels, u32* sizes, u32* slots, u32* alone) {
    begin();
    const u64 threads = (u64)gridDim.x * blockDim.x;
    for (u64 v = (u64)blockIdx.x * blockDim.x + threadIdx.x; v < vertices; v += threads) {
        const u32 label = labels[v];
        alone[v] = label == NONE;
        if (label != NONE) slots[v] = atomicAdd(sizes + label, 1u);
    }
}

// Writes the members cluster by cluster to `unsorted`, in any order within each, and the vertices without a cluster to
// the end of `members`, in ascending order. `alone` has the exclusive prefix sums of the marks of these vertices.
extern "C" __global__ __launch_bounds__(THREADS) void cluster_members(
    u32 vertices, u32 clusters, const u32* labels, const u32* starts, const u32* slots, const u32* alone, u32* unsorted,
    u32* members) {
    begin();
    const u64 threads = (u64)gridDim.x * blockDim.x;
    for (u64 v = (u64)blockIdx.x * blockDim.x + threadIdx.x; v < vertices; v += threads) {
        const u32 label = labels[v];
        if (label == NONE) {
            members[starts[clusters] + alone[v]] = (u32)v;
        } else {
            unsorted[starts[label] + slots[v]] = (u32)v;
        }
    }
}

// Maximum number of members of a cluster, because sorting compares all pairs of members.
constexpr u32 MOST_MEMBERS = 1 << 14;

// Sorts the members of each cluster, one warp each; sets `misfit` if a cluster has too many.
extern "C" __global__ __launch_bounds__(THREADS) void cluster_sort(
    u32 clusters, const u32* starts, const u32* unsorted, u32* members, u32* misfit) {
    begin();
    for (u64 cluster = this_warp(); cluster < clusters; cluster += all_warps()) {
        const u32 start = starts[cluster], size = starts[cluster + 1] - start;
        if (size > MOST_MEMBERS) {
            *misfit = 1;
            continue;
        }
        for (u32 i = threadIdx.x % 32; i < size; i += 32) {
            const u32 v = unsorted[start + i];
            u32 before = 0;
            for (u32 k = 0; k < size; k++) before += unsorted[start + k] < v;
            members[start + before] = v;
        }
    }
}

// Maximum number of neighbouring clusters of a cluster.
constexpr u32 MOST_ENDS = 256;

// Counts the edges between each cluster and each neighbouring cluster; neighbouring clusters are in the order of their
// first occurrence. If `ends` is null, writes their number to `places`; otherwise writes them and their edge counts
// (`strengths`) from `places` on. One warp per cluster; sets `misfit` if a cluster has more than MOST_ENDS neighbouring
// clusters. Memory traffic: the pattern, and gathered labels.
extern "C" __global__ __launch_bounds__(THREADS) void cluster_edges(
    Graph graph, u32 clusters, const u32* labels, const u32* starts, const u32* members, u32* places, u32* ends,
    u32* strengths, u32* misfit) {
    begin();
    // for each warp: the neighbouring clusters found so far, and the number of edges to each
    __shared__ u32 all_ends[WARPS][MOST_ENDS], all_sums[WARPS][MOST_ENDS];
    const u32 lane = threadIdx.x % 32;
    u32* known = all_ends[threadIdx.x / 32];
    u32* sums = all_sums[threadIdx.x / 32];
    for (u64 cluster = this_warp(); cluster < clusters; cluster += all_warps()) {
        u32 len = 0;
        bool fits = true;
        const u32 behind = starts[cluster + 1];
        for (u32 at = starts[cluster]; at < behind && fits; at++) {
            const u32 v = members[at];
            u32 count;
            const i64 start = graph.neighbours(v, count);
            for (u32 k = 0; k < count && fits; k += 32) {
                const u32 other = k + lane < count ? graph.columns[start + k + lane] : v;
                // NONE for vertices without a cluster
                const u32 label = other == v ? NONE : labels[other];
                u32 rest = __ballot_sync(ALL, label != NONE && label != cluster);
                while (rest) {
                    const u32 end = __shfl_sync(ALL, label, __ffs(rest) - 1);
                    const u32 same = __ballot_sync(ALL, label == end);
                    rest &= ~same;
                    u32 place = len;
                    for (u32 base = 0; base < len && place == len; base += 32) {
                        const u32 hit = __ballot_sync(ALL, base + lane < len && known[base + lane] == end);
                        if (hit) place = base + __ffs(hit) - 1;
                    }
                    if (place == MOST_ENDS) {
                        fits = false;
                        break;
                    }
                    if (lane == 0) {
                        known[place] = end;
                        sums[place] = (place == len ? 0 : sums[place]) + __popc(same);
                    }
                    if (place == len) len++;
                    __syncwarp();
                }
            }
        }
        if (!fits) {
            if (lane == 0) *misfit = 1;
        } else if (ends) {
            for (u32 i = lane; i < len; i += 32) {
                ends[places[cluster] + i] = known[i];
                strengths[places[cluster] + i] = sums[i];
            }
        } else if (lane == 0) {
            places[cluster] = len;
        }
        __syncwarp();
    }
}

// ---- ordering of the vertices from that of the clusters

// Computes the number of members of each cluster, in the order `line` of the clusters.
extern "C" __global__ __launch_bounds__(THREADS) void cluster_lengths(
    u32 clusters, const u32* line, const u32* starts, u32* lengths) {
    begin();
    const u64 threads = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < clusters; i += threads) {
        lengths[i] = starts[line[i] + 1] - starts[line[i]];
    }
}

// Writes the vertices to `order` in the order `line` of their clusters, one warp per cluster; those without a cluster
// come last. `places` has the start of each cluster of the line in `order`.
extern "C" __global__ __launch_bounds__(THREADS) void cluster_expand(
    u32 vertices, u32 clusters, const u32* line, const u32* places, const u32* starts, const u32* members, u32* order) {
    begin();
    for (u64 i = this_warp(); i < clusters; i += all_warps()) {
        const u32 start = starts[line[i]], size = starts[line[i] + 1] - start;
        for (u32 k = threadIdx.x % 32; k < size; k += 32) order[places[i] + k] = members[start + k];
    }
    const u64 threads = (u64)gridDim.x * blockDim.x, thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    for (u64 i = starts[clusters] + thread; i < vertices; i += threads) order[i] = members[i];
}
