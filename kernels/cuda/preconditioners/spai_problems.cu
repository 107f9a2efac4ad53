// The dense problems of spai.cu: which rows of the matrix take part in one, and which row of the problem each becomes.
//
// The columns of all a_j, and k, go into a table of hashes whose places depend on what it holds alone, not on who came first
// (a smaller one stays, the larger moves on; Shun and Blelloch 2014): the occupied places, counted, number the rows.

typedef unsigned char u8;

struct Systems {
    RowStarts a;
    const u32* a_columns;
    const real* a_values;
    RowStarts m;
    const u32* m_columns;
    real* m_values;
    double* residuals;        // of rows
    u32* refused;             // the least row whose a_j depend on each other
    u64* starts;              // of each row's places, of which a warp's problems have some
    u8* places;
};

// The rows that a launch computes.
struct Launch {
    const u32* rows;          // of a warp's problems; of each of a block's, MEMBERS, those that lack NONE
    u32 count;                // of problems
    u32 slots;                // of a table: a power of 2
    double* scratch;          // memory for each block; null where that is shared memory
    u64 numbers;              // that a block has there
};

constexpr u64 NOWHERE = ~0ull;
constexpr double EPSILON = 2.220446049250313e-16;
// Warps of a block that has a problem of its own: each finishes one of the rows of the inverse that share it.
constexpr int WARPS = MEMBERS;
// Unknowns and rows of problems that a warp may solve: these are shared by no other row.
constexpr int MOST_OF_A_WARP = WARP_UNKNOWNS<KERNELS - 1>, MOST_ROWS_OF_A_WARP = WARP_ROWS<KERNELS - 1>;

template <int W> __device__ __forceinline__ void sync() {
    if constexpr (W == 1) {
        __syncwarp();
    } else {
        __syncthreads();
    }
}

// The sum of the lanes up to this one.
__device__ __forceinline__ u32 sum_up_to(u32 v) {
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const u32 other = __shfl_up_sync(ALL, v, step);
        if (threadIdx.x % 32 >= step) v += other;
    }
    return v;
}

// ---- tables

struct Table {
    u32* keys;
    u32* numbers;
    u32 slots;

    __device__ __forceinline__ u32 place(u32 key) const { return (key * 0x9e3779b1u) >> (__clz(slots) + 1); }
    // False where it is full.
    __device__ __forceinline__ bool insert(u32 key) const {
        u32 at = place(key);
        for (u32 turn = 0; turn < slots; turn++) {
            const u32 other = atomicMin(keys + at, key);
            if (other == key || other == NONE) return true;
            if (other > key) key = other;
            at = (at + 1) & (slots - 1);
        }
        return false;
    }
    // Of a key that it holds.
    __device__ __forceinline__ u32 number(u32 key) const {
        u32 at = place(key);
        while (keys[at] != key) at = (at + 1) & (slots - 1);
        return numbers[at];
    }
    template <int W> __device__ __forceinline__ void clear() const {
        for (u32 i = threadIdx.x; i < slots; i += 32 * W) keys[i] = NONE;
    }
    // Numbers the keys and returns how many there are; `counts` has room for W.
    template <int W> __device__ __forceinline__ u32 count(u32* counts) const {
        const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, share = slots / W;
        u32 before = 0, all = 0;
        if constexpr (W > 1) {
            u32 own = 0;
            for (u32 i = warp * share + lane; i < (warp + 1) * share; i += 32) own += __popc(__ballot_sync(ALL, keys[i] != NONE));
            if (lane == 0) counts[warp] = own;
            __syncthreads();
#pragma unroll
            for (int w = 0; w < W; w++) {
                if (w < warp) before += counts[w];
                all += counts[w];
            }
        }
        for (u32 i = warp * share + lane; i < (warp + 1) * share; i += 32) {
            const u32 there = __ballot_sync(ALL, keys[i] != NONE);
            numbers[i] = before + __popc(there & ((1u << lane) - 1));
            before += __popc(there);
        }
        return W > 1 ? all : before;
    }
};

// ---- gathering

// The entries of all a_j of a problem, one after the other.
struct Walk {
    i64* starts;              // where each a_j stands in the matrix
    u32* ends;                // and where it ends among those entries
    int n;

    // Finds them; false where there are too many to count.
    template <int W> __device__ __forceinline__ bool find(const Systems& s, i64 first, int unknowns) {
        n = unknowns;
        bool few = true;
        if (threadIdx.x < 32) {
            u32 before = 0;
            for (int j = threadIdx.x; j - int(threadIdx.x) < n; j += 32) {
                i64 start = 0, length = 0;
                if (j < n) {
                    const i64 row = __ldg(s.m_columns + first + j);
                    start = s.a.start(row);
                    length = s.a.start(row + 1) - start;
                    few &= length >> 24 == 0;
                }
                const u32 end = before + sum_up_to(u32(length));
                before = __shfl_sync(ALL, end, 31);
                if (j < n) {
                    starts[j] = start;
                    ends[j] = end;
                }
            }
        }
        if constexpr (W == 1) few = __all_sync(ALL, few);
        sync<W>();
        return few;
    }
    __device__ __forceinline__ u32 entries() const { return n ? ends[n - 1] : 0; }
    // Calls `f` with each entry's j, with where it is among all, with where it stands in the matrix, and its column. 8 lanes
    // have an a_j.
    template <int W, class F> __device__ __forceinline__ void each(const Systems& s, F f) const {
        for (int j = threadIdx.x / 8; j < n; j += 4 * W) {
            const i64 start = starts[j];
            const u32 before = j ? ends[j - 1] : 0, length = ends[j] - before;
            for (u32 e = threadIdx.x % 8; e < length; e += 16) {
                const bool more = e + 8 < length;
                const u32 column = __ldg(s.a_columns + start + e), other = more ? __ldg(s.a_columns + start + e + 8) : 0;
                f(j, before + e, start + e, column);
                if (more) f(j, before + e + 8, start + e + 8, other);
            }
        }
    }
};

// Puts the rows of a problem into a table that is empty; false where that is full.
template <int W> __device__ __forceinline__ bool collect(const Systems& s, u32 k, const Walk& walk, const Table& table) {
    bool fits = threadIdx.x || table.insert(k);
    walk.each<W>(s, [&](int, u32, i64, u32 column) { fits &= table.insert(column); });
    return fits;
}

// ---- what is found out once

// A place: the row of an entry in its dense problem, and whether it is the first of an a_j. Behind all of them is that of e_k.
constexpr u32 FIRST = 128;

// The first row of the inverse that has the pattern of row k, and from which row k's problem differs in e_k alone.
__device__ __forceinline__ u32 leader(const Systems& s, u32 k, i64 first, int n) {
    const int lane = threadIdx.x;
    const auto holds = [&](RowStarts rows, const u32* columns) {
        bool found = false;
        const i64 end = rows.start((i64)k + 1);
        for (i64 i = rows.start(k) + lane; i < end; i += 32) found |= __ldg(columns + i) == k;
        return __any_sync(ALL, found);
    };
    // otherwise row k of the problem may be e_k's alone
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

// What is found of a block's problem.
struct Found {
    u32 rows;                 // NONE where they are too many to count here
    u32 entries;              // of its a_j, NONE likewise
    u32 leader;               // the row of the inverse with whose problem it may be solved
};

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

// Reserves memory for the places of each row's problem that may be a warp's, for each entry of its a_j and one more; `total` of all, and
// behind it the entries of the longest row of the inverse if these are more than MOST_UNKNOWNS. Where that of a row lies is left to
// chance: what is found there is not.
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
    // the first two differ in rows alone, the others in unknowns
    if (unknowns <= WARP_UNKNOWNS<0>) return rows > WARP_ROWS<0>;
    return unknowns <= WARP_UNKNOWNS<2> ? 2 : 3;
}

// The kernel that solves each row's problem, and the places of the entries of a warp's.
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
