//! Laws of vectors and bases: a fusion equals the operations it fuses.

use super::{Agreement, Broken, Law, unexpected};
use crate::testing::matrices::{mix, unit};
use crate::{Element, Space, Vector};
use krysp_solvers::{Basis, CgUpdate, ElemOf, Scalar, ScalarOf};

/// `len` ordinary numbers in ±[¼, 1), others for each `seed`, that are exact in `f32`.
pub fn numbers<T: Element>(len: usize, seed: u64) -> Vec<T> {
    let number = |i: u64| {
        let bits = mix(i ^ seed << 40);
        let magnitude = 0.25 + 0.75 * unit(bits);
        f64::from((if bits & 1 == 0 { magnitude } else { -magnitude }) as f32)
    };
    (0..len as u64).map(|i| T::from_f64(number(i))).collect()
}

const FUSIONS: &str = "fusions of vectors equal their parts";
const BASES: &str = "fusions of bases equal their parts";

/// Vectors of a space, and what they hold.
struct Bench<'s, V: Vector> {
    space: &'s V::Space,
    law: &'static str,
    agreement: Agreement,
}

impl<V: Vector> Bench<'_, V> {
    fn vector(&self, seed: u64) -> Law<V> {
        self.load(&numbers(self.space.local_len(), seed))
    }

    fn load(&self, host: &[V::Elem]) -> Law<V> {
        let mut vector = self.space.zeros().map_err(unexpected(self.law))?;
        self.space.load(host, &mut vector).map_err(unexpected(self.law))?;
        Ok(vector)
    }

    fn store(&self, vector: &V) -> Law<Vec<V::Elem>> {
        let mut host = vec![V::Elem::default(); self.space.local_len()];
        self.space.store(vector, &mut host).map_err(unexpected(self.law))?;
        Ok(host)
    }

    fn same(&self, what: &str, got: &V, expected: &V) -> Law {
        self.agreement.entries(self.law, what, &self.store(got)?, &self.store(expected)?)
    }

    fn same_sums<const K: usize>(&self, what: &str, got: [V::Scalar; K], expected: [V::Scalar; K]) -> Law {
        let read = |s: &V::Scalar| s.read().map_err(unexpected(self.law));
        let len = self.space.local_len();
        for (got, expected) in got.iter().zip(&expected) {
            // entries stay below 4 in size
            self.agreement.sum(self.law, what, [read(got)?, read(expected)?], 16.0 * len as f64, len)?;
        }
        Ok(())
    }
}

/// Every provided method of [`Vector`] equals its specification, written out in `axpby` and `dot`; `b = 0` overwrites
/// even NaN, and a copy is a copy.
pub fn vector_fusions<S: Space>(space: &S, agreement: Agreement) -> Law {
    let bench = Bench::<S::Vector> { space, law: FUSIONS, agreement };
    let scalar = |value: f64| -> ScalarOf<S::Vector> { ElemOf::<S::Vector>::from_f64(value).into() };
    let (zero, one) = (scalar(0.0), scalar(1.0));
    let [x, y, z] = [bench.vector(1)?, bench.vector(2)?, bench.vector(3)?];
    let start = || bench.vector(4);

    for a in [0.0, 1.0, -0.75] {
        let a = scalar(a);
        let (mut got, mut expected) = (start()?, start()?);
        got.axpy(&a, &x);
        expected.axpby(&a, &x, &one);
        bench.same("axpy", &got, &expected)?;

        let (mut got, mut expected) = (start()?, start()?);
        got.xpby(&x, &a);
        expected.axpby(&one, &x, &a);
        bench.same("xpby", &got, &expected)?;

        let (mut got, mut expected) = (start()?, start()?);
        let sums = got.axpy_dot_2(&a, &x, &y);
        expected.axpby(&a, &x, &one);
        bench.same("axpy_dot_2's vector", &got, &expected)?;
        bench.same_sums("axpy_dot_2", sums, [expected.dot(&expected), expected.dot(&y)])?;

        let (mut got, mut expected) = (start()?, start()?);
        let sum = got.axpy_norm(&a, &x);
        expected.axpby(&a, &x, &one);
        bench.same("axpy_norm's vector", &got, &expected)?;
        bench.same_sums("axpy_norm", [sum], [expected.dot(&expected)])?;

        for b in [0.0, 1.0, 0.5] {
            let b = scalar(b);
            for c in [0.0, 1.0, -1.25] {
                let c = scalar(c);
                let (mut got, mut expected) = (start()?, start()?);
                got.axpbypcz(&a, &x, &b, &y, &c);
                expected.axpby(&a, &x, &c);
                expected.axpby(&b, &y, &one);
                bench.same("axpbypcz", &got, &expected)?;
            }
            let (mut got, mut expected) = (start()?, start()?);
            let (mut p, mut q) = (bench.vector(1)?, bench.vector(1)?);
            got.axpy_xpby(&a, &mut p, &z, &b);
            expected.axpby(&a, &q, &one);
            q.axpby(&one, &z, &b);
            bench.same("axpy_xpby's vector", &got, &expected)?;
            bench.same("axpy_xpby's direction", &p, &q)?;
        }
    }
    diagonal_fusions(&bench, [&x, &y, &z])?;
    bench.same_sums("norm_squared", [x.norm_squared()], [x.dot(&x)])?;
    bench.same_sums("dot_2", x.dot_2(&y, &z), [x.dot(&y), x.dot(&z)])?;
    bench.same_sums("dot_2 with itself", x.dot_2(&x, &z), [x.dot(&x), x.dot(&z)])?;
    let [xy, xz] = [x.dot(&y), x.dot(&z)];
    let value = |s: &ScalarOf<S::Vector>| s.read().map_err(unexpected(FUSIONS));
    bench.same_sums("a sum of scalars", [xy.clone() + xz.clone()], [(value(&xy)? + value(&xz)?).into()])?;
    let root = ElemOf::<S::Vector>::from_f64(value(&x.dot(&x))?.to_f64().sqrt());
    bench.same_sums("a root of a scalar", [x.dot(&x).sqrt()], [root.into()])?;
    bench.same_sums("a second dot", [x.dot(&y)], [x.dot(&y)])?;

    let mut rough = bench.vector(1)?;
    rough.flip_signs().map_err(unexpected(FUSIONS))?;
    let flipped = bench.store(&rough)?.iter().zip(&bench.store(&x)?).filter(|(a, b)| **a == -**b).count();
    let half = space.local_len() / 2;
    if flipped.abs_diff(half) > 2 + space.local_len() / 4 {
        return Err(Broken::new(FUSIONS, format!("{flipped} of {} signs flipped", space.local_len())));
    }
    rough.flip_signs().map_err(unexpected(FUSIONS))?;
    bench.same("signs flipped twice", &rough, &x)?;

    let nan = vec![ElemOf::<S::Vector>::from_f64(f64::NAN); space.local_len()];
    let mut stale = bench.load(&nan)?;
    stale.axpby(&one, &x, &zero);
    bench.same("axpby over NaN", &stale, &x)?;
    let mut stale = bench.load(&nan)?;
    stale.copy_from(&x);
    bench.same("a copy", &stale, &x)?;
    let mut stale = bench.load(&nan)?;
    stale.axpbypcz(&one, &x, &zero, &y, &zero);
    bench.same("axpbypcz over NaN", &stale, &x)
}

/// Fusions with a diagonal equal their specifications, written out in `multiply`, `axpby` and `dot`; `multiply` multiplies.
fn diagonal_fusions<V: Vector>(bench: &Bench<'_, V>, [d, x, q]: [&V; 3]) -> Law {
    let element = V::Elem::from_f64;
    let one: V::Scalar = element(1.0).into();
    let not_a_number = vec![element(f64::NAN); bench.space.local_len()];
    let multiplied = |x: &V| -> Law<V> {
        let mut product = bench.load(&not_a_number)?;
        product.multiply(d, x);
        Ok(product)
    };
    let product: Vec<V::Elem> = bench.store(d)?.iter().zip(&bench.store(x)?).map(|(&d, &x)| d * x).collect();
    bench.agreement.entries(bench.law, "multiply", &bench.store(&multiplied(x)?)?, &product)?;

    let mut got = bench.load(&not_a_number)?;
    let sum = got.multiply_dot(d, x);
    bench.same("multiply_dot's vector", &got, &multiplied(x)?)?;
    bench.same_sums("multiply_dot", [sum], [x.dot(&multiplied(x)?)])?;

    for a in [0.0, 1.0, -0.75].map(element) {
        let (mut got, mut z, mut expected) = (bench.vector(4)?, bench.load(&not_a_number)?, bench.vector(4)?);
        let sums = got.axpy_multiply_dot(&a.into(), q, d, &mut z);
        expected.axpby(&a.into(), q, &one);
        bench.same("axpy_multiply_dot's vector", &got, &expected)?;
        bench.same("axpy_multiply_dot's product", &z, &multiplied(&expected)?)?;
        let parts = [expected.dot(&expected), expected.dot(&multiplied(&expected)?)];
        bench.same_sums("axpy_multiply_dot", sums, parts)?;
    }

    // a direction that turns by no more than its length, and one that is begun anew
    for (alpha, rho) in [(-0.75, 16.0 * bench.space.local_len().max(1) as f64), (0.5, f64::INFINITY)] {
        let [alpha, rho] = [alpha, rho].map(element);
        let [mut x, mut r, mut p, mut z] =
            [bench.vector(4)?, bench.vector(6)?, bench.vector(7)?, bench.load(&not_a_number)?];
        let [mut y, mut s, mut t] = [bench.vector(4)?, bench.vector(6)?, bench.vector(7)?];
        let [step, before]: [V::Scalar; 2] = [alpha, rho].map(Into::into);
        let [x, r, p, z] = [&mut x, &mut r, &mut p, &mut z];
        let sums = V::cg_update(CgUpdate { alpha: &step, rho: &before, q, d, x, r, p, z });
        s.axpby(&(-alpha).into(), q, &one);
        let preconditioned = multiplied(&s)?;
        let parts = [s.dot(&s), s.dot(&preconditioned)];
        y.axpby(&step, &t, &one);
        t.axpby(&one, &preconditioned, &(sums[1].clone() / before.clone()));
        bench.same_sums("cg_update", sums, parts)?;
        for (what, got, expected) in [("x", &*x, &y), ("r", &*r, &s), ("p", &*p, &t)] {
            bench.same(&format!("cg_update's `{what}`"), got, expected)?;
        }
    }
    Ok(())
}

/// `subtract_project` and `subtract_norm` equal their parts, and what is pushed can be loaded.
pub fn basis_fusions<S: Space>(space: &S, agreement: Agreement) -> Law {
    let bench = Bench::<S::Vector> { space, law: BASES, agreement };
    let count = 5;
    // columns of length about one, so that projections stay of ordinary size
    let norm = ElemOf::<S::Vector>::from_f64((space.local_len().max(1) as f64).sqrt());
    let filled = || -> Law<<S::Vector as Vector>::Basis> {
        let mut basis = S::Vector::basis(space, count).map_err(unexpected(BASES))?;
        for j in 0..count {
            basis.push(j, &bench.vector(10 + j as u64)?, &(norm * norm).into()).map_err(unexpected(BASES))?;
        }
        Ok(basis)
    };
    let coefficients = |basis: &<S::Vector as Vector>::Basis, k: usize| -> Law<Vec<ElemOf<S::Vector>>> {
        let mut c = vec![ElemOf::<S::Vector>::default(); k];
        basis.coefficients(&mut c).map_err(unexpected(BASES))?;
        Ok(c)
    };
    let (mut fused, mut parts) = (filled()?, filled()?);
    for k in 1..=count {
        let (mut w, mut u) = (bench.vector(1)?, bench.vector(1)?);
        fused.project(k, &w);
        parts.project(k, &u);
        fused.subtract_project(k, &mut w);
        parts.subtract(k, &mut u);
        parts.project(k, &u);
        bench.same("subtract_project's vector", &w, &u)?;
        agreement.entries(BASES, "subtract_project", &coefficients(&fused, k)?, &coefficients(&parts, k)?)?;
        let sum = fused.subtract_norm(k, &mut w);
        parts.subtract(k, &mut u);
        bench.same("subtract_norm's vector", &w, &u)?;
        bench.same_sums("subtract_norm", [sum], [u.norm_squared()])?;
    }
    let (mut column, mut scaled) = (space.zeros().map_err(unexpected(BASES))?, bench.vector(10)?);
    fused.load(0, &mut column);
    let inverse = ElemOf::<S::Vector>::from_f64(1.0) / norm;
    scaled.axpby(&inverse.into(), &bench.vector(10)?, &ElemOf::<S::Vector>::from_f64(0.0).into());
    Agreement::Rounding.entries(BASES, "a column", &bench.store(&column)?, &bench.store(&scaled)?)?;
    let mut unit = vec![ElemOf::<S::Vector>::from_f64(0.0); count];
    unit[0] = ElemOf::<S::Vector>::from_f64(1.0);
    let mut combined = bench.load(&vec![ElemOf::<S::Vector>::from_f64(f64::NAN); space.local_len()])?;
    fused.combine(&unit, &mut combined).map_err(unexpected(BASES))?;
    let agree =
        Agreement::Rounding.entries(BASES, "combine", &bench.store(&combined)?, &bench.store(&column)?);
    agree.map_err(|broken: Broken| broken.on("the first unit vector"))
}
