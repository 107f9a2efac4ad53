//! Operators of any format on a GPU: the choice of the format, kernels shared by several operators, and values in GPU memory.

use super::gpu;
use super::solves::poisson;
use krysp::formats::OnDevice;
use krysp::solvers::{LinearOperator, Space};
use krysp::testing::laws::{self, Agreement, Violation};
use krysp::testing::matrices::{self, Triplets};
use krysp::{Cg, Csr, Cuda, CudaVector, Operator, Permutation};

gpu_test!(what_is_chosen_obeys_the_laws);
fn what_is_chosen_obeys_the_laws() {
    let gpu = gpu();
    for name in ["st7_20k", "el3_2M_perm", "p1_0.1M_perm", "rmat_2M", "circuit_1M"] {
        let matrix = matrices::named(name).unwrap();
        let (csr, triplets) = (matrix.csr::<f64>().unwrap(), matrix.to_triplets());
        let mut a = Operator::auto(&csr, &gpu).unwrap();
        println!("{name}: {}\n", a.choice());
        let named = |broken: Violation| broken.on(name);
        laws::product(&a, &triplets).map_err(named).unwrap();
        laws::operator_fusions(&a, Agreement::Rounding).map_err(named).unwrap();
        let mut twice = triplets;
        twice.entries.iter_mut().for_each(|entry| entry.2 *= 2.0);
        a.refresh(&csr.entries().iter().map(|value| 2.0 * value).collect::<Vec<_>>()).unwrap();
        laws::product(&a, &twice).map_err(named).unwrap();
    }
    let (csr, b) = poisson(16);
    let a = Operator::auto(&csr, &gpu).unwrap();
    assert!(a.replays());
    assert!(Cg::new(&a).solve(&b).unwrap().report.converged());
    let symmetric = Operator::symmetric(&csr, &gpu).unwrap();
    assert!(Cg::new(&symmetric).solve(&b).unwrap().report.converged());
}

gpu_test!(a_later_matrix_leaves_an_earlier_one_its_shared_memory);
/// Kernels use as much shared memory as a matrix needs: a smaller matrix does not reduce the limit for a larger one.
fn a_later_matrix_leaves_an_earlier_one_its_shared_memory() {
    fn multiplies<F: OnDevice<f64>>(gpu: &Cuda) {
        let [large, small] = [16, 2].map(|nodes| {
            let a = matrices::elasticity(nodes).csr::<f64>().unwrap();
            let entries = a.triplets().map(|(i, j, value)| (i as u32, j as u32, value)).collect();
            Triplets { rows: a.rows(), cols: a.cols(), entries }
        });
        let convert = |triplets: &Triplets| F::on(gpu, &triplets.csr::<f64>().unwrap());
        // a format may refuse both matrices
        let (Ok(first), Ok(second)) = (convert(&large), convert(&small)) else { return };
        laws::product(&first, &large).unwrap();
        laws::product(&second, &small).unwrap();
    }
    let gpu = gpu();
    macro_rules! every_format {
        ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {
            $(krysp::where_on_gpu!($memory, multiplies::<krysp::$format<f64>>(&gpu););)*
        };
    }
    krysp::each_format!(every_format);
}

gpu_test!(values_on_the_device_refresh_what_was_reordered);
/// Values from device memory are stored like those from the host, also in a reordered matrix, and a resident solve uses them.
fn values_on_the_device_refresh_what_was_reordered() {
    let gpu = gpu();
    let given = matrices::elasticity(9).diagonally_dominant().csr::<f64>().unwrap();
    let a = given.reordered(&Permutation::clustered(&given, 96).unwrap()).unwrap();
    let values: Vec<f64> = a.entries().iter().map(|value| 2.5 * value).collect();
    let on_device = gpu.space::<f64>(values.len()).vector(&values).unwrap();
    fn same<F: OnDevice<f64>>(gpu: &Cuda, a: &Csr<f64>, values: &[f64], on_device: &CudaVector<f64>) {
        let (mut one, mut other) = (F::on(gpu, a).unwrap(), F::on(gpu, a).unwrap());
        one.refresh(values).unwrap();
        other.refresh_from_device(on_device).unwrap();
        let (one, other) = (one.to_csr().unwrap(), other.to_csr().unwrap());
        assert!(one.triplets().eq(other.triplets()), "{}", F::NAME);
        let short = gpu.space::<f64>(values.len() - 1).zeros().unwrap();
        assert!(F::on(gpu, a).unwrap().refresh_from_device(&short).is_err());
    }
    macro_rules! every_format {
        ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {
            $(krysp::where_on_gpu!($memory, if krysp::$format::on(&gpu, &a).is_ok() {
                same::<krysp::$format<f64>>(&gpu, &a, &values, &on_device);
            });)*
        };
    }
    krysp::each_format!(every_format);
    // the matrix is multiplied by a factor, so the solution is divided by it
    let b = laws::numbers(a.rows(), 3);
    let mut solver = Cg::new(Csr::on(&gpu, &a).unwrap()).rtol(1e-10);
    let before = solver.solve(&b).unwrap();
    solver.operator_mut().refresh_from_device(&on_device).unwrap();
    let after = solver.solve(&b).unwrap();
    for (x, y) in before.x.iter().zip(&after.x) {
        assert!((x - 2.5 * y).abs() <= 1e-7 * (1.0 + x.abs()), "{x} {y}");
    }
}
