//! Algebraic multigrid: laws, iterations that hardly depend on the size, difficult systems, and errors.

use super::multigrid_on_host::{OnHost, options};
use krysp::Refresh;
use krysp::io::{read_matrix, read_vector};
use krysp::testing::laws::{self, Agreement, Multigrid, Reference, Relation};
use krysp::testing::matrices::{self, edge};
use krysp::testing::needed_matrix;
use krysp::{
    Amg, AmgOptions, Cg, Csr, Element, Error, HostVector, LinearOperator, MultiVector, Permutation, Space,
    UnknownOrder, rigid_body_modes,
};

type Triplets = Vec<(usize, usize, f64)>;

const CONSTANTS: &[Vec<f64>] = &[];

fn small(a: &Csr<f64>) -> Amg<f64> {
    OnHost.build(a, CONSTANTS, false).unwrap()
}

/// Hierarchies with unsmoothed and with smoothed aggregation on the finest level.
fn both(a: &Csr<f64>) -> [Amg<f64>; 2] {
    [false, true].map(|smooth_finest| OnHost.build(a, CONSTANTS, smooth_finest).unwrap())
}

/// Whether the finest level uses unsmoothed aggregation.
fn is_unsmoothed(m: &Amg<f64>) -> bool {
    m.to_string().contains("and aggregates")
}

fn iterations(a: &Csr<f64>, m: &Amg<f64>) -> usize {
    let b = laws::numbers(a.rows(), 3);
    let report = Cg::new(a).preconditioner(m).rtol(1e-8).solve(&b).unwrap().report;
    assert!(report.converged(), "{report}\n{m}");
    report.iterations
}

/// The result of a cycle.
fn image(m: &Amg<f64>) -> Vec<f64> {
    let x = m.domain().vector(&laws::numbers(m.domain().len(), 7)).unwrap();
    let mut y = m.domain().zeros().unwrap();
    m.apply(&x, &mut y).unwrap();
    y.as_slice().to_vec()
}

/// `−∇·(k ∇u)` on cubes with `u = 0` outside. `conductivity(place, axis)` is `k` on the face after a cube along an axis.
fn diffusion(side: usize, conductivity: impl Fn([usize; 3], usize) -> f64) -> Triplets {
    let row = |[x, y, z]: [usize; 3]| (z * side + y) * side + x;
    let mut entries = vec![];
    for at in (0..side.pow(3)).map(|i| [i % side, i / side % side, i / side / side]) {
        for axis in 0..3 {
            let k = conductivity(at, axis);
            entries.push((row(at), row(at), k));
            let mut next = at;
            next[axis] += 1;
            if next[axis] < side {
                entries.extend([
                    (row(at), row(next), -k),
                    (row(next), row(at), -k),
                    (row(next), row(next), k),
                ]);
            } else {
                entries.push((row(at), row(at), k));
            }
        }
    }
    entries
}

fn csr(rows: usize, entries: &[(usize, usize, f64)]) -> Csr<f64> {
    Csr::from_triplets(rows, rows, entries).unwrap()
}

#[test]
fn features() {
    let relation = Relation { same_aggregates: true, iterations: |host| host..=host };
    laws::multigrid(&Reference::of(&OnHost).unwrap(), &OnHost, relation).unwrap();
}

#[test]
fn laws_of_operators() {
    let stencil = matrices::stencil7(13).csr::<f64>().unwrap();
    for a in [
        stencil.reordered(&Permutation::clustered(&stencil, 300).unwrap()).unwrap(),
        stencil,
        matrices::elasticity(6).csr::<f64>().unwrap(),
        edge::diagonal(50).csr().unwrap(),
        edge::diagonal(1).csr().unwrap(),
        Csr::from_triplets::<usize>(0, 0, &[]).unwrap(),
    ] {
        for smooth_finest in [false, true] {
            let build = || OnHost.build(&a, CONSTANTS, smooth_finest).unwrap();
            laws::same_on_all_threads(&|| Ok(build())).unwrap();
            let m = build();
            laws::stale_values(&m).unwrap();
            laws::second_product(&m).unwrap();
            laws::operator_fusions(&m, Agreement::Bitwise).unwrap();
            laws::sizes_refused(&m).unwrap();
            for pool in &laws::pools().unwrap()[1..3] {
                let many = || laws::several_products(&m, &[0, 1, 2, 3, 8, 17], Agreement::Bitwise);
                pool.install(many).unwrap();
            }
        }
        let single = Amg::new(&a.cast::<f32>()).unwrap();
        laws::stale_values(&single).unwrap();
        laws::several_products(&single, &[2, 5], Agreement::Bitwise).unwrap();
    }
}

fn bits(x: &HostVector<f64>) -> Vec<u64> {
    x.as_slice().iter().map(|x| x.to_bits()).collect()
}

/// Vectors that share a cycle do not affect each other: NaN, infinity and very different magnitudes of some
/// change no bit of the others.
#[test]
fn vectors_of_a_cycle_are_independent() {
    let [grid, part] = [matrices::stencil7(12), matrices::elasticity(6)].map(|a| a.csr::<f64>().unwrap());
    for m in [&grid, &part].into_iter().flat_map(both) {
        let (space, n) = (m.domain(), m.domain().len());
        let column = |j: u64| {
            let mut column = space.vector(&laws::numbers(n, j)).unwrap();
            column.as_mut_slice().iter_mut().for_each(|x| *x *= 1e30f64.powi(j as i32 - 4));
            column.as_mut_slice()[n / 2] = [f64::NAN, 1.0, 0.0, f64::INFINITY, 1.0][j as usize % 5];
            column
        };
        let r = MultiVector::from_columns(space, (0..9).map(column).collect()).unwrap();
        let mut z = MultiVector::zeros(space, 9).unwrap();
        m.apply_many(&r, &mut z).unwrap();
        for (j, (r, z)) in r.columns().iter().zip(z.columns()).enumerate() {
            let mut own = space.zeros().unwrap();
            m.apply(r, &mut own).unwrap();
            assert_eq!(bits(z), bits(&own), "column {j}");
            assert_eq!(z.as_slice().iter().all(|z| z.is_finite()), j % 5 % 3 != 0, "column {j}");
        }
    }
}

/// Columns of a solve end one after the other, so that the last ones are a smaller group.
#[test]
fn load_cases_end_as_their_own_solves() {
    let side = 10;
    let a = matrices::elasticity(side).csr::<f64>().unwrap();
    let m = Amg::with(&a, &rigid_body_modes(&cube(side), UnknownOrder::ByNode), options(false)).unwrap();
    let mut b: Vec<Vec<f64>> = (0..7).map(|j| laws::numbers(a.rows(), j)).collect();
    b[4] = vec![0.0; a.rows()];
    b[5] = vec![f64::NAN; a.rows()];
    let smooth: Vec<f64> = (0..a.rows()).map(|i| (i / 3 / (side * side)) as f64).collect();
    b.push(smooth);
    let solver = || Cg::new(&a).preconditioner(&m).rtol(1e-9);
    let together = solver().solve_many(&b).unwrap();
    let mut iterations = vec![];
    for (j, (together, b)) in together.iter().zip(&b).enumerate() {
        let own = solver().solve(b).unwrap();
        assert_eq!(
            format!("{:?}", together.report.outcome),
            format!("{:?}", own.report.outcome),
            "column {j}"
        );
        assert_eq!(together.report.iterations, own.report.iterations, "column {j}");
        let bits = |x: &[f64]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&together.report.history), bits(&own.report.history), "column {j}");
        assert_eq!(bits(&together.x), bits(&own.x), "column {j}");
        iterations.push(own.report.iterations);
    }
    assert!(together[0].report.converged() && iterations.iter().max() > iterations.iter().min());
}

#[test]
fn it_is_symmetric_and_positive() {
    let [grid, part] = [matrices::stencil7(12), matrices::elasticity(6)].map(|a| a.csr::<f64>().unwrap());
    let all = [&grid, &part].map(|a| both(a).map(|m| (a, m)));
    for (a, m) in all.iter().flatten() {
        let space = m.domain();
        let [x, y] = [4, 5].map(|seed| space.vector(&laws::numbers(a.rows(), seed)).unwrap());
        let [mut mx, mut my] = [0; 2].map(|_| space.zeros().unwrap());
        m.apply(&x, &mut mx).unwrap();
        m.apply(&y, &mut my).unwrap();
        let dot = |x: &HostVector<f64>, y: &HostVector<f64>| -> f64 {
            x.as_slice().iter().zip(y.as_slice()).map(|(x, y)| x * y).sum()
        };
        let (one, other) = (dot(&mx, &y), dot(&x, &my));
        let size = dot(&mx, &mx).sqrt() * dot(&y, &y).sqrt();
        assert!((one - other).abs() <= 1e-5 * size, "{one:e} {other:e}");
        assert!(dot(&mx, &x) > 0.0);
    }
}

#[test]
fn iterations_hardly_grow() {
    let its = [16, 32, 48].map(|side| {
        let a = matrices::stencil7(side).csr::<f64>().unwrap();
        let smooth_finest = AmgOptions { smooth_finest: Some(true), ..AmgOptions::default() };
        [AmgOptions::default(), smooth_finest].map(|o| iterations(&a, &Amg::with(&a, CONSTANTS, o).unwrap()))
    });
    println!("stencil7: {its:?}");
    for (kind, most) in [20, 16].into_iter().enumerate() {
        let [first, .., last] = its.map(|its| its[kind]);
        assert!(last <= most && 2 * last <= 3 * first.max(10), "{its:?}");
    }
}

#[test]
fn coefficients_that_jump_and_directions_that_differ() {
    let side = 24;
    let solve = |conductivity: &dyn Fn([usize; 3], usize) -> f64| {
        let a = csr(side * side * side, &diffusion(side, conductivity));
        both(&a).map(|m| iterations(&a, &m))
    };
    let plain = solve(&|_, _| 1.0);
    let anisotropic = solve(&|_, axis| if axis == 0 { 1.0 } else { 1e-3 });
    let planes = solve(&|_, axis| if axis == 0 { 1e-3 } else { 1.0 });
    let jumps = solve(&|[x, y, z], _| if (x / 6 + y / 6 + z / 6) % 2 == 0 { 1e6 } else { 1.0 });
    let layers = solve(&|[_, _, z], _| if (8..16).contains(&z) { 1e6 } else { 1.0 });
    println!("plain {plain:?} lines {anisotropic:?} planes {planes:?} jumps {jumps:?} layers {layers:?}");
    assert!(plain[1] <= 14 && anisotropic[1] <= 20 && planes[1] <= 20 && jumps[1] <= 30 && layers[1] <= 20);
    assert!(plain[0] <= 18 && anisotropic[0] <= 26 && planes[0] <= 26 && jumps[0] <= 36 && layers[0] <= 26);
}

#[test]
fn rows_that_are_not_coarsened() {
    let side = 12;
    let n = side * side * side;
    let whole = diffusion(side, |_, _| 1.0);
    let fixed = |row: usize| row.is_multiple_of(7);
    // Dirichlet rows in the matrix, with a diagonal of another magnitude
    let mut dirichlet = whole.clone();
    dirichlet.retain(|&(row, column, _)| !fixed(row) && !fixed(column));
    dirichlet.extend((0..n).filter(|&row| fixed(row)).map(|row| (row, row, 1e4)));
    // two disconnected domains, and isolated unknowns
    let mut apart = whole.clone();
    apart.extend(whole.iter().map(|&(row, column, v)| (n + row, n + column, 1e-3 * v)));
    apart.extend((0..50).map(|k| (2 * n + k, 2 * n + k, 3.0)));
    for a in [csr(n, &dirichlet), csr(2 * n + 50, &apart)] {
        for m in both(&a) {
            assert!(iterations(&a, &m) <= 20, "{m}");
        }
    }
    // empty rows with a zero right-hand side, in a matrix with very large values
    let huge: Vec<_> = whole.iter().map(|&(row, column, v)| (row, column, 1e90 * v)).collect();
    let a = csr(n + 5, &huge);
    let mut b: Vec<f64> = laws::numbers(n + 5, 3);
    b[n..].fill(0.0);
    for m in both(&a) {
        let solution = Cg::new(&a).preconditioner(m).rtol(1e-8).solve(&b).unwrap();
        assert!(solution.report.converged() && solution.report.iterations <= 20, "{}", solution.report);
        assert!(solution.x[n..].iter().all(|&x| x == 0.0));
    }
}

/// A singular system: the null space, the constants, is declared to the solver.
#[test]
fn pure_neumann() {
    let a = matrices::stencil7(16).zero_row_sums().csr::<f64>().unwrap();
    let [plain, smooth_finest] = both(&a);
    for m in [plain, smooth_finest, Amg::new(&a).unwrap()] {
        let mut solver =
            Cg::new(&a).preconditioner(&m).rtol(1e-8).null_space(&[vec![1.0; a.rows()]]).unwrap();
        let report = solver.solve(&laws::numbers(a.rows(), 3)).unwrap().report;
        assert!(report.converged() && report.iterations <= 20, "{report}");
    }
}

#[test]
fn numbers_of_any_size() {
    let a = matrices::stencil7(14).csr::<f64>().unwrap();
    let its = both(&a).map(|m| iterations(&a, &m));
    let b: Vec<f64> = laws::numbers(a.rows(), 3);
    for factor in [1e-90, 1e90] {
        let scaled = a.with_values(&a.entries().iter().map(|v| v * factor).collect::<Vec<_>>()).unwrap();
        let b: Vec<f64> = b.iter().map(|v| v * factor).collect();
        for (m, its) in both(&scaled).iter().zip(its) {
            assert!(iterations(&scaled, m).abs_diff(its) <= 1);
            let report = Cg::new(&scaled).preconditioner(m).rtol(1e-8).solve(&b).unwrap().report;
            assert!(report.converged() && report.iterations.abs_diff(its) <= 1, "{report}");
        }
    }
    let single = a.cast::<f32>();
    let b: Vec<f32> = b.iter().map(|&v| Element::from_f64(v)).collect();
    let m = Amg::with::<Vec<f32>>(&single, &[], options(false)).unwrap();
    assert!(Cg::new(&single).preconditioner(m).rtol(1e-5).solve(&b).unwrap().report.converged());
}

#[test]
fn new_values_are_those_of_a_new_one() {
    let side = 14;
    let [a, other] =
        [1.0, 3.0].map(|k| csr(side * side * side, &diffusion(side, |_, axis| 1.0 + k * axis as f64)));
    let elastic = matrices::elasticity(6).csr::<f64>().unwrap();
    let stiffer: Vec<f64> = elastic.entries().iter().map(|v| v * 3.0).collect();
    let stiffer = elastic.with_values(&stiffer).unwrap();
    let all = [(&a, &other), (&elastic, &stiffer)].map(|(a, other)| {
        let fresh = both(other).map(|m| iterations(other, &m));
        both(a).into_iter().zip(fresh).map(move |(m, fresh)| (a, other, m, fresh))
    });
    for (a, other, mut m, fresh) in all.into_iter().flatten() {
        let before = image(&m);
        m.refresh(other).unwrap();
        assert!(iterations(other, &m) <= fresh + 3);
        m.refresh(a).unwrap();
        assert_eq!(image(&m), before);
        assert!(m.refresh(&matrices::stencil7(3).csr().unwrap()).is_err());
    }
}

#[test]
fn the_hierarchy_is_told() {
    let a = matrices::stencil7(16).csr::<f64>().unwrap();
    let text = small(&a).to_string();
    println!("{text}");
    assert!(
        text.contains("4096") && text.contains("dense") && text.contains("operator complexity 1."),
        "{text}"
    );
    // `bytes` counts four products with the finest level, the vectors of the smoother, and one product with the
    // dense level below
    let m = Amg::with(&a, CONSTANTS, AmgOptions { max_coarse_size: 600, ..options(false) }).unwrap();
    assert!(is_unsmoothed(&m) && m.aggregates().len() == 1, "{m}");
    let last = m.aggregates()[0].iter().flatten().max().map_or(0, |&last| last as usize + 1);
    let (finest, dense) = (4 * (a.nnz() * 4 + a.rows() * 4), 4 * last * last);
    let bytes = m.bytes();
    assert!(
        finest + dense < bytes && bytes < finest * 5 / 4 + 5 * last * (last + 16),
        "{bytes}: {finest}, {last}"
    );
    assert!(dense > finest / 2, "counting {dense} twice would not be noticed beside {finest}");
}

/// With `smooth_finest: false`, the finest level uses unsmoothed aggregation only for symmetric matrices with one
/// unknown per node, and only without given modes.
#[test]
fn aggregation_is_unsmoothed_for_symmetric_scalar_matrices() {
    let grid = matrices::stencil7(16).csr::<f64>().unwrap();
    let [plain, smooth_finest] = both(&grid);
    assert!(is_unsmoothed(&plain) && !is_unsmoothed(&smooth_finest), "{plain}\n{smooth_finest}");
    let modes = [vec![1.0; grid.rows()]];
    assert!(!is_unsmoothed(&Amg::with(&grid, &modes, options(false)).unwrap()));
    assert!(!is_unsmoothed(&small(&matrices::elasticity(6).csr().unwrap())));
    // entries that cancel in assembly leave rounding errors, which may be unsymmetric
    let rounding =
        |(i, j, v): (usize, usize, f64)| [(i, j, v), (i, (i + 5) % 4096, 1e-17 * (1 + j % 3) as f64)];
    let cancelled: Vec<_> = grid.triplets().flat_map(rounding).collect();
    assert!(is_unsmoothed(&small(&csr(grid.rows(), &cancelled))));
    // convection makes the matrix unsymmetric, except for the Dirichlet rows on one side of the grid
    let known = |row: usize| row.is_multiple_of(16);
    let flow: Vec<_> = grid
        .triplets()
        .filter(|&(i, j, _)| i == j || !known(i) && !known(j))
        .map(|(i, j, v)| (i, j, if j == i + 1 { 0.5 * v } else { v }))
        .collect();
    assert!(!is_unsmoothed(&small(&csr(grid.rows(), &flow))));
}

#[test]
fn what_is_refused() {
    let indefinite = csr(2, &[(0, 0, 1.0), (0, 1, 2.0), (1, 0, 2.0), (1, 1, 1.0)]);
    assert!(matches!(Amg::new(&indefinite), Err(Error::NotPositive { .. })));
    let mut entries = diffusion(12, |_, _| 1.0);
    entries.push((700, 700, -20.0));
    assert!(matches!(Amg::new(&csr(1728, &entries)), Err(Error::NotPositive { row: 700, .. })));
    let saddle = csr(2, &[(0, 0, 1.0), (0, 1, 2.0), (1, 0, 2.0)]);
    assert!(matches!(Amg::new(&saddle), Err(Error::NotPositive { row: 1, .. })));
    let wide = Csr::<f64>::from_triplets(1, 2, &[(0, 0, 1.0)]).unwrap();
    assert!(matches!(Amg::new(&wide), Err(Error::NotSquare { .. })));
    let a = matrices::stencil7(3).csr::<f64>().unwrap();
    for options in [
        AmgOptions { strength: f64::NAN, ..options(false) },
        AmgOptions { sweeps: 0, ..options(false) },
        AmgOptions { max_coarse_size: 9000, ..options(false) },
    ] {
        assert!(matches!(Amg::with(&a, CONSTANTS, options), Err(Error::Option { .. })));
    }
    assert!(Amg::with_near_null_space(&a, &[vec![1.0; 26]]).is_err());
}

/// Coordinates of the nodes of the elastic cube, in the order of its unknowns.
fn cube(side: usize) -> Vec<[f64; 3]> {
    (0..side * side * side).map(|i| [i % side, i / side % side, i / side / side].map(|x| x as f64)).collect()
}

#[test]
fn rigid_body_modes_are_free_of_strain() {
    let points = cube(3);
    for unknowns in [UnknownOrder::ByNode, UnknownOrder::ByComponent] {
        let modes = rigid_body_modes(&points, unknowns);
        assert_eq!(modes.len(), 6);
        let at = |mode: usize, node: usize, axis: usize| match unknowns {
            UnknownOrder::ByNode => modes[mode][3 * node + axis],
            UnknownOrder::ByComponent => modes[mode][27 * axis + node],
        };
        for mode in 0..6 {
            for (i, j) in [(0, 1), (3, 20), (7, 26)] {
                // distances do not change to first order
                let change: f64 =
                    (0..3).map(|k| (at(mode, i, k) - at(mode, j, k)) * (points[i][k] - points[j][k])).sum();
                assert!(change.abs() < 1e-12);
            }
        }
    }
    assert_eq!(rigid_body_modes(&[[0.0]; 4], UnknownOrder::ByNode), [[1.0; 4]]);
}

#[test]
fn elasticity_with_rigid_body_modes() {
    let side = 12;
    let a = matrices::elasticity(side).csr::<f64>().unwrap();
    let modes = rigid_body_modes(&cube(side), UnknownOrder::ByNode);
    let constants = iterations(&a, &Amg::new(&a).unwrap());
    let rigid = iterations(&a, &Amg::with_near_null_space(&a, &modes).unwrap());
    // unknowns ordered by component, so that nodes are not detected
    let n = side.pow(3);
    let by_component: Vec<_> =
        a.triplets().map(|(i, j, v)| (i % 3 * n + i / 3, j % 3 * n + j / 3, v)).collect();
    let apart = csr(3 * n, &by_component);
    let modes = rigid_body_modes(&cube(side), UnknownOrder::ByComponent);
    let apart = iterations(&apart, &Amg::with_near_null_space(&apart, &modes).unwrap());
    println!("constants {constants} rigid {rigid} by component {apart}");
    assert!(rigid <= 20 && rigid < constants && apart <= 60);
}

/// Nodes are detected even if a few entries are missing, for example because they were zero, so that rows of a node differ.
#[test]
fn nodes_are_found_where_entries_are_missing() {
    let whole = matrices::elasticity(8).csr::<f64>().unwrap();
    let kept = |&(i, j, _): &(usize, usize, f64)| i == j || !(i + j).is_multiple_of(101);
    let entries: Vec<_> = whole.triplets().filter(kept).collect();
    let a = csr(whole.rows(), &entries);
    assert!(a.nnz() < whole.nnz() && krysp::formats::row_blocks(&a) == 1);
    let modes = rigid_body_modes(&cube(8), UnknownOrder::ByNode);
    let [of_whole, mut m] = [&whole, &a].map(|a| Amg::with(a, &modes, options(false)).unwrap());
    assert_eq!(m.aggregates()[0].len(), a.rows() / 3);
    assert!(iterations(&a, &m) <= iterations(&whole, &of_whole) + 3);
    // with explicit zeros instead of missing entries, the matrix and the cycle are the same
    let zeros: Vec<_> =
        whole.triplets().map(|entry| if kept(&entry) { entry } else { (entry.0, entry.1, 0.0) }).collect();
    let filled = csr(whole.rows(), &zeros);
    let expected = image(&Amg::with(&filled, &modes, options(false)).unwrap());
    assert_eq!(image(&m), expected);
    m.refresh(&a).unwrap();
    assert_eq!(image(&m), expected);
}

fn system(name: &str) -> Option<(Csr<f64>, Vec<f64>)> {
    let (matrix, rhs) = (needed_matrix(name)?, needed_matrix(&format!("{name}_b"))?);
    Some((read_matrix(matrix).unwrap(), read_vector(rhs).unwrap()))
}

#[test]
fn a_small_heat_sink() {
    let Some((a, b)) = system("heat_sink_p1_27k") else { return };
    for (smooth_finest, most) in [(true, 20), (false, 24)] {
        let m = Amg::with(
            &a,
            CONSTANTS,
            AmgOptions { smooth_finest: Some(smooth_finest), ..AmgOptions::default() },
        )
        .unwrap();
        let report = Cg::new(&a).preconditioner(&m).rtol(1e-8).solve(&b).unwrap().report;
        println!("{m}\n{report}");
        assert!(report.converged() && report.iterations <= most);
    }
}
