// New values for a matrix, from values on the device in the order that it was given in.
//
// Every slot knows where its value comes from: 1 + a place, 0 for padding. How that is found out: numbers that tell where
// each entry's value comes from take the way of values into the slots, as many bits at a time as what is stored holds exactly.
//
// A refill moves 4 B and a value a slot, and each value once: those of a row lie near each other in both orders, and a block
// has neighbouring slots, so that what it finds beside a value in its first cache is used there.

extern "C" __global__ __launch_bounds__(256) void refill_number(const u32* from, i64 count, u32 shift, u32 mask, real* entries) {
    begin();
    const i64 threads = (i64)gridDim.x * blockDim.x;
    for (i64 entry = (i64)blockIdx.x * blockDim.x + threadIdx.x; entry < count; entry += threads) {
        const u32 number = (from ? from[entry] : u32(entry)) + 1;
        entries[entry] = real(number >> shift & mask);
    }
}

// Adds the bits that arrived to the map.
extern "C" __global__ __launch_bounds__(256) void refill_map(const stored* slots, i64 count, u32 shift, u32* map) {
    begin();
    const i64 threads = (i64)gridDim.x * blockDim.x;
    for (i64 slot = (i64)blockIdx.x * blockDim.x + threadIdx.x; slot < count; slot += threads) {
        map[slot] |= u32(real(slots[slot])) << shift;
    }
}

// What was given for one place is added in the order given, as on the host.
extern "C" __global__ __launch_bounds__(256) void refill_sum(RowStarts starts, const u32* from, const real* given, real* sums) {
    begin();
    const i64 threads = (i64)gridDim.x * blockDim.x;
    for (i64 entry = (i64)blockIdx.x * blockDim.x + threadIdx.x; entry < starts.count; entry += threads) {
        const i64 first = starts.start(entry), end = starts.start(entry + 1);
        real sum = first < end ? given[from[first]] : real(0);
        for (i64 k = first + 1; k < end; k++) sum += given[from[k]];
        sums[entry] = sum;
    }
}

// Slots that a thread has at once: it waits for their places together, and for their values.
constexpr int AT_ONCE = 8;

extern "C" __global__ __launch_bounds__(256) void refill(const u32* map, const real* given, i64 count, stored* slots) {
    begin();
    const i64 tile = (i64)AT_ONCE * blockDim.x;
    for (i64 first = blockIdx.x * tile + threadIdx.x; first < count; first += gridDim.x * tile) {
        u32 place[AT_ONCE];
        real value[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) place[k] = first + k * blockDim.x < count ? __ldcs(map + first + k * blockDim.x) : 0;
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) value[k] = place[k] ? given[place[k] - 1] : real(0);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            if (first + k * blockDim.x < count) slots[first + k * blockDim.x] = value[k];
        }
    }
}

// Values that stand as entries do, or are given `back`.
extern "C" __global__ __launch_bounds__(256) void refill_in_order(real* entries, i64 count, stored* values, u32 back) {
    begin();
    const i64 threads = (i64)gridDim.x * blockDim.x;
    for (i64 entry = (i64)blockIdx.x * blockDim.x + threadIdx.x; entry < count; entry += threads) {
        exchange(entries[entry], values[entry], back);
    }
}
