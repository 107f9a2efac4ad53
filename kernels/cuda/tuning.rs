//! Tuned constants, measured on an H200 (sm_90) in f64 and f32; `benches/record/h200` has the measurements.
//!
//! Each comment names the matrices of that record on which the constant matters, or the file with the times, or says
//! that the value is a guess. A constant without either is a guess, too. Other architectures use the same values until
//! they are measured.

use crate::cost::CostModel;
use crate::strategy::Strategy;
use std::ops::RangeInclusive;

/// Cost models of the CSR strategies, in bytes streamed (see [`crate::cost`]). `cargo bench --features cuda
/// --bench judge -- h200 --fit` fitted them to one half of the matrices; they were then adjusted manually, so
/// that the worst choice of a strategy on these matrices (el3_10M_perm, p1_100M_perm, rmat_8M and memplus
/// among them) costs as little time as possible. Without `--fit`, the command evaluates them on the other
/// half of the matrices, too.
pub const CSR_COST_MODELS: [(Strategy, CostModel); 3] = [
    (Strategy::Classical, CostModel { start: 11.1e6, byte: 1.02, gather: 19.2, row: 10.0, wait: 1.23e6 }),
    (Strategy::LoadBalance, CostModel { start: 15.5e6, byte: 0.997, gather: 20.0, row: 11.5, wait: 0.0 }),
    (Strategy::MergePath, CostModel { start: 20e6, byte: 1.08, gather: 15.0, row: 36.1, wait: 0.0 }),
];

/// Maximum shared memory of a thread block on an H100 or H200; used for cost estimates without a device.
pub const SHARED_MEMORY: usize = 227 << 10;

/// Number of threads per multiprocessor that hides memory latency. While a product has fewer threads, it uses
/// more lanes per row (st7_20k, el3_20k).
pub const BUSY: usize = 1024;

/// Minimum number of entries of a row per lane of [`Csr`](crate::cuda::csr::classical::Csr) (st7_15M,
/// el3_10M, p1_10M).
pub const ENTRIES_PER_LANE: f64 = 3.0;

/// Number of slots (stored positions, including padding) that a lane of
/// [`Sliced`](crate::cuda::formats::sliced::Sliced) has in flight: with more, the registers do not suffice
/// for full occupancy; with fewer, the bandwidth is not saturated (el3_100M, p1_100M).
pub const SLOTS_IN_FLIGHT: usize = 8;

/// Number of consecutive rows that are sorted by length (σ of SELL-C-σ), the same as on the host. Guess
/// for a GPU.
pub const SORTED_ROWS: usize = 768;

/// The number of lanes of a block row of [`Bsr`](crate::cuda::formats::bsr::Bsr) is doubled only while each
/// lane has more than this number of blocks (el3_20k, el3_2M).
pub const BLOCKS_IN_FLIGHT: usize = 3;

/// Number of rows per multiprocessor from which a lane of [`Dia`](crate::cuda::formats::dia::Dia) processes
/// four rows. With one, two and four rows per lane st27_10M takes 0.0247, 0.0234, 0.0230 ms (f64) and 0.0145,
/// 0.0135, 0.0124 (f32), st7_15M 0.0431, 0.0391, 0.0376 and 0.0196, 0.0181, 0.0174.
pub const ROWS_FOR_FOUR: usize = 2048;

/// Approximate number of tiles per chunk (the tiles of one warp) of [`Coo`](crate::cuda::formats::coo::Coo),
/// [`LoadBalance`](crate::cuda::csr::load_balance::LoadBalance) and
/// [`Speculative`](crate::cuda::csr::speculative::Speculative). The exact number is chosen so that the chunks
/// fill whole waves of [`WARPS_OF_CHUNKS`] warps per multiprocessor, the number of resident warps of the
/// kernels (rmat_2M, circuit_1M, el3_10M_perm).
pub const TILES_OF_CHUNK: usize = 16;
/// See [`TILES_OF_CHUNK`].
pub const WARPS_OF_CHUNKS: usize = 40;

/// Maximum number of rows that a warp of [`LoadBalance`](crate::cuda::csr::load_balance::LoadBalance)
/// traverses to find the rows of a tile of 128 entries. With many empty rows a tile may span thousands of
/// rows, and a warp with such tiles would finish long after all others (rmat20 in f32: 0.097 ms instead of
/// 0.065, NotreDame_www with RCM 0.018 instead of 0.0077).
pub const ROWS_GONE_THROUGH: u32 = 256;

/// Bytes of `x` per slab of [`Coo`](crate::cuda::formats::coo::Coo), small enough for two thread blocks per
/// multiprocessor. Other sizes were not measured, except [`BYTES_OF_WIDE_SLAB`].
pub const BYTES_OF_SLAB: usize = 64 << 10;

/// Bytes of `x` per wide slab, with one block per multiprocessor (faster for rmat20, rmat_33M, lp_like;
/// slower for webbase_like, asic_680k_like, rmat_8M).
pub const BYTES_OF_WIDE_SLAB: usize = 112 << 10;
/// Bytes of `x` from which wide slabs are faster: there are then about as many slabs as resident blocks.
pub const WIDE_SLABS_FROM: usize = 8 << 20;

/// Cost model for the choice between rows and slabs of [`Coo`](crate::cuda::formats::coo::Coo), in
/// [`sums_in_slabs`](crate::cuda::formats::coo::sums_in_slabs), in picoseconds. Slabs save [`SLABS_SAVE`] for
/// each uncoalesced read of `x`. They cost [`SLABS_START`] for a launch, [`SLABS_ENTRY`] per entry,
/// [`SLABS_BYTE`] per byte of its value, and [`SLABS_SUM_BYTE`] per byte of a sum that is moved to its row
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

/// Threads per block of the kernel for slabs; [`SLAB_BLOCKS`] blocks share a multiprocessor.
pub const SLAB_THREADS: u32 = 512;
/// See [`SLAB_THREADS`].
pub const SLAB_BLOCKS: usize = 2;
/// Threads per block of the kernel for wide slabs, which has a multiprocessor to itself.
pub const WIDE_SLAB_THREADS: u32 = 1024;

/// Time that a thread block takes to load its slab of `x` before it multiplies, in units of the time for one
/// chunk (boyd2_like, lp_like).
pub const START_OF_SLAB: usize = 16;

/// Minimum and maximum number of sums per bin; a bin exceeds the maximum only if one row has more.
/// Guess; the maximum fits shared memory.
pub const SUMS_OF_BIN: (usize, usize) = (512, 3072);

/// Mean number of sums per slab and bin from which 16 instead of 8 lanes process them. Guess.
pub const SUMS_FOR_SIXTEEN: usize = 8;

/// Numbers of slabs for which slabs may be faster than rows. With fewer slabs, most of `x` stays in the cache
/// anyway (rmat_2M); with more, a bin has fewer than eight sums of each slab, and each load of them reads
/// unused neighbours (rmat_100M in f64).
pub const SLABS: RangeInclusive<usize> = 17..=512;

/// Minimum number of bins per multiprocessor for the sums of slabs, so that several wait for memory at the same
/// time. Guess.
pub const BINS_OF_MULTIPROCESSOR: usize = 5;

/// Resident blocks of [`Halo`](crate::cuda::formats::halo::Halo) per multiprocessor, for nodes of `size`
/// rows. A matrix is divided into blocks so that all can be resident at the same time (one wave) where
/// possible (p1_10M_perm, heat_sink_p1_340k).
pub const fn resident_windows(size: usize) -> usize {
    if size.is_multiple_of(3) { 2 } else { 4 }
}

/// Threads per block of [`Halo`](crate::cuda::formats::halo::Halo), indexed by the number of rows per node: a
/// multiple of the rows of a slice of 32 nodes.
pub const HALO_THREADS: [usize; 7] = [256, 256, 256, 384, 256, 256, 384];

/// Threads per block of [`Halo`](crate::cuda::formats::halo::Halo) for several vectors, indexed by the number
/// of rows per node: a multiple of the rows of a slice. A multiprocessor runs one such block, because the
/// windows of eight f64 vectors fill its shared memory; its registers hold the sums of all vectors for this
/// many threads.
pub const MANY_THREADS: [usize; 7] = [512, 512, 512, 480, 512, 512, 576];

/// Threads per block of [`Symmetric`](crate::cuda::formats::symmetric::Symmetric), indexed by the number of
/// rows per node. The larger a block, the fewer pairs of nodes have their nodes in different blocks. With
/// three rows per node, the registers just suffice for two resident blocks.
pub const SYMMETRIC_THREADS: [usize; 7] = [256, 256, 256, 384, 256, 256, 256];
/// Blocks of [`SYMMETRIC_THREADS`] that share the memory of a multiprocessor.
pub const SYMMETRIC_BLOCKS: [usize; 7] = [2, 3, 2, 2, 2, 2, 2];
/// Number of nodes that a thread of [`Symmetric`](crate::cuda::formats::symmetric::Symmetric) processes one
/// after the other, indexed by the number of rows per node, for values of 8 bytes: as many as the registers
/// hold.
pub const NODES_OF_8: [usize; 7] = [1, 4, 2, 2, 1, 1, 1];
/// See [`NODES_OF_8`]; for values of 4 bytes.
pub const NODES_OF_4: [usize; 7] = [1, 4, 4, 4, 1, 1, 1];

/// The element of a table by rows per node, such as [`HALO_THREADS`]. There are kernels for 1, 2, 3, 4 and 6
/// rows per node; for other sizes, loading the kernel fails.
pub(crate) fn by_size(table: &[usize; 7], size: usize) -> usize {
    *table.get(size).unwrap_or(&table[0])
}

/// Minimum and maximum rows per block of [`Halo`](crate::cuda::formats::halo::Halo): a trade-off between halo
/// size and resident blocks. Guess.
pub const ROWS_OF_WINDOW: (usize, usize) = (256, 1536);

/// Number of windows of [`Halo`](crate::cuda::formats::halo::Halo) that should fit the shared memory of a
/// multiprocessor. Guess.
pub const WINDOWS_OF_MULTIPROCESSOR: usize = 4;

/// Resident parts of [`Ehyb`](crate::cuda::formats::ehyb::Ehyb) per multiprocessor, among which its shared
/// memory is divided: as many as registers allow with 512 threads each.
pub const RESIDENT_PARTS: usize = 2;

/// Maximum number of entries for which conjugate gradients run in one persistent kernel. With more, products
/// are bound by memory bandwidth, and separate launches are faster (`solve.csv`: st7_20k to el3_2M).
pub const MOST_RESIDENT: usize = 5_000_000;

/// Minimum number of rows per block of the persistent kernel, see [`MOST_RESIDENT`] (st7_20k).
pub const FEWEST_RESIDENT_ROWS: usize = 64;

/// Blocks per multiprocessor for vector operations. All are resident, and registers are not the limit
/// (`solve.csv`).
pub const VECTOR_BLOCKS: usize = 4;

/// Maximum number of iterations per launch of [`Resident`](crate::cuda::resident::Resident): enough that the
/// cost of a launch is small, and few enough that the host does not wait long for results. Guess; at
/// [`STEP_ALONE`] they take 3 ms.
pub const MOST_RESIDENT_STEPS: usize = 512;

/// Maximum number of partial sums that every block of the persistent kernel reads per restriction; twice the
/// number of coarse unknowns is always allowed. There are many partial sums if the rows of an aggregate are
/// scattered over many blocks. A guess.
pub const MOST_RESIDENT_SUMS: usize = 8192;

/// Threads per block of [`advance`](crate::cuda::advance), which has one block per multiprocessor and four
/// 16-byte loads of each vector in flight per thread; advance.cu has the times of other numbers (st7_128,
/// p1_100M).
pub const ADVANCE_THREADS: usize = 512;

/// Slots per tile of [`Refill`](crate::cuda::Refill): the first number if the sectors of each such tile fit
/// in a third of the shared memory, otherwise the second. The larger a tile, the fewer sectors are read by
/// two tiles; refill.cu has the times (slices, dense blocks, symmetric blocks of 100 million slots).
pub const REFILL_SLOTS: [usize; 2] = [4096, 2048];
/// Threads per block of the refill kernel.
pub const REFILL_THREADS: u32 = 512;

/// Bytes from which arrays are transferred through pinned memory. Guess, chosen as some tens of
/// microseconds of copying.
pub const STAGED_FROM: usize = 1 << 20;
/// Bytes of pinned memory that are filled at a time. Large, because starting and awaiting all threads takes
/// about 0.1 ms (an H200 and 16 threads: 38 MB take 1.3 ms with 16 MiB at a time, 1.5 with 8, 1.8 with 4).
pub const STAGE_BYTES: usize = 16 << 20;
/// Number of stages (double buffering): the host fills one while the device empties another.
pub const STAGES: usize = 2;
/// Bytes that a thread copies at a time. Guess.
pub const STAGE_SHARE: usize = 256 << 10;

/// A pool keeps freed memory while its total, in use or not, is at most the device's memory divided by this
/// number. An eighth holds the workspace of a multigrid setup with about 100 million entries on an H200.
/// Allocating gigabytes from the driver again takes milliseconds (device/pool.rs has other times).
pub const POOL_SHARE: usize = 8;

/// Number of steps (iterations) queued ahead of the last step whose results the host has read: enough that
/// the device does not wait for the host even with a small system (st7_20k).
pub const LAG: usize = 8;
/// Like [`LAG`], for steps that move [`LONG_STEP`] bytes or more: two of them take longer than the host needs
/// to queue another, and steps queued after the last one of a solve are wasted (p7_128 with multigrid: 13
/// steps, and 8 wasted ones with [`LAG`]).
pub const LAG_OF_LONG: usize = 2;
/// See [`LAG_OF_LONG`].
pub const LONG_STEP: u64 = 64 << 20;

/// Minimum number of right-hand sides that are solved in lockstep, except where a system fits on-chip memory.
/// In lockstep, the host waits three times in each step, which is not recorded as a graph, but the right-hand
/// sides share launches and the reads of the matrix. Time of conjugate gradients for two, four and eight
/// right-hand sides on an H100, relative to separate solves (`cargo bench --bench many -- --solves`): `Amg`
/// 0.71, 0.50, 0.41 (elast_bracket_p1_59k) and 0.84, 0.70, 0.63 (p7_128); `Fsai` 1.18, 0.86, 0.78
/// (elast_bracket_p1_59k) and 1.04, 0.93, 0.87 (p7_128); `Jacobi` 1.14, 0.72, 0.59 (elast30) and 1.12, 0.93,
/// 0.82 (p7_128), relative to on-chip solves 2.9, 1.7, 1.4 (elast_bracket_p1_59k). For three right-hand
/// sides, times are about equal.
pub const LOCKSTEP_COLUMNS: usize = 4;
/// Fewer right-hand sides than [`LOCKSTEP_COLUMNS`] are solved in lockstep if a joint step saves at least
/// this many bytes of matrix reads, compared with separate steps. Two take 0.86 (`Fsai`), 0.80 (`Jacobi`) and
/// 0.62 (`Amg`) of the time of separate solves for 326 MB (elast55), but 1.04, 1.12 and 0.84 for 117 MB
/// (p7_128).
pub const LOCKSTEP_FROM: u64 = 256 << 20;

/// Memory bandwidth that an iteration attains, in bytes per second. [`LINK_SPEED`] is the bandwidth between
/// GPUs in bytes per second; [`STEP_ALONE`] and [`STEP_TOGETHER`] are the seconds that launches and
/// synchronization of an iteration take on one GPU and on several (`docs/how_to/several_gpus.md`: st7_20k,
/// p1_10M_perm, p1_100M_perm, el3_100M_perm).
pub const MEMORY_SPEED: f64 = 4.2e12;
/// See [`MEMORY_SPEED`].
pub const LINK_SPEED: f64 = 0.2e12;
/// See [`MEMORY_SPEED`].
pub const STEP_ALONE: f64 = 6e-6;
/// See [`MEMORY_SPEED`].
pub const STEP_TOGETHER: f64 = 24e-6;

/// Maximum number of unused queues (with one stream each) that a process keeps per GPU. One suffices for a
/// program that solves on one thread; four is a guess at how many threads drop and create devices at the same
/// time.
pub const IDLE_QUEUES: usize = 4;
/// Maximum bytes of device memory that an idle queue keeps: a guess, a trade-off between memory that other
/// programs could use and the time to allocate it again. A solve with 2.1 million unknowns uses more;
/// returning the excess costs 2 ms of 180 (on an H100).
pub const IDLE_BYTES: usize = 256 << 20;
/// Maximum bytes of pinned memory that a queue keeps for reuse. The buffers of solves have 64 KiB each; spilled
/// arrays are larger and are freed. Guess.
pub const PINNED_BYTES: usize = 4 << 20;
