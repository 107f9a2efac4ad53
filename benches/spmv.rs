//! Matrix-vector products in every format and by other crates, one matrix at a time:
//!
//! ```text
//! cargo bench --features peers --bench spmv -- p7_128
//! ```
//!
//! Results are checked before anything is timed. The CSV files in `benches/record` come from `record.rs`, which times the
//! implementations in turns.

mod common;

use common::contestant::Element;
use common::contestants::{cast, compulsory_bytes, contestants};
use common::machine;
use common::systems::{System, systems};
use criterion::{Criterion, Throughput};
use krysp::testing::matrices;

fn main() -> common::Result<()> {
    machine::join_threads()?;
    let mut criterion = Criterion::default().sample_size(20).configure_from_args();
    // only matrices that the filter names are built
    let filter: Vec<String> =
        std::env::args().nth(1).filter(|arg| !arg.starts_with('-')).into_iter().collect();
    for found in systems(&filter) {
        for system in found? {
            products::<f64>(&mut criterion, &system)?;
            products::<f32>(&mut criterion, &system)?;
        }
    }
    criterion.final_summary();
    Ok(())
}

fn products<T: Element>(criterion: &mut Criterion, system: &System) -> common::Result<()> {
    let csr = cast::<T>(&system.csr)?;
    let mut group = criterion.benchmark_group(format!("{}/{}", system.id(), T::NAME));
    group.throughput(Throughput::Bytes(compulsory_bytes(&csr) as u64));
    for mut contestant in contestants(&csr, &matrices::vector(csr.cols()))? {
        group.bench_function(contestant.name, |bencher| bencher.iter(|| contestant.product.multiply()));
    }
    group.finish();
    Ok(())
}
