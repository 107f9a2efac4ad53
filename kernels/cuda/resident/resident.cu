// Persistent kernel for conjugate gradients: the system stays on the chip, and one launch runs many iterations.
//
// Every thread block owns some rows. In shared memory it keeps the entries of r, q, x and the inverse diagonal in its
// rows, a window of p (entries in its rows and its halo, the other entries that its rows read), and as much of its rows
// of the matrix as fits. An iteration has two grid-wide synchronizations, one for each set of inner products; entries
// of z that other blocks have in their halos are passed through the L2 cache.
//
//     q ← A p, σ ← ⟨p, q⟩                                                         first sum
//     α ← ρ/σ, x ← x + α p, r ← r − α q, z ← D⁻¹ r, ‖r‖², ρ' ← ⟨r, z⟩             second sum
//     β ← ρ'/ρ, p ← z + β p                                                       also in the halo
//
// Traffic through the L2 cache: 10 B (f64) or 6 B (f32) for each slot that does not fit in shared memory, and the halo.
//
// With a coarse correction, z ← D⁻¹ r + Z E c, c = Zᵀ r, where the columns of Z span the coarse space and E is the
// dense inverse of Zᵀ A Z. Before the first sum, each block computes the contribution of its rows to Zᵀ q, segment by
// segment. After the sum, every block reads all parts and updates c ← c − α Zᵀ q, which deviates from Zᵀ r only by
// accumulated rounding errors, as r does from b − A x. Before the second sum, each block computes its rows of e ← E c
// and their contribution ⟨c, e⟩ to ρ'. Additional traffic: E once, and a few kilobytes a block.

constexpr int WARPS = RESIDENT_THREADS / 32;

struct System {
    const u32* rows;          // first row of each block, and the end
    const u32* halo_first;    // first halo entry of each block, and the end
    const u32* halo;          // unknown of each halo entry
    const u32* slice_first;   // first slice of each block, and the end
    const u32* slices;        // first group of each slice, and the end
    const real* values;       // groups of 32 slots (stored positions)
    const u16* columns;       // indices into the block's window
    u32 lanes;                // lanes per row
    u32 window, own;          // elements of the largest window, and rows of the largest block
    u32 staged;               // number of groups of a block that are kept in shared memory
};

struct Solve {
    Control* control;
    const real* inverse;      // D⁻¹; null for the identity
    real* x;
    real* r;
    real* p;
    real* z;
    real* rho;                // ρ = ⟨r, z⟩
    real* partials;           // [2][2][blocks]: for two calls of `meet`, two numbers of each block
    u32* barrier;             // number of blocks that have arrived, and that have finished
    double* log;              // 3 numbers per iteration
    double* ring;             // in host memory, see `Entry`
    u32 width, entries;       // words of an entry of the ring, and number of entries
    u32 rho_watch, sigma_watch;   // ids with which failures of ρ and σ are reported
    u32 count;                // maximum number of iterations
};

// z ← D⁻¹ r + Z E Zᵀ r. A segment is the intersection of a block and an aggregate.
struct Correction {
    const u16* order;         // local rows of each block, segment by segment
    const u32* segment_first; // first segment of each block, and the end
    const u32* segments;      // start of each segment in `order`, and the end
    const u32* slots;         // position of each segment among all, sorted by aggregate
    const u32* aggregates;    // first position of each aggregate, and the end
    const u32* of_row;        // aggregate of each row; ALL if it has none
    const real* weights;      // entries of Z, [modes][n]: for each mode one per row; null if all are one
    const real* dense;        // E, rows `stride` elements apart
    real* sums;               // partial sums of Zᵀ v: at each position (see `slots`) one per mode
    real* e;                  // E c
    u32 n, modes;             // number of rows, and of columns of Z per aggregate
    u32 unknowns, stride;     // number of coarse unknowns, and elements between rows of E
    u32 numbers;              // elements of shared memory that the correction needs
};

struct Shared {
    real warps[2][WARPS];
    real totals[2];
};

// Grid-wide synchronization and reduction: adds v over all threads of the grid in a fixed order. Every thread receives
// the sums, and all writes before the call are visible to all threads after it.
template <int K> __device__ __forceinline__ void meet(real (&v)[K], const Solve& s, Shared& shared, u32& calls) {
    constexpr int CONCURRENT = 8;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll
    for (int k = 0; k < K; k++) {
        v[k] = warp_sum(v[k]);
        if (lane == 0) shared.warps[k][warp] = v[k];
    }
    __syncthreads();
    if (warp == 0) {
        // two buffers used in turns suffice, because no block is more than one call ahead of another
        real* const partials = s.partials + (calls & 1) * 2 * gridDim.x;
#pragma unroll
        for (int k = 0; k < K; k++) {
            const real sum = warp_sum(shared.warps[k][lane]);
            if (lane == 0) __stcg(partials + k * gridDim.x + blockIdx.x, sum);
        }
        if (lane == 0) {
            const u32 all = (calls + 1) * gridDim.x;
            u32 arrived;
            asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(s.barrier) : "memory");
            do {
                asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(arrived) : "l"(s.barrier) : "memory");
            } while (arrived < all);
        }
        __syncwarp();
        real sums[K] = {};
        for (u32 first = lane; first < gridDim.x; first += CONCURRENT * 32) {
            real part[K][CONCURRENT];
#pragma unroll
            for (int i = 0; i < CONCURRENT; i++)
#pragma unroll
                for (int k = 0; k < K; k++)
                    part[k][i] = first + i * 32 < gridDim.x ? __ldcg(partials + k * gridDim.x + first + i * 32) : real(0);
#pragma unroll
            for (int i = 0; i < CONCURRENT; i++)
#pragma unroll
                for (int k = 0; k < K; k++) sums[k] += part[k][i];
        }
#pragma unroll
        for (int k = 0; k < K; k++) {
            const real sum = warp_sum(sums[k]);
            if (lane == 0) shared.totals[k] = sum;
        }
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < K; k++) v[k] = shared.totals[k];
    calls++;
}

// Computes `count` sums with all warps; if there are fewer sums than warps, `parts` warps share a sum. part(sum, which,
// parts) returns the contribution of a lane of warp `which` of these to the sum with index `sum`. take(index, sum) is
// called once for each sum, by some thread.
template <class Part, class Take> __device__ __forceinline__ void sums_of_warps(u32 count, Shared& shared, Part part, Take take) {
    const u32 thread = threadIdx.x, warp = thread >> 5;
    u32 parts = 1;
    while (parts < WARPS && 2 * parts * count <= WARPS) parts *= 2;
    const u32 together = WARPS / parts;
    for (u32 done = 0; done < count; done += together) {
        const u32 own = done + warp / parts;
        const real sum = warp_sum(own < count ? part(own, warp % parts, parts) : real(0));
        if ((thread & 31) == 0) shared.warps[0][warp] = sum;
        __syncthreads();
        if (thread < together && done + thread < count) {
            real total = 0;
            for (u32 k = 0; k < parts; k++) total += shared.warps[0][thread * parts + k];
            take(done + thread, total);
        }
        __syncthreads();
    }
}

// A block's shared memory for a correction: its segments, and the aggregates of its window.
struct Kept {
    u32* starts;              // start of each segment in `order`, and the end
    u32* slots;               // as in `Correction`
    u32* aggregates;          // first position of each aggregate, and the end
    u16* order;               // local rows, segment by segment
    u16* of_window;           // aggregate of each element of the window; NOWHERE if it has none
    u32 segments;             // number of segments
    real* c;                  // Zᵀ r
    real* e;                  // E c
    real* weights;            // entries of Z in the window's rows: for each mode one per row; null if all are one
    u32 window;               // number of elements of the window
};

constexpr u16 NOWHERE = 0xffff;

// Loads the data of a correction into `memory`, in shared memory, for a block with `own` rows from `first` on and
// `around` halo entries.
__device__ __forceinline__ Kept keep(const Correction& z, real* memory, u32 first, u32 own, const u32* halo, u32 around) {
    const u32 thread = threadIdx.x, segment = z.segment_first[blockIdx.x];
    Kept kept;
    kept.window = own + around;
    kept.segments = z.segment_first[blockIdx.x + 1] - segment;
    kept.c = memory;
    kept.e = kept.c + z.stride;
    kept.weights = z.weights ? kept.e + z.stride : nullptr;
    kept.starts = (u32*)(kept.e + z.stride + (z.weights ? z.modes * kept.window : 0));
    kept.slots = kept.starts + kept.segments + 1;
    kept.aggregates = kept.slots + kept.segments;
    kept.order = (u16*)(kept.aggregates + z.unknowns / z.modes + 1);
    const u32 begin = z.segments[segment], end = z.segments[segment + kept.segments];
    kept.of_window = kept.order + own;
    for (u32 i = thread; i < z.unknowns; i += RESIDENT_THREADS) kept.c[i] = 0;
    if (z.weights) {
        for (u32 i = thread; i < kept.window; i += RESIDENT_THREADS) {
            const u32 row = i < own ? first + i : halo[i - own];
            for (u32 mode = 0; mode < z.modes; mode++) kept.weights[mode * kept.window + i] = z.weights[(u64)mode * z.n + row];
        }
    }
    for (u32 i = thread; i <= kept.segments; i += RESIDENT_THREADS) kept.starts[i] = z.segments[segment + i] - begin;
    for (u32 i = thread; i < kept.segments; i += RESIDENT_THREADS) kept.slots[i] = z.slots[segment + i];
    for (u32 i = thread; i <= z.unknowns / z.modes; i += RESIDENT_THREADS) kept.aggregates[i] = z.aggregates[i];
    for (u32 i = thread; i < end - begin; i += RESIDENT_THREADS) kept.order[i] = z.order[begin + i];
    for (u32 i = thread; i < kept.window; i += RESIDENT_THREADS) kept.of_window[i] = (u16)z.of_row[i < own ? first + i : halo[i - own]];
    return kept;
}

// Writes the partial sums of Zᵀ v over this block's segments, for each mode.
__device__ __forceinline__ void add_segments(const Correction& z, const Kept& kept, const real* v, Shared& shared) {
    const u32 lane = threadIdx.x & 31;
    const auto part = [&](u32 task, u32 part, u32 parts) {
        const u32 segment = task / z.modes, end = kept.starts[segment + 1];
        const real* const weights = kept.weights + task % z.modes * kept.window;
        real sum = 0;
#pragma unroll 2
        for (u32 k = kept.starts[segment] + part * 32 + lane; k < end; k += parts * 32) {
            const u32 row = kept.order[k];
            sum += kept.weights ? weights[row] * v[row] : v[row];
        }
        return sum;
    };
    const auto take = [&](u32 task, real sum) { __stcg(z.sums + kept.slots[task / z.modes] * z.modes + task % z.modes, sum); };
    sums_of_warps(kept.segments * z.modes, shared, part, take);
}

// c ← c + a Zᵀ v, adding the partial sums of all blocks' segments.
__device__ __forceinline__ void add_restricted(const Correction& z, const Kept& kept, real a) {
    for (u32 k = threadIdx.x; k < z.unknowns; k += RESIDENT_THREADS) {
        const u32 aggregate = k / z.modes, mode = k % z.modes, end = kept.aggregates[aggregate + 1];
        real sum = 0;
#pragma unroll 4
        for (u32 place = kept.aggregates[aggregate]; place < end; place++) sum += __ldcg(z.sums + place * z.modes + mode);
        kept.c[k] += a * sum;
    }
}

// Writes this block's rows of e ← E c; returns this thread's part of ⟨c, e⟩.
__device__ __forceinline__ real multiply_dense(const Correction& z, const Kept& kept, Shared& shared) {
    const u32 lane = threadIdx.x & 31;
    const u32 first = (u64)z.unknowns * blockIdx.x / gridDim.x, rows = (u64)z.unknowns * (blockIdx.x + 1) / gridDim.x - first;
    real product = 0;
    const auto part = [&](u32 row, u32 part, u32 parts) {
        const real* const entries = z.dense + (u64)(first + row) * z.stride;
        real sum = 0;
#pragma unroll 8
        for (u32 k = part * 32 + lane; k < z.unknowns; k += parts * 32) sum += __ldg(entries + k) * kept.c[k];
        return sum;
    };
    const auto take = [&](u32 row, real e) {
        __stcg(z.e + first + row, e);
        product += e * kept.c[first + row];
    };
    sums_of_warps(rows, shared, part, take);
    return product;
}

// The row of Z e for an element of the window.
__device__ __forceinline__ real prolonged(const Correction& z, const Kept& kept, u32 row) {
    const u16 aggregate = kept.of_window[row];
    if (aggregate == NOWHERE) return 0;
    if (!kept.weights) return kept.e[aggregate];
    real sum = 0;
#pragma unroll 3
    for (u32 mode = 0; mode < z.modes; mode++) sum += kept.weights[mode * kept.window + row] * kept.e[aggregate * z.modes + mode];
    return sum;
}

template <bool CORRECTED> __device__ __forceinline__ void solve(const System& a, const Solve& s, const Correction& correction) {
    if (!*(volatile u32*)&s.control->active) return;
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ Shared shared;
    // the window of p, the block's part of the other vectors, the data of the correction, and the staged groups
    real* const window = (real*)memory;
    real* const r = window + a.window;
    real* const q = r + a.own;
    real* const x = q + a.own;
    real* const inverse = x + a.own;
    real* const coarse = inverse + a.own;
    real* const values = coarse + (CORRECTED ? correction.numbers : 0);
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

    for (u32 i = thread; i < staged * 32; i += RESIDENT_THREADS) {
        values[i] = __ldcs(far_values + i);
        columns[i] = __ldcs(far_columns + i);
    }
    for (u32 i = thread; i < own; i += RESIDENT_THREADS) {
        r[i] = s.r[first + i];
        x[i] = s.x[first + i];
        inverse[i] = s.inverse ? s.inverse[first + i] : real(1);
        window[i] = s.p[first + i];
    }
    for (u32 i = thread; i < around; i += RESIDENT_THREADS) window[own + i] = __ldcg(s.p + halo[i]);
    const Kept kept = CORRECTED ? keep(correction, coarse, first, own, halo, around) : Kept{};
    real rho = *(volatile real*)s.rho;
    const double threshold = s.control->threshold;
    const u64 before = s.control->sequence;
    u32 made = 0;
    u32 calls = 0, failed = 0;
    real bad = 0;
    bool active = true;
    __syncthreads();
    if (CORRECTED) {
        real nothing[1] = {0};
        add_segments(correction, kept, r, shared);
        meet(nothing, s, shared, calls);
        add_restricted(correction, kept, 1);
        // wait until all blocks have read the sums that the first iteration overwrites
        meet(nothing, s, shared, calls);
    }

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
        if (CORRECTED) {
            __syncthreads();
            add_segments(correction, kept, q, shared);
        }
        meet(sigma, s, shared, calls);
        if (!holds(POSITIVE, rho)) { failed = s.rho_watch; bad = rho; active = false; break; }
        if (!holds(POSITIVE, sigma[0])) { failed = s.sigma_watch; bad = sigma[0]; active = false; break; }

        const real alpha = rho / sigma[0];
        real sums[2] = {0, 0};
        if (CORRECTED) add_restricted(correction, kept, -alpha);
        for (u32 i = thread; i < own; i += RESIDENT_THREADS) {
            x[i] += alpha * window[i];
            const real ri = r[i] - alpha * q[i], zi = inverse[i] * ri;
            r[i] = ri;
            __stcg(s.z + first + i, zi);
            sums[0] += ri * ri;
            sums[1] += ri * zi;
        }
        if (CORRECTED) {
            __syncthreads();
            sums[1] += multiply_dense(correction, kept, shared);
        }
        meet(sums, s, shared, calls);
        if (CORRECTED) {
            for (u32 k = thread; k < correction.unknowns; k += RESIDENT_THREADS) kept.e[k] = __ldcg(correction.e + k);
            __syncthreads();
        }

        const real beta = sums[1] / rho;
        rho = sums[1];
        for (u32 i = thread; i < own; i += RESIDENT_THREADS) {
            real z = inverse[i] * r[i];
            if (CORRECTED) z += prolonged(correction, kept, i);
            window[i] = z + beta * window[i];
        }
        for (u32 i = thread; i < around; i += RESIDENT_THREADS) {
            const u32 row = halo[i];
            real z = __ldcg(s.z + row);
            if (CORRECTED) z += prolonged(correction, kept, own + i);
            window[own + i] = z + beta * window[own + i];
        }
        active = finite(sums[0]) && double(sums[0]) > threshold;
        // numbers are logged in device memory, because the next synchronization would wait for writes to host memory
        if (blockIdx.x == 0 && thread == RESIDENT_THREADS - 1) {
            __stcg(s.log + 3 * made, double(sums[0]));
            __stcg(s.log + 3 * made + 1, double(alpha));
            __stcg(s.log + 3 * made + 2, double(beta));
        }
        made++;
        __syncthreads();
    }

    for (u32 i = thread; i < own; i += RESIDENT_THREADS) {
        s.x[first + i] = x[i];
        s.r[first + i] = r[i];
        s.p[first + i] = window[i];
    }
    if (blockIdx.x == 0) {
        __syncthreads();
        for (u32 i = thread; i < made; i += RESIDENT_THREADS) {
            Entry entry(s.ring, s.width, s.entries, before + 1 + i);
            for (int k = 0; k < 3; k++) entry.number(k, __ldcg(s.log + 3 * i + k));
            entry.done(3, i + 1 == made && !active && !failed);
        }
        if (thread == 0) {
            *s.rho = rho;
            s.control->sequence = before + made + (failed != 0);
            if (!active) s.control->active = 0;
            if (failed) Entry(s.ring, s.width, s.entries, before + 1 + made).failed(failed, bad);
        }
    }
    // the last block to finish resets the barrier for the next launch
    if (thread == 0 && atomicAdd(s.barrier + 1, 1u) == gridDim.x - 1) {
        s.barrier[0] = 0;
        s.barrier[1] = 0;
    }
}
