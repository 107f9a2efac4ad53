// Permutations of rows, stored as permutations of nodes.

// Maps a row through a permutation of nodes; the rows of a node stay consecutive.
struct Order {
    const u32* nodes;         // null for the identity
    u32 size;                 // rows per node

    __device__ __forceinline__ i64 at(i64 row) const {
        if (!nodes) return row;
        return size == 1 ? __ldg(nodes + row) : (i64)__ldg(nodes + row / size) * size + row % size;
    }
};
