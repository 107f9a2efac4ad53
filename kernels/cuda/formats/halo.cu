// Products of blocks of rows with windows. halo_windows.cu describes the layout and the memory traffic.

// Resident blocks per multiprocessor that registers allow.
template <int B, bool DOT> constexpr int BLOCKS = sizeof(real) == 8 ? (B % 3 == 0 ? 2 : 4) : B % 3 == 0 ? 3 : B > 1 && DOT ? 4 : B == 1 && !DOT ? 6 : 5;

// Returns this thread's part of ⟨x, y⟩ if DOT is true.
template <int B, bool DOT> __device__ __forceinline__ real multiply(const Halo& a, const real* __restrict__ x, real* __restrict__ y) {
    constexpr int WIDE = 32 * B, SLICES = HALO_THREADS<B> / WIDE, U = GROUPS<B>;
    real* const window = (real*)shared_memory;
    const u32 q = threadIdx.x % WIDE, lane = q / B;
    real xy = 0;
    for (u32 block = blockIdx.x; block < a.windows.blocks; block += gridDim.x) {
        const Block at(a.windows, block);
        // wait until all threads have read the window of the previous block
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

// Calls visit(part, node or NONE, lane, slice) for every position in the slices of a block of nodes (NONE beyond its
// last node) and every part in [0, parts). With parts = B, a part is a row of the node.
template <class Visit> __device__ __forceinline__ void each_node(const Halo& a, const Block& at, u32 parts, Visit visit) {
    for (u32 i = threadIdx.x; i < at.slices() * 32 * parts; i += blockDim.x) {
        const u32 place = i / parts;
        const u32 node = place >= at.rows ? NONE : at.first + (a.order ? a.order[at.first + place] : place);
        visit(i % parts, node, place % 32, at.first / 32 + place / 32);
    }
}

// Computes `columns`, positions in the window, from the pattern of the nodes in CSR (`rows`, `from`); one thread block
// per block of nodes. Every column must be in the window.
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

// Computes the CSR columns of the entries from the positions in the window, for nodes with one row; 0 for an entry
// whose slot is padding.
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

// Copies values from CSR entries to slots, or back. One thread per matrix row. If nodes have one row, slot k of a row
// is its entry k; otherwise the columns of entries and slots both ascend, and are merged. Sets `misfit` if an entry has
// no slot.
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
