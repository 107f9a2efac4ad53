//! Description of the machine.

/// The CPU, with the threads and SIMD instructions that this program uses.
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) threads: usize,
    pub(crate) simd: String,
}

impl Host {
    pub(crate) fn here() -> Host {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let name = name.map_or_else(|| std::env::consts::ARCH.into(), |(_, name)| name.trim().into());
        Host { name, threads: rayon::current_num_threads(), simd: krysp::simd::level().to_string() }
    }
}

/// A GPU that the driver lists.
pub(crate) struct Gpu {
    pub(crate) name: String,
    pub(crate) memory: usize,
}

#[cfg(feature = "cuda")]
pub(crate) fn gpus() -> Vec<Gpu> {
    krysp::Cuda::devices().into_iter().map(|gpu| Gpu { name: gpu.name, memory: gpu.memory }).collect()
}

#[cfg(not(feature = "cuda"))]
pub(crate) fn gpus() -> Vec<Gpu> {
    vec![]
}
