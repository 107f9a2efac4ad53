// The part of a conjugate gradient iteration between two products, in one launch with one grid-wide synchronization,
// where d is the diagonal of M⁻¹ and ρ is ⟨r, z⟩ of the iteration before:
//
//     r ← r − α q;  z = d r;  ‖r‖², ρ' = ⟨r, z⟩        all blocks wait for the sums
//     x ← x + α p;  p ← z + ρ'/ρ p
//
// As much of z as fits is kept in shared memory; the rest is recomputed from r and d. Reads r, q, d, x and p, and
// writes r, x and p: eight vectors, plus r and d for the part of z that is not kept. Two separate launches read or
// write ten vectors.
//
// Time of an iteration on an H200 (f64), with this launch and with two launches instead: st7_128 by diagonals 0.0779
// and 0.0910 ms; a matrix with the bytes of el3_100M 0.1476 and 0.1581; one with those of p1_100M, where half of z is
// kept, 0.335 and 0.357. Time of whole solves, relative to the time for moving the bytes of the format and 11 vectors:
// st7_128 1.12 (DIA), el3_100M_perm in clusters 1.18 (symmetric blocks) and 1.09 (Halo), p1_100M_perm in clusters 1.07
// (Halo). In all these measurements launches of this kernel were prepared early, too, which saves about 0.001 ms for a
// kernel that follows another (launch.rs).
//
// Not implemented: ending the iteration in this launch would save 0.0023 ms an iteration; recording four iterations in
// one graph would save 0.0014 ms an iteration. Tried without gain (ms for st7_128, and for p1_100M if two numbers are
// given): more threads with fewer loads in flight (768 with three 0.0799; 1024 with two 0.083); fewer threads with more
// loads (256 with eight 0.0787 and 0.345); traversing r backwards, because the end of q was written last (no change);
// loading x and d with a streaming hint (0.0802 and 0.344).

extern __shared__ __align__(16) unsigned char shared_memory[];

__device__ __forceinline__ Pack load(const real* p) { return *(const Pack*)p; }
__device__ __forceinline__ void store(real* p, const Pack& v) { *(Pack*)p = v; }

// Adds v over all threads of the grid; every thread gets the sums. All blocks must be resident.
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
            // block 0 sends and all blocks receive, so that every block has the sums of other devices without a second
            // grid-wide synchronization
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
            // every block has read the counter, because it has sent its sums
            *sum.calls = call;
            if (team) *team->calls = together;
        }
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < K; k++) v[k] = totals[k];
}

// Number of packs of each vector that a thread has in flight, with one block per multiprocessor.
constexpr int DEPTH = 4;

struct Three { Pack r, q, d; };
struct Two { Pack x, p; };

extern "C" __global__ __launch_bounds__(ADVANCE_THREADS, 1) void advance(
    Gate gate, i64 n, Number alpha, Number rho, const real* q, const real* d, real* x, real* r, real* p, u32 kept, Sum out) {
    begin();
    Pack* const z = (Pack*)shared_memory + threadIdx.x;
    const i64 packs = n / PACK, step = (i64)gridDim.x * blockDim.x, first = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const auto prefetch = [&](Three& v, i64 pack) {
        if (pack >= packs) return;
        v.r = load(r + pack * PACK), v.q = load(q + pack * PACK), v.d = load(d + pack * PACK);
    };
    Three three[DEPTH];
#pragma unroll
    for (int k = 0; k < DEPTH; k++) prefetch(three[k], first + k * step);
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
            prefetch(three[k], i + DEPTH * step);
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
    // load x and p before waiting for the sums
    const auto load_two = [&](Two& v, u32 turn) {
        if (turn >= turns) return;
        const i64 at = (first + turn * step) * PACK;
        v.x = load(x + at), v.p = load(p + at);
    };
    Two two[DEPTH];
#pragma unroll
    for (int k = 0; k < DEPTH; k++) load_two(two[k], turns - 1 - k);
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
            load_two(two[k], turn - DEPTH);
            turn--;
        }
    }
    if (rest < n) {
        const real old = p[rest];
        x[rest] += a * old;
        p[rest] = b == real(0) ? z_rest : z_rest + b * old;
    }
}
