// Conjugate gradients in a persistent kernel, with a diagonal preconditioner or none.

extern "C" __global__ __launch_bounds__(RESIDENT_THREADS, 1) void resident_cg(System a, Solve s) {
    begin();
    solve<false>(a, s, {});
}
