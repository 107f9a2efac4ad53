// Aggregates, as aggregates.rs of the host has them: every node decides by what held before its round, so both find the same.
//
// A round moves the patterns of nodes that are not decided, and a number a node; of others nothing.

// A root, in place of its number.
constexpr u32 ROOT = ALL;

__device__ __forceinline__ u32 scrambled(u32 bits) {
    bits = (bits ^ bits >> 16) * 0x85ebca6bu;
    bits = (bits ^ bits >> 13) * 0xc2b2ae35u;
    return bits ^ bits >> 16;
}

// The largest number among a node and its neighbours, whichever block wrote them. The loads of some stand together: to wait for
// each takes longest here.
__device__ __forceinline__ u32 most_among(const Graph& a, const u32* numbers, u32 node) {
    constexpr u32 TOGETHER = 8;
    const u32 first = __ldg(a.offsets + node), end = __ldg(a.offsets + node + 1);
    u32 most = __ldcg(numbers + node);
    for (u32 entry = first; entry < end; entry += TOGETHER) {
        u32 column[TOGETHER], number[TOGETHER];
#pragma unroll
        for (u32 k = 0; k < TOGETHER; k++) column[k] = entry + k < end ? __ldg(a.columns + entry + k) : node;
#pragma unroll
        for (u32 k = 0; k < TOGETHER; k++) number[k] = __ldcg(numbers + column[k]);
#pragma unroll
        for (u32 k = 0; k < TOGETHER; k++) most = max(most, number[k]);
    }
    return most;
}
__device__ __forceinline__ bool is_open(u32 number) { return number != 0 && number != ROOT; }

// Waits for all blocks: every thread sees what all wrote before. `arrived` was zero before the first of `calls`.
__device__ __forceinline__ void meet(u32* arrived, u32& calls) {
    __syncthreads();
    calls++;
    if (threadIdx.x == 0) {
        u32 count;
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(count) : "l"(arrived) : "memory");
        } while (count < calls * gridDim.x);
    }
    __syncthreads();
}

// Nodes of a warp that a round looks at: all from `first` on, or those of a list.
struct Nodes {
    u32* list;
    u32 first, count;
    bool listed;

    // Keeps those for which `stays(node)`: what it writes to the list, it has read.
    template <class Stays> __device__ __forceinline__ void visit(Stays stays) {
        const u32 lane = threadIdx.x % 32;
        u32 kept = 0;
        for (u32 base = 0; base < count; base += 32) {
            const bool there = base + lane < count;
            const u32 node = there ? listed ? list[base + lane] : first + base + lane : 0;
            const bool is_kept = there && stays(node);
            const u32 all = __ballot_sync(ALL, is_kept);
            if (is_kept) list[kept + __popc(all & ((1u << lane) - 1))] = node;
            kept += __popc(all);
            __syncwarp();
        }
        count = kept;
        listed = true;
    }
};

// Marks the roots. All rounds are one launch, in which blocks wait for each other twice a round: `arrived` and `open`, behind
// it, are zero. Each warp has a range of nodes, and its part of both lists.
extern "C" __global__ __launch_bounds__(THREADS) void find_roots(
    Graph a, const u8* left_out, u32* drawn, u32* largest, u32* to_ask, u32* to_decide, u32* arrived, u32* marks) {
    begin();
    const u32 lane = threadIdx.x % 32, warps = gridDim.x * (THREADS / 32), warp = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    const u32 of_warp = (a.rows + 32 * warps - 1) / (32 * warps) * 32;
    const u32 first = u32(min((u64)warp * of_warp, (u64)a.rows)), end = min(first + of_warp, a.rows);
    u32 calls = 0, *const open = arrived + 1;
    for (u32 node = first + lane; node < end; node += 32) {
        // zero for those that are left out
        __stcg(drawn + node, left_out[node] ? 0 : scrambled(node + 1));
        // not known yet, and looked for: no node has drawn this
        __stcg(largest + node, left_out[node] ? 0 : 1);
    }
    Nodes asks{to_ask + first, first, end - first, false}, decides{to_decide + first, first, end - first, false};
    for (u32 round = 1;; round++) {
        meet(arrived, calls);
        // the largest number among a node and its neighbours; one that is a root or zero stays
        asks.visit([&](u32 node) {
            if (!is_open(__ldcg(largest + node))) return false;
            const u32 most = most_among(a, drawn, node);
            __stcg(largest + node, most);
            return is_open(most);
        });
        meet(arrived, calls);
        // roots, and nodes that have one two steps away or nearer
        decides.visit([&](u32 node) {
            const u32 own = __ldcg(drawn + node);
            if (!is_open(own)) return false;
            const u32 most = most_among(a, largest, node);
            const bool decided = most == own || most == ROOT;
            if (decided) __stcg(drawn + node, most == own ? ROOT : 0);
            return !decided;
        });
        if (lane == 0 && decides.count) __stcg(open, round);
        meet(arrived, calls);
        if (__ldcg(open) != round) break;
    }
    for (u32 node = first + lane; node < end; node += 32) marks[node] = __ldcg(drawn + node) == ROOT;
}

// Roots and their neighbours; `numbers` has a root's number.
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
// The others, where most of their neighbours are, the first of equals. `joined` is 1 for nodes that have an aggregate.
extern "C" __global__ __launch_bounds__(THREADS) void join_most(Graph a, const u32* near, const u8* left_out, u32* of_node, u32* joined) {
    begin();
    const u32 node = blockIdx.x * blockDim.x + threadIdx.x;
    if (node >= a.rows) return;
    u32 of = near[node];
    if (of == NONE && !left_out[node]) {
        const u32 first = a.offsets[node], end = a.offsets[node + 1];
        u32 most = 0;
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

// The pattern of T: a row of one entry for each node that has an aggregate.
extern "C" __global__ __launch_bounds__(THREADS) void fill_joined(const u32* of_node, u32 nodes, const u32* offsets, u32* columns) {
    begin();
    const u32 node = blockIdx.x * blockDim.x + threadIdx.x;
    if (node < nodes && of_node[node] != NONE) columns[offsets[node]] = of_node[node];
}

// The modes made orthonormal on each aggregate, a warp for each: by Gram and Schmidt, twice. `members` are the rows of Tᵀ and
// `entries` their blocks in T; blocks of T have `size` rows and `modes` columns, those of the coarse modes as many rows as columns.
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
            t[place(row) + mode] = v;
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
        for (u32 row = lane; row < rows; row += 32) rest += t[place(row) + mode] * t[place(row) + mode];
        rest = sqrt(sum_of(rest));
        const bool kept = rest > dependent * whole;
        const double scale = kept ? 1.0 / rest : 0.0;
        if (lane == 0) own_coarse[mode * modes + mode] = kept ? rest : 0.0;
        for (u32 row = lane; row < rows; row += 32) t[place(row) + mode] *= scale;
    }
}
