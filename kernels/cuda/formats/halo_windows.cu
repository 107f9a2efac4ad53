// Blocks of rows with their window of x in shared memory: column indices are short positions in the window.
//
// A thread block processes a block of nodes, B rows each, in slices of 32 nodes: a slice has B warps, with one thread
// per row. The window holds the entries of x of the block's own nodes, those of its halo, and a zero at the end, which
// padding reads. The slots (stored positions, including padding) of a slice form groups, with a dense block for each of
// its 32 nodes; entry (i, j) of the node at lane l is element (j 32 + l) B + i of its group: a thread multiplies a row
// of a dense block.
//
// If nodes have one row, positions take 12 bits: those of four groups are packed into three 16-bit words per lane, the
// fourth in the upper bits of the other three; for fewer than four groups, only the words needed are stored. Otherwise
// a position takes 16 bits for B² entries.
//
// Memory traffic: 9.5 B (f64) or 5.5 B (f32) a slot for B = 1, 8 + 2/B² or 4 + 2/B² B for B > 1; 4 B and B elements of
// x for each node of a halo; 4 or 8 B a slice, 8 B a block, 2 B a node if nodes are sorted; x and y.

struct Halo {
    Windows windows;
    const u32* slices;        // first group of each slice of 32 nodes, and the end
    const u32* words;         // first packed word of each slice, in units of 32 words, and the end; null if B > 1
    const u16* order;         // node (within its block) at each sorted place; null if nodes are not sorted
    const u16* columns;       // positions of nodes in the window
    const stored* values;
};

extern __shared__ __align__(16) unsigned char shared_memory[];

// Number of groups that a thread loads together.
template <int B> constexpr int GROUPS = B == 1 ? 8 : B == 2 || B == 3 ? 4 : B == 4 ? 2 : 1;
// Bits of the fourth position that are stored in the k-th of three words.
__device__ __forceinline__ u32 third(u32 place, int k) { return (place >> 4 * k & 15) << 12; }

// Positions of a lane in `GROUPS` groups.
template <int B> struct Places {
    static constexpr int U = GROUPS<B>;
    u16 column[U];

    __device__ __forceinline__ void load(const u16* columns, int left, u32 zero) {
#pragma unroll
        for (int u = 0; u < U; u++) column[u] = u < left ? __ldcs(columns + u * 32) : zero;
    }
    __device__ __forceinline__ u32 operator[](int u) const { return column[u]; }
};

// Positions of 12 bits, four of them in three words.
template <> struct Places<1> {
    static constexpr int U = GROUPS<1>;
    u16 word[U / 4 * 3];

    __device__ __forceinline__ void load(const u16* words, int left, u32 zero) {
#pragma unroll
        for (int w = 0; w < U / 4 * 3; w++) {
            word[w] = w / 3 * 4 + w % 3 < left ? __ldcs(words + w * 32) : zero | third(zero, w % 3);
        }
    }
    __device__ __forceinline__ u32 operator[](int u) const {
        const u16* four = word + u / 4 * 3;
        return u % 4 < 3 ? four[u % 4] & PACKED : four[0] >> 12 | four[1] >> 12 << 4 | four[2] >> 12 << 8;
    }
};

// The slots of a thread's row in several groups.
template <int B> struct Batch {
    static constexpr int U = GROUPS<B>;
    stored v[U][B];
    Places<B> place;

    // Loads `left` groups, but at most U, beginning at the given addresses; the others become padding.
    __device__ __forceinline__ void load(const stored* values, const u16* columns, int left, u32 zero) {
#pragma unroll
        for (int u = 0; u < U; u++) {
#pragma unroll
            for (int j = 0; j < B; j++) v[u][j] = u < left ? __ldcs(values + (u * B + j) * 32 * B) : stored(0);
        }
        place.load(columns, left, zero);
    }

    __device__ __forceinline__ real product(const real* window) const {
        real sum = 0;
#pragma unroll
        for (int u = 0; u < U; u++) {
            const real* x = window + place[u] * B;
#pragma unroll
            for (int j = 0; j < B; j++) sum += v[u][j] * x[j];
        }
        return sum;
    }
};
