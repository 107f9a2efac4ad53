// Vector operations. Each moves its operands once: 8 B (f64) or 4 B (f32) an entry read or written, in packs of 16 B.
// Within a step all but plain reductions stand behind a gate.

__device__ __forceinline__ Pack load(const real* p) { return *(const Pack*)p; }
__device__ __forceinline__ void store(real* p, const Pack& v) { *(Pack*)p = v; }

// An operation on `IN` vectors read and `OUT` written, entry by entry: `void at(real (&v)[IN], real (&w)[OUT])`. Two packs of
// each vector are on their way at any time; `ask` sends for the first, before it is known what is done with them.
template <class Op, int IN, int OUT> struct Loop {
    Op op;
    const real* in[IN];
    real* out[OUT ? OUT : 1];
    Pack even[IN], odd[IN];

    __device__ __forceinline__ static i64 stride() { return (i64)gridDim.x * blockDim.x; }
    __device__ __forceinline__ static i64 first() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }

    __device__ __forceinline__ void ask(Pack (&v)[IN], i64 pack, i64 packs) {
        if (pack >= packs) return;
#pragma unroll
        for (int j = 0; j < IN; j++) v[j] = load(in[j] + pack * PACK);
    }
    __device__ __forceinline__ void ask(i64 n) {
        ask(even, first(), n / PACK);
        ask(odd, first() + stride(), n / PACK);
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
    // All n entries, the first packs of which were asked for.
    __device__ __forceinline__ void run(i64 n) {
        const i64 packs = n / PACK, step = stride();
        for (i64 i = first(); i < packs; i += 2 * step) {
            apply(even, i);
            ask(even, i + 2 * step, packs);
            if (i + step >= packs) break;
            apply(odd, i + step);
            ask(odd, i + 3 * step, packs);
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

// Operations whose coefficients decide what is read.
template <class Op, int IN, int OUT> __device__ __forceinline__ void over(i64 n, Loop<Op, IN, OUT>& loop) {
    loop.ask(n);
    loop.run(n);
}

struct Copy {
    __device__ __forceinline__ void at(const real (&v)[1], real (&w)[1]) { w[0] = v[0]; }
};
extern "C" __global__ __launch_bounds__(THREADS) void copy(Gate gate, i64 n, const real* x, real* y) {
    begin();
    Loop<Copy, 1, 1> loop{{}, {x}, {y}};
    loop.ask(n);
    if (closed(gate)) return;
    loop.run(n);
}

// Negates about half of the entries, as if by chance: an odd number of bits in the place times the golden ratio.
extern "C" __global__ __launch_bounds__(THREADS) void flip_signs(i64 n, real* x) {
    begin();
    const i64 threads = (i64)gridDim.x * blockDim.x;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += threads) {
        if (__popcll((u64)(i + 1) * 0x9e3779b97f4a7c15ull) & 1) x[i] = -x[i];
    }
}

// y ← a x
struct Scale {
    real a;
    __device__ __forceinline__ void at(const real (&v)[1], real (&w)[1]) { w[0] = a * v[0]; }
};
// y ← a x + b y
struct Axpby {
    real a, b;
    __device__ __forceinline__ void at(const real (&v)[2], real (&w)[1]) { w[0] = a * v[0] + b * v[1]; }
};
extern "C" __global__ __launch_bounds__(THREADS) void axpby(Gate gate, i64 n, Number a, const real* x, Number b, real* y) {
    begin();
    if (closed(gate)) return;
    const real av = value(a), bv = value(b);
    if (bv == real(0)) {
        Loop<Scale, 1, 1> loop{{av}, {x}, {y}};
        over(n, loop);
    } else {
        Loop<Axpby, 2, 1> loop{{av, bv}, {x, y}, {y}};
        over(n, loop);
    }
}

// z ← a x + b y + c z
struct Axpbypcz {
    real a, b, c;
    __device__ __forceinline__ void at(const real (&v)[3], real (&w)[1]) { w[0] = a * v[0] + b * v[1] + c * v[2]; }
};
extern "C" __global__ __launch_bounds__(THREADS) void axpbypcz(Gate gate, i64 n, Number a, const real* x, Number b, const real* y, Number c, real* z) {
    begin();
    if (closed(gate)) return;
    const real av = value(a), bv = value(b), cv = value(c);
    if (cv == real(0)) {
        Loop<Axpby, 2, 1> loop{{av, bv}, {x, y}, {z}};
        over(n, loop);
    } else {
        Loop<Axpbypcz, 3, 1> loop{{av, bv, cv}, {x, y, z}, {z}};
        over(n, loop);
    }
}

struct Dot {
    real sum[1];
    __device__ __forceinline__ void at(const real (&v)[2], real (&)[1]) { sum[0] += v[0] * v[1]; }
};
struct Square {
    real sum[1];
    __device__ __forceinline__ void at(const real (&v)[1], real (&)[1]) { sum[0] += v[0] * v[0]; }
};
extern "C" __global__ __launch_bounds__(THREADS) void dot(i64 n, const real* x, const real* y, Sum out) {
    begin();
    real sum[1];
    if (x == y) {
        Loop<Square, 1, 0> loop{{{0}}, {x}, {nullptr}};
        over(n, loop);
        sum[0] = loop.op.sum[0];
    } else {
        Loop<Dot, 2, 0> loop{{{0}}, {x, y}, {nullptr}};
        over(n, loop);
        sum[0] = loop.op.sum[0];
    }
    grid_sum(sum, out);
}

// ⟨x, y⟩, ⟨x, z⟩; where z is x it is read once
struct Dot2 {
    real sum[2];
    __device__ __forceinline__ void at(const real (&v)[3], real (&)[1]) { sum[0] += v[0] * v[1]; sum[1] += v[0] * v[2]; }
};
struct DotSquare {
    real sum[2];
    __device__ __forceinline__ void at(const real (&v)[2], real (&)[1]) { sum[0] += v[0] * v[1]; sum[1] += v[0] * v[0]; }
};
extern "C" __global__ __launch_bounds__(THREADS, 4) void dot_2(i64 n, const real* x, const real* y, const real* z, Sum out) {
    begin();
    real sum[2];
    if (x == z) {
        Loop<DotSquare, 2, 0> loop{{{0, 0}}, {x, y}, {nullptr}};
        over(n, loop);
        sum[0] = loop.op.sum[0], sum[1] = loop.op.sum[1];
    } else {
        Loop<Dot2, 3, 0> loop{{{0, 0}}, {x, y, z}, {nullptr}};
        over(n, loop);
        sum[0] = loop.op.sum[0], sum[1] = loop.op.sum[1];
    }
    grid_sum(sum, out);
}

// r ← r + a x; ‖r‖², ⟨r, y⟩
struct AxpyDot2 {
    real a, sum[2];
    __device__ __forceinline__ void at(const real (&v)[3], real (&w)[1]) {
        w[0] = v[0] + a * v[1];
        sum[0] += w[0] * w[0];
        sum[1] += w[0] * v[2];
    }
};
extern "C" __global__ __launch_bounds__(THREADS) void axpy_dot_2(Gate gate, i64 n, Number a, const real* x, const real* y, real* r, Sum out) {
    begin();
    Loop<AxpyDot2, 3, 1> loop{{0, {0, 0}}, {r, x, y}, {r}};
    loop.ask(n);
    if (closed(gate)) return;
    loop.op.a = value(a);
    loop.run(n);
    grid_sum(loop.op.sum, out);
}

// r ← r + a x; ‖r‖²
struct AxpyNorm {
    real a, sum[1];
    __device__ __forceinline__ void at(const real (&v)[2], real (&w)[1]) {
        w[0] = v[0] + a * v[1];
        sum[0] += w[0] * w[0];
    }
};
extern "C" __global__ __launch_bounds__(THREADS) void axpy_norm(Gate gate, i64 n, Number a, const real* x, real* r, Sum out) {
    begin();
    Loop<AxpyNorm, 2, 1> loop{{0, {0}}, {r, x}, {r}};
    loop.ask(n);
    if (closed(gate)) return;
    loop.op.a = value(a);
    loop.run(n);
    grid_sum(loop.op.sum, out);
}

// x ← x + a p; p ← z + b p
struct AxpyXpby {
    real a, b;
    __device__ __forceinline__ void at(const real (&v)[3], real (&w)[2]) {
        w[0] = v[0] + a * v[1];
        // where b is 0 nothing of p lives on, finite or not
        w[1] = b == real(0) ? v[2] : v[2] + b * v[1];
    }
};
extern "C" __global__ __launch_bounds__(THREADS) void axpy_xpby(Gate gate, i64 n, Number a, real* p, const real* z, Number b, real* x) {
    begin();
    Loop<AxpyXpby, 3, 2> loop{{0, 0}, {x, p, z}, {x, p}};
    loop.ask(n);
    if (closed(gate)) return;
    loop.op.a = value(a);
    loop.op.b = value(b);
    loop.run(n);
}

// y ← d x, entry by entry
struct Multiply {
    __device__ __forceinline__ void at(const real (&v)[2], real (&w)[1]) { w[0] = v[0] * v[1]; }
};
extern "C" __global__ __launch_bounds__(THREADS) void multiply(Gate gate, i64 n, const real* d, const real* x, real* y) {
    begin();
    Loop<Multiply, 2, 1> loop{{}, {d, x}, {y}};
    loop.ask(n);
    if (closed(gate)) return;
    loop.run(n);
}

// y ← d x; ⟨x, y⟩
struct MultiplyDot {
    real sum[1];
    __device__ __forceinline__ void at(const real (&v)[2], real (&w)[1]) {
        w[0] = v[0] * v[1];
        sum[0] += v[1] * w[0];
    }
};
extern "C" __global__ __launch_bounds__(THREADS) void multiply_dot(Gate gate, i64 n, const real* d, const real* x, real* y, Sum out) {
    begin();
    Loop<MultiplyDot, 2, 1> loop{{{0}}, {d, x}, {y}};
    loop.ask(n);
    if (closed(gate)) return;
    loop.run(n);
    grid_sum(loop.op.sum, out);
}

// r ← r + a q; z ← d r; ‖r‖², ⟨r, z⟩
struct AxpyMultiplyDot {
    real a, sum[2];
    __device__ __forceinline__ void at(const real (&v)[3], real (&w)[2]) {
        w[0] = v[0] + a * v[1];
        w[1] = v[2] * w[0];
        sum[0] += w[0] * w[0];
        sum[1] += w[0] * w[1];
    }
};
extern "C" __global__ __launch_bounds__(THREADS) void axpy_multiply_dot(Gate gate, i64 n, Number a, const real* q, const real* d, real* r, real* z, Sum out) {
    begin();
    Loop<AxpyMultiplyDot, 3, 2> loop{{0, {0, 0}}, {r, q, d}, {r, z}};
    loop.ask(n);
    if (closed(gate)) return;
    loop.op.a = value(a);
    loop.run(n);
    grid_sum(loop.op.sum, out);
}
