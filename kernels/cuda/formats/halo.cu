// Blocks of rows with their window of x in shared memory: column indices are short positions in the window.
//
// A thread block processes a block of nodes, B rows each, in slices of 32 nodes: a slice has B warps, with one thread
// per row. The window holds the block's own x, its halo, and a zero at the end, to which padding points. Slots of a
// slice are in groups, with a dense block for each of its 32 nodes; entry (i, j) of the node at lane l is element (j 32
// + l) B + i of its group: a thread multiplies a row of a dense block.
//
// If nodes have one row, positions take 12 bits: those of four groups are packed into three words per lane, the fourth
// in the upper bits of the other three; for an incomplete set of four, only the words needed are held. Otherwise a
// position takes 16 bits for B² entries.
//
// Moves 9.5 B (f64) or 5.5 B (f32) a slot for B = 1, 8 + 2/B² or 4 + 2/B² for larger blocks; 4 B and B elements of x
// for each column of a halo, which other blocks read too; 4 or 8 B a slice, 8 B a block, 2 B a node if these are
// sorted; x and y.

struct Halo {
    Windows windows;
    const u32* slices;        // of 32 nodes: first group of each slice, and the end
    const u32* words;         // for packed positions: first word (of 32 lanes) of each slice, and the end
    const u16* order;         // node (within its block) at each place; null if nodes are not sorted
    const u16* columns;       // positions of nodes in the window
    const stored* values;
};

extern __shared__ __align__(16) unsigned char shared_memory[];

// Groups that a thread loads together.
template <int B> constexpr int GROUPS = B == 1 ? 8 : B == 2 || B == 3 ? 4 : B == 4 ? 2 : 1;
// Resident blocks that registers allow.
template <int B, bool DOT> constexpr int BLOCKS = sizeof(real) == 8 ? (B % 3 == 0 ? 2 : 4) : B % 3 == 0 ? 3 : B > 1 && DOT ? 4 : B == 1 && !DOT ? 6 : 5;

// Bits of the packed fourth position that go into the k-th of three words.
__device__ __forceinline__ u32 third(u32 place, int k) { return (place >> 4 * k & 15) << 12; }

// Positions of a lane in `GROUPS` groups.
template <int B> struct Places {
    static constexpr int U = GROUPS<B>;
    u16 column[U];

    __device__ __forceinline__ void load(const u16* columns, int left, u32 zero) {
#pragma unroll
        for (int u = 0; u < U; u++) column[u] = u < left ? __ldcs(columns + u * 32) : zero;
    }
    __device__ __forceinline__ u32 operator[](int u) const { return column[u]; }
};

// Positions of 12 bits, four in three words.
template <> struct Places<1> {
    static constexpr int U = GROUPS<1>;
    u16 word[U / 4 * 3];

    __device__ __forceinline__ void load(const u16* words, int left, u32 zero) {
#pragma unroll
        for (int w = 0; w < U / 4 * 3; w++) {
            word[w] = w / 3 * 4 + w % 3 < left ? __ldcs(words + w * 32) : zero | third(zero, w % 3);
        }
    }
    __device__ __forceinline__ u32 operator[](int u) const {
        const u16* four = word + u / 4 * 3;
        return u % 4 < 3 ? four[u % 4] & PACKED : four[0] >> 12 | four[1] >> 12 << 4 | four[2] >> 12 << 8;
    }
};

// The slots of a thread's row in several groups.
template <int B> struct Batch {
    static constexpr int U = GROUPS<B>;
    stored v[U][B];
    Places<B> place;

    // loads `left` groups, beginning at the addresses
    __device__ __forceinline__ void load(const stored* values, const u16* columns, int left, u32 zero) {
#pragma unroll
        for (int u = 0; u < U; u++) {
#pragma unroll
            for (int j = 0; j < B; j++) v[u][j] = u < left ? __ldcs(values + (u * B + j) * 32 * B) : stored(0);
        }
        place.load(columns, left, zero);
    }

    __device__ __forceinline__ real product(const real* window) const {
        real sum = 0;
#pragma unroll
        for (int u = 0; u < U; u++) {
            const real* x = window + place[u] * B;
#pragma unroll
            for (int j = 0; j < B; j++) sum += v[u][j] * x[j];
        }
        return sum;
    }
};

// Returns this thread's part of ⟨x, y⟩ if DOT.
template <int B, bool DOT> __device__ __forceinline__ real multiply(const Halo& a, const real* __restrict__ x, real* __restrict__ y) {
    constexpr int WIDE = 32 * B, SLICES = HALO_THREADS<B> / WIDE, U = GROUPS<B>;
    real* const window = (real*)shared_memory;
    const u32 q = threadIdx.x % WIDE, lane = q / B;
    real xy = 0;
    for (u32 block = blockIdx.x; block < a.windows.blocks; block += gridDim.x) {
        const Block at(a.windows, block);
        // the previous block's window must have been read
        if (block != blockIdx.x) __syncthreads();
        at.gather_window<B, HALO_THREADS<B>>(a.windows, x, window);

        Batch<B> batch;
        u32 slice = threadIdx.x / WIDE, group, end;
        const stored* values;
        const u16* columns;
        const auto begin = [&]() {
            if (slice >= at.slices()) return;
            group = __ldg(a.slices + at.first / 32 + slice);
            end = __ldg(a.slices + at.first / 32 + slice + 1);
            values = a.values + ((i64)group * (B * WIDE) + q);
            columns = a.columns + ((i64)(B == 1 ? __ldg(a.words + at.first / 32 + slice) : group) * 32 + lane);
            batch.load(values, columns, int(end - group), at.zero());
        };
        // load the first slots before the window has arrived
        begin();
        gathered();
        while (slice < at.slices()) {
            real sum = batch.product(window);
            for (group += U; group < end; group += U) {
                values += U * (B * WIDE);
                columns += (B == 1 ? U / 4 * 3 : U) * 32;
                batch.load(values, columns, int(end - group), at.zero());
                sum += batch.product(window);
            }
            const u32 place = slice * 32 + lane;
            if (place < at.rows) {
                const u32 node = a.order ? __ldg(a.order + at.first + place) : place;
                y[(i64)(at.first + node) * B + q % B] = sum;
                if (DOT) xy += window[node * B + q % B] * sum;
            }
            slice += SLICES;
            begin();
        }
    }
    return xy;
}

#define KERNELS(NAME, B)                                                                                                \
    extern "C" __global__ __launch_bounds__(HALO_THREADS<B>, BLOCKS<B, false>) void NAME(Halo a, const real* x, real* y) {          \
        begin();                                                                                                        \
        multiply<B, false>(a, x, y);                                                                                    \
    }                                                                                                                   \
    extern "C" __global__ __launch_bounds__(HALO_THREADS<B>, BLOCKS<B, true>) void NAME##_dot(Halo a, const real* x, real* y, Sum sum) { \
        begin();                                                                                                        \
        real xy[1] = {multiply<B, true>(a, x, y)};                                                                      \
        grid_sum(xy, sum);                                                                                              \
    }
KERNELS(halo_1, 1)
KERNELS(halo_2, 2)
KERNELS(halo_3, 3)
KERNELS(halo_4, 4)
KERNELS(halo_6, 6)

// Calls visit(which of `parts`, node or NONE, lane, slice) for every place of a block.
template <class Visit> __device__ __forceinline__ void each_node(const Halo& a, const Block& at, u32 parts, Visit visit) {
    for (u32 i = threadIdx.x; i < at.slices() * 32 * parts; i += blockDim.x) {
        const u32 place = i / parts;
        const u32 node = place >= at.rows ? NONE : at.first + (a.order ? a.order[at.first + place] : place);
        visit(i % parts, node, place % 32, at.first / 32 + place / 32);
    }
}

// Positions in the window from the CSR columns of the nodes; one thread block per block. Every column must be in the
// window.
extern "C" __global__ __launch_bounds__(THREADS, 4) void halo_columns(Halo a, RowStarts rows, const u32* from, u16* columns) {
    begin();
    for (u32 block = blockIdx.x; block < a.windows.blocks; block += gridDim.x) {
        const Block at(a.windows, block);
        each_node(a, at, 1, [&](u32, u32 node, u32 lane, u32 slice) {
            const i64 first = node != NONE ? rows.start(node) : 0, count = node != NONE ? rows.start(node + 1) - first : 0;
            const auto place_of = [&](u32 k) {
                if (k >= count) return at.zero();
                const u32 column = from[first + k];
                if (column - at.first < at.own) return column - at.first;
                u32 low = 0, high = at.outside;
                while (low < high) {
                    const u32 middle = (low + high) / 2;
                    if (a.windows.halo[at.from + middle] < column) low = middle + 1; else high = middle;
                }
                return at.own + low;
            };
            const u32 group = a.slices[slice], groups = a.slices[slice + 1] - group;
            if (!a.words) {
                for (u32 k = 0; k < groups; k++) columns[(i64)(group + k) * 32 + lane] = place_of(k);
                return;
            }
            for (u32 k = 0, word = a.words[slice]; k < groups; k += 4) {
                const u32 fourth = k + 3 < groups ? place_of(k + 3) : at.zero();
                for (u32 of_four = 0; of_four < 3 && k + of_four < groups; of_four++, word++) {
                    columns[(i64)word * 32 + lane] = place_of(k + of_four) | third(fourth, of_four);
                }
            }
        });
    }
}

// CSR columns of the entries from the positions of nodes with one row; 0 for padding.
extern "C" __global__ __launch_bounds__(THREADS, 4) void halo_entries(Halo a, RowStarts rows, u32* columns) {
    begin();
    for (u32 block = blockIdx.x; block < a.windows.blocks; block += gridDim.x) {
        const Block at(a.windows, block);
        each_node(a, at, 1, [&](u32, u32 node, u32 lane, u32 slice) {
            if (node == NONE) return;
            const i64 first = rows.start(node);
            const int count = int(min(rows.start(node + 1) - first, (i64)(a.slices[slice + 1] - a.slices[slice])));
            const u16* words = a.columns + (i64)a.words[slice] * 32 + lane;
            for (int k = 0; k < count; k += Places<1>::U) {
                Places<1> place;
                place.load(words + k / 4 * 3 * 32, count - k, at.zero());
#pragma unroll
                for (int u = 0; u < Places<1>::U; u++) {
                    if (k + u < count) columns[first + k + u] = place[u] < at.zero() ? at.node(a.windows, place[u]) : 0;
                }
            }
        });
    }
}

// Copies values from CSR entries, or back. One thread per matrix row. If nodes have one row, entries and slots have the
// same order; otherwise the columns of both ascend. Sets `misfit` if an entry has no slot.
extern "C" __global__ __launch_bounds__(THREADS, 4) void halo_copy_values(
    Halo a, RowStarts rows, const u32* columns, real* entries, stored* values, u32 size, u32 back, u32* misfit) {
    begin();
    for (u32 block = blockIdx.x; block < a.windows.blocks; block += gridDim.x) {
        const Block at(a.windows, block);
        each_node(a, at, size, [&](u32 of_node, u32 node, u32 lane, u32 slice) {
            if (node == NONE) return;
            const i64 row = (i64)node * size + of_node;
            const i64 first = rows.start(row), end = rows.start(row + 1);
            const u32 group = a.slices[slice], groups = a.slices[slice + 1] - group;
            if (size == 1) {
                const i64 fits = end - first <= groups ? end : first + groups;
                if (fits < end) *misfit = 1;
                for (i64 e = first; e < fits; e++) copy_value(entries[e], values[(group + (e - first)) * 32 + lane], back);
                return;
            }
            const auto node_at = [&](u32 k) {
                if (k >= groups) return NONE;
                const u32 place = a.columns[(i64)(group + k) * 32 + lane];
                return place < at.zero() ? at.node(a.windows, place) : NONE;
            };
            u32 k = 0, here = node_at(0);
            for (i64 e = first; e < end; e++) {
                const u32 column = columns[e], wanted = column / size;
                while (here < wanted) here = node_at(++k);
                if (here != wanted) {
                    *misfit = 1;
                    break;
                }
                copy_value(entries[e], values[(((i64)(group + k) * size + column % size) * 32 + lane) * size + of_node], back);
            }
        });
    }
}
