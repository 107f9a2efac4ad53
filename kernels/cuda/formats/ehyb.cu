// EHYB: rows are divided into parts. The entries of x with the indices of a part's rows are cached in shared memory,
// for the matrix entries in these columns (inside). The other entries of a row (outside) are stored in separate slices,
// as an extra line.
//
// A thread block processes a part, in slices of 32 rows. Rows are sorted by descending length, and warps take the next
// slice from a counter in shared memory: the sum of a row does not depend on which warp computes it. An inner product
// does, so the kernel with an inner product assigns slices round-robin. Entry k of the row at lane l is slot k 32 + l
// of its slice. The cached x is followed by a zero, which padding reads.
//
// A second kernel adds the lines of entries outside, one line per lane, after all of y is written. Every row has at
// most one line, so y is reproducible.
//
// Memory traffic: 10 B (f64) or 6 B (f32) a slot inside; 12 or 8 B and an entry of x a slot outside; 4 B a slice; 2 B a
// row; 4 B a line, and the y of its row twice more; x and y.


struct Inside {
    const u32* slices;        // first group of each slice of 32 rows, part by part, and the end
    const u16* order;         // row (within its part) at each position of the order by length
    const u16* columns;       // within the part
    const stored* values;
    u32 rows, cols, height;   // rows per part, a multiple of 32
};

struct Extra {
    const u32* slices;        // first group of each slice of 32 lines, and the end
    const u32* rows;          // row of each line (yIdxER in the paper)
    const u32* columns;
    const stored* values;
    Number inside;            // ⟨x, y⟩ without the lines, for an inner product
    u32 count;                // number of lines
};

// A part: its first row, its number of rows, and the number of these whose index is also a column.
struct Part {
    u32 first, rows, own;

    __device__ __forceinline__ Part(const Inside& a, u32 part) {
        first = part * a.height;
        rows = min(a.height, a.rows - first);
        own = first >= a.cols ? 0 : min(rows, a.cols - first);
    }
    __device__ __forceinline__ u32 slices() const { return (rows + 31) / 32; }
};

extern __shared__ __align__(16) unsigned char shared_memory[];

constexpr int WARPS = PART_THREADS / 32;
// Number of slots that a lane loads together.
constexpr int BATCH = 8;

// Returns this thread's part of ⟨x, y⟩ if DOT.
template <bool DOT> __device__ __forceinline__ real multiply(const Inside& a, const real* __restrict__ x, real* __restrict__ y) {
    // the next slice to be taken by a warp
    __shared__ u32 next;
    // the part's entries of x, and a zero
    real* const cached = (real*)shared_memory;
    const u32 lane = threadIdx.x % 32, parts = (a.rows + a.height - 1) / a.height;
    real xy = 0;
    for (u32 part = blockIdx.x; part < parts; part += gridDim.x) {
        const Part at(a, part);
        // wait until all threads have finished with the cached x and the counter of the previous part
        if (part != blockIdx.x) __syncthreads();
        for (u32 i = threadIdx.x; i < at.own; i += PART_THREADS) gather(cached + i, x + (at.first + i));
        if (threadIdx.x == 0) {
            cached[at.own] = 0;
            next = WARPS;
        }

        stored v[BATCH];
        u16 column[BATCH];
        u32 slice = threadIdx.x / 32, group, end;
        const stored* values;
        const u16* columns;
        const auto load = [&]() {
#pragma unroll
            for (int u = 0; u < BATCH; u++) {
                v[u] = group + u < end ? __ldcs(values + u * 32) : stored(0);
                column[u] = group + u < end ? __ldcs(columns + u * 32) : at.own;
            }
        };
        const auto product = [&]() {
            real sum = 0;
#pragma unroll
            for (int u = 0; u < BATCH; u++) sum += v[u] * cached[column[u]];
            return sum;
        };
        const auto begin = [&]() {
            if (slice >= at.slices()) return;
            group = __ldg(a.slices + at.first / 32 + slice);
            end = __ldg(a.slices + at.first / 32 + slice + 1);
            values = a.values + ((i64)group * 32 + lane);
            columns = a.columns + ((i64)group * 32 + lane);
            load();
        };
        // load the first slots before x has arrived
        begin();
        gathered();
        while (slice < at.slices()) {
            u32 taken = slice + WARPS;
            if (!DOT) {
                if (lane == 0) taken = atomicAdd(&next, 1u);
                taken = __shfl_sync(ALL, taken, 0);
            }
            const u32 place = slice * 32 + lane;
            const u32 row = place < at.rows ? __ldg(a.order + at.first + place) : NONE;
            real sum = product();
            for (group += BATCH; group < end; group += BATCH) {
                values += BATCH * 32;
                columns += BATCH * 32;
                load();
                sum += product();
            }
            if (row != NONE) {
                y[at.first + row] = sum;
                if (DOT) xy += cached[row] * sum;
            }
            slice = taken;
            begin();
        }
    }
    return xy;
}

// Returns this thread's part of ⟨x, y⟩ if DOT.
template <bool DOT> __device__ __forceinline__ real add(const Extra& a, const real* __restrict__ x, real* y) {
    const u32 lane = threadIdx.x % 32, warps = gridDim.x * (blockDim.x / 32);
    real xy = 0;
    for (u32 slice = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; slice < (a.count + 31) / 32; slice += warps) {
        const u32 line = slice * 32 + lane, row = line < a.count ? __ldg(a.rows + line) : NONE;
        u32 group = __ldg(a.slices + slice);
        const u32 end = __ldg(a.slices + slice + 1);
        const stored* values = a.values + ((i64)group * 32 + lane);
        const u32* columns = a.columns + ((i64)group * 32 + lane);
        const real inside = row != NONE ? y[row] : real(0);
        real sum = 0;
        for (; group < end; group += BATCH) {
            stored v[BATCH];
            u32 column[BATCH];
#pragma unroll
            for (int u = 0; u < BATCH; u++) {
                v[u] = group + u < end ? __ldcs(values + u * 32) : stored(0);
                column[u] = group + u < end ? __ldcs(columns + u * 32) : NONE;
            }
#pragma unroll
            for (int u = 0; u < BATCH; u++) sum += v[u] * (column[u] != NONE ? __ldg(x + column[u]) : real(0));
            values += BATCH * 32;
            columns += BATCH * 32;
        }
        if (row != NONE) {
            y[row] = inside + sum;
            if (DOT) xy += __ldg(x + row) * sum;
        }
    }
    return xy;
}

extern "C" __global__ __launch_bounds__(PART_THREADS, RESIDENT_PARTS) void ehyb_inside(Inside a, const real* x, real* y) { begin(); multiply<false>(a, x, y); }

extern "C" __global__ __launch_bounds__(PART_THREADS, RESIDENT_PARTS) void ehyb_inside_dot(Inside a, const real* x, real* y, Sum sum) {
    begin();
    real xy[1] = {multiply<true>(a, x, y)};
    grid_sum(xy, sum);
}

extern "C" __global__ __launch_bounds__(THREADS, 4) void ehyb_extra(Extra a, const real* x, real* y) { begin(); add<false>(a, x, y); }

extern "C" __global__ __launch_bounds__(THREADS, 4) void ehyb_extra_dot(Extra a, const real* x, real* y, Sum sum) {
    begin();
    real xy[1] = {add<true>(a, x, y)};
    if (blockIdx.x == 0 && threadIdx.x == 0) xy[0] += value(a.inside);
    grid_sum(xy, sum);
}

// CSR offsets and columns.
struct Entries {
    RowStarts rows;
    const u32* columns;
};

constexpr i64 NO_ENTRY = -1;

// Calls visit(slot, entry, part) for every slot inside, with NO_ENTRY for padding. Columns ascend, so the entries
// inside are consecutive.
template <class Visit> __device__ __forceinline__ void each_inside(const Inside& a, const Entries& from, Visit visit) {
    const i64 places = ((i64)a.rows + 31) / 32 * 32;
    for (i64 place = blockIdx.x * blockDim.x + threadIdx.x; place < places; place += gridDim.x * blockDim.x) {
        const Part at(a, u32(place) / a.height);
        i64 entry = 0, end = 0;
        if (place < a.rows) {
            const i64 row = (i64)at.first + a.order[place];
            entry = from.rows.start(row);
            end = from.rows.start(row + 1);
        }
        while (entry < end && from.columns[entry] < at.first) entry++;
        const u32 group = a.slices[place / 32], groups = a.slices[place / 32 + 1] - group;
        for (u32 k = 0; k < groups; k++) {
            const bool inside = entry < end && from.columns[entry] - at.first < at.own;
            visit((i64)(group + k) * 32 + place % 32, inside ? entry++ : NO_ENTRY, at);
        }
    }
}

// Calls visit(slot, entry) for every slot of a line, with NO_ENTRY for padding.
template <class Visit> __device__ __forceinline__ void each_outside(const Inside& a, const Extra& b, const Entries& from, Visit visit) {
    const i64 lines = ((i64)b.count + 31) / 32 * 32;
    for (i64 line = blockIdx.x * blockDim.x + threadIdx.x; line < lines; line += gridDim.x * blockDim.x) {
        const i64 row = line < b.count ? b.rows[line] : 0;
        const Part at(a, u32(row) / a.height);
        i64 entry = 0, end = 0;
        if (line < b.count) {
            entry = from.rows.start(row);
            end = from.rows.start(row + 1);
        }
        const u32 group = b.slices[line / 32], groups = b.slices[line / 32 + 1] - group;
        for (u32 k = 0; k < groups; k++) {
            while (entry < end && from.columns[entry] - at.first < at.own) entry++;
            visit((i64)(group + k) * 32 + line % 32, entry < end ? entry++ : NO_ENTRY);
        }
    }
}

// Writes the columns of all slots. Padding inside has the position of the zero in the cached x, padding outside NONE.
extern "C" __global__ __launch_bounds__(THREADS) void ehyb_columns(Inside a, Extra b, Entries from, u16* inside, u32* outside) {
    begin();
    each_inside(a, from, [&](i64 slot, i64 entry, const Part& at) {
        inside[slot] = entry != NO_ENTRY ? from.columns[entry] - at.first : at.own;
    });
    each_outside(a, b, from, [&](i64 slot, i64 entry) { outside[slot] = entry != NO_ENTRY ? from.columns[entry] : NONE; });
}

// Copies values from CSR entries to slots, or back; padding is unchanged.
extern "C" __global__ __launch_bounds__(THREADS) void ehyb_copy_values(
    Inside a, Extra b, Entries from, real* entries, stored* inside, stored* outside, u32 back) {
    begin();
    each_inside(a, from, [&](i64 slot, i64 entry, const Part&) {
        if (entry != NO_ENTRY) copy_value(entries[entry], inside[slot], back);
    });
    each_outside(a, b, from, [&](i64 slot, i64 entry) {
        if (entry != NO_ENTRY) copy_value(entries[entry], outside[slot], back);
    });
}
