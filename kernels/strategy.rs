//! Strategies for distributing the entries of a CSR matrix over threads.

/// Division of a matrix in compressed sparse rows (CSR) among threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// On a GPU, chooses one of the others by the distribution of row lengths. In host memory, the same as
    /// [`Strategy::LoadBalance`].
    #[default]
    Automatic,
    /// Assigns rows to threads. On a GPU every row gets the same number of threads, chosen by the mean row
    /// length; in host memory every task gets a range of rows with about equally many entries.
    Classical,
    /// Assigns equally many entries to each thread regardless of row boundaries; partial sums of a row that
    /// several threads share are added afterwards. In host memory, only rows of more than 32,768 entries are
    /// shared.
    LoadBalance,
    /// Assigns equally many entries plus row ends to each thread (merge path). In host memory this is the
    /// same as [`Strategy::LoadBalance`], which counts both entries and rows there.
    MergePath,
    /// Assigns equally many entries to each thread without any preprocessing of the row offsets: sums are
    /// first stored as if no row were empty. Where rows are empty, sums are moved to the right rows
    /// afterwards (Liu and Vinter 2015). In host memory this is the same as [`Strategy::LoadBalance`].
    Speculative,
}
