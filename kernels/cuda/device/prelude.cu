// Beginning of every file of kernels: types, scalars that stay on the device, gates, and sums over a grid. REAL is the
// arithmetic type, double or float; STORED is the storage type of matrix values, the same or one with fewer bits. No
// library headers.

typedef REAL real;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

// bfloat16: the upper half of a float.
struct bfloat {
    u16 bits;

    bfloat() = default;
    // Rounds to nearest, ties to even; a carry out of the fraction goes into the exponent. A NaN stays a NaN.
    __device__ __forceinline__ bfloat(float v) {
        const u32 all = __float_as_uint(v);
        bits = v == v ? (all + 0x7fffu + (all >> 16 & 1)) >> 16 : all >> 16 | 0x40u;
    }
    __device__ __forceinline__ operator float() const { return __uint_as_float((u32)bits << 16); }
};
__device__ __forceinline__ bfloat __ldcs(const bfloat* p) {
    bfloat v;
    v.bits = __ldcs((const u16*)p);
    return v;
}

// The storage type of matrix values: the arithmetic type, or one with fewer bits, as float for double. Values are
// widened when they are multiplied, so that loads do not wait for the conversion. In all files, comments on the bytes
// moved assume that both types are equal.
typedef STORED stored;

constexpr u32 ALL = 0xffffffffu;

// Elements of a 16-byte load.
constexpr int PACK = PACK_BYTES / sizeof(real);
struct alignas(PACK_BYTES) Pack { real at[PACK]; };
// Number of stored values per load.
constexpr int VALUES = PACK_BYTES / sizeof(stored) < MOST_VALUES ? PACK_BYTES / sizeof(stored) : MOST_VALUES;

// N neighbouring elements, loaded together.
template <class X, int N> struct alignas(sizeof(X) * N) Few { X at[N]; };

// Loads data that is used once, with a streaming cache hint.
template <class X, int N> __device__ __forceinline__ Few<X, N> stream(const Few<X, N>* p) {
    constexpr int BYTES = sizeof(Few<X, N>);
    static_assert(BYTES == 2 || BYTES == 4 || BYTES == 8 || BYTES == 16, "one load");
    Few<X, N> few;
    if constexpr (BYTES == 2) *(u16*)&few = __ldcs((const u16*)p);
    if constexpr (BYTES == 4) *(u32*)&few = __ldcs((const u32*)p);
    if constexpr (BYTES == 8) *(uint2*)&few = __ldcs((const uint2*)p);
    if constexpr (BYTES == 16) *(uint4*)&few = __ldcs((const uint4*)p);
    return few;
}

// ---- order of kernels

// First statement of every kernel: waits until the previous kernel has ended and its writes are visible (programmatic
// dependent launch). A launch is prepared while the previous kernel runs.
__device__ __forceinline__ void begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// ---- patterns

// Offsets of rows in arrays of entries.
struct RowStarts {
    const void* offsets;      // one per row, and the end: 64 bits each if `wide`, otherwise 32
    u32 count, wide;

    __device__ __forceinline__ i64 start(i64 row) const {
        return wide ? (i64)((const u64*)offsets)[row] : (i64)((const u32*)offsets)[row];
    }
    // The last row in [low, high) that starts at or before an entry. Row `low` must start at or before the entry.
    __device__ __forceinline__ i64 row_of(i64 entry, i64 low, i64 high) const {
        while (high - low > 1) {
            const i64 middle = (low + high) / 2;
            if (start(middle) <= entry) {
                low = middle;
            } else {
                high = middle;
            }
        }
        return low;
    }
};

// Copies the value of an entry to its slot (position in a format's value array), rounded to the storage type; in the
// opposite direction if `back`.
__device__ __forceinline__ void copy_value(real& entry, stored& slot, u32 back) {
    if (back) {
        entry = slot;
    } else {
        slot = entry;
    }
}

// ---- scalars

// The number factor · Π above / Π below. Kernels that use it evaluate it, so that a quotient needs no launch.
struct Number {
    real factor;
    u32 zero_over_zero;       // whether 0/0 is 0
    const real* above[TERMS]; // cells (scalars in device memory) of the numerator; null if unused
    const real* below[TERMS]; // cells of the denominator; null if unused
};

__device__ __forceinline__ real value(const Number& n) {
    real up[TERMS], down[TERMS];
#pragma unroll
    for (int i = 0; i < TERMS; i++) {
        up[i] = n.above[i] ? *(volatile const real*)n.above[i] : real(1);
        down[i] = n.below[i] ? *(volatile const real*)n.below[i] : real(1);
    }
    real v = n.factor;
#pragma unroll
    for (int i = 0; i < TERMS; i++) {
        if (n.above[i]) v *= up[i];
        if (n.below[i]) v = n.zero_over_zero && v == real(0) && down[i] == real(0) ? real(0) : v / down[i];
    }
    return v;
}

__device__ __forceinline__ bool finite(double v) { return v - v == 0.0; }

// ---- gates

// State of a solve that determines whether its queued steps (iterations) still change vectors.
struct Control {
    u32 active;               // 0 once the solve has ended: its vectors do not change any more
    u32 failed;               // id of the watch that ended it, counted from 1; 0 for none
    double failed_value;
    double threshold;         // the solve ends once ‖r‖² is at most this
    u64 sequence;             // number of steps reported to the host so far
};

struct Watch {
    Number number;
    u32 condition;            // FINITE, NONZERO or POSITIVE
    u32 id;                   // reported as `failed` if the number fails the condition
};

// Condition that is checked before every change of a vector within a step. `control` is null if no step is being
// queued.
struct Gate {
    Control* control;
    u32 watches;
    Watch watch[WATCHES];
};

__device__ __forceinline__ bool holds(u32 condition, double v) {
    return finite(v) && (condition == FINITE || (condition == NONZERO ? v != 0.0 : v > 0.0));
}

// Whether the solve has ended, so that vectors must not change. All threads of a launch get the same answer: a launch
// clears `active` only because a watched number failed, and every thread evaluates that number itself.
__device__ __forceinline__ bool closed(const Gate& gate) {
    if (!gate.control) return false;
    bool active = *(volatile u32*)&gate.control->active;
    double v[WATCHES];
    // unused watches have constant numbers, so all can be loaded together
#pragma unroll
    for (int i = 0; i < WATCHES; i++) v[i] = value(gate.watch[i].number);
#pragma unroll
    for (int i = 0; i < WATCHES; i++) {
        if (i >= gate.watches || !active || holds(gate.watch[i].condition, v[i])) continue;
        active = false;
        if (blockIdx.x == 0 && threadIdx.x == 0) {
            gate.control->failed = gate.watch[i].id;
            gate.control->failed_value = v[i];
            gate.control->active = 0;
        }
    }
    return !active;
}

// ---- reports to the host

// An entry of a ring buffer in host memory: [kind, count of numbers or id of the failed watch, numbers…]. Every word is
// empty (all bits set) before the device writes it, and the host waits until no word that it needs is empty. So words
// may arrive in any order, and the device does not wait for them.
struct Entry {
    volatile double* words;

    __device__ __forceinline__ Entry(double* ring, u32 width, u32 entries, u64 sequence)
        : words(ring + (sequence % entries) * width) {}
    __device__ __forceinline__ void word(u32 at, double v) {
        // a NaN with all bits set would look empty
        words[at] = v == v ? v : __longlong_as_double(0x7ff8000000000000ll);
    }
    __device__ __forceinline__ void number(u32 at, double v) { word(HEAD + at, v); }
    __device__ __forceinline__ void done(u32 numbers, bool last) {
        word(1, numbers);
        word(0, last ? LAST : GOES_ON);
    }
    __device__ __forceinline__ void failed(u32 watch, double v) {
        number(0, v);
        word(1, watch);
        word(0, FAILED);
    }
};

// ---- sums over a grid, in an order that depends only on the launch

// A number passed from one block to another. Each word has 32 bits of the number and the index of the call (reduction),
// and is written atomically: the sender does not wait, and the receiver needs no fence.
constexpr int WORDS = sizeof(real) / 4;
struct alignas(8 * WORDS) Parcel { u64 word[WORDS]; };

__device__ __forceinline__ void send(Parcel* to, real v, u32 call) {
    const u64 tag = (u64)call << 32;
    if constexpr (WORDS == 1) {
        asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(tag | __float_as_uint(v)) : "memory");
    } else {
        const u64 bits = __double_as_longlong(v);
        asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(tag | (bits & 0xffffffffu)), "l"(tag | bits >> 32) : "memory");
    }
}
// Whether the number sent in this call has arrived; if so, writes it to `v`.
__device__ __forceinline__ bool received(const Parcel* from, u32 call, real& v) {
    u64 low, high;
    if constexpr (WORDS == 1) {
        asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(low) : "l"(from) : "memory");
        v = __uint_as_float((u32)low);
        return low >> 32 == call;
    } else {
        asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(low), "=l"(high) : "l"(from) : "memory");
        v = __longlong_as_double(high << 32 | (low & 0xffffffffu));
        return low >> 32 == call && high >> 32 == call;
    }
}
// Waits for the parcels of all blocks, and adds their values. A thread receives several parcels, CONCURRENT at a
// time.
template <int K> __device__ __forceinline__ void collect(real (&sums)[K], const Parcel* parcels, u32 call) {
    constexpr int CONCURRENT = 4;
    const u32 stride = blockDim.x;
    for (u32 from = threadIdx.x; from < gridDim.x; from += CONCURRENT * stride) {
        real part[K][CONCURRENT];
        bool all;
        do {
            all = true;
#pragma unroll
            for (int i = 0; i < CONCURRENT; i++)
#pragma unroll
                for (int k = 0; k < K; k++) {
                    const Parcel* parcel = parcels + (u64)k * gridDim.x + min(from + i * stride, gridDim.x - 1);
                    all &= received(parcel, call, part[k][i]);
                }
        } while (!all);
#pragma unroll
        for (int i = 0; i < CONCURRENT; i++)
#pragma unroll
            for (int k = 0; k < K; k++) sums[k] += from + i * stride < gridDim.x ? part[k][i] : real(0);
    }
}

// ---- sums over a team of devices

// The devices that share the vectors of a solve. Each has a mailbox that all of them write to.
struct Team {
    u32 members, own;         // number of members, and index of this device
    u32* calls;               // number of reductions over the team before this one
    volatile u32* notice;     // in host memory: see `Wait`
    Parcel* mail[TEAM_MEMBERS];  // mailbox of each member: [2][members][TEAM_MAIL] parcels
};

__device__ __forceinline__ void send_to_member(Parcel* to, real v, u32 call) {
    const u64 tag = (u64)call << 32;
    if constexpr (WORDS == 1) {
        asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(tag | __float_as_uint(v)) : "memory");
    } else {
        const u64 bits = __double_as_longlong(v);
        asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(tag | (bits & 0xffffffffu)) : "memory");
        asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"((u64*)to + 1), "l"(tag | bits >> 32) : "memory");
    }
}
__device__ __forceinline__ bool received_from_member(const Parcel* from, u32 call, real& v) {
    u64 low, high;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(low) : "l"(from) : "memory");
    if constexpr (WORDS == 1) {
        v = __uint_as_float((u32)low);
        return low >> 32 == call;
    } else {
        asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(high) : "l"((const u64*)from + 1) : "memory");
        v = __longlong_as_double(high << 32 | (low & 0xffffffffu));
        return low >> 32 == call && high >> 32 == call;
    }
}

// Polling for a member that may never send. A member stops waiting once the notice (in host memory, therefore polled
// rarely) says that some member has failed, or after a timeout. After a timeout it records the awaited member as failed
// in the notice, so that all others stop waiting, too.
struct Wait {
    u32 polls = 0;
    u64 since = 0;

    __device__ __forceinline__ bool in_vain(volatile u32* notice, u32 member) {
        if (++polls & 0xfff) return false;
        u64 now;
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
        if (polls == 0x1000) since = now;
        if (*notice) return true;
        if (now - since < (u64)TEAM_TIMEOUT_MS * 1000000) return false;
        *notice = member + 1;
        return true;
    }
};

// Position in a mailbox of a member's parcel for a sum. The two halves of a mailbox are used in turn: a member that
// sends for one sum has received all parcels of the previous sum, so no member still reads the half that is written.
__device__ __forceinline__ Parcel* parcel_of(const Team& team, Parcel* mail, u32 member, u32 place, u32 call) {
    return mail + ((u64)(call & 1) * team.members + member) * TEAM_MAIL + place;
}
// Sends this member's part of a sum to all members, including itself.
__device__ __forceinline__ void send_to_team(const Team& team, real own, u32 place, u32 call) {
    for (u32 m = 0; m < team.members; m++) send_to_member(parcel_of(team, team.mail[m], team.own, place, call), own, call);
}
// Adds the parts of all members, in the order of members; NaN if a member has failed. Not inlined, because kernels on a
// single device need the registers for loads.
__device__ __noinline__ real receive_from_team(const Team& team, u32 place, u32 call) {
    real total = 0;
    for (u32 m = 0; m < team.members; m++) {
        const Parcel* from = parcel_of(team, team.mail[team.own], m, place, call);
        real part;
        Wait wait;
        while (!received_from_member(from, call, part)) {
            if (wait.in_vain(team.notice, m)) return __longlong_as_double(0x7ff8000000000000ll);
        }
        total += part;
    }
    return total;
}

// Sums K numbers over the devices. Called by one thread of each device.
template <int K> __device__ __forceinline__ void sum_in_team(const Team& team, real (&v)[K]) {
    const u32 call = *(volatile u32*)team.calls + 1;
#pragma unroll
    for (int k = 0; k < K; k++) send_to_team(team, v[k], k, call);
#pragma unroll
    for (int k = 0; k < K; k++) v[k] = receive_from_team(team, k, call);
    *team.calls = call;
}

struct Sum {
    Parcel* parcels;          // [K][gridDim.x]: for each of K sums, one per block
    u32* calls;               // number of reductions before this one
    real* results[RESULTS];
    const Team* team;         // null if the sums are over this device only
};

__device__ __forceinline__ real warp_sum(real v) {
#pragma unroll
    for (int step = 16; step; step >>= 1) v += __shfl_xor_sync(ALL, v, step);
    return v;
}

// Sums over the block, valid in thread 0. Blocks must consist of whole warps.
template <int K> __device__ __forceinline__ void block_sum(real (&v)[K]) {
    __shared__ real warps[K][32];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, count = blockDim.x >> 5;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < K; k++) {
        v[k] = warp_sum(v[k]);
        if (lane == 0) warps[k][warp] = v[k];
    }
    __syncthreads();
    if (warp == 0) {
#pragma unroll
        for (int k = 0; k < K; k++) v[k] = warp_sum(lane < count ? warps[k][lane] : real(0));
    }
}

// Adds v over all threads of the grid into sum.results[0..K]. The block with the highest index, usually the last to
// start, waits for all others; only one block waits, so the others can always become resident, and they exit
// immediately. With an atomic ticket in each block instead, a product with 4,700 blocks took 0.2765 ms instead of
// 0.2665 (Halo, p1_100M_perm on an H200, f64). All threads must call this function. In a team, the waiting block also
// exchanges sums with the other devices.
template <int K> __device__ __forceinline__ void grid_sum(real (&v)[K], const Sum& sum) {
    const u32 call = *(volatile u32*)sum.calls + 1;
    block_sum(v);
    if (threadIdx.x == 0) {
#pragma unroll
        for (int k = 0; k < K; k++) send(sum.parcels + (u64)k * gridDim.x + blockIdx.x, v[k], call);
    }
    if (blockIdx.x != gridDim.x - 1) return;
    real total[K] = {};
    collect(total, sum.parcels, call);
    block_sum(total);
    if (threadIdx.x == 0) {
        if (sum.team) sum_in_team(*sum.team, total);
#pragma unroll
        for (int k = 0; k < K; k++) *sum.results[k] = total[k];
        *sum.calls = call;
    }
}

// ---- shared memory

// Starts an asynchronous copy of a number into shared memory; `gathered` waits for it.
__device__ __forceinline__ void gather(real* to, const real* from) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from), "n"(sizeof(real)) : "memory");
#else
    *to = __ldg(from);
#endif
}
__device__ __forceinline__ void gathered() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
    __syncthreads();
}

// ---- blocks of nodes (groups of equally many rows), and the window of x that each block reads

struct Windows {
    const u32* bounds;        // first node of each block, a multiple of 32, and the end
    const u32* halos;         // start of each block's halo, and the end
    const u32* halo;          // nodes of all halos
    u32 blocks;
    u32 cols;                 // number of nodes of x
};

// The nodes of a block, and the contents of its window of x: `own` nodes from `first` on (those of its `rows` nodes
// that exist in x), its halo (`outside` nodes, from index `from` on in `Windows::halo`), and a zero.
struct Block {
    u32 first, rows, own, from, outside;

    __device__ __forceinline__ Block(const Windows& w, u32 block) {
        first = __ldg(w.bounds + block);
        rows = __ldg(w.bounds + block + 1) - first;
        from = __ldg(w.halos + block);
        outside = __ldg(w.halos + block + 1) - from;
        own = first >= w.cols ? 0 : min(rows, w.cols - first);
    }
    __device__ __forceinline__ u32 slices() const { return (rows + 31) / 32; }
    // Index in the window of the zero that padding reads.
    __device__ __forceinline__ u32 zero() const { return own + outside; }
    // The node at an index of the window; there is none at the index of the zero.
    __device__ __forceinline__ u32 node(const Windows& w, u32 place) const {
        return place < own ? first + place : w.halo[from + (place - own)];
    }
    // Fills the window for nodes with B rows, by T threads; complete after `gathered`.
    template <int B, int T> __device__ __forceinline__ void gather_window(const Windows& w, const real* x, real* window) const {
        for (u32 i = threadIdx.x; i < own * B; i += T) gather(window + i, x + ((i64)first * B + i));
#pragma unroll 4
        for (u32 i = threadIdx.x; i < outside * B; i += T) {
            gather(window + own * B + i, x + ((i64)__ldg(w.halo + from + i / B) * B + i % B));
        }
        if (threadIdx.x < B) window[zero() * B + threadIdx.x] = 0;
    }
};
