// Exchanges vertices between runs (parts of equal length, except perhaps the last) to reduce the number of cut edges
// (edges between different runs), as defined in src/ordering/trades.rs. One thread block processes a run. Kernels read
// only what earlier launches wrote.

// Maximum number of edges by which the move of one vertex may increase the cut, if the other vertex of the exchange
// reduces it by more.
constexpr int SACRIFICE = 1;
// Value of `saves` for a vertex that proposes no move.
constexpr int CONTENT = 1 << 31;

struct Runs {
    u32* members;             // of all runs, one after the other, unsorted within each
    u32* place;               // position of each vertex in members
    u32* run_of;              // run of each vertex
    u32 vertices, length;     // number of all vertices, and of the vertices of a run

    __device__ __forceinline__ u32 first(u32 run) const { return run * length; }
    __device__ __forceinline__ u32 size(u32 run) const { return min(length, vertices - first(run)); }
};

// A proposed move of a vertex: the target run, and by how much it reduces the number of cut edges.
struct Proposal {
    u32 run;
    int saves;
};

// Proposed moves of the members of each run, sorted by target run, cost (−`saves` of the proposal) and vertex; stored
// from the run's first position on.
struct Moves {
    u32* counts;              // number of moves of each run
    u32* to;                  // target run of each move
    int* costs;
    u32* who;                 // vertex of each move

    // Position of the first move of a run whose target is `other` or a later run.
    __device__ __forceinline__ u32 first(const Runs& runs, u32 run, u32 other) const {
        u32 low = runs.first(run), high = low + counts[run];
        while (low < high) {
            const u32 middle = low + (high - low) / 2;
            if (to[middle] < other) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return low;
    }
    // Whether there is a move at a position with this target.
    __device__ __forceinline__ bool leads(const Runs& runs, u32 run, u32 at, u32 other) const {
        return at < runs.first(run) + counts[run] && to[at] == other;
    }
};

extern __shared__ u64 shared[];

// Cuts `order` into runs; `home` receives the first run of each vertex. Marks all vertices as changed.
extern "C" __global__ __launch_bounds__(THREADS) void runs_start(Runs runs, const u32* order, u32* home, u16* changed) {
    begin();
    const u64 threads = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < runs.vertices; i += threads) {
        const u32 v = order[i], run = (u32)i / runs.length;
        runs.members[i] = v;
        runs.place[v] = (u32)i;
        runs.run_of[v] = home[v] = run;
        changed[v] = 1;
    }
}

// Proposes for each vertex with changed neighbours a move to the other run that has most of its neighbours; in a tie,
// to the last of these runs. A warp processes 32 vertices, one after the other. Memory traffic: their adjacency lists,
// and the gathered runs of their neighbours.
extern "C" __global__ __launch_bounds__(THREADS) void runs_propose(Graph graph, Runs runs, u16* changed, Proposal* proposals) {
    begin();
    const u32 lane = threadIdx.x % 32;
    const u64 warps = (u64)gridDim.x * (blockDim.x / 32);
    for (u64 first = ((u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * 32; first < runs.vertices;
         first += warps * 32) {
        const u64 mine = first + lane;
        u32 rest = __ballot_sync(ALL, mine < runs.vertices && changed[mine]);
        if (rest >> lane & 1) changed[mine] = 0;
        for (; rest; rest &= rest - 1) {
            const u32 v = (u32)first + __ffs(rest) - 1, own = runs.run_of[v];
            u32 count, stays = 0;
            const i64 start = graph.neighbours(v, count);
            Tally tally;
            for (u32 k = 0; k < count; k += 32) {
                const u32 other = k + lane < count ? graph.columns[start + k + lane] : v;
                const u32 run = other == v ? NONE : runs.run_of[other];
                stays += __popc(__ballot_sync(ALL, run == own));
                tally.add(run == own ? NONE : run);
            }
            const u64 best = warp_max((u64)tally.sum << 32 | (tally.sum ? tally.key : 0));
            const int saves = (int)(best >> 32) - (int)stays;
            if (lane == 0) {
                proposals[v] = best && saves >= -SACRIFICE ? Proposal{(u32)best, saves} : Proposal{own, CONTENT};
            }
        }
    }
}

// Sorts the proposed moves of each run by comparing all pairs. Uses 12 B of shared memory a vertex. Memory traffic: 12
// B a vertex, and 12 B a proposed move.
extern "C" __global__ __launch_bounds__(THREADS) void runs_moves(Runs runs, const Proposal* proposals, Moves moves) {
    begin();
    __shared__ u32 count;
    u64* keys = shared;
    u32* who = (u32*)(shared + runs.length);
    const u32 first = runs.first(blockIdx.x), size = runs.size(blockIdx.x);
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    for (u32 i = threadIdx.x; i < size; i += blockDim.x) {
        const u32 v = runs.members[first + i];
        const Proposal propose = proposals[v];
        if (propose.saves == CONTENT) continue;
        const u32 at = atomicAdd(&count, 1u);
        // flipping the sign bit makes unsigned keys sort like signed costs
        keys[at] = (u64)propose.run << 32 | ((u32)-propose.saves ^ 1u << 31);
        who[at] = v;
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
        const u64 key = keys[i];
        const u32 v = who[i];
        u32 before = first;
        for (u32 k = 0; k < count; k++) before += keys[k] < key || (keys[k] == key && who[k] < v);
        moves.to[before] = (u32)(key >> 32);
        moves.costs[before] = (int)((u32)key ^ 1u << 31);
        moves.who[before] = v;
    }
    if (threadIdx.x == 0) moves.counts[blockIdx.x] = count;
}

// Marks promising moves: those that, together with the best move in the opposite direction, reduce the number of cut
// edges. The mark is the number of the round, counted from 1.
extern "C" __global__ __launch_bounds__(THREADS) void runs_mark_promising(Runs runs, Moves moves, u16* promising, u32 round) {
    begin();
    const u32 first = runs.first(blockIdx.x), count = moves.counts[blockIdx.x];
    for (u32 i = first + threadIdx.x; i < first + count; i += blockDim.x) {
        const u32 to = moves.to[i], back = moves.first(runs, to, blockIdx.x);
        const bool paid = moves.leads(runs, to, back, blockIdx.x) && moves.costs[i] + moves.costs[back] < 0;
        promising[moves.who[i]] = paid ? (u16)round : 0;
    }
}

// Keeps a promising move if it saves more than the promising moves of all neighbours of its vertex; ties are broken by
// a hash that changes in each round.
extern "C" __global__ __launch_bounds__(THREADS) void runs_apart(
    Graph graph, Runs runs, const Proposal* proposals, const u16* promising, u32 round, Moves moves) {
    begin();
    const u32 first = runs.first(blockIdx.x), count = moves.counts[blockIdx.x], salt = scrambled(round - 1);
    u32 kept = 0;
    for (u32 base = 0; base < count; base += THREADS) {
        const u32 i = first + base + threadIdx.x;
        const bool is = base + threadIdx.x < count;
        const u32 v = is ? moves.who[i] : 0, to = is ? moves.to[i] : 0;
        const int cost = is ? moves.costs[i] : 0;
        bool keeps = is && promising[v] == round;
        if (keeps) {
            const u32 draw = scrambled(v ^ salt);
            u32 neighbours;
            const i64 start = graph.neighbours(v, neighbours);
            for (u32 k = 0; k < neighbours && keeps; k++) {
                const u32 other = graph.columns[start + k];
                if (other == v || promising[other] != round) continue;
                const int theirs = -proposals[other].saves;
                keeps = theirs > cost || (theirs == cost && scrambled(other ^ salt) < draw);
            }
        }
        // compacting in place: this batch of moves has been read, and writes go to earlier or equal positions
        u32 all;
        const u32 at = first + kept + sum_before(keeps, all);
        if (keeps) {
            moves.who[at] = v;
            moves.to[at] = to;
            moves.costs[at] = cost;
        }
        kept += all;
    }
    __syncthreads();
    if (threadIdx.x == 0) moves.counts[blockIdx.x] = kept;
}

// For each pair of runs, exchanges the vertices with the best moves in both directions as long as an exchange reduces
// the number of cut edges. `granted` says for each round whether there was an exchange; after a round without one,
// later rounds do nothing.
extern "C" __global__ __launch_bounds__(THREADS) void runs_grant(
    Graph graph, Runs runs, Moves moves, u16* changed, u32* granted, u32 round) {
    begin();
    if (round > 1 && !granted[round - 1]) return;
    const u32 run = blockIdx.x, first = runs.first(run), count = moves.counts[run];
    for (u32 i = first + threadIdx.x; i < first + count; i += blockDim.x) {
        const u32 to = moves.to[i];
        // the block of the lower run performs the exchange
        if (to < run) continue;
        const u32 back = moves.first(runs, to, run) + (i - moves.first(runs, run, to));
        if (!moves.leads(runs, to, back, run) || moves.costs[i] + moves.costs[back] >= 0) continue;
        const u32 both[2] = {moves.who[i], moves.who[back]};
        const u32 places[2] = {runs.place[both[0]], runs.place[both[1]]};
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const u32 v = both[k];
            runs.place[v] = places[1 - k];
            runs.members[places[1 - k]] = v;
            runs.run_of[v] = k ? run : to;
            changed[v] = 1;
            u32 neighbours;
            const i64 start = graph.neighbours(v, neighbours);
            for (u32 n = 0; n < neighbours; n++) changed[graph.columns[start + n]] = 1;
        }
        granted[round] = 1;
    }
}

// Puts the vertices that moved into a run at the positions of those that left the run, in ascending order; then sorts
// the run by descending row length, comparing all pairs. Uses 12 B of shared memory a vertex.
extern "C" __global__ __launch_bounds__(THREADS) void runs_finish(
    Graph graph, Runs runs, const u32* order, const u32* home, u32* result) {
    begin();
    __shared__ u32 arrivals;
    // vertex at each position of the run (NONE: free), the free positions, and the vertices that moved in
    u32 *now = (u32*)shared, *free = now + runs.length, *came = free + runs.length;
    const u32 run = blockIdx.x, first = runs.first(run), size = runs.size(run);
    if (threadIdx.x == 0) arrivals = 0;
    __syncthreads();
    for (u32 i = threadIdx.x; i < size; i += blockDim.x) {
        const u32 was = order[first + i], is = runs.members[first + i];
        now[i] = runs.run_of[was] == run ? was : NONE;
        if (home[is] != run) came[atomicAdd(&arrivals, 1u)] = is;
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < size; i += blockDim.x) {
        if (now[i] != NONE) continue;
        u32 before = 0;
        for (u32 k = 0; k < i; k++) before += now[k] == NONE;
        free[before] = i;
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < arrivals; i += blockDim.x) {
        const u32 v = came[i];
        u32 before = 0;
        for (u32 k = 0; k < arrivals; k++) before += came[k] < v;
        now[free[before]] = v;
    }
    __syncthreads();
    u32* lengths = came;
    for (u32 i = threadIdx.x; i < size; i += blockDim.x) graph.neighbours(now[i], lengths[i]);
    __syncthreads();
    for (u32 i = threadIdx.x; i < size; i += blockDim.x) {
        const u32 length = lengths[i];
        u32 before = 0;
        for (u32 k = 0; k < size; k++) before += lengths[k] > length || (lengths[k] == length && k < i);
        result[first + before] = now[i];
    }
}
