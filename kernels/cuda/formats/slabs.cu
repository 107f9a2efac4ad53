// Coordinates in slabs of columns: y_i ← Σ v_k x_{c_k} over the entries k with row i, where x is read from shared
// memory.
//
// With scattered columns, each entry of x (4 or 8 B) costs a sector (32 B) of the L2 cache, which dominates the time of
// a product. So columns are cut into slabs whose part of x fits in the shared memory of a block, and entries are sorted
// by slab, then by row:
//
//     a block copies its slab's part of x, and its warps multiply chunks of its entries, 8 consecutive ones per lane;
//     each lane sums its products row by row, then the warp adds the sums that belong to one row;
//     the partial sums of a chunk's rows are written to memory contiguously;
//     a second kernel loads the partial sums of a bin (consecutive rows) from all slabs into shared memory, each to its
//     position in its row, and sums the rows.
//
// (In f32 on an H200: lp_like 0.0275 ms instead of 0.0868 by rows, rmat20 0.0395 instead of 0.0591; slower for
// webbase_like, most of whose partial sums have one entry, 0.0219 instead of 0.0182.)
//
// A row that continues in another chunk begins a new partial sum there: no carries, no atomic additions, and every
// product is bitwise the same.
//
// Memory traffic: 10.5 B (f64) or 6.5 B (f32) an entry, 18 B or 10 B a sum, 8 B for each slab in each bin, 2 B a row, a
// slab's part of x for each block of the slab, and y.

// Number of values per load.
constexpr int WIDE = 16 / sizeof(stored) < OWN ? 16 / sizeof(stored) : OWN;
// Rows with more partial sums than this are summed by all lanes.
constexpr int LONG = 24;

struct Slabs {
    const u16* columns;       // of each slot, within its slab
    const stored* values;     // zero in the padding of a slab
    // of each lane: a bit for each slot that begins a sum, plus 2¹⁶ times the number of sums that begin in earlier
    // lanes
    const u32* starts;
    const u32* first;         // first sum of each chunk
    const uint4* shares;      // of each block: first chunk, chunks, first column, columns
    real* sums;
};

struct Bins {
    const uint2* runs;        // consecutive sums of one slab that belong to one bin: first, count
    const u32* first_run;     // first run of each bin, and the end
    const u16* places;        // position of each sum in shared memory, row by row
    const u32* rows;          // first row of each bin, and the end
    const u16* offsets;       // start of each row's sums in shared memory, and for each bin the end
    const real* sums;
    u32 most_sums;            // maximum number of sums per bin
};

// A lane's part of a chunk.
struct Owned {
    Few<u16, OWN> columns;
    Few<stored, WIDE> values[OWN / WIDE];
    u32 starts, first;

    __device__ __forceinline__ void load(const Slabs& a, i64 chunk, u32 lane) {
        starts = __ldcs(a.starts + (chunk * 32 + lane));
        first = __ldg(a.first + chunk);
        columns = stream((const Few<u16, OWN>*)a.columns + (chunk * 32 + lane));
#pragma unroll
        for (int g = 0; g < OWN / WIDE; g++) {
            values[g] = stream((const Few<stored, WIDE>*)a.values + ((chunk * (OWN / WIDE) + g) * 32 + lane));
        }
    }
};

// Position of a sum in shared memory, padded to prevent bank conflicts, because the first sums of the lanes are at
// about equal distances.
__device__ __forceinline__ constexpr int spread(int sum) { return sum + sum / 16; }
static_assert(PLACES == spread(CHUNK) + 1, "the sums of a chunk, and one place before the first");

// Starts an asynchronous copy of 16 bytes into shared memory; `gathered` waits for it.
__device__ __forceinline__ void gather_pack(real* to, const real* from) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from) : "memory");
#else
    *(Pack*)to = *(const Pack*)from;
#endif
}

// Shared memory: packs of x for the columns of a slab, then the sums of each warp.
template <int BLOCK> __device__ __forceinline__ void multiply(const Slabs& a, const real* x) {
    constexpr int TEAM = BLOCK / 32;
    extern __shared__ Pack shared[];
    real* window = shared[0].at;
    const uint4 share = __ldg(a.shares + blockIdx.x);
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, packs = share.w / PACK;
    const i64 end = (i64)share.x + share.y;
    Owned own;
    i64 chunk = (i64)share.x + warp;
    if (chunk < end) own.load(a, chunk, lane);
    for (u32 i = threadIdx.x; i < packs; i += BLOCK) gather_pack(window + i * PACK, x + share.z + i * PACK);
    for (u32 i = packs * PACK + threadIdx.x; i < share.w; i += BLOCK) gather(window + i, x + share.z + i);
    gathered();

    real* sums = window + (share.w + PACK - 1) / PACK * PACK + warp * PLACES + 1;
    for (; chunk < end; chunk += TEAM) {
        Owned next;
        if (chunk + TEAM < end) next.load(a, chunk + TEAM, lane);
        const u32 begins = own.starts & 0xffffu;
        const int before = int(own.starts >> 16) - 1;
        // index of the lane's current sum, which at first is one that began in an earlier lane
        int at = before;
        real sum = 0;
#pragma unroll
        for (int k = 0; k < OWN; k++) {
            const real product = own.values[k / WIDE].at[k % WIDE] * window[own.columns.at[k]];
            if (begins >> k & 1) {
                sums[spread(at)] = sum;
                at++;
                sum = product;
            } else {
                sum += product;
            }
        }
        sum = scan_rows(sum, __ballot_sync(ALL, begins != 0));
        const real sum_before = __shfl_up_sync(ALL, sum, 1);
        if (begins && lane > 0) sums[spread(before)] += sum_before;
        if (lane == 31) sums[spread(at)] = sum;
        const int last = __shfl_sync(ALL, at, 31);
        __syncwarp();
        for (int i = lane; i <= last; i += 32) a.sums[own.first + i] = sums[spread(i)];
        __syncwarp();
        own = next;
    }
}

// Resident blocks per multiprocessor; before sm_80, shared memory suffices for one only.
#if __CUDA_ARCH__ >= 800
constexpr int RESIDENT = SLAB_BLOCKS;
#else
constexpr int RESIDENT = 1;
#endif
extern "C" __global__ __launch_bounds__(SLAB_THREADS, RESIDENT) void slabs(Slabs a, const real* x) { begin(); multiply<SLAB_THREADS>(a, x); }
// Kernel with wide slabs, one block per multiprocessor. If there are about as many slabs as resident blocks, fewer
// slabs mean fewer partial sums and fewer copies of x: rmat_33M 0.231 ms instead of 0.256, lp_like 0.0391 instead of
// 0.0434, f64.
extern "C" __global__ __launch_bounds__(WIDE_SLAB_THREADS) void slabs_wide(Slabs a, const real* x) { begin(); multiply<WIDE_SLAB_THREADS>(a, x); }

// Number of runs in flight per lane.
constexpr int AHEAD = 4;

// Each block processes a bin. LANES lanes load a run, which has at most LANES sums. Shared memory holds the sums of the
// bin and the offsets of its rows.
template <int LANES> __device__ __forceinline__ void finish(const Bins& a, real* y) {
    constexpr int CONCURRENT = THREADS / LANES;
    extern __shared__ Pack shared[];
    real* of_bin = shared[0].at;
    u16* offsets = (u16*)(of_bin + a.most_sums);
    const u32 lane = threadIdx.x % 32, bin = blockIdx.x;
    const u32 first = __ldg(a.rows + bin), count = __ldg(a.rows + bin + 1) - first;
    const u32 end = __ldg(a.first_run + bin + 1);
    for (u32 row = threadIdx.x; row <= count; row += THREADS) offsets[row] = __ldcs(a.offsets + (first + bin + row));
    for (u32 at = __ldg(a.first_run + bin) + threadIdx.x / LANES; at < end; at += CONCURRENT * AHEAD) {
        uint2 run[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) run[u] = at + u * CONCURRENT < end ? __ldg(a.runs + at + u * CONCURRENT) : make_uint2(0, 0);
        u16 place[AHEAD];
        real sum[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            if (threadIdx.x % LANES < run[u].y) {
                place[u] = __ldcs(a.places + (run[u].x + threadIdx.x % LANES));
                sum[u] = __ldcs(a.sums + (run[u].x + threadIdx.x % LANES));
            }
        }
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            if (threadIdx.x % LANES < run[u].y) of_bin[place[u]] = sum[u];
        }
    }
    __syncthreads();
    for (u32 rows = threadIdx.x - lane; rows < count; rows += THREADS) {
        const u32 row = rows + lane;
        const int from = row < count ? offsets[row] : 0, to = row < count ? offsets[row + 1] : 0;
        const bool is_long = to - from > LONG;
        real sum = 0;
        if (!is_long) {
            for (int k = from; k < to; k++) sum += of_bin[k];
        }
        for (u32 left = __ballot_sync(ALL, is_long); left; left &= left - 1) {
            const int whose = __ffs(left) - 1;
            const int begin = __shfl_sync(ALL, from, whose), stop = __shfl_sync(ALL, to, whose);
            real part = 0;
            for (int k = begin + (int)lane; k < stop; k += 32) part += of_bin[k];
            part = warp_sum(part);
            if ((int)lane == whose) sum = part;
        }
        if (row < count) y[first + row] = sum;
    }
}
extern "C" __global__ __launch_bounds__(THREADS) void slabs_finish_8(Bins a, real* y) { begin(); finish<8>(a, y); }
extern "C" __global__ __launch_bounds__(THREADS) void slabs_finish_16(Bins a, real* y) { begin(); finish<16>(a, y); }

// Copies values from CSR entries to slots, or back. `of` has the entry of each slot, NONE for padding.
extern "C" __global__ __launch_bounds__(THREADS) void slabs_copy_values(const u32* of, i64 slots, real* entries, stored* values, u32 back) {
    begin();
    const i64 threads = (i64)gridDim.x * blockDim.x;
    for (i64 slot = (i64)blockIdx.x * blockDim.x + threadIdx.x; slot < slots; slot += threads) {
        const u32 entry = of[slot];
        if (entry == NONE) continue;
        const i64 chunk = slot / CHUNK, k = slot % OWN;
        const i64 group = chunk * (OWN / WIDE) + k / WIDE;
        copy_value(entries[entry], values[(group * 32 + slot % CHUNK / OWN) * WIDE + k % WIDE], back);
    }
}
