//! Restarted GMRES (Saad and Schultz 1986), right-preconditioned, for general `A`.
//!
//! Each step extends an orthonormal basis `V` of the Krylov space of `A M⁻¹` by block classical Gram-Schmidt, done twice
//! (as orthogonal as modified Gram-Schmidt, in three passes over the basis instead of `j` dependent ones), and minimises
//! `‖b − A x‖` over `x₀ + M⁻¹ span V`. Rotations keep the Hessenberg matrix triangular, so that every step knows its
//! residual; `x` is assembled at the end of a cycle. Where `A` is singular and the basis can grow no further the method
//! breaks down, at the least residual within it.
//!
//! Step `j` costs one product, one preconditioning, three passes over `j + 1` basis vectors and about 11 vector words;
//! over a cycle of `m` steps that is `3(m + 1)/2 + 11` vectors a step. Memory: `m + 4` vectors.

use crate::Condition::Finite;
use crate::{
    Basis, Cost, Element, Error, Identity, LinearOperator, Method, Monitor, Patience, Result, Scalar, Solver,
    Space, System, Vector,
};
use num_traits::{One, Zero};

/// Restarted GMRES: `Gmres::new(op).restart(50).solve(&b)`.
pub type Gmres<A, M = Identity<<A as LinearOperator>::Vector>> = Solver<GeneralisedMinimalResidual, A, M>;

/// The method behind [`Gmres`].
#[derive(Clone, Copy, Debug)]
pub struct GeneralisedMinimalResidual {
    restart: usize,
}

impl Default for GeneralisedMinimalResidual {
    fn default() -> Self {
        GeneralisedMinimalResidual { restart: 30 }
    }
}

impl<A, M> Gmres<A, M>
where
    A: LinearOperator,
    M: LinearOperator<Vector = A::Vector>,
{
    /// Starts a new basis after so many steps (30 unless told). More steps converge better and cost more memory.
    pub fn restart(mut self, steps: usize) -> Self {
        self.method.restart = steps.max(1);
        self.forget_workspace();
        self
    }
}

/// The state of a cycle.
pub struct Work<V: Vector> {
    basis: V::Basis,
    w: V,
    v: V,
    z: V,
    /// Steps made in this cycle.
    steps: usize,
    /// `R` of the rotated Hessenberg matrix: column `j` holds `j + 1` entries from `j (j + 1) / 2` on.
    r: Vec<V::Elem>,
    rotations: Vec<[V::Elem; 2]>,
    /// The rotated right-hand side of the least squares problem; its last entry is the residual.
    g: Vec<V::Elem>,
    column: Vec<V::Elem>,
    correction: Vec<V::Elem>,
}

impl<V: Vector> Method<V> for GeneralisedMinimalResidual {
    type Work = Work<V>;

    fn workspace(&self, space: &V::Space) -> Result<Work<V>> {
        let steps = self.restart.min(space.len().max(1));
        let zeros = |count| vec![V::Elem::zero(); count];
        Ok(Work {
            basis: V::basis(space, steps + 1)?,
            w: space.zeros()?,
            v: space.zeros()?,
            z: space.zeros()?,
            steps: 0,
            r: zeros(steps * (steps + 1) / 2),
            rotations: vec![[V::Elem::zero(); 2]; steps],
            g: zeros(steps + 1),
            column: zeros(steps + 1),
            correction: zeros(steps + 1),
        })
    }

    fn start<A, M>(&self, system: &System<'_, A, M>, x: &V, work: &mut Work<V>) -> Result<V::Scalar>
    where
        A: LinearOperator<Vector = V>,
        M: LinearOperator<Vector = V>,
    {
        let rr = system.residual(x, &mut work.w)?; // w = b − A x
        let norm = V::Elem::from_f64(rr.read()?.to_f64().sqrt());
        work.basis.push(0, &work.w, &norm.into())?; // v₀ = w / ‖w‖
        work.g[0] = norm;
        work.steps = 0;
        Ok(rr)
    }

    fn step<A, M>(
        &self,
        system: &System<'_, A, M>,
        x: &mut V,
        work: &mut Work<V>,
        monitor: &mut Monitor,
    ) -> Result<V::Scalar>
    where
        A: LinearOperator<Vector = V>,
        M: LinearOperator<Vector = V>,
    {
        if work.steps == work.rotations.len() {
            self.finish(system, x, work)?;
            self.start(system, x, work)?;
        }
        let Work { basis, w, v, z, steps, r, rotations, g, column, correction } = work;
        let (j, k) = (*steps, *steps + 1);
        basis.load(j, v);
        system.m.apply(v, z)?; // z = M⁻¹ v_j
        system.a.apply(z, w)?; // w = A z
        basis.project(k, w); // h = Vᵀ w
        basis.coefficients(&mut column[..k])?;
        basis.subtract_project(k, w); // w = w − V h,  c = Vᵀ w
        basis.coefficients(&mut correction[..k])?;
        let norm_squared = basis.subtract_norm(k, w); // w = w − V c
        let norm = V::Elem::from_f64(norm_squared.read()?.to_f64().sqrt());
        monitor.watch("‖w‖", &norm, Finite)?;
        basis.push(k, w, &norm.into())?; // v_{j+1} = w / ‖w‖
        for (h, c) in column[..k].iter_mut().zip(&correction[..k]) {
            *h += *c;
        }
        column[k] = norm;
        let image = column[..=k].iter().fold(0.0, |sum: f64, h| sum.hypot(h.to_f64())); // ‖A z‖

        for (i, [c, s]) in rotations[..j].iter().enumerate() {
            (column[i], column[i + 1]) =
                (*c * column[i] + *s * column[i + 1], *c * column[i + 1] - *s * column[i]);
        }
        // a direction whose image the others span already, up to rounding: it leads nowhere, and not beyond
        let pivot = column[j].to_f64().hypot(column[k].to_f64());
        if pivot <= 10.0 * V::Elem::EPSILON * image {
            return Err(Error::Breakdown { what: "the pivot of A M⁻¹ V", value: pivot });
        }
        let (c, s) = rotation(column[j], column[k]);
        rotations[j] = [c, s];
        column[j] = c * column[j] + s * column[k];
        (g[j], g[k]) = (c * g[j], -(s * g[j]));
        r[j * k / 2..][..k].copy_from_slice(&column[..k]);
        *steps = k;
        Ok((g[k] * g[k]).into())
    }

    fn finish<A, M>(&self, system: &System<'_, A, M>, x: &mut V, work: &mut Work<V>) -> Result<()>
    where
        A: LinearOperator<Vector = V>,
        M: LinearOperator<Vector = V>,
    {
        let Work { basis, v, z, steps, r, g, column, .. } = work;
        let k = std::mem::take(steps);
        if k == 0 {
            return Ok(());
        }
        let y = &mut column[..k];
        y.copy_from_slice(&g[..k]);
        for j in (0..k).rev() {
            let (column, pivot) = (&r[j * (j + 1) / 2..][..j], r[j * (j + 1) / 2 + j]);
            y[j] /= pivot;
            for i in 0..j {
                y[i] -= column[i] * y[j];
            }
        }
        basis.combine(y, v)?; // v = V y
        system.m.apply(v, z)?;
        x.axpy(&V::Elem::one().into(), z); // x = x + M⁻¹ V y
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost { products: 1.0, preconditionings: 1.0, vectors: 1.5 * (self.restart + 1) as f64 + 11.0 }
    }

    fn patience(&self) -> Patience {
        // restarted GMRES converges linearly: ten cycles for a tenth are thousands for a solution
        Patience { iterations: 10 * self.restart, fall: 0.1 }
    }
}

/// `c`, `s` with `−s a + c b = 0` and `c² + s² = 1`.
fn rotation<T: Element>(a: T, b: T) -> (T, T) {
    let length = a.to_f64().hypot(b.to_f64());
    if length == 0.0 {
        return (T::one(), T::zero());
    }
    (T::from_f64(a.to_f64() / length), T::from_f64(b.to_f64() / length))
}
