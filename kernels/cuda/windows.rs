//! Blocks of rows and their windows, on a device.

use super::device::{Array, Device};
use super::error::{Error, Result};
use crate::windows::{TooLarge, Windows};
use cudarc::driver::DeviceRepr;

/// Where blocks begin, and what their windows hold.
#[derive(Debug)]
pub(super) struct WindowArrays {
    pub(super) blocks: usize,
    /// Places of the largest window, and of its zero.
    pub(super) largest: usize,
    cols: usize,
    bounds: Array<u32>,
    starts: Array<u32>,
    halo: Array<u32>,
}

/// [`WindowArrays`] as kernels see them.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct RawWindows {
    bounds: u64,
    starts: u64,
    halo: u64,
    blocks: u32,
    cols: u32,
}
// SAFETY: as `Windows` of prelude.cu
unsafe impl DeviceRepr for RawWindows {}

impl WindowArrays {
    pub(super) fn new(device: &Device, windows: &Windows) -> Result<Self> {
        // kernels find one block, without rows, where there are none
        let ends =
            |ends: &[u32]| if windows.is_empty() { device.upload(&[0, 0]) } else { device.upload(ends) };
        Ok(WindowArrays {
            blocks: windows.count(),
            largest: windows.largest() + 1,
            cols: windows.cols(),
            bounds: ends(windows.bounds())?,
            starts: ends(windows.starts())?,
            halo: device.upload(windows.all_halos())?,
        })
    }

    /// Nodes in halos, all blocks together.
    pub(super) fn halo_nodes(&self) -> usize {
        self.halo.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bounds.bytes() + self.starts.bytes() + self.halo.bytes()
    }

    pub(super) fn raw(&self) -> RawWindows {
        RawWindows {
            bounds: self.bounds.address(0),
            starts: self.starts.address(0),
            halo: self.halo.address(0),
            blocks: self.blocks as u32,
            cols: self.cols as u32,
        }
    }
}

/// What a device says of rows that read too much.
pub(super) fn too_large(most: usize) -> impl Fn(TooLarge) -> Error {
    move |TooLarge { rows, window }| Error::Window { rows, window, most }
}
