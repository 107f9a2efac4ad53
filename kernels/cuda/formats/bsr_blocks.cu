// Small dense blocks (BSR): one column index for B × B entries.
//
// Block rows form slices like the rows of sliced_rows.cu, with a block in each slot (stored position, perhaps padding):
// a lane multiplies whole blocks, and a slice has 32 / T block rows with T lanes each. Entry (i, j) of a block is
// element e = j B + i of its lane. In groups of 32 blocks, W consecutive elements of each lane are stored together, so
// that loads are coalesced and W elements wide.
//
// Consecutive lanes load consecutive entries of x and exchange them through shared memory. If each lane loaded the B
// entries of x for its own block, a block would need B loads of its cache line instead of one.
//
// Memory traffic: 8 B (f64) or 4 B (f32) an entry of a block; 4 B a block for its column or, with 16-bit columns, 2 B a
// block and 4 B for the base of 32 blocks; 4 B a slice; x and y. For B = 3 that is 8.44 or 4.44 B an entry, 8.24 or
// 4.24 B with 16-bit columns.

template <class Column> struct Bsr {
    const u32* starts;        // first group of each slice, and the end
    const u32* order;         // block row at each place (in the sorted order); null if block rows are not sorted
    const u32* bases;         // with 16-bit columns: one per group, which is added to its columns
    const Column* columns;
    const stored* values;
    u32 rows;                 // number of block rows
    u32 slices;
    u32 lanes;                // T: lanes per block row
};

// Block column of a slot without a block: all bits are set.
template <class Column> constexpr Column PADDING = Column(~Column(0));
constexpr int WARPS = THREADS / 32;

// Limits due to registers: dense blocks in flight per lane, and resident thread blocks per multiprocessor.
template <int B> struct Fit;
template <> struct Fit<2> { static constexpr int IN_FLIGHT = sizeof(real) == 8 ? 3 : 4, BLOCKS = sizeof(real) == 8 ? 3 : 4; };
template <> struct Fit<3> { static constexpr int IN_FLIGHT = 2, BLOCKS = sizeof(real) == 8 ? 3 : 4; };
template <> struct Fit<4> { static constexpr int IN_FLIGHT = sizeof(real) == 8 ? 1 : 2, BLOCKS = 3; };
template <> struct Fit<6> { static constexpr int IN_FLIGHT = 1, BLOCKS = sizeof(real) == 8 ? 2 : 3; };
