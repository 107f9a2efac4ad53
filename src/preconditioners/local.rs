//! The local least-squares problems of SPAI, `min ‖A[I, J] m − e_k‖`, and patterns that grow adaptively. `m`
//! is column `k` of the inverse and `J` its pattern; `I` has row `k`, and the rows with entries in columns
//! `J` of `A`.

use super::rows::{Accumulator, Places, keep_largest};
use super::sparsity::Growth;
use crate::formats::Csr;
use crate::numbers::Real;
use krysp_kernels::cpu::preconditioners::dense::LeastSquares;
use krysp_solvers::Element;

/// `A[I, J]`, factorized column by column as `J` grows, and the right-hand side `e_k`.
pub(super) struct System {
    unknowns: Vec<u32>,
    equations: Vec<u32>,
    /// Position of each row of `A` in `equations`.
    places: Places,
    least_squares: LeastSquares,
    column: Vec<f64>,
    /// The solution.
    m: Vec<f64>,
}

impl System {
    pub(super) fn new(n: usize) -> System {
        System {
            unknowns: vec![],
            equations: vec![],
            places: Places::new(n),
            least_squares: LeastSquares::default(),
            column: vec![],
            m: vec![],
        }
    }

    pub(super) fn start(&mut self, k: u32) {
        self.unknowns.clear();
        self.places.clear(self.equations.drain(..));
        self.places.set(k, 0);
        self.equations.push(k);
        self.least_squares.start(&[1.0]);
    }

    /// Adds an unknown, unless its column depends linearly on those already present; returns whether it was
    /// added.
    pub(super) fn push<T: Real>(&mut self, columns: &Csr<T>, unknown: u32) -> bool {
        let (rows, values) = (columns.row_columns(unknown as usize), columns.row_values(unknown as usize));
        self.column.clear();
        self.column.resize(self.equations.len(), 0.0);
        for (&row, &value) in rows.iter().zip(values) {
            let value = Element::to_f64(value);
            match self.places.get(row) {
                Some(place) => self.column[place] = value,
                None => {
                    self.places.set(row, self.equations.len());
                    self.equations.push(row);
                    self.least_squares.extend(&[0.0]);
                    self.column.push(value);
                }
            }
        }
        let independent = self.least_squares.push(&self.column);
        if independent {
            self.unknowns.push(unknown);
        }
        independent
    }

    /// Returns the solution and the norm of its residual.
    pub(super) fn solve(&mut self) -> (&[f64], f64) {
        self.least_squares.solve(&mut self.m);
        (&self.m, self.least_squares.residual())
    }
}

/// A column of the inverse whose pattern grows.
pub(super) struct Growing {
    system: System,
    /// `A m − e_k`, in the order of the equations.
    residual: Vec<f64>,
    slopes: Accumulator,
    next: Vec<(u32, f64)>,
}

impl Growing {
    pub(super) fn new(n: usize) -> Growing {
        Growing { system: System::new(n), residual: vec![], slopes: Accumulator::new(n), next: vec![] }
    }

    /// Computes the pattern of column `k`, beginning with the unknowns in `start`.
    pub(super) fn grow<T: Real>(
        &mut self,
        columns: &Csr<T>,
        equations: &Csr<T>,
        norms_squared: &[f64],
        (k, start): (u32, &[u32]),
        growth: Growth,
    ) -> &[u32] {
        let Growing { system, residual, slopes, next } = self;
        system.start(k);
        next.clear();
        next.extend(start.iter().map(|&j| (j, 0.0)));
        for step in 0..=growth.max_steps {
            // a linearly dependent column cannot reduce the residual, and is not added
            next.iter().for_each(|&(j, _)| {
                system.push(columns, j);
            });
            if step == growth.max_steps || system.least_squares.residual() <= growth.epsilon {
                break;
            }
            system.least_squares.solve(&mut system.m);
            residual.clear();
            residual.resize(system.equations.len(), 0.0);
            residual[0] = -1.0;
            for (&j, &m) in system.unknowns.iter().zip(&system.m) {
                let (rows, values) = (columns.row_columns(j as usize), columns.row_values(j as usize));
                for (&row, &value) in rows.iter().zip(values) {
                    if let Some(place) = system.places.get(row) {
                        residual[place] += Element::to_f64(value) * m;
                    }
                }
            }
            // rᵀ A e_j
            for (&row, &r) in system.equations.iter().zip(&*residual) {
                let entries =
                    equations.row_columns(row as usize).iter().zip(equations.row_values(row as usize));
                entries.for_each(|(&j, &value)| slopes.add(j, Element::to_f64(value) * r));
            }
            slopes.take(next);
            next.retain(|(j, _)| !system.unknowns.contains(j));
            next.iter_mut().for_each(|(j, slope)| *slope *= *slope / norms_squared[*j as usize]);
            let limit = growth.max_fill.saturating_sub(system.unknowns.len());
            keep_largest(next, growth.step_entries.min(limit));
            if next.is_empty() {
                break;
            }
        }
        &self.system.unknowns
    }
}
