//! Makes benches/RESULTS.md from the measurements in benches/record ("records": CSV files): the newest row of each
//! figure, in Markdown, and `notes.md`.
//!
//! ```text
//! cargo run --release --example tables > benches/RESULTS.md        all machines
//! cargo run --release --example tables -- zen4-2t                  one machine
//! ```

#[allow(unreachable_pub, reason = "a bench has it, too")]
#[path = "../benches/common/newest.rs"]
mod newest;

use newest::{Row, newest, number, text};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let wanted = std::env::args().nth(1);
    println!(
        "# Results\n\nMade by `cargo run --release --example tables > benches/RESULTS.md` from `benches/record/`.\n"
    );
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/record");
    let mut machines = match fs::read_dir(&root) {
        Ok(entries) => entries.collect::<Result<Vec<_>, _>>()?,
        Err(_) => return Err(format!("no records in {}: run the bench `record`", root.display()).into()),
    };
    machines.sort_by_key(|entry| entry.file_name());
    for machine in machines {
        let name = machine.file_name().to_string_lossy().into_owned();
        if machine.file_type()?.is_dir() && wanted.as_ref().is_none_or(|wanted| *wanted == name) {
            spmv(&name, &machine.path())?;
            solve(&name, &machine.path())?;
            preconditioners(&name, &machine.path())?;
            read(&name, &machine.path())?;
            endings(&name, &machine.path())?;
            plans(&name, &machine.path())?;
            for (file, title) in [
                ("mpi.csv", "Ranks of MPI, Poisson's equation on a cube, 1e-8, beside PETSc"),
                ("mpi_gpus.csv", "Ranks of MPI on GPUs, 1e-8 (`ranks_poisson SYSTEM gpu`)"),
                (
                    "scaling_check.csv",
                    "Ranks of MPI, the model of `benches/scaling.rs` beside what is measured",
                ),
                ("scaling.csv", "Ranks of MPI, many of them, by that model"),
                ("python_calls.csv", "Calls of `krysp.solve` from Python (`python/benches/gpu_calls.py`)"),
            ] {
                whole(&machine.path().join(file), &format!("{title}, {name}"))?;
            }
        }
    }
    if wanted.is_none() {
        print!("{}", fs::read_to_string(root.join("notes.md"))?);
    }
    Ok(())
}

/// Prints one line for each system that `krysp::solve` solved: its attempts, and how it ended.
fn plans(machine: &str, folder: &Path) -> Result<(), Box<dyn Error>> {
    let rows = newest(folder, "plan.csv", &["matrix", "rhs", "solves"])?;
    let once: Vec<&Row> = rows.iter().filter(|row| number(row, "solves") == 1.0).collect();
    if once.is_empty() {
        return Ok(());
    }
    let solved = once.iter().filter(|row| number(row, "residual") <= 1e-8).count();
    println!(
        "### One call, {machine}\n\n{solved} of {} systems reach 1e-8, as `b - A x` is recomputed. Each matrix with the \
         right-hand side of its file, or the image of a smooth vector (`smooth`); and with `ones`. Each attempt: iterations, seconds, \
         and what residual it left.\n",
        once.len()
    );
    println!("| matrix | b | seconds | residual | attempts, and the ending if there is no solution |");
    println!("| --- | --- | ---: | ---: | --- |");
    for row in once {
        let ending = match text(row, "ending") {
            "converged" => String::new(),
            other => format!("; {other}"),
        };
        let (name, rhs, attempts) = (text(row, "matrix"), text(row, "rhs"), text(row, "attempts"));
        let [seconds, residual] = ["first_s", "residual"].map(|column| number(row, column));
        println!("| {name} | {rhs} | {seconds:.3} | {residual:.0e} | {attempts}{ending} |");
    }
    println!();
    hindsight(&rows);
    Ok(())
}

/// Prints the time of the plan relative to the fastest fixed configuration, for each number of solves.
fn hindsight(rows: &[Row]) {
    let compared: Vec<&Row> =
        rows.iter().filter(|row| number(row, "ratio") > 0.0 && number(row, "residual") <= 1e-8).collect();
    if compared.is_empty() {
        return;
    }
    println!(
        "Time of the plan divided by that of the fastest of 13 fixed configurations, which is not known before the solves. Setup is \
         included. Systems that none of them solves are left out.\n\n\
         | solves | systems | geometric mean | within 1.25 | beyond 2 | the worst |\n| ---: | ---: | ---: | ---: | ---: | --- |"
    );
    let solves: BTreeSet<usize> = compared.iter().map(|row| number(row, "solves") as usize).collect();
    for solves in solves {
        let of: Vec<(f64, &Row)> = compared
            .iter()
            .filter(|row| number(row, "solves") as usize == solves)
            .map(|row| (number(row, "ratio"), *row))
            .collect();
        let mean = (of.iter().map(|(ratio, _)| ratio.ln()).sum::<f64>() / of.len() as f64).exp();
        let count = |some: &dyn Fn(f64) -> bool| of.iter().filter(|(ratio, _)| some(*ratio)).count();
        let mut worst = of.clone();
        worst.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let worst: Vec<String> = worst
            .iter()
            .take(5)
            .map(|(ratio, row)| {
                format!("{} {} {ratio:.1} ({})", text(row, "matrix"), text(row, "rhs"), text(row, "best"))
            })
            .collect();
        println!(
            "| {solves} | {} | {mean:.2} | {} | {} | {} |",
            of.len(),
            count(&|ratio| ratio <= 1.25),
            count(&|ratio| ratio > 2.0),
            worst.join("; ")
        );
    }
    println!();
}

/// Prints all rows of a record.
fn whole(path: &Path, title: &str) -> Result<(), Box<dyn Error>> {
    let Ok(record) = fs::read_to_string(path) else { return Ok(()) };
    println!("### {title}\n");
    for (at, line) in record.lines().enumerate() {
        println!("| {} |", line.replace('_', " ").replace(',', " | "));
        if at == 0 {
            println!("|{}", " --- |".repeat(line.split(',').count()));
        }
    }
    println!();
    Ok(())
}

/// Prints the number of solves with each outcome, by method.
fn endings(machine: &str, folder: &Path) -> Result<(), Box<dyn Error>> {
    let Ok(record) = fs::read_to_string(folder.join("endings.csv")) else { return Ok(()) };
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for line in record.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [_, _, _, method, _, outcome, ..] = fields[..] else { continue };
        let outcome = outcome.split(" (").next().unwrap_or(outcome);
        let outcome = if outcome.starts_with("broke down") { "broke down" } else { outcome };
        *counts.entry((outcome, method)).or_default() += 1;
    }
    let methods = ["CG", "FCG", "MINRES", "BiCGStab", "GMRES", "FGMRES"];
    println!("### Endings on real systems, {machine}\n\n| outcome | {} |", methods.join(" | "));
    println!("| --- |{}", " ---: |".repeat(methods.len()));
    let outcomes: BTreeSet<&str> = counts.keys().map(|(outcome, _)| *outcome).collect();
    for outcome in outcomes {
        let of = |method: &&str| counts.get(&(outcome, *method)).copied().unwrap_or(0).to_string();
        println!("| {outcome} | {} |", methods.iter().map(of).collect::<Vec<_>>().join(" | "));
    }
    println!();
    Ok(())
}

/// Formats a time in milliseconds with its significant digits.
fn milliseconds(ms: f64) -> String {
    if ms < 1.0 { format!("{ms:.4}") } else { format!("{ms:.2}") }
}

/// Formats a ratio of times, bold if this library is faster.
fn ratio(value: f64) -> String {
    match value {
        v if v.is_nan() => "–".into(),
        v if v >= 1.0 => format!("**{v:.2}**"),
        v => format!("{v:.2}"),
    }
}

/// Prints one line for each matrix: CSR, the fastest format, and the fastest other library.
fn spmv(machine: &str, folder: &Path) -> Result<(), Box<dyn Error>> {
    let mut rows = newest(folder, "spmv.csv", &["matrix", "ordering", "element", "format"])?;
    // formats in the records that have been removed from the library
    rows.retain(|row| text(row, "format") != "COO atomic");
    if !rows.is_empty() {
        println!(
            "GB/s: the least bytes that a product with CSR must read and write, divided by the time, for all formats alike. Own bytes: \
             those that the fastest format reads and writes, divided by the time, as a share of the bandwidth.\n"
        );
    }
    for element in ["f64", "f32"] {
        let mut groups: Vec<Vec<&Row>> = vec![];
        for row in rows.iter().filter(|row| text(row, "element") == element) {
            let same = |other: &Row| ["matrix", "ordering"].iter().all(|&k| text(other, k) == text(row, k));
            match groups.iter_mut().find(|group| same(group[0])) {
                Some(group) => group.push(row),
                None => groups.push(vec![row]),
            }
        }
        let Some(first) = groups.first() else { continue };
        println!("### Products, {element}, {machine} ({})\n", text(first[0], "device"));
        println!(
            "| matrix | rows | entries | CSR, GB/s | share of bandwidth | fastest | GB/s | own bytes | best peer | GB/s | ratio |"
        );
        println!("| --- | ---: | ---: | ---: | ---: | --- | ---: | ---: | --- | ---: | ---: |");
        for group in &groups {
            line(group, if element == "f64" { 8.0 } else { 4.0 });
        }
        println!();
    }
    Ok(())
}

fn line(group: &[&Row], value: f64) {
    let time = |row: &&&Row| number(row, "product_ms");
    let Some(best) = group.iter().min_by(|a, b| time(a).total_cmp(&time(b))) else { return };
    let (rows, nnz) = (number(best, "rows"), number(best, "nnz"));
    // the bytes that any product with a square CSR matrix must move
    let bytes = nnz * (value + 4.0) + rows * (4.0 + 2.0 * value);
    let speed = |ms: f64| format!("{:.1}", bytes / ms / 1e6);
    let own_share =
        (number(best, "format_bytes") + 2.0 * rows * value) / bytes * number(best, "share_of_bandwidth");
    let (csr_speed, csr_share) = match group.iter().find(|row| text(row, "format") == "CSR") {
        Some(csr) => {
            let share = 100.0 * number(csr, "share_of_bandwidth");
            (speed(number(csr, "product_ms")), format!("{share:.0} %"))
        }
        None => ("–".into(), "–".into()),
    };
    let ordering = match text(best, "ordering") {
        "given" => String::new(),
        other => format!(", {other}"),
    };
    let cells = [
        format!("{}{ordering}", text(best, "matrix")),
        format!("{rows}"),
        format!("{nnz}"),
        csr_speed,
        csr_share,
        text(best, "format").into(),
        speed(number(best, "product_ms")),
        number_or_dash(own_share, |share| format!("{:.0} %", 100.0 * share)),
        text(best, "peer").into(),
        speed(number(best, "peer_ms")),
        ratio(number(best, "ratio")),
    ];
    println!("| {} |", cells.join(" | "));
}

/// Formats a number that may be missing in a record.
fn number_or_dash(value: f64, text: impl Fn(f64) -> String) -> String {
    if value.is_nan() { "–".into() } else { text(value) }
}

/// Prints one line for each preconditioner.
fn preconditioners(machine: &str, folder: &Path) -> Result<(), Box<dyn Error>> {
    let rows = newest(folder, "preconditioners.csv", &["matrix", "method", "preconditioner"])?;
    let Some(first) = rows.first() else { return Ok(()) };
    println!("### Preconditioners, {machine} ({})\n", text(first, "device"));
    println!(
        "| matrix | method | preconditioner | setup, ms | iterations | ms an iteration | in all, ms | Jacobi / it |"
    );
    println!("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |");
    for row in &rows {
        let cells = [
            text(row, "matrix").into(),
            text(row, "method").into(),
            text(row, "preconditioner").into(),
            format!("{:.2}", number(row, "setup_ms")),
            text(row, "iterations").into(),
            milliseconds(number(row, "ms_per_iteration")),
            format!("{:.1}", number(row, "total_ms")),
            ratio(number(row, "ratio")),
        ];
        println!("| {} |", cells.join(" | "));
    }
    println!();
    Ok(())
}

/// Prints one line for each file.
fn read(machine: &str, folder: &Path) -> Result<(), Box<dyn Error>> {
    let rows = newest(folder, "read.csv", &["matrix"])?;
    let Some(first) = rows.first() else { return Ok(()) };
    println!("### Reading Matrix Market, {machine} ({})\n", text(first, "device"));
    println!("| matrix | entries | MB of text | MB/s | s into CSR |\n| --- | ---: | ---: | ---: | ---: |");
    for row in &rows {
        let (bytes, speed) = (number(row, "file_bytes"), number(row, "megabytes_per_second"));
        let (matrix, entries, ms) = (text(row, "matrix"), text(row, "nnz"), number(row, "csr_ms"));
        println!("| {matrix} | {entries} | {:.0} | {speed:.0} | {:.2} |", bytes / 1e6, ms / 1e3);
    }
    println!();
    Ok(())
}

/// Prints one line for each solve.
fn solve(machine: &str, folder: &Path) -> Result<(), Box<dyn Error>> {
    let rows = newest(folder, "solve.csv", &["matrix", "element", "method", "preconditioner", "format"])?;
    let Some(first) = rows.first() else { return Ok(()) };
    println!("### Solves, {machine} ({})\n", text(first, "device"));
    println!(
        "| matrix | method | format | iterations | residual | setup, s | solve, s | ms an iteration | budget, ms | peer, ms | ratio |"
    );
    println!("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for row in &rows {
        let (ms, iterations) = (number(row, "ms_per_iteration"), number(row, "iterations"));
        let peer = match number(row, "peer_ms_per_iteration") {
            ms if ms.is_nan() => "–".into(),
            ms => format!("{} {}", text(row, "peer"), milliseconds(ms)),
        };
        let cells = [
            text(row, "matrix").into(),
            format!("{} + {}", text(row, "method"), text(row, "preconditioner")),
            text(row, "format").into(),
            number_or_dash(iterations, |count| count.to_string()),
            format!("{:.0e}", number(row, "true_residual")),
            number_or_dash(number(row, "setup_ms"), |ms| format!("{:.2}", ms / 1e3)),
            number_or_dash(ms * iterations, |ms| format!("{:.2}", ms / 1e3)),
            milliseconds(ms),
            milliseconds(number(row, "budget_ms_per_iteration")),
            peer,
            ratio(number(row, "ratio")),
        ];
        println!("| {} |", cells.join(" | "));
    }
    println!();
    Ok(())
}
