//! Index arrays of kernels in files: read by their constructors, which check them.

use super::{InconsistentData, saved};
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::formats::coo::EntryRows;
use krysp_kernels::cpu::formats::sliced::ChunkOrder;
use krysp_kernels::cpu::formats::symmetric::Halves;
use krysp_kernels::index::{Columns, Offsets};

saved!(impl[] Offsets as |this| {
    is_long: bool = &matches!(this, Offsets::Long(_)),
    short: Buffer<u32> = if let Offsets::Short(short) = this { &short[..] } else { &[] },
    long: Vec<u64> = if let Offsets::Long(long) = this { &long[..] } else { &[] },
} => {
    let offsets = if is_long { Offsets::new(&long) } else { Offsets::from_short(short) };
    offsets.map_err(|_| InconsistentData)
});

saved!(impl[] Columns as |this| { bound: usize = &this.bound(), columns: Buffer<u32> = &this[..] } => {
    Columns::new(columns, bound).map_err(|_| InconsistentData)
});

saved!(impl[] ChunkOrder as |this| { order: Vec<u16> = &this[..] } => {
    ChunkOrder::new(order).map_err(|_| InconsistentData)
});

saved!(impl[] EntryRows as |this| { rows: usize = &this.rows(), of_entries: Buffer<u32> = &this[..] } => {
    EntryRows::new(of_entries, rows).map_err(|_| InconsistentData)
});

saved!(impl[] Halves as |this| {
    size: usize = &this.size(),
    parts: Vec<usize> = this.parts(),
    offsets: Offsets = this.offsets(),
    mirrored: Vec<u32> = this.mirrored(),
    columns: Columns = this.columns(),
} => {
    // the offsets count block rows, but the number of scalar rows must not overflow either
    if size == 0 || offsets.ranges().checked_mul(size).is_none() {
        return Err(InconsistentData);
    }
    Halves::new(size, parts, offsets, mirrored, columns).map_err(|_| InconsistentData)
});
