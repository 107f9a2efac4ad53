//! A beam that bends under its own weight, assembled by the crate fenris and solved by krysp.
//!
//! fenris stores its matrix as `CsrMatrix` of another version of nalgebra-sparse than krysp supports. Therefore the matrix is
//! passed as slices of offsets, columns and values.
//!
//! ```text
//! cargo run --release --manifest-path examples/fenris_elasticity/Cargo.toml
//! ```

use fenris::assembly::global::{
    CsrAssembler, VectorAssembler, apply_homogeneous_dirichlet_bc_csr, apply_homogeneous_dirichlet_bc_rhs,
};
use fenris::assembly::local::{
    Density, ElementEllipticAssemblerBuilder, ElementSourceAssemblerBuilder, UniformQuadratureTable,
};
use fenris::mesh::procedural::create_rectangular_uniform_hex_mesh;
use fenris::nalgebra::{DVector, Vector3};
use fenris::nalgebra_sparse::CsrMatrix;
use fenris::quadrature;
use fenris_solid::materials::{LameParameters, LinearElasticMaterial, YoungPoisson};
use fenris_solid::{GravitySource, MaterialEllipticOperator};
use krysp::formats::{Bsr, BsrOptions};
use krysp::{Cg, Csr, Format, Jacobi, LinearOperator};
use std::time::Instant;

/// A steel beam of square section: thickness and length in m, Young's modulus in Pa, density in kg/m³.
const THICKNESS: f64 = 0.1;
const LENGTH_IN_THICKNESSES: usize = 8;
const YOUNG: f64 = 210e9;
const POISSON: f64 = 0.3;
const DENSITY: f64 = 7850.0;
const GRAVITY: f64 = 9.81;
/// Hexahedra across the thickness.
const CELLS: usize = 6;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let started = Instant::now();
    let (matrix, load) = assemble()?;
    println!("fenris     {} unknowns, {} entries, {:.2?}", matrix.nrows(), matrix.nnz(), started.elapsed());

    // Pass the matrix to krysp.
    let started = Instant::now();
    let a = Csr::from_csr(
        matrix.nrows(),
        matrix.ncols(),
        matrix.row_offsets(),
        matrix.col_indices(),
        matrix.values(),
    )?;
    // Three displacements at each node: dense blocks of 3 × 3.
    let blocks = Bsr::with(&a, BsrOptions { size: Some(3) })?;
    let megabytes = [blocks.bytes(), a.bytes()].map(|bytes| bytes as f64 / 1e6);
    println!(
        "format     {}, {:.1} MB instead of {:.1} MB in {}, {:.2?}",
        Bsr::<f64>::NAME,
        megabytes[0],
        megabytes[1],
        Csr::<f64>::NAME,
        started.elapsed()
    );

    let solution = Cg::new(&blocks).preconditioner(Jacobi::new(&a)?).rtol(1e-8).solve(load.as_slice())?;
    println!("solve      {}", solution.report);
    assert!(solution.report.converged());

    // Compute the residual again, by nalgebra-sparse.
    let displacement = DVector::from_vec(solution.x);
    let residual = (&load - &matrix * &displacement).norm() / load.norm();
    println!("residual   {residual:.2e} by nalgebra-sparse");
    assert!(residual <= 2e-8);

    // The deflection of a slender beam, which neglects the shear of a thick one and the stiffness of coarse elements.
    let section = THICKNESS * THICKNESS;
    let (length, inertia) = (THICKNESS * LENGTH_IN_THICKNESSES as f64, section * section / 12.0);
    let expected = DENSITY * GRAVITY * section * length.powi(4) / (8.0 * YOUNG * inertia);
    let deflection = displacement.iter().skip(2).step_by(3).fold(0.0, |low: f64, &z| low.min(z)).abs();
    println!("result     bends by {:.3} µm, by beam theory {:.3} µm", deflection * 1e6, expected * 1e6);
    assert!((deflection / expected - 1.0).abs() < 0.05);
    Ok(())
}

/// Assembles the beam, clamped at x = 0, by fenris: stiffness and load.
fn assemble() -> fenris::eyre::Result<(CsrMatrix<f64>, DVector<f64>)> {
    let mesh = create_rectangular_uniform_hex_mesh(THICKNESS, LENGTH_IN_THICKNESSES, 1, 1, CELLS);
    let quadrature = UniformQuadratureTable::from_quadrature(quadrature::tensor::hexahedron_gauss(2));

    let elasticity = MaterialEllipticOperator::new(&LinearElasticMaterial);
    let lame = LameParameters::from(YoungPoisson { young: YOUNG, poisson: POISSON });
    let elastic_points = quadrature.clone().with_uniform_data(lame);
    let undeformed = DVector::zeros(3 * mesh.vertices().len());
    let stiffness = ElementEllipticAssemblerBuilder::new()
        .with_finite_element_space(&mesh)
        .with_operator(&elasticity)
        .with_quadrature_table(&elastic_points)
        .with_u(&undeformed)
        .build();
    let mut matrix = CsrAssembler::default().assemble(&stiffness)?;

    let gravity = GravitySource::from_acceleration(Vector3::new(0.0, 0.0, -GRAVITY));
    let heavy_points = quadrature.with_uniform_data(Density(DENSITY));
    let weight = ElementSourceAssemblerBuilder::new()
        .with_finite_element_space(&mesh)
        .with_source(&gravity)
        .with_quadrature_table(&heavy_points)
        .build();
    let mut load = VectorAssembler::default().assemble_vector(&weight)?;

    let clamped: Vec<usize> =
        (0..mesh.vertices().len()).filter(|&node| mesh.vertices()[node].x < 1e-9 * THICKNESS).collect();
    apply_homogeneous_dirichlet_bc_csr(&mut matrix, &clamped, 3);
    apply_homogeneous_dirichlet_bc_rhs(&mut load, &clamped, 3);
    Ok((matrix, load))
}
