//! New values that are on the device already, in the order in which a matrix was given: which slot takes which.
//!
//! ```text
//! once:    number the values, send the numbers the way of values into the slots, some bits at a time, and keep what arrives
//! refill:  slot ← value[number of the slot], 0 for padding;  before that, where places were given twice, their sums
//! ```
//!
//! Budget of a refill: one launch for each array of slots, moving 4 bytes and a value a slot, and the given values once.
//! A map takes 4 bytes of device memory a slot.

use super::device::{Array, Device, Real};
use super::error::{Error, Result};
use super::module::Source;
use super::ordered::{Ordered, Rows};
use super::product::{Pattern, Product, Slots};
use super::vector::config;
use crate::index::Offsets;
use cudarc::driver::CudaFunction;

/// The kernels.
pub(super) const SOURCE: Source = Source { file: "refill.cu", text: include_str!("refill.cu") };

/// Slots that a thread refills at once: `AT_ONCE` of refill.cu.
const AT_ONCE: usize = 8;

/// How given values become the entries of a pattern.
#[derive(Clone, Copy, Debug)]
pub enum Order<'a> {
    /// Entry `k` is value `k`.
    InOrder,
    /// Entry `k` is value `from[k]`.
    Permuted {
        /// The value of each entry.
        from: &'a [u32],
    },
    /// Entry `k` is the sum of the values `from[starts.range(k)]`.
    Summed {
        /// Where the values of each entry begin.
        starts: &'a Offsets,
        /// The values.
        from: &'a [u32],
    },
}

/// What refills one matrix.
#[derive(Debug)]
pub struct Refill<T: Real> {
    /// Values given.
    given: usize,
    sums: Option<Sums<T>>,
    /// For each array of slots, where every slot takes its value from, and the kernel that gives it.
    maps: Vec<(Array<u32>, CudaFunction)>,
}

/// Values that are added up before slots take them.
#[derive(Debug)]
struct Sums<T: Real> {
    starts: Rows,
    from: Array<u32>,
    entries: Array<T>,
    sum: CudaFunction,
}

impl<T: Real> Refill<T> {
    /// Finds out where the slots of a matrix made from `pattern` take `given` values from. Leaves the matrix without values:
    /// it must be refilled.
    pub fn new<P: Product<T>>(
        matrix: &mut P,
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
                let (starts, from) = (Rows::new(&device, starts)?, checked(&device, from, given)?);
                let entries = device.zeros(pattern.entries())?;
                (None, Some(Sums { starts, from, entries, sum: function("refill_sum")? }))
            }
        };
        assert!(sums.is_some() || from.is_some() || given == pattern.entries(), "a value for each entry");
        assert!(from.as_ref().is_none_or(|from| from.len() == pattern.entries()), "a place for each entry");
        let ordered = Ordered::zeros(&device, matrix.shape(), pattern)?.with_columns(pattern)?;
        let all = matrix.slots();
        let mut maps = vec![];
        for Slots { len, function, .. } in &all {
            maps.push((device.zeros(*len)?, function(&device, &SOURCE, "refill")?));
        }
        let bits = all.iter().map(|slots| slots.bits).min().unwrap_or(16);
        for shift in (0..u32::BITS).step_by(bits as usize) {
            let (from, count) = (from.as_ref().map_or(0, |from| from.address(0)), pattern.entries() as i64);
            let (entries, mask) = (ordered.values.address(0), (1u32 << bits) - 1);
            let mut launch = device.launch(&number);
            launch.arg(&from).arg(&count).arg(&shift).arg(&mask).arg(&entries);
            // SAFETY: arguments as in refill.cu; there are so many entries, and a place for each where there are places
            unsafe { launch.launch(config(&device, pattern.entries(), 1)) }?;
            matrix.fill_from(pattern, &ordered)?;
            for (slots, (to, _)) in all.iter().zip(&maps) {
                let map = (slots.function)(&device, &SOURCE, "refill_map")?;
                let (count, to) = (slots.len as i64, to.address(0));
                let mut launch = device.launch(&map);
                launch.arg(&slots.address).arg(&count).arg(&shift).arg(&to);
                // SAFETY: arguments as in refill.cu; a map has a number for each slot, and the matrix is borrowed
                unsafe { launch.launch(config(&device, slots.len, 1)) }?;
            }
        }
        Ok(Refill { given, sums, maps })
    }

    /// Queues the refill of the matrix that this was made for.
    pub fn run<P: Product<T>>(&self, matrix: &mut P, values: &Array<T>) -> Result<()> {
        assert_eq!(values.len(), self.given, "as many values as the matrix was given with");
        let device = values.device();
        let mut from = values.address(0);
        if let Some(Sums { starts, from: places, entries, sum }) = &self.sums {
            let (rows, places, to) = (starts.raw(), places.address(0), entries.address(0));
            let mut launch = device.launch(sum);
            launch.arg(&rows).arg(&places).arg(&from).arg(&to);
            // SAFETY: arguments as in refill.cu; places were checked to lie below the number of values
            unsafe { launch.launch(config(device, entries.len(), 1)) }?;
            from = to;
        }
        let slots = matrix.slots();
        assert_eq!(slots.len(), self.maps.len(), "the matrix that this was made for");
        for (slots, (map, refill)) in slots.into_iter().zip(&self.maps) {
            assert!(slots.len == map.len() && slots.device == *device, "the matrix that this was made for");
            let (map, count) = (map.address(0), slots.len as i64);
            let mut launch = device.launch(refill);
            launch.arg(&map).arg(&from).arg(&count).arg(&slots.address);
            // SAFETY: arguments as in refill.cu; a map numbers values, or sums, that were there when it was made, and the
            // matrix is borrowed
            unsafe { launch.launch(config(device, slots.len, AT_ONCE)) }?;
        }
        Ok(())
    }
}

/// Places on a device, all below a bound.
fn checked(device: &Device, places: &[u32], bound: usize) -> Result<Array<u32>> {
    let largest = places.iter().copied().max();
    assert!(largest.is_none_or(|place| (place as usize) < bound), "places lie among the given values");
    device.upload(places)
}
