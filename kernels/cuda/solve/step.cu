// Numbers between vector operations, and the end of a step: what it watched, what it recorded for the host, what it carries
// over. One warp.

// a + b, or its square root. Not gated: nothing reads the sum once the solve has ended.
extern "C" __global__ void add(Number a, Number b, u32 root, real* sum) {
    begin();
    const real v = value(a) + value(b);
    *sum = root ? sqrt(v) : v;
}

struct Ending {
    Gate gate;
    u32 assignments;
    u32 numbers;              // recorded one by one
    u32 has_residual;         // whether the first is ‖r‖², which ends the solve at the threshold
    u32 coefficients;         // recorded as an array behind the numbers: the sum of two
    const real* first;
    const real* second;
    double* ring;             // host memory: entries of `width` words
    u32 width, entries;
    Number number[NUMBERS + ASSIGNMENTS];   // those that are recorded, and behind them those that are assigned
    real* home[ASSIGNMENTS];
};

extern "C" __global__ void end_step(Ending e) {
    begin();
    Control* control = e.gate.control;
    const u32 lane = threadIdx.x, home = lane - NUMBERS;
    // a lane has a number: all are asked for at once, whatever the gate will say
    real v = lane < NUMBERS + ASSIGNMENTS ? value(e.number[lane]) : real(0);
    if (control) {
        const u64 before = *(volatile u64*)&control->sequence;
        const double threshold = *(volatile double*)&control->threshold;
        if (closed(e.gate)) {
            // the first step that a failed watch has closed says so; those behind it say nothing
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
        // all have read the sequence number
        __syncwarp();
        if (lane == 0) {
            const bool last = e.has_residual && !(finite(v) && v > threshold);
            if (last) control->active = 0;
            control->sequence = before + 1;
            entry.done(e.numbers + e.coefficients, last);
        }
    }
    // all have read what is assigned now
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
