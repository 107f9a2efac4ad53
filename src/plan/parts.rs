//! Sets of unknowns that no entry connects.

use crate::{Csr, Real};

/// Sets of unknowns that no entry connects: each is a system by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectedComponents {
    /// How many.
    pub count: usize,
    /// Rows of the largest.
    pub largest: usize,
}

/// The parts of a matrix, by union of the ends of each entry. Rows and columns of one number are one unknown.
pub(super) fn parts<T: Real>(a: &Csr<T>) -> ConnectedComponents {
    let mut leader: Vec<u32> = (0..a.rows().max(a.cols()) as u32).collect();
    for row in 0..a.rows() {
        for &col in a.row_columns(row) {
            let (one, other) = (find(&mut leader, row as u32), find(&mut leader, col));
            // the lower leads, so that chains stay short in an ordering with neighbours
            leader[one.max(other) as usize] = one.min(other);
        }
    }
    let mut sizes = vec![0usize; leader.len()];
    for index in 0..leader.len() as u32 {
        sizes[find(&mut leader, index) as usize] += 1;
    }
    let count = sizes.iter().filter(|&&size| size > 0).count();
    ConnectedComponents { count, largest: sizes.into_iter().max().unwrap_or(0) }
}

/// The leader of an unknown's set; halves the way there.
fn find(leader: &mut [u32], mut index: u32) -> u32 {
    while leader[index as usize] != index {
        let next = leader[leader[index as usize] as usize];
        leader[index as usize] = next;
        index = next;
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_counted() {
        let entries = [(0, 3, 1.0), (3, 5, 1.0), (1, 1, 1.0), (4, 2, 1.0)];
        let a = Csr::from_triplets(6, 6, &entries).unwrap();
        assert_eq!(parts(&a), ConnectedComponents { count: 3, largest: 3 });
        let none = Csr::from_triplets(0, 0, &[] as &[(usize, usize, f64)]).unwrap();
        assert_eq!(parts(&none), ConnectedComponents { count: 0, largest: 0 });
    }
}
