//! Tuned constants, measured on an H200 (sm_90) in f64 and f32; `benches/record/h200` has the measurements.
//!
//! The documentation of a constant names the matrices of that record on which it matters, or the file with
//! the times. If it names none, no record of its choice was kept. Other architectures use the same values
//! until they are measured.

use crate::price::Price;
use crate::strategy::Strategy;
use std::ops::RangeInclusive;

/// Cost models of the CSR strategies, in bytes streamed: from
/// `cargo bench --features cuda --bench judge -- h200 --fit`, then adjusted manually towards the values at
/// which the worst choice on the fitted matrices is best (el3_10M_perm, p1_100M_perm, rmat_8M, memplus among
/// them). The same command without `--fit` evaluates them on the other half of the matrices, too.
pub const CSR_PRICES: [(Strategy, Price); 3] = [
    (Strategy::Classical, Price { start: 11.1e6, byte: 1.02, gather: 19.2, row: 10.0, wait: 1.23e6 }),
    (Strategy::LoadBalance, Price { start: 15.5e6, byte: 0.997, gather: 20.0, row: 11.5, wait: 0.0 }),
    (Strategy::MergePath, Price { start: 20e6, byte: 1.08, gather: 15.0, row: 36.1, wait: 0.0 }),
];

/// Maximum shared memory of a thread block on an H100 or H200; used for cost estimates without a device.
pub const SHARED_MEMORY: usize = 227 << 10;

/// Threads per multiprocessor that hide memory latency; with fewer, rows are shared by more lanes (st7_20k,
/// el3_20k).
pub const BUSY: usize = 1024;

/// Minimum number of entries of a row per lane of [`Csr`](crate::cuda::csr::classical::Csr) (st7_15M,
/// el3_10M, p1_10M).
pub const ENTRIES_PER_LANE: f64 = 3.0;

/// Slots that a lane of [`Sliced`](crate::cuda::formats::sliced::Sliced) has in flight: more exceed the
/// registers at full occupancy, fewer do not saturate the bandwidth (el3_100M, p1_100M).
pub const SLOTS_IN_FLIGHT: usize = 8;

/// Rows of a window that is sorted by length: as on the host, small enough that `y` is written in parts of
/// cache lines.
pub const SORTED_ROWS: usize = 768;

/// Minimum number of blocks per lane of [`Bsr`](crate::cuda::formats::bsr::Bsr) where lanes share a block row
/// (el3_20k, el3_2M).
pub const BLOCKS_IN_FLIGHT: usize = 3;

/// Rows per multiprocessor from which a lane of [`Dia`](crate::cuda::formats::dia::Dia) processes four rows.
/// With one, two, four rows per lane st27_10M takes 0.0247, 0.0234, 0.0230 ms (f64) and 0.0145, 0.0135,
/// 0.0124 (f32), st7_15M 0.0431, 0.0391, 0.0376 and 0.0196, 0.0181, 0.0174.
pub const ROWS_FOR_FOUR: usize = 2048;

/// Approximate number of tiles per chunk of [`Coo`](crate::cuda::formats::coo::Coo),
/// [`LoadBalance`](crate::cuda::csr::load_balance::LoadBalance) and
/// [`Speculative`](crate::cuda::csr::speculative::Speculative). [`WARPS_OF_CHUNKS`] is the number of warps
/// per multiprocessor that chunks are cut for, equal to the kernels' resident warps (rmat_2M, circuit_1M,
/// el3_10M_perm).
pub const TILES_OF_CHUNK: usize = 16;
/// See [`TILES_OF_CHUNK`].
pub const WARPS_OF_CHUNKS: usize = 40;

/// Maximum number of rows that a warp of [`LoadBalance`](crate::cuda::csr::load_balance::LoadBalance)
/// traverses to find the rows of a tile of 128 entries. With many empty rows there may be thousands, and a
/// warp with such tiles would finish long after all others (rmat20 in f32: 0.097 ms instead of 0.065,
/// NotreDame_www with RCM 0.018 instead of 0.0077).
pub const ROWS_GONE_THROUGH: u32 = 256;

/// Bytes of `x` per slab of [`Coo`](crate::cuda::formats::coo::Coo), so that two blocks share a
/// multiprocessor.
pub const BYTES_OF_SLAB: usize = 64 << 10;

/// Bytes of `x` per wide slab, with one block per multiprocessor (rmat20, rmat_33M, lp_like; slower for
/// webbase_like, asic_680k_like, rmat_8M).
pub const BYTES_OF_WIDE_SLAB: usize = 112 << 10;
/// Bytes of `x` from which wide slabs are faster: there are then about as many slabs as resident blocks.
pub const WIDE_SLABS_FROM: usize = 8 << 20;

/// Cost model for the choice between rows and slabs of [`Coo`](crate::cuda::formats::coo::Coo), in
/// [`sums_in_slabs`](crate::cuda::formats::coo::sums_in_slabs), in picoseconds. Slabs save [`SLABS_SAVE`] for
/// each element of `x` that would cost a transaction of its own. They cost [`SLABS_START`] for a launch,
/// [`SLABS_ENTRY`] per entry, [`SLABS_BYTE`] per byte of its value, and [`SLABS_SUM_BYTE`] per byte of a sum
/// that is moved to its row (lp_like, boyd2_like, webbase_like, circuit_25M, rmat_33M).
pub const SLABS_SAVE: f64 = 7.3;
/// See [`SLABS_SAVE`].
pub const SLABS_START: f64 = 2e6;
/// See [`SLABS_SAVE`].
pub const SLABS_ENTRY: f64 = 1.0;
/// See [`SLABS_SAVE`].
pub const SLABS_BYTE: f64 = 0.175;
/// See [`SLABS_SAVE`].
pub const SLABS_SUM_BYTE: f64 = 0.6;

/// Threads per block of the kernel for slabs; [`SLAB_BLOCKS`] blocks share a multiprocessor.
pub const SLAB_THREADS: u32 = 512;
/// See [`SLAB_THREADS`].
pub const SLAB_BLOCKS: usize = 2;
/// Threads per block of the kernel for wide slabs, which has a multiprocessor to itself.
pub const WIDE_SLAB_THREADS: u32 = 1024;

/// Time in which a block of slabs loads its part of `x` before it multiplies, in units of chunks (boyd2_like,
/// lp_like).
pub const START_OF_SLAB: usize = 16;

/// Minimum number of sums per bin, and maximum unless one row has more.
pub const SUMS_OF_BIN: (usize, usize) = (512, 3072);

/// Average number of sums of a slab per bin from which 16 instead of 8 lanes process them.
pub const SUMS_FOR_SIXTEEN: usize = 8;

/// Number of slabs for which they may be faster. With fewer, `x` is mostly found in the cache anyway
/// (rmat_2M); with more, a bin has fewer than eight sums of each slab, and is slowed down by loading their
/// neighbours (rmat_100M in f64).
pub const SLABS: RangeInclusive<usize> = 17..=512;

/// Minimum number of bins per multiprocessor for the sums of slabs, so that several wait for memory at the
/// same time.
pub const BINS_OF_MULTIPROCESSOR: usize = 5;

/// Resident blocks of [`Halo`](crate::cuda::formats::halo::Halo) per multiprocessor, for nodes of `size`
/// rows. A matrix is cut for this number, so that no blocks remain for another wave (p1_10M_perm,
/// heat_sink_p1_340k).
pub const fn resident_windows(size: usize) -> usize {
    if size.is_multiple_of(3) { 2 } else { 4 }
}

/// Threads per block of [`Halo`](crate::cuda::formats::halo::Halo), by the number of rows per node: whole
/// slices of 32 nodes.
pub const HALO_THREADS: [usize; 7] = [256, 256, 256, 384, 256, 256, 384];

/// Threads per block of [`Halo`](crate::cuda::formats::halo::Halo) for several vectors, by the number of rows per node: whole
/// slices. A multiprocessor has one such block, because windows of eight vectors of f64 fill its memory; so many threads have
/// registers for the sums of all vectors.
pub const MANY_THREADS: [usize; 7] = [512, 512, 512, 480, 512, 512, 576];

/// Threads per block of [`Symmetric`](crate::cuda::formats::symmetric::Symmetric), by the number of rows per
/// node. The larger a block, the fewer pairs cross blocks. With three rows per node, two blocks just fit the
/// registers.
pub const SYMMETRIC_THREADS: [usize; 7] = [256, 256, 256, 384, 256, 256, 256];
/// Blocks of [`SYMMETRIC_THREADS`] that share the memory of a multiprocessor.
pub const SYMMETRIC_BLOCKS: [usize; 7] = [2, 3, 2, 2, 2, 2, 2];
/// Nodes that a thread of [`SYMMETRIC_THREADS`] processes one after the other, by the number of rows per
/// node, for values of 8 bytes: as many as the registers hold.
pub const NODES_OF_8: [usize; 7] = [1, 4, 2, 2, 1, 1, 1];
/// See [`NODES_OF_8`]; for values of 4 bytes.
pub const NODES_OF_4: [usize; 7] = [1, 4, 4, 4, 1, 1, 1];

/// The element of such a table for nodes of `size` rows. There are kernels for 1, 2, 3, 4 and 6; other sizes
/// fail when their kernel is loaded.
pub(crate) fn by_size(table: &[usize; 7], size: usize) -> usize {
    *table.get(size).unwrap_or(&table[0])
}

/// Minimum and maximum rows per block of [`Halo`](crate::cuda::formats::halo::Halo): a trade-off between halo
/// size and resident blocks.
pub const ROWS_OF_WINDOW: (usize, usize) = (256, 1536);

/// Number of windows of [`Halo`](crate::cuda::formats::halo::Halo) that should fit the shared memory of a
/// multiprocessor.
pub const WINDOWS_OF_MULTIPROCESSOR: usize = 4;

/// Resident parts of [`Ehyb`](crate::cuda::formats::ehyb::Ehyb) per multiprocessor, which share its shared
/// memory: as many as registers allow with 512 threads each.
pub const RESIDENT_PARTS: usize = 2;

/// Entries from which conjugate gradients run as separate launches instead of one persistent kernel: products
/// are then bound by memory bandwidth (`solve.csv`: st7_20k to el3_2M).
pub const MOST_RESIDENT: usize = 5_000_000;

/// Minimum number of rows per block of that kernel (st7_20k).
pub const FEWEST_RESIDENT_ROWS: usize = 64;

/// Blocks per multiprocessor for vector operations: all are resident, with registers to spare (`solve.csv`).
pub const VECTOR_BLOCKS: usize = 4;

/// Maximum number of iterations per launch of [`Resident`](crate::cuda::resident::Resident): the cost of a
/// launch is small compared with them, and the host does not wait long for the first.
pub const MOST_RESIDENT_STEPS: usize = 512;

/// Maximum number of values that every block of that kernel reads per restriction, if that is more than twice
/// the number of coarse unknowns; there are more if aggregates are scattered over blocks. A guess that
/// prevents excessive reads with millions of segments, not a measured optimum.
pub const MOST_RESIDENT_SUMS: usize = 8192;

/// Threads per block of [`advance`](crate::cuda::advance), which has one block per multiprocessor and four
/// packs of each vector in flight per thread; advance.cu has the times of other numbers (st7_128, p1_100M).
pub const ADVANCE_THREADS: usize = 512;

/// Slots per tile of [`Refill`](crate::cuda::Refill): the first value if its sectors leave shared memory for
/// other tiles, otherwise the second. The larger, the fewer sectors belong to two tiles; refill.cu has the
/// times (slices, dense blocks, symmetric blocks of 100 million slots).
pub const REFILL_SLOTS: [usize; 2] = [4096, 2048];
/// Threads per block of the refill kernel.
pub const REFILL_THREADS: u32 = 512;

/// Bytes from which arrays are transferred through pinned memory.
pub const STAGED_FROM: usize = 1 << 20;
/// Bytes of pinned memory that are filled at a time: distributing work to all threads and waiting for them
/// takes about 0.1 ms (an H200 and 16 threads: 38 MB take 1.3 ms with 16 MiB at a time, 1.5 with 8, 1.8 with
/// 4).
pub const STAGE_BYTES: usize = 16 << 20;
/// Number of stages (double buffering): the host fills one while the device empties another.
pub const STAGES: usize = 2;
/// Bytes that a thread copies at a time.
pub const STAGE_SHARE: usize = 256 << 10;

/// A pool keeps freed memory while its total, in use or not, is at most the device's memory divided by this
/// number. An eighth holds the workspace of a multigrid setup with about 100 million entries on an H200.
/// Allocating gigabytes from the driver again takes milliseconds (device/pool.rs has other times).
pub const POOL_SHARE: usize = 8;

/// Steps queued ahead of the results read: enough that the device does not wait for the host even with a
/// small system (st7_20k).
pub const LAG: usize = 8;
/// Steps queued ahead if a step moves [`LONG_STEP`] bytes or more: two take longer than the host needs to
/// queue another, and all steps queued behind the last one of a solve are wasted (p7_128 with multigrid: 13
/// steps, and 8 behind them).
pub const LAG_OF_LONG: usize = 2;
/// See [`LAG_OF_LONG`].
pub const LONG_STEP: u64 = 64 << 20;

/// Bytes of a matrix that a step for several right-hand sides reads less than separate steps, from which they are solved in
/// lockstep. The host then waits two or three times in each step, and updates of vectors take a launch more. On an H100, eight
/// right-hand sides take 0.94 of separate solves where 0.8 GB are saved (p7_128, DIA), 0.54 where it is 2.2 GB (elast55, BSR).
/// Below, a guess: the first suggests that half a gigabyte is about even.
pub const LOCKSTEP_FROM: u64 = 512 << 20;

/// Bytes per second that an iteration moves in memory. [`LINK_SPEED`] is the rate between GPUs;
/// [`STEP_ALONE`] and [`STEP_TOGETHER`] are the seconds that launches and synchronization of an iteration
/// take on one GPU and on several (`docs/how_to/several_gpus.md`: st7_20k, p1_10M_perm, p1_100M_perm,
/// el3_100M_perm).
pub const MEMORY_SPEED: f64 = 4.2e12;
/// See [`MEMORY_SPEED`].
pub const LINK_SPEED: f64 = 0.2e12;
/// See [`MEMORY_SPEED`].
pub const STEP_ALONE: f64 = 6e-6;
/// See [`MEMORY_SPEED`].
pub const STEP_TOGETHER: f64 = 24e-6;

/// Maximum number of unused queues (with one stream each) that a process keeps per GPU. One serves a program
/// that solves on one thread; four are a guess at how many threads drop and create devices at the same time.
pub const IDLE_QUEUES: usize = 4;
/// Bytes of device memory that an idle queue keeps: a guess, between memory missed by other programs and the
/// time to allocate it again. A solve of 2.1 million unknowns takes more: returning it costs 2 ms of 180 (an
/// H100).
pub const IDLE_BYTES: usize = 256 << 20;
/// Bytes of pinned memory that a queue keeps for reuse. Solves use 64 KiB for each purpose; spilled arrays
/// are larger and are freed.
pub const PINNED_BYTES: usize = 4 << 20;
