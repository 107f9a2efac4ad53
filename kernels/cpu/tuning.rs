//! Tuning constants for CPUs, measured on x86-64 with AVX2 or AVX-512.
//!
//! Each comment names the matrices and the machine for which the constant was measured, or says that the value is a
//! guess. The same values are used on all machines.

/// Number of values that a loop must move for a second thread to be worth its start-up cost. Guess,
/// chosen as the work that takes about as long as waking a thread.
pub(crate) const SERIAL: usize = 32 * 1024;

/// Number of values that a loop over vectors must move to be divided among threads; a task then moves at least a quarter of this.
///
/// Measured on 16 cores of a Xeon (a virtual machine) with one limit for all loops: microseconds with 32,768 / with 131,072. Waking
/// a sleeping thread takes 10 to 30 microseconds.
///
/// - an iteration of BiCGStab with Jacobi on 16 threads: `memplus` (17,758 rows) 385 / 207, `heat_sink_p1_27k` 590 / 479. On one
///   thread the constant has no effect: the two runs of `memplus`, 294 / 250, show the noise
/// - `y += a x` after a pause, 32,768 entries: 16 / 13 on 2 threads, 34 / 14 on 16
/// - `y += a x` after a pause, 262,144 entries: 64 / 66 on 2 threads, 50 / 49 on 16
pub(crate) const SERIAL_ON_VECTORS: usize = 128 * 1024;

/// Tasks per thread, so that idle threads can steal the work of a late thread. With 4 tasks per thread,
/// products of 6 ms on the two threads of a virtual machine took about 4 % longer.
pub(crate) const TASKS_PER_THREAD: usize = 16;

/// Entries per task of a product that is divided by entries. The constant is large enough that starting a task
/// takes about 1 % of its time, and much smaller than the number of entries per thread. Products with fewer
/// entries run on one thread. Guess.
pub(crate) const ENTRIES_OF_TASK: usize = 1 << 15;

/// Minimum units of work per part of a level of a factorization (see `eliminate_all`). Threads spin-wait
/// between levels. Guess, chosen as some microseconds of work.
pub(crate) const LEAST_OF_LEVEL: usize = 2048;

/// Minimum entries plus rows per part of a triangular solve. Guess, chosen as about a
/// microsecond of work.
pub(crate) const LEAST_OF_PART: usize = 1024;

/// Maximum number of groups into which the rows of a level are divided. Measured: time of a triangular solve,
/// divided by its time with rows sorted by length alone. With groups it is 0.75 for `heat_sink_p1_340k` (430
/// rows per level) and 1.25 for a stencil on 128³ nodes; with rows sorted by position alone (no groups) it is
/// 1.33 for the stencil.
pub(crate) const GROUPS: usize = 8;
/// Minimum number of rows per group, see [`GROUPS`]. Guess, chosen as several slices at every SIMD
/// width.
pub(crate) const LEAST_OF_GROUP: usize = 128;

/// Polls of a spin-waiting thread before it yields its processor to other programs. Guess, chosen as
/// some tens of microseconds.
pub(crate) const SPINS: usize = 2000;

/// Polls of a spin-waiting thread before it starts the parts that another thread has not begun (work stealing):
/// about the duration of one part. Guess.
pub(crate) const SPINS_BEFORE_STEALING: usize = 100;

/// Size in bytes from which vectors are written with non-temporal stores. Such a vector does not stay in cache
/// between uses, and an ordinary store would read every cache line before overwriting it. Guess, chosen
/// larger than the L2 cache of a core.
pub(crate) const STREAMED_FROM: usize = 8 << 20;

/// CSR rows with at most this many entries are summed with scalar instructions if a register has at least as
/// many lanes: gathers and the horizontal sum would take longer. On two threads of a Zen 4, `p7_64`, `p7_128`
/// and `G3_circuit` take 0.4 to 0.6 of the time with gathers in f32, and 0.7 to 1.0 in f64.
pub(crate) const SHORT: usize = 8;

/// Prefetch distance of streams, in bytes: the hardware prefetcher stops at the end of each 4 KiB page. Milliseconds
/// of products with `elast55` (f64) on 16 threads of a Xeon, at distances of 512, 1024, 2048, 4096 and 8192 bytes:
///
/// - BSR: 2.2, 2.0, 1.8, 1.6, 1.5
/// - SELL-P: 3.0, 2.7, 2.4, 2.1, 2.5
///
/// DIA, and `p27_80`, which fits in the cache, differ by less than the noise. A larger distance prefetches further
/// beyond the end of short pieces, which was not measured.
pub(crate) const PREFETCH_BYTES: usize = 2048;

/// Prefetch distance of scattered entries of `x`, in matrix entries. Prefetching takes a load and a prefetch
/// per entry, and makes products faster if columns are scattered and `x` is large. Measured in f64 on two
/// threads of a shared Zen 3: circuits of 10⁶ nodes (8 MB) gain 10 to 40 % in most formats, a shuffled mesh
/// of 5·10⁵ nodes (4 MB) loses 10 %.
pub(crate) const LOOK: usize = 96;
/// Minimum size of `x` in bytes for which its entries are prefetched, see [`LOOK`]. Guess, chosen
/// between the sizes of the two examples there.
pub(crate) const LOOK_FROM: usize = 6 << 20;
/// Distance between columns from which two reads of `x` count as scattered. Guess, chosen as 32 KiB of
/// `f64`, the size of an L1 cache.
pub(crate) const JUMP: u32 = 4096;
/// Number of columns sampled to decide whether reads of `x` are scattered. Guess, chosen as 32
/// distances, so that counting takes a negligible part of a product.
pub(crate) const JUDGED: usize = 33;
