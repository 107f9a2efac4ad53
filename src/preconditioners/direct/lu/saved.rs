//! How factors are saved, and what must hold of those that are read.

use super::super::order::{Order, Pivoting};
use super::super::triangle::Triangle;
use super::{Budget, Factors, Lu, NAME};
use crate::saved::{Broken, Loaded, Reader, Saved, Writer, saved};
use crate::{HostSpace, Real, Space};
use std::sync::Mutex;

saved!(impl[] Order { column_of, by_diagonal });
saved!(impl[T: Real] Triangle<T> { starts, rows, values });
saved!(impl[T: Real] Factors<T> { scale, row_of, lower, upper, pivots, missing });

impl Saved for Pivoting {
    fn save(&self, to: &mut Writer<'_>) {
        matches!(self, Pivoting::Tolerant).save(to);
    }

    fn load(from: &mut Reader<'_>) -> Loaded<Pivoting> {
        Ok(if from.load()? { Pivoting::Tolerant } else { Pivoting::Regular })
    }
}

impl<T: Real> Saved for Lu<T> {
    fn save(&self, to: &mut Writer<'_>) {
        let Lu { space, budget, columns, from_a, order, pivoting, factors, work: _ } = self;
        space.save(to);
        budget.save(to);
        columns.save(to);
        from_a.save(to);
        order.save(to);
        pivoting.save(to);
        factors.save(to);
    }

    fn load(from: &mut Reader<'_>) -> Loaded<Lu<T>> {
        let (space, budget): (HostSpace<T>, Budget) = (from.load()?, Budget::load(NAME, from)?);
        let (columns, from_a) = from.load()?;
        let (order, pivoting): (Order, Pivoting) = from.load()?;
        let factors: Factors<T> = from.load()?;
        let rows = space.len();
        let places = |places: &[u32]| places.len() == rows && places.iter().all(|&at| (at as usize) < rows);
        let whole = [&factors.scale, &factors.pivots].into_iter().all(|list| list.len() == rows);
        let triangles = fits(&factors.lower, rows) && fits(&factors.upper, rows);
        let missing = factors.missing.iter().all(|&step| (step as usize) < rows);
        if !(whole && missing && triangles && places(&order.column_of) && places(&factors.row_of)) {
            return Err(Broken);
        }
        Ok(Lu {
            space,
            budget,
            columns,
            from_a,
            order,
            pivoting,
            factors,
            work: Mutex::new(vec![T::zero(); rows]),
        })
    }
}

/// Whether a triangle has so many rows and columns.
fn fits<T>(Triangle { starts, rows, values }: &Triangle<T>, n: usize) -> bool {
    starts.len() == n + 1
        && starts[0] == 0
        && starts.is_sorted()
        && starts[n] == rows.len()
        && values.len() == rows.len()
        && rows.iter().all(|&row| (row as usize) < n)
}
