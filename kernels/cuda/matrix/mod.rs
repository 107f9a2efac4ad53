//! Code that formats share: patterns and products, copies of values into and out of slots (positions in a
//! format's value array), and row layouts that are computed on the device.

pub(crate) mod borders;
#[cfg(test)]
pub(crate) mod cases;
pub(crate) mod chunks;
pub(crate) mod classes;
pub(crate) mod columns;
pub(crate) mod device_csr;
pub(crate) mod lengths;
pub(crate) mod pattern;
pub(crate) mod product;
pub(crate) mod refill;
pub(crate) mod reordered;
pub(crate) mod residual;
pub(crate) mod scan;
pub(crate) mod slices;
pub(crate) mod transposition;
pub(crate) mod windows;
