// Numbers of nodes in another order.

// The number that a row has elsewhere. Rows of a node follow each other.
struct Order {
    const u32* nodes;         // null where rows have the numbers that they had
    u32 size;                 // rows of a node

    __device__ __forceinline__ i64 at(i64 row) const {
        if (!nodes) return row;
        return size == 1 ? __ldg(nodes + row) : (i64)__ldg(nodes + row / size) * size + row % size;
    }
};
