// Devices that share the vectors of a solve: sums of arrays over all devices, and products whose rows read entries of x
// that other devices own (halo exchange).
//
// A product takes three launches on each device:
//
//     push          writes entries of x to the devices that read them, over NVLink or PCIe, and sets their flags
//     (any format)  y ← A_own x
//     add_ghosts    waits for the senders' flags; y ← y + A_ghost ghosts; sets flags: the ghosts were used
//
// The host is not involved. Before a device sends the entries for a product, it waits until the receiver has used the
// entries of the previous product.

// A device's description of the entries that it sends and receives.
struct HaloExchange {
    u32 members, own;
    u64* product;             // number of products before this one
    u32* tickets;             // [2]: numbers of blocks that are done sending entries, and done using ghosts
    volatile u32* notice;     // see `Team`
    const u32* places;        // indices of entries of x to send, grouped by member
    u32 firsts[TEAM_MEMBERS + 1];        // start of each member's entries, and the end
    u32 senders;              // bit mask of the members that send to this one
    // addresses in the memory of each member:
    real* ghosts[TEAM_MEMBERS];  // of the ghosts that this device sends to it
    u64* sent_at[TEAM_MEMBERS];  // of the flag that holds the number of the last product that this device sent
    u64* used_at[TEAM_MEMBERS];  // of the flag that holds the number of the last product whose ghosts this device used
    const u64* sent;          // [members] flags of this device, which other members write as `sent_at`
    const u64* used;          // [members] flags of this device, which other members write as `used_at`
};

// Rows with entries in ghost columns, and those entries.
struct OffDiagonal {
    const u32* rows;
    const u32* offsets;       // one per row, and the end
    const u32* columns;       // indices of ghosts
    const real* values;
    u32 count;
};

__device__ __forceinline__ u64 look(const u64* word) {
    u64 v;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(word) : "memory");
    return v;
}
__device__ __forceinline__ void notify(u64* word, u64 v) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(v) : "memory");
}
// Waits until a member's flag is at least `least`, or until some member has failed.
__device__ __forceinline__ void wait_for(const u64* words, u32 member, u64 least, volatile u32* notice) {
    Wait wait;
    while (look(words + member) < least && !wait.in_vain(notice, member)) {}
}

extern "C" __global__ __launch_bounds__(256) void push(HaloExchange h, const real* x) {
    begin();
    const u64 product = *(const volatile u64*)h.product + 1;
    const u32 m = threadIdx.x;
    if (m < h.members && h.firsts[m + 1] > h.firsts[m]) wait_for(h.used, m, product - 1, h.notice);
    __syncthreads();
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < h.firsts[h.members]; i += gridDim.x * blockDim.x) {
        u32 to = 0;
        while (i >= h.firsts[to + 1]) to++;
        h.ghosts[to][i - h.firsts[to]] = x[h.places[i]];
    }
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0 && atomicAdd(h.tickets, 1) == gridDim.x - 1) {
        *h.tickets = 0;
        __threadfence_system();
        for (u32 to = 0; to < h.members; to++) {
            if (h.firsts[to + 1] > h.firsts[to]) notify(h.sent_at[to], product);
        }
    }
}

// y ← y + A_ghost ghosts. With `sums`, also computes ⟨x, y⟩ over the whole team; `own` is this member's value before
// ghosts are added.
extern "C" __global__ __launch_bounds__(256) void add_ghosts(
    HaloExchange h, OffDiagonal border, const real* ghosts, const real* x, real* y, u32 sums, Number own, Sum out) {
    begin();
    const u64 product = *(const volatile u64*)h.product + 1;
    const u32 m = threadIdx.x;
    if (m < h.members && (h.senders >> m & 1)) wait_for(h.sent, m, product, h.notice);
    __syncthreads();
    real dot[1] = {0};
    const u32 lane = threadIdx.x & 7;
    // eight threads a row, because few entries per row of a finite element matrix are in ghost columns
    for (u32 at = (blockIdx.x * blockDim.x + threadIdx.x) / 8; at < (border.count + 3) / 4 * 4; at += gridDim.x * blockDim.x / 8) {
        real v = 0;
        if (at < border.count) {
            for (u32 e = border.offsets[at] + lane; e < border.offsets[at + 1]; e += 8) v += border.values[e] * __ldcg(ghosts + border.columns[e]);
        }
#pragma unroll
        for (int step = 4; step; step >>= 1) v += __shfl_xor_sync(ALL, v, step);
        if (lane == 0 && at < border.count) {
            const u32 row = border.rows[at];
            y[row] += v;
            if (sums) dot[0] += x[row] * v;
        }
    }
    __syncthreads();
    if (threadIdx.x == 0 && atomicAdd(h.tickets + 1, 1) == gridDim.x - 1) {
        h.tickets[1] = 0;
        *h.product = product;
        for (u32 from = 0; from < h.members; from++) {
            if (h.senders >> from & 1) notify(h.used_at[from], product);
        }
    }
    if (!sums) return;
    if (blockIdx.x == 0 && threadIdx.x == 0) dot[0] += value(own);
    grid_sum(dot, out);
}

// Sums an array over the team. Each thread sends a number of this device, and adds the numbers of all members.
extern "C" __global__ void sum_array(const Team* team, u32 count, real* array) {
    begin();
    const u32 call = *(volatile u32*)team->calls + 1, place = threadIdx.x;
    __syncthreads();
    if (place < count) {
        send_to_team(*team, array[place], place, call);
        array[place] = receive_from_team(*team, place, call);
    }
    __syncthreads();
    if (place == 0) *team->calls = call;
}
