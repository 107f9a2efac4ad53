// Numbers between vector operations, and the end of a step: what it watched, what it recorded for the host, what it carries
// over. One warp.

// a + b, or its square root. Not gated: a slot that nobody reads once the solve has ended.
extern "C" __global__ void add(Number a, Number b, u32 root, real* sum) {
    begin();
    const real v = value(a) + value(b);
    *sum = root ? sqrt(v) : v;
}

struct Assignment {
    real* home;
    Number number;
};

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
    Number number[3];
    Assignment assignment[6];
};

extern "C" __global__ void end_step(Ending e) {
    begin();
    Control* control = e.gate.control;
    if (control) {
        if (closed(e.gate)) {
            // the first step that a failed watch has closed says so; those behind it say nothing
            if (threadIdx.x == 0 && control->failed) {
                const u64 sequence = ++control->sequence;
                Entry(e.ring, e.width, e.entries, sequence).failed(control->failed, control->failed_value);
                control->failed = 0;
            }
            return;
        }
        const u64 sequence = control->sequence + 1;
        Entry entry(e.ring, e.width, e.entries, sequence);
        for (u32 i = threadIdx.x; i < e.coefficients; i += blockDim.x) {
            entry.number(e.numbers + i, double(e.first[i]) + (e.second ? double(e.second[i]) : 0.0));
        }
        // all have read the sequence number
        __syncwarp();
        if (threadIdx.x == 0) {
            double residual = 0;
            for (u32 i = 0; i < e.numbers; i++) {
                const double v = value(e.number[i]);
                entry.number(i, v);
                if (i == 0) residual = v;
            }
            const bool last = e.has_residual && !(finite(residual) && residual > control->threshold);
            if (last) control->active = 0;
            control->sequence = sequence;
            entry.done(e.numbers + e.coefficients, last);
        }
    }
    if (threadIdx.x == 0) {
        real values[6];
#pragma unroll
        for (int i = 0; i < 6; i++) if (i < e.assignments) values[i] = value(e.assignment[i].number);
#pragma unroll
        for (int i = 0; i < 6; i++) if (i < e.assignments) *e.assignment[i].home = values[i];
    }
}

extern "C" __global__ void begin_steps(Control* control, double threshold, u64 sequence) {
    begin();
    control->active = 1;
    control->failed = 0;
    control->threshold = threshold;
    control->sequence = sequence;
}
