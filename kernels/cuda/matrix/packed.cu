// Columns of X, packed row by row, so that a gather reads contiguous memory for all columns. A lane of the product with
// one vector becomes `width` consecutive threads, one for each column; a warp then has 32 / width lanes.

struct Packed {
    const real* x;            // this thread's column, whose entries are `width` elements apart
    u32 row_bytes;            // bytes of a packed row
    u32 log_width, column;
    u32 lane;                 // this thread's lane among those of the warp
    bool is_column;           // false for threads beyond the last column

    __device__ __forceinline__ Packed(u32 width, u32 count, const real* packed) {
        log_width = 31 - __clz(width);
        row_bytes = width * sizeof(real);
        column = threadIdx.x & (width - 1);
        lane = threadIdx.x % 32 >> log_width;
        is_column = column < count;
        x = packed + column;
    }
    __device__ __forceinline__ Packed(const Columns& c, const real* packed) : Packed(c.width, c.count, packed) {}
    __device__ __forceinline__ real operator[](u32 row) const {
        // compiles to one multiply-add with a 64-bit result
        return __ldg((const real*)((const char*)x + (u64)row * row_bytes));
    }
    // Number of lanes of a warp.
    __device__ __forceinline__ u32 lanes() const { return 32 >> log_width; }

    // Adds the partial sums of a row that consecutive lanes hold, in the same order as in the product with one vector;
    // the result is valid in the row's first lane.
    __device__ __forceinline__ real sum_of_lanes(real part, u32 lanes_of_row) const {
        for (u32 step = lanes_of_row / 2; step; step /= 2) {
            part += __shfl_down_sync(ALL, part, step << log_width, lanes_of_row << log_width);
        }
        return part;
    }
    // As `sum_of_lanes`, for rows of up to 32 lanes, which may be in several warps of a block. All threads of the
    // block must call it; `lane` counts from the first lane of the row.
    __device__ __forceinline__ real sum_of_warps(real part, u32 lane, u32 lanes_of_row) const {
        if (lanes_of_row <= lanes()) return sum_of_lanes(part, lanes_of_row);
        __shared__ real parts[THREADS];
        parts[threadIdx.x] = part;
        __syncthreads();
        u32 step = lanes_of_row / 2;
        for (; step >= lanes(); step /= 2) {
            if (lane < step) parts[threadIdx.x] += parts[threadIdx.x + (step << log_width)];
            __syncthreads();
        }
        return sum_of_lanes(parts[threadIdx.x], 2 * step);
    }
    // Sums ⟨x, y⟩ of each column over the grid. Each thread holds a partial sum of one column.
    __device__ __forceinline__ void sums(real xy, u32 count, const Sum& sum) const {
        __shared__ WarpParts parts;
        for (u32 step = 1 << log_width; step < 32; step *= 2) xy += __shfl_xor_sync(ALL, xy, step);
        if (lane == 0) parts[threadIdx.x / 32][column] = xy;
        sum_warps(parts, count, sum);
    }
};
