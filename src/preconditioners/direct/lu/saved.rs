//! Serialization of LU factors, and validation of those that are read.

use super::super::order::{Order, Pivoting};
use super::super::triangle::Triangle;
use super::column_factors::ColumnFactors;
use super::{Budget, DirectOptions, Factors, Lu, NAME};
use crate::formats::pattern::Pattern;
use crate::numbers::Real;
use crate::saved::saved;
use krysp_solvers::Space;
use std::sync::Mutex;

saved!(impl[] Order { column_of, preferred, most_entries });
saved!(impl[T: Real] Triangle<T> { starts, rows, values });
saved!(impl[T: Real] ColumnFactors<T> { scale, largest, blocks, row_of, lower, upper, pivots, missing });

saved!(impl[] enum Pivoting { Regular {}, Tolerant {} });

saved!(impl[T: Real] enum Factors<T> {
    Columns { order: order, factors: factors },
    Fronts { tree: tree, factors: factors },
});

impl<T: Real> Factors<T> {
    /// Whether the factors fit a pattern.
    fn fit(&self, pattern: &Pattern) -> bool {
        let rows = pattern.rows();
        match self {
            Factors::Columns { order, factors } => {
                let places = |places: &[u32]| is_permutation(places, rows);
                let whole = [&factors.scale, &factors.pivots].into_iter().all(|list| list.len() == rows);
                let triangles = fits(&factors.lower, rows) && fits(&factors.upper, rows);
                let missing = factors.missing.iter().all(|&step| (step as usize) < rows);
                let preferred = order.preferred.is_empty() || places(&order.preferred);
                let order = preferred && places(&order.column_of) && places(&factors.row_of);
                let bounds = &factors.blocks;
                let blocks = bounds.first() == Some(&0)
                    && bounds.last().is_some_and(|&end| end as usize == rows)
                    && (rows == 0 || bounds.is_sorted_by(|one, next| one < next));
                whole && missing && triangles && order && blocks
            }
            Factors::Fronts { tree, factors } => {
                tree.fits(pattern, tree.numbers()) && factors.fit(tree, false)
            }
        }
    }
}

saved!(impl[T: Real] Lu<T> {
    space, pattern, budget, pivoting, scaling, matched, norm, factors; workspace = Mutex::default()
} where |read| {
    let rows = read.space.len();
    let scaling = read.scaling.as_ref().is_none_or(|scaling| scaling.rows() == rows);
    scaling && read.pattern.rows() == rows && read.factors.fit(&read.pattern)
});

saved!(impl[] Budget as |this| { limit: usize = &this.limit() } => {
    Ok(Budget::new(NAME, DirectOptions { memory: Some(limit) }, 0))
});

/// Whether every number below `n` occurs exactly once.
fn is_permutation(numbers: &[u32], n: usize) -> bool {
    let mut found = vec![false; n];
    let once =
        |&number: &u32| found.get_mut(number as usize).is_some_and(|found| !std::mem::replace(found, true));
    numbers.len() == n && numbers.iter().all(once)
}

/// Whether a triangle has `n` columns, rows below `n`, and arrays of consistent lengths.
fn fits<T>(Triangle { starts, rows, values }: &Triangle<T>, n: usize) -> bool {
    starts.len() == n + 1
        && starts[0] == 0
        && starts.is_sorted()
        && starts[n] == rows.len()
        && values.len() == rows.len()
        && rows.iter().all(|&row| (row as usize) < n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::Csr;
    use crate::saved::copied;

    #[test]
    fn forged_blocks_are_refused() {
        let a = Csr::from_triplets(3, 3, &[(0, 1, 2.0), (1, 2, 3.0), (0, 2, 1.0), (2, 0, 4.0)]).unwrap();
        let lu = || Lu::<f64>::new(&a).unwrap();
        assert!(copied(&lu()).is_ok());
        for forged in [vec![], vec![3], vec![0, 4], vec![0, 2], vec![0, 2, 1, 3], vec![0, 0, 3], vec![1, 3]] {
            let mut lu = lu();
            let Factors::Columns { factors, .. } = &mut lu.factors else { panic!("fronts") };
            assert_eq!(factors.blocks, [0, 1, 2, 3]);
            factors.blocks = forged.clone();
            assert!(copied(&lu).is_err(), "{forged:?}");
        }
    }
}
