//! Kernels for NVIDIA GPUs: CUDA C++ compiled at run time for the device at hand, behind safe functions.
//!
//! Work is queued on a device's one stream and runs in the order of the calls. Nothing here needs CUDA to build, and a
//! machine without it has no devices.

mod basis;
pub mod bsr;
pub mod coo;
pub mod csr;
mod device;
pub mod dia;
mod error;
pub mod hyb;
mod layout;
mod module;
mod number;
mod product;
mod resident;
pub mod sliced;
mod slices;
mod step;
pub mod vector;

pub use basis::Basis;
pub use device::{Array, Device, Element, Info, Real, count, devices};
pub use error::{Error, Result};
pub use module::{Source, compile};
pub use number::Scalar;
pub use product::{Pattern, Product};
pub use resident::{Iterate, Resident};
pub use step::{Condition, Entry, LAG, Steps};

/// Every file of kernels.
pub const SOURCES: [&Source; 9] = [
    &basis::SOURCE,
    &bsr::SOURCE,
    &coo::SOURCE,
    &csr::SOURCE,
    &dia::SOURCE,
    &resident::SOURCE,
    &sliced::SOURCE,
    &step::SOURCE,
    &vector::SOURCE,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn compiles<T: Real>() {
        for source in SOURCES {
            for arch in [75, 80, 90, 100] {
                match compile::<T>(source, arch) {
                    Ok(code) => assert!(code.starts_with(b"\x7fELF"), "{}, sm_{arch}", source.file),
                    Err(Error::NoCompiler) => {
                        println!("skipped: no NVRTC on this machine");
                        return;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    #[test]
    fn every_kernel_compiles_f64() {
        compiles::<f64>();
    }

    #[test]
    fn every_kernel_compiles_f32() {
        compiles::<f32>();
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
