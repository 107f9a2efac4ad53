//! Laws of vectors and bases: a fused operation equals the operations that it fuses.

use super::{Agreement, Law, Violation, unexpected};
use crate::testing::matrices::{mix, unit};
use krysp_solvers::{BasicVector, Basis, CgUpdate, ElemOf, Element, Scalar, ScalarOf, Space, Term, Vector};

/// `len` pseudo-random numbers in ±[¼, 1), exact in `f32`. Every `seed` gives other numbers.
pub fn numbers<T: Element>(len: usize, seed: u64) -> Vec<T> {
    let number = |i: u64| {
        let bits = mix(i ^ seed << 40);
        let magnitude = 0.25 + 0.75 * unit(bits);
        f64::from((if bits & 1 == 0 { magnitude } else { -magnitude }) as f32)
    };
    (0..len as u64).map(|i| T::from_f64(number(i))).collect()
}

const FUSIONS: &str = "fused operations of vectors equal their parts";
const BASES: &str = "fused operations of bases equal their parts";

/// Makes vectors of a space and compares them.
struct Checker<'s, V: Vector> {
    space: &'s V::Space,
    law: &'static str,
    agreement: Agreement,
}

impl<V: Vector> Checker<'_, V> {
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
        let len = self.space.len();
        for (got, expected) in got.iter().zip(&expected) {
            // the magnitudes of entries are below 4
            self.agreement.sum(self.law, what, [read(got)?, read(expected)?], 16.0 * len as f64, len)?;
        }
        Ok(())
    }
}

/// Every provided method of [`Vector`] equals its specification in terms of `axpby` and `dot`; `b = 0` overwrites even
/// NaN; `copy_from` copies.
pub fn vector_fusions<S: Space>(space: &S, agreement: Agreement) -> Law {
    let checker = Checker::<S::Vector> { space, law: FUSIONS, agreement };
    let scalar = |value: f64| -> ScalarOf<S::Vector> { ElemOf::<S::Vector>::from_f64(value).into() };
    let (zero, one) = (scalar(0.0), scalar(1.0));
    let [x, y, z] = [checker.vector(1)?, checker.vector(2)?, checker.vector(3)?];
    let start = || checker.vector(4);

    for a in [0.0, 1.0, -0.75] {
        let a = scalar(a);
        let (mut got, mut expected) = (start()?, start()?);
        got.axpy(&a, &x);
        expected.axpby(&a, &x, &one);
        checker.same("axpy", &got, &expected)?;

        let (mut got, mut expected) = (start()?, start()?);
        got.xpby(&x, &a);
        expected.axpby(&one, &x, &a);
        checker.same("xpby", &got, &expected)?;

        let (mut got, mut expected) = (start()?, start()?);
        let sums = got.axpy_dot_2(&a, &x, &y);
        expected.axpby(&a, &x, &one);
        checker.same("axpy_dot_2's vector", &got, &expected)?;
        checker.same_sums("axpy_dot_2", sums, [expected.dot(&expected), expected.dot(&y)])?;

        let (mut got, mut expected) = (start()?, start()?);
        let sum = got.axpy_norm(&a, &x);
        expected.axpby(&a, &x, &one);
        checker.same("axpy_norm's vector", &got, &expected)?;
        checker.same_sums("axpy_norm", [sum], [expected.dot(&expected)])?;

        for b in [0.0, 1.0, 0.5] {
            let b = scalar(b);
            for c in [0.0, 1.0, -1.25] {
                let c = scalar(c);
                let (mut got, mut expected) = (start()?, start()?);
                got.axpbypcz(&a, &x, &b, &y, &c);
                expected.axpby(&a, &x, &c);
                expected.axpby(&b, &y, &one);
                checker.same("axpbypcz", &got, &expected)?;
            }
            let (mut got, mut expected) = (start()?, start()?);
            let (mut p, mut q) = (checker.vector(1)?, checker.vector(1)?);
            got.axpy_xpby(&a, &mut p, &z, &b);
            expected.axpby(&a, &q, &one);
            q.axpby(&one, &z, &b);
            checker.same("axpy_xpby's vector", &got, &expected)?;
            checker.same("axpy_xpby's direction", &p, &q)?;
        }
    }
    diagonal_fusions(&checker, [&x, &y, &z])?;
    block_fusions(&checker, [&x, &y, &z])?;
    checker.same_sums("norm_squared", [x.norm_squared()], [x.dot(&x)])?;
    checker.same_sums("dot_2", x.dot_2(&y, &z), [x.dot(&y), x.dot(&z)])?;
    checker.same_sums("dot_2 with itself", x.dot_2(&x, &z), [x.dot(&x), x.dot(&z)])?;
    let [xy, xz] = [x.dot(&y), x.dot(&z)];
    let value = |s: &ScalarOf<S::Vector>| s.read().map_err(unexpected(FUSIONS));
    checker.same_sums("a sum of scalars", [xy.clone() + xz.clone()], [(value(&xy)? + value(&xz)?).into()])?;
    let root = ElemOf::<S::Vector>::from_f64(value(&x.dot(&x))?.to_f64().sqrt());
    checker.same_sums("a root of a scalar", [x.dot(&x).sqrt()], [root.into()])?;
    checker.same_sums("a second dot", [x.dot(&y)], [x.dot(&y)])?;

    let mut rough = checker.vector(1)?;
    rough.flip_signs().map_err(unexpected(FUSIONS))?;
    let flipped = checker.store(&rough)?.iter().zip(&checker.store(&x)?).filter(|(a, b)| **a == -**b).count();
    let half = space.local_len() / 2;
    if flipped.abs_diff(half) > 2 + space.local_len() / 4 {
        return Err(Violation::new(FUSIONS, format!("{flipped} of {} signs flipped", space.local_len())));
    }
    rough.flip_signs().map_err(unexpected(FUSIONS))?;
    checker.same("signs flipped twice", &rough, &x)?;

    let nan = vec![ElemOf::<S::Vector>::from_f64(f64::NAN); space.local_len()];
    let mut stale = checker.load(&nan)?;
    stale.axpby(&one, &x, &zero);
    checker.same("axpby over NaN", &stale, &x)?;
    let mut stale = checker.load(&nan)?;
    stale.copy_from(&x);
    checker.same("a copy", &stale, &x)?;
    let mut stale = checker.load(&nan)?;
    stale.axpbypcz(&one, &x, &zero, &y, &zero);
    checker.same("axpbypcz over NaN", &stale, &x)
}

/// Operations on blocks have the same results as operations on their vectors; sums, up to rounding.
fn block_fusions<V: Vector>(checker: &Checker<'_, V>, [x, y, z]: [&V; 3]) -> Law {
    let copies = |of: &[&V]| -> Law<Vec<V>> { of.iter().map(|x| checker.load(&checker.store(x)?)).collect() };
    let same_products = |name: &str, got: Vec<V::Scalar>, expected: [V::Scalar; 6]| {
        let up_to_rounding = Checker::<V> { agreement: Agreement::Rounding, ..*checker };
        match <[V::Scalar; 6]>::try_from(got) {
            Ok(products) => up_to_rounding.same_sums(name, products, expected),
            Err(products) => {
                let count = products.len();
                Err(Violation::new(checker.law, format!("{name} has {count} of 6 inner products")))
            }
        }
    };
    // old content is overwritten
    let mut products: Vec<V::Scalar> = vec![x.dot(x)];
    V::gram(&copies(&[x, y, x])?, &copies(&[y, z, z])?, &mut products);
    same_products("gram", products, [x.dot(y), x.dot(z), y.dot(z), x.dot(z), y.dot(z), x.dot(z)])?;
    let mut products: Vec<V::Scalar> = vec![x.dot(x)];
    V::dots(&copies(&[x, y, z])?, &copies(&[z, x])?, &mut products);
    same_products("dots", products, [x.dot(z), y.dot(z), z.dot(z), x.dot(x), y.dot(x), z.dot(x)])?;
    let c = [0.5, -0.25, 1.0, 0.0, 2.0, -0.75].map(V::Elem::from_f64);
    let not_a_number = vec![V::Elem::from_f64(f64::NAN); checker.space.local_len()];
    for keep in [false, true] {
        let start = || if keep { checker.vector(4) } else { checker.load(&not_a_number) };
        let [mut got, [mut expected, mut second]] = [[start()?, start()?], [start()?, start()?]];
        let terms = [copies(&[x, y])?, copies(&[z])?];
        V::combine(&mut got, keep, &[Term { x: &terms[0], c: &c[..4] }, Term { x: &terms[1], c: &c[4..] }]);
        let old = V::Elem::from_f64(if keep { 1.0 } else { 0.0 });
        for (j, expected) in [&mut expected, &mut second].into_iter().enumerate() {
            expected.axpby(&c[j].into(), x, &old.into());
            expected.axpby(&c[2 + j].into(), y, &V::Elem::from_f64(1.0).into());
            expected.axpby(&c[4 + j].into(), z, &V::Elem::from_f64(1.0).into());
        }
        checker.same("combine's first vector", &got[0], &expected)?;
        checker.same("combine's second vector", &got[1], &second)?;
    }
    Ok(())
}

/// Fused operations with a diagonal equal their specifications in terms of `multiply`, `axpby` and `dot`; `multiply`
/// multiplies entry by entry.
fn diagonal_fusions<V: Vector>(checker: &Checker<'_, V>, [d, x, q]: [&V; 3]) -> Law {
    let element = V::Elem::from_f64;
    let one: V::Scalar = element(1.0).into();
    let not_a_number = vec![element(f64::NAN); checker.space.local_len()];
    let multiplied = |x: &V| -> Law<V> {
        let mut product = checker.load(&not_a_number)?;
        product.multiply(d, x);
        Ok(product)
    };
    let product: Vec<V::Elem> =
        checker.store(d)?.iter().zip(&checker.store(x)?).map(|(&d, &x)| d * x).collect();
    checker.agreement.entries(checker.law, "multiply", &checker.store(&multiplied(x)?)?, &product)?;

    let mut got = checker.load(&not_a_number)?;
    let sum = got.multiply_dot(d, x);
    checker.same("multiply_dot's vector", &got, &multiplied(x)?)?;
    checker.same_sums("multiply_dot", [sum], [x.dot(&multiplied(x)?)])?;

    for a in [0.0, 1.0, -0.75].map(element) {
        let (mut got, mut z, mut expected) =
            (checker.vector(4)?, checker.load(&not_a_number)?, checker.vector(4)?);
        let sums = got.axpy_multiply_dot(&a.into(), q, d, &mut z);
        expected.axpby(&a.into(), q, &one);
        checker.same("axpy_multiply_dot's vector", &got, &expected)?;
        checker.same("axpy_multiply_dot's product", &z, &multiplied(&expected)?)?;
        let parts = [expected.dot(&expected), expected.dot(&multiplied(&expected)?)];
        checker.same_sums("axpy_multiply_dot", sums, parts)?;
    }

    // one case with a coefficient `ρ'/ρ` of at most 1, and one with 0, where the update starts a new
    // direction
    for (alpha, rho) in [(-0.75, 16.0 * checker.space.len().max(1) as f64), (0.5, f64::INFINITY)] {
        let [alpha, rho] = [alpha, rho].map(element);
        let [mut x, mut r, mut p, mut z] =
            [checker.vector(4)?, checker.vector(6)?, checker.vector(7)?, checker.load(&not_a_number)?];
        let [mut y, mut s, mut t] = [checker.vector(4)?, checker.vector(6)?, checker.vector(7)?];
        let [step, before]: [V::Scalar; 2] = [alpha, rho].map(Into::into);
        let [x, r, p, z] = [&mut x, &mut r, &mut p, &mut z];
        let sums = V::cg_update(CgUpdate { alpha: &step, rho: &before, q, d, x, r, p, z });
        s.axpby(&(-alpha).into(), q, &one);
        let preconditioned = multiplied(&s)?;
        let parts = [s.dot(&s), s.dot(&preconditioned)];
        y.axpby(&step, &t, &one);
        t.axpby(&one, &preconditioned, &(sums[1].clone() / before.clone()));
        checker.same_sums("cg_update", sums, parts)?;
        for (what, got, expected) in [("x", &*x, &y), ("r", &*r, &s), ("p", &*p, &t)] {
            checker.same(&format!("cg_update's `{what}`"), got, expected)?;
        }
    }
    Ok(())
}

/// `subtract_project` and `subtract_norm` equal their parts, and `load` returns the vector that `push` stored.
pub fn basis_fusions<S: Space>(space: &S, agreement: Agreement) -> Law {
    let checker = Checker::<S::Vector> { space, law: BASES, agreement };
    let count = 5;
    // columns are scaled to norms of about one, so that projections have ordinary magnitudes
    let norm = ElemOf::<S::Vector>::from_f64((space.len().max(1) as f64).sqrt());
    let filled = || -> Law<<S::Vector as BasicVector>::Basis> {
        let mut basis = S::Vector::basis(space, count).map_err(unexpected(BASES))?;
        for j in 0..count {
            basis
                .push(j, &checker.vector(10 + j as u64)?, &(norm * norm).into())
                .map_err(unexpected(BASES))?;
        }
        Ok(basis)
    };
    let coefficients = |basis: &<S::Vector as BasicVector>::Basis, k: usize| -> Law<Vec<ElemOf<S::Vector>>> {
        let mut c = vec![ElemOf::<S::Vector>::default(); k];
        basis.coefficients(&mut c).map_err(unexpected(BASES))?;
        Ok(c)
    };
    let (mut fused, mut parts) = (filled()?, filled()?);
    for k in 1..=count {
        let (mut w, mut u) = (checker.vector(1)?, checker.vector(1)?);
        fused.project(k, &w);
        parts.project(k, &u);
        fused.subtract_project(k, &mut w);
        parts.subtract(k, &mut u);
        parts.project(k, &u);
        checker.same("subtract_project's vector", &w, &u)?;
        agreement.entries(BASES, "subtract_project", &coefficients(&fused, k)?, &coefficients(&parts, k)?)?;
        let sum = fused.subtract_norm(k, &mut w);
        parts.subtract(k, &mut u);
        checker.same("subtract_norm's vector", &w, &u)?;
        checker.same_sums("subtract_norm", [sum], [u.norm_squared()])?;
    }
    let (mut column, mut scaled) = (space.zeros().map_err(unexpected(BASES))?, checker.vector(10)?);
    fused.load(0, &mut column);
    let inverse = ElemOf::<S::Vector>::from_f64(1.0) / norm;
    scaled.axpby(&inverse.into(), &checker.vector(10)?, &ElemOf::<S::Vector>::from_f64(0.0).into());
    Agreement::Rounding.entries(BASES, "a column", &checker.store(&column)?, &checker.store(&scaled)?)?;
    let mut unit = vec![ElemOf::<S::Vector>::from_f64(0.0); count];
    unit[0] = ElemOf::<S::Vector>::from_f64(1.0);
    let mut combined = checker.load(&vec![ElemOf::<S::Vector>::from_f64(f64::NAN); space.local_len()])?;
    fused.combine(&unit, &mut combined).map_err(unexpected(BASES))?;
    let agree =
        Agreement::Rounding.entries(BASES, "combine", &checker.store(&combined)?, &checker.store(&column)?);
    agree.map_err(|broken: Violation| broken.on("the first unit vector"))
}
