//! Persistent kernel for conjugate gradients: the system stays in shared memory, and one launch runs many
//! iterations.

mod blocks;
pub(crate) mod segments;

use crate::cuda::device::error::Result;
use crate::cuda::device::launch::config;
use crate::cuda::device::module::{Source, constants, mirror};
use crate::cuda::device::{Array, Device, Real, lock};
use crate::cuda::matrix::device_csr::{DeviceCsr, SOURCE};
use crate::cuda::matrix::pattern::Pattern;
use crate::cuda::preconditioners::coarse::Coarse;
use crate::cuda::resident::blocks::BlockArrays;
use crate::cuda::resident::segments::{RawCorrection, Segments};
use crate::cuda::solve::number::Scalar;
use crate::cuda::solve::step::Steps;
use crate::cuda::tuning::{FEWEST_RESIDENT_ROWS, MOST_RESIDENT, MOST_RESIDENT_STEPS};
use cudarc::driver::sys::CUdevice_attribute;
use cudarc::driver::{DeviceRepr, LaunchConfig, PushKernelArg};
use std::sync::Mutex;

/// Kernel for solves with a diagonal preconditioner or none.
pub(crate) const PLAIN: Source = Source {
    file: "plain.cu",
    text: concat!(include_str!("resident.cu"), "#line 1 \"plain.cu\"\n", include_str!("plain.cu")),
    ..CORRECTED
};

/// Kernel for solves with a coarse correction.
pub(crate) const CORRECTED: Source = Source {
    file: "corrected.cu",
    text: concat!(include_str!("resident.cu"), "#line 1 \"corrected.cu\"\n", include_str!("corrected.cu")),
    constants: constants![RESIDENT_THREADS],
    mirrors: &[
        mirror!(
            "System" = RawSystem {
                rows,
                halo_first,
                halo,
                slice_first,
                slices,
                values,
                columns,
                lanes,
                window,
                own,
                staged
            }
        ),
        mirror!(
            "Solve" = RawSolve {
                control,
                inverse,
                x,
                r,
                p,
                z,
                rho,
                partials,
                barrier,
                log,
                ring,
                width,
                entries,
                rho_watch,
                sigma_watch,
                count
            }
        ),
        segments::MIRROR,
    ],
};

/// Threads per block.
const RESIDENT_THREADS: usize = 1024;
/// Upper bound of the kernel's static shared memory, in bytes.
const STATIC_SHARED: usize = 2048;

/// A matrix whose rows are divided among thread blocks; each stores its rows in shared memory as far as they
/// fit.
#[derive(Debug)]
pub struct Resident<T: Real> {
    device: Device,
    blocks: usize,
    /// Maximum bytes of shared memory per block.
    most: usize,
    /// Bytes of shared memory per block that vectors need.
    vectors: usize,
    /// Maximum number of groups of 32 slots (stored positions, including padding) of a block.
    groups: usize,
    /// Lanes per row.
    lanes: usize,
    /// Number of entries of `x` that a block reads, at most.
    window: usize,
    /// Number of rows of a block, at most.
    own: usize,
    n: usize,
    /// Entry of the pattern for each slot of `values`; padding has none.
    places: Array<u32>,
    first_rows: Vec<u32>,
    /// Data for the coarse space of the last solve.
    segments: Mutex<Option<Segments<T>>>,
    rows: Array<u32>,
    halo_first: Array<u32>,
    halo: Array<u32>,
    slice_first: Array<u32>,
    slices: Array<u32>,
    columns: Array<u16>,
    values: Array<T>,
    partials: Array<T>,
    barrier: Array<u32>,
    log: Array<f64>,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct RawSystem {
    rows: u64,
    halo_first: u64,
    halo: u64,
    slice_first: u64,
    slices: u64,
    values: u64,
    columns: u64,
    lanes: u32,
    window: u32,
    own: u32,
    staged: u32,
}
// SAFETY: has the layout of `System` in resident.cu
unsafe impl DeviceRepr for RawSystem {}

#[derive(Clone, Copy)]
#[repr(C)]
struct RawSolve {
    control: u64,
    inverse: u64,
    x: u64,
    r: u64,
    p: u64,
    z: u64,
    rho: u64,
    partials: u64,
    barrier: u64,
    log: u64,
    ring: u64,
    width: u32,
    entries: u32,
    rho_watch: u32,
    sigma_watch: u32,
    count: u32,
}
// SAFETY: has the layout of `Solve` in resident.cu
unsafe impl DeviceRepr for RawSolve {}

/// The vectors of a solve between two iterations.
#[derive(Debug)]
pub struct Iterate<'s, T: Real> {
    /// `D⁻¹` of the diagonal preconditioner `D`; `None` for the identity.
    pub inverse: Option<&'s Array<T>>,
    /// Coarse space that is added to the preconditioner.
    pub correction: Option<&'s Coarse<T>>,
    /// Solution.
    pub x: &'s mut Array<T>,
    /// Residual.
    pub r: &'s mut Array<T>,
    /// Search direction.
    pub p: &'s mut Array<T>,
    /// Receives the preconditioned residual.
    pub z: &'s mut Array<T>,
    /// `⟨r, z⟩`
    pub rho: &'s Scalar<T>,
    /// Names of `⟨r, z⟩` and `⟨p, A p⟩`, which must be positive, for error messages.
    pub watched: [&'static str; 2],
}

impl<T: Real> Resident<T> {
    /// Returns whether a matrix is small enough for this kernel.
    pub fn suits(pattern: Pattern<'_>) -> bool {
        let (n, entries) = (pattern.rows(), pattern.entries());
        n == pattern.cols() && n > 0 && entries > 0 && entries <= MOST_RESIDENT
    }

    /// Lays out a square matrix. `None` if the matrix is so large that separate launches are faster, or the
    /// windows of its blocks do not fit. `values` returns the values in the order of the pattern; it is
    /// called only if the matrix is laid out.
    pub fn new(
        device: &Device,
        pattern: Pattern<'_>,
        values: &dyn Fn() -> Result<DeviceCsr<T>>,
    ) -> Result<Option<Self>> {
        let n = pattern.rows();
        if !Self::suits(pattern) {
            return Ok(None);
        }
        let attribute = |which| device.inner.context.attribute(which);
        if attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)? == 0 {
            return Ok(None);
        }
        let most = device.shared_memory()?.saturating_sub(STATIC_SHARED);
        let blocks = n.div_ceil(FEWEST_RESIDENT_ROWS).min(device.multiprocessors());
        let vectors = |window: usize, own: usize| (window + 4 * own) * size_of::<T>();
        let fits = |window: usize, own: usize| vectors(window, own) <= most;
        let Some(arrays) = BlockArrays::new(pattern, blocks, &fits) else { return Ok(None) };
        let groups = |block: usize| {
            let [first, end] = [block, block + 1].map(|block| arrays.slice_first[block] as usize);
            (arrays.slices[end] - arrays.slices[first]) as usize
        };
        let mut resident = Resident {
            blocks,
            most,
            vectors: vectors(arrays.window, arrays.own),
            groups: (0..blocks).map(groups).max().unwrap_or(0),
            lanes: arrays.lanes,
            window: arrays.window,
            own: arrays.own,
            n,
            rows: device.upload(&arrays.rows)?,
            first_rows: arrays.rows,
            segments: Mutex::new(None),
            halo_first: device.upload(&arrays.halo_first)?,
            halo: device.upload(&arrays.halo)?,
            slice_first: device.upload(&arrays.slice_first)?,
            slices: device.upload(&arrays.slices)?,
            columns: device.upload(&arrays.columns)?,
            values: device.zeros(arrays.entries.len())?,
            places: device.upload(&arrays.entries)?,
            partials: device.zeros(4 * blocks)?,
            barrier: device.zeros(2)?,
            log: device.zeros(3 * MOST_RESIDENT_STEPS)?,
            device: device.clone(),
        };
        resident.refill(&values()?)?;
        Ok(Some(resident))
    }

    /// Replaces the values by `ordered`, in the order of the pattern's entries. Memory traffic: 4 bytes and
    /// two values for each slot.
    pub fn refill(&mut self, ordered: &DeviceCsr<T>) -> Result<()> {
        let (count, given) = (self.places.len(), ordered.values.len());
        assert!(ordered.device() == &self.device, "values on the device of the matrix");
        let take = self.device.function::<T>(&SOURCE, "refill_places")?;
        let (places, values, slots) =
            (self.places.address(0), ordered.values.address(0), self.values.address(0));
        let (number, most) = (count as i64, given as u32);
        let mut launch = self.device.launch(&take);
        launch.arg(&places).arg(&number).arg(&values).arg(&most).arg(&slots);
        // SAFETY: arguments as in refill.cu; `places` and `slots` have `count` elements, and there are
        // `given` values
        unsafe { launch.launch(config(count)) }
    }

    /// Queues up to `count` iterations in one launch and returns their number; 0 if the correction does not
    /// fit this kernel, `rho` was never assigned (see [`Scalar::assign`]), or too many steps are in flight.
    pub fn steps(&self, at: Iterate<'_, T>, steps: &mut Steps<T>, count: usize) -> Result<usize> {
        let Iterate { inverse, correction, x, r, p, z, rho, watched } = at;
        for vector in [inverse.unwrap_or(x), x, r, p, z] {
            assert_eq!(vector.len(), self.n, "vectors as long as the matrix");
            assert!(vector.device() == &self.device, "vectors on the device of the matrix");
        }
        let Some(rho) = rho.home() else { return Ok(0) };
        let count = count.min(steps.free_entries()).min(MOST_RESIDENT_STEPS);
        if count == 0 {
            return Ok(0);
        }
        // locked until the launch is queued, because the next launch may replace the segments
        let mut segments = lock(&self.segments);
        let correction = match correction {
            None => None,
            Some(coarse) => match self.corrected(&mut segments, coarse)? {
                None => return Ok(0),
                some => some,
            },
        };
        let taken = self.vectors + correction.as_ref().map_or(0, |(_, bytes)| *bytes);
        let Some(left) = self.most.checked_sub(taken) else { return Ok(0) };
        let group = 32 * (size_of::<T>() + size_of::<u16>());
        let staged = self.groups.min(left / group);
        let shared = taken + staged * group;
        let (source, name) = match correction {
            Some(_) => (&CORRECTED, "resident_cg_corrected"),
            None => (&PLAIN, "resident_cg"),
        };
        let kernel = self.device.function::<T>(source, name)?;
        self.device.lift_shared_limit(&kernel)?;
        let system = RawSystem {
            rows: self.rows.address(0),
            halo_first: self.halo_first.address(0),
            halo: self.halo.address(0),
            slice_first: self.slice_first.address(0),
            slices: self.slices.address(0),
            values: self.values.address(0),
            columns: self.columns.address(0),
            lanes: self.lanes as u32,
            window: self.window as u32,
            own: self.own as u32,
            staged: staged as u32,
        };
        let (ring, width, entries) = steps.ring();
        let solve = RawSolve {
            control: steps.control(),
            inverse: inverse.map_or(0, |inverse| inverse.address(0)),
            x: x.address(0),
            r: r.address(0),
            p: p.address(0),
            z: z.address(0),
            rho,
            partials: self.partials.address(0),
            barrier: self.barrier.address(0),
            log: self.log.address(0),
            ring,
            width,
            entries,
            rho_watch: steps.name(watched[0]),
            sigma_watch: steps.name(watched[1]),
            count: count as u32,
        };
        let config = LaunchConfig {
            grid_dim: (self.blocks as u32, 1, 1),
            block_dim: (RESIDENT_THREADS as u32, 1, 1),
            shared_mem_bytes: shared as u32,
        };
        let mut launch = self.device.inner.stream.launch_builder(&kernel);
        launch.arg(&system).arg(&solve);
        if let Some((raw, _)) = &correction {
            launch.arg(raw);
        }
        // SAFETY: arguments as in resident.cu; the layout was made for these blocks and fits their shared
        // memory, and in a cooperative launch all blocks are resident
        unsafe { launch.launch_cooperative(config) }?;
        steps.queued(count);
        Ok(count)
    }

    /// Kernel arguments for a coarse space, and the bytes of shared memory that it needs; laid out at first
    /// use.
    fn corrected(
        &self,
        kept: &mut Option<Segments<T>>,
        coarse: &Coarse<T>,
    ) -> Result<Option<(RawCorrection, usize)>> {
        if coarse.of_row.len() != self.n || coarse.of_row.device() != &self.device {
            return Ok(None);
        }
        let segments = match kept.take().filter(|segments| segments.is_of(coarse)) {
            Some(segments) => segments,
            None => Segments::new(&self.device, &self.first_rows, coarse)?,
        };
        Ok(kept.insert(segments).raw(coarse, [self.own, self.window]))
    }
}
