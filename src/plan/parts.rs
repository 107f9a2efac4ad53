//! Connected components of the graph of a matrix.

use crate::formats::Csr;
use crate::numbers::Real;

/// Connected components of the graph of a matrix: each is a separate system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectedComponents {
    /// Number of components.
    pub count: usize,
    /// Number of rows of the largest component.
    pub largest: usize,
}

/// The connected components, by union-find over the entries. Row `i` and column `i` are one vertex.
pub(super) fn parts<T: Real>(a: &Csr<T>) -> ConnectedComponents {
    let mut leader: Vec<u32> = (0..a.rows().max(a.cols()) as u32).collect();
    for row in 0..a.rows() {
        for &col in a.row_columns(row) {
            let (one, other) = (find(&mut leader, row as u32), find(&mut leader, col));
            // the vertex with the lower index becomes the root, which keeps paths short if neighbours have similar indices
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

/// The root of the set of a vertex. Halves the path to it.
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
