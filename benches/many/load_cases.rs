//! Preconditioners applied to several vectors, and eight load cases by conjugate gradients with AMG.

use super::{Result, best, products};
use krysp::io::read_columns;
use krysp::testing::shared_matrix;
use krysp::{
    Amg, Cg, Cholesky, Csr, DirectOptions, HostVector, Ic0, Jacobi, Ldl, LinearOperator, Lu, Operator, Space,
    UnknownOrder, rigid_body_modes,
};

/// Maximum memory of a complete factorization.
const MEMORY: usize = 2 << 30;

pub(crate) fn all(name: &str, a: &Csr<f64>, operator: &Operator<HostVector<f64>>) -> Result<()> {
    let modes = modes(name)?;
    let amg = Amg::with_near_null_space(a, &modes)?;
    products("AMG", &amg)?;
    load_cases(operator, &amg)?;
    if !modes.is_empty() {
        products("blocks of 3", &Jacobi::blocks(a, 3)?)?;
    }
    products("blocks of 30", &Jacobi::blocks(a, 30)?)?;
    products("IC(0)", &Ic0::new(a)?)?;
    let options = DirectOptions { memory: Some(MEMORY) };
    match Cholesky::with(a, options) {
        Ok(cholesky) => {
            products("Cholesky", &cholesky)?;
            drop(cholesky);
            products("LDL", &Ldl::with(a, options)?)?;
            products("LU", &Lu::with(a, options)?)?;
        }
        Err(error) => println!("  Cholesky: {error}"),
    }
    Ok(())
}

/// Rigid body modes of elasticity; none for other matrices.
fn modes(name: &str) -> Result<Vec<Vec<f64>>> {
    if let Some(side) = name.strip_prefix("elasticity_").and_then(|side| side.parse::<usize>().ok()) {
        let place = |i: usize| [i % side, i / side % side, i / side / side].map(|x| x as f64);
        let points: Vec<_> = (0..side.pow(3)).map(place).collect();
        return Ok(rigid_body_modes(&points, UnknownOrder::ByNode));
    }
    let Some(path) = shared_matrix(&format!("{name}_coord")) else { return Ok(vec![]) };
    let axes: Vec<Vec<f64>> = read_columns(path)?;
    let [x, y, z] = &axes[..] else { return Err("coordinates have three columns".into()) };
    let points: Vec<_> = x.iter().zip(y).zip(z).map(|((&x, &y), &z)| [x, y, z]).collect();
    Ok(rigid_body_modes(&points, UnknownOrder::ByNode))
}

/// Eight load cases to a relative residual of 1e-8, one after the other and together.
fn load_cases(operator: &Operator<HostVector<f64>>, amg: &Amg<f64>) -> Result<()> {
    let n = operator.domain().len();
    let b: Vec<Vec<f64>> = (1..9).map(|j| (0..n).map(|i| ((i * j) % 17) as f64 - 8.0).collect()).collect();
    let solver = || Cg::new(operator).preconditioner(amg).rtol(1e-8);
    let (mut single, mut many) = (solver(), solver());
    let (mut own, mut together) = (vec![], vec![]);
    let [one, joint] =
        best([&mut || own = b.iter().filter_map(|b| single.solve(b).ok()).collect(), &mut || {
            together = many.solve_many(&b).unwrap_or_default()
        }]);
    let iterations: Vec<usize> = together.iter().map(|solution| solution.report.iterations).collect();
    let same = own.len() == 8 && own.iter().zip(&together).all(|(own, together)| own.x == together.x);
    println!(
        "  8 load cases, CG with AMG: one by one {one:.0} ms, together {joint:.0} ms, {:.3} of it; iterations {iterations:?}, same solutions: {same}",
        joint / one
    );
    Ok(())
}
