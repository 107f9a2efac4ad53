// Diagonal blocks of up to 32 rows, inverted by Gauss-Jordan elimination with row pivoting in double precision.
//
// T lanes have a block, lane i its row i, in shared memory:
//
//     for each k:  swap row k and that of the largest |a_ik|, i ≥ k;  a_k ← a_k / a_kk;  a_i ← a_i − a_ik a_k  for i ≠ k
//
// where column k becomes that of the inverse as it goes; columns are swapped back at the end, in turn.
//
// Moves the blocks once and their inverses once, and of other entries of their rows some log₂ of a row's length.

struct Blocks {
    RowStarts a;
    const u32* a_columns;
    const real* a_values;
    RowStarts inverse;        // rows of full blocks
    real* values;
    const u32* bounds;        // the row where each block begins, and the end
    u32 count;
    u32* singular;            // the least block without an inverse
};

constexpr int BLOCK = 128;

// One block by T lanes, which `lanes` names. Rows of the room are T + 1 numbers apart: no two lanes meet in a bank.
template <int T> __device__ __forceinline__ void invert(const Blocks& b, u32 block, u32 lanes, double (*room)[T + 1], u32* swaps) {
    const int i = threadIdx.x % T;
    const u32 begin_row = b.bounds[block], end_row = b.bounds[block + 1];
    const int n = int(end_row - begin_row);
    double* mine = room[i];
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
    }
    __syncwarp(lanes);
    for (int k = 0; k < n; k++) {
        // NaN is smaller than all, and found in the end
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
        // lanes that met NaN may differ: the first decides
        row = __shfl_sync(lanes, row, 0, T);
        if (row < (u32)k || row >= (u32)n) row = k;
        if (i < n) {
            const double upper = room[row][i];
            room[row][i] = room[k][i];
            room[k][i] = upper;
        }
        if (i == 0) swaps[k] = row;
        __syncwarp(lanes);
        const double pivot = 1 / room[k][k];
        if (!finite(pivot) || pivot == 0) {
            if (i == 0) atomicMin(b.singular, block);
            return;
        }
        __syncwarp(lanes);
        if (i < n) room[k][i] = i == k ? pivot : room[k][i] * pivot;
        __syncwarp(lanes);
        if (i < n && i != k) {
            const double factor = mine[k];
            mine[k] = 0;
            for (int j = 0; j < n; j++) mine[j] -= factor * room[k][j];
        }
        __syncwarp(lanes);
    }
    bool sound = true;
    if (i < n) {
        for (int k = n - 1; k >= 0; k--) {
            const double left = mine[k];
            mine[k] = mine[swaps[k]];
            mine[swaps[k]] = left;
        }
        const i64 to = b.inverse.start((i64)begin_row + i);
        for (int j = 0; j < n; j++) {
            sound = sound && finite(mine[j]);
            b.values[to + j] = real(mine[j]);
        }
    }
    if (!sound) atomicMin(b.singular, block);
    // the next block is written over this one
    __syncwarp(lanes);
}

template <int T> __device__ __forceinline__ void invert_all(const Blocks& b) {
    constexpr int GROUPS = BLOCK / T;
    __shared__ double room[GROUPS][T][T + 1];
    __shared__ u32 swaps[GROUPS][T];
    const int group = threadIdx.x / T;
    const u32 lanes = T == 32 ? ALL : ((1u << (T % 32)) - 1) << (threadIdx.x % 32 / T * T);
    for (i64 block = (i64)blockIdx.x * GROUPS + group; block < b.count; block += (i64)gridDim.x * GROUPS) {
        invert<T>(b, u32(block), lanes, room[group], swaps[group]);
    }
}

extern "C" __global__ __launch_bounds__(128) void blocks_4(Blocks b) {
    begin();
    invert_all<4>(b);
}
extern "C" __global__ __launch_bounds__(128) void blocks_8(Blocks b) {
    begin();
    invert_all<8>(b);
}
extern "C" __global__ __launch_bounds__(128) void blocks_16(Blocks b) {
    begin();
    invert_all<16>(b);
}
extern "C" __global__ __launch_bounds__(128) void blocks_32(Blocks b) {
    begin();
    invert_all<32>(b);
}
