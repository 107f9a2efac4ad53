// What every file of kernels begins with: types, scalars that stay on the device, gates, and sums over a grid.
// REAL is the element, double or float; STORED what matrices store of it, or bfloat. No library headers.

typedef REAL real;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

// The upper half of a float.
struct bfloat {
    u16 bits;

    bfloat() = default;
    // To the nearest, the even one of two; a carry out of the fraction belongs into the exponent.
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

// The element, or what has fewer bits, as float for double: widened when it is multiplied, so that loads do not wait for
// it. Budgets name the bytes of a value and of an entry of x and y alike; of the former there are then fewer.
typedef STORED stored;

constexpr u32 ALL = 0xffffffffu;

// Elements that are read at once.
constexpr int PACK = PACK_BYTES / sizeof(real);
struct alignas(PACK_BYTES) Pack { real at[PACK]; };
// Stored values that are read at once.
constexpr int VALUES = PACK_BYTES / sizeof(stored) < MOST_VALUES ? PACK_BYTES / sizeof(stored) : MOST_VALUES;

// N neighbours in memory, read at once.
template <class X, int N> struct alignas(sizeof(X) * N) Few { X at[N]; };

// Reads what is used once: it need not stay in a cache.
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

// ---- order

// Stands first in every kernel: waits until the kernel before has ended and what it wrote is there. The launch itself was
// prepared while that one ran.
__device__ __forceinline__ void begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// ---- patterns

// Where the entries of rows lie, one row after the other.
struct RowStarts {
    const void* offsets;      // one for each row, and the end: of 64 bits if `wide`, of 32 if not
    u32 count, wide;

    __device__ __forceinline__ i64 start(i64 row) const {
        return wide ? (i64)((const u64*)offsets)[row] : (i64)((const u32*)offsets)[row];
    }
    // The last row from `low` on and before `high` that starts at or before an entry; row `low` does.
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

// A value goes into its slot, rounded to what that stores, or `back` to where it came from.
__device__ __forceinline__ void copy_value(real& entry, stored& slot, u32 back) {
    if (back) {
        entry = slot;
    } else {
        slot = entry;
    }
}

// ---- scalars

// factor · Π above / Π below, evaluated where it is used: a quotient costs no launch of its own.
struct Number {
    real factor;
    u32 zero_over_zero;       // whether 0/0 is 0
    const real* above[TERMS];
    const real* below[TERMS];
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

// What decides whether the steps of a solve still have an effect.
struct Control {
    u32 active;               // 0 once the solve has ended: its vectors stay as they are
    u32 failed;               // the watch that ended it, counted from 1; 0 for none
    double failed_value;
    double threshold;         // ‖r‖² at which it ends
    u64 sequence;             // steps recorded
};

struct Watch {
    Number number;
    u32 condition;            // FINITE, NONZERO or POSITIVE
    u32 id;
};

// Stands before every change of a vector within a step. `control` is null outside of steps.
struct Gate {
    Control* control;
    u32 watches;
    Watch watch[WATCHES];
};

__device__ __forceinline__ bool holds(u32 condition, double v) {
    return finite(v) && (condition == FINITE || (condition == NONZERO ? v != 0.0 : v > 0.0));
}

// Whether nothing may be changed any more. All threads of a launch get one answer: a launch clears `active` only because a
// watched number failed, and every thread computes that number itself.
__device__ __forceinline__ bool closed(const Gate& gate) {
    if (!gate.control) return false;
    bool active = *(volatile u32*)&gate.control->active;
    double v[WATCHES];
    // a gate without watches has numbers that are constant: all are asked for at once
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

// ---- what the host is told

// An entry of a ring in host memory: [what it is, how many numbers or which watch failed, number…]. Every word was empty
// (all ones) before, and the host waits until no word that it needs is empty: words may arrive in any order, and the device
// does not wait for them.
struct Entry {
    volatile double* words;

    __device__ __forceinline__ Entry(double* ring, u32 width, u32 entries, u64 sequence)
        : words(ring + (sequence % entries) * width) {}
    __device__ __forceinline__ void word(u32 at, double v) {
        // a NaN with every bit set would look empty
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

// ---- sums over a grid, in an order that depends on the launch alone

// A number on its way from one block to another, 32 bits of it a word, with the call that it belongs to. A word is there
// whole or not at all: the sender waits for nothing, and the receiver needs no fence.
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
// Whether what belongs to a call has come.
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
// Waits for what blocks send, and adds it up. A thread has some of them, and asks for several at once.
template <int K> __device__ __forceinline__ void collect(real (&sums)[K], const Parcel* parcels, u32 call) {
    constexpr int AT_ONCE = 4;
    const u32 stride = blockDim.x;
    for (u32 from = threadIdx.x; from < gridDim.x; from += AT_ONCE * stride) {
        real part[K][AT_ONCE];
        bool all;
        do {
            all = true;
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
#pragma unroll
                for (int k = 0; k < K; k++) {
                    const Parcel* parcel = parcels + (u64)k * gridDim.x + min(from + i * stride, gridDim.x - 1);
                    all &= received(parcel, call, part[k][i]);
                }
        } while (!all);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
#pragma unroll
            for (int k = 0; k < K; k++) sums[k] += from + i * stride < gridDim.x ? part[k][i] : real(0);
    }
}

// ---- sums over a team of devices

// The devices that share the vectors of a solve. Each has a mailbox that all of them write to.
struct Team {
    u32 members, own;         // how many there are, and which of them this device is
    u32* calls;               // sums of the team before this one
    volatile u32* notice;     // in host memory: what `Wait` looks at
    Parcel* mail[TEAM_MEMBERS];  // of each member: [2][members][TEAM_MAIL] parcels
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

// A wait for a member that may send nothing more. It is in vain once a member has failed, says the notice, or once it has taken too
// long; then this member is the one that failed, and all others wait no longer either. Asked rarely, for the answer comes from host
// memory.
struct Wait {
    u32 polls = 0;
    u64 since = 0;

    __device__ __forceinline__ bool in_vain(volatile u32* notice, u32 member) {
        if (++polls & 0xfff) return false;
        u64 now;
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
        if (polls == 0x1000) since = now;
        if (*notice) return true;
        if (now - since < (u64)TEAM_PATIENCE * 1000000) return false;
        *notice = member + 1;
        return true;
    }
};

// Where a member's parcel for a sum lies in a mailbox. Two halves take turns: who sends for one sum has received all of the
// sum before, and so nobody still reads the half that it writes to.
__device__ __forceinline__ Parcel* parcel_of(const Team& team, Parcel* mail, u32 member, u32 place, u32 call) {
    return mail + ((u64)(call & 1) * team.members + member) * TEAM_MAIL + place;
}
// Sends this member's part of a sum to all members, itself among them.
__device__ __forceinline__ void send_to_team(const Team& team, real own, u32 place, u32 call) {
    for (u32 m = 0; m < team.members; m++) send_to_member(parcel_of(team, team.mail[m], team.own, place, call), own, call);
}
// Adds up what all members have sent, in the order of the members; not a number where a wait is in vain. Called, not inlined:
// kernels that work alone need its registers for loads.
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

// Adds up what the devices have of K sums. One thread of each device calls it.
template <int K> __device__ __forceinline__ void sum_in_team(const Team& team, real (&v)[K]) {
    const u32 call = *(volatile u32*)team.calls + 1;
#pragma unroll
    for (int k = 0; k < K; k++) send_to_team(team, v[k], k, call);
#pragma unroll
    for (int k = 0; k < K; k++) v[k] = receive_from_team(team, k, call);
    *team.calls = call;
}

struct Sum {
    Parcel* parcels;          // K of each block, sum by sum
    u32* calls;               // before this one
    real* results[RESULTS];
    const Team* team;         // whose sums these are; null where they are this device's own
};

__device__ __forceinline__ real warp_sum(real v) {
#pragma unroll
    for (int step = 16; step; step >>= 1) v += __shfl_xor_sync(ALL, v, step);
    return v;
}

// Sums over the block, valid in thread 0. Blocks are whole warps.
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

// Adds v over all threads of the grid into sum.results[0..K]; the block of the highest index, as a rule the last to begin, waits
// for all others: it alone does, so that they find room. They leave at once: with a ticket that each had to wait for, a product
// of 4,700 blocks took 0.2765 ms where it takes 0.2665 (Halo, p1_100M_perm on an H200, f64). All threads call it.
// In a team that block sends the sums of this device to the others, and waits for theirs.
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

// Begins a copy of a number into shared memory; `gathered` waits for it.
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

// ---- blocks of rows, and the part of x that each reads

struct Windows {
    const u32* bounds;        // nodes at which blocks begin, multiples of 32, and the end
    const u32* halos;         // where the halo of each block begins, and the end
    const u32* halo;          // nodes
    u32 blocks;
    u32 cols;                 // nodes of x
};

// Where a block's nodes are, and what of x its window holds: that of its own nodes, that of its halo, a zero.
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
    // The place that holds zero.
    __device__ __forceinline__ u32 zero() const { return own + outside; }
    // The node at a place that is not zero's.
    __device__ __forceinline__ u32 node(const Windows& w, u32 place) const {
        return place < own ? first + place : w.halo[from + (place - own)];
    }
    // Fills the window of nodes with B rows, T threads together; it is there after `gathered`.
    template <int B, int T> __device__ __forceinline__ void gather_window(const Windows& w, const real* x, real* window) const {
        for (u32 i = threadIdx.x; i < own * B; i += T) gather(window + i, x + ((i64)first * B + i));
#pragma unroll 4
        for (u32 i = threadIdx.x; i < outside * B; i += T) {
            gather(window + own * B + i, x + ((i64)__ldg(w.halo + from + i / B) * B + i % B));
        }
        if (threadIdx.x < B) window[zero() * B + threadIdx.x] = 0;
    }
};
