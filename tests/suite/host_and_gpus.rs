//! Products of the host and coprocessors together, with host memory in place of that of GPUs.

use crate::truth;
use krysp::host_and_gpus::{BlockJacobi, DiagonalBlocks, SplitMatrix, SplitSpace, StandIn};
use krysp::partition::RowShares;
use krysp::solvers::{Diagonal, Scalar};
use krysp::testing::laws::{self, Agreement};
use krysp::testing::matrices::{self, edge};
use krysp::{
    BasicVector, BiCgStab, Cg, Chebyshev, Csr, Error, Fcg, Fgmres, Gmres, Ic0, Idr, Jacobi, LinearOperator,
    Minres, Permutation, PipelinedCg, Solution, Space, Vector,
};

pub(crate) type Split = SplitMatrix<f64, StandIn>;
type Result<T> = krysp::solvers::Result<T>;

/// Machines that share the work of one product with the host.
pub(crate) fn machines(count: usize) -> Vec<StandIn> {
    (0..count).map(|_| StandIn::default()).collect()
}

/// Powers of the host and of machines: one and two machines, small shares first and last, and machines that get
/// no rows of a small matrix.
const POWERS: [&[f64]; 5] = [&[1.0], &[1.0, 2.0], &[1.0, 20.0, 3.0], &[5.0, 1.0, 0.01], &[1.0; 5]];

pub(crate) fn split(a: &Csr<f64>, powers: &[f64]) -> Split {
    let shares = RowShares::by_nonzeros(a, powers).unwrap();
    Split::with_shares(&machines(powers.len() - 1), a, &shares).unwrap()
}

/// A random matrix with a dominant diagonal.
fn unsymmetric() -> Csr<f64> {
    let random = matrices::random(60, 60, 0.1, 3).csr::<f64>().unwrap();
    let entries: Vec<_> = random.triplets().filter(|&(row, column, _)| row != column).collect();
    let diagonal = (0..60).map(|row| (row, row, 20.0));
    let a = Csr::from_triplets(60, 60, &entries.into_iter().chain(diagonal).collect::<Vec<_>>()).unwrap();
    // assembled in the order of the entries
    Csr::from_csr(60, 60, &a.offsets(), a.columns(), a.entries()).unwrap()
}

/// Rows of 2 to 62 entries in scattered columns, with a dominant diagonal.
pub(crate) fn uneven() -> Csr<f64> {
    let rows = 4000;
    let row = |i: usize| {
        let length = 1 + (i * i) % 61;
        let others = (0..length).map(move |k| (i, (i + 1 + (k * k * 97 + i * 13) % (rows - 1)) % rows, 0.5));
        others.chain([(i, i, length as f64)])
    };
    Csr::from_triplets(rows, rows, &(0..rows).flat_map(row).collect::<Vec<_>>()).unwrap()
}

/// Solves by one method, on the whole matrix and on a split one.
struct Method {
    name: &'static str,
    whole: fn(&Csr<f64>, &[f64]) -> Result<Solution<f64>>,
    split: fn(&Split, &[f64]) -> Result<Solution<f64>>,
}

macro_rules! methods {
    ($($method:ident $(with $option:ident)?),*) => {
        [$(Method {
            name: stringify!($method),
            whole: |a, b| {
                let mut solver = $method::new(a).preconditioner(Jacobi::new(a)?).rtol(1e-10);
                $(solver = solver.$option(30);)?
                solver.solve(b)
            },
            split: |a, b| {
                let mut solver = $method::new(a).preconditioner(a.jacobi()?).rtol(1e-10);
                $(solver = solver.$option(30);)?
                solver.solve(b)
            },
        }),*]
    };
}

#[test]
fn every_method_solves_as_with_one_memory() {
    let a = matrices::stencil7(12).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    let methods =
        methods![Cg, PipelinedCg, Fcg, Minres, BiCgStab, Idr, Gmres with restart, Fgmres with restart];
    for Method { name, whole, split: solve } in methods {
        let whole = whole(&a, &b).unwrap();
        for powers in POWERS {
            let split = split(&a, powers);
            let solution = solve(&split, &b).unwrap();
            assert!(solution.report.converged(), "{name} {powers:?}: {}", solution.report);
            let residual = truth::residual(&a, &solution.x, &b);
            assert!(residual <= 2e-10 * truth::norm(&b), "{name} {powers:?}: {residual}");
            // rounding errors grow faster in methods with short recurrences for unsymmetric matrices
            let allowed = if ["BiCgStab", "Idr"].contains(&name) { 1e-8 } else { 1e-10 };
            let both = whole.report.history.iter().zip(&solution.report.history).take(20);
            for (at, (one, other)) in both.enumerate() {
                assert!((one - other).abs() <= allowed * one, "{name} {powers:?} {at}: {one:e} {other:e}");
            }
            for _ in 0..2 {
                let again = solve(&split, &b).unwrap();
                assert_eq!(again.x, solution.x, "{name} {powers:?}");
                assert_eq!(again.report.history, solution.report.history, "{name} {powers:?}");
            }
        }
    }
}

#[test]
fn laws_hold_for_every_split() {
    let symmetric = edge::tridiagonal(41).csr::<f64>().unwrap();
    let unsymmetric = unsymmetric();
    // no processor but the host sends anything
    let upper: Vec<_> = (0..40).flat_map(|i| [(i, i, 2.0), (i, i % 7, 1.0)]).collect();
    let one_way = Csr::from_triplets(40, 40, &upper).unwrap();
    for a in [symmetric, unsymmetric, one_way] {
        for powers in POWERS {
            let split = split(&a, powers);
            laws::vector_fusions(split.domain(), Agreement::Rounding).unwrap();
            laws::basis_fusions(split.domain(), Agreement::Rounding).unwrap();
            laws::operator_fusions(&split, Agreement::Rounding).unwrap();
            laws::several_products(&split, &[3], Agreement::Rounding).unwrap();
            laws::stale_values(&split).unwrap();
            laws::second_product(&split).unwrap();
            laws::operator_fusions(&split.jacobi().unwrap(), Agreement::Rounding).unwrap();
            let blocks = BlockJacobi::new(&split, Jacobi::new, |block, _| Jacobi::new(block)).unwrap();
            laws::operator_fusions(&blocks, Agreement::Rounding).unwrap();
            assert_eq!(product(&split, &a), whole_product(&a), "{powers:?}");
        }
    }
}

/// A vector whose products with small integers are exact.
fn numbers(len: usize) -> Vec<f64> {
    (0..len).map(|i| ((i * 37) % 64) as f64 / 64.0).collect()
}

pub(crate) fn product(split: &Split, a: &Csr<f64>) -> Vec<i64> {
    let x = split.domain().vector(&numbers(a.rows())).unwrap();
    let (mut y, mut entries) = (split.domain().zeros().unwrap(), vec![0.0; a.rows()]);
    split.apply(&x, &mut y).unwrap();
    split.domain().store(&y, &mut entries).unwrap();
    rounded(&entries)
}

/// Rounds to 2^-30, so that sums in different orders agree.
fn rounded(entries: &[f64]) -> Vec<i64> {
    entries.iter().map(|entry| (entry * f64::from(1 << 30)).round() as i64).collect()
}

pub(crate) fn whole_product(a: &Csr<f64>) -> Vec<i64> {
    let x = a.domain().vector(&numbers(a.rows())).unwrap();
    let (mut y, mut entries) = (a.range().zeros().unwrap(), vec![0.0; a.rows()]);
    a.apply(&x, &mut y).unwrap();
    a.range().store(&y, &mut entries).unwrap();
    rounded(&entries)
}

/// Rows in the order of their lengths (algorithm 3), and a matrix that was reordered before.
#[test]
fn orders_stay_inside() {
    let a = uneven();
    let b = matrices::vector(a.rows());
    let reordered = a.reordered(&Permutation::rcm(&a).unwrap()).unwrap();
    let powers = [1.0, 4.0, 2.0];
    let expected = BiCgStab::new(&a).preconditioner(Jacobi::new(&a).unwrap()).rtol(1e-12).solve(&b).unwrap();
    let cases = [
        (&a, RowShares::by_length_classes(&a, &powers).unwrap()),
        (&a, RowShares::by_least_padding(&a, &powers).unwrap()),
        (&reordered, RowShares::by_length_classes(&reordered, &powers).unwrap()),
        (&reordered, RowShares::by_nonzeros(&reordered, &powers).unwrap()),
        (&a, RowShares::by_rows(&a, &powers).unwrap()),
    ];
    for (a, shares) in cases {
        let split = Split::with_shares(&machines(2), a, &shares).unwrap();
        println!("{split}");
        assert_eq!(product(&split, a), whole_product(a));
        let solution = BiCgStab::new(&split).preconditioner(split.jacobi().unwrap()).rtol(1e-12).solve(&b);
        let solution = solution.unwrap();
        assert!(solution.report.converged(), "{}", solution.report);
        let scale = truth::norm(&expected.x);
        for (one, other) in expected.x.iter().zip(&solution.x) {
            assert!((one - other).abs() <= 1e-9 * scale, "{one} {other}");
        }
    }
}

/// An error of queued work, found when a sum is read; one of an exchange; too little memory. After each, the
/// machines are used again.
#[test]
fn a_machine_that_fails_ends_the_solve() {
    let a = matrices::stencil7(12).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    let machines = machines(2);
    let shares = RowShares::by_nonzeros(&a, &[1.0, 2.0, 3.0]).unwrap();
    let split = Split::with_shares(&machines, &a, &shares).unwrap();
    let solve = || Cg::new(&split).preconditioner(split.jacobi().unwrap()).rtol(1e-10).solve(&b);
    let expected = solve().unwrap();
    for count in [0, 1, 5, 12] {
        for (machine, exchange) in [(0, false), (1, false), (0, true), (1, true)] {
            let machine = &machines[machine];
            match exchange {
                true => machine.fail_after_exchanges(count),
                false => machine.fail_after_sums(count),
            }
            let why = match solve() {
                Err(error) => error.to_string(),
                // a sum that is computed with others and not used
                Ok(solution) if !exchange && count == 1 => {
                    assert_eq!(solution.x, expected.x);
                    continue;
                }
                Ok(solution) => panic!("{count} {exchange}: {}", solution.report),
            };
            let expected_why = if exchange {
                "an exchange of the stand-in failed"
            } else {
                "queued work of the stand-in failed"
            };
            assert_eq!(why, expected_why, "{count}");
            assert_eq!(solve().unwrap().x, expected.x);
        }
    }
    let small = [StandIn::default(), StandIn::default().with_memory(1000)];
    let full = Split::with_shares(&small, &a, &shares).err().unwrap();
    assert!(matches!(full, Error::Allocation { free: 1000, .. }), "{full}");
    let others = RowShares::by_nonzeros(&a, &[1.0, 2.0]).unwrap();
    let split = Split::with_shares(&small[..1], &a, &others).unwrap();
    assert!(Cg::new(&split).solve(&b).unwrap().report.converged());
}

/// Two solves on one matrix share its space. Only what was computed from a failed sum reports the error.
#[test]
fn an_error_stays_with_what_was_computed_from_it() {
    let a = matrices::stencil7(5).csr::<f64>().unwrap();
    let machines = machines(1);
    let shares = RowShares::by_nonzeros(&a, &[1.0, 1.0]).unwrap();
    let split = Split::with_shares(&machines, &a, &shares).unwrap();
    let (space, one) = (split.domain(), 1.0.into());
    let x = space.vector(&numbers(a.rows())).unwrap();
    let mut entries = vec![0.0; a.rows()];
    let good = x.dot(&x);
    machines[0].fail_after_sums(0);
    let failed = x.dot(&x);
    let mut y = space.zeros().unwrap();
    y.axpby(&failed, &x, &one);
    assert!(good.read().is_ok());
    assert!(space.store(&x, &mut entries).is_ok());
    let mut of_y = [(); 4].map(|()| space.zeros().unwrap());
    of_y[0].copy_from(&y);
    of_y[1].axpby(&one, &y, &one);
    of_y[2].multiply(&x, &y);
    split.apply(&y, &mut of_y[3]).unwrap();
    for vector in [&y].into_iter().chain(&of_y) {
        let error = space.store(vector, &mut entries).unwrap_err().to_string();
        assert_eq!(error, "queued work of the stand-in failed");
        assert!(vector.norm_squared().read().is_err() && x.dot(vector).read().is_err());
    }
    let quotient = good.clone() / -(failed.clone() + good);
    assert!(failed.read().is_err() && quotient.sqrt().read().is_err());
    // what is overwritten is as good as new
    y.axpby(&one, &x, &0.0.into());
    assert!(space.store(&y, &mut entries).is_ok() && y.norm_squared().read().is_ok());
}

#[test]
fn a_failed_refresh_makes_the_matrix_unusable() {
    let a = matrices::stencil7(6).csr::<f64>().unwrap();
    let machines = machines(1);
    let shares = RowShares::by_nonzeros(&a, &[1.0, 1.0]).unwrap();
    let mut split = Split::with_shares(&machines, &a, &shares).unwrap();
    let twice: Vec<f64> = a.entries().iter().map(|value| 2.0 * value).collect();
    assert!(split.refresh(&twice[1..]).is_err());
    assert_eq!(product(&split, &a), whole_product(&a), "values of another length change nothing");
    machines[0].fail_after_exchanges(0);
    assert!(split.refresh(&twice).is_err());
    let errors = [
        Cg::new(&split).solve(&vec![1.0; a.rows()]).map(drop).unwrap_err().to_string(),
        split.jacobi().map(drop).unwrap_err().to_string(),
        split.balance().map(drop).unwrap_err().to_string(),
        BlockJacobi::new(&split, Jacobi::new, |block, _| Jacobi::new(block))
            .map(drop)
            .unwrap_err()
            .to_string(),
    ];
    for error in errors {
        assert!(error.contains("the last refresh of this matrix failed"), "{error}");
    }
    split.refresh(&twice).unwrap();
    assert_eq!(product(&split, &a), whole_product(&a.with_values(&twice).unwrap()));
}

#[test]
fn products_of_two_threads_do_not_disturb_each_other() {
    let a = uneven();
    let split = split(&a, &[1.0, 2.0, 1.0]);
    let factors = [1.0, 2.0];
    let expected = factors.map(|factor| {
        let whole = whole_product(&a);
        whole.into_iter().map(|entry| entry * factor as i64).collect::<Vec<i64>>()
    });
    std::thread::scope(|scope| {
        for (factor, expected) in factors.into_iter().zip(&expected) {
            let (split, rows) = (&split, a.rows());
            scope.spawn(move || {
                let scaled: Vec<f64> = numbers(rows).iter().map(|entry| factor * entry).collect();
                let (x, mut y) = (split.domain().vector(&scaled).unwrap(), split.domain().zeros().unwrap());
                let mut entries = vec![0.0; rows];
                for _ in 0..200 {
                    split.apply(&x, &mut y).unwrap();
                    split.domain().store(&y, &mut entries).unwrap();
                    assert!(rounded(&entries) == *expected, "{factor}");
                }
            });
        }
    });
}

#[test]
fn new_values_and_any_number_of_rows() {
    let a = unsymmetric();
    let twice: Vec<f64> = a.entries().iter().map(|value| 2.0 * value).collect();
    for powers in POWERS {
        let mut of_lengths = Split::with_shares(
            &machines(powers.len() - 1),
            &a,
            &RowShares::by_length_classes(&a, powers).unwrap(),
        )
        .unwrap();
        let entries = of_lengths.assemble(&twice).unwrap().into_owned();
        of_lengths.refresh(&entries).unwrap();
        assert_eq!(product(&of_lengths, &a), whole_product(&a.with_values(&twice).unwrap()));
        let b = matrices::vector(a.rows());
        let half = BiCgStab::new(&of_lengths).preconditioner(of_lengths.jacobi().unwrap()).rtol(1e-10);
        let half = { half }.solve(&b).unwrap();
        assert!(half.report.converged());
        assert!(of_lengths.refresh(&twice[1..]).is_err());
        for rows in 1..=5 {
            let a = edge::tridiagonal(rows).csr::<f64>().unwrap();
            let split = split(&a, powers);
            assert_eq!(split.members().iter().map(|member| member.rows.rows).sum::<usize>(), rows);
            let solution = Cg::new(&split).preconditioner(split.jacobi().unwrap()).solve(&vec![1.0; rows]);
            assert!(solution.unwrap().report.converged(), "{rows} rows {powers:?}");
        }
    }
}

#[test]
fn each_processor_may_have_its_own_preconditioner() {
    let a = matrices::stencil7(12).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    let split = split(&a, &[1.0, 2.0, 1.0]);
    let by_jacobi = Cg::new(&split).preconditioner(split.jacobi().unwrap()).rtol(1e-10).solve(&b).unwrap();
    let blocks = BlockJacobi::new(&split, Ic0::new, |block, _| Ic0::new(block)).unwrap();
    let solution = Cg::new(&split).preconditioner(blocks).rtol(1e-10).solve(&b).unwrap();
    assert!(solution.report.converged());
    assert!(solution.report.iterations < by_jacobi.report.iterations, "{}", solution.report);
    let polynomial = Chebyshev::new(&split, split.jacobi().unwrap(), 3).unwrap();
    let solution = Cg::new(&split).preconditioner(polynomial).rtol(1e-10).solve(&b).unwrap();
    assert!(solution.report.converged());
    let wrong = BlockJacobi::new(&split, |_| Jacobi::new(&a), |block, _| Jacobi::new(block));
    assert!(matches!(wrong.err(), Some(Error::Solver(krysp::solvers::Error::Space { .. }))));
}

#[test]
fn what_does_not_fit_is_refused() {
    let a = matrices::stencil7(5).csr::<f64>().unwrap();
    let shares = RowShares::by_nonzeros(&a, &[1.0, 2.0]).unwrap();
    let one_too_many = Split::with_shares(&machines(2), &a, &shares).err().unwrap();
    assert!(matches!(one_too_many, Error::Option { what: "the shares", .. }), "{one_too_many}");
    let other = matrices::stencil7(6).csr::<f64>().unwrap();
    assert!(matches!(Split::with_shares(&machines(1), &other, &shares).err(), Some(Error::Option { .. })));
    let twice = vec![StandIn::default(); 2];
    let of_three = RowShares::by_nonzeros(&a, &[1.0; 3]).unwrap();
    for split in
        [Split::new(&twice, &a), Split::on_all(&twice, &a), Split::with_shares(&twice, &a, &of_three)]
    {
        assert!(matches!(split.err(), Some(Error::Option { what: "the list of machines", .. })));
    }
    let reordered = a.reordered(&Permutation::rcm(&a).unwrap()).unwrap();
    let error = DiagonalBlocks::new(&StandIn::default(), &reordered, 8).err().unwrap().to_string();
    assert!(error.contains("a reordered matrix"), "{error}");
    let wide = Csr::from_triplets(2, 3, &[(0, 2, 1.0)]).unwrap();
    assert!(matches!(Split::new(&machines(1), &wide).err(), Some(Error::NotSquare { .. })));
    let empty_row = Csr::from_triplets(3, 3, &[(0, 0, 1.0), (2, 2, 1.0)]).unwrap();
    let jacobi = split(&empty_row, &[1.0, 1.0]).jacobi();
    assert!(matches!(jacobi.err(), Some(Error::ZeroDiagonal { row: 1, .. })));
    let space = |powers: &[f64]| -> SplitSpace<f64, StandIn> { split(&a, powers).domain().clone() };
    let [x, other] = [space(&[1.0, 1.0]), space(&[1.0, 2.0])].map(|space| space.zeros().unwrap());
    let mut y = space(&[1.0, 1.0]).zeros().unwrap();
    let unit = Diagonal::new(other);
    assert!(matches!(unit.apply(&x, &mut y), Err(krysp::solvers::Error::Space { .. })));
}

#[test]
fn blocks_on_the_diagonal_are_split_from_the_rest() {
    for a in [matrices::stencil7(8).csr::<f64>().unwrap(), edge::tridiagonal(41).csr().unwrap()] {
        let b = matrices::vector(a.rows());
        for block in [8, 16, 1000] {
            let machine = StandIn::default();
            let split = DiagonalBlocks::new(&machine, &a, block).unwrap();
            laws::operator_fusions(&split, Agreement::Rounding).unwrap();
            laws::stale_values(&split).unwrap();
            let solution = Cg::new(&split).rtol(1e-10).solve(&b).unwrap();
            assert!(solution.report.converged());
            assert!(truth::residual(&a, &solution.x, &b) <= 2e-10 * truth::norm(&b));
            assert!(split.bytes() > 0);
            if a.rows() > block {
                machine.fail_after_exchanges(3);
                assert!(Cg::new(&split).rtol(1e-10).solve(&b).is_err());
                assert_eq!(Cg::new(&split).rtol(1e-10).solve(&b).unwrap().x, solution.x);
            }
        }
        assert!(DiagonalBlocks::new(&StandIn::default(), &a, 0).is_err());
    }
}

#[test]
fn single_precision_is_split_too() {
    let a = matrices::stencil7(10).csr::<f32>().unwrap();
    let shares = RowShares::by_nonzeros(&a, &[1.0, 3.0]).unwrap();
    let split = SplitMatrix::with_shares(&machines(1), &a, &shares).unwrap();
    let b = vec![1.0_f32; a.rows()];
    let solution = Cg::new(&split).preconditioner(split.jacobi().unwrap()).rtol(1e-5).solve(&b).unwrap();
    assert!(solution.report.converged(), "{}", solution.report);
}
