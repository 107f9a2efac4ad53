//! Bases: the vectors of an Arnoldi process.

use crate::{Result, Scalar, ScalarOf, Space, Steps, Vector};
use num_traits::{One, Zero};

/// Vectors of an Arnoldi process, and the current column of the Hessenberg matrix. Vectors are never borrowed
/// from the basis, so an implementation may store them compressed.
pub trait Basis<V: Vector>: Send {
    /// `v_j ← w / √norm_squared`
    fn push(&mut self, j: usize, w: &V, norm_squared: &V::Scalar) -> Result<()>;

    /// `w ← v_j`
    fn load(&self, j: usize, w: &mut V);

    /// `c ← V_kᵀ w` over the first `k` vectors.
    fn project(&mut self, k: usize, w: &V);

    /// `w ← w − V_k c`, with `c` from the last [`Basis::project`].
    fn subtract(&mut self, k: usize, w: &mut V);

    /// `w ← w − V_k c; c ← V_kᵀ w`
    fn subtract_project(&mut self, k: usize, w: &mut V) {
        self.subtract(k, w);
        self.project(k, w);
    }

    /// `w ← w − V_k c; ‖w‖²`
    fn subtract_norm(&mut self, k: usize, w: &mut V) -> V::Scalar {
        self.subtract(k, w);
        w.norm_squared()
    }

    /// Copies the coefficients `c` of the last projection to the host.
    fn coefficients(&self, c: &mut [V::Elem]) -> Result<()>;

    /// Records, within a step and after all other numbers, the sum of two coefficient vectors: those of
    /// [`Basis::project`] and of the following [`Basis::subtract_project`].
    fn record(&self, k: usize, steps: &mut V::Steps) -> Result<()>;

    /// `x ← V_k y`, with `k` the length of `y`.
    fn combine(&mut self, y: &[V::Elem], x: &mut V) -> Result<()>;
}

/// A basis stored as separate vectors of any kind, for memory without a specialized basis.
pub struct VectorBasis<V: Vector> {
    vectors: Vec<V>,
    coefficients: Vec<ScalarOf<V>>,
    /// Sum of all coefficients since the last [`Basis::project`].
    total: Vec<ScalarOf<V>>,
}

impl<V: Vector> VectorBasis<V> {
    /// Allocates a basis of up to `count` vectors of a space.
    pub fn new(space: &V::Space, count: usize) -> Result<Self> {
        let vectors = (0..count).map(|_| space.zeros()).collect::<Result<_>>()?;
        let zeros = vec![ScalarOf::<V>::from(V::Elem::zero()); count];
        Ok(VectorBasis { vectors, coefficients: zeros.clone(), total: zeros })
    }
}

impl<V: Vector> Basis<V> for VectorBasis<V> {
    fn push(&mut self, j: usize, w: &V, norm_squared: &V::Scalar) -> Result<()> {
        let one = ScalarOf::<V>::from(V::Elem::one());
        self.vectors[j].axpby(&(one / norm_squared.clone().sqrt()), w, &V::Elem::zero().into());
        Ok(())
    }

    fn load(&self, j: usize, w: &mut V) {
        w.copy_from(&self.vectors[j]);
    }

    fn project(&mut self, k: usize, w: &V) {
        for (c, v) in self.coefficients[..k].iter_mut().zip(&self.vectors) {
            *c = v.dot(w);
        }
        self.total[..k].clone_from_slice(&self.coefficients[..k]);
    }

    fn subtract(&mut self, k: usize, w: &mut V) {
        for (c, v) in self.coefficients[..k].iter().zip(&self.vectors) {
            w.axpy(&-c.clone(), v);
        }
    }

    fn subtract_project(&mut self, k: usize, w: &mut V) {
        self.subtract(k, w);
        let before = self.total.clone();
        self.project(k, w);
        for (total, before) in self.total[..k].iter_mut().zip(before) {
            *total = before + total.clone();
        }
    }

    fn coefficients(&self, c: &mut [V::Elem]) -> Result<()> {
        for (to, c) in c.iter_mut().zip(&self.coefficients) {
            *to = c.read()?;
        }
        Ok(())
    }

    fn record(&self, k: usize, steps: &mut V::Steps) -> Result<()> {
        self.total[..k].iter().try_for_each(|total| steps.record(total))
    }

    fn combine(&mut self, y: &[V::Elem], x: &mut V) -> Result<()> {
        let zero = ScalarOf::<V>::from(V::Elem::zero());
        let Some((first, others)) = y.split_first() else {
            let anything = x.space().zeros()?;
            x.axpby(&zero, &anything, &zero);
            return Ok(());
        };
        x.axpby(&(*first).into(), &self.vectors[0], &zero);
        for (y, v) in others.iter().zip(&self.vectors[1..]) {
            x.axpy(&(*y).into(), v);
        }
        Ok(())
    }
}
