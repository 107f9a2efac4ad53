// Products of matrices in slices with several vectors (sliced_packed.cu).
//
// Memory traffic: the matrix once, as many bytes as a product with one vector; each column of Y once; each column of X
// three times, because packing reads it and writes the packed copy, which the product reads. A gather reads a packed
// row of X: 2 sectors for 8 columns of f64, instead of 8 sectors in 8 products with one vector.

// Returns this thread's part of ⟨x, y⟩ for its column of X and Y if DOT is true.
template <class Column, int G, bool DOT> __device__ __forceinline__ real multiply_many(const Sliced<Column>& a, const Columns& c, const Packed& x) {
    real xy = 0;
    each_row<Column, G>(a, x, [&](u32 row, real sum) {
        if (!x.is_column) return;
        c.y[x.column][row] = sum;
        if (DOT) xy += x[row] * sum;
    });
    return xy;
}

// Resident blocks per multiprocessor that registers allow with eight entries in flight.
template <bool DOT> constexpr int BLOCKS = DOT ? 3 : 4;

#define KERNELS(NAME, COLUMN, G)                                                                                        \
    extern "C" __global__ __launch_bounds__(THREADS, BLOCKS<false>) void NAME(Sliced<COLUMN> a, Columns c, const real* packed) { \
        begin();                                                                                                        \
        multiply_many<COLUMN, G, false>(a, c, Packed(c, packed));                                                          \
    }                                                                                                                   \
    extern "C" __global__ __launch_bounds__(THREADS, BLOCKS<true>) void NAME##_dot(Sliced<COLUMN> a, Columns c, const real* packed, Sum sum) { \
        begin();                                                                                                        \
        const Packed x(c, packed);                                                                                      \
        x.sums(multiply_many<COLUMN, G, true>(a, c, x), c.count, sum);                                                              \
    }
KERNELS(sliced_wide_many, u32, 1)
KERNELS(sliced_wide_packed_many, u32, VALUES)
KERNELS(sliced_short_many, u16, 1)
KERNELS(sliced_short_packed_many, u16, VALUES)
