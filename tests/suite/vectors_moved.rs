//! The vectors that the cost of a method states are those that its operations read and write.
//!
//! [`Counted`] vectors count the vectors that each operation moves, with fused operations in one pass. Conjugate
//! gradients are not here: their cost is a mean of fused and separate operations.

use krysp::solvers::{Diagonal, Immediate, Method, Solver, VectorBasis};
use krysp::testing::matrices;
use krysp::{BasicVector, BiCgStab, Csr, Fcg, Idr, LinearOperator, Minres, Space, Vector};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

type Result<T> = krysp::solvers::Result<T>;

/// The space of vectors of one length, and the number of vectors that their operations have moved.
#[derive(Clone, Debug)]
struct Counting {
    len: usize,
    moved: Arc<AtomicUsize>,
}

impl PartialEq for Counting {
    fn eq(&self, other: &Counting) -> bool {
        Arc::ptr_eq(&self.moved, &other.moved)
    }
}

impl Space for Counting {
    type Vector = Counted;

    fn len(&self) -> usize {
        self.len
    }

    fn zeros(&self) -> Result<Counted> {
        Ok(Counted { entries: vec![0.0; self.len], space: self.clone() })
    }

    fn load(&self, host: &[f64], into: &mut Counted) -> Result<()> {
        into.entries.copy_from_slice(host);
        Ok(())
    }

    fn store(&self, from: &Counted, host: &mut [f64]) -> Result<()> {
        host.copy_from_slice(&from.entries);
        Ok(())
    }
}

struct Counted {
    entries: Vec<f64>,
    space: Counting,
}

impl Counted {
    /// Counts an operation that reads these vectors, each once, and writes `written` vectors.
    fn moved(&self, read: &[&Counted], written: usize) {
        let mut addresses: Vec<*const Counted> =
            read.iter().map(|&vector| std::ptr::from_ref(vector)).collect();
        addresses.sort();
        addresses.dedup();
        self.space.moved.fetch_add(addresses.len() + written, Relaxed);
    }

    /// `self ← a x + b self`, not counted.
    fn update(&mut self, a: f64, x: &Counted, b: f64) {
        for (y, x) in self.entries.iter_mut().zip(&x.entries) {
            *y = if b == 0.0 { a * x } else { a * x + b * *y };
        }
    }

    /// `⟨self, y⟩`, not counted.
    fn sum(&self, y: &Counted) -> f64 {
        self.entries.iter().zip(&y.entries).map(|(x, y)| x * y).sum()
    }
}

impl BasicVector for Counted {
    type Elem = f64;
    type Scalar = f64;
    type Space = Counting;
    type Basis = VectorBasis<Counted>;
    type Steps = Immediate<Counted>;
    type Native = Infallible;

    fn space(&self) -> &Counting {
        &self.space
    }

    fn copy_from(&mut self, x: &Counted) {
        self.moved(&[x], 1);
        self.entries.copy_from_slice(&x.entries);
    }

    fn axpby(&mut self, a: &f64, x: &Counted, b: &f64) {
        if *b == 0.0 {
            self.moved(&[x], 1)
        } else {
            self.moved(&[self, x], 1)
        }
        self.update(*a, x, *b);
    }

    fn dot(&self, y: &Counted) -> f64 {
        self.moved(&[self, y], 0);
        self.sum(y)
    }

    fn multiply(&mut self, d: &Counted, x: &Counted) {
        self.moved(&[d, x], 1);
        for (y, (d, x)) in self.entries.iter_mut().zip(d.entries.iter().zip(&x.entries)) {
            *y = d * x;
        }
    }

    fn basis(space: &Counting, count: usize) -> Result<VectorBasis<Counted>> {
        VectorBasis::new(space, count)
    }
}

impl Vector for Counted {
    fn dot_2(&self, y: &Counted, z: &Counted) -> [f64; 2] {
        self.moved(&[self, y, z], 0);
        [self.sum(y), self.sum(z)]
    }

    fn axpbypcz(&mut self, a: &f64, x: &Counted, b: &f64, y: &Counted, c: &f64) {
        self.moved(&[self, x, y], 1);
        self.update(*a, x, *c);
        self.update(*b, y, 1.0);
    }

    fn axpy_dot_2(&mut self, a: &f64, x: &Counted, y: &Counted) -> [f64; 2] {
        self.moved(&[self, x, y], 1);
        self.update(*a, x, 1.0);
        [self.sum(self), self.sum(y)]
    }

    fn axpy_norm(&mut self, a: &f64, x: &Counted) -> f64 {
        self.moved(&[self, x], 1);
        self.update(*a, x, 1.0);
        self.sum(self)
    }

    fn axpy_xpby(&mut self, a: &f64, p: &mut Counted, z: &Counted, b: &f64) {
        self.moved(&[self, p, z], 2);
        self.update(*a, p, 1.0);
        p.update(1.0, z, *b);
    }

    fn multiply_dot(&mut self, d: &Counted, x: &Counted) -> f64 {
        self.multiply(d, x);
        x.sum(self)
    }
}

/// A matrix that multiplies counted vectors.
struct Counts {
    a: Csr<f64>,
    space: Counting,
}

impl LinearOperator for Counts {
    type Vector = Counted;

    fn domain(&self) -> &Counting {
        &self.space
    }

    fn apply(&self, x: &Counted, y: &mut Counted) -> Result<()> {
        y.moved(&[x], 1);
        for (row, y) in y.entries.iter_mut().enumerate() {
            let entries = self.a.row_columns(row).iter().zip(self.a.row_values(row));
            *y = entries.map(|(&column, value)| value * x.entries[column as usize]).sum();
        }
        Ok(())
    }

    fn apply_dot(&self, x: &Counted, y: &mut Counted) -> Result<f64> {
        self.apply(x, y)?;
        Ok(x.sum(y))
    }
}

/// Vectors that ten iterations move, as the difference of two solves, which excludes start and end; and those that
/// the cost of the method states.
fn ten<'s, K: Method<Counted>>(
    space: &Counting,
    new: impl Fn() -> Solver<K, &'s Counts, &'s Diagonal<Counted>>,
) -> (f64, f64) {
    let b = matrices::vector(space.len);
    let count = |iterations: usize| {
        let before = space.moved.load(Relaxed);
        let report = new().rtol(0.0).max_iterations(iterations).solve(&b).unwrap().report;
        assert_eq!(report.iterations, iterations);
        space.moved.load(Relaxed) - before
    };
    let short = count(10);
    ((count(20) - short) as f64, 10.0 * new().cost().vectors)
}

#[test]
fn costs_count_the_vectors_that_an_iteration_moves() {
    let a = matrices::stencil7(10).csr::<f64>().unwrap();
    let space = Counting { len: a.rows(), moved: Arc::default() };
    let mut inverse = space.zeros().unwrap();
    inverse.entries = a.diagonal_entries().iter().map(|d| 1.0 / d).collect();
    let (m, a) = (&Diagonal::new(inverse), &Counts { a, space: space.clone() });
    let found = [
        ("Fcg", ten(&space, || Fcg::new(a).preconditioner(m))),
        ("Minres", ten(&space, || Minres::new(a).preconditioner(m))),
        ("BiCgStab", ten(&space, || BiCgStab::new(a).preconditioner(m))),
        // ten iterations are two cycles
        ("Idr", ten(&space, || Idr::new(a).preconditioner(m))),
    ];
    for (method, (moved, stated)) in found {
        assert!((moved - stated).abs() < 1e-9 * stated, "{method}: {moved} of {stated}");
    }
}
