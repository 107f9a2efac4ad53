// Scalar arithmetic between vector operations, and the end of a step (iteration), which one warp processes: it checks
// watches, reports numbers to the host, and assigns values for the next step.

// a + b, or its square root. Need not check whether the solve has ended (a gate): no kernel reads the sum then.
extern "C" __global__ void add(Number a, Number b, u32 root, real* sum) {
    begin();
    const real v = value(a) + value(b);
    *sum = root ? sqrt(v) : v;
}

struct Ending {
    Gate gate;
    u32 assignments;          // number of scalars assigned
    u32 numbers;              // number of scalars reported
    u32 has_residual;         // whether the first scalar is ‖r‖², which ends the solve if it is at most the threshold
    u32 coefficients;         // length of the array that is reported after the scalars: the sum of two arrays
    const real* first;
    const real* second;
    double* ring;             // host memory: entries of `width` words
    u32 width, entries;
    Number number[NUMBERS + ASSIGNMENTS];   // reported numbers, followed by assigned ones
    real* home[ASSIGNMENTS];  // addresses to which assigned numbers are written
};

extern "C" __global__ void end_step(Ending e) {
    begin();
    Control* control = e.gate.control;
    const u32 lane = threadIdx.x, home = lane - NUMBERS;
    // each lane evaluates one number, before the state of the gate is known
    real v = lane < NUMBERS + ASSIGNMENTS ? value(e.number[lane]) : real(0);
    if (control) {
        const u64 before = *(volatile u64*)&control->sequence;
        const double threshold = *(volatile double*)&control->threshold;
        if (closed(e.gate)) {
            // report a failed watch once, in the step where it failed; later steps report nothing
            if (lane == 0 && control->failed) {
                control->sequence = before + 1;
                Entry(e.ring, e.width, e.entries, before + 1).failed(control->failed, control->failed_value);
                control->failed = 0;
            }
            return;
        }
        Entry entry(e.ring, e.width, e.entries, before + 1);
        for (u32 i = lane; i < e.coefficients; i += blockDim.x) {
            entry.number(e.numbers + i, double(e.first[i]) + (e.second ? double(e.second[i]) : 0.0));
        }
        if (lane < e.numbers) entry.number(lane, v);
        // all lanes have read the sequence number
        __syncwarp();
        if (lane == 0) {
            const bool last = e.has_residual && !(finite(v) && v > threshold);
            if (last) control->active = 0;
            control->sequence = before + 1;
            entry.done(e.numbers + e.coefficients, last);
        }
    }
    // assign only after all lanes have evaluated their numbers, which may read the assigned cells
    __syncwarp();
    if (home < e.assignments) *e.home[home] = v;
}

extern "C" __global__ void begin_steps(Control* control, double threshold, u64 sequence) {
    begin();
    control->active = 1;
    control->failed = 0;
    control->threshold = threshold;
    control->sequence = sequence;
}
