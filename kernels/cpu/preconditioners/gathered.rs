//! Updates of one sparse row.

use crate::cpu::simd::Value;

/// The entries of one row, found by their columns: a hash table with linear probing, at most an eighth of which is
/// filled, so that almost every search ends at its first slot.
#[derive(Default)]
pub(super) struct Gathered<T> {
    /// The column in the upper 32 bits, and the place in `values` plus one in the lower ones; zero for none.
    slots: Vec<u64>,
    shift: u32,
    /// The values of the row, and behind them those for columns without an entry, which are not read.
    pub(super) values: Vec<T>,
}

/// Slot at which the search for a column starts, in a table of `2^(32 − shift)` slots (Knuth's multiplicative hash).
#[inline(always)]
fn start_of(column: u32, shift: u32) -> usize {
    (column.wrapping_mul(0x9e37_79b9) >> shift) as usize
}

impl<T: Value> Gathered<T> {
    /// Replaces the row. Columns must be distinct.
    pub(super) fn load(&mut self, columns: &[u32], values: &[T]) {
        self.values.clear();
        self.values.extend_from_slice(values);
        let slots = (8 * columns.len().max(2)).next_power_of_two().min(1 << 31);
        if self.slots.len() < slots {
            self.slots = vec![0; slots];
            self.shift = 32 - slots.trailing_zeros();
        }
        let mask = self.slots.len() - 1;
        for (place, &column) in (1..).zip(columns) {
            let mut at = start_of(column, self.shift);
            while self.slots[at] != 0 {
                at = (at + 1) & mask;
            }
            self.slots[at] = u64::from(column) << 32 | place;
        }
    }

    /// `w_c ← w_c − factor u_c` for the columns `c` of the row. It has no branches, because it is unpredictable
    /// whether a column has an entry; each column without one has a separate place, so that no update waits for another.
    #[inline(always)]
    pub(super) fn subtract(&mut self, factor: T, columns: &[u32], u: &[T]) {
        let len = self.values.len();
        self.values.resize(len + columns.len(), T::zero());
        // the table and the values by themselves, so that their addresses stay in registers
        let (slots, values, shift) = (&self.slots[..], &mut self.values[..], self.shift);
        let mask = slots.len() - 1;
        for ((beyond, &column), &u) in (len..).zip(columns).zip(u) {
            let mut at = start_of(column, shift);
            let place = loop {
                let slot = slots[at & mask];
                if slot == 0 || (slot >> 32) as u32 == column {
                    break slot as u32 as usize;
                }
                at += 1;
            };
            let place = if place == 0 { beyond } else { place - 1 };
            values[place] -= factor * u;
        }
        self.values.truncate(len);
    }

    /// Moves the values back, and empties the table. `columns` are those of [`Gathered::load`].
    pub(super) fn store(&mut self, columns: &[u32], values: &mut [T]) {
        values.copy_from_slice(&self.values);
        let mask = self.slots.len() - 1;
        for &column in columns {
            let mut at = start_of(column, self.shift);
            // all entries that follow without a gap may have been displaced by this one
            while std::mem::take(&mut self.slots[at]) != 0 {
                at = (at + 1) & mask;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_columns_of_the_row_are_updated() {
        let mut row = Gathered::default();
        // the second row has columns that were in the first one, and shares slots of a table that is already there
        for (count, apart) in [(300, 7), (40, 1), (1, 1), (0, 1), (500, 1 << 20)] {
            let columns: Vec<u32> = (0..count).map(|k| k * apart).collect();
            let others: Vec<u32> = (0..2 * count).map(|k| k * apart / 2).collect();
            let u: Vec<f64> = others.iter().map(|&column| 1.0 + f64::from(column)).collect();
            let mut values: Vec<f64> = columns.iter().map(|&column| f64::from(column) / 8.0).collect();
            let expected: Vec<f64> = columns
                .iter()
                .zip(&values)
                .map(|(column, value)| {
                    let terms = others.iter().zip(&u).filter(|(other, _)| *other == column);
                    terms.fold(*value, |value, (_, u)| value - 0.5 * u)
                })
                .collect();
            row.load(&columns, &values);
            row.subtract(0.5, &others, &u);
            row.store(&columns, &mut values);
            assert_eq!(values, expected, "{count} columns");
        }
    }
}
