// What conjugate gradients do between two products, in one launch whose blocks meet once:
//
//     r ← r − α q;  z = d r;  ‖r‖², ρ' = ⟨r, z⟩        all blocks wait for the sums
//     x ← x + α p;  p ← z + ρ'/ρ p
//
// z is kept on the chip, as much of it as fits; of the rest it is computed again from r and d. Moves r, q, d and r; x, p and x, p:
// eight vectors, and r and d of what is not kept, where two launches move ten.
//
// The step of st7_128 by diagonals takes 0.0779 ms on an H200, of two launches instead 0.0910; of a matrix with the bytes of
// el3_100M 0.1476, 0.1581; with those of p1_100M, of which half of z is kept, 0.335, 0.357 (f64). In whole solves, against
// the bytes of the format and 11 vectors: st7_128 1.12 (DIA), el3_100M_perm in clusters 1.18 (symmetric blocks) and 1.09
// (Halo), p1_100M_perm in clusters 1.07 (Halo). All of this was measured while launches of this kernel, too, were prepared
// early, which takes about 0.001 ms off a kernel behind another (launch.rs).
//
// Left to be gained: the end of the step as a part of this launch takes 0.0023 ms less, four steps in a recording 0.0014 a
// step. Tried: more threads, each with fewer loads on their way (768 with three 0.0799; 1024 with two 0.083), fewer with more
// (256 with eight 0.0787, 0.345 for p1_100M); packs of r from the last to the first, for q has just been written there (the
// same); x and d as streams that need not stay in the L2 cache (0.0802 and 0.344).

extern __shared__ __align__(16) unsigned char shared_memory[];

__device__ __forceinline__ Pack load(const real* p) { return *(const Pack*)p; }
__device__ __forceinline__ void store(real* p, const Pack& v) { *(Pack*)p = v; }

// Adds v over all threads of the grid; all threads have the sums. Blocks must all be on the chip.
template <int K> __device__ __forceinline__ void sum_everywhere(real (&v)[K], const Sum& sum) {
    const Team* const team = sum.team;
    __shared__ real totals[K];
    const u32 call = *(volatile u32*)sum.calls + 1;
    const u32 together = team ? *(volatile u32*)team->calls + 1 : 0;
    block_sum(v);
    if (threadIdx.x == 0) {
#pragma unroll
        for (int k = 0; k < K; k++) send(sum.parcels + (u64)k * gridDim.x + blockIdx.x, v[k], call);
    }
    real total[K] = {};
    for (u32 from = threadIdx.x; from < gridDim.x; from += blockDim.x) {
#pragma unroll
        for (int k = 0; k < K; k++) {
            real part;
            while (!received(sum.parcels + (u64)k * gridDim.x + from, call, part)) {}
            total[k] += part;
        }
    }
    block_sum(total);
    if (threadIdx.x == 0) {
        if (team) {
            // one block sends, all receive: the sums of the devices reach every block without another meeting
            if (blockIdx.x == 0) {
#pragma unroll
                for (int k = 0; k < K; k++) send_to_team(*team, total[k], k, together);
            }
#pragma unroll
            for (int k = 0; k < K; k++) total[k] = receive_from_team(*team, k, together);
        }
#pragma unroll
        for (int k = 0; k < K; k++) totals[k] = total[k];
        if (blockIdx.x == 0) {
#pragma unroll
            for (int k = 0; k < K; k++) *sum.results[k] = total[k];
            // all have read it, for all have sent
            *sum.calls = call;
            if (team) *team->calls = together;
        }
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < K; k++) v[k] = totals[k];
}

// Packs of each vector that a thread has on their way, in one block a multiprocessor.
constexpr int DEPTH = 4;

struct Three { Pack r, q, d; };
struct Two { Pack x, p; };

extern "C" __global__ __launch_bounds__(ADVANCE_THREADS, 1) void advance(
    Gate gate, i64 n, Number alpha, Number rho, const real* q, const real* d, real* x, real* r, real* p, u32 kept, Sum out) {
    begin();
    Pack* const z = (Pack*)shared_memory + threadIdx.x;
    const i64 packs = n / PACK, step = (i64)gridDim.x * blockDim.x, first = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const auto ask = [&](Three& v, i64 pack) {
        if (pack >= packs) return;
        v.r = load(r + pack * PACK), v.q = load(q + pack * PACK), v.d = load(d + pack * PACK);
    };
    Three three[DEPTH];
#pragma unroll
    for (int k = 0; k < DEPTH; k++) ask(three[k], first + k * step);
    const i64 rest = packs * PACK + first;
    if (closed(gate)) return;
    const real a = value(alpha), before = value(rho);
    real sum[2] = {0, 0};
    const auto take = [&](const Three& v, i64 pack, u32 turn) {
        Pack w, u;
#pragma unroll
        for (int k = 0; k < PACK; k++) {
            w.at[k] = v.r.at[k] - a * v.q.at[k];
            u.at[k] = v.d.at[k] * w.at[k];
            sum[0] += w.at[k] * w.at[k];
            sum[1] += w.at[k] * u.at[k];
        }
        store(r + pack * PACK, w);
        if (turn < kept) z[turn * ADVANCE_THREADS] = u;
    };
    u32 turns = 0;
    for (i64 i = first; i < packs;) {
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            if (i >= packs) break;
            take(three[k], i, turns++);
            ask(three[k], i + DEPTH * step);
            i += step;
        }
    }
    real z_rest = 0;
    if (rest < n) {
        const real w = r[rest] - a * q[rest];
        z_rest = d[rest] * w;
        sum[0] += w * w, sum[1] += w * z_rest;
        r[rest] = w;
    }
    // what comes after the sums is asked for before
    const auto ask_two = [&](Two& v, u32 turn) {
        if (turn >= turns) return;
        const i64 at = (first + turn * step) * PACK;
        v.x = load(x + at), v.p = load(p + at);
    };
    Two two[DEPTH];
#pragma unroll
    for (int k = 0; k < DEPTH; k++) ask_two(two[k], turns - 1 - k);
    sum_everywhere(sum, out);
    const real b = sum[1] / before;
    const auto finish = [&](const Two& v, u32 turn) {
        const i64 at = (first + turn * step) * PACK;
        Pack u, w, s;
        if (turn < kept) {
            u = z[turn * ADVANCE_THREADS];
        } else {
            const Pack rr = load(r + at), dd = load(d + at);
#pragma unroll
            for (int k = 0; k < PACK; k++) u.at[k] = dd.at[k] * rr.at[k];
        }
#pragma unroll
        for (int k = 0; k < PACK; k++) {
            w.at[k] = v.x.at[k] + a * v.p.at[k];
            s.at[k] = b == real(0) ? u.at[k] : u.at[k] + b * v.p.at[k];
        }
        store(x + at, w);
        store(p + at, s);
    };
    for (u32 turn = turns - 1; turn < turns;) {
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            if (turn >= turns) break;
            finish(two[k], turn);
            ask_two(two[k], turn - DEPTH);
            turn--;
        }
    }
    if (rest < n) {
        const real old = p[rest];
        x[rest] += a * old;
        p[rest] = b == real(0) ? z_rest : z_rest + b * old;
    }
}
