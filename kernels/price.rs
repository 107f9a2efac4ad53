//! What a product costs, foretold from what it moves and what it waits for.
//!
//! `cost = start + max(byte · bytes + gather · gathers + row · rows, wait · waits)`
//!
//! in bytes that the machine streams in the same time, so that a faster machine of the same kind has the same prices. Prices
//! are fitted to a record by `cargo bench --bench judge`.

/// What a product does, whatever machine does it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Bytes of the matrix that are read.
    pub bytes: f64,
    /// Entries of `x` that are fetched by themselves.
    pub gathers: f64,
    /// Rows that are added up.
    pub rows: f64,
    /// Times that somebody waits for memory, one after the other.
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
        self.start + f64::max(moved, self.wait * work.waits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_of_moving_and_waiting_counts() {
        let price = Price { start: 1.0, byte: 2.0, gather: 3.0, row: 4.0, wait: 100.0 };
        let work = Work { bytes: 10.0, gathers: 5.0, rows: 2.0, waits: 0.0 };
        assert_eq!(price.cost(&work), 1.0 + 20.0 + 15.0 + 8.0);
        assert_eq!(price.cost(&Work { waits: 1.0, ..work }), 101.0);
    }
}
