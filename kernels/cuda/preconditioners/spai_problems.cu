// Setup of the dense problems of spai.cu: which columns of the matrix are rows of a problem, and their numbers in it.
//
// The column indices of all a_j (the rows of the matrix that are columns of problem k), and k, are inserted into a hash
// table whose final state depends on its contents alone, not on the order of insertion (on a collision, the larger key
// moves on to the next slot; Shun and Blelloch 2014). The number of a row is the number of occupied slots before its
// slot.

typedef unsigned char u8;

// The matrix (a) and its approximate inverse (m), in CSR.
struct Systems {
    RowStarts a;
    const u32* a_columns;
    const real* a_values;
    RowStarts m;
    const u32* m_columns;
    real* m_values;
    double* residuals;        // residual of each row's problem
    u32* refused;             // the first row whose a_j are linearly dependent
    u64* starts;              // start in `places` of each row's problem, for problems that a warp may solve
    u8* places;               // row of each entry within its dense problem, and a flag: see FIRST
};

// The rows that a launch computes.
struct Launch {
    const u32* rows;          // one per problem of a warp; MEMBERS per problem of a block, unused ones NONE
    u32 count;                // number of problems
    u32 slots;                // slots of a table: a power of 2
    double* scratch;          // workspace of the blocks in device memory; null if it is in shared memory
    u64 numbers;              // elements of workspace per block
};

// `starts` of a problem that no warp can solve.
constexpr u64 NOWHERE = ~0ull;
constexpr double EPSILON = 2.220446049250313e-16;
// Number of warps of a block that solves a problem; each warp computes one of the rows of the inverse that share it.
constexpr int WARPS = MEMBERS;
// Maximum numbers of unknowns and of rows of a problem that a warp may solve. Such a problem has one row of the
// inverse.
constexpr int MOST_OF_A_WARP = WARP_UNKNOWNS<KERNELS - 1>, MOST_ROWS_OF_A_WARP = WARP_ROWS<KERNELS - 1>;

template <int W> __device__ __forceinline__ void sync() {
    if constexpr (W == 1) {
        __syncwarp();
    } else {
        __syncthreads();
    }
}

// Inclusive prefix sum over the lanes.
__device__ __forceinline__ u32 sum_up_to(u32 v) {
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const u32 other = __shfl_up_sync(ALL, v, step);
        if (threadIdx.x % 32 >= step) v += other;
    }
    return v;
}

// ---- tables

// Hash table of the rows of a problem: `keys` are columns of the matrix, NONE in free slots; `numbers` are their
// numbers.
struct Table {
    u32* keys;
    u32* numbers;
    u32 slots;

    __device__ __forceinline__ u32 place(u32 key) const { return (key * 0x9e3779b1u) >> (__clz(slots) + 1); }
    // Returns false if the table is full.
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
    // The number of a key that is in the table.
    __device__ __forceinline__ u32 number(u32 key) const {
        u32 at = place(key);
        while (keys[at] != key) at = (at + 1) & (slots - 1);
        return numbers[at];
    }
    template <int W> __device__ __forceinline__ void clear() const {
        for (u32 i = threadIdx.x; i < slots; i += 32 * W) keys[i] = NONE;
    }
    // Assigns numbers to the keys, and returns the number of keys; `counts` is workspace of W elements.
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

// Iterates over the entries of all a_j of a problem.
struct Walk {
    i64* starts;              // start of each a_j in the matrix
    u32* ends;                // end of each a_j among the entries of the problem
    int n;

    // Computes starts and ends; returns false if there are too many entries to count.
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
    // Calls f(j, position in the problem, position in the matrix, column) for each entry, with 8 lanes per a_j.
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

// Inserts the rows of a problem into an empty table; returns false if the table is full.
template <int W> __device__ __forceinline__ bool collect(const Systems& s, u32 k, const Walk& walk, const Table& table) {
    bool fits = threadIdx.x || table.insert(k);
    walk.each<W>(s, [&](int, u32, i64, u32 column) { fits &= table.insert(column); });
    return fits;
}

// Flag in an element of `places` (the row of an entry in its dense problem): the entry is the first of an a_j. The last
// element of a problem belongs to e_k.
constexpr u32 FIRST = 128;
