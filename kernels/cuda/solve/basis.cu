// Operations of an Arnoldi process on several vectors, the columns of V. Columns begin `ld` entries apart and are
// aligned to 16 bytes.
//
// A thread block processes ROWS rows of all k columns. Projection reads V and w once; subtraction followed by
// projection reads the block's rows of V a second time, from the caches.

constexpr int ROWS = THREADS * PACKS * PACK;
constexpr int GROUP = 8;      // number of columns processed together

// Rows of a thread: PACKS packs at a stride of THREADS packs.
struct OwnRows {
    i64 first[PACKS];
    i64 n;

    __device__ __forceinline__ OwnRows(i64 n) : n(n) {
#pragma unroll
        for (int p = 0; p < PACKS; p++) first[p] = (i64)blockIdx.x * ROWS + (p * THREADS + threadIdx.x) * PACK;
    }
    // entries beyond the end are zero
    __device__ __forceinline__ void load(const real* from, Pack (&to)[PACKS]) const {
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            if (first[p] + PACK <= n) {
                to[p] = *(const Pack*)(from + first[p]);
            } else {
#pragma unroll
                for (int i = 0; i < PACK; i++) to[p].at[i] = first[p] + i < n ? from[first[p] + i] : real(0);
            }
        }
    }
    __device__ __forceinline__ void store(real* to, const Pack (&from)[PACKS]) const {
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            if (first[p] + PACK <= n) {
                *(Pack*)(to + first[p]) = from[p];
            } else {
#pragma unroll
                for (int i = 0; i < PACK; i++) if (first[p] + i < n) to[first[p] + i] = from[p].at[i];
            }
        }
    }
};

// w ← w − V c, in registers
__device__ __forceinline__ void subtract_columns(const OwnRows& rows, const real* v, i64 ld, int k, const real* c, Pack (&w)[PACKS]) {
    int j = 0;
    for (; j + GROUP <= k; j += GROUP) {
        Pack column[GROUP][PACKS];
#pragma unroll
        for (int g = 0; g < GROUP; g++) rows.load(v + (j + g) * ld, column[g]);
#pragma unroll
        for (int g = 0; g < GROUP; g++) {
            const real cj = __ldg(c + j + g);
#pragma unroll
            for (int p = 0; p < PACKS; p++)
#pragma unroll
                for (int i = 0; i < PACK; i++) w[p].at[i] -= cj * column[g][p].at[i];
        }
    }
    for (; j < k; j++) {
        Pack column[PACKS];
        rows.load(v + j * ld, column);
        const real cj = __ldg(c + j);
#pragma unroll
        for (int p = 0; p < PACKS; p++)
#pragma unroll
            for (int i = 0; i < PACK; i++) w[p].at[i] -= cj * column[p].at[i];
    }
}

// partials[j, block] ← ⟨v_j, w⟩ over the block's rows
__device__ __forceinline__ void project_columns(const OwnRows& rows, const real* v, i64 ld, int k, const Pack (&w)[PACKS], real* partials) {
    for (int j = 0; j < k; j += GROUP) {
        real sums[GROUP];
        Pack column[GROUP][PACKS];
        // columns beyond the last repeat the last; their sums are discarded
#pragma unroll
        for (int g = 0; g < GROUP; g++) rows.load(v + (j + g < k ? j + g : k - 1) * ld, column[g]);
#pragma unroll
        for (int g = 0; g < GROUP; g++) {
            sums[g] = 0;
#pragma unroll
            for (int p = 0; p < PACKS; p++)
#pragma unroll
                for (int i = 0; i < PACK; i++) sums[g] += column[g][p].at[i] * w[p].at[i];
        }
        block_sum(sums);
        if (threadIdx.x == 0) {
#pragma unroll
            for (int g = 0; g < GROUP; g++)
                if (j + g < k) partials[(i64)(j + g) * gridDim.x + blockIdx.x] = sums[g];
        }
    }
}

extern "C" __global__ __launch_bounds__(THREADS) void project(i64 n, i64 ld, int k, const real* v, const real* w, real* partials) {
    begin();
    const OwnRows rows(n);
    Pack here[PACKS];
    rows.load(w, here);
    project_columns(rows, v, ld, k, here, partials);
}

// w ← w − V c; partials[j, block] ← ⟨v_j, w⟩ over the block's rows
extern "C" __global__ __launch_bounds__(THREADS) void subtract_project(Gate gate, i64 n, i64 ld, int k, const real* v, const real* c, real* w, real* partials) {
    begin();
    if (closed(gate)) return;
    const OwnRows rows(n);
    Pack here[PACKS];
    rows.load(w, here);
    subtract_columns(rows, v, ld, k, c, here);
    rows.store(w, here);
    project_columns(rows, v, ld, k, here, partials);
}

// c_j ← Σ partials[j, :], one block per column
extern "C" __global__ __launch_bounds__(THREADS) void finish_projection(int blocks, const real* partials, real* c) {
    begin();
    real sum[1] = {0};
    for (int i = threadIdx.x; i < blocks; i += THREADS) sum[0] += partials[(i64)blockIdx.x * blocks + i];
    block_sum(sum);
    if (threadIdx.x == 0) c[blockIdx.x] = sum[0];
}

// w ← w − V c; partials[block] ← ‖w‖² over the block's rows
extern "C" __global__ __launch_bounds__(THREADS) void subtract_norm(Gate gate, i64 n, i64 ld, int k, const real* v, const real* c, real* w, real* partials) {
    begin();
    if (closed(gate)) return;
    const OwnRows rows(n);
    Pack here[PACKS];
    rows.load(w, here);
    subtract_columns(rows, v, ld, k, c, here);
    rows.store(w, here);
    real sum[1] = {0};
#pragma unroll
    for (int p = 0; p < PACKS; p++)
#pragma unroll
        for (int i = 0; i < PACK; i++) sum[0] += here[p].at[i] * here[p].at[i];
    block_sum(sum);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum[0];
}

// x ← −V c
extern "C" __global__ __launch_bounds__(THREADS) void combine(i64 n, i64 ld, int k, const real* v, const real* c, real* x) {
    begin();
    const OwnRows rows(n);
    Pack here[PACKS] = {};
    subtract_columns(rows, v, ld, k, c, here);
    rows.store(x, here);
}

// v ← w / √norm²
extern "C" __global__ __launch_bounds__(THREADS) void push(Gate gate, i64 n, Number norm_squared, const real* w, real* v) {
    begin();
    if (closed(gate)) return;
    const real scale = real(1) / sqrt(value(norm_squared));
    const OwnRows rows(n);
    Pack here[PACKS];
    rows.load(w, here);
#pragma unroll
    for (int p = 0; p < PACKS; p++)
#pragma unroll
        for (int i = 0; i < PACK; i++) here[p].at[i] *= scale;
    rows.store(v, here);
}
