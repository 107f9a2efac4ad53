//! Model problems: entries, eigenvectors, symmetry, and sizes that are refused.

use krysp::gallery::{convection_diffusion, elasticity, helmholtz, neumann, poisson, stokes};
use krysp::testing::matrices::stencil7;
use krysp::{Cholesky, Csr, Error, UnknownOrder, rigid_body_modes};

fn dense(a: &Csr<f64>) -> Vec<Vec<f64>> {
    let at = |i, j| a.get(i, j).unwrap_or(0.0);
    (0..a.rows()).map(|i| (0..a.cols()).map(|j| at(i, j)).collect()).collect()
}

fn apply(a: &Csr<f64>, x: &[f64]) -> Vec<f64> {
    let row = |i| a.row_columns(i).iter().zip(a.row_values(i)).map(|(&j, v)| v * x[j as usize]).sum();
    (0..a.rows()).map(row).collect()
}

#[test]
fn poisson_has_the_eigenvectors_of_its_formula() {
    for points in [&[7][..], &[4, 6], &[3, 5, 2], &[1, 1, 4, 2]] {
        let a = poisson::<f64>(points).unwrap();
        // eigenvectors are products of sines; here the one with frequency d + 1 in direction d
        let angle = |d: usize| (d + 1) as f64 * std::f64::consts::PI / (points[d] + 1) as f64;
        let (mut vector, mut stride) = (vec![1.0; a.rows()], 1);
        for (d, &count) in points.iter().enumerate() {
            for (node, entry) in vector.iter_mut().enumerate() {
                *entry *= (angle(d) * (node / stride % count + 1) as f64).sin();
            }
            stride *= count;
        }
        let eigenvalue: f64 = (0..points.len()).map(|d| 4.0 * (0.5 * angle(d)).sin().powi(2)).sum();
        for (left, right) in apply(&a, &vector).iter().zip(&vector) {
            assert!((left - eigenvalue * right).abs() < 1e-13, "{points:?}");
        }
    }
}

#[test]
fn a_cube_is_the_stencil_of_the_benches() {
    assert_eq!(dense(&poisson(&[5; 3]).unwrap()), dense(&stencil7(5).csr().unwrap()));
}

#[test]
fn convection_diffusion_is_upwind_in_both_directions() {
    let a = convection_diffusion::<f64>(&[3], &[2.0]).unwrap();
    assert_eq!(dense(&a), [[4.0, -1.0, 0.0], [-3.0, 4.0, -1.0], [0.0, -3.0, 4.0]]);
    let a = convection_diffusion::<f64>(&[3], &[-2.0]).unwrap();
    assert_eq!(dense(&a), [[4.0, -3.0, 0.0], [-1.0, 4.0, -3.0], [0.0, -1.0, 4.0]]);
    let still = convection_diffusion::<f64>(&[3, 4], &[0.0, 0.0]).unwrap();
    assert_eq!(dense(&still), dense(&poisson(&[3, 4]).unwrap()));
}

#[test]
fn neumann_maps_constants_to_zero_and_helmholtz_shifts_the_diagonal() {
    for points in [&[1][..], &[5], &[3, 4], &[2, 3, 4]] {
        let a = neumann::<f64>(points).unwrap();
        assert_eq!(apply(&a, &vec![1.0; a.rows()]), vec![0.0; a.rows()], "{points:?}");
    }
    let (waves, still) = (helmholtz::<f64>(&[3, 4], 0.5).unwrap(), poisson::<f64>(&[3, 4]).unwrap());
    for ((i, j, shifted), (_, _, value)) in waves.triplets().zip(still.triplets()) {
        assert_eq!(shifted, if i == j { value - 0.25 } else { value });
    }
}

#[test]
fn elasticity_is_symmetric_definite_and_free_of_forces_in_rigid_motion() {
    let (a, points) = elasticity::<f64>([3, 2, 1], 0.3).unwrap();
    assert_eq!((a.rows(), points.len()), (54, 18));
    a.check_symmetric(0.0).unwrap();
    Cholesky::new(&a).unwrap();
    let modes = rigid_body_modes(&points, UnknownOrder::ByNode);
    for mode in &modes {
        let forces = apply(&a, mode);
        // only nodes that share an element with a clamped node have reaction forces: the first plane of
        // constant x, which has six nodes
        assert!(forces[18..].iter().all(|force| force.abs() < 1e-14), "{forces:?}");
    }
    assert!(apply(&a, &modes[0])[..18].iter().any(|force| force.abs() > 0.1));
}

#[test]
fn sizes_and_parameters_that_make_no_problem_are_refused() {
    let text = |error: Error| error.to_string();
    for points in [&[][..], &[0], &[4, 0, 2]] {
        let refused = text(poisson::<f64>(points).unwrap_err());
        assert!(refused.starts_with("the number of points is ["), "{refused}");
    }
    for points in [&[1 << 16; 3][..], &[usize::MAX, 2]] {
        assert!(matches!(poisson::<f64>(points), Err(Error::TooLarge { what: "row", .. })));
    }
    assert!(
        text(convection_diffusion::<f64>(&[3], &[]).unwrap_err()).contains("`peclet` must have 1 entries")
    );
    assert!(
        text(convection_diffusion::<f64>(&[3], &[f64::NAN]).unwrap_err()).contains("Péclet number is NaN")
    );
    assert!(text(helmholtz::<f64>(&[3], f64::INFINITY).unwrap_err()).contains("`kh` is inf"));
    assert!(elasticity::<f64>([0, 1, 1], 0.3).is_err());
    assert!(matches!(elasticity::<f64>([usize::MAX; 3], 0.3), Err(Error::TooLarge { .. })));
    for ratio in [-1.0, 0.5, f64::NAN] {
        assert!(text(elasticity::<f64>([1; 3], ratio).unwrap_err()).starts_with("Poisson's ratio is"));
    }
}

#[test]
fn stokes_is_the_staggered_scheme() {
    // one cell has two unknowns: the velocity on the face at its outlet, which is between two walls, and the
    // pressure
    assert_eq!(dense(&stokes(&[1, 1]).unwrap()), [[3.0, -1.0], [-1.0, 0.0]]);
    for cells in [&[4, 3][..], &[3, 2, 4]] {
        let a = stokes::<f64>(cells).unwrap();
        let pressures: usize = cells.iter().product();
        let velocities = a.rows() - pressures;
        assert!(a.triplets().all(|(i, j, value)| a.get(j, i) == Some(value)), "{cells:?}");
        assert!(a.triplets().all(|(i, j, _)| i < velocities || j < velocities), "{cells:?}");
        // a linear pressure gradient drives a flow along the channel only, and the pressure is zero at the outlet
        let mut x = vec![0.0; a.rows()];
        (0..pressures).for_each(|cell| x[velocities + cell] = (cells[0] - cell % cells[0]) as f64);
        for (row, force) in apply(&a, &x).into_iter().enumerate().take(velocities) {
            assert_eq!(force, if row < pressures { -1.0 } else { 0.0 }, "{cells:?}, row {row}");
        }
    }
    // far from the inlet, the velocity between the walls is a parabola; as the walls are half a cell from the
    // outer faces, the discrete solution is u = y (n − y) / 2 + 1/8
    let (a, n) = (stokes::<f64>(&[5, 6]).unwrap(), 6.0);
    let mut x = vec![0.0; a.rows()];
    for (face, x) in x.iter_mut().enumerate().take(30) {
        let y = (face / 5) as f64 + 0.5;
        *x = 0.5 * y * (n - y) + 0.125;
    }
    let forces = apply(&a, &x);
    (0..30).filter(|face| face % 5 > 0).for_each(|face| {
        let expected = if face % 5 == 4 { 0.5 } else { 1.0 };
        assert!((forces[face] - expected).abs() < 1e-14, "face {face}: {}", forces[face]);
    });
}
