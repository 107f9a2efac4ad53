//! Kernels for NVIDIA GPUs, behind safe functions: CUDA C++ that is compiled at run time for the device in
//! use.
//!
//! Work is queued on a device's only stream and runs in the order of the calls. This module can be built
//! without CUDA; on a machine without CUDA the list of devices is empty.

pub mod csr;
pub mod device;
pub mod formats;
pub mod matrix;
pub mod multigrid;
pub mod ordering;
pub mod preconditioners;
pub mod resident;
pub mod solve;
pub mod team;
pub mod tuning;

use device::ahead::{File, For};

pub use csr::speculative_on_host::SpeculativeOnHost;
pub use device::error::{Error, Result};
pub use device::module::{Source, compile};
pub use device::{
    Array, Created, Device, Element, Info, KeepsMemory, PinnedArray, Real, Storage, compiler_version, count,
    created, devices, driver_is_usable, is_open, lock, look_for_compiler_in,
};
pub use matrix::device_csr::DeviceCsr;
pub use matrix::pattern::{HasColumns, Pattern, Shape};
pub use matrix::product::Product;
pub use matrix::refill::{Order, Refill};
pub use matrix::transposition::Transposition;
pub use ordering::clusters::{Clusters, Edges};
pub use ordering::graph::Graph;
pub use resident::{Iterate, Resident};
pub use solve::advance::{Advance, advance};
pub use solve::basis::Basis;
pub use solve::gate::{Condition, has_compiled};
pub use solve::number::Scalar;
pub use solve::readback::ScalarReadback;
pub use solve::step::{Entry, Steps};
pub use tuning::{LAG, LAG_OF_LONG, LOCKSTEP_COLUMNS, LOCKSTEP_FROM, LONG_STEP};

/// All kernel source files.
pub const SOURCES: &[&Source] = &[
    &solve::advance::SOURCE,
    &multigrid::AGGREGATES,
    &multigrid::SINGLE_PASS,
    &solve::basis::SOURCE,
    &preconditioners::blocks::SOURCE,
    &formats::bsr::SOURCE,
    &formats::bsr::MANY,
    &csr::bunches::SOURCE,
    &solve::cast::SOURCE,
    &matrix::chunks::SOURCE,
    &matrix::classes::SOURCE,
    &ordering::clusters::SOURCE,
    &preconditioners::coarse::SOURCE,
    &csr::classical::SOURCE,
    &csr::classical::MANY,
    &multigrid::CYCLE,
    &multigrid::MANY,
    &preconditioners::diagonal::SOURCE,
    &formats::dia::SOURCE,
    &formats::dia::MANY,
    &formats::ehyb::SOURCE,
    &multigrid::cycle::ENDS,
    &multigrid::cycle::ENDS_MANY,
    &preconditioners::fsai::SOURCE,
    &formats::halo::SOURCE,
    &formats::halo::MANY,
    &matrix::lengths::SOURCE,
    &csr::merge::SOURCE,
    &matrix::device_csr::SOURCE,
    &matrix::columns::PACK,
    &matrix::reordered::SOURCE,
    &matrix::residual::SOURCE,
    &resident::CORRECTED,
    &resident::PLAIN,
    &multigrid::PERMUTATION,
    &multigrid::NUMBERS,
    &multigrid::PRODUCTS,
    &multigrid::PROLONGATION,
    &ordering::runs::SOURCE,
    &formats::sliced::SOURCE,
    &formats::sliced::MANY,
    &matrix::scan::SOURCE,
    &formats::slabs::SOURCE,
    &matrix::slices::SOURCE,
    &multigrid::STRENGTH,
    &multigrid::SHARED,
    &preconditioners::spai_kernels::FOUND,
    preconditioners::spai_kernels::OF_WARPS[0],
    preconditioners::spai_kernels::OF_WARPS[1],
    preconditioners::spai_kernels::OF_WARPS[2],
    preconditioners::spai_kernels::OF_WARPS[3],
    preconditioners::spai_kernels::OF_BLOCKS[0],
    preconditioners::spai_kernels::OF_BLOCKS[1],
    preconditioners::spai_kernels::OF_BLOCKS[2],
    preconditioners::spai_kernels::OF_BLOCKS[3],
    preconditioners::spai_kernels::OF_BLOCKS[4],
    &formats::symmetric::SOURCE,
    &matrix::transposition::SOURCE,
    &team::member::SOURCE,
    &solve::gate::SOURCE,
    &solve::vector::FUSED,
    &solve::vector::FUSED_MANY,
    &solve::vector::MANY,
    &solve::vector::SOURCE,
    &matrix::windows::SOURCE,
];

/// Kernel files that a first solve is most likely to need, the most likely first.
const LIKELY: &[File] = &[
    (&solve::vector::SOURCE, For::Solve),
    (&solve::vector::FUSED, For::Solve),
    (&resident::PLAIN, For::Solve),
    (&formats::sliced::SOURCE, For::Solve),
    (&matrix::slices::SOURCE, For::Solve),
    (&solve::gate::SOURCE, For::Solve),
    (&matrix::residual::SOURCE, For::Solve),
    (&formats::dia::SOURCE, For::Solve),
    (&matrix::scan::SOURCE, For::Single),
    (&solve::advance::SOURCE, For::Solve),
    (&csr::classical::SOURCE, For::Solve),
    (&matrix::device_csr::SOURCE, For::Solve),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::simd::bf16::Bf16;
    use std::io::Write;

    /// Kernels that may spill registers to local memory; beside each, the bytes that it spills.
    const MAY_SPILL: [&str; 8] = [
        // up to 16: a whole solve, with as many threads as fit on a multiprocessor
        "resident_cg_corrected",
        // 8 on sm_100
        "restrict_rows",
        "prolong_dot",
        // 16 on sm_75, whose shared memory the kernel exceeds, so that it is never launched there
        "slabs_wide",
        // 4 on sm_80
        "add_ghosts",
        // up to 64 on sm_100, around calls of square roots
        "orthonormal",
        // 4 on sm_80 and sm_100
        "widen_dot",
        "blocks_axpy_product_dot",
    ];

    /// All architectures, for which only the ignored test `every_kernel_compiles_for_every_architecture`
    /// compiles. Every other test compiles for one of them, as compiling takes long: errors that depend on both
    /// the architecture and the types are left to the ignored test.
    const ALL: &[u32] = &[75, 80, 90, 100];

    /// Compiles all kernels of these files for some architectures; only those in [`MAY_SPILL`] may spill
    /// registers.
    fn compiles<T: Real, V: Storage<T>>(sources: impl Iterator<Item = &'static Source>, archs: &[u32]) {
        let mut spilling = vec![];
        for source in sources {
            for &arch in archs {
                match device::module::compile_with_log::<T, V>(source, arch) {
                    Ok((code, log)) => {
                        assert!(code.starts_with(b"\x7fELF"), "{}, sm_{arch}", source.file);
                        let kernels = source.text.matches("__global__").count();
                        let (all, found) = spills(&log);
                        assert!(all >= kernels && kernels > 0, "{}, sm_{arch}: {log}", source.file);
                        let named = |kernel: String| format!("{}, sm_{arch}: {kernel}", source.file);
                        spilling.extend(found.into_iter().map(named));
                    }
                    Err(Error::NoCompiler) => {
                        let required =
                            std::env::var_os("KRYSP_REQUIRE_NVRTC").is_some_and(|value| value == "1");
                        assert!(!required, "no NVRTC on this machine, and KRYSP_REQUIRE_NVRTC=1 requires it");
                        // written to stderr directly, because the test harness captures what a passing test
                        // prints
                        let _ = writeln!(std::io::stderr(), "skipped: no NVRTC on this machine");
                        return;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        }
        assert!(spilling.is_empty(), "{spilling:#?}");
    }

    /// The number of kernels in the compiler's log, and those that spill.
    fn spills(log: &str) -> (usize, Vec<String>) {
        let (mut all, mut kernel, mut spilling) = (0, "", vec![]);
        for line in log.lines() {
            if let Some((_, name)) = line.split_once("entry function '") {
                (all, kernel) = (all + 1, name.split('\'').next().unwrap_or(name));
            }
            let spills = line.contains("bytes spill stores")
                && !line.contains(" 0 bytes spill stores, 0 bytes spill loads");
            if spills && !MAY_SPILL.contains(&kernel) {
                spilling.push(format!("{kernel}: {}", line.trim()));
            }
        }
        (all, spilling)
    }

    #[test]
    fn spills_are_found_in_the_log() {
        let log = "ptxas info : Compiling entry function 'a' for 'sm_90'\n\
                   8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
                   ptxas info : Compiling entry function 'b' for 'sm_90'\n\
                   24 bytes stack frame, 10 bytes spill stores, 20 bytes spill loads\n";
        let spilling = "b: 24 bytes stack frame, 10 bytes spill stores, 20 bytes spill loads";
        assert_eq!(spills(log), (2, vec![spilling.to_string()]));
    }

    #[test]
    fn every_kernel_compiles_f64() {
        compiles::<f64, f64>(SOURCES.iter().copied(), &[90]);
    }

    #[test]
    fn every_kernel_compiles_f32() {
        compiles::<f32, f32>(SOURCES.iter().copied(), &[75]);
    }

    #[test]
    #[ignore = "compiles for minutes"]
    fn every_kernel_compiles_for_every_architecture() {
        compiles::<f64, f64>(SOURCES.iter().copied(), ALL);
        compiles::<f32, f32>(SOURCES.iter().copied(), ALL);
    }

    #[test]
    fn every_kernel_of_matrices_compiles_f64_storing_f32() {
        compiles::<f64, f32>(SOURCES.iter().copied().filter(|source| source.text.contains("stored")), &[80]);
    }

    #[test]
    fn every_kernel_of_matrices_compiles_f64_storing_16_bits() {
        compiles::<f64, Bf16>(
            SOURCES.iter().copied().filter(|source| source.text.contains("stored")),
            &[100],
        );
    }

    #[test]
    fn a_machine_without_a_device_says_so() {
        let devices = count();
        let missing = Device::new(devices).unwrap_err();
        if devices == 0 {
            assert!(
                matches!(missing, Error::NoDriver | Error::NoDevice { ordinal: 0, count: 0 }),
                "{missing}"
            );
        } else {
            assert_eq!(missing, Error::NoDevice { ordinal: devices, count: devices });
        }
    }
}
