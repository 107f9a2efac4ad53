// Conjugate gradients in a persistent kernel, with a coarse correction. In a separate file, because few solves need it
// and compiling it takes time.

extern "C" __global__ __launch_bounds__(RESIDENT_THREADS, 1) void resident_cg_corrected(System a, Solve s, Correction correction) {
    begin();
    solve<true>(a, s, correction);
}
