// Products of small dense blocks. bsr_blocks.cu describes the layout and the memory traffic.

// Returns this thread's part of ⟨x, y⟩ if DOT is true.
template <class Column, int B, bool DOT> __device__ __forceinline__ real multiply(const Bsr<Column>& a, const real* x, real* y) {
    constexpr int U = Fit<B>::IN_FLIGHT;
    constexpr int WIDE = B * B % VALUES == 0 ? VALUES : 1, LOADS = B * B / WIDE;
    constexpr bool SHORT = sizeof(Column) == 2;
    // for each warp: the elements of x for U groups of 32 blocks, which the lanes exchange
    __shared__ real shared[WARPS][U][32 * B];
    real (&passed)[U][32 * B] = shared[threadIdx.x / 32];
    const u32 lane = threadIdx.x % 32, rows_of_slice = 32 / a.lanes, warps = gridDim.x * WARPS;
    real xy = 0;
    for (i64 slice = blockIdx.x * WARPS + threadIdx.x / 32; slice < a.slices; slice += warps) {
        const u32 first = __ldg(a.starts + slice), groups = __ldg(a.starts + slice + 1) - first;
        const Few<stored, WIDE>* values = (const Few<stored, WIDE>*)a.values + (i64)first * (LOADS * 32) + lane;
        const Column* columns = a.columns + (i64)first * 32 + lane;
        const u32* bases = a.bases + first;
        real sum[B];
#pragma unroll
        for (int i = 0; i < B; i++) sum[i] = 0;
        for (u32 g = 0; g < groups; g += U) {
            Few<stored, WIDE> v[U][LOADS];
            Column place[U];
            u32 base[U];
#pragma unroll
            for (int u = 0; u < U; u++) {
                place[u] = PADDING<Column>;
                base[u] = 0;
#pragma unroll
                for (int e = 0; e < B * B; e++) v[u][e / WIDE].at[e % WIDE] = 0;
                if (g + u < groups) {
                    place[u] = __ldcs(columns + u * 32);
                    if (SHORT) base[u] = __ldg(bases + u);
#pragma unroll
                    for (int q = 0; q < LOADS; q++) v[u][q] = stream(values + (u * LOADS + q) * 32);
                }
            }
            // never true; prevents the compiler from moving the loads above to their uses
            if (__all_sync(ALL, place[0] == PADDING<Column>)) break;
            real fetched[U][B];
#pragma unroll
            for (int u = 0; u < U; u++) {
                const u32 column = place[u] == PADDING<Column> ? NONE : base[u] + place[u];
#pragma unroll
                for (int t = 0; t < B; t++) {
                    const u32 entry = t * 32 + lane;
                    const u32 of_lane = __shfl_sync(ALL, column, entry / B);
                    fetched[u][t] = of_lane != NONE ? __ldg(x + (of_lane * B + entry % B)) : real(0);
                }
            }
            __syncwarp();
#pragma unroll
            for (int u = 0; u < U; u++) {
#pragma unroll
                for (int t = 0; t < B; t++) passed[u][t * 32 + lane] = fetched[u][t];
            }
            __syncwarp();
#pragma unroll
            for (int u = 0; u < U; u++) {
#pragma unroll
                for (int j = 0; j < B; j++) {
                    const real at_column = passed[u][lane * B + j];
#pragma unroll
                    for (int i = 0; i < B; i++) {
                        const int e = j * B + i;
                        sum[i] += v[u][e / WIDE].at[e % WIDE] * at_column;
                    }
                }
            }
            values += U * LOADS * 32;
            columns += U * 32;
            bases += U;
        }
        for (u32 step = a.lanes / 2; step; step /= 2) {
#pragma unroll
            for (int i = 0; i < B; i++) sum[i] += __shfl_down_sync(ALL, sum[i], step, a.lanes);
        }
        const i64 place = slice * rows_of_slice + lane / a.lanes;
        if (place < a.rows && lane % a.lanes == 0) {
            const u32 row = a.order ? __ldg(a.order + place) : u32(place);
#pragma unroll
            for (int i = 0; i < B; i++) {
                y[row * B + i] = sum[i];
                if (DOT) xy += __ldg(x + (row * B + i)) * sum[i];
            }
        }
    }
    return xy;
}

#define KERNELS(NAME, COLUMN, B)                                                                                        \
    extern "C" __global__ __launch_bounds__(THREADS, Fit<B>::BLOCKS) void NAME(Bsr<COLUMN> a, const real* x, real* y) { \
        begin();                                                                                                        \
        multiply<COLUMN, B, false>(a, x, y);                                                                            \
    }                                                                                                                   \
    extern "C" __global__ __launch_bounds__(THREADS, Fit<B>::BLOCKS) void NAME##_dot(Bsr<COLUMN> a, const real* x, real* y, Sum sum) { \
        begin();                                                                                                        \
        real xy[1] = {multiply<COLUMN, B, true>(a, x, y)};                                                              \
        grid_sum(xy, sum);                                                                                              \
    }
KERNELS(bsr_2_wide, u32, 2)
KERNELS(bsr_3_wide, u32, 3)
KERNELS(bsr_4_wide, u32, 4)
KERNELS(bsr_6_wide, u32, 6)
KERNELS(bsr_2_short, u16, 2)
KERNELS(bsr_3_short, u16, 3)
KERNELS(bsr_4_short, u16, 4)
KERNELS(bsr_6_short, u16, 6)

// Copies values from CSR entries (`rows`, `columns`, `entries`) to `values`, the slots of blocks with `size` rows, or
// back. A thread merges the columns of a matrix row with the blocks of its block row, which both ascend. Sets `misfit`
// if an entry is in no block.
template <class Column> __device__ __forceinline__ void copy_all_values(
    const Bsr<Column>& a, const RowStarts& rows, const u32* columns, real* entries, stored* values, u32 size, u32 back, u32* misfit) {
    const u32 of_block = size * size, wide = of_block % VALUES == 0 ? VALUES : 1, rows_of_slice = 32 / a.lanes;
    const i64 threads = (i64)gridDim.x * blockDim.x;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < (i64)a.rows * size; i += threads) {
        const i64 place = i / size, slice = place / rows_of_slice;
        const u32 of_row = i % size, first_lane = place % rows_of_slice * a.lanes;
        const i64 row = (i64)(a.order ? a.order[place] : place) * size + of_row;
        const u32 start = a.starts[slice], slots = (a.starts[slice + 1] - start) * a.lanes;
        const auto block_at = [&](u32 k) {
            if (k >= slots) return NONE;
            const i64 group = start + k / a.lanes;
            const Column place = a.columns[group * 32 + first_lane + k % a.lanes];
            if (place == PADDING<Column>) return NONE;
            return sizeof(Column) == 2 ? a.bases[group] + place : u32(place);
        };
        u32 k = 0, block = block_at(0);
        for (i64 entry = rows.start(row), end = rows.start(row + 1); entry < end; entry++) {
            const u32 column = columns[entry];
            while (block < column / size) block = block_at(++k);
            if (block != column / size) {
                *misfit = 1;
                break;
            }
            const u32 e = column % size * size + of_row;
            const i64 load = (i64)(start + k / a.lanes) * (of_block / wide) + e / wide;
            copy_value(entries[entry], values[(load * 32 + first_lane + k % a.lanes) * wide + e % wide], back);
        }
    }
}

extern "C" __global__ __launch_bounds__(THREADS) void bsr_copy_values_wide(
    Bsr<u32> a, RowStarts rows, const u32* columns, real* entries, stored* values, u32 size, u32 back, u32* misfit) {
    begin();
    copy_all_values(a, rows, columns, entries, values, size, back, misfit);
}
extern "C" __global__ __launch_bounds__(THREADS) void bsr_copy_values_short(
    Bsr<u16> a, RowStarts rows, const u32* columns, real* entries, stored* values, u32 size, u32 back, u32* misfit) {
    begin();
    copy_all_values(a, rows, columns, entries, values, size, back, misfit);
}
