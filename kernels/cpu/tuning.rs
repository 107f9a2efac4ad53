//! What was found by measuring on CPUs: x86-64 with AVX2 or AVX-512.
//!
//! A constant says on which matrices and machine it matters; where it does not, no record of its choice was kept. Other machines
//! use these numbers until they are measured.

/// Numbers that a loop moves from which on a second thread brings more than it costs.
pub(crate) const SERIAL: usize = 32 * 1024;

/// Tasks for each thread, so that a late thread finds its work taken over: with 4 of them, products of 6 ms on the two
/// threads of a virtual machine took some 4 % longer.
pub(crate) const TASKS_PER_THREAD: usize = 16;

/// Entries of a task of a product that is divided by entries: a hundred times what handing the task over costs, few against
/// the entries of a thread, and no fewer than any product has that is left to one thread.
pub(crate) const ENTRIES_OF_TASK: usize = 1 << 15;

/// Entries and rows of a task of one level of a factorisation, at least: a smaller task costs more than it brings.
pub(crate) const LEAST_OF_LEVEL: usize = 4096;

/// As many of a part of a triangular solve, whose threads stay awake from level to level.
pub(crate) const LEAST_OF_PART: usize = 1024;

/// Groups of a level's rows at most, and rows of a group at least: `heat_sink_p1_340k`, in levels of 430 rows, takes three quarters of the
/// time that levels sorted by length alone take, a stencil of 128³ nodes a quarter more; without groups it would be a third.
pub(crate) const GROUPS: usize = 8;
/// See [`GROUPS`].
pub(crate) const LEAST_OF_GROUP: usize = 128;

/// How often a thread looks whether the others are done until it lets other programs have its processor.
pub(crate) const SPINS: usize = 2000;

/// How often a thread looks whether another one is done with its part until it takes over what that one did not begin: about as long
/// as a part takes.
pub(crate) const PATIENCE: usize = 100;

/// Bytes of a vector from which on it is written past the caches: it does not fit beside what else an iteration touches, and an
/// ordinary store would read every line before it overwrites it.
pub(crate) const STREAMED_FROM: usize = 8 << 20;

/// Rows of CSR of so many entries at most are added up number by number, where a register holds as many: to gather them and to
/// add up its lanes takes longer. On two threads of a Zen 4, `p7_64`, `p7_128` and `G3_circuit` take 0.4 to 0.6 of the time in
/// f32, and 0.7 to 1.0 in f64.
pub(crate) const SHORT: usize = 8;

/// How far ahead of its use a stream is asked for, in bytes: hardware stops at the end of a 4 KiB page.
pub(crate) const PREFETCH_BYTES: usize = 512;

/// How many entries ahead of their use scattered entries of `x` are asked for. That costs a load and a prefetch for each entry,
/// and pays where columns jump and `x` is large. Measured in f64 on two threads of a shared Zen 3: circuits of 10⁶ nodes (8 MB)
/// gain 10 to 40 % in most formats, a shuffled mesh of 5·10⁵ nodes (4 MB) loses 10 %.
pub(crate) const LOOK: usize = 96;
/// Bytes of `x` from which on [`LOOK`] pays.
pub(crate) const LOOK_FROM: usize = 6 << 20;
/// A jump between columns that no cache bridges.
pub(crate) const JUMP: u32 = 4096;
/// Columns by which jumps are judged.
pub(crate) const JUDGED: usize = 33;
