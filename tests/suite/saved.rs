//! Plans and operators in files: a loaded object computes the same as the saved one and builds nothing; a
//! file of another kind is an error.

use krysp::plan::{Method, PlannedSolver, Preconditioner};
use krysp::testing::matrices;
use krysp::{
    Csr, Error, Host, HostVector, LinearOperator, Operator, Permutation, Plan, Real, SavedFileError, Space,
    gallery,
};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A file that is removed at the end of its test.
struct Saved(PathBuf);

impl Saved {
    fn new(name: &str) -> Saved {
        Saved(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("saved_{name}")))
    }
}

impl Drop for Saved {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn rhs<T: Real>(a: &Csr<T>) -> Vec<T> {
    (0..a.rows()).map(|i| T::from_f64(1.0 + (i as f64 * 0.3).sin())).collect()
}

/// Saves a planned solver after a solve. The loaded one computes bitwise the same, before and after new values, without building.
fn saved_and_loaded<T: Real>(name: &str, a: &Csr<T>, mut planned: PlannedSolver<T, Host>) {
    let (file, b) = (Saved::new(name), rhs(a));
    let first = planned.solve(&b).unwrap();
    planned.save(&file.0).unwrap();
    let mut loaded = PlannedSolver::load(&file.0, a, &Host).unwrap();
    assert_eq!(
        loaded.operator().unwrap().choice().to_string(),
        planned.operator().unwrap().choice().to_string(),
        "{name}"
    );
    for round in 0..2 {
        let (one, other) = (planned.solve(&b).unwrap(), loaded.solve(&b).unwrap());
        assert!(one.x == other.x, "{name}, round {round}: {one}\n{other}");
        assert_eq!(one.report.iterations, other.report.iterations, "{name}");
        assert_eq!(one.attempts.len(), other.attempts.len(), "{name}");
        let built = other.attempts.iter().map(|attempt| attempt.setup).max().unwrap();
        assert!(round > 0 || built < Duration::from_millis(50), "{name} was built again in {built:?}");
        // new values, in the order of the entries
        let doubled: Vec<T> = a.entries().iter().map(|&value| value + value).collect();
        planned.refresh(&doubled).unwrap();
        loaded.refresh(&doubled).unwrap();
    }
    assert!(first.converged() || first.report.iterations > 0, "{name}: {first}");
}

fn plan(a: &Csr<f64>, method: Method, preconditioner: Preconditioner) -> PlannedSolver<f64, Host> {
    Plan::new(a).unwrap().method(method).preconditioner(preconditioner).build().unwrap()
}

#[test]
fn every_preconditioner_is_loaded_as_it_was() {
    let grid = matrices::stencil7(14).csr::<f64>().unwrap();
    let part = matrices::elasticity(7).csr::<f64>().unwrap();
    let skewed: Vec<_> = grid.triplets().map(|(i, j, v)| (i, j, if j > i { 0.3 * v } else { v })).collect();
    let skewed = Csr::from_triplets(grid.rows(), grid.rows(), &skewed).unwrap();
    for preconditioner in Preconditioner::ALL {
        use Preconditioner::{CuDss, Ilu0, Ilut, Lu, SaddlePoint, Spai};
        if preconditioner == CuDss {
            // exists on GPUs only
            continue;
        }
        if preconditioner == SaddlePoint {
            let flow = gallery::stokes::<f64>(&[24, 20]).unwrap();
            saved_and_loaded("flow", &flow, plan(&flow, Method::Gmres, preconditioner));
        } else if !matches!(preconditioner, Ilu0 | Ilut | Lu | Spai) {
            saved_and_loaded(
                &format!("grid_{preconditioner}"),
                &grid,
                plan(&grid, Method::Cg, preconditioner),
            );
            saved_and_loaded(
                &format!("part_{preconditioner}"),
                &part,
                plan(&part, Method::Cg, preconditioner),
            );
        } else {
            let planned = plan(&skewed, Method::BiCgStab, preconditioner);
            saved_and_loaded(&format!("skewed_{preconditioner}"), &skewed, planned);
        }
    }
}

#[test]
fn every_format_is_loaded_as_it_was() {
    let a = matrices::elasticity(6).csr::<f64>().unwrap();
    let single = matrices::stencil7(12).csr::<f32>().unwrap();
    let mut taken = 0;
    for format in
        ["CSR", "DIA", "BSR", "SELL-P", "ELL", "ELLPACK-R", "HYB", "COO", "symmetric CSR", "symmetric BSR"]
    {
        let plan = Plan::new(&a).unwrap().method(Method::BiCgStab).preconditioner(Preconditioner::Jacobi);
        match plan.format(format).build() {
            Ok(planned) => {
                saved_and_loaded(&format!("format_{format}"), &a, planned);
                taken += 1;
            }
            Err(Error::Unsuitable { .. }) => {}
            Err(error) => panic!("{format}: {error}"),
        }
        let plan = Plan::new(&single).unwrap().method(Method::Cg).preconditioner(Preconditioner::Jacobi);
        if let Ok(planned) = plan.format(format).build() {
            saved_and_loaded(&format!("single_{format}"), &single, planned);
        }
    }
    assert!(taken >= 7, "{taken}");
}

/// A reordered matrix that was assembled from unsorted entries with duplicates.
#[test]
fn orderings_and_orders_of_values_are_kept() {
    let grid = matrices::stencil7(9).csr::<f64>().unwrap();
    let mut entries: Vec<_> =
        grid.triplets().flat_map(|(i, j, v)| [(i, j, 0.5 * v), (i, j, 0.5 * v)]).collect();
    entries.reverse();
    let a = Csr::from_triplets(grid.rows(), grid.rows(), &entries).unwrap();
    let a = a.reordered(&Permutation::rcm(&a).unwrap()).unwrap();
    let (file, b) = (Saved::new("numbered"), rhs(&a));
    let mut planned = plan(&a, Method::Cg, Preconditioner::Jacobi);
    let x = planned.solve(&b).unwrap().x;
    planned.save(&file.0).unwrap();
    assert!(PlannedSolver::load(&file.0, &a, &Host).unwrap().solve(&b).unwrap().x == x);
    // the same matrix in the user's order
    let plain = Csr::from_triplets(grid.rows(), grid.rows(), &entries).unwrap();
    assert!(PlannedSolver::load(&file.0, &plain, &Host).unwrap().solve(&b).unwrap().x == x);

    // if values differ, those of the given matrix are used
    for entry in &mut entries {
        entry.2 *= 4.0;
    }
    let other = Csr::from_triplets(grid.rows(), grid.rows(), &entries).unwrap();
    let other = other.reordered(&Permutation::rcm(&other).unwrap()).unwrap();
    let quarter = PlannedSolver::load(&file.0, &other, &Host).unwrap().solve(&b).unwrap();
    assert!(quarter.converged());
    assert!(quarter.x.iter().zip(&x).all(|(quarter, x)| (4.0 * quarter - x).abs() < 1e-6 * x.abs().max(1.0)));
}

#[test]
fn what_does_not_belong_is_refused_with_a_reason() {
    let a = matrices::stencil7(8).csr::<f64>().unwrap();
    let file = Saved::new("refused");
    let planned = Plan::new(&a).unwrap().build().unwrap();
    planned.save(&file.0).unwrap();
    let why = |error: Option<Error>| match error {
        Some(Error::Saved { path, why }) => {
            assert_eq!(path, file.0);
            why
        }
        other => panic!("{other:?}"),
    };
    let single = matrices::stencil7(8).csr::<f32>().unwrap();
    let kind = why(PlannedSolver::load(&file.0, &single, &Host).err());
    assert!(matches!(kind, SavedFileError::Kind { .. }), "{kind}");
    let other = matrices::stencil7(7).csr::<f64>().unwrap();
    assert_eq!(why(PlannedSolver::load(&file.0, &other, &Host).err()), SavedFileError::PatternMismatch);
    std::fs::write(&file.0, "%%MatrixMarket matrix coordinate real general\n").unwrap();
    assert_eq!(why(PlannedSolver::load(&file.0, &a, &Host).err()), SavedFileError::NotSaved);
    let missing = PlannedSolver::load(file.0.with_extension("missing"), &a, &Host).err();
    assert!(matches!(missing, Some(Error::Read(_))), "{missing:?}");
    let nowhere = planned.save(file.0.join("nowhere"));
    assert!(matches!(nowhere, Err(Error::Write(_))), "{nowhere:?}");
}

#[test]
fn operators_are_loaded_as_they_were() {
    let elements = matrices::elasticity(5).csr::<f64>().unwrap();
    let grid = matrices::stencil7(14).csr::<f64>().unwrap();
    let near = elements.reordered(&Permutation::rcm(&elements).unwrap()).unwrap();
    let file = Saved::new("operator");
    for (name, a) in [("elements", &elements), ("grid", &grid), ("reordered", &near)] {
        let made =
            [Operator::auto(a, &Host), Operator::symmetric(a, &Host), Operator::in_format(a, &Host, "CSR")];
        for mut operator in made.map(Result::unwrap) {
            operator.save(&file.0).unwrap();
            let mut loaded: Operator<HostVector<f64>> = Operator::load(&file.0, &Host).unwrap();
            assert_eq!(loaded.choice().to_string(), operator.choice().to_string(), "{name}");
            let image = |a: &Operator<HostVector<f64>>| {
                let (mut x, mut y) = (a.domain().zeros().unwrap(), a.range().zeros().unwrap());
                let mut host = rhs(&elements);
                host.resize(a.domain().len(), 0.5);
                a.domain().load(&host, &mut x).unwrap();
                a.apply(&x, &mut y).unwrap();
                a.range().store(&y, &mut host).unwrap();
                host
            };
            assert_eq!(image(&loaded), image(&operator), "{name}: {}", operator.choice());
            let ones = vec![1.0; a.nnz()];
            operator.refresh(&ones).unwrap();
            loaded.refresh(&ones).unwrap();
            assert_eq!(image(&loaded), image(&operator), "{name}: {}", operator.choice());
        }
        let Err(Error::Saved { why: SavedFileError::Kind { .. }, .. }) =
            Operator::<HostVector<f32>>::load(&file.0, &Host)
        else {
            panic!("another element type")
        };
    }
}
