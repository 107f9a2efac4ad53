// CSR products with several vectors: the columns of X, packed row by row (packed.cu). Each row is summed in the same
// order as in a product with one vector, so results are bitwise the same.
//
// Memory traffic: the matrix once, 12 B (f64) or 8 B (f32) an entry and 4 or 8 B a row; each column of Y once; each
// column of X three times, because packing reads it and writes the packed copy, which the product reads.

// Adds the partial sums part(lane) of a row's lanes in the same order as the product with one vector; the result is
// valid in the row's first lane. Here a lane is `width` threads, so a warp has 32 / `width` lanes (packed.cu). If the
// one-vector product uses more lanes per row than that, each lane here does the work of several of that product's
// lanes, one after the other, and adds their partial sums in the order of that product's summation tree.
template <class Part> __device__ __forceinline__ real sum_of_row(const Packed& x, u32 lanes_of_row, Part part) {
    const u32 lanes = x.lanes(), rounds = lanes_of_row > lanes ? lanes_of_row / lanes : 1;
    real sum = 0, waiting[3] = {};
    for (u32 n = 0; n < rounds; n++) {
        const u32 round = rounds > 1 ? __brev(n) >> (__clz(rounds) + 1) : 0;
        sum = part(rounds > 1 ? round * lanes + x.lane : x.lane & (lanes_of_row - 1));
        bool carry = true;
#pragma unroll
        for (int bit = 0; bit < 3; bit++) {
            if (carry && n >> bit & 1) {
                sum = waiting[bit] + sum;
            } else if (carry) {
                waiting[bit] = sum;
                carry = false;
            }
        }
    }
    return x.sum_of_lanes(sum, rounds > 1 ? lanes : lanes_of_row);
}

// Returns this thread's part of ⟨x, y⟩ for its column of X and Y if DOT is true.
template <class Offset, bool DOT> __device__ __forceinline__ real multiply_many(const Csr<Offset>& a, const Columns& c, const Packed& x) {
    const u32 log_lanes = 31 - __clz(a.lanes), rows_of_warp = max(x.lanes() >> log_lanes, 1u);
    const u32 warps = gridDim.x * (blockDim.x / 32), warp = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    real xy = 0;
    // no overflow: there are fewer than 2³¹ rows, and `warps * rows_of_warp` exceeds their number by at most
    // one block's rows
    for (u32 first = warp * rows_of_warp; first < a.rows; first += warps * rows_of_warp) {
        const u32 row = first + (x.lane >> log_lanes);
        const Offset start = row < a.rows ? __ldg(a.offsets + row) : 0, end = row < a.rows ? __ldg(a.offsets + row + 1) : 0;
        const real sum = sum_of_row(x, a.lanes, [&](u32 lane) {
            return part_of_row(a.columns + start, a.values + start, u32(end - start), lane, a.lanes, [&](u32 column) { return x[column]; });
        });
        if (row < a.rows && (x.lane & (a.lanes - 1)) == 0 && x.is_column) {
            c.y[x.column][row] = sum;
            if (DOT) xy += x[row] * sum;
        }
    }
    return xy;
}

#define KERNELS(NAME, OFFSET)                                                                                           \
    extern "C" __global__ __launch_bounds__(THREADS, 4) void NAME(Csr<OFFSET> a, Columns c, const real* packed) {       \
        begin();                                                                                                        \
        multiply_many<OFFSET, false>(a, c, Packed(c, packed));                                                             \
    }                                                                                                                   \
    extern "C" __global__ __launch_bounds__(THREADS, 4) void NAME##_dot(Csr<OFFSET> a, Columns c, const real* packed, Sum sum) { \
        begin();                                                                                                        \
        const Packed x(c, packed);                                                                                      \
        x.sums(multiply_many<OFFSET, true>(a, c, x), c.count, sum);                                                                 \
    }
KERNELS(csr_short_many, u32)
KERNELS(csr_long_many, u64)
