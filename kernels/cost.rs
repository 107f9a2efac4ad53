//! Predicted cost of a matrix-vector product (SpMV), a linear model of its memory traffic and latency.
//!
//! `cost = start + byte · bytes + gather · gathers + row · rows + wait · waits`
//!
//! A cost is given as the number of bytes that the machine streams in the same time, so that a machine with
//! another memory bandwidth has the same coefficients. `cargo bench --features cuda --bench judge` fits them
//! to measured times (`benches/record`).

/// Machine-independent amounts of work of one product.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProductWork {
    /// Bytes read of the matrix.
    pub bytes: f64,
    /// Uncoalesced reads of `x`: in most formats the memory sectors that are read, the number of entries
    /// times [`scattering`]; in formats with windows, the entries of the halos.
    pub gathers: f64,
    /// Rows that are summed one at a time. Rows of padded formats run side by side in SIMD lanes and do not
    /// count.
    pub rows: f64,
    /// Memory latencies that a thread waits for one after the other (dependent loads).
    pub waits: f64,
}

/// Cost coefficients of one kernel, in bytes streamed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostModel {
    /// Constant cost, paid even by an empty product.
    pub start: f64,
    /// Cost per byte read.
    pub byte: f64,
    /// Cost per uncoalesced read of `x`.
    pub gather: f64,
    /// Cost per row.
    pub row: f64,
    /// Cost per dependent memory latency.
    pub wait: f64,
}

impl CostModel {
    /// Predicted cost of a product, in bytes streamed.
    pub fn cost(&self, work: &ProductWork) -> f64 {
        let moved = self.byte * work.bytes + self.gather * work.gathers + self.row * work.rows;
        self.start + moved + self.wait * work.waits
    }
}

/// Mean number of memory sectors of `x` that a product reads per matrix entry: distinct 32-byte sectors
/// within a run of 1024 consecutive entries, divided by 1024, averaged over 64 evenly spaced runs.
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
        // four doubles share a sector; a run may begin and end inside one
        assert!((0.25..0.26).contains(&of(|entry| entry)));
    }

    #[test]
    fn all_that_is_done_is_paid() {
        let cost_model = CostModel { start: 1.0, byte: 2.0, gather: 3.0, row: 4.0, wait: 100.0 };
        let work = ProductWork { bytes: 10.0, gathers: 5.0, rows: 2.0, waits: 1.0 };
        assert_eq!(cost_model.cost(&work), 1.0 + 20.0 + 15.0 + 8.0 + 100.0);
    }
}
