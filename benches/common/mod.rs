//! Code that the benches share.

#![allow(dead_code, unreachable_pub, reason = "each bench uses a part of this module")]

pub mod answer;
pub mod contestant;
pub mod contestants;
#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(feature = "cuda")]
pub mod cuda_formats;
#[cfg(feature = "cuda")]
pub mod cuda_options;
#[cfg(feature = "cuda")]
pub mod cuda_peers;
pub mod machine;
#[cfg(feature = "metis")]
pub mod metis;
pub mod mkl;
pub mod peers;
pub mod read;
pub mod record;
pub mod solve;
pub mod systems;

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The median: the middle time, or the mean of the middle two.
pub fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    (times[(times.len() - 1) / 2] + times[times.len() / 2]) / 2.0
}
