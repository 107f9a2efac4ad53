// Conjugate gradients on a system that stays on the chip: one launch runs many iterations.
//
// Every block owns some rows. It holds their part of r, q, x and the inverse diagonal in shared memory, a window of p (its
// own rows and those its matrix refers to, the halo), and as much of its matrix as fits beside them. An iteration waits
// for all blocks twice, once for each pair of inner products; z is handed to the blocks whose halo has it through L2.
//
//     q ← A p, σ ← ⟨p, q⟩                                                         first sum
//     α ← ρ/σ, x ← x + α p, r ← r − α q, z ← D⁻¹ r, ‖r‖², ρ' ← ⟨r, z⟩             second sum
//     β ← ρ'/ρ, p ← z + β p, in the halo as well
//
// Moves through L2 what is not on chip: 10 B (f64) or 6 B (f32) a slot beyond the shared memory, and the halo.

constexpr int THREADS = 1024, WARPS = THREADS / 32;

struct System {
    const u32* rows;          // first row of each block, and the end
    const u32* halo_first;    // first halo entry of each block, and the end
    const u32* halo;          // the unknown that each halo entry is
    const u32* slice_first;   // first slice of each block, and the end
    const u32* slices;        // first group of each slice, and the end
    const real* values;       // groups of 32 slots
    const u16* columns;       // places in the block's window
    u32 lanes;                // threads of a row
    u32 window, own;          // the largest of any block
    u32 staged;               // groups that fit into shared memory
};

// A number and the call it belongs to, in words that are written and read whole: whoever finds the call has the number.
struct alignas(16) Letter { u32 low, call, high, again; };

struct Solve {
    Control* control;
    const real* inverse;
    real* x;
    real* r;
    real* p;
    real* z;
    real* rho;
    Letter* letters;          // 2 calls × 2 numbers × blocks
    double* ring;
    u32 width, entries;
    u32 rho_watch, sigma_watch;
    u32 count;                // iterations at most
    u32 call;                 // the first call of this launch; no other launch has it, and none is 0
};

struct Shared {
    real warps[2][WARPS];
    real totals[2];
};

__device__ __forceinline__ void send(Letter* to, double v, u32 call) {
    asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1, %2};" ::"l"(&to->low), "r"((u32)__double2loint(v)), "r"(call) : "memory");
    asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1, %2};" ::"l"(&to->high), "r"((u32)__double2hiint(v)), "r"(call) : "memory");
}

// The sum of the numbers that all blocks sent in a call, those of blocks lane, lane + 32, … here. Letters are asked for
// together, as many at a time as a chip of 256 multiprocessors sends.
__device__ __forceinline__ double receive(const Letter* box, u32 call, u32 lane) {
    constexpr int AT_ONCE = 8;
    double sum = 0;
    for (u32 first = lane; first < gridDim.x; first += AT_ONCE * 32) {
        Letter letter[AT_ONCE];
        bool waiting;
        do {
            waiting = false;
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                if (first + i * 32 < gridDim.x) {
                    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                                 : "=r"(letter[i].low), "=r"(letter[i].call), "=r"(letter[i].high), "=r"(letter[i].again)
                                 : "l"(box + first + i * 32) : "memory");
                }
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                if (first + i * 32 < gridDim.x) waiting |= letter[i].call != call || letter[i].again != call;
            }
        } while (waiting);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            if (first + i * 32 < gridDim.x) sum += __hiloint2double(letter[i].high, letter[i].low);
        }
    }
    return sum;
}

// Waits for all blocks, and adds v over all threads of the grid in a fixed order; everybody gets the sums. `PUBLISH` what
// was written before is seen by everybody after. Letters of a call are overwritten two calls later, when all have read them.
template <int K, bool PUBLISH> __device__ __forceinline__ void meet(real (&v)[K], Letter* letters, Shared& shared, u32& call) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll
    for (int k = 0; k < K; k++) {
        v[k] = warp_sum(v[k]);
        if (lane == 0) shared.warps[k][warp] = v[k];
    }
    __syncthreads();
    if (warp == 0) {
        Letter* const box = letters + (call & 1) * 2 * gridDim.x;
        real sums[K];
#pragma unroll
        for (int k = 0; k < K; k++) sums[k] = warp_sum(shared.warps[k][lane]);
        if (lane == 0) {
            if (PUBLISH) __threadfence();
#pragma unroll
            for (int k = 0; k < K; k++) send(box + k * gridDim.x + blockIdx.x, sums[k], call);
        }
#pragma unroll
        for (int k = 0; k < K; k++) sums[k] = real(receive(box + k * gridDim.x, call, lane));
        if (PUBLISH) __threadfence();
#pragma unroll
        for (int k = 0; k < K; k++) {
            const real sum = warp_sum(sums[k]);
            if (lane == 0) shared.totals[k] = sum;
        }
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < K; k++) v[k] = shared.totals[k];
    call++;
}

extern "C" __global__ __launch_bounds__(THREADS, 1) void resident_cg(System a, Solve s) {
    if (!*(volatile u32*)&s.control->active) return;
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ Shared shared;
    real* const window = (real*)memory;
    real* const r = window + a.window;
    real* const q = r + a.own;
    real* const x = q + a.own;
    real* const inverse = x + a.own;
    real* const values = inverse + a.own;
    u16* const columns = (u16*)(values + (u64)a.staged * 32);

    const u32 thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
    const u32 first = a.rows[blockIdx.x], own = a.rows[blockIdx.x + 1] - first;
    const u32* const halo = a.halo + a.halo_first[blockIdx.x];
    const u32 around = a.halo_first[blockIdx.x + 1] - a.halo_first[blockIdx.x];
    const u32 slice = a.slice_first[blockIdx.x], slices = a.slice_first[blockIdx.x + 1] - slice;
    const u32 group = a.slices[slice], groups = a.slices[slice + slices] - group;
    const u32 staged = groups < a.staged ? groups : a.staged;
    const real* const far_values = a.values + (u64)group * 32;
    const u16* const far_columns = a.columns + (u64)group * 32;

    for (u32 i = thread; i < staged * 32; i += THREADS) {
        values[i] = __ldcs(far_values + i);
        columns[i] = __ldcs(far_columns + i);
    }
    for (u32 i = thread; i < own; i += THREADS) {
        r[i] = s.r[first + i];
        x[i] = s.x[first + i];
        inverse[i] = s.inverse[first + i];
        window[i] = s.p[first + i];
    }
    for (u32 i = thread; i < around; i += THREADS) window[own + i] = __ldcg(s.p + halo[i]);
    real rho = *(volatile real*)s.rho;
    const double threshold = s.control->threshold;
    u64 sequence = s.control->sequence;
    const u64 before = sequence;
    u32 call = s.call, failed = 0;
    real bad = 0;
    bool active = true;
    __syncthreads();

    for (u32 step = 0; step < s.count && active; step++) {
        real sigma[1] = {0};
        for (u32 w = warp; w < slices; w += WARPS) {
            const u32 begin = a.slices[slice + w] - group, end = a.slices[slice + w + 1] - group;
            const u32 near = end < staged ? end : (begin < staged ? staged : begin);
            real sum = 0;
            u32 g = begin;
#pragma unroll 4
            for (; g < near; g++) sum += values[g * 32 + lane] * window[columns[g * 32 + lane]];
#pragma unroll 8
            for (; g < end; g++) sum += __ldg(far_values + (u64)g * 32 + lane) * window[__ldg(far_columns + (u64)g * 32 + lane)];
            for (u32 half = a.lanes / 2; half; half >>= 1) sum += __shfl_down_sync(ALL, sum, half, a.lanes);
            const u32 row = (w * 32 + lane) / a.lanes;
            if (lane % a.lanes == 0 && row < own) {
                q[row] = sum;
                sigma[0] += sum * window[row];
            }
        }
        meet<1, false>(sigma, s.letters, shared, call);
        if (!holds(POSITIVE, rho)) { failed = s.rho_watch; bad = rho; active = false; break; }
        if (!holds(POSITIVE, sigma[0])) { failed = s.sigma_watch; bad = sigma[0]; active = false; break; }

        const real alpha = rho / sigma[0];
        real sums[2] = {0, 0};
        for (u32 i = thread; i < own; i += THREADS) {
            x[i] += alpha * window[i];
            const real ri = r[i] - alpha * q[i], zi = inverse[i] * ri;
            r[i] = ri;
            __stcg(s.z + first + i, zi);
            sums[0] += ri * ri;
            sums[1] += ri * zi;
        }
        meet<2, true>(sums, s.letters, shared, call);

        const real beta = sums[1] / rho;
        rho = sums[1];
        for (u32 i = thread; i < own; i += THREADS) window[i] = inverse[i] * r[i] + beta * window[i];
        for (u32 i = thread; i < around; i += THREADS) window[own + i] = __ldcg(s.z + halo[i]) + beta * window[own + i];
        active = finite(sums[0]) && double(sums[0]) > threshold;
        sequence++;
        if (blockIdx.x == 0 && thread == 0) {
            volatile double* entry = s.ring + (sequence % s.entries) * s.width;
            entry[1] = 0;
            entry[2] = !active;
            entry[3] = 3;
            entry[4] = sums[0];
            entry[5] = alpha;
            entry[6] = beta;
        }
        __syncthreads();
    }

    for (u32 i = thread; i < own; i += THREADS) {
        s.x[first + i] = x[i];
        s.r[first + i] = r[i];
        s.p[first + i] = window[i];
    }
    if (blockIdx.x == 0 && thread == 0) {
        *s.rho = rho;
        if (failed) {
            sequence++;
            volatile double* entry = s.ring + (sequence % s.entries) * s.width;
            entry[1] = failed;
            entry[2] = bad;
            entry[3] = 0;
        }
        s.control->sequence = sequence;
        if (!active) s.control->active = 0;
        __threadfence_system();
        for (u64 known = before + 1; known <= sequence; known++) {
            *(volatile u64*)(s.ring + (known % s.entries) * s.width) = known;
        }
    }
}
