// Determines for each row's dense problem, once, the kernel that solves it, and the positions of its entries.

// Returns the first row of the inverse that has the same pattern as row k, and whose problem differs from that of row k
// in the unit vector only.
__device__ __forceinline__ u32 leader(const Systems& s, u32 k, i64 first, int n) {
    const int lane = threadIdx.x;
    const auto holds = [&](RowStarts rows, const u32* columns) {
        bool found = false;
        const i64 end = rows.start((i64)k + 1);
        for (i64 i = rows.start(k) + lane; i < end; i += 32) found |= __ldg(columns + i) == k;
        return __any_sync(ALL, found);
    };
    // unless both row k of the inverse and row k of the matrix contain column k, row k of the problem may exist because
    // of e_k only
    if (!holds(s.m, s.m_columns) || !holds(s.a, s.a_columns)) return k;
    const u32 head = __ldg(s.m_columns + first);
    for (int base = 0; base < n; base += 32) {
        u32 other = NONE;
        i64 start = 0;
        bool alike = false;
        if (base + lane < n) {
            other = __ldg(s.m_columns + first + base + lane);
            start = s.m.start(other);
            alike = other < k && s.m.start((i64)other + 1) - start == n && __ldg(s.m_columns + start) == head;
        }
        for (u32 left = __ballot_sync(ALL, alike); left; left &= left - 1) {
            const int from = __ffs(left) - 1;
            const i64 its = __shfl_sync(ALL, start, from);
            bool equal = true;
            for (int i = lane; i < n; i += 32) equal &= __ldg(s.m_columns + its + i) == __ldg(s.m_columns + first + i);
            if (__all_sync(ALL, equal)) return __shfl_sync(ALL, other, from);
        }
    }
    return k;
}

// Properties of a problem solved by a block.
struct Found {
    u32 rows;                 // number of rows; NONE if there are more than the table holds
    u32 entries;              // number of entries of its a_j; NONE if there are too many to count here
    u32 leader;               // first row of the inverse with the same problem up to e_k; these are solved together
};

// Writes the properties of the problems of `count` rows of the inverse. A problem is processed by one warp, with the
// hash table `keys`, and the starts and ends of `Walk`, in shared memory.
extern "C" __global__ __launch_bounds__(32) void spai_count(Systems s, const u32* rows, u32 count, Found* problems) {
    begin();
    __shared__ i64 starts[MOST_UNKNOWNS];
    __shared__ u32 ends[MOST_UNKNOWNS], keys[COUNTED];
    Walk walk{starts, ends};
    const Table table{keys, nullptr, COUNTED};
    for (i64 turn = blockIdx.x; turn < count; turn += gridDim.x) {
        const u32 k = __ldg(rows + turn);
        const i64 first = s.m.start(k);
        const int n = int(s.m.start((i64)k + 1) - first);
        Found found{NONE, NONE, k};
        if (walk.find<1>(s, first, n)) {
            found.entries = walk.entries();
            table.clear<1>();
            __syncwarp();
            const bool fits = collect<1>(s, k, walk, table);
            __syncwarp();
            u32 number = 0;
#pragma unroll
            for (int i = 0; i < COUNTED; i += 32) number += __popc(__ballot_sync(ALL, keys[i + threadIdx.x] != NONE));
            if (__all_sync(ALL, fits)) found.rows = number;
        }
        if (n > MOST_OF_A_WARP) found.leader = leader(s, k, first, n);
        if (threadIdx.x == 0) problems[turn] = found;
        __syncwarp();
    }
}

// Reserves elements of `places` for each problem that a warp may solve: one for each entry of its a_j (the rows of the
// matrix that are columns of the problem, see spai.cu) and one more. `total[0]` receives the number of elements, and
// `total[1]` the length of the longest row of the inverse if it exceeds MOST_UNKNOWNS. The order of the problems in
// memory is nondeterministic, but their contents are not.
extern "C" __global__ __launch_bounds__(THREADS) void spai_reserve(Systems s, u64* total) {
    begin();
    const i64 threads = (i64)gridDim.x * blockDim.x, count = s.m.count;
    for (i64 base = (i64)blockIdx.x * blockDim.x; base < count; base += threads) {
        const i64 k = base + threadIdx.x;
        u32 reserved = 0;
        i64 n = 0;
        if (k < count) {
            const i64 first = s.m.start(k);
            n = s.m.start(k + 1) - first;
            reserved = n <= MOST_OF_A_WARP;
            for (i64 j = 0; j < n && reserved; j++) {
                const i64 row = __ldg(s.m_columns + first + j), length = s.a.start(row + 1) - s.a.start(row);
                reserved = length <= MOST_ROWS_OF_A_WARP ? reserved + u32(length) : 0;
            }
        }
        const u32 end = sum_up_to(reserved);
        if (n > MOST_UNKNOWNS) atomicMax(total + 1, (u64)n);
        u64 start = 0;
        if (threadIdx.x % 32 == 31) start = atomicAdd(total, (u64)end);
        start = __shfl_sync(ALL, start, 31);
        if (k < count) s.starts[k] = reserved ? start + end - reserved : NOWHERE;
    }
}

__device__ __forceinline__ u8 kernel_of(u32 rows, int unknowns) {
    if (rows > MOST_ROWS_OF_A_WARP || unknowns > MOST_OF_A_WARP) return KERNELS;
    // the first two kernels differ in the maximum number of rows only, the others in that of unknowns
    if (unknowns <= WARP_UNKNOWNS<0>) return rows > WARP_ROWS<0>;
    return unknowns <= WARP_UNKNOWNS<2> ? 2 : 3;
}

// Writes the index of the kernel that solves each row's problem and, for problems of a warp, `places`: the row of each
// entry within the dense problem.
extern "C" __global__ __launch_bounds__(32) void spai_places(Systems s, u8* kernels) {
    begin();
    __shared__ i64 starts[32];
    __shared__ u32 ends[32], keys[COUNTED / 4], numbers[COUNTED / 4];
    Walk walk{starts, ends};
    const Table table{keys, numbers, COUNTED / 4};
    for (i64 k = blockIdx.x; k < s.m.count; k += gridDim.x) {
        const u64 start = s.starts[k];
        u8 kernel = KERNELS;
        if (start != NOWHERE) {
            const i64 first = s.m.start(k);
            const int n = int(s.m.start(k + 1) - first);
            table.clear<1>();
            walk.find<1>(s, first, n);
            const bool fits = collect<1>(s, u32(k), walk, table);
            __syncwarp();
            const u32 rows = table.count<1>(nullptr);
            __syncwarp();
            if (__all_sync(ALL, fits)) kernel = kernel_of(rows, n);
        }
        if (kernel < KERNELS) {
            u8* places = s.places + start;
            walk.each<1>(s, [&](int j, u32 at, i64, u32 column) {
                const bool is_first = at == (j ? ends[j - 1] : 0);
                places[at] = table.number(column) | (is_first ? FIRST : 0);
            });
            if (threadIdx.x == 0) places[walk.entries()] = table.number(u32(k)) | FIRST;
        }
        if (threadIdx.x == 0) kernels[k] = kernel;
        __syncwarp();
    }
}
