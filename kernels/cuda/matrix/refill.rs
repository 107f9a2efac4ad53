//! Refills a matrix with values on the device, given in the order of the original entries.
//!
//! ```text
//! once:    copy indices of values into the slots instead of values, some bits at a time, and read them back;
//!          list for each tile of slots the 32-byte sectors that contain its values, and for each slot the index
//!          of its value in these sectors
//! refill:  if there are duplicates, compute their sums
//!          for each tile: load its sectors into shared memory;  slot ← value at its index, 0 for padding
//! ```
//!
//! Cost of a refill: one launch per array of slots, which moves 2 bytes and a value per slot, and 36 bytes
//! per sector of each tile. If the values of neighbouring slots are close together, all sectors together hold
//! little more than each given value once. The plan takes 2 bytes of device memory per slot, and for each
//! tile 4 bytes per sector of the largest tile: 3 to 6 bytes per slot in total.

use crate::cuda::device::error::{Error, Result};
use crate::cuda::device::launch::config_concurrent;
use crate::cuda::device::prelude::THREADS;
use crate::cuda::device::{Array, Device, Real};
use crate::cuda::matrix::device_csr::{DeviceCsr, RawTiles, RowStarts, SECTOR, SOURCE};
use crate::cuda::matrix::pattern::Pattern;
use crate::cuda::matrix::product::Product;
use crate::cuda::tuning::{REFILL_SLOTS, REFILL_THREADS};
use crate::index::Offsets;
use cudarc::driver::{CudaFunction, LaunchConfig};

/// Mapping from given values to the entries of a pattern.
#[derive(Clone, Copy, Debug)]
pub enum Order<'a> {
    /// Entry `k` is value `k`.
    InOrder,
    /// Entry `k` is value `from[k]`.
    Permuted {
        /// Index of the value of each entry.
        from: &'a [u32],
    },
    /// Entry `k` is the sum of the values `from[starts.range(k)]`.
    Summed {
        /// Offsets of each entry's values in `from`.
        starts: &'a Offsets,
        /// Indices of the values.
        from: &'a [u32],
    },
}

/// Plan for refilling one matrix.
#[derive(Debug)]
pub struct Refill<T: Real> {
    /// Number of values given.
    given: usize,
    sums: Option<Sums<T>>,
    /// Tiles of each array of slots.
    tiles: Vec<Tiles>,
}

/// Tiles of an array of slots, and for each slot the position of its value in the sectors of its tile.
#[derive(Debug)]
struct Tiles {
    counts: Array<u32>,
    sectors: Array<u32>,
    places: Array<u16>,
    /// Slots per tile.
    slots: usize,
    /// Maximum number of sectors per tile.
    most: usize,
    refill: CudaFunction,
}

impl Tiles {
    /// Finds the sectors of tiles; `map` has for each slot 1 + the index of its value, or 0 for padding.
    fn new<T: Real>(map: &Array<u32>, refill: CudaFunction) -> Result<Self> {
        let device = map.device();
        let make = device.function::<T>(&SOURCE, "refill_tiles")?;
        device.lift_shared_limit(&make)?;
        device.lift_shared_limit(&refill)?;
        let shared = device.shared_memory()?;
        let last = REFILL_SLOTS[REFILL_SLOTS.len() - 1];
        for slots in REFILL_SLOTS {
            let all = map.len().div_ceil(slots);
            let bytes = 2 * slots * size_of::<u32>();
            let launch = |tiles: &Tiles| {
                let (raw, map) = (tiles.raw(map.len()), map.address(0));
                let mut launch = device.launch(&make);
                launch.arg(&map).arg(&raw);
                // SAFETY: arguments as in refill.cu; the kernel writes sectors and places only if `sectors`
                // is not null
                unsafe { launch.launch(tiles.config(THREADS, bytes)) }
            };
            let (counts, none) = (device.zeros(all)?, device.zeros(0)?);
            let mut tiles = Tiles {
                counts,
                sectors: none,
                places: device.zeros(0)?,
                slots,
                most: 0,
                refill: refill.clone(),
            };
            launch(&tiles)?;
            let mut counts = vec![0; all];
            tiles.counts.read(&mut counts)?;
            tiles.most = counts.into_iter().max().unwrap_or(0) as usize;
            if tiles.most * SECTOR > if slots > last { shared / 3 } else { shared } {
                continue;
            }
            // align each tile's list of sectors to a sector
            tiles.most = tiles.most.max(1).next_multiple_of(SECTOR / size_of::<u32>());
            tiles.sectors = device.zeros(all * tiles.most)?;
            tiles.places = device.zeros(map.len())?;
            launch(&tiles)?;
            return Ok(tiles);
        }
        Err(Error::TooLarge { what: "the number of sectors of a tile", got: last, limit: shared / SECTOR })
    }

    fn raw(&self, slots: usize) -> RawTiles {
        // null means that the array is not allocated yet
        let address = |array: &Array<u32>| if array.is_empty() { 0 } else { array.address(0) };
        RawTiles {
            counts: self.counts.address(0),
            sectors: address(&self.sectors),
            places: self.places.address(0),
            tile: self.slots as u32,
            most: self.most as u32,
            slots: slots as i64,
        }
    }

    /// Launch configuration of one block per tile, with this number of threads and bytes of shared memory.
    fn config(&self, threads: u32, bytes: usize) -> LaunchConfig {
        let blocks = self.counts.len().clamp(1, i32::MAX as usize) as u32;
        LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (threads, 1, 1), shared_mem_bytes: bytes as u32 }
    }
}

/// Duplicates that are summed before the sums are copied to slots.
#[derive(Debug)]
struct Sums<T: Real> {
    starts: RowStarts,
    from: Array<u32>,
    entries: Array<T>,
    sum: CudaFunction,
}

impl<T: Real> Refill<T> {
    /// Computes the plan for a matrix made from `pattern`, with `given` values. Overwrites the values of the
    /// matrix, which must be refilled afterwards.
    pub fn new(
        matrix: &mut dyn Product<T>,
        pattern: Pattern<'_>,
        order: Order<'_>,
        given: usize,
    ) -> Result<Self> {
        let Some(device) = matrix.slots().first().map(|slots| slots.device.clone()) else {
            return Err(Error::TooLarge { what: "the number of slots", got: 0, limit: 0 });
        };
        let most = given.max(pattern.entries());
        if most >= u32::MAX as usize {
            return Err(Error::TooLarge {
                what: "the number of values",
                got: most,
                limit: u32::MAX as usize - 1,
            });
        }
        let function = |name| device.function::<T>(&SOURCE, name);
        let number = function("refill_number")?;
        let (from, sums) = match order {
            Order::InOrder => (None, None),
            Order::Permuted { from } => (Some(checked(&device, from, given)?), None),
            Order::Summed { starts, from } => {
                assert_eq!(
                    (starts.ranges(), starts.end()),
                    (pattern.entries(), from.len()),
                    "values of each entry"
                );
                let (starts, from) = (RowStarts::new(&device, starts)?, checked(&device, from, given)?);
                let entries = device.zeros(pattern.entries())?;
                (None, Some(Sums { starts, from, entries, sum: function("refill_sum")? }))
            }
        };
        assert!(sums.is_some() || from.is_some() || given == pattern.entries(), "a value for each entry");
        assert!(from.as_ref().is_none_or(|from| from.len() == pattern.entries()), "a place for each entry");
        let ordered = DeviceCsr::zeros(&device, matrix.shape(), pattern)?.with_columns(pattern)?;
        let all = matrix.slots();
        let maps = all.iter().map(|slots| device.zeros(slots.len)).collect::<Result<Vec<Array<u32>>>>()?;
        let bits = all.iter().map(|slots| slots.bits).min().unwrap_or(16);
        for shift in (0..u32::BITS).step_by(bits as usize) {
            let (from, count) = (from.as_ref().map_or(0, |from| from.address(0)), pattern.entries() as i64);
            let (entries, mask) = (ordered.values.address(0), (1u32 << bits) - 1);
            let mut launch = device.launch(&number);
            launch.arg(&from).arg(&count).arg(&shift).arg(&mask).arg(&entries);
            // SAFETY: arguments as in refill.cu; there are `count` entries, and an index for each if `from`
            // is not null
            unsafe { launch.launch(config_concurrent(&device, pattern.entries(), 1)) }?;
            matrix.fill_from(pattern, &ordered)?;
            for (slots, to) in all.iter().zip(&maps) {
                let map = (slots.function)(&device, &SOURCE, "refill_map")?;
                let (count, to) = (slots.len as i64, to.address(0));
                let mut launch = device.launch(&map);
                launch.arg(&slots.address).arg(&count).arg(&shift).arg(&to);
                // SAFETY: arguments as in refill.cu; a map has a number for each slot, and the matrix is
                // borrowed
                unsafe { launch.launch(config_concurrent(&device, slots.len, 1)) }?;
            }
        }
        let tiles = all
            .iter()
            .zip(&maps)
            .map(|(slots, map)| Tiles::new::<T>(map, (slots.function)(&device, &SOURCE, "refill")?));
        Ok(Refill { given, sums, tiles: tiles.collect::<Result<_>>()? })
    }

    /// Queues the refill of the matrix for which this plan was made.
    pub fn run(&self, matrix: &mut dyn Product<T>, values: &Array<T>) -> Result<()> {
        assert_eq!(values.len(), self.given, "as many values as the matrix was given with");
        let device = values.device();
        let mut from = values.address(0);
        if let Some(Sums { starts, from: places, entries, sum }) = &self.sums {
            let (rows, places, to) = (starts.raw(), places.address(0), entries.address(0));
            let mut launch = device.launch(sum);
            launch.arg(&rows).arg(&places).arg(&from).arg(&to);
            // SAFETY: arguments as in refill.cu; indices were checked to be below the number of values
            unsafe { launch.launch(config_concurrent(device, entries.len(), 1)) }?;
            from = to;
        }
        let count = self.sums.as_ref().map_or(values.len(), |sums| sums.entries.len()) as i64;
        let slots = matrix.slots();
        assert_eq!(slots.len(), self.tiles.len(), "the matrix that this was made for");
        for (slots, tiles) in slots.into_iter().zip(&self.tiles) {
            assert!(
                slots.len == tiles.places.len() && slots.device == *device,
                "the matrix that this was made for"
            );
            if slots.len == 0 {
                continue;
            }
            let raw = tiles.raw(slots.len);
            let mut launch = device.launch(&tiles.refill);
            launch.arg(&raw).arg(&from).arg(&count).arg(&slots.address);
            // SAFETY: arguments as in refill.cu; indices lie in the sectors of their tiles, and these within
            // the values, or sums, for which they were computed; and the matrix is borrowed
            unsafe { launch.launch(tiles.config(REFILL_THREADS, tiles.most * SECTOR)) }?;
        }
        Ok(())
    }
}

/// Uploads indices, after checking that all are below a bound.
fn checked(device: &Device, places: &[u32], bound: usize) -> Result<Array<u32>> {
    let largest = places.iter().copied().max();
    assert!(largest.is_none_or(|place| (place as usize) < bound), "places lie among the given values");
    device.upload(places)
}
