// The end of a step: what it watched, what it recorded for the host, what it carries over. One thread.

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

// An entry of the ring, read by the host: [sequence, failed watch, its value or whether this is the last, how many numbers,
// number…]. The sequence is written last.
__device__ __forceinline__ void publish(volatile double* entry, u64 sequence) {
    __threadfence_system();
    *(volatile u64*)entry = sequence;
}

extern "C" __global__ void end_step(Ending e) {
    Control* control = e.gate.control;
    if (control) {
        if (closed(e.gate)) {
            // the first step that a failed watch has closed says so; those behind it say nothing
            if (threadIdx.x == 0 && control->failed) {
                u64 sequence = ++control->sequence;
                double* entry = e.ring + (sequence % e.entries) * e.width;
                entry[1] = control->failed;
                entry[2] = control->failed_value;
                entry[3] = 0;
                control->failed = 0;
                publish(entry, sequence);
            }
            return;
        }
        u64 sequence = control->sequence + 1;
        double* entry = e.ring + (sequence % e.entries) * e.width;
        for (u32 i = threadIdx.x; i < e.coefficients; i += blockDim.x) {
            entry[4 + e.numbers + i] = double(e.first[i]) + (e.second ? double(e.second[i]) : 0.0);
        }
        __threadfence_system();
        __syncthreads();
        if (threadIdx.x == 0) {
            double residual = 0;
            for (u32 i = 0; i < e.numbers; i++) {
                double v = value(e.number[i]);
                entry[4 + i] = v;
                if (i == 0) residual = v;
            }
            const bool last = e.has_residual && !(finite(residual) && residual > control->threshold);
            if (last) control->active = 0;
            entry[1] = 0;
            entry[2] = last;
            entry[3] = e.numbers + e.coefficients;
            control->sequence = sequence;
            publish(entry, sequence);
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
    control->active = 1;
    control->failed = 0;
    control->threshold = threshold;
    control->sequence = sequence;
}
