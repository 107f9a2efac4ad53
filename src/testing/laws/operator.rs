//! Laws of operators, in any memory.

use super::{Agreement, Law, Violation, numbers, pools, rounding, same_bits, unexpected};
use crate::formats::Csr;
use crate::host::{HostSpace, HostVector};
use crate::numbers::Real;
use crate::permutation::Permutation;
use crate::testing::matrices::Triplets;
use krysp_solvers::{
    BasicVector, ElemOf, Element, LinearOperator, MultiVector, Scalar, ScalarOf, Space, SpaceOf, Vector,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Any operator on vectors of one type. A trait object, so that laws are compiled once for each type of vectors.
type Operator<'a, V> = dyn LinearOperator<Vector = V> + 'a;

fn load<V: Vector>(law: &'static str, space: &SpaceOf<V>, host: &[ElemOf<V>]) -> Law<V> {
    let mut vector = space.zeros().map_err(unexpected(law))?;
    space.load(host, &mut vector).map_err(unexpected(law))?;
    Ok(vector)
}

fn store<V: Vector>(law: &'static str, vector: &V) -> Law<Vec<ElemOf<V>>> {
    let space = vector.space();
    let mut host = vec![ElemOf::<V>::default(); space.local_len()];
    space.store(vector, &mut host).map_err(unexpected(law))?;
    Ok(host)
}

fn stale<V: Vector>(law: &'static str, space: &SpaceOf<V>) -> Law<V> {
    load(law, space, &vec![ElemOf::<V>::from_f64(f64::NAN); space.local_len()])
}

fn product_of<V: Vector>(law: &'static str, a: &Operator<'_, V>, x: &[ElemOf<V>]) -> Law<Vec<ElemOf<V>>> {
    let x = load::<V>(law, a.domain(), x)?;
    let mut y = stale::<V>(law, a.range())?;
    a.apply(&x, &mut y).map_err(unexpected(law))?;
    store(law, &y)
}

/// `A x` differs from the plain product of the triplets by rounding only: in a row of `k` entries by at most
/// `(4 + √k) ε Σ|aᵢⱼ xⱼ|`. Empty rows give zero.
pub fn product<V: Vector>(a: &Operator<'_, V>, triplets: &Triplets) -> Law {
    const LAW: &str = "the product is that of the triplets";
    let (rows, cols) = (a.range().len(), a.domain().len());
    if (rows, cols) != (triplets.rows, triplets.cols) {
        return Err(Violation::new(
            LAW,
            format!("it is {rows} x {cols}, not {} x {}", triplets.rows, triplets.cols),
        ));
    }
    // round the values to the element type
    let rounded = |value: f64| ElemOf::<V>::from_f64(value).to_f64();
    let entries = triplets.entries.iter().map(|&(i, j, value)| (i, j, rounded(value))).collect();
    let triplets = Triplets { rows, cols, entries };
    let x: Vec<ElemOf<V>> = numbers(cols, 1);
    let exact: Vec<f64> = x.iter().map(|x| x.to_f64()).collect();
    let (expected, magnitudes) = triplets.product_reference(&exact);
    let mut terms = vec![0; rows];
    triplets.entries.iter().for_each(|&(row, ..)| terms[row as usize] += 1);
    let y = product_of(LAW, a, &x)?;
    for (i, y) in y.iter().enumerate() {
        let error = (y.to_f64() - expected[i]).abs();
        let allowed = rounding::<ElemOf<V>>(terms[i]) * magnitudes[i];
        if error > allowed || error.is_nan() {
            let how = format!("row {}: expected {:e}, got {y:e}, {allowed:e} allowed", i + 1, expected[i]);
            return Err(Violation::new(LAW, how));
        }
    }
    Ok(())
}

/// The residual is computed in twice the working precision and rounded once: it is accurate even if `b` is so
/// close to `A x` that in working precision only rounding errors would remain.
pub fn precise_residual<V: Vector>(a: &Operator<'_, V>, csr: &Csr<ElemOf<V>>) -> Law
where
    ElemOf<V>: Real,
{
    const LAW: &str = "the residual is computed in twice the precision";
    let (rows, cols) = (csr.rows(), csr.cols());
    let x: Vec<ElemOf<V>> = numbers(cols, 6);
    let mut entries: Vec<_> = csr.triplets().map(|(i, j, v)| (i as u32, j as u32, v.to_f64())).collect();
    let mut exact: Vec<f64> = x.iter().map(|x| x.to_f64()).collect();
    let triplets = Triplets { rows, cols, entries: entries.clone() };
    let b: Vec<ElemOf<V>> =
        triplets.product_reference(&exact).0.iter().map(|&y| ElemOf::<V>::from_f64(y)).collect();
    // A x − b as one product
    entries.extend(b.iter().enumerate().map(|(i, b)| (i as u32, cols as u32, -b.to_f64())));
    exact.push(1.0);
    let (expected, magnitudes) = Triplets { rows, cols: cols + 1, entries }.product_reference(&exact);
    let (x, b) = (load::<V>(LAW, a.domain(), &x)?, load::<V>(LAW, a.range(), &b)?);
    let mut r = stale::<V>(LAW, a.range())?;
    a.residual(&b, &x, &mut r).map_err(unexpected(LAW))?;
    for (i, r) in store(LAW, &r)?.iter().enumerate() {
        let (epsilon, terms) = (ElemOf::<V>::EPSILON, (csr.row_columns(i).len() + 1) as f64);
        let allowed = epsilon * expected[i].abs() + (4.0 * terms * epsilon).powi(2) * magnitudes[i];
        let error = (r.to_f64() + expected[i]).abs();
        if error > allowed || error.is_nan() {
            let how = format!("row {}: expected {:e}, got {r:e}, {allowed:e} allowed", i + 1, -expected[i]);
            return Err(Violation::new(LAW, how));
        }
    }
    Ok(())
}

/// The product overwrites `y`, whatever `y` held before, for example NaN.
pub fn stale_values<V: Vector>(a: &Operator<'_, V>) -> Law {
    const LAW: &str = "the product overwrites `y`";
    let x = load::<V>(LAW, a.domain(), &numbers(a.domain().local_len(), 2))?;
    let mut clean = a.range().zeros().map_err(unexpected(LAW))?;
    a.apply(&x, &mut clean).map_err(unexpected(LAW))?;
    let expected = store(LAW, &clean)?;
    for value in [f64::NAN, f64::INFINITY, 1.0] {
        let before = vec![ElemOf::<V>::from_f64(value); a.range().local_len()];
        let mut y = load::<V>(LAW, a.range(), &before)?;
        a.apply(&x, &mut y).map_err(unexpected(LAW))?;
        let held = format!("`y` over {value}");
        Agreement::Bitwise.entries(LAW, &held, &store(LAW, &y)?, &expected)?;
    }
    Ok(())
}

/// A second product with the same vector is bitwise equal to the first.
pub fn second_product<V: Vector>(a: &Operator<'_, V>) -> Law {
    const LAW: &str = "a second product equals the first";
    let x = numbers(a.domain().local_len(), 3);
    Agreement::Bitwise.entries(LAW, "`y`", &product_of(LAW, a, &x)?, &product_of(LAW, a, &x)?)
}

/// `apply_dot` and `axpy_apply_dot` equal the operations they fuse.
pub fn operator_fusions<V: Vector>(a: &Operator<'_, V>, agreement: Agreement) -> Law {
    const LAW: &str = "fused operations of operators equal their parts";
    if a.domain() != a.range() {
        return Ok(());
    }
    let (space, n) = (a.domain(), a.domain().len());
    let element = ElemOf::<V>::from_f64;
    let host = |seed| numbers::<ElemOf<V>>(space.local_len(), seed);
    let (x, q) = (load::<V>(LAW, space, &host(4))?, load::<V>(LAW, space, &host(5))?);
    let (mut fused, mut plain) = (stale::<V>(LAW, space)?, stale::<V>(LAW, space)?);
    let sum = a.apply_dot(&x, &mut fused).map_err(unexpected(LAW))?;
    a.apply(&x, &mut plain).map_err(unexpected(LAW))?;
    agreement.entries(LAW, "apply_dot's `y`", &store(LAW, &fused)?, &store(LAW, &plain)?)?;
    let read = |scalar: ScalarOf<V>| scalar.read().map_err(unexpected(LAW));
    // Σ |xᵢ yᵢ| over all processes is at most ‖x‖ ‖y‖
    let magnitude = |x: &V, y: &V| -> Law<f64> {
        Ok((read(x.norm_squared())?.to_f64() * read(y.norm_squared())?.to_f64()).sqrt())
    };
    let pair = [read(sum)?, read(x.dot(&plain))?];
    agreement.sum(LAW, "apply_dot's ⟨x, y⟩", pair, magnitude(&x, &plain)?, n)?;

    for factor in [-0.75, 0.0, 1.0].map(element) {
        let (mut r, mut s) = (load::<V>(LAW, space, &host(6))?, load::<V>(LAW, space, &host(6))?);
        let (mut z, mut t) = (stale::<V>(LAW, space)?, stale::<V>(LAW, space)?);
        let [rr, rz] = a.axpy_apply_dot(&factor.into(), &q, &mut r, &mut z).map_err(unexpected(LAW))?;
        s.axpby(&factor.into(), &q, &element(1.0).into());
        a.apply(&s, &mut t).map_err(unexpected(LAW))?;
        agreement.entries(LAW, "axpy_apply_dot's `r`", &store(LAW, &r)?, &store(LAW, &s)?)?;
        agreement.entries(LAW, "axpy_apply_dot's `z`", &store(LAW, &z)?, &store(LAW, &t)?)?;
        let pair = [read(rr)?, read(s.dot(&s))?];
        agreement.sum(LAW, "axpy_apply_dot's ‖r‖²", pair, magnitude(&s, &s)?, n)?;
        let pair = [read(rz)?, read(s.dot(&t))?];
        agreement.sum(LAW, "axpy_apply_dot's ⟨r, z⟩", pair, magnitude(&s, &t)?, n)?;
    }
    Ok(())
}

/// The product of the matrix with several vectors gives for each of them the same as the product with that
/// vector alone, and the same inner products. Multivectors with different numbers of columns are refused.
pub fn several_products<V: Vector>(a: &Operator<'_, V>, counts: &[usize], agreement: Agreement) -> Law {
    const LAW: &str = "products of several vectors equal those of each";
    let (domain, range) = (a.domain(), a.range());
    let read = |scalar: &ScalarOf<V>| scalar.read().map_err(unexpected(LAW));
    let x = |j| load::<V>(LAW, domain, &numbers(domain.local_len(), 20 + j));
    // of each vector alone: the product, and its inner product with the vector beside that of their norms
    let single = |j| {
        let (x, mut y) = (x(j)?, stale::<V>(LAW, range)?);
        a.apply(&x, &mut y).map_err(unexpected(LAW))?;
        let product = store(LAW, &y)?;
        if domain != range {
            return Ok((product, None));
        }
        let dot = read(&a.apply_dot(&x, &mut y).map_err(unexpected(LAW))?)?;
        let squares = [read(&x.norm_squared())?, read(&y.norm_squared())?];
        let magnitude: f64 = squares.map(|square| square.to_f64().sqrt()).iter().product();
        Ok((product, Some((dot, magnitude))))
    };
    let most = counts.iter().max().map_or(0, |&most| most as u64);
    let singles = (0..most).map(single).collect::<Law<Vec<_>>>()?;
    for &count in counts {
        let x = (0..count as u64).map(x).collect::<Law<Vec<V>>>()?;
        let x = MultiVector::from_columns(domain, x).map_err(unexpected(LAW))?;
        let stale_columns = || -> Law<MultiVector<V>> {
            let y = (0..count).map(|_| stale::<V>(LAW, range)).collect::<Law<Vec<V>>>()?;
            MultiVector::from_columns(range, y).map_err(unexpected(LAW))
        };
        let (mut y, mut z) = (stale_columns()?, stale_columns()?);
        a.apply_many(&x, &mut y).map_err(unexpected(LAW))?;
        let dots = match domain == range {
            true => Some(a.apply_dot_many(&x, &mut z).map_err(unexpected(LAW))?),
            false => None,
        };
        for (j, (product, dot)) in singles.iter().take(count).enumerate() {
            let what = |of: &str| format!("column {} of {count} of {of}", j + 1);
            agreement.entries(LAW, &what("apply_many"), &store(LAW, &y.columns()[j])?, product)?;
            if let (Some(dots), Some((dot, magnitude))) = (&dots, dot) {
                agreement.entries(LAW, &what("apply_dot_many"), &store(LAW, &z.columns()[j])?, product)?;
                let pair = [read(dots.column(j))?, *dot];
                agreement.sum(LAW, &what("⟨x, y⟩"), pair, *magnitude, domain.len())?;
            }
        }
    }
    let two = MultiVector::zeros(domain, 2).map_err(unexpected(LAW))?;
    let mut one = MultiVector::zeros(range, 1).map_err(unexpected(LAW))?;
    match a.apply_many(&two, &mut one) {
        Err(krysp_solvers::Error::Columns { .. }) => Ok(()),
        Err(error) => Err(Violation::new(LAW, format!("one column for two products: {error}"))),
        Ok(()) => Err(Violation::new(LAW, "one column for two products is taken".to_string())),
    }
}

/// Bytes of an operator that is too small for a second thread.
const SMALL: usize = 128 << 10;

/// Products, and the inner products computed with them, are bitwise the same in every thread pool of [`pools`], no
/// matter whether the operator was built in that pool. The first three pools are enough for an operator that is too
/// small for a second thread.
pub fn same_on_all_threads<A>(build: &(impl Fn() -> Law<A> + Sync)) -> Law
where
    A: LinearOperator,
{
    same_operator_on_all_threads(&|| Ok(Box::new(build()?)))
}

type Build<'b, V> = dyn Fn() -> Law<Box<Operator<'b, V>>> + Sync + 'b;

fn same_operator_on_all_threads<V: Vector>(build: &Build<'_, V>) -> Law {
    const LAW: &str = "results do not depend on the number of threads";
    let run = |a: &Operator<'_, V>| -> Law<(Vec<_>, Option<_>)> {
        let x = numbers(a.domain().len(), 7);
        let y = product_of(LAW, a, &x)?;
        if a.domain() != a.range() {
            return Ok((y, None));
        }
        let x = load::<V>(LAW, a.domain(), &x)?;
        let mut z = stale::<V>(LAW, a.range())?;
        let sum = a.apply_dot(&x, &mut z).map_err(unexpected(LAW))?;
        Ok((y, Some(sum.read().map_err(unexpected(LAW))?)))
    };
    let outside = build()?;
    let (y, sum) = run(&outside)?;
    let pools = if outside.bytes() < SMALL { &pools()?[..3] } else { pools()? };
    for pool in pools {
        let inside = pool.install(build)?;
        for (a, built) in [(&*outside, "outside"), (&*inside, "inside")] {
            let on = |broken: Violation| {
                broken.on(&format!("{} threads, built {built}", pool.current_num_threads()))
            };
            let (z, other) = pool.install(|| run(a)).map_err(on)?;
            Agreement::Bitwise.entries(LAW, "`y`", &z, &y).map_err(on)?;
            if let (Some(a), Some(b)) = (sum, other)
                && !same_bits(a, b)
            {
                return Err(on(Violation::new(LAW, format!("⟨x, y⟩ is {b:e}, not {a:e}"))));
            }
        }
    }
    Ok(())
}

/// Every form of the product returns an error for vectors of another length or ordering. No form panics.
pub fn sizes_refused<T: Real>(a: &Operator<'_, HostVector<T>>) -> Law {
    const LAW: &str = "vectors that do not fit are refused with an error";
    let (domain, range) = (a.domain(), a.range());
    let others = |space: &HostSpace<T>| -> Law<Vec<HostSpace<T>>> {
        let n = space.len();
        let mut others = vec![HostSpace::new(n + 1)];
        if n > 0 {
            others.push(HostSpace::new(n - 1));
        }
        if n > 1 {
            // of two rotations at least one differs from the order of the space
            for shift in 1..=2.min(n as u32 - 1) {
                let order = (0..n as u32).map(|i| (i + shift) % n as u32).collect();
                let permutation = Permutation::from_old_of_new(order).map_err(unexpected(LAW))?;
                others.push(HostSpace::permuted(Arc::new(permutation)));
            }
        }
        others.retain(|other| other != space);
        Ok(others)
    };
    let refused = |what: &str, x: &HostSpace<T>, y: &HostSpace<T>| -> Law {
        let x = x.vector(&numbers(x.len(), 8)).map_err(unexpected(LAW))?;
        let mut y = y.zeros().map_err(unexpected(LAW))?;
        let wrong =
            format!("{what} ({} entries)", if what == "x" { x.space().len() } else { y.space().len() });
        for (form, outcome) in [
            ("apply", catch_unwind(AssertUnwindSafe(|| a.apply(&x, &mut y).is_err()))),
            ("apply_dot", catch_unwind(AssertUnwindSafe(|| a.apply_dot(&x, &mut y).is_err()))),
            ("apply_many", catch_unwind(AssertUnwindSafe(|| many_refused(a, &x, &y)))),
        ] {
            match outcome {
                Ok(true) => {}
                Ok(false) => return Err(Violation::new(LAW, format!("{form} takes a wrong {wrong}"))),
                Err(_) => return Err(Violation::new(LAW, format!("{form} panics at a wrong {wrong}"))),
            }
        }
        Ok(())
    };
    for other in others(domain)? {
        refused("x", &other, range)?;
    }
    for other in others(range)? {
        refused("y", domain, &other)?;
    }
    if domain != range {
        let x = domain.zeros().map_err(unexpected(LAW))?;
        let mut y = range.zeros().map_err(unexpected(LAW))?;
        if !matches!(catch_unwind(AssertUnwindSafe(|| a.apply_dot(&x, &mut y).is_err())), Ok(true)) {
            return Err(Violation::new(LAW, "apply_dot of unequal spaces gives no error".to_string()));
        }
    }
    Ok(())
}

/// Returns whether a product with two copies of `x` and of `y` returns an error.
fn many_refused<T: Real>(a: &Operator<'_, HostVector<T>>, x: &HostVector<T>, y: &HostVector<T>) -> bool {
    let x = MultiVector::from_columns(x.space(), vec![x.clone(), x.clone()]);
    let y = MultiVector::from_columns(y.space(), vec![y.clone(), y.clone()]);
    match (x, y) {
        (Ok(x), Ok(mut y)) => a.apply_many(&x, &mut y).is_err(),
        _ => false,
    }
}
