// Matrix-vector products of a V-cycle, each fused with the update of vectors by its sums: a sweep reads its matrix
// once.
//
// Moves a matrix and x as in sliced_rows.cu and dia_rows.cu, and 4 B a row for each vector of Update.

// y_i ← from_i + weight d_i (b_i − Σ), just Σ if b is null; next_i ← next_weight next_d_i y_i. Vectors that are null
// are left out.
struct Update {
    const real* from;
    const real* b;
    const real* d;
    real* y;
    const real* next_d;
    real* next;
    const u32* active;        // null outside of steps; 0 once the solve has ended and queued kernels have nothing to do
    float weight, next_weight;

    __device__ __forceinline__ bool ended() const { return active && !*(volatile const u32*)active; }
    __device__ __forceinline__ void operator()(u32 row, real sum) const {
        real v = b ? __ldg(b + row) - sum : sum;
        v *= weight;
        if (d) v *= __ldg(d + row);
        // may alias y: each row is read only by the thread that writes it
        if (from) v += from[row];
        y[row] = v;
        if (next) next[row] = next_weight * __ldg(next_d + row) * v;
    }
};

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
        if (!update.ended()) each_row<ROWS>(a, x, update);                                                                                   \
    }
DIAGONALS(update_dia_1, 1)
DIAGONALS(update_dia_4, 4)
