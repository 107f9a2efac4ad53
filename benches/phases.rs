//! Times of products, setup phases and whole solves by the number of threads, beside the two limits of the machine: a dense product
//! (arithmetic) and a copy (memory), measured in the same run.
//!
//! ```text
//! cargo bench --features faer --bench phases                   p7_128, elast55
//! cargo bench --features faer --bench phases -- p7_64 tet_nat --counts 1,2     other matrices and numbers of threads; 1,2,4,8,16 by default
//!     --only WORD                                               only phases whose name contains WORD, and the two limits
//! ```
//!
//! Prints the milliseconds with each number of threads (the least of several runs), and the speedup from the first to the last one.
//! Each number of threads has a separate Rayon pool, inside which everything is measured. Numbers beyond the processors of the
//! machine are left out.

#[allow(dead_code, unreachable_pub, reason = "a part of it is used")]
#[path = "common/machine.rs"]
mod machine;

use krysp::testing::matrices::named;
use krysp::testing::shared_matrix;
use krysp::{
    Amg, Bsr, Cg, Cholesky, Csr, Dia, Format, Fsai, HostVector, Ic0, Ilu0, Ilut, Jacobi, Ldl, LinearOperator,
    Lu, Operator, Permutation, Plan, Refresh, Sell, Space, Spai, SymBsr, SymCsr,
};
use std::hint::black_box;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A phase is run again until its runs have taken this long together, or `RUNS` times.
const LONG: Duration = Duration::from_millis(300);
const RUNS: usize = 30;
/// Order of the dense product.
#[cfg(feature = "faer")]
const ORDER: usize = 3000;

/// A phase: its name, and what is measured. `None`: it does not apply to the matrix.
type Phase<'a> = (&'static str, Box<dyn Fn() -> Option<Duration> + Send + Sync + 'a>);

fn main() -> Result<()> {
    let (mut names, mut counts, mut only) = (vec![], vec![1, 2, 4, 8, 16], None);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match &*arg {
            "--bench" => {}
            "--counts" => {
                let list = args.next().ok_or("--counts needs numbers")?;
                counts = list.split(',').map(str::parse).collect::<std::result::Result<_, _>>()?;
            }
            "--only" => only = Some(args.next().ok_or("--only needs a word")?),
            name => names.push(name.to_string()),
        }
    }
    if names.is_empty() {
        names = vec!["p7_128".into(), "elast55".into()];
    }
    let processors = std::thread::available_parallelism()?.get();
    counts.retain(|&count| count <= processors.max(1));
    println!("{}", machine::device());
    let pools = counts.iter().map(|&count| rayon::ThreadPoolBuilder::new().num_threads(count).build());
    let pools = pools.collect::<std::result::Result<Vec<_>, _>>()?;
    print!("{:28}", "milliseconds, threads:");
    counts.iter().for_each(|count| print!("{count:>10}"));
    println!("{:>10}", "speedup");
    print_phase(&pools, &dense_product());
    print_phase(&pools, &copy());
    for name in names {
        let a = match named(&name) {
            Some(generated) => generated.csr()?,
            None => krysp::io::read_matrix(shared_matrix(&name).ok_or_else(|| format!("no matrix {name}"))?)?,
        };
        println!("{name}: {} rows, {} entries", a.rows(), a.nnz());
        for phase in phases(&a) {
            if only.as_ref().is_none_or(|only| phase.0.to_lowercase().contains(&only.to_lowercase())) {
                print_phase(&pools, &phase);
            }
        }
    }
    Ok(())
}

fn print_phase(pools: &[rayon::ThreadPool], (name, phase): &Phase<'_>) {
    let mut least = vec![];
    for pool in pools {
        let Some(time) = pool.install(phase) else { return };
        let (mut best, mut total) = (time, time);
        for _ in 1..RUNS {
            if total >= LONG {
                break;
            }
            let time = pool.install(phase).unwrap_or(best);
            total += time;
            best = best.min(time);
        }
        least.push(best.as_secs_f64() * 1e3);
    }
    print!("{name:28}");
    least.iter().for_each(|ms| print!("{ms:>10.3}"));
    let speedup = least.first().zip(least.last()).map_or(1.0, |(first, last)| first / last);
    println!("{speedup:>10.2}");
}

/// Times `work`; a result that is an error does not count.
fn timed<R, E>(work: impl FnOnce() -> std::result::Result<R, E>) -> Option<Duration> {
    let started = Instant::now();
    let result = work().ok()?;
    let time = started.elapsed();
    drop(black_box(result));
    Some(time)
}

fn repeated(times: u32, mut work: impl FnMut() -> krysp::solvers::Result<()>) -> Option<Duration> {
    timed(|| (0..times).try_for_each(|_| work())).map(|time| time / times)
}

/// Product of dense matrices by faer, if the feature `faer` is on.
fn dense_product<'a>() -> Phase<'a> {
    #[cfg(feature = "faer")]
    {
        let a = faer::Mat::<f64>::from_fn(ORDER, ORDER, |i, j| ((i + 3 * j) % 7) as f64);
        let product = move || {
            let threads = faer::Par::rayon(rayon::current_num_threads());
            let mut c = faer::Mat::<f64>::zeros(ORDER, ORDER);
            timed(|| {
                faer::linalg::matmul::matmul(
                    c.as_mut(),
                    faer::Accum::Replace,
                    a.as_ref(),
                    a.as_ref(),
                    1.0,
                    threads,
                );
                Ok::<_, ()>(())
            })
        };
        ("dense product", Box::new(product))
    }
    #[cfg(not(feature = "faer"))]
    ("dense product", Box::new(|| None))
}

fn copy<'a>() -> Phase<'a> {
    use rayon::prelude::*;
    let from = vec![1.0_f64; 32 << 20];
    let to = std::sync::Mutex::new(vec![0.0_f64; 32 << 20]);
    (
        "copy of 256 MB",
        Box::new(move || {
            let mut to = to.lock().ok()?;
            timed(|| {
                to.par_chunks_mut(1 << 16)
                    .zip(from.par_chunks(1 << 16))
                    .for_each(|(to, from)| to.copy_from_slice(from));
                Ok::<_, ()>(())
            })
        }),
    )
}

fn product<'a, A>(name: &'static str, a: Option<A>) -> Phase<'a>
where
    A: LinearOperator<Vector = HostVector<f64>> + Send + Sync + 'a,
{
    (
        name,
        Box::new(move || {
            let a = a.as_ref()?;
            let (mut x, mut y) = (a.domain().zeros().ok()?, a.range().zeros().ok()?);
            x.as_mut_slice().fill(1.0);
            a.apply(&x, &mut y).ok()?;
            repeated(10, || a.apply(&x, &mut y))
        }),
    )
}

/// The chosen format, which may be one of symmetric matrices.
fn operator(a: &Csr<f64>) -> krysp::Result<Operator<HostVector<f64>>> {
    Operator::symmetric(a, &krysp::Host).or_else(|_| Operator::auto(a, &krysp::Host))
}

fn phases(a: &Csr<f64>) -> Vec<Phase<'_>> {
    let symmetric = SymCsr::new(a).is_ok();
    let of_symmetric = move || symmetric.then_some(());
    let b = vec![1.0; a.rows()];
    let values: Vec<f64> = a.entries().iter().map(|value| value * 1.01).collect();
    let mut phases: Vec<Phase<'_>> = vec![
        product("product CSR", Some(a)),
        product("product auto", operator(a).ok()),
        product("product DIA", Dia::new(a).ok()),
        product("product SELL-P", Sell::new(a).ok()),
        product("product BSR", Bsr::new(a).ok()),
        product("product symmetric CSR", SymCsr::new(a).ok()),
        product("product symmetric BSR", SymBsr::new(a).ok()),
        ("convert auto", Box::new(|| timed(|| operator(a)))),
        ("convert SELL-P", Box::new(|| timed(|| Sell::new(a)))),
        ("convert BSR", Box::new(|| timed(|| Bsr::new(a)))),
        ("convert symmetric CSR", Box::new(|| timed(|| SymCsr::new(a)))),
        ("order RCM", Box::new(|| timed(|| Permutation::rcm(a)))),
        ("order clustered", Box::new(|| timed(|| Permutation::clustered(a, 1024)))),
        ("setup Jacobi", Box::new(|| timed(|| Jacobi::new(a)))),
        ("setup IC(0)", Box::new(move || of_symmetric().and_then(|()| timed(|| Ic0::new(a))))),
        ("setup ILU(0)", Box::new(|| timed(|| Ilu0::new(a)))),
        ("setup ILUT", Box::new(|| timed(|| Ilut::new(a)))),
        ("setup FSAI", Box::new(move || of_symmetric().and_then(|()| timed(|| Fsai::new(a))))),
        ("setup SPAI", Box::new(|| timed(|| Spai::new(a)))),
        product("apply IC(0)", of_symmetric().and_then(|()| Ic0::new(a).ok())),
        product("apply ILU(0)", Ilu0::new(a).ok()),
        product("apply FSAI", of_symmetric().and_then(|()| Fsai::new(a).ok())),
        ("setup Amg", Box::new(|| timed(|| Amg::new(a)))),
    ];
    if let Ok(amg) = Amg::new(a) {
        phases.push(product("cycle Amg", Some(amg)));
    }
    if let Ok(amg) = Amg::new(a) {
        let kept = std::sync::Mutex::new(amg);
        let mut changed = a.clone();
        let changed = changed.refresh(&values).ok().map(|()| changed);
        phases.push((
            "refresh Amg",
            Box::new(move || {
                let mut amg = kept.lock().ok()?;
                let changed = changed.as_ref()?;
                timed(|| amg.refresh(changed))
            }),
        ));
    }
    if a.rows() < 400_000 {
        phases.push(("Cholesky", Box::new(move || of_symmetric().and_then(|()| timed(|| Cholesky::new(a))))));
        phases.push(("Ldl", Box::new(move || of_symmetric().and_then(|()| timed(|| Ldl::new(a))))));
        phases.push(("Lu", Box::new(|| timed(|| Lu::new(a)))));
    }
    phases.push(("Plan::new", Box::new(|| timed(|| Plan::new(a)))));
    let jacobi = Jacobi::new(a).ok();
    let right = b.clone();
    phases.push((
        "20 iterations of CG, Jacobi",
        Box::new(move || {
            let jacobi = jacobi.as_ref()?;
            timed(|| Cg::new(a).preconditioner(jacobi).rtol(1e-30).max_iterations(20).solve(&right))
        }),
    ));
    phases.push(("krysp::solve", Box::new(move || timed(|| krysp::solve(a, &b)))));
    phases
}
