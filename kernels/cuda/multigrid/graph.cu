// CSR patterns with ascending columns, for all kernels of the setup.

typedef unsigned char u8;

struct Graph {
    const u32* offsets;
    const u32* columns;
    u32 rows;
};

// Rows and columns of a block.
struct Shape {
    u32 rows, columns;
};

// Position of the first entry in [low, high), a row, whose column is at least `column`; `high` if there is none.
__device__ __forceinline__ u32 place_of(const u32* columns, u32 low, u32 high, u32 column) {
    while (low < high) {
        const u32 middle = low + (high - low) / 2;
        if (__ldg(columns + middle) < column) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}
// Position of the diagonal entry of a row; NONE if there is none.
__device__ __forceinline__ u32 own_place(const Graph& a, u32 row) {
    const u32 end = a.offsets[row + 1], place = place_of(a.columns, a.offsets[row], end, row);
    return place < end && a.columns[place] == row ? place : NONE;
}
