//! Blocks of rows and the windows of `x` that they read, on a device.

use crate::cuda::device::error::{Error, Result};
use crate::cuda::device::module::{Source, constants};
use crate::cuda::device::prelude::{RawWindows, THREADS};
use crate::cuda::device::{Array, Device, Element};
use crate::cuda::matrix::device_csr::{DeviceCsr, Misfit};
use crate::cuda::matrix::scan::scan;
use crate::windows::{TooLarge, Windows};
use cudarc::driver::LaunchConfig;

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "windows.cu",
    text: include_str!("windows.cu"),
    constants: constants![TABLE],
    mirrors: &[],
};

/// Capacity of the hash table with which a thread block finds distinct columns. Guess; 32 KiB of shared
/// memory.
const TABLE: usize = 8192;
/// Maximum size of a halo that is found on a device: half of the table.
const LONGEST: usize = TABLE / 2;

/// Row bounds of blocks, and the contents of their windows.
#[derive(Debug)]
pub(crate) struct WindowArrays {
    pub(crate) blocks: usize,
    /// Nodes of the largest window, plus one for the zero.
    pub(crate) largest: usize,
    cols: usize,
    bounds: Array<u32>,
    starts: Array<u32>,
    halo: Array<u32>,
}

impl WindowArrays {
    pub(crate) fn new(device: &Device, windows: &Windows) -> Result<Self> {
        // kernels expect at least one block: an empty one if there are no rows
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

    /// Cuts a square matrix into blocks of `height` rows; also returns their bounds. `None` if a window would
    /// have more than `most` nodes: blocks must then be halved, which only the host's algorithm does.
    pub(crate) fn of_blocks<V: Element>(
        ordered: &DeviceCsr<V>,
        height: usize,
        most: usize,
    ) -> Result<Option<(Self, Vec<u32>)>> {
        let (device, rows, entries) = (ordered.device(), ordered.rows.count(), ordered.columns.len());
        let blocks = rows.div_ceil(height);
        let most = most.saturating_sub(height).min(LONGEST);
        if rows == 0 || most == 0 || u32::try_from(entries).is_err() {
            return Ok(None);
        }
        let find = device.function::<f32>(&SOURCE, "window_halos")?;
        let (starts, misfit) = (device.zeros::<u32>(blocks + 1)?, Misfit::none(device)?);
        let config =
            LaunchConfig { grid_dim: (blocks as u32, 1, 1), block_dim: (THREADS, 1, 1), shared_mem_bytes: 0 };
        let find_halos = |halo: u64| {
            let (raw, columns, mark) = (ordered.rows.raw(), ordered.columns.address(0), misfit.address());
            let (height, most, to) = (height as u32, most as u32, starts.address(0));
            let mut launch = device.launch(&find);
            launch.arg(&raw).arg(&columns).arg(&height).arg(&most).arg(&to).arg(&halo).arg(&mark);
            // SAFETY: arguments as in windows.cu; there is a start for each block, and the halo is null or as
            // long as the last start says
            unsafe { launch.launch(config) }
        };
        find_halos(0)?;
        if misfit.is_set()? {
            return Ok(None);
        }
        scan(&starts)?;
        let mut ends = vec![0; blocks + 1];
        starts.read(&mut ends)?;
        let halo = device.zeros::<u32>(ends[blocks] as usize)?;
        find_halos(halo.address(0))?;
        let bounds: Vec<u32> = (0..=blocks).map(|block| rows.min(block * height) as u32).collect();
        let window = |block: usize| bounds[block + 1] - bounds[block] + ends[block + 1] - ends[block];
        let largest = (0..blocks).map(window).max().unwrap_or(0) as usize + 1;
        let arrays =
            WindowArrays { blocks, largest, cols: rows, bounds: device.upload(&bounds)?, starts, halo };
        Ok(Some((arrays, bounds)))
    }

    /// Total number of halo nodes of all blocks.
    pub(crate) fn halo_nodes(&self) -> usize {
        self.halo.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bounds.bytes() + self.starts.bytes() + self.halo.bytes()
    }

    pub(crate) fn raw(&self) -> RawWindows {
        RawWindows {
            bounds: self.bounds.address(0),
            halos: self.starts.address(0),
            halo: self.halo.address(0),
            blocks: self.blocks as u32,
            cols: self.cols as u32,
        }
    }
}

/// Converts the host's error for rows whose window is too large to an error of the device.
pub(crate) fn too_large(most: usize) -> impl Fn(TooLarge) -> Error {
    move |TooLarge { rows, window }| Error::Window { rows, window, most }
}
