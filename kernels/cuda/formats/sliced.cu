// Products of matrices in slices. sliced_rows.cu describes the layout and the memory traffic.

// Returns this thread's part of ⟨x, y⟩ if DOT is true.
template <class Column, int G, bool DOT> __device__ __forceinline__ real multiply(const Sliced<Column>& a, const real* x, real* y) {
    real xy = 0;
    each_row<Column, G>(a, x, [&](u32 row, real sum) {
        y[row] = sum;
        if (DOT) xy += __ldg(x + row) * sum;
    });
    return xy;
}

// Resident blocks per multiprocessor that registers allow with eight entries in flight.
constexpr int BLOCKS = sizeof(real) == 8 ? 4 : 5;

#define KERNELS(NAME, COLUMN, G)                                                                                        \
    extern "C" __global__ __launch_bounds__(THREADS, BLOCKS) void NAME(Sliced<COLUMN> a, const real* x, real* y) {          \
        begin();                                                                                                        \
        multiply<COLUMN, G, false>(a, x, y);                                                                            \
    }                                                                                                                   \
    extern "C" __global__ __launch_bounds__(THREADS, BLOCKS) void NAME##_dot(Sliced<COLUMN> a, const real* x, real* y, Sum sum) { \
        begin();                                                                                                        \
        real xy[1] = {multiply<COLUMN, G, true>(a, x, y)};                                                              \
        grid_sum(xy, sum);                                                                                              \
    }
KERNELS(sliced_wide, u32, 1)
KERNELS(sliced_wide_packed, u32, VALUES)
KERNELS(sliced_short, u16, 1)
KERNELS(sliced_short_packed, u16, VALUES)
