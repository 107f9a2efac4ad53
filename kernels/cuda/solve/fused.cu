// Fused vector operations of solvers, and products with a diagonal. Separate from vector.cu so that both compile in
// parallel.

// r ← r + a x; ‖r‖², ⟨r, y⟩
struct AxpyDot2 {
    real a, sum[2];
    __device__ __forceinline__ void at(const real (&v)[3], real (&w)[1]) {
        w[0] = v[0] + a * v[1];
        sum[0] += w[0] * w[0];
        sum[1] += w[0] * v[2];
    }
};
extern "C" __global__ __launch_bounds__(THREADS) void axpy_dot_2(Gate gate, i64 n, const __grid_constant__ Several all) {
    begin();
    const Operands& o = all.own();
    real *const x = o.vector[0], *const y = o.vector[1], *const r = o.vector[2];
    Loop<AxpyDot2, 3, 1> loop{{0, {0, 0}}, {r, x, y}, {r}};
    loop.prefetch(n);
    if (closed(gate)) return;
    loop.op.a = value(o.number[0]);
    loop.run(n);
    column_sum(loop.op.sum, o);
}

// r ← r + a x; ‖r‖²
struct AxpyNorm {
    real a, sum[1];
    __device__ __forceinline__ void at(const real (&v)[2], real (&w)[1]) {
        w[0] = v[0] + a * v[1];
        sum[0] += w[0] * w[0];
    }
};
extern "C" __global__ __launch_bounds__(THREADS) void axpy_norm(Gate gate, i64 n, const __grid_constant__ Several all) {
    begin();
    const Operands& o = all.own();
    real *const x = o.vector[0], *const r = o.vector[1];
    Loop<AxpyNorm, 2, 1> loop{{0, {0}}, {r, x}, {r}};
    loop.prefetch(n);
    if (closed(gate)) return;
    loop.op.a = value(o.number[0]);
    loop.run(n);
    column_sum(loop.op.sum, o);
}

// x ← x + a p; p ← z + b p
struct AxpyXpby {
    real a, b;
    __device__ __forceinline__ void at(const real (&v)[3], real (&w)[2]) {
        w[0] = v[0] + a * v[1];
        // if b is 0, p is overwritten even if it is not finite
        w[1] = b == real(0) ? v[2] : v[2] + b * v[1];
    }
};
extern "C" __global__ __launch_bounds__(THREADS) void axpy_xpby(Gate gate, i64 n, const __grid_constant__ Several all) {
    begin();
    const Operands& o = all.own();
    real *const p = o.vector[0], *const z = o.vector[1], *const x = o.vector[2];
    Loop<AxpyXpby, 3, 2> loop{{0, 0}, {x, p, z}, {x, p}};
    loop.prefetch(n);
    if (closed(gate)) return;
    loop.op.a = value(o.number[0]);
    loop.op.b = value(o.number[1]);
    loop.run(n);
}

// y ← d x, elementwise
struct Multiply {
    __device__ __forceinline__ void at(const real (&v)[2], real (&w)[1]) { w[0] = v[0] * v[1]; }
};
extern "C" __global__ __launch_bounds__(THREADS) void multiply(Gate gate, i64 n, const __grid_constant__ Several all) {
    begin();
    const Operands& o = all.own();
    real *const d = o.vector[0], *const x = o.vector[1], *const y = o.vector[2];
    Loop<Multiply, 2, 1> loop{{}, {d, x}, {y}};
    loop.prefetch(n);
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
extern "C" __global__ __launch_bounds__(THREADS) void multiply_dot(Gate gate, i64 n, const __grid_constant__ Several all) {
    begin();
    const Operands& o = all.own();
    real *const d = o.vector[0], *const x = o.vector[1], *const y = o.vector[2];
    Loop<MultiplyDot, 2, 1> loop{{{0}}, {d, x}, {y}};
    loop.prefetch(n);
    if (closed(gate)) return;
    loop.run(n);
    column_sum(loop.op.sum, o);
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
extern "C" __global__ __launch_bounds__(THREADS) void axpy_multiply_dot(Gate gate, i64 n, const __grid_constant__ Several all) {
    begin();
    const Operands& o = all.own();
    real *const q = o.vector[0], *const d = o.vector[1], *const r = o.vector[2], *const z = o.vector[3];
    Loop<AxpyMultiplyDot, 3, 2> loop{{0, {0, 0}}, {r, q, d}, {r, z}};
    loop.prefetch(n);
    if (closed(gate)) return;
    loop.op.a = value(o.number[0]);
    loop.run(n);
    column_sum(loop.op.sum, o);
}

// x ← a d b, elementwise
struct ScaledMultiply {
    real a;
    __device__ __forceinline__ void at(const real (&v)[2], real (&w)[1]) { w[0] = a * v[0] * v[1]; }
};
extern "C" __global__ __launch_bounds__(THREADS) void scaled_multiply(Gate gate, i64 n, const __grid_constant__ Several all) {
    begin();
    const Operands& o = all.own();
    real *const d = o.vector[0], *const b = o.vector[1], *const x = o.vector[2];
    Loop<ScaledMultiply, 2, 1> loop{{0}, {d, b}, {x}};
    loop.prefetch(n);
    if (closed(gate)) return;
    loop.op.a = value(o.number[0]);
    loop.run(n);
}

// x ← x + a d (b − t), elementwise
struct Relax {
    real a;
    __device__ __forceinline__ void at(const real (&v)[4], real (&w)[1]) { w[0] = v[0] + a * v[1] * (v[2] - v[3]); }
};
extern "C" __global__ __launch_bounds__(THREADS) void relax(Gate gate, i64 n, const __grid_constant__ Several all) {
    begin();
    const Operands& o = all.own();
    real *const d = o.vector[0], *const b = o.vector[1], *const t = o.vector[2], *const x = o.vector[3];
    Loop<Relax, 4, 1> loop{{0}, {x, d, b, t}, {x}};
    loop.prefetch(n);
    if (closed(gate)) return;
    loop.op.a = value(o.number[0]);
    loop.run(n);
}
