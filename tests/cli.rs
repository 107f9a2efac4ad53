//! The program from the outside: its output, plots and files, its exit codes, and every command of the documents.
//!
//! `KRYSP_BLESS=1 cargo test --features cli --test cli` overwrites the expected outputs and plots in `tests/cli`. Look at the
//! changes before you commit them.

#[path = "cli/picture.rs"]
mod picture;
/// The Rust program that `krysp inspect` prints, compiled as a part of this test.
#[allow(dead_code, missing_docs, clippy::print_stdout)]
mod recipe {
    include!("cli/recipe.rs");
}
#[path = "cli/check.rs"]
mod check;
#[path = "cli/folder.rs"]
mod folder;
#[path = "cli/inputs.rs"]
mod inputs;
#[path = "cli/inspect.rs"]
mod inspect;
#[path = "cli/masked.rs"]
mod masked;
#[path = "cli/pages.rs"]
mod pages;
#[path = "cli/solve.rs"]
mod solve;
#[path = "cli/threads.rs"]
mod threads;

use folder::Folder;
use masked::masked;
use pages::{commands, is_command, pages};
use picture::Picture;
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_krysp");

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn blessing() -> bool {
    std::env::var_os("KRYSP_BLESS").is_some()
}

/// Returns whether there is a `python3` to run a test's script. Reports it if not.
fn python_is_there(folder: &Folder) -> bool {
    let there = folder.run("python3 --version").code == 0;
    if !there {
        krysp::testing::skipped("no `python3` on this machine");
    }
    there
}

/// Compares with a file of `tests/cli`, except for the parts that [`masked`] replaces.
fn compare(name: &str, found: &str) {
    let path = repository().join("tests/cli").join(name);
    let found = masked(found);
    if blessing() {
        std::fs::write(&path, &found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, expected, "{} has the expected output", path.display());
}

#[test]
fn help_teaches() {
    let folder = Folder::new("help");
    let mut all = folder.run("krysp --help").out;
    for command in ["inspect", "solve", "convert", "generate", "check", "bench", "devices", "calibrate"] {
        all += &format!("\n# krysp {command} --help\n{}", folder.run(&format!("krysp {command} --help")).out);
    }
    compare("help.txt", &all);
}

#[test]
fn every_command_of_the_documents_runs() {
    let mut documents = vec![];
    for document in pages(&repository().join("docs")).into_iter().chain([repository().join("README.md")]) {
        documents.push(commands(&std::fs::read_to_string(document).unwrap()));
    }
    let help = Folder::new("documents");
    for command in [
        "",
        "inspect",
        "solve",
        "convert",
        "generate",
        "check",
        "bench",
        "devices",
        "calibrate",
        "completions",
        "manual",
    ] {
        let text = help.run(&format!("krysp {command} --help")).out;
        let examples = text.lines().filter(|line| line.starts_with("  ")).map(str::trim_start);
        documents.push(examples.filter(|line| is_command(line)).map(str::to_owned).collect());
    }
    assert!(documents.iter().map(Vec::len).sum::<usize>() >= 25, "{documents:#?}");
    for commands in documents {
        // the commands of one page run in one folder, in order
        let folder = Folder::new("documents");
        folder.run("mkdir -p .local/share/bash-completion/completions");
        for command in commands {
            // text after three blanks or a number sign is a remark
            let line = command.split("   ").next().unwrap_or("").split(" #").next().unwrap_or("");
            // readers' folders lie beside the checkout
            let line = &line.replace("../krysp/", &format!("{}/", repository().display()));
            let ran = folder.run(line);
            assert_eq!(ran.code, 0, "{line}\n{}{}", ran.out, ran.err);
        }
    }
}

#[test]
fn inspect_says_what_a_matrix_is_like() {
    let folder = Folder::new("inspect");
    let ran = folder.run("krysp inspect A.mtx --solves 100");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let recipe: String = include_str!("cli/recipe.rs").lines().map(|line| format!("  {line}\n")).collect();
    assert!(ran.out.ends_with(&recipe), "the program to paste is that of tests/cli/recipe.rs");
    compare("inspect.txt", &ran.out);
    compare("inspect_circuit.txt", &folder.run("krysp inspect tests/data/jpwh_991.mtx.gz").out);
    folder
        .write("wide.mtx", "%%MatrixMarket matrix coordinate real general\n2 4 3\n1 1 0\n2 2 1.5\n2 3 nan\n");
    compare("inspect_wide.txt", &folder.run("krysp inspect wide.mtx").out);
    let measured = folder.run("krysp inspect A.mtx --measure").out;
    assert!(measured.contains("GB/s") && measured.contains("SELL-P"), "{measured}");
}

#[test]
fn pictures_are_those_that_were_looked_at() {
    let folder = Folder::new("pictures");
    let ran = folder.run("krysp inspect tests/data/jpwh_991.mtx.gz --spy spy.png --histogram rows.png");
    assert_eq!(ran.code, 0, "{}", ran.err);
    let ran = folder.run("krysp solve A.mtx --method cg --preconditioner jacobi --plot residual.png");
    assert_eq!(ran.code, 0, "{}", ran.err);
    for name in ["spy.png", "rows.png", "residual.png"] {
        let golden = repository().join("tests/cli/golden").join(name);
        if blessing() {
            std::fs::copy(folder.at(name), &golden).unwrap();
        }
        let difference = Picture::read(&folder.at(name)).difference(&Picture::read(&golden));
        assert!(difference < 0.01, "{name} differs from {} by {difference}", golden.display());
    }
    assert_eq!(folder.run("krysp bench A.mtx --plot profile.png --csv products.csv").code, 0);
    assert!(Picture::read(&folder.at("profile.png")).has_ink());
    let csv = std::fs::read_to_string(folder.at("products.csv")).unwrap();
    assert!(csv.lines().skip(1).any(|line| line.starts_with("A.mtx,216,216,1296,cpu,CSR,")), "{csv}");
}

/// Other libraries are measured through Python, if Python and the libraries are installed.
#[test]
fn bench_measures_what_python_has() {
    let folder = Folder::new("peers");
    let python = |name: &str, script: &str| {
        std::fs::create_dir(folder.at(name)).unwrap();
        folder.write(&format!("{name}/python3"), &format!("#!/bin/sh\n{script}\n"));
        assert_eq!(folder.run(&format!("chmod +x {name}/python3")).code, 0);
        let ran = folder.run(&format!("PATH=$PWD/{name}:$PATH krysp bench A.mtx --csv {name}.csv"));
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
        (ran.out, std::fs::read_to_string(folder.at(&format!("{name}.csv"))).unwrap())
    };
    // this `python3` reports a product that is faster than those of all formats
    let lines = r"measured\tMKL\tcpu\t2.5e-3\t1e-12\nabsent\tCuPy\n";
    let (out, csv) = python("quick", &format!("test -s \"$3\" && printf '{lines}'"));
    assert!(csv.contains("A.mtx,216,216,1296,cpu,MKL in python3,16420,2.5e-3,1e-12\n"), "{csv}");
    assert!(out.contains("not measured            CuPy\n"), "{out}");
    let profile = out.rsplit("of 1 matrix").next().unwrap();
    let best = profile.lines().find(|line| line.contains("100 %")).unwrap();
    assert!(best.starts_with("  MKL in python3 "), "{out}");
    let (out, _) = python("bare", "exit 1");
    assert!(out.contains("python3 cannot import SciPy") && !out.contains("in python3 "), "{out}");

    if !folder.run("python3 -c 'import scipy.sparse'").err.is_empty() {
        return krysp::testing::skipped("no SciPy in python3, to be measured");
    }
    let out = folder.run("krysp bench A.mtx").out;
    assert!(out.contains("  SciPy in python3 ") && !out.contains("broke off"), "{out}");
    // the temporary file of the matrix is removed
    let left =
        folder.run("TMPDIR=$PWD/left && mkdir left && export TMPDIR && krysp bench A.mtx && ls left | wc -l");
    assert!(left.out.ends_with("\n0\n"), "{}", left.out);
}

/// JSON output is valid, even for matrices with quantities that are not finite.
#[test]
fn json_is_read_by_others() {
    let folder = Folder::new("json");
    if !python_is_there(&folder) {
        return;
    }
    folder.write("zero.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1 0\n");
    for command in [
        "inspect A.mtx --json",
        "inspect A.mtx --json --measure",
        "inspect zero.mtx --json",
        "solve A.mtx --json -",
        "solve zero.mtx b2.mtx --json -",
        "devices --json",
        "devices --json --measure",
    ] {
        folder.write("b2.mtx", "%%MatrixMarket matrix array real general\n2 1\n1\n1\n");
        let ran = folder.run(&format!("krysp {command} | python3 -m json.tool"));
        assert!(ran.code == 0 && ran.out.len() > 20, "{command}: {}{}", ran.out, ran.err);
    }
}

/// A small system is solved on the CPU even if there is a GPU, whose initialization takes longer.
#[test]
fn the_device_of_a_small_system_is_the_cpu() {
    let folder = Folder::new("auto");
    let ran = folder.run("krysp solve A.mtx --device auto --json -");
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains(r#""device": "cpu""#), "{}", ran.out);
}

#[test]
fn exit_codes_and_errors_say_what_to_do() {
    let folder = Folder::new("errors");
    folder.write("text.mtx", "hello\n");
    folder.write("line.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 1\n3 1 1\n");
    folder.write("wide.mtx", "%%MatrixMarket matrix coordinate real general\n2 3 1\n1 1 1\n");
    folder
        .write("nan.mtx", "%%MatrixMarket matrix coordinate real symmetric\n2 2 3\n1 1 1\n2 1 nan\n2 2 1\n");
    folder.write("singular.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 1\n1 2 1\n");
    folder.write("short.mtx", "%%MatrixMarket matrix array real general\n2 1\n1\n2\n");
    folder.write("complex.mtx", "%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 1 0\n");
    let mut all = String::new();
    for (code, command) in [
        (2, "inspect nothing.mtx"),
        (2, "inspect text.mtx"),
        (2, "inspect line.mtx"),
        (2, "inspect b.npy"),
        (2, "solve wide.mtx"),
        (2, "solve nan.mtx"),
        (2, "solve A.mtx short.mtx"),
        (2, "solve A.mtx --method best"),
        (2, "solve A.mtx --format best"),
        (2, "solve A.mtx --device moon"),
        (2, "solve A.mtx --rtol 2"),
        (2, "solve A.mtx --rtol -1"),
        (2, "solve A.mtx --time-limit -1"),
        (2, "inspect complex.mtx"),
        (2, "check nan.mtx"),
        (1, "solve A.mtx --max-iterations 2 --method cg --preconditioner jacobi"),
        (2, "convert A.mtx"),
        (2, "convert --vector b.mtx b.rb"),
        (2, "convert A.mtx nowhere/A.npz"),
        (2, "convert A.mtx A.mat"),
        (2, "convert A.mtx A.npy"),
        (2, "solve A.mtx --out x.xyz"),
        (2, "solve A.mtx --plot residual.pdf"),
        (2, "solve A.mtx --out - --json -"),
        (2, "generate p7_2000 B.mtx"),
        (2, "generate none A.mtx"),
    ] {
        let ran = folder.run(&format!("krysp {command}"));
        assert_eq!(ran.code, code, "{command}: {}{}", ran.out, ran.err);
        all += &format!("$ krysp {command}\n{}{}\n", ran.out, ran.err);
    }
    compare("errors.txt", &all);
    assert_eq!(folder.run("krysp solve singular.mtx short.mtx").code, 1);
}

#[test]
fn outputs_that_cannot_be_written_are_refused_before_any_work() {
    let folder = Folder::new("outputs");
    for command in [
        "solve nothing.mtx --out nowhere/x.mtx",
        "solve nothing.mtx --json nowhere/r.json",
        "solve nothing.mtx --save nowhere/plan",
        "solve nothing.mtx --history h.txt",
        "inspect nothing.mtx --spy spy.jpg",
        "bench nothing.mtx --csv nowhere/products.csv",
        "convert nothing.mtx A.mat",
        "convert nothing.mtx tests",
    ] {
        let ran = folder.run(&format!("krysp {command}"));
        // the matrix, which does not exist, was not opened
        assert!(ran.code == 2 && !ran.err.contains("nothing.mtx"), "{command}: {}", ran.err);
    }
    // the check neither creates nor changes files
    folder.write("x.mtx", "mine");
    let ran = folder.run("krysp solve nothing.mtx --out x.mtx --json new.json");
    assert!(ran.code == 2 && ran.err.contains("nothing.mtx"), "{}", ran.err);
    assert!(
        std::fs::read_to_string(folder.at("x.mtx")).unwrap() == "mine" && !folder.at("new.json").exists()
    );
}

#[test]
fn a_minus_is_standard_input_and_output() {
    let folder = Folder::new("standard");
    let x = folder.run("krysp solve - b.mtx --out - < A.mtx.gz 2> report.txt");
    assert!(
        x.code == 0 && x.out.starts_with("%%MatrixMarket matrix array real general\n216 1\n"),
        "{}",
        x.out
    );
    assert!(std::fs::read_to_string(folder.at("report.txt")).unwrap().contains("result      converged"));
    let same = folder.run("krysp convert A.npz - | krysp convert - B.mtx --quiet && cmp A.mtx B.mtx");
    assert_eq!((same.code, same.err.as_str()), (0, "standard output: 216 x 216, 1,296 entries\n"));
    let vector = folder.run("krysp convert --vector b.npy - -q | krysp solve A.mtx - -q");
    assert_eq!((vector.code, vector.err.as_str()), (0, ""));
    let made = folder.run("krysp generate p7_6 - --quiet | cmp - A.mtx");
    assert_eq!((made.code, made.err.as_str()), (0, ""));
    let json = folder.run("krysp solve A.mtx --json - 2> report.txt | python3 -m json.tool");
    assert!(json.code == 0 && json.out.contains("\"converged\": true"), "{}", json.out);
    let inspected = folder.run("krysp inspect - < A.mtx");
    assert!(inspected.out.starts_with("standard input\n"), "{}", inspected.out);
    // a reader that closes the pipe early is not an error
    let left = folder.run("krysp inspect A.mtx | head -1 && krysp generate p7_30 - -q | head -1");
    assert_eq!((left.code, left.err.as_str()), (0, ""));
}

#[test]
fn names_are_known_in_every_spelling() {
    let folder = Folder::new("names");
    for (options, shown) in [
        ("--format sell --method BICGSTAB --precond two_level", "SELL-P"),
        ("--format SELL-P --method bicg-stab --precond none", "SELL-P"),
        ("--format Sell", "SELL-P"),
        ("--format symcsr", "symmetric CSR"),
        ("--format 'Symmetric csr'", "symmetric CSR"),
    ] {
        let ran = folder.run(&format!("krysp solve A.mtx {options}"));
        assert!(ran.code == 0 && ran.out.contains(&format!("format      {shown}")), "{options}: {}", ran.err);
    }
    let help = folder.run("krysp solve --help").out;
    for name in ["Fgmres", "Idr", "TwoLevel", "Cholesky", "Lu", "SymBsr", "EllpackR"] {
        assert!(help.contains(name), "{name}");
    }
}

#[test]
fn a_method_chooses_among_iterative_preconditioners() {
    let folder = Folder::new("method");
    for (matrix, method) in [("A.mtx", "gmres"), ("A.mtx", "cg"), ("tests/data/jpwh_991.mtx.gz", "gmres")] {
        let ran = folder.run(&format!("krysp solve {matrix} --method {method}"));
        assert!(ran.code == 0, "{}{}", ran.out, ran.err);
        assert!(!ran.out.contains("with Lu") && !ran.out.contains("with Cholesky"), "{}", ran.out);
        let attempts = ran.out.lines().filter(|line| line.starts_with("tried"));
        attempts.for_each(|line| assert!(line.to_lowercase().contains(&format!("{method} with")), "{line}"));
    }
}

#[test]
fn times_are_labelled_and_advice_names_options() {
    let folder = Folder::new("labels");
    let ran = folder.run("krysp solve A.mtx --max-iterations 2 --method cg --preconditioner jacobi");
    assert!(ran.out.contains("2 iterations, setup ") && ran.out.contains(", solve "), "{}", ran.out);
    assert!(ran.out.contains("raise `--max-iterations`"), "{}", ran.out);
    let list = folder.run("krysp generate --list").out;
    assert!(list.contains("st7_0.1M_nat         13,824 x 13,824\n"), "{list}");
}

#[test]
fn completions_and_manual_are_made() {
    let folder = Folder::new("manual");
    assert!(folder.run("krysp completions bash").out.contains("inspect"));
    assert_eq!(folder.run("krysp manual pages").code, 0);
    for page in ["krysp.1", "krysp-inspect.1", "krysp-solve.1"] {
        assert!(std::fs::read_to_string(folder.at("pages").join(page)).unwrap().contains(".SH"), "{page}");
    }
}

/// On a terminal, the progress of a factorization is shown, and Ctrl-C ends it. The result is written as after a solve.
#[test]
fn ctrl_c_ends_a_factorization_that_shows_its_progress() {
    let folder = Folder::new("factorization");
    if !python_is_there(&folder) {
        return;
    }
    let script = repository().join("tests/cli/terminal.py");
    let script = script.display();
    // a complete factorization of this matrix takes much longer than the test may
    assert_eq!(folder.run("krysp generate st7_40 cube.mtx --quiet").code, 0);
    let started = std::time::Instant::now();
    let solve = "solve cube.mtx --method gmres --preconditioner lu --out x.mtx";
    let ran = folder.run(&format!("python3 {script} 'LU factorization' krysp {solve}"));
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("(Ctrl-C ends it and writes the best x)"), "{:?}", ran.out);
    assert!(ran.out.contains("not built: interrupted: LU factorization"), "{}", ran.out);
    assert!(ran.out.contains("cancelled"), "{}", ran.out);
    assert_eq!(krysp::io::read_vector::<f64>(folder.at("x.mtx")).unwrap().len(), 64_000);
    assert!(started.elapsed() < std::time::Duration::from_secs(30), "{:?}", started.elapsed());
}

#[test]
fn ctrl_c_ends_a_solve_and_writes_what_there_is() {
    let folder = Folder::new("terminal");
    if !python_is_there(&folder) {
        return;
    }
    let script = repository().join("tests/cli/terminal.py");
    let script = script.display();
    // an indefinite matrix of 27,000 unknowns takes thousands of iterations
    assert_eq!(folder.run("krysp generate st7_30 hard.mtx --quiet").code, 0);
    let solve =
        "solve hard.mtx --method minres --preconditioner jacobi --rtol 1e-13 --max-iterations 1000000";
    let ran = folder.run(&format!("python3 {script} 'iteration ' krysp {solve} --out x.mtx --json r.json"));
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("cancelled") && ran.out.contains(", residual "), "{}", ran.out);
    assert!(ran.out.contains("\r\x1b[2K"), "a line was shown and removed: {:?}", ran.out);
    assert!(krysp::io::read_vector::<f64>(folder.at("x.mtx")).unwrap().iter().any(|x| *x != 0.0));
    assert!(std::fs::read_to_string(folder.at("r.json")).unwrap().contains("\"cancelled\""));

    let ran = folder.run(&format!("python3 {script} '' krysp solve A.mtx --quiet"));
    assert_eq!((ran.code, ran.out.as_str()), (0, ""));
    let coloured = folder.run(&format!("python3 {script} '' krysp solve A.mtx"));
    assert!(coloured.out.contains("\x1b[1;32mconverged"), "{:?}", coloured.out);
    let plain = folder.run(&format!("NO_COLOR=1 python3 {script} '' krysp solve A.mtx"));
    assert!(plain.out.contains("converged") && !plain.out.contains("\x1b[1"), "{:?}", plain.out);
    let piped = folder.run("krysp solve A.mtx");
    assert!(piped.err.is_empty() && !piped.out.contains('\x1b'));

    // lines have at most 80 characters; continuation lines are indented
    for command in ["inspect tests/data/jpwh_991.mtx.gz", "inspect A.mtx", "solve A.mtx --max-iterations 1"] {
        let shown = folder.run(&format!("NO_COLOR=1 python3 {script} '' krysp {command}"));
        // only the text after the last `\r` of a line remains visible
        let lines = shown.out.lines().map(|line| line.trim_end().rsplit('\r').next().unwrap_or(""));
        for line in lines.filter(|line| !line.contains('\x1b')) {
            assert!(line.chars().count() <= 80, "{command}: {line}");
        }
    }
    let circuit = folder.run(&format!("python3 {script} '' krysp inspect tests/data/jpwh_991.mtx.gz"));
    assert!(circuit.out.contains("are symmetric,\r\n            93.6 % of the values"), "{}", circuit.out);
}

#[test]
fn an_unknown_simd_level_is_an_error() {
    let folder = Folder::new("simd");
    let ran = folder.run("KRYSP_SIMD=sse2 krysp inspect A.mtx");
    assert!(ran.code == 2 && ran.err.contains("expected portable, avx2 or avx512"), "{}{}", ran.out, ran.err);
    let ran = folder.run("KRYSP_SIMD=portable krysp devices");
    assert!(ran.code == 0 && ran.out.contains("portable"), "{}{}", ran.out, ran.err);
}
