// A whole solve in one launch, with a diagonal or nothing for a preconditioner.

extern "C" __global__ __launch_bounds__(RESIDENT_THREADS, 1) void resident_cg(System a, Solve s) {
    begin();
    solve<false>(a, s, {});
}
