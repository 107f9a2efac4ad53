// Matrix-vector products of a V-cycle, each fused with the update of vectors by its sums: a sweep reads its matrix
// once.
//
// Memory traffic: the matrix and x as described in sliced_rows.cu and dia_rows.cu, and 4 B per row for each vector of
// `Update` (update.cu).

#define SLICED(NAME, COLUMN, G)                                                                                         \
    extern "C" __global__ __launch_bounds__(THREADS, sizeof(real) == 8 ? 4 : 5) void NAME(Sliced<COLUMN> a, const real* x, Update update) {         \
        begin();                                                                                                        \
        if (!update.ended()) each_row<COLUMN, G>(a, x, update);                                                                              \
    }
SLICED(update_wide, u32, 1)
SLICED(update_wide_packed, u32, VALUES)
SLICED(update_short, u16, 1)
SLICED(update_short_packed, u16, VALUES)

#define DIAGONALS(NAME, ROWS)                                                                                           \
    extern "C" __global__ __launch_bounds__(THREADS, sizeof(real) == 8 ? 3 : 4) void NAME(Dia a, const real* x, Update update) {                    \
        begin();                                                                                                        \
        if (!update.ended()) each_row<ROWS>(a, Unpacked(x), update);                                                                                   \
    }
DIAGONALS(update_dia_1, 1)
DIAGONALS(update_dia_4, 4)
