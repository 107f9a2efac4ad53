//! SpMV on a GPU: every format and every layout of cuSPARSE, in one process, on the same data.
//!
//! ```text
//! cargo bench --features peers --bench cuda_spmv                  the usual matrices, appended to benches/record/<machine>/
//! cargo bench --features peers --bench cuda_spmv -- p1_10M_perm/f32 some.mtx.gz
//! cargo bench --features peers --bench cuda_spmv -- irregular                     rows of very unequal lengths
//! cargo bench --features peers --bench cuda_spmv -- irregular_large               such rows, up to 100 million entries
//!     --quick          small matrices
//!     --dry            nothing written
//!     --parts          clustered ordering with as many rows per run as the parts of EHYB, not the blocks of Halo
//!     --pairs          clustered ordering with as many rows per run as the blocks of symmetric BSR in f64
//!     --machine NAME   instead of one derived from the name of the GPU
//!     --out DIR        instead of benches/record
//!     --commit X       instead of the one in `KRYSP_COMMIT` at build time, or of git
//! ```
//!
//! Results are checked before anything is timed. Times are device times of back-to-back products. `(cold)` after the name of
//! a matrix in the CSV file marks single products with a cold L2 cache. `(first)` marks the first product with a CSR matrix
//! that is already on the device, including all preparation, by the host's clock; kernels are compiled before.

mod common;

use common::answer::Answer;
use common::contestants::{cast, compulsory_bytes};
use common::cuda::Gpu;
use common::cuda_formats::{Converter, Operator, converters};
use common::cuda_options::Options;
use common::cuda_peers::CudaElement;
use common::cuda_peers::cusparse::{Cusparse, Kind, Product};
use common::systems::{System, reordered, unknowns};
use common::{median, record};
use krysp::formats::Strategy;
use krysp::testing::matrices;
use krysp::{Csr, Space};
use krysp_kernels::cuda::csr::AnyCsr;
use krysp_kernels::cuda::{Device, Pattern, Product as _, SpeculativeOnHost};
use krysp_kernels::index::{Columns, Invalid, Offsets};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Instant;

const USUAL: [&str; 15] = [
    "st7_0.1M_nat",
    "p1_0.1M_perm",
    "st27_0.1M_nat",
    "el3_0.3M_nat",
    "rmat_2M",
    "circuit_1M",
    "el3_2M_perm",
    "el3_10M_perm",
    "p1_10M_perm",
    "st27_10M_nat",
    "st7_15M_nat",
    "st27_100M_nat",
    "st7_100M_nat",
    "el3_100M_perm",
    "p1_100M_perm",
];

const QUICK: [&str; 7] =
    ["st7_0.1M_nat", "p1_0.1M_perm", "el3_0.3M_nat", "rmat_2M", "circuit_1M", "el3_2M_perm", "st7_2M_nat"];

/// A matrix of at most this many bytes stays in the L2 cache, and is also measured with a cold cache.
const CACHED: usize = 60 << 20;

/// Bytes of device memory per entry that are enough for every compared implementation.
const BYTES_PER_ENTRY: usize = 64;

/// Number of times that a first product is timed; the median is the result.
const FIRSTS: usize = 11;

/// The result of one implementation with one matrix.
struct Line {
    name: &'static str,
    is_peer: bool,
    /// Whether values are stored in `f32` for vectors of `f64`.
    rounds: bool,
    setup_ms: f64,
    bytes: usize,
    warm_ms: f64,
    cold_ms: Option<f64>,
    /// Milliseconds of the first product with a CSR matrix on the device, including preparation.
    first_ms: Option<f64>,
}

/// The milliseconds of each implementation with one matrix.
type Case = BTreeMap<&'static str, f64>;

fn main() -> common::Result<()> {
    let options = Options::from_args()?;
    let Some(mut gpu) = Gpu::first()? else { return Ok(()) };
    let library = Cusparse::new(&gpu.stream)?;
    println!("{}, cuSPARSE {}", options.stamp(&gpu), library.version()?);
    let mut cases = vec![];
    for wanted in options.matrices(if options.quick { &QUICK } else { &USUAL }) {
        let started = Instant::now();
        let rows_per_block = |csr: &Csr<f64>| options.rows_per_block(&gpu.cuda, csr);
        let systems = reordered(&wanted.name, |matrix| matrix, rows_per_block)?;
        println!("\n# {} (made in {:.1?})", wanted.name, started.elapsed());
        for system in systems {
            if wanted.f64 {
                let rows = spmv::<f64>(&system, &mut gpu, &library, &options, &mut cases)?;
                options.append(&gpu, "spmv.csv", record::SPMV, &rows)?;
            }
            if wanted.f32 {
                let rows = spmv::<f32>(&system, &mut gpu, &library, &options, &mut cases)?;
                options.append(&gpu, "spmv.csv", record::SPMV, &rows)?;
            }
        }
    }
    profile(&cases);
    Ok(())
}

/// Measures all implementations with one matrix. Returns rows for the CSV file `spmv.csv`.
fn spmv<T: CudaElement>(
    system: &System,
    gpu: &mut Gpu,
    library: &Rc<Cusparse>,
    options: &Options,
    cases: &mut Vec<Case>,
) -> common::Result<Vec<String>> {
    let started = Instant::now();
    let csr = cast::<T>(&system.csr)?;
    let (id, element, bytes) = (system.id(), T::NAME, compulsory_bytes(&csr));
    let (free, needed) = (gpu.cuda.memory()?.0, BYTES_PER_ENTRY * csr.nnz());
    if needed > free {
        println!(
            "\n{id} {element}: skipped, may need {needed} bytes of device memory, but only {free} are free"
        );
        return Ok(vec![]);
    }
    let x: Vec<T> = matrices::vector(csr.cols()).into_iter().map(T::narrow).collect();
    let bench = Bench { answer: Answer::new(&csr, &x), x, cold: bytes <= CACHED, csr };
    let bytes_per_ms = gpu.bandwidth()?;
    let mut lines = vec![];
    let mut left_out = vec![];
    for converter in converters::<T>() {
        let started = Instant::now();
        let operator = match (converter.convert)(&bench.csr, &gpu.cuda) {
            Ok(Some(operator)) => operator,
            Ok(None) => continue,
            Err(reason) => {
                left_out.push(format!("{}: {reason}", converter.name));
                continue;
            }
        };
        gpu.cuda.synchronize()?;
        let setup_ms = started.elapsed().as_secs_f64() * 1e3;
        let line = bench.ours(&converter, &*operator, setup_ms, gpu);
        lines.push(line.map_err(|error| format!("{id} {element}, {}: {error}", converter.name))?);
    }
    bench.first_of_ours(&mut lines).map_err(|error| format!("{id} {element}, first product: {error}"))?;
    lines.push(bench.second_stage_on_host().map_err(|error| format!("{id} {element}, on host: {error}"))?);
    for kind in Kind::all(unknowns(&system.name)) {
        match bench.theirs(kind, gpu, library) {
            Ok(line) => lines.push(line),
            Err(reason) => left_out.push(format!("{}: {reason}", kind.name())),
        }
    }
    let csr = &bench.csr;

    println!("\n{id} {element}: {} rows, {} entries", csr.rows(), csr.nnz());
    let Some(peer) = best_peer(&lines, |line| Some(line.warm_ms)) else { return Err("no peer".into()) };
    let cold_peer = best_peer(&lines, |line| line.cold_ms);
    let first_peer = best_peer(&lines, |line| line.first_ms);
    println!(
        "{:<24}{:>10}{:>10}{:>8}{:>8}{:>8}{:>10}{:>8}{:>10}",
        "", "setup ms", "ms", "GB/s", "share", "ratio", "cold ms", "ratio", "first ms"
    );
    for line in &lines {
        let share = bytes as f64 / line.warm_ms / bytes_per_ms;
        let cold = match (line.cold_ms, cold_peer) {
            (Some(ms), Some((_, peer_ms))) => format!("{ms:>10.4}{:>8.2}", peer_ms / ms),
            _ => " ".repeat(18),
        };
        let first = line.first_ms.map_or(String::new(), |ms| format!("{ms:>10.4}"));
        println!(
            "{:<24}{:>10.1}{:>10.4}{:>8.0}{share:>8.2}{:>8.2}{cold}{first}",
            line.name,
            line.setup_ms,
            line.warm_ms,
            bytes as f64 / line.warm_ms / 1e6,
            peer.1 / line.warm_ms,
        );
    }
    left_out.iter().for_each(|reason| println!("left out: {reason}"));
    println!("copying {:.0} GB/s; measured in {:.1?}", bytes_per_ms / 1e6, started.elapsed());

    cases.push(lines.iter().map(|line| (line.name, line.warm_ms)).collect());
    let stamp = options.stamp(gpu);
    let row = |line: &Line, matrix: &str, ms: f64, (peer, peer_ms): (&str, f64)| {
        let element = if line.rounds { "f64 stored as f32" } else { element };
        format!(
            "{stamp},{matrix},{},{},{element},{},{},{:.3},{ms:.5},{},{:.3},{peer},{peer_ms:.5},{:.3}",
            csr.rows(),
            csr.nnz(),
            line.name,
            system.ordering,
            line.setup_ms + system.ordering_ms,
            line.bytes,
            bytes as f64 / ms / bytes_per_ms,
            peer_ms / ms,
        )
    };
    let mut rows = vec![];
    for line in lines.iter().filter(|line| !line.is_peer) {
        rows.push(row(line, &system.name, line.warm_ms, peer));
        if let (Some(ms), Some(peer)) = (line.cold_ms, cold_peer) {
            rows.push(row(line, &format!("{} (cold)", system.name), ms, peer));
        }
        if let (Some(ms), Some(peer)) = (line.first_ms, first_peer) {
            rows.push(row(line, &format!("{} (first)", system.name), ms, peer));
        }
    }
    Ok(rows)
}

/// The name and the time of the fastest peer.
fn best_peer(lines: &[Line], ms: impl Fn(&Line) -> Option<f64>) -> Option<(&'static str, f64)> {
    let timed = lines.iter().filter(|line| line.is_peer).filter_map(|line| Some((line.name, ms(line)?)));
    timed.min_by(|a, b| a.1.total_cmp(&b.1))
}

/// A matrix to multiply, and the expected product.
struct Bench<T: CudaElement> {
    csr: Csr<T>,
    x: Vec<T>,
    answer: Answer,
    /// Whether to measure with a cold cache, too.
    cold: bool,
}

impl<T: CudaElement> Bench<T> {
    /// Measures one of our formats.
    fn ours(
        &self,
        converter: &Converter<T>,
        operator: &Operator<T>,
        setup_ms: f64,
        gpu: &mut Gpu,
    ) -> common::Result<Line> {
        let &Converter { name, rounds, .. } = converter;
        let x = operator.domain().vector(&self.x)?;
        let mut y = operator.range().vector(&vec![T::narrow(f64::NAN); self.csr.rows()])?;
        operator.apply(&x, &mut y)?;
        let mut host = vec![T::narrow(0.0); self.csr.rows()];
        operator.range().store(&y, &mut host)?;
        // relative error of rounding to f32: half a unit in the last place
        self.answer.check_rounded(&host, if rounds { 2f64.powi(-24) } else { 0.0 })?;
        let mut product = || Ok(operator.apply(&x, &mut y)?);
        let warm_ms = gpu.warm(&mut product)?;
        let cold_ms = if self.cold { Some(gpu.cold(&mut product)?) } else { None };
        let bytes = operator.bytes();
        Ok(Line { name, is_peer: false, rounds, setup_ms, bytes, warm_ms, cold_ms, first_ms: None })
    }

    /// Times the first product by each strategy of CSR, with arrays on the device, including preparation.
    fn first_of_ours(&self, lines: &mut [Line]) -> common::Result<()> {
        let (device, csr) = (Device::new(0)?, &self.csr);
        let (offsets, columns) = arrays(csr)?;
        let pattern = Pattern::new(&offsets, &columns);
        let x = device.upload(&self.x)?;
        let mut y = device.zeros(csr.rows())?;
        for (name, strategy) in [
            ("CSR", Strategy::Classical),
            ("CSR load-balance", Strategy::LoadBalance),
            ("CSR merge-path", Strategy::MergePath),
            ("CSR speculative", Strategy::Speculative),
        ] {
            let mut times = vec![];
            for _ in 0..FIRSTS {
                let on_device =
                    krysp_kernels::cuda::csr::classical::Csr::new(&device, pattern, csr.entries())?;
                device.synchronize()?;
                let started = Instant::now();
                let matrix = AnyCsr::prepared(on_device, pattern, strategy)?;
                matrix.product(&x, &mut y)?;
                device.synchronize()?;
                times.push(started.elapsed().as_secs_f64() * 1e3);
            }
            let mut host = vec![T::narrow(0.0); csr.rows()];
            y.read(&mut host)?;
            self.answer.check(&host)?;
            let line = lines.iter_mut().filter(|line| line.name == name);
            line.for_each(|line| line.first_ms = Some(median(&mut times)));
        }
        Ok(())
    }

    /// The speculative strategy with its second stage on the host. Timed by the host's clock, because the
    /// host waits for every product.
    fn second_stage_on_host(&self) -> common::Result<Line> {
        let (device, csr) = (Device::new(0)?, &self.csr);
        let (offsets, columns) = arrays(csr)?;
        let started = Instant::now();
        let mut a = SpeculativeOnHost::new(&device, Pattern::new(&offsets, &columns), csr.entries())?;
        let (setup_ms, x) = (started.elapsed().as_secs_f64() * 1e3, device.upload(&self.x)?);
        self.answer.check(a.product(&x)?)?;
        let mut times = vec![];
        for _ in 0..41 {
            let started = Instant::now();
            a.product(&x)?;
            times.push(started.elapsed().as_secs_f64() * 1e3);
        }
        let (name, bytes) = ("CSR speculative on host", compulsory_bytes(csr));
        Ok(Line {
            name,
            is_peer: false,
            rounds: false,
            setup_ms,
            bytes,
            warm_ms: median(&mut times),
            cold_ms: None,
            first_ms: None,
        })
    }

    /// Measures cuSPARSE in one of its layouts.
    fn theirs(&self, kind: Kind, gpu: &mut Gpu, library: &Rc<Cusparse>) -> common::Result<Line> {
        let started = Instant::now();
        let Some(mut product) = Product::new(library, kind, &self.csr, &self.x)? else {
            return Err("not suitable for the matrix".into());
        };
        gpu.cuda.synchronize()?;
        let setup_ms = started.elapsed().as_secs_f64() * 1e3;
        product.queue()?;
        self.answer.check(&product.answer()?)?;
        // the product above made cuSPARSE load its kernels, so these times do not include that
        let mut firsts = vec![];
        for _ in 0..FIRSTS {
            firsts.extend(product.first()?);
        }
        let first_ms = (!firsts.is_empty()).then(|| median(&mut firsts));
        self.answer.check(&product.answer()?)?;
        if let Some(reason) = product.unprepared() {
            println!("{}: without preparation ({reason})", kind.name());
        }
        let bytes = product.bytes();
        let mut product = || product.queue();
        let warm_ms = gpu.warm(&mut product)?;
        let cold_ms = if self.cold { Some(gpu.cold(&mut product)?) } else { None };
        Ok(Line {
            name: kind.name(),
            is_peer: true,
            rounds: false,
            setup_ms,
            bytes,
            warm_ms,
            cold_ms,
            first_ms,
        })
    }
}

/// The pattern of a matrix for the kernels.
fn arrays<T: CudaElement>(csr: &Csr<T>) -> common::Result<(Offsets, Columns)> {
    let offsets: Vec<u64> = csr.offsets().iter().map(|&offset| offset as u64).collect();
    let refused = |invalid: Invalid| format!("{invalid:?}");
    let columns = Columns::new(csr.columns().to_vec(), csr.cols()).map_err(refused)?;
    Ok((Offsets::new(&offsets).map_err(refused)?, columns))
}

/// Prints, for each implementation, the fraction of matrices for which its time is within a factor of the
/// best.
fn profile(cases: &[Case]) {
    const FACTORS: [f64; 4] = [1.0, 1.05, 1.25, 2.0];
    let names: Vec<&str> = cases
        .iter()
        .flat_map(Case::keys)
        .copied()
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .collect();
    println!(
        "\nfraction of {} products (matrix, ordering, element type) within a factor of the best",
        cases.len()
    );
    println!("{:<24}{:>8}{:>8}{:>8}{:>8}", "", "best", "1.05", "1.25", "2");
    for name in names {
        let within = |factor: f64| {
            let near = |case: &&Case| {
                let best = case.values().copied().fold(f64::INFINITY, f64::min);
                case.get(name).is_some_and(|&ms| ms <= factor * best)
            };
            cases.iter().filter(near).count() as f64 / cases.len() as f64
        };
        let shares = FACTORS.map(within).map(|share| format!("{share:>8.2}"));
        println!("{name:<22}{}", shares.concat());
    }
}
