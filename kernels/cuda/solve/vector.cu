// Simple vector operations: copies, linear combinations and inner products.

struct Copy {
    __device__ __forceinline__ void at(const real (&v)[1], real (&w)[1]) { w[0] = v[0]; }
};
extern "C" __global__ __launch_bounds__(THREADS) void copy(Gate gate, i64 n, const __grid_constant__ Several all) {
    begin();
    const Operands& o = all.own();
    real *const x = o.vector[0], *const y = o.vector[1];
    Loop<Copy, 1, 1> loop{{}, {x}, {y}};
    loop.prefetch(n);
    if (closed(gate)) return;
    loop.run(n);
}

// Negates about half of the entries, pseudo-randomly: entry i if (i + 1) ⌊2⁶⁴ / φ⌋ modulo 2⁶⁴, where φ is the golden
// ratio, has an odd number of set bits.
extern "C" __global__ __launch_bounds__(THREADS) void flip_signs(i64 n, const __grid_constant__ Several all) {
    begin();
    const Operands& o = all.own();
    real *const x = o.vector[0];
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
extern "C" __global__ __launch_bounds__(THREADS) void axpby(Gate gate, i64 n, const __grid_constant__ Several all) {
    begin();
    const Operands& o = all.own();
    real *const x = o.vector[0], *const y = o.vector[1];
    if (closed(gate)) return;
    const real av = value(o.number[0]), bv = value(o.number[1]);
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
extern "C" __global__ __launch_bounds__(THREADS) void axpbypcz(Gate gate, i64 n, const __grid_constant__ Several all) {
    begin();
    const Operands& o = all.own();
    real *const x = o.vector[0], *const y = o.vector[1], *const z = o.vector[2];
    if (closed(gate)) return;
    const real av = value(o.number[0]), bv = value(o.number[1]), cv = value(o.number[2]);
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
extern "C" __global__ __launch_bounds__(THREADS) void dot(i64 n, const __grid_constant__ Several all) {
    begin();
    const Operands& o = all.own();
    real *const x = o.vector[0], *const y = o.vector[1];
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
    column_sum(sum, o);
}

// ⟨x, y⟩, ⟨x, z⟩; if z is x, it is read once
struct Dot2 {
    real sum[2];
    __device__ __forceinline__ void at(const real (&v)[3], real (&)[1]) { sum[0] += v[0] * v[1]; sum[1] += v[0] * v[2]; }
};
struct DotSquare {
    real sum[2];
    __device__ __forceinline__ void at(const real (&v)[2], real (&)[1]) { sum[0] += v[0] * v[1]; sum[1] += v[0] * v[0]; }
};
extern "C" __global__ __launch_bounds__(THREADS, 4) void dot_2(i64 n, const __grid_constant__ Several all) {
    begin();
    const Operands& o = all.own();
    real *const x = o.vector[0], *const y = o.vector[1], *const z = o.vector[2];
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
    column_sum(sum, o);
}
