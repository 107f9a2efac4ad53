// Loops of vector operations. Memory traffic: each operand once, 8 B (f64) or 4 B (f32) per entry read or written, in
// packs of 16 B. Within a queued step (iteration), all kernels except plain reductions first check a gate: whether the
// solve has ended.
//
// A launch processes at most VECTORS columns. Each has a row of thread blocks (blockIdx.y), as many as in a separate
// launch, so its sums are bitwise the same. vector.cu and fused.cu, which include this file, are compiled twice, with
// VECTORS = 1 and with VECTORS = COLUMNS, because the large arguments for many columns would delay launches for one
// column.

// Operands of an operation for one column. Each kernel gives names to those that it uses.
struct Operands {
    real* vector[4];
    Number number[3];
    Sum sum;
};
struct Several {
    Operands column[VECTORS];

    __device__ __forceinline__ const Operands& own() const { return column[VECTORS == 1 ? 0 : blockIdx.y]; }
};

__device__ __forceinline__ Pack load(const real* p) { return *(const Pack*)p; }
__device__ __forceinline__ void store(real* p, const Pack& v) { *(Pack*)p = v; }

// Sums v over the thread blocks of this column. If there are several columns, sums are over this device only, even if
// it is in a team (GPUs that share vectors), because the team's counters serve one column only.
template <int K> __device__ __forceinline__ void column_sum(real (&v)[K], const Operands& o) {
    Sum sum = o.sum;
    if (VECTORS > 1) sum.team = nullptr;
    grid_sum(v, sum);
}

// An operation that reads `IN` vectors and writes `OUT`, elementwise: `void at(real (&v)[IN], real (&w)[OUT])`. Two
// packs of each vector are in flight at any time; `prefetch(n)` loads the first two, before the coefficients are known.
template <class Op, int IN, int OUT> struct Loop {
    Op op;
    const real* in[IN];
    real* out[OUT ? OUT : 1];
    Pack even[IN], odd[IN];

    __device__ __forceinline__ static i64 stride() { return (i64)gridDim.x * blockDim.x; }
    __device__ __forceinline__ static i64 first() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }

    __device__ __forceinline__ void prefetch(Pack (&v)[IN], i64 pack, i64 packs) {
        if (pack >= packs) return;
#pragma unroll
        for (int j = 0; j < IN; j++) v[j] = load(in[j] + pack * PACK);
    }
    __device__ __forceinline__ void prefetch(i64 n) {
        prefetch(even, first(), n / PACK);
        prefetch(odd, first() + stride(), n / PACK);
    }
    __device__ __forceinline__ void apply(const Pack (&v)[IN], i64 pack) {
        Pack w[OUT ? OUT : 1];
#pragma unroll
        for (int k = 0; k < PACK; k++) {
            real a[IN], b[OUT ? OUT : 1];
#pragma unroll
            for (int j = 0; j < IN; j++) a[j] = v[j].at[k];
            op.at(a, b);
#pragma unroll
            for (int j = 0; j < OUT; j++) w[j].at[k] = b[j];
        }
#pragma unroll
        for (int j = 0; j < OUT; j++) store(out[j] + pack * PACK, w[j]);
    }
    // Processes all n entries; `prefetch(n)` must have loaded the first packs.
    __device__ __forceinline__ void run(i64 n) {
        const i64 packs = n / PACK, step = stride();
        for (i64 i = first(); i < packs; i += 2 * step) {
            apply(even, i);
            prefetch(even, i + 2 * step, packs);
            if (i + step >= packs) break;
            apply(odd, i + step);
            prefetch(odd, i + 3 * step, packs);
        }
        const i64 rest = packs * PACK + first();
        if (rest >= n) return;
        real a[IN], b[OUT ? OUT : 1];
#pragma unroll
        for (int j = 0; j < IN; j++) a[j] = in[j][rest];
        op.at(a, b);
#pragma unroll
        for (int j = 0; j < OUT; j++) out[j][rest] = b[j];
    }
};

// Runs a loop whose coefficients are known, for operations whose coefficients determine which vectors are read.
template <class Op, int IN, int OUT> __device__ __forceinline__ void over(i64 n, Loop<Op, IN, OUT>& loop) {
    loop.prefetch(n);
    loop.run(n);
}
