// Updates of the vectors of a V-cycle by the results of a product.

// y_i ← from_i + weight d_i (b_i − s_i); next_i ← next_weight next_d_i y_i, where s = A x is the product, and d and
// next_d are inverse diagonals. If b is null, s_i replaces b_i − s_i. If `from`, d or `next` is null, its term, factor
// or assignment is left out.
struct Update {
    const real* from;
    const real* b;
    const real* d;
    real* y;
    const real* next_d;
    real* next;
    const u32* active;        // null if not within a queued solver iteration; 0 once the solve has ended
    float weight, next_weight;

    __device__ __forceinline__ bool ended() const { return active && !*(volatile const u32*)active; }
    // Updates a row, given its entry s_i = `sum` of the product. `at` is the index of the row's element in the vectors;
    // in `d` and `next_d` it is `row`.
    template <class Place> __device__ __forceinline__ void update(u32 row, Place at, real sum) const {
        real v = b ? __ldg(b + at) - sum : sum;
        v *= weight;
        if (d) v *= __ldg(d + row);
        // `from` may be y: each element is read only by the thread that writes it
        if (from) v += from[at];
        y[at] = v;
        if (next) next[at] = next_weight * __ldg(next_d + row) * v;
    }
    __device__ __forceinline__ void operator()(u32 row, real sum) const { update(row, row, sum); }
};

