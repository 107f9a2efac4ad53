// Products of matrices stored by diagonals. dia_rows.cu describes the layout and the memory traffic.

// Returns this thread's part of ⟨x, y⟩ if DOT is true.
template <int ROWS, bool DOT> __device__ __forceinline__ real multiply(const Dia& a, const real* x, real* y) {
    real xy = 0;
    each_row<ROWS>(a, Unpacked(x), [&](u32 row, real sum) {
        y[row] = sum;
        if (DOT) xy += __ldg(x + row) * sum;
    });
    return xy;
}

// Resident blocks per multiprocessor that registers allow with four diagonals of four rows in flight.
constexpr int BLOCKS = sizeof(real) == 8 ? 3 : 4;

#define KERNELS(NAME, ROWS)                                                                                             \
    extern "C" __global__ __launch_bounds__(THREADS, BLOCKS) void NAME(Dia a, const real* x, real* y) {                     \
        begin();                                                                                                        \
        multiply<ROWS, false>(a, x, y);                                                                                 \
    }                                                                                                                   \
    extern "C" __global__ __launch_bounds__(THREADS, BLOCKS) void NAME##_dot(Dia a, const real* x, real* y, Sum sum) {      \
        begin();                                                                                                        \
        real xy[1] = {multiply<ROWS, true>(a, x, y)};                                                                   \
        grid_sum(xy, sum);                                                                                              \
    }
KERNELS(dia_1, 1)
KERNELS(dia_4, 4)

// Calls visit(entry, slot) for CSR entries with row starts `rows` and columns `columns`; `values` are the slots, and a
// lane has `of_lane` rows. A thread merges the columns of a row with the diagonals, which both ascend. Sets `misfit` if
// an entry is on none of the diagonals.
template <class Visit> __device__ __forceinline__ void each_entry(
    const Dia& a, const RowStarts& rows, const u32* columns, stored* values, u32 of_lane, u32* misfit, Visit visit) {
    const u32 wide = of_lane < VALUES ? of_lane : VALUES, loads = of_lane / wide, height = 32 * of_lane;
    const i64 threads = (i64)gridDim.x * blockDim.x;
    for (i64 row = (i64)blockIdx.x * blockDim.x + threadIdx.x; row < a.rows; row += threads) {
        stored* slice = values + row / height * height * a.diagonals;
        const u32 of_slice = row % height / 32, lane = row % 32;
        u32 d = 0;
        for (i64 entry = rows.start(row), end = rows.start(row + 1); entry < end; entry++) {
            const u32 offset = columns[entry] - u32(row);
            while (d < a.diagonals && u32(a.offsets[d]) != offset) d++;
            if (d == a.diagonals) {
                *misfit = 1;
                break;
            }
            visit(entry, slice[((i64)(d * loads + of_slice / wide) * 32 + lane) * wide + of_slice % wide]);
        }
    }
}
// Copies values from CSR entries to slots, or back.
extern "C" __global__ __launch_bounds__(THREADS) void dia_copy_values(
    Dia a, RowStarts rows, const u32* columns, real* entries, stored* values, u32 of_lane, u32 back, u32* misfit) {
    begin();
    each_entry(a, rows, columns, values, of_lane, misfit, [&](i64 entry, stored& slot) { copy_value(entries[entry], slot, back); });
}
// Copies values from CSR entries to slots, times a factor.
extern "C" __global__ __launch_bounds__(THREADS) void dia_scale_values(
    Dia a, RowStarts rows, const u32* columns, const real* entries, real factor, stored* values, u32 of_lane, u32* misfit) {
    begin();
    each_entry(a, rows, columns, values, of_lane, misfit, [&](i64 entry, stored& slot) { slot = entries[entry] * factor; });
}
