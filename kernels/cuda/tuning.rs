//! What was found by measuring: on an H200 (sm_90), f64 and f32, as `benches/record/h200` holds it.
//!
//! A constant names matrices of that record on which it matters, or the file that has the times; where it names none, no record
//! of its choice was kept. Other architectures use these numbers until they are measured.

use crate::price::Price;
use crate::strategy::Strategy;
use std::ops::RangeInclusive;

/// What the strategies of compressed rows cost, in bytes streamed: what `cargo bench --features cuda --bench judge -- h200 --fit` gave,
/// then by hand towards where the worst choice of the matrices it is fitted to is best (el3_10M_perm, p1_100M_perm, rmat_8M,
/// memplus among them). The same command without `--fit` judges them, on the other half too.
pub const CSR_PRICES: [(Strategy, Price); 3] = [
    (Strategy::Classical, Price { start: 11.1e6, byte: 1.02, gather: 19.2, row: 10.0, wait: 1.23e6 }),
    (Strategy::LoadBalance, Price { start: 15.5e6, byte: 0.997, gather: 20.0, row: 11.5, wait: 0.0 }),
    (Strategy::MergePath, Price { start: 20e6, byte: 1.08, gather: 15.0, row: 36.1, wait: 0.0 }),
];

/// Shared memory that a block of threads may have on an H100 or H200: what formats are judged by where no device is asked.
pub const SHARED_MEMORY: usize = 227 << 10;

/// Threads of a multiprocessor that hide the latency of memory: below, rows are shared by more lanes (st7_20k, el3_20k).
pub const BUSY: usize = 1024;

/// Entries of a row that a lane of [`Csr`](crate::cuda::csr::classical::Csr) has, at least (st7_15M, el3_10M, p1_10M).
pub const ENTRIES_PER_LANE: f64 = 3.0;

/// Slots that a lane of [`Sliced`](crate::cuda::formats::sliced::Sliced) has in flight: more do not fit registers at full occupancy, fewer
/// leave bandwidth unused (el3_100M, p1_100M).
pub const SLOTS_IN_FLIGHT: usize = 8;

/// Rows of a window that is sorted by length: as on the host, small enough that `y` is written in pieces of cache lines.
pub const SORTED_ROWS: usize = 768;

/// Blocks that a lane of [`Bsr`](crate::cuda::formats::bsr::Bsr) should have before lanes share a block row (el3_20k, el3_2M).
pub const BLOCKS_IN_FLIGHT: usize = 3;

/// Rows of a multiprocessor from which on a lane of [`Dia`](crate::cuda::formats::dia::Dia) takes four. With one, two, four rows of a lane
/// st27_10M takes 0.0247, 0.0234, 0.0230 ms (f64) and 0.0145, 0.0135, 0.0124 (f32), st7_15M 0.0431, 0.0391, 0.0376 and
/// 0.0196, 0.0181, 0.0174.
pub const ROWS_FOR_FOUR: usize = 2048;

/// Tiles of a chunk of [`Coo`](crate::cuda::formats::coo::Coo), [`LoadBalance`](crate::cuda::csr::load_balance::LoadBalance) and
/// [`Speculative`](crate::cuda::csr::speculative::Speculative), about, and warps of a multiprocessor that chunks are cut for, as many
/// as their kernels have there at once (rmat_2M, circuit_1M, el3_10M_perm).
pub const TILES_OF_CHUNK: usize = 16;
/// See [`TILES_OF_CHUNK`].
pub const WARPS_OF_CHUNKS: usize = 40;

/// Rows that a warp of [`LoadBalance`](crate::cuda::csr::load_balance::LoadBalance) goes through at most to find those of a tile of 128
/// entries. Where many rows are empty there may be thousands: a warp that had such tiles would still be there when all others are
/// done (rmat20 in f32: 0.097 ms for 0.065, NotreDame_www by RCM 0.018 for 0.0077).
pub const ROWS_GONE_THROUGH: u32 = 256;

/// Bytes of `x` that belong to a slab of [`Coo`](crate::cuda::formats::coo::Coo): two blocks of the kernel share a multiprocessor.
pub const BYTES_OF_SLAB: usize = 64 << 10;

/// Bytes of `x` that belong to a wide slab: a block has a multiprocessor for itself (rmat20, rmat_33M, lp_like; slower for
/// webbase_like, asic_680k_like, rmat_8M).
pub const BYTES_OF_WIDE_SLAB: usize = 112 << 10;
/// Bytes of `x` from which on wide slabs pay: there are about as many slabs as blocks at once then.
pub const WIDE_SLABS_FROM: usize = 8 << 20;

/// What decides between rows and slabs of [`Coo`](crate::cuda::formats::coo::Coo), by
/// [`sums_in_slabs`](crate::cuda::formats::coo::sums_in_slabs). What slabs save, in picoseconds: for each entry of `x` that is fetched by itself. They cost a
/// launch, something for each entry and each byte of its value, and for each byte of a sum that is brought to its row
/// (lp_like, boyd2_like, webbase_like, circuit_25M, rmat_33M).
pub const SLABS_SAVE: f64 = 7.3;
/// See [`SLABS_SAVE`].
pub const SLABS_START: f64 = 2e6;
/// See [`SLABS_SAVE`].
pub const SLABS_ENTRY: f64 = 1.0;
/// See [`SLABS_SAVE`].
pub const SLABS_BYTE: f64 = 0.175;
/// See [`SLABS_SAVE`].
pub const SLABS_SUM_BYTE: f64 = 0.6;

/// Threads of a block of the kernel for slabs, and blocks that share a multiprocessor.
pub const SLAB_THREADS: u32 = 512;
/// See [`SLAB_THREADS`].
pub const SLAB_BLOCKS: usize = 2;
/// Threads of a block of the kernel for wide slabs, which has a multiprocessor for itself.
pub const WIDE_SLAB_THREADS: u32 = 1024;

/// What a block of slabs copies of `x`, and waits for, before it multiplies, as the time of chunks (boyd2_like, lp_like).
pub const START_OF_SLAB: usize = 16;

/// Sums of a bin, at least, and at most where no row has more.
pub const SUMS_OF_BIN: (usize, usize) = (512, 3072);

/// Sums that a slab has in a bin, in the mean, from which on 16 lanes take them and not 8.
pub const SUMS_FOR_SIXTEEN: usize = 8;

/// Slabs that may pay. With fewer, `x` is often found on the chip as it is (rmat_2M); of more, a bin has no eight sums of each,
/// and is slowed down by what is fetched beside them (rmat_100M in f64).
pub const SLABS: RangeInclusive<usize> = 17..=512;

/// Bins of rows for each multiprocessor that the sums of slabs are brought into, at least: several wait for memory at once.
pub const BINS_OF_MULTIPROCESSOR: usize = 5;

/// Blocks of [`Halo`](crate::cuda::formats::halo::Halo) that run at once on a multiprocessor, with nodes of `size` rows: what a matrix is
/// cut for, so that no blocks are left over for another round
/// (p1_10M_perm, heat_sink_p1_340k).
pub const fn resident_windows(size: usize) -> usize {
    if size.is_multiple_of(3) { 2 } else { 4 }
}

/// Threads of a block of [`Halo`](crate::cuda::formats::halo::Halo) by the rows of a node: whole slices of 32 nodes.
pub const HALO_THREADS: [usize; 7] = [256, 256, 256, 384, 256, 256, 384];

/// Threads of a block of [`Symmetric`](crate::cuda::formats::symmetric::Symmetric) by the rows of a node. The larger a block,
/// the fewer pairs cross: those of nodes with three rows just fit registers twice.
pub const SYMMETRIC_THREADS: [usize; 7] = [256, 256, 256, 384, 256, 256, 256];
/// Blocks of [`SYMMETRIC_THREADS`] that share the memory of a multiprocessor.
pub const SYMMETRIC_BLOCKS: [usize; 7] = [2, 3, 2, 2, 2, 2, 2];
/// Nodes that a thread of [`SYMMETRIC_THREADS`] has one after the other, by the rows of a node, for values of 8 bytes: as many as
/// registers hold.
pub const NODES_OF_8: [usize; 7] = [1, 4, 2, 2, 1, 1, 1];
/// As [`NODES_OF_8`], for values of 4 bytes.
pub const NODES_OF_4: [usize; 7] = [1, 4, 4, 4, 1, 1, 1];

/// What one of these tables has for nodes of `size` rows. There are kernels for 1, 2, 3, 4 and 6; that there is none for another
/// size is found when it is loaded.
pub(crate) fn by_size(table: &[usize; 7], size: usize) -> usize {
    *table.get(size).unwrap_or(&table[0])
}

/// The fewest and the most rows of a block of [`Halo`](crate::cuda::formats::halo::Halo): its halo against how many blocks run at once.
pub const ROWS_OF_WINDOW: (usize, usize) = (256, 1536);

/// Windows of [`Halo`](crate::cuda::formats::halo::Halo) that should fit the shared memory of a multiprocessor.
pub const WINDOWS_OF_MULTIPROCESSOR: usize = 4;

/// Parts of [`Ehyb`](crate::cuda::formats::ehyb::Ehyb) that run at once on a multiprocessor, and share its shared memory: what registers
/// allow with 512 threads each.
pub const RESIDENT_PARTS: usize = 2;

/// Entries from which on conjugate gradients run as launches of their own instead of one on the chip: products are then
/// bound by memory (`solve.csv`: st7_20k to el3_2M).
pub const MOST_RESIDENT: usize = 5_000_000;

/// Rows that are worth a block of that launch (st7_20k).
pub const FEWEST_RESIDENT_ROWS: usize = 64;

/// Blocks of a multiprocessor for operations on vectors: all run at once, with registers to spare (`solve.csv`).
pub const VECTOR_BLOCKS: usize = 4;

/// Iterations of one launch of [`Resident`](crate::cuda::resident::Resident), at most: what the launch costs is little against
/// them, and the host does not wait long for the first.
pub const MOST_RESIDENT_STEPS: usize = 512;

/// Numbers that every block of that launch reads of every restriction, at most, where that is more than twice the coarse
/// unknowns: where aggregates are scattered over the blocks there are more. A bound against what would be read for millions of
/// segments, not an optimum that was measured.
pub const MOST_RESIDENT_SUMS: usize = 8192;

/// Threads of a block of [`advance`](crate::cuda::advance), which has a multiprocessor for itself and four packs of each vector on
/// their way: advance.cu has the times of other numbers (st7_128, p1_100M).
pub const ADVANCE_THREADS: usize = 512;

/// Slots of a tile of [`Refill`](crate::cuda::Refill): the first, if its sectors leave room for other tiles in shared memory. The
/// more there are, the fewer sectors belong to two tiles; refill.cu has the times (slices, dense blocks, symmetric blocks of
/// 100 million slots).
pub const REFILL_SLOTS: [usize; 2] = [4096, 2048];
/// Threads of a block that refills.
pub const REFILL_THREADS: u32 = 512;

/// Bytes from which on an array goes to a device and back through pinned memory.
pub const STAGED_FROM: usize = 1 << 20;
/// Bytes of pinned memory that are filled at a time: to hand out work to all threads and wait for them takes some 0.1 ms (an H200
/// and 16 threads: 38 MB take 1.3 ms with 16 MiB at a time, 1.5 with 8, 1.8 with 4).
pub const STAGE_BYTES: usize = 16 << 20;
/// Stages: one is filled by the host while another is emptied by the device.
pub const STAGES: usize = 2;
/// Bytes that a thread copies at a time.
pub const STAGE_SHARE: usize = 256 << 10;

/// What a pool was given back is kept while all that the pool holds, in use or not, is no more than the device's memory divided by
/// this number: an eighth holds what a setup of multigrid works in, of some 100 million entries on an H200. To ask the driver for
/// gigabytes anew takes milliseconds (device/pool.rs has other times).
pub const POOL_SHARE: usize = 8;

/// Steps queued ahead of what is known: enough that the device of a small system never waits for the host (st7_20k).
pub const LAG: usize = 8;
/// Steps queued ahead where a step moves [`LONG_STEP`] bytes or more: two take longer than the host needs to queue another, and whatever
/// is queued behind the last step of a solve is for nothing (p7_128 with multigrid: 13 steps, and 8 behind them).
pub const LAG_OF_LONG: usize = 2;
/// See [`LAG_OF_LONG`].
pub const LONG_STEP: u64 = 64 << 20;

/// Bytes a second that an iteration moves in memory, those that one GPU sends another, and the seconds that launches and meetings of
/// an iteration take on one GPU and on several (`docs/several_gpus.md`: st7_20k, p1_10M_perm, p1_100M_perm, el3_100M_perm).
pub const MEMORY_SPEED: f64 = 4.2e12;
/// See [`MEMORY_SPEED`].
pub const LINK_SPEED: f64 = 0.2e12;
/// See [`MEMORY_SPEED`].
pub const STEP_ALONE: f64 = 6e-6;
/// See [`MEMORY_SPEED`].
pub const STEP_TOGETHER: f64 = 24e-6;

/// Queues of a GPU, each of one stream, that a process keeps without a user, at most. One serves a program that solves on one
/// thread; four are a guess at how many threads drop and create devices at the same time.
pub const IDLE_QUEUES: usize = 4;
/// Bytes of device memory that an idle queue keeps: a guess between what other programs miss and the time to ask the driver for
/// memory again. A solve of 2.1 million unknowns takes more: returning it costs 2 ms of 180 (an H100).
pub const IDLE_BYTES: usize = 256 << 20;
/// Bytes of pinned memory that a queue keeps for reuse. Solves use 64 KiB for each purpose; spilled arrays are larger and are
/// freed.
pub const PINNED_BYTES: usize = 4 << 20;
