// Diagonal blocks of up to 32 rows: inverted by Gauss-Jordan elimination with row pivoting in double precision, rounded
// to the precision that their condition numbers allow, and multiplied.
//
// Inversion: T lanes (4, 8, 16 or 32, at least the rows of the largest block) invert a block in shared memory; lane i
// has row i, a_i:
//
//     for each k:  swap row k with the row i ≥ k of the largest |a_ik|
//                  a_k ← a_k / a_kk;  a_i ← a_i − a_ik a_k  for i ≠ k
//
// Column k is overwritten by column k of the inverse. At the end, columns are swapped in reverse order, which undoes
// the row swaps. Memory traffic: the blocks once and their inverses once, and about log₂(length) other column indices
// per row, to find the block's entries. Rounding reads and writes the inverses.
//
// Product: a warp processes a slice of whole blocks, with one row per lane; x is loaded once and exchanged between
// lanes by shuffles. block_diagonal.rs describes the order of values. Memory traffic: the values in their storage type,
// 16 B a slice, and the vectors.

struct Slice {
    u32 first;                // first row
    u32 starts;               // bit mask of the rows at which a block begins
    u32 place;                // position of the slice's values, in units of UNIT values
    u32 info;                 // 8 bits each: number of rows, rows of the largest block, storage type (ELEMENT, SINGLE, HALF)

    __device__ __forceinline__ int rows() const { return info & 255; }
    __device__ __forceinline__ int width() const { return info >> 8 & 255; }
    __device__ __forceinline__ u32 stored_as() const { return info >> 16 & 255; }
    __device__ __forceinline__ i64 numbers() const { return (i64)place * UNIT; }
};

// A matrix of diagonal blocks.
struct Diagonal {
    Slice* slices;
    real* numbers;            // values of all slices
    u32 count;                // number of slices

    __device__ __forceinline__ Slice slice(i64 at) const {
        const uint4 words = __ldg((const uint4*)slices + at);
        return {words.x, words.y, words.z, words.w};
    }
};

struct Blocks {
    RowStarts a;
    const u32* a_columns;
    const real* a_values;
    Diagonal inverse;         // values have the element type
    u32* conditions;          // largest condition number of the blocks of each slice, as bits of a float
    const u32* bounds;        // first row of each block, and the end
    u32 count;                // number of blocks
    u32* singular;            // the first block without an inverse
};

// Range of the norms of inverted blocks that may be stored in types with an exponent of 8 bits, float and bfloat (as
// IN_RANGE in kernels/cpu/preconditioners/block_diagonal.rs).
constexpr double LEAST = 1.0 / (1ll << 50) / (1ll << 50), MOST = double(1ll << 60) * double(1ll << 60);
#define INFINITE __uint_as_float(0x7f800000u)

// Maximum over T lanes.
template <int T> __device__ __forceinline__ double most(u32 lanes, double v) {
#pragma unroll
    for (int step = T / 2; step; step /= 2) v = fmax(v, __shfl_xor_sync(lanes, v, step));
    return v;
}

// Inverts one block with T lanes, given by the mask `lanes`. `dense` (the block) and `swaps` (its pivot rows) are in
// shared memory; rows of `dense` are T + 1 elements apart to avoid bank conflicts.
template <int T> __device__ __forceinline__ void invert(const Blocks& b, u32 block, u32 lanes, double (*dense)[T + 1], u32* swaps) {
    const int i = threadIdx.x % T;
    const u32 begin_row = b.bounds[block], end_row = b.bounds[block + 1];
    const int n = int(end_row - begin_row);
    double* mine = dense[i];
    double norm = 0, of_inverse = 0;
    if (i < n) {
        for (int j = 0; j < n; j++) mine[j] = 0;
        const i64 end = b.a.start((i64)begin_row + i + 1);
        i64 low = b.a.start((i64)begin_row + i), high = end;
        while (low < high) {
            const i64 middle = (low + high) / 2;
            if (__ldg(b.a_columns + middle) < begin_row) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        for (; low < end; low++) {
            const u32 column = __ldg(b.a_columns + low);
            if (column >= end_row) break;
            mine[column - begin_row] = __ldg(b.a_values + low);
        }
        for (int j = 0; j < n; j++) norm += fabs(mine[j]);
    }
    norm = most<T>(lanes, norm);
    __syncwarp(lanes);
    for (int k = 0; k < n; k++) {
        // every comparison with a NaN is false: a lane that has a NaN keeps it, and no other lane takes it over. A
        // pivot that is NaN is detected below
        double largest = i >= k && i < n ? fabs(mine[k]) : -1.0;
        u32 row = i;
#pragma unroll
        for (int step = T / 2; step; step /= 2) {
            const double other = __shfl_xor_sync(lanes, largest, step);
            const u32 its_row = __shfl_xor_sync(lanes, row, step);
            if (other > largest || (other == largest && its_row > row)) {
                largest = other;
                row = its_row;
            }
        }
        // if there is a NaN, lanes may have found different rows: use that of the first lane
        row = __shfl_sync(lanes, row, 0, T);
        if (row < (u32)k || row >= (u32)n) row = k;
        if (i < n) {
            const double upper = dense[row][i];
            dense[row][i] = dense[k][i];
            dense[k][i] = upper;
        }
        if (i == 0) swaps[k] = row;
        __syncwarp(lanes);
        const double pivot = 1 / dense[k][k];
        if (!finite(pivot) || pivot == 0) {
            if (i == 0) atomicMin(b.singular, block);
            return;
        }
        __syncwarp(lanes);
        if (i < n) dense[k][i] = i == k ? pivot : dense[k][i] * pivot;
        __syncwarp(lanes);
        if (i < n && i != k) {
            const double factor = mine[k];
            mine[k] = 0;
            for (int j = 0; j < n; j++) mine[j] -= factor * dense[k][j];
        }
        __syncwarp(lanes);
    }
    bool sound = true;
    u32 at = 0;
    if (i < n) {
        for (int k = n - 1; k >= 0; k--) {
            const double left = mine[k];
            mine[k] = mine[swaps[k]];
            mine[swaps[k]] = left;
        }
        // find the slice that contains the block
        u32 slice = 0, beyond = b.inverse.count;
        while (beyond - slice > 1) {
            const u32 middle = (slice + beyond) / 2;
            if (b.inverse.slices[middle].first <= begin_row) {
                slice = middle;
            } else {
                beyond = middle;
            }
        }
        at = slice;
        const Slice its = b.inverse.slice(slice);
        real* to = b.inverse.numbers + its.numbers() + (begin_row - its.first) + i;
        for (int j = 0; j < n; j++) {
            sound = sound && finite(mine[j]);
            of_inverse += fabs(mine[j]);
            to[j * its.rows()] = real(mine[j]);
        }
    }
    of_inverse = most<T>(lanes, of_inverse);
    const bool in_range = of_inverse >= LEAST && of_inverse < MOST;
    if (i == 0) atomicMax(b.conditions + at, __float_as_uint(in_range ? float(norm * of_inverse) : INFINITE));
    if (!sound) atomicMin(b.singular, block);
    // all lanes must have finished before the next block overwrites this one
    __syncwarp(lanes);
}

template <int T> __device__ __forceinline__ void invert_all(const Blocks& b) {
    constexpr int GROUPS = BLOCK / T;
    __shared__ double dense[GROUPS][T][T + 1];
    __shared__ u32 swaps[GROUPS][T];
    const int group = threadIdx.x / T;
    const u32 lanes = T == 32 ? ALL : ((1u << (T % 32)) - 1) << (threadIdx.x % 32 / T * T);
    for (i64 block = (i64)blockIdx.x * GROUPS + group; block < b.count; block += (i64)gridDim.x * GROUPS) {
        invert<T>(b, u32(block), lanes, dense[group], swaps[group]);
    }
}

extern "C" __global__ __launch_bounds__(BLOCK, 8) void blocks_4(Blocks b) {
    begin();
    invert_all<4>(b);
}
extern "C" __global__ __launch_bounds__(BLOCK, 8) void blocks_8(Blocks b) {
    begin();
    invert_all<8>(b);
}
extern "C" __global__ __launch_bounds__(BLOCK, 8) void blocks_16(Blocks b) {
    begin();
    invert_all<16>(b);
}
extern "C" __global__ __launch_bounds__(BLOCK, 8) void blocks_32(Blocks b) {
    begin();
    invert_all<32>(b);
}

// Stores the inverted blocks of each slice: in 16 bits if their condition numbers are at most `half`, otherwise as
// float if they are at most `single`, otherwise unchanged.
extern "C" __global__ __launch_bounds__(THREADS) void blocks_round(Diagonal from, const u32* conditions, float single, float half, Diagonal to) {
    begin();
    const int lane = threadIdx.x & 31;
    const i64 warps = (i64)gridDim.x * (blockDim.x / 32);
    for (i64 at = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / 32; at < from.count; at += warps) {
        const Slice slice = from.slice(at);
        const float condition = __uint_as_float(conditions[at]);
        const u32 as = condition <= half ? HALF : condition <= single ? SINGLE : ELEMENT;
        const real* numbers = from.numbers + slice.numbers();
        real* into = to.numbers + slice.numbers();
        for (int k = lane; k < slice.rows() * slice.width(); k += 32) {
            if (as == ELEMENT) into[k] = numbers[k];
            if (as == SINGLE) ((float*)into)[k] = numbers[k];
            if (as == HALF) ((bfloat*)into)[k] = float(numbers[k]);
        }
        if (lane == 0) to.slices[at].info = (slice.info & 0xffffu) | as << 16;
    }
}

// Returns the product of row `lane` of a slice with the vector; `x` is the vector's entry for this row, `start` the
// first row of the lane's block in the slice, and `size` its number of rows (0 if the lane has no row). Loads
// CONCURRENT values together.
template <class V> __device__ __forceinline__ real times(const V* numbers, const Slice& slice, int start, int size, real x) {
    constexpr int CONCURRENT = 4;
    const int lane = threadIdx.x & 31, rows = slice.rows(), width = slice.width();
    real sum = 0;
#pragma unroll 1
    for (int from = 0; from < width; from += CONCURRENT) {
        V v[CONCURRENT];
#pragma unroll
        for (int k = 0; k < CONCURRENT; k++) {
            if (from + k < size) v[k] = __ldcs(numbers + (from + k) * rows + lane);
        }
#pragma unroll
        for (int k = 0; k < CONCURRENT; k++) {
            const real other = __shfl_sync(ALL, x, start + from + k);
            if (from + k < size) sum += real(v[k]) * other;
        }
    }
    return sum;
}

__device__ __forceinline__ real row_times(const Diagonal& m, const Slice& slice, real x) {
    const int lane = threadIdx.x & 31, rows = slice.rows();
    // the lane's block: from the last set bit at or below the lane to the first one above it
    const int start = 31 - __clz(slice.starts & (ALL >> (31 - lane)));
    const int behind = __ffs(slice.starts >> lane >> 1);
    const int end = behind ? lane + behind : rows;
    const int size = lane < rows ? end - start : 0;
    const real* numbers = m.numbers + slice.numbers();
    switch (slice.stored_as()) {
        case SINGLE: return times((const float*)numbers, slice, start, size, x);
        case HALF: return times((const bfloat*)numbers, slice, start, size, x);
        default: return times(numbers, slice, start, size, x);
    }
}

template <class Row> __device__ __forceinline__ void over_rows(const Diagonal& m, Row row) {
    const int lane = threadIdx.x & 31;
    const i64 warps = (i64)gridDim.x * (blockDim.x / 32);
    for (i64 at = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / 32; at < m.count; at += warps) {
        const Slice slice = m.slice(at);
        row(slice, (i64)slice.first + lane, lane < slice.rows());
    }
}

extern "C" __global__ __launch_bounds__(THREADS) void blocks_product(Diagonal m, const real* x, real* y) {
    begin();
    over_rows(m, [&](const Slice& slice, i64 row, bool is_row) {
        const real mine = row_times(m, slice, is_row ? x[row] : real(0));
        if (is_row) y[row] = mine;
    });
}
extern "C" __global__ __launch_bounds__(THREADS, 4) void blocks_product_dot(Diagonal m, const real* x, real* y, Sum out) {
    begin();
    real sum[1] = {0};
    over_rows(m, [&](const Slice& slice, i64 row, bool is_row) {
        const real its = is_row ? x[row] : real(0), mine = row_times(m, slice, its);
        if (is_row) y[row] = mine;
        sum[0] += its * (is_row ? mine : real(0));
    });
    grid_sum(sum, out);
}
// r ← r + a q; z ← M r; ‖r‖², ⟨r, z⟩
extern "C" __global__ __launch_bounds__(THREADS) void blocks_axpy_product_dot(Gate gate, Number a, Diagonal m, const real* q, real* r, real* z, Sum out) {
    begin();
    if (closed(gate)) return;
    const real factor = value(a);
    real sum[2] = {0, 0};
    over_rows(m, [&](const Slice& slice, i64 row, bool is_row) {
        const real its = is_row ? r[row] + factor * q[row] : real(0), mine = row_times(m, slice, its);
        if (!is_row) return;
        r[row] = its;
        z[row] = mine;
        sum[0] += its * its;
        sum[1] += its * mine;
    });
    grid_sum(sum, out);
}
