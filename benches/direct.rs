//! Direct factorizations of matrices in ../shared/matrices: time and entries of the factors, time of an application, the normwise
//! backward error after at most two steps of refinement, and how a solve with `b = A 1` ends.
//!
//! ```text
//! cargo bench --bench direct [-- NAME|FILE ...] [--gib 4] [--only Ldl] [--runs 5]
//! cargo bench --bench direct -- --orders FOLDER FILE ...    only orderings, written to FOLDER
//! cargo bench --features faer --bench direct     also faer's factorizations
//! cargo bench --bench direct -- --gpu            also cuDSS on a GPU
//! ```
//!
//! Rows named faer are faer's factorizations of the same matrix on as many threads, without numbers of
//! entries. Without a name, all square matrices of the folder are factorized. A factorization that would take
//! more memory than `--gib` is refused and reported. Names that no file has are those of generated matrices.
//! `refresh_ms` is the time to factorize again with the same pattern. Times are the least of `--runs`, which end after
//! a second. `unrefined` is the backward error without refinement.
//!
//! With `--gpu`, lines named cuDSS have the times of its phases in milliseconds, and factorizations of the host end
//! after a minute. `--gpu` needs the feature `cuda`, which is a default feature.

#[cfg(feature = "cuda")]
use krysp::CuDssKind;
use krysp::testing::matrices::named;
use krysp::testing::{SHARED_FOLDERS, shared_matrices, shared_matrix};
use krysp::{
    BasicVector, Cholesky, Csr, DirectOptions, EliminationOrder, Gmres, HostVector, Ldl, LinearOperator, Lu,
    Refresh, SinglePrecision, Space, elimination_order,
};
use std::path::Path;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let (mut names, mut gib, mut gpu, mut orders, mut only, mut runs) = (vec![], 4.0, false, None, None, 1);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match &*arg {
            "--bench" => {}
            "--gpu" => gpu = true,
            "--orders" => orders = Some(args.next().ok_or("--orders needs a folder")?),
            "--only" => only = Some(args.next().ok_or("--only needs the name of a factorization")?),
            "--runs" => runs = args.next().ok_or("--runs needs a number")?.parse::<usize>()?,
            "--gib" => gib = args.next().ok_or("--gib needs a number")?.parse::<f64>()?,
            name => names.push(name.to_string()),
        }
    }
    let options = DirectOptions { memory: Some((gib * (1u64 << 30) as f64) as usize) };
    println!(
        "matrix,rows,nnz,factorization,setup_ms,refresh_ms,factor_nnz,mib,apply_ms,unrefined,backward,iterations,true_residual"
    );
    if names.is_empty() {
        names = if gpu { ON_GPU.map(String::from).into() } else { all() };
    }
    for name in names {
        let file = Path::new(&name).is_file().then(|| name.clone().into());
        let read = match (file.or_else(|| shared_matrix(&name)), named(&name)) {
            (Some(path), _) => krysp::io::read_matrix(path),
            (None, Some(made)) => made.csr(),
            (None, None) => return Err(format!("no matrix {name}").into()),
        };
        let a: Csr<f64> = match read {
            Ok(a) => a,
            Err(error) => {
                println!("{name},,,,,,,,,,,,\"{error}\"");
                continue;
            }
        };
        if a.rows() != a.cols() {
            continue;
        }
        if let Some(folder) = &orders {
            write_orders(folder, &name, &a)?;
            continue;
        }
        #[cfg(feature = "cuda")]
        if gpu {
            beside_the_host(&name, &a, options)?;
            continue;
        }
        let run = |what: &str| if only.as_ref().is_none_or(|only| only == what) { runs } else { 0 };
        if a.check_symmetric(1e-10).is_ok() {
            let runs = run("Cholesky");
            report(&name, &a, "Cholesky", runs, || Ok(Cholesky::with(&a, options)?), Cholesky::nnz)?;
            report(&name, &a, "Ldl", run("Ldl"), || Ok(Ldl::with(&a, options)?), Ldl::nnz)?;
        }
        report(&name, &a, "Lu", run("Lu"), || Ok(Lu::with(&a, options)?), Lu::nnz)?;
        let narrow = || Ok(SinglePrecision::new(Lu::with(&a.cast::<f32>(), options)?)?);
        #[cfg(feature = "faer")]
        if run("faer") > 0 {
            beside_faer(&name, &a)?;
        }
        report(&name, &a, "Lu f32", run("Lu f32"), narrow, |lu| lu.inner().nnz())?;
    }
    Ok(())
}

/// Writes orderings of the pattern of a symmetric matrix to `folder/NAME.ORDERING.npy`, and prints the times in milliseconds.
fn write_orders(folder: &str, name: &str, a: &Csr<f64>) -> Result<()> {
    let stem = Path::new(name).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    print!("{stem}");
    for ordering in EliminationOrder::ALL {
        let start = Instant::now();
        let order = elimination_order(a, ordering)?;
        print!(",{:.3}", milliseconds(start));
        let values: Vec<f64> = order.iter().map(|&v| f64::from(v)).collect();
        krysp::io::write_vector(Path::new(folder).join(format!("{stem}.{ordering:?}.npy")), &values)?;
    }
    println!();
    Ok(())
}

/// Matrices for `--gpu`.
const ON_GPU: [&str; 4] = ["elast20", "elast30", "p7_56", "convdiff_channel_p1_186k"];

/// Time limit of a factorization of the host beside a GPU.
const MINUTE: Duration = Duration::from_secs(60);

/// Prints lines for factorizations of the host and for cuDSS.
#[cfg(feature = "cuda")]
fn beside_the_host(name: &str, a: &Csr<f64>, options: DirectOptions) -> Result<()> {
    let cancel = krysp::CancelToken::default();
    let limited = || krysp::Interrupt::new(&cancel).time_limit(MINUTE);
    if a.check_symmetric(1e-10).is_ok() {
        let build = || Ok(limited().run(|| Cholesky::with(a, options))?);
        report(name, a, "Cholesky", 1, build, Cholesky::nnz)?;
        report(name, a, "Ldl", 1, || Ok(limited().run(|| Ldl::with(a, options))?), Ldl::nnz)?;
    }
    report(name, a, "Lu", 1, || Ok(limited().run(|| Lu::with(a, options))?), Lu::nnz)?;
    let gpu = krysp::Cuda::new(0)?;
    for kind in [CuDssKind::PositiveDefinite, CuDssKind::Symmetric, CuDssKind::General] {
        if kind != CuDssKind::General && a.check_symmetric(1e-10).is_err() {
            continue;
        }
        // the first one loads the library
        for run in ["first", "second"] {
            match on_gpu(&gpu, a, kind) {
                Ok(line) => println!("{name},{},{},cuDSS {kind:?} {run},{line}", a.rows(), a.nnz()),
                Err(error) => println!("{name},{},{},cuDSS {kind:?} {run},\"{error}\"", a.rows(), a.nnz()),
            }
        }
    }
    Ok(())
}

/// Times of the phases of cuDSS in milliseconds: analysis, factorization, refactorization, and a solve alone and of 8 vectors
/// together; then how a solve with `b = A 1` ends.
#[cfg(feature = "cuda")]
fn on_gpu(gpu: &krysp::Cuda, csr: &Csr<f64>, kind: CuDssKind) -> Result<String> {
    use krysp::{CuDss, MultiVector, ToCuda};
    let a = csr.to(gpu)?;
    let start = Instant::now();
    let mut m = CuDss::with_kind(gpu, &a, kind)?;
    let whole = milliseconds(start);
    let first = m.report().clone();
    m.refresh(&a)?;
    let again = m.report().clone();
    let ones = a.domain().vector(&vec![1.0; csr.rows()])?;
    let (mut b, mut x) = (a.domain().zeros()?, a.domain().zeros()?);
    a.apply(&ones, &mut b)?;
    let timed = |work: &mut dyn FnMut() -> krysp::solvers::Result<()>| -> Result<f64> {
        let mut least = f64::INFINITY;
        for _ in 0..5 {
            gpu.synchronize()?;
            let start = Instant::now();
            work()?;
            gpu.synchronize()?;
            least = least.min(milliseconds(start));
        }
        Ok(least)
    };
    let solve = timed(&mut || m.apply(&b, &mut x))?;
    let many_b = MultiVector::zeros(a.domain(), 8)?;
    let mut many_x = MultiVector::zeros(a.domain(), 8)?;
    let many = timed(&mut || m.apply_many(&many_b, &mut many_x))?;
    let mut right = vec![0.0; csr.rows()];
    a.domain().store(&b, &mut right)?;
    let report = Gmres::new(&a).preconditioner(m).rtol(1e-10).max_iterations(50).solve(&right)?.report;
    let [analysis, factorization] =
        [first.analysis, first.factorization].map(|time| 1e3 * time.as_secs_f64());
    let refactorization = 1e3 * again.factorization.as_secs_f64();
    let norm = right.iter().map(|b| b * b).sum::<f64>().sqrt();
    Ok(format!(
        "setup {whole:.1}, analysis {analysis:.1}, factorization {factorization:.1}, refactorization {refactorization:.1}, solve \
         {solve:.3}, 8 solves {many:.3}, {} entries, {} perturbed, residual {:.1e}, {} iterations to {:.1e}",
        first.factor_entries,
        first.perturbed_pivots,
        first.residual,
        report.iterations,
        report.true_residual / norm
    ))
}

/// Prints lines for faer's factorizations.
#[cfg(feature = "faer")]
fn beside_faer(name: &str, a: &Csr<f64>) -> Result<()> {
    use faer::linalg::solvers::SolveCore;
    use faer::sparse::SparseRowMat;
    let matrix = SparseRowMat::<usize, f64>::from(a).to_col_major().map_err(|error| format!("{error:?}"))?;
    let mut b = a.range().zeros()?;
    a.apply(&HostVector::from_slice(&vec![1.0; a.rows()]), &mut b)?;
    let line = |what: &str,
                start: Instant,
                solver: std::result::Result<&dyn SolveCore<f64>, String>|
     -> Result<()> {
        let (setup, rows, nnz) = (milliseconds(start), a.rows(), a.nnz());
        let solver = match solver {
            Ok(solver) => solver,
            Err(error) => {
                println!("{name},{rows},{nnz},{what},{setup:.2},,,,,,,,\"{error}\"");
                return Ok(());
            }
        };
        let mut x = b.as_slice().to_vec();
        let start = Instant::now();
        let column = faer::MatMut::from_column_major_slice_mut(&mut x, rows, 1);
        solver.solve_in_place_with_conj(faer::Conj::No, column);
        let apply = milliseconds(start);
        let (x, mut r) = (HostVector::from_slice(&x), a.range().zeros()?);
        a.residual(&b, &x, &mut r)?;
        let residual = (r.dot(&r) / b.dot(&b)).sqrt();
        println!("{name},{rows},{nnz},{what},{setup:.2},,,,{apply:.3},,,,{residual:.1e}");
        Ok(())
    };
    if a.check_symmetric(1e-10).is_ok() {
        let start = Instant::now();
        let llt = matrix.as_ref().sp_cholesky(faer::Side::Lower);
        line("faer Cholesky", start, llt.as_ref().map(|llt| llt as _).map_err(|error| format!("{error:?}")))?;
    }
    let start = Instant::now();
    let lu = matrix.as_ref().sp_lu();
    line("faer Lu", start, lu.as_ref().map(|lu| lu as _).map_err(|error| format!("{error:?}")))
}

/// The names of all matrices, small files first.
fn all() -> Vec<String> {
    let mut files = vec![];
    for folder in SHARED_FOLDERS {
        for file in std::fs::read_dir(shared_matrices().join(folder)).into_iter().flatten().flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            let part =
                ["_b", "_x", "_f", "_coord"].iter().any(|end| name.ends_with(&format!("{end}.mtx.gz")));
            if let (Some(name), false) = (name.strip_suffix(".mtx.gz"), part) {
                files.push((file.metadata().map_or(0, |data| data.len()), name.to_string()));
            }
        }
    }
    files.sort();
    files.into_iter().map(|(_, name)| name).collect()
}

/// Prints a line for a factorization, or the error: the least times of so many runs, or nothing for no run.
fn report<M: LinearOperator<Vector = HostVector<f64>> + Refresh<f64>>(
    name: &str,
    a: &Csr<f64>,
    what: &str,
    runs: usize,
    build: impl Fn() -> Result<M>,
    nnz: impl Fn(&M) -> usize,
) -> Result<()> {
    if runs == 0 {
        return Ok(());
    }
    let mut built = Err("no run".into());
    let setup = least(runs, &mut || {
        built = build();
        Ok(())
    })?;
    let (rows, entries) = (a.rows(), a.nnz());
    let mut m = match built {
        Ok(m) => m,
        Err(error) => {
            println!("{name},{rows},{entries},{what},{setup:.2},,,,,,,,\"{error}\"");
            return Ok(());
        }
    };
    let ones = HostVector::from_slice(&vec![1.0; rows]);
    let mut b = a.range().zeros()?;
    a.apply(&ones, &mut b)?;
    let mut x = a.domain().zeros()?;
    let apply = least(5, &mut || Ok(m.apply(&b, &mut x)?))?;
    let [unrefined, backward] = backward_errors(a, &m, &b)?;
    let (nnz, mib) = (nnz(&m), m.bytes() as f64 / (1 << 20) as f64);
    let refresh = least(runs, &mut || Ok(m.refresh(a)?))?;
    let report = Gmres::new(a).preconditioner(m).rtol(1e-10).max_iterations(50).solve(b.as_slice())?.report;
    let (iterations, residual) = (report.iterations, report.true_residual / b.dot(&b).sqrt());
    println!(
        "{name},{rows},{entries},{what},{setup:.3},{refresh:.3},{nnz},{mib:.1},{apply:.4},{unrefined:.1e},{backward:.1e},\
         {iterations},{residual:.1e}"
    );
    Ok(())
}

/// `‖b − A x‖ / (‖A‖ ‖x‖ + ‖b‖)` in the maximum norm after a solve, and the minimum over the solve and two steps of refinement.
fn backward_errors<M: LinearOperator<Vector = HostVector<f64>>>(
    a: &Csr<f64>,
    m: &M,
    b: &HostVector<f64>,
) -> Result<[f64; 2]> {
    // infinite for NaN, which `max` would ignore
    let magnitude = |value: f64| if value.is_nan() { f64::INFINITY } else { value.abs() };
    let most = |v: &[f64]| v.iter().fold(0.0f64, |most, &value| most.max(magnitude(value)));
    let row = |row| a.row_values(row).iter().map(|value| value.abs()).sum();
    let norm = (0..a.rows()).map(row).fold(0.0, f64::max);
    let (mut x, mut r, mut z) = (a.domain().zeros()?, a.range().zeros()?, a.domain().zeros()?);
    let mut errors = vec![];
    r.as_mut_slice().copy_from_slice(b.as_slice());
    for _ in 0..3 {
        m.apply(&r, &mut z)?;
        x.as_mut_slice().iter_mut().zip(z.as_slice()).for_each(|(x, z)| *x += z);
        a.residual(b, &x, &mut r)?;
        errors.push(most(r.as_slice()) / (norm * most(x.as_slice()) + most(b.as_slice())));
    }
    Ok([errors[0], errors.into_iter().fold(f64::INFINITY, f64::min)])
}

/// The least time in milliseconds of so many runs, which end after a second.
fn least(runs: usize, work: &mut dyn FnMut() -> Result<()>) -> Result<f64> {
    let (mut least, began) = (f64::INFINITY, Instant::now());
    for run in 0..runs {
        if run > 0 && began.elapsed() > Duration::from_secs(1) {
            break;
        }
        let start = Instant::now();
        work()?;
        least = least.min(milliseconds(start));
    }
    Ok(least)
}

fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}
