//! Properties of a system that the user declares: coordinates, near-null space, null space, symmetry, fields.

use krysp::plan::{Method, PlannedSolver, Preconditioner};
use krysp::{Amg, Cg, Csr, Error, Host, Permutation, Plan, Space, UnknownOrder, gallery, rigid_body_modes};

/// Elasticity from which boundary conditions have removed single unknowns: y where y = 0, z where z = 0, and one in 101.
struct Reduced {
    a: Csr<f64>,
    /// The same problem with all unknowns: the removed ones have only a diagonal entry.
    whole: Csr<f64>,
    nodes: Vec<[f64; 3]>,
    free: Vec<usize>,
}

impl Reduced {
    fn new(elements: [usize; 3]) -> Reduced {
        let (a, nodes) = gallery::elasticity::<f64>(elements, 0.3).unwrap();
        let is_free = |i: usize| match nodes[i / 3] {
            [_, 0.0, _] if i % 3 == 1 => false,
            [_, _, 0.0] if i % 3 == 2 => false,
            _ => i % 101 != 7,
        };
        let free: Vec<usize> = (0..a.rows()).filter(|&i| is_free(i)).collect();
        let entries: Vec<_> = a.triplets().filter(|&(i, j, _)| i == j || is_free(i) && is_free(j)).collect();
        let whole = Csr::from_triplets(a.rows(), a.rows(), &entries).unwrap();
        let place = |i: usize| free.binary_search(&i).ok();
        let entries: Vec<_> =
            whole.triplets().filter_map(|(i, j, value)| Some((place(i)?, place(j)?, value))).collect();
        let a = Csr::from_triplets(free.len(), free.len(), &entries).unwrap();
        Reduced { a, whole, nodes, free }
    }

    fn modes(&self) -> Vec<Vec<f64>> {
        let of_free = |mode: &Vec<f64>| self.free.iter().map(|&i| mode[i]).collect();
        rigid_body_modes(&self.nodes, UnknownOrder::ByNode).iter().map(of_free).collect()
    }

    fn points(&self) -> Vec<[f64; 3]> {
        self.free.iter().map(|i| self.nodes[i / 3]).collect()
    }

    fn components(&self) -> Vec<usize> {
        self.free.iter().map(|i| i % 3).collect()
    }
}

fn rhs(rows: usize) -> Vec<f64> {
    (0..rows).map(|i| (i as f64 * 0.37).sin()).collect()
}

fn explicit(a: &Csr<f64>, m: &Amg<f64>) -> usize {
    let report = Cg::new(a).preconditioner(m).rtol(1e-8).solve(&rhs(a.rows())).unwrap().report;
    assert!(report.converged(), "{report}");
    report.iterations
}

/// The iterations of a plan that may use only multigrid.
fn with_amg(plan: Plan<'_, f64>) -> usize {
    let mut solver = plan.method(Method::Cg).preconditioner(Preconditioner::Amg).build().unwrap();
    iterations(&mut solver)
}

fn iterations(solver: &mut PlannedSolver<f64, Host>) -> usize {
    let rows = solver.space().unwrap().len();
    let solved = solver.solve(&rhs(rows)).unwrap();
    assert!(solved.converged(), "{solved}");
    assert_eq!(solved.attempts.len(), 1, "{solved}");
    solved.report.iterations
}

#[test]
fn removed_unknowns_cost_multigrid_few_iterations() {
    for elements in [[12, 12, 12], [30, 8, 8]] {
        let reduced = Reduced::new(elements);
        let modes = rigid_body_modes(&reduced.nodes, UnknownOrder::ByNode);
        let blocks = explicit(&reduced.whole, &Amg::with_near_null_space(&reduced.whole, &modes).unwrap());
        let found = explicit(&reduced.a, &Amg::with_near_null_space(&reduced.a, &reduced.modes()).unwrap());
        let nodes: Vec<u32> = reduced.free.iter().map(|&i| i as u32 / 3).collect();
        let m = Amg::with_nodes(&reduced.a, &reduced.modes(), &nodes).unwrap();
        let given = explicit(&reduced.a, &m);
        println!("{elements:?}: blocks {blocks}, nodes found {found}, given {given}");
        assert!(4 * found.max(given) <= 5 * blocks, "blocks {blocks}, found {found}, given {given}");
        // unknowns of one node are in one aggregate
        let aggregates = &m.aggregates()[0];
        for (pair, of) in nodes.windows(2).zip(aggregates.windows(2)) {
            assert!(pair[0] != pair[1] || of[0] == of[1]);
        }
    }
}

#[test]
fn nodes_are_checked() {
    let reduced = Reduced::new([3, 3, 3]);
    let rows = reduced.a.rows();
    let [short, large] = [vec![0; rows - 1], vec![rows as u32; rows]];
    for nodes in [short, large] {
        assert!(Amg::with_nodes(&reduced.a, &reduced.modes(), &nodes).is_err());
    }
}

#[test]
fn coordinates_make_rigid_body_modes() {
    let (a, points) = gallery::elasticity::<f64>([12, 12, 12], 0.3).unwrap();
    let modes = rigid_body_modes(&points, UnknownOrder::ByNode);
    let expected = explicit(&a, &Amg::with_near_null_space(&a, &modes).unwrap());
    let constants = with_amg(Plan::new(&a).unwrap());
    let plan = || Plan::new(&a).unwrap();
    assert!(expected < constants, "{expected}, {constants}");
    assert_eq!(with_amg(plan().coordinates(&points)), expected);
    assert_eq!(with_amg(plan().near_null_space(&modes)), expected);
    let each: Vec<[f64; 3]> = (0..a.rows()).map(|i| points[i / 3]).collect();
    let components: Vec<usize> = (0..a.rows()).map(|i| i % 3).collect();
    assert_eq!(with_amg(plan().unknown_coordinates(&each, &components)), expected);
    let single = a.cast::<f32>();
    let mut solver = Plan::new(&single).unwrap().coordinates(&points).build().unwrap();
    assert!(solver.solve(&vec![1.0; a.rows()]).unwrap().converged());
}

#[test]
fn coordinates_serve_in_any_order_of_unknowns() {
    let reduced = Reduced::new([12, 12, 12]);
    let expected = explicit(&reduced.a, &Amg::with_near_null_space(&reduced.a, &reduced.modes()).unwrap());
    let (points, components) = (reduced.points(), reduced.components());
    let own = with_amg(Plan::new(&reduced.a).unwrap().unknown_coordinates(&points, &components));
    assert!(own.abs_diff(expected) <= 2, "{own}, {expected}");
    // first all x, then all y, then all z
    let mut order: Vec<usize> = (0..reduced.a.rows()).collect();
    order.sort_by_key(|&i| (components[i], i));
    let mut place = vec![0; order.len()];
    order.iter().enumerate().for_each(|(new, &old)| place[old] = new);
    let entries: Vec<_> = reduced.a.triplets().map(|(i, j, v)| (place[i], place[j], v)).collect();
    let a = Csr::from_triplets(order.len(), order.len(), &entries).unwrap();
    let points: Vec<[f64; 3]> = order.iter().map(|&i| points[i]).collect();
    let components: Vec<usize> = order.iter().map(|&i| components[i]).collect();
    let apart = with_amg(Plan::new(&a).unwrap().unknown_coordinates(&points, &components));
    // in another ordering than the user's
    let reordered = a.reordered(&Permutation::rcm(&a).unwrap()).unwrap();
    let moved = with_amg(Plan::new(&reordered).unwrap().unknown_coordinates(&points, &components));
    println!("own {own}, by component {apart}, reordered {moved}");
    assert!(apart <= own + 4 && moved <= own + 4, "{own}, {apart}, {moved}");
}

#[test]
fn what_is_known_stays_for_new_values_and_in_files() {
    let (a, points) = gallery::elasticity::<f64>([8, 8, 8], 0.3).unwrap();
    let plan = Plan::new(&a).unwrap().coordinates(&points);
    let mut solver = plan.method(Method::Cg).preconditioner(Preconditioner::Amg).build().unwrap();
    let path = std::env::temp_dir().join(format!("krysp_{}_known", std::process::id()));
    // nothing was built before saving: the loaded solver builds its preconditioner
    solver.save(&path).unwrap();
    let expected = iterations(&mut solver);
    let mut loaded = PlannedSolver::load(&path, &a, &Host).unwrap();
    assert_eq!(iterations(&mut loaded), expected);
    solver.save(&path).unwrap();
    let mut loaded = PlannedSolver::load(&path, &a, &Host).unwrap();
    assert_eq!(iterations(&mut loaded), expected);
    let doubled: Vec<f64> = a.entries().iter().map(|v| 2.0 * v).collect();
    for solver in [&mut solver, &mut loaded] {
        solver.refresh(&doubled).unwrap();
        assert_eq!(iterations(solver), expected);
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn systems_with_a_null_space() {
    let a = gallery::neumann::<f64>(&[20, 20]).unwrap();
    let b: Vec<f64> = (0..a.rows()).map(|i| 1.0 + (i as f64 * 0.37).sin()).collect();
    let mean = b.iter().sum::<f64>() / b.len() as f64;
    let ones = [vec![1.0; a.rows()]];
    use Preconditioner::{Amg, Cholesky, Ldl, Lu};
    for preconditioner in [None, Some(Amg), Some(Lu), Some(Preconditioner::None)] {
        let plan = Plan::new(&a).unwrap().null_space(&ones);
        let plan = preconditioner.into_iter().fold(plan.clone(), |_, one| plan.clone().preconditioner(one));
        let mut solver = plan.build().unwrap();
        let solved = solver.solve(&b).unwrap();
        assert!(solved.converged(), "{solved}");
        assert!((solved.report.removed - mean.abs() * 20.0).abs() < 1e-9, "{}", solved.report.removed);
        assert!(solved.x.iter().sum::<f64>().abs() < 1e-9, "no constant in x");
        let path = std::env::temp_dir().join(format!("krysp_{}_null", std::process::id()));
        solver.save(&path).unwrap();
        let again = PlannedSolver::load(&path, &a, &Host).unwrap().solve(&b).unwrap();
        assert!(again.converged() && again.x.iter().sum::<f64>().abs() < 1e-9, "{again}");
        let doubled: Vec<f64> = a.entries().iter().map(|v| 2.0 * v).collect();
        solver.refresh(&doubled).unwrap();
        assert!(solver.solve(&b).unwrap().converged());
        std::fs::remove_file(path).unwrap();
    }
    let candidates = Plan::new(&a).unwrap().null_space(&ones).candidates();
    let has = |which: Preconditioner| candidates.iter().any(|one| one.preconditioner == which);
    assert!(has(Lu) && !has(Cholesky) && !has(Ldl));
    let wrong: Vec<f64> = (0..a.rows()).map(|i| i as f64).collect();
    assert!(Plan::new(&a).unwrap().null_space(&[wrong]).build().is_err());
}

/// New values without the declared null space are refused with the error of a new plan, and the old ones stay.
#[test]
fn a_null_space_is_checked_for_new_values() {
    let a = gallery::neumann::<f64>(&[20, 20]).unwrap();
    let b: Vec<f64> = (0..a.rows()).map(|i| (i as f64 * 0.37).sin()).collect();
    let shifted: Vec<f64> =
        a.triplets().map(|(i, j, value)| if i == j { value + 1.0 } else { value }).collect();
    let shifted = a.with_values(&shifted).unwrap();
    let ones = [vec![1.0; a.rows()]];
    let Err(expected) = Plan::new(&shifted).unwrap().null_space(&ones).build() else { panic!("is taken") };
    let mut solver = Plan::new(&a).unwrap().null_space(&ones).build().unwrap();
    let before = solver.solve(&b).unwrap();
    assert!(before.converged());
    assert_eq!(solver.refresh_from(&shifted).unwrap_err().to_string(), expected.to_string());
    let path = std::env::temp_dir().join(format!("krysp_{}_declared", std::process::id()));
    solver.save(&path).unwrap();
    let Err(error) = PlannedSolver::load(&path, &shifted, &Host) else { panic!("is loaded") };
    assert_eq!(error.to_string(), expected.to_string());
    std::fs::remove_file(&path).unwrap();
    // the earlier values are in place
    let after = solver.solve(&b).unwrap();
    let far = |(x, y): (&f64, &f64)| (x - y).abs() > 1e-4 * x.abs().max(1.0);
    assert!(after.converged() && !before.x.iter().zip(&after.x).any(far), "{after}");
}

#[test]
fn coordinates_lead_to_multigrid_at_once() {
    let (a, points) = gallery::elasticity::<f64>([12, 12, 12], 0.3).unwrap();
    // costs depend on the number of threads: with 16, a plan tries `Jacobi` first for so small a system
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let solve = || Plan::new(&a)?.coordinates(&points).build()?.solve(&vec![1.0; a.rows()]);
    let solved = pool.install(solve).unwrap();
    let ran: Vec<_> = solved.attempts.iter().map(|one| one.preconditioner).collect();
    assert!(solved.converged() && ran == [Preconditioner::Amg], "{solved}");
}

#[test]
fn symmetry_and_definiteness_are_taken_from_the_user() {
    let a = gallery::poisson::<f64>(&[10, 10]).unwrap();
    let methods = |plan: Plan<'_, f64>| -> Vec<Method> {
        let solved = plan.build().unwrap().solve(&[1.0; 100]).unwrap();
        assert!(solved.converged(), "{solved}");
        plan.candidates().iter().map(|one| one.method).collect()
    };
    let has = |methods: &[Method], one: Method| methods.contains(&one);
    let found = methods(Plan::new(&a).unwrap());
    assert!(has(&found, Method::Cg) && has(&found, Method::Minres));
    let definite = methods(Plan::new(&a).unwrap().positive_definite(true));
    assert!(has(&definite, Method::Cg) && !has(&definite, Method::Minres));
    let indefinite = methods(Plan::new(&a).unwrap().positive_definite(false));
    assert!(!has(&indefinite, Method::Cg) && indefinite[0] == Method::Minres);
    let unsymmetric = methods(Plan::new(&a).unwrap().symmetric(false));
    assert!(!has(&unsymmetric, Method::Cg) && !has(&unsymmetric, Method::Minres));

    // symmetric except for rounding, as after writing to a file with few digits
    let changed = |by: f64| {
        let entries: Vec<_> =
            a.triplets().map(|(i, j, v)| (i, j, if i > j { v * (1.0 + by) } else { v })).collect();
        Csr::from_triplets(100, 100, &entries).unwrap()
    };
    let [rounded, other] = [1e-8, 1e-2].map(changed);
    assert!(!has(&methods(Plan::new(&rounded).unwrap()), Method::Cg));
    assert_eq!(methods(Plan::new(&rounded).unwrap().symmetric(true))[0], Method::Cg);
    for plan in
        [Plan::new(&other).unwrap().symmetric(true), Plan::new(&other).unwrap().positive_definite(true)]
    {
        let Err(Error::Declaration { why, .. }) = plan.build() else { panic!("is taken") };
        assert!(why.contains("entry (0, 1) is -1e0, entry (1, 0) is -1.01e0"), "{why}");
    }
    let negative = Csr::from_triplets(2, 2, &[(0, 0, 1.0), (1, 1, -2.0)]).unwrap();
    let Err(error) = Plan::new(&negative).unwrap().positive_definite(true).build() else {
        panic!("is taken")
    };
    assert!(error.to_string().contains("row 1 (from 0) is -2e0"), "{error}");
}

#[test]
fn what_does_not_fit_is_refused() {
    let (a, points) = gallery::elasticity::<f64>([2, 2, 2], 0.3).unwrap();
    let rows = a.rows();
    let plan = || Plan::new(&a).unwrap();
    let each = vec![[0.0; 3]; rows];
    let mut infinite = points.clone();
    infinite[4][1] = f64::INFINITY;
    let bend = |at: usize| [at as f64, 0.0, if at == 5 { 1.0 } else { 0.0 }];
    let bent: Vec<[f64; 3]> = (0..rows / 2).map(bend).collect();
    let with =
        |value: f64| vec![vec![1.0; rows], (0..rows).map(|i| if i == 7 { value } else { 1.0 }).collect()];
    let field =
        |at: usize, field: usize| (0..rows).map(|i| if i == at { field } else { 0 }).collect::<Vec<_>>();
    for (plan, expected) in [
        (plan().coordinates(&points[1..]), "coordinates: one point for each node"),
        (plan().coordinates(&[]), "got 0 points for 54 unknowns"),
        (plan().coordinates(&each), "its component (components)"),
        (plan().coordinates(&infinite), "point 4 is"),
        (plan().coordinates(&bent), "point 5 has z = 1"),
        (plan().unknown_coordinates(&points, &vec![0; rows]), "one point for each of 54 unknowns"),
        (plan().unknown_coordinates(&each, &[0]), "components: one for each of 54 unknowns is needed; got 1"),
        (plan().unknown_coordinates(&each, &field(3, 3)), "unknown 3 has 3"),
        (plan().near_null_space(&[vec![1.0; rows - 1]]), "vector 0 has 53"),
        (plan().near_null_space(&with(f64::NAN)), "entry 7 of vector 1 is NaN"),
        (plan().near_null_space(&[vec![0.0; rows]]), "vector 0 is zero"),
        (plan().null_space(&[vec![1.0]]), "null_space: vectors of 54 entries"),
        (plan().fields(&[0, 1]), "fields: one for each of 54 unknowns is needed; got 2"),
        (plan().fields(&field(5, 2)), "no unknown has 1"),
        (plan().fields(&field(5, 99)), "unknown 5 has 99"),
    ] {
        // a plan whose declarations are wrong but not yet checked can be printed
        assert!(!plan.to_string().is_empty());
        let Err(error) = plan.build().map(drop) else { panic!("{expected}: is taken") };
        assert!(error.to_string().contains(expected), "{error}, not {expected}");
    }
    assert!(plan().fields(&field(5, 1)).build().is_ok());
}

#[test]
fn a_plan_says_that_coordinates_would_help() {
    let (a, points) = gallery::elasticity::<f64>([3, 3, 3], 0.3).unwrap();
    let plan = Plan::new(&a).unwrap();
    let hint = plan.hint().unwrap();
    assert!(hint.contains("coordinates") && plan.to_string().contains(&hint), "{plan}");
    assert_eq!(plan.build().unwrap().hint(), Some(hint));
    let informed = plan.coordinates(&points);
    let text = informed.to_string();
    assert!(informed.hint().is_none() && text.contains("given: coordinates of 48 nodes"), "{text}");
    assert!(informed.build().unwrap().hint().is_none());
    assert!(Plan::new(&gallery::poisson::<f64>(&[5, 5]).unwrap()).unwrap().hint().is_none());
}
