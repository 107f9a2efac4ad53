//! What a product costs, foretold from what it moves and what it waits for.
//!
//! `cost = start + byte · bytes + gather · gathers + row · rows + wait · waits`
//!
//! in bytes that the machine streams in the same time, so that a faster machine of the same kind has the same prices. Prices
//! are fitted to a record by `cargo bench --features cuda --bench judge`.

/// What a product does, whatever machine does it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Bytes of the matrix that are read.
    pub bytes: f64,
    /// Entries of `x` that are fetched by themselves: neither beside nor soon after others, see [`scattering`].
    pub gathers: f64,
    /// Rows that are added up one by one: padded ones go side by side.
    pub rows: f64,
    /// Times that a thread waits for memory, one after the other.
    pub waits: f64,
}

/// What one kernel takes for it, in bytes streamed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    /// A product of nothing.
    pub start: f64,
    /// A byte read.
    pub byte: f64,
    /// An entry of `x` fetched.
    pub gather: f64,
    /// A row.
    pub row: f64,
    /// A wait.
    pub wait: f64,
}

impl Price {
    /// What work costs, in bytes streamed.
    pub fn cost(&self, work: &Work) -> f64 {
        let moved = self.byte * work.bytes + self.gather * work.gathers + self.row * work.rows;
        self.start + moved + self.wait * work.waits
    }
}

/// Of the entries of `x` that a matrix with these columns reads, the share that is fetched by itself: 32-byte sectors of a run of
/// 1024 entries, in the mean of 64 runs that are spread evenly.
pub fn scattering(columns: &[u32], value_bytes: usize) -> f64 {
    const RUNS: usize = 64;
    const RUN: usize = 1024;
    const SECTOR: usize = 32;
    let run = RUN.min(columns.len());
    if run == 0 {
        return 0.0;
    }
    let sector = (SECTOR / value_bytes) as u32;
    let mut sectors = Vec::with_capacity(run);
    let mut fetched = 0;
    for at in 0..RUNS {
        let first = (columns.len() - run) * at / (RUNS - 1);
        sectors.clear();
        sectors.extend(columns[first..first + run].iter().map(|column| column / sector));
        sectors.sort_unstable();
        sectors.dedup();
        fetched += sectors.len();
    }
    fetched as f64 / (RUNS * run) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_and_repeats_are_fetched_once() {
        assert_eq!(scattering(&[], 8), 0.0);
        assert_eq!(scattering(&[7], 8), 1.0);
        let count = 100_000;
        let of = |column: fn(u32) -> u32| scattering(&(0..count).map(column).collect::<Vec<_>>(), 8);
        assert_eq!(of(|entry| entry * 1000), 1.0);
        assert_eq!(of(|_| 5), 1.0 / 1024.0);
        // four doubles of a sector, which a run may begin and end within
        assert!((0.25..0.26).contains(&of(|entry| entry)));
    }

    #[test]
    fn all_that_is_done_is_paid() {
        let price = Price { start: 1.0, byte: 2.0, gather: 3.0, row: 4.0, wait: 100.0 };
        let work = Work { bytes: 10.0, gathers: 5.0, rows: 2.0, waits: 1.0 };
        assert_eq!(price.cost(&work), 1.0 + 20.0 + 15.0 + 8.0 + 100.0);
    }
}
