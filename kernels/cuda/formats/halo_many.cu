// Products of blocks of rows with the windows of several vectors, each of which is stored separately. halo_windows.cu
// describes the layout. Each row is summed in the same order as in a product with one vector.
//
// Memory traffic: the matrix once, as many bytes as a product with one vector; x, its halos and y for each vector.
// Shared memory holds one window per vector: as many vectors as fit are multiplied together.


// If DOT, adds this thread's part of ⟨x, y⟩ for each vector x to `xy`. The windows of the vectors are `stride` elements
// apart.
template <int B, bool DOT>
__device__ __forceinline__ void multiply_many(const Halo& a, const Columns& c, u32 stride, real (&xy)[COLUMNS]) {
    constexpr int T = MANY_THREADS<B>, WIDE = 32 * B, SLICES = T / WIDE, U = GROUPS<B>;
    real* const windows = (real*)shared_memory;
    const u32 q = threadIdx.x % WIDE, lane = q / B;
    for (u32 block = blockIdx.x; block < a.windows.blocks; block += gridDim.x) {
        const Block at(a.windows, block);
        // wait until all threads have read the windows of the previous block
        if (block != blockIdx.x) __syncthreads();
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
            if (j >= c.count) break;
            at.gather_window<B, T>(a.windows, c.x[j], windows + j * stride);
        }
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
        // load the first slots before the windows have arrived
        begin();
        gathered();
        while (slice < at.slices()) {
            real sum[COLUMNS];
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) sum[j] = 0;
            while (true) {
#pragma unroll
                for (int j = 0; j < COLUMNS; j++) {
                    if (j >= c.count) break;
                    sum[j] += batch.product(windows + j * stride);
                }
                group += U;
                if (group >= end) break;
                values += U * (B * WIDE);
                columns += (B == 1 ? U / 4 * 3 : U) * 32;
                batch.load(values, columns, int(end - group), at.zero());
            }
            const u32 place = slice * 32 + lane;
            if (place < at.rows) {
                const u32 node = a.order ? __ldg(a.order + at.first + place) : place;
#pragma unroll
                for (int j = 0; j < COLUMNS; j++) {
                    if (j >= c.count) break;
                    c.y[j][(i64)(at.first + node) * B + q % B] = sum[j];
                    if (DOT) xy[j] += windows[j * stride + node * B + q % B] * sum[j];
                }
            }
            slice += SLICES;
            begin();
        }
    }
}

#define KERNELS(NAME, B)                                                                                                \
    extern "C" __global__ __launch_bounds__(MANY_THREADS<B>, 1) void NAME(Halo a, Columns c, u32 stride) {    \
        begin();                                                                                                        \
        real xy[COLUMNS];                                                                                               \
        multiply_many<B, false>(a, c, stride, xy);                                                                      \
    }                                                                                                                   \
    extern "C" __global__ __launch_bounds__(MANY_THREADS<B>, 1) void NAME##_dot(Halo a, Columns c, u32 stride, Sum sum) { \
        begin();                                                                                                        \
        real xy[COLUMNS] = {};                                                                                          \
        multiply_many<B, true>(a, c, stride, xy);                                                                       \
        sum_columns(xy, c.count, sum);                                                                                              \
    }
KERNELS(halo_1_many, 1)
KERNELS(halo_2_many, 2)
KERNELS(halo_3_many, 3)
KERNELS(halo_4_many, 4)
KERNELS(halo_6_many, 6)
