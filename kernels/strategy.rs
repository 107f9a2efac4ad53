//! Ways to share the entries of compressed sparse rows among threads.

/// How threads share a matrix in compressed sparse rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// One of the others, by the lengths of rows.
    #[default]
    Automatic,
    /// Rows to each: on a GPU equally many threads for every row, by the mean length; in host memory ranges of rows with
    /// equally many entries.
    Classical,
    /// Equally many entries to each, whatever rows they are of; a row that several share is added up afterwards.
    LoadBalance,
    /// Equally many entries and ends of rows to each. In host memory this is [`Strategy::LoadBalance`], which cuts
    /// ranges of rows by both.
    MergePath,
    /// Equally many entries to each, from plain arrays that were not looked at before: sums are stored as if no row was
    /// empty, and moved where one was (Liu and Vinter).
    Speculative,
}
