//! `krysp solve`, in one process and on MPI ranks.

use super::*;

#[test]
fn solve_reports_the_result() {
    let folder = Folder::new("solve");
    let ran = folder.run("krysp solve A.mtx b.mtx --out x.mtx --history h.csv --json r.json");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    compare("solve.txt", &ran.out);
    let x: Vec<f64> = krysp::io::read_vector(folder.at("x.mtx")).unwrap();
    let a = krysp::io::read_matrix::<f64>(folder.at("A.mtx")).unwrap();
    for row in 0..a.rows() {
        let product: f64 =
            a.row_columns(row).iter().zip(a.row_values(row)).map(|(&j, v)| v * x[j as usize]).sum();
        assert!((product - 1.0).abs() < 1e-5);
    }
    let history = std::fs::read_to_string(folder.at("h.csv")).unwrap();
    assert!(
        history.starts_with("configuration,iteration,residual\n") && history.lines().count() > 2,
        "{history}"
    );
    let report = std::fs::read_to_string(folder.at("r.json")).unwrap();
    for field in ["\"converged\": true", "\"recurrent_residuals\": [", "\"rhs_norm\": 14.696938456699069"] {
        assert!(report.contains(field), "{field} in\n{report}");
    }
    let quiet = folder.run("krysp solve A.mtx --quiet");
    assert_eq!((quiet.code, quiet.out.as_str(), quiet.err.as_str()), (0, "", ""));
    // a loaded plan is not built again, and works only for its matrix
    let saved = folder.run("krysp solve A.mtx b.mtx --out x.mtx --save plan --quiet && krysp solve A.mtx b.mtx --out y.mtx --load plan");
    assert_eq!((saved.code, saved.err.as_str()), (0, ""));
    assert!(saved.out.contains("converged"), "{}", saved.out);
    assert_eq!(std::fs::read(folder.at("x.mtx")).unwrap(), std::fs::read(folder.at("y.mtx")).unwrap());
    let other = folder.run("krysp solve tests/data/jpwh_991.mtx.gz --load plan");
    assert!(other.code == 2 && other.err.contains("a different sparsity pattern"), "{}", other.err);
    // an initial guess that is the solution needs no iteration
    assert!(folder.run("krysp solve A.mtx b.mtx --guess x.mtx --rtol 1e-7").out.contains(": 0 iterations"));
}

/// A complete factorization is described, with the signs of the eigenvalues if the matrix is symmetric.
#[test]
fn solve_describes_complete_factorizations() {
    let folder = Folder::new("factors");
    let circuit = "tests/data/jpwh_991.mtx.gz";
    for (matrix, name, expected) in [
        ("A.mtx", "ldl", "factors     LDL by fronts: "),
        ("A.mtx", "cholesky", "factors     Cholesky by fronts: "),
        (circuit, "lu", "factors     LU by "),
    ] {
        let ran = folder.run(&format!("krysp solve {matrix} --preconditioner {name} --json r.json"));
        assert!(ran.code == 0 && ran.out.contains(expected), "{}{}", ran.out, ran.err);
        assert!(ran.out.contains(" multiplications, "), "{}", ran.out);
        let report = std::fs::read_to_string(folder.at("r.json")).unwrap();
        assert!(report.contains("\"multiplications\": "), "{report}");
        assert_eq!(report.contains("\"positive_eigenvalues\": 216"), matrix == "A.mtx", "{report}");
        assert_eq!(ran.out.contains(", 216 positive and 0 negative"), matrix == "A.mtx", "{}", ran.out);
    }
    let columns = folder.run("krysp solve A.mtx B.mtx --preconditioner cholesky");
    assert!(columns.out.contains("factors     Cholesky by fronts: "), "{}{}", columns.out, columns.err);
    let ran = folder.run("krysp solve A.mtx --preconditioner amg --json -");
    assert!(
        !ran.err.contains("factors  ") && ran.out.contains("\"factors\": null"),
        "{}{}",
        ran.out,
        ran.err
    );
}

/// Properties of the system are read from files, and errors name the options.
#[test]
fn solve_uses_declared_properties() {
    let folder = Folder::new("known");
    let (a, points) = krysp::gallery::elasticity::<f64>([3, 3, 3], 0.3).unwrap();
    krysp::io::write_matrix(folder.at("E.mtx"), &a).unwrap();
    let array = |columns: &[Vec<f64>]| {
        let entries: Vec<String> = columns.iter().flatten().map(ToString::to_string).collect();
        let (rows, count) = (columns[0].len(), columns.len());
        format!("%%MatrixMarket matrix array real general\n{rows} {count}\n{}\n", entries.join("\n"))
    };
    let axes = |points: &[[f64; 3]]| [0, 1, 2].map(|axis| points.iter().map(|point| point[axis]).collect());
    let each: Vec<[f64; 3]> = (0..a.rows()).map(|i| points[i / 3]).collect();
    let modes = krysp::rigid_body_modes(&points, krysp::UnknownOrder::ByNode);
    folder.write("nodes.mtx", &array(&axes(&points)));
    folder.write("each.mtx", &array(&axes(&each)));
    folder.write("components.mtx", &array(&[(0..a.rows()).map(|i| (i % 3) as f64).collect()]));
    folder.write("modes.mtx", &array(&modes));
    let out = |options: &str| {
        let ran = folder.run(&format!("krysp solve E.mtx --method cg --preconditioner amg {options}"));
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{options}: {}", ran.out);
    };
    out("--coordinates nodes.mtx");
    out("--coordinates each.mtx --components components.mtx --fields components.mtx");
    out("--near-null-space modes.mtx --symmetric yes --positive-definite yes");
    let refused = |options: &str, words: &str| {
        let ran = folder.run(&format!("krysp solve E.mtx {options}"));
        assert!(ran.code == 2 && ran.err.contains(words), "{options}: {}{}", ran.out, ran.err);
    };
    refused("--coordinates each.mtx", "one point for each node is needed");
    refused("--coordinates modes.mtx", "modes.mtx: expected 2 or 3 columns");
    refused("--components components.mtx", "--coordinates");
    refused("--fields each.mtx", "each.mtx");
    refused("--null-space constant", "not in the null space");
    refused("--symmetric maybe", "maybe");
    refused("--load plan --symmetric yes", "--symmetric cannot be used with --load");
    let indefinite = folder.run("krysp solve E.mtx --positive-definite no");
    assert!(indefinite.code == 0 && indefinite.out.contains("Minres"), "{}", indefinite.out);

    krysp::io::write_matrix(folder.at("N.mtx"), &krysp::gallery::neumann::<f64>(&[6, 6]).unwrap()).unwrap();
    folder.write("b.mtx", &array(&[(0..36).map(f64::from).collect()]));
    assert_eq!(folder.run("krysp solve N.mtx b.mtx").code, 1);
    for null_space in ["constant", "ones.mtx"] {
        folder.write("ones.mtx", &array(&[vec![1.0; 36]]));
        let ran = folder.run(&format!("krysp solve N.mtx b.mtx --null-space {null_space}"));
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    }
}

/// Under `mpirun`, all ranks solve one system; the first rank prints and writes.
#[cfg(feature = "mpi")]
#[test]
fn ranks_solve_together() {
    let folder = Folder::new("ranks");
    if folder.run("mpirun --version").code != 0 {
        return krysp::testing::skipped("no `mpirun` on this machine");
    }
    let ranks = "OMPI_MCA_mpi_yield_when_idle=0 RAYON_NUM_THREADS=1 timeout 60 \
                 mpirun --allow-run-as-root --oversubscribe --bind-to none -n";
    let a = krysp::io::read_matrix::<f64>(folder.at("A.mtx")).unwrap();
    for (count, matrix, options) in [
        (2, "A.mtx", "--json r.json --history h.csv --plot p.png"),
        (3, "A.mtx.gz", "--method bicgstab --precond spai --guess b.mtx"),
        (2, "A.npz", "--preconditioner fsai --time-limit 50"),
    ] {
        let ran = folder.run(&format!("{ranks} {count} krysp solve {matrix} b.mtx --out x.mtx {options}"));
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
        let size = format!("216 x 216, 1,296 entries, on {count} ranks, read in");
        assert!(ran.out.contains(&size), "{}", ran.out);
        assert_eq!(ran.out.matches("result").count(), 1, "{}", ran.out);
        let x: Vec<f64> = krysp::io::read_vector(folder.at("x.mtx")).unwrap();
        for row in 0..a.rows() {
            let product: f64 =
                a.row_columns(row).iter().zip(a.row_values(row)).map(|(&j, v)| v * x[j as usize]).sum();
            assert!((product - 1.0).abs() < 1e-5);
        }
        std::fs::remove_file(folder.at("x.mtx")).unwrap();
    }
    let report = std::fs::read_to_string(folder.at("r.json")).unwrap();
    for field in ["\"converged\": true", "\"ranks\": 2", "\"rhs_norm\": 14.69693845669906"] {
        assert!(report.contains(field), "{field} in\n{report}");
    }
    let history = std::fs::read_to_string(folder.at("h.csv")).unwrap();
    assert!(history.starts_with("configuration,iteration,residual\nCg with Amg,0,1e0\n"), "{history}");
    assert!(Picture::read(&folder.at("p.png")).has_ink());
    // an unsymmetric matrix, a generated b, and only JSON on standard output
    let circuit = "krysp solve tests/data/jpwh_991.mtx.gz";
    let ran = folder.run(&format!("{ranks} 2 {circuit}"));
    assert!(ran.code == 0 && ran.out.contains("BiCgStab with Ilu0 of each rank's block"), "{}", ran.out);
    assert!(ran.out.contains("relative error of x"), "{}", ran.out);
    let ran = folder.run(&format!("{ranks} 2 {circuit} --json - | python3 -m json.tool"));
    assert!(ran.code == 0 && ran.out.contains("\"relative_error\""), "{}{}", ran.out, ran.err);
    // a single rank plans like a single process
    let ran = folder.run(&format!("{ranks} 1 krysp solve A.mtx --solves 10"));
    assert!(ran.code == 0 && ran.out.contains("format  "), "{}{}", ran.out, ran.err);
    // an error is printed once, whichever rank detects it
    folder.write("line.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 1\n3 1 1\n");
    folder.write("short.mtx", "%%MatrixMarket matrix array real general\n2 1\n1\n2\n");
    for (command, message) in [
        ("nothing.mtx", "nothing.mtx"),
        ("line.mtx", "line.mtx"),
        ("A.mtx short.mtx", "expected 216 entries to match the matrix, found 2"),
        ("A.mtx --out nowhere/x.mtx", "nowhere/x.mtx"),
        ("A.mtx --format CSR", "each rank chooses the format"),
        ("A.mtx --save plan", "there are no plans on ranks"),
    ] {
        // run in a shell, because `mpirun` takes seconds to end ranks that fail
        let script = format!("krysp solve {command}; echo rank $OMPI_COMM_WORLD_RANK ended with $?");
        let ran = folder.run(&format!("{ranks} 2 sh -c '{script}'"));
        assert!(
            ran.out.contains("rank 0 ended with 2") && ran.out.contains("rank 1 ended with 0"),
            "{}",
            ran.out
        );
        assert_eq!(ran.err.matches("krysp: ").count(), 1, "{command}: {}", ran.err);
        assert!(ran.err.contains(message), "{command}: {}", ran.err);
    }
    let ran =
        folder.run(&format!("{ranks} 2 krysp solve A.mtx --max-iterations 2 --method cg --precond jacobi"));
    assert!(ran.code == 1 && ran.out.contains("stopped at the iteration limit"), "{}{}", ran.out, ran.err);
}

/// Several right-hand sides are the columns of one file.
#[test]
fn solve_takes_columns() {
    let folder = Folder::new("columns");
    let a = krysp::io::read_matrix::<f64>(folder.at("A.mtx")).unwrap();
    let columns = krysp::io::read_columns::<f64>(folder.at("B.mtx")).unwrap();
    assert_eq!(columns.len(), 3);
    let ran = folder.run("krysp solve A.mtx B.mtx --out X.mtx --json r.json");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    assert!(ran.out.contains("column 3") && ran.out.contains("3 of 3 columns converged"), "{}", ran.out);
    let x = krysp::io::read_columns::<f64>(folder.at("X.mtx")).unwrap();
    assert_eq!(x.len(), 3);
    for (x, b) in x.iter().zip(&columns) {
        for (row, b) in b.iter().enumerate() {
            let entries = a.row_columns(row).iter().zip(a.row_values(row));
            let product: f64 = entries.map(|(&j, v)| v * x[j as usize]).sum();
            assert!((product - b).abs() < 1e-5, "{product} {b}");
        }
    }
    let report = std::fs::read_to_string(folder.at("r.json")).unwrap();
    assert_eq!(report.matches("\"converged\": true").count(), 3, "{report}");
    assert_eq!(report.matches("\"block\": ").count(), 3, "{report}");
    let piped = folder.run("krysp solve A.mtx B.mtx --out -");
    assert_eq!(piped.out, std::fs::read_to_string(folder.at("X.mtx")).unwrap());
    let refused = |options: &str, words: &str| {
        let ran = folder.run(&format!("krysp solve A.mtx B.mtx {options}"));
        assert!(ran.code == 2 && ran.err.contains(words), "{options}: {}{}", ran.out, ran.err);
    };
    refused("--guess b.mtx", "--guess is for one right-hand side, there are 3");
    refused("--history h.csv", "--history is for one");
    refused("--out X.npy", "3 columns are written to a file in .mtx");
    refused("--out X.mtx.npy", "3 columns are written to a file in .mtx");
    let few = folder.run("krysp solve A.mtx B.mtx --max-iterations 1 --method cg --preconditioner jacobi");
    assert!(few.code == 1 && few.out.contains("0 of 3 columns converged"), "{}", few.out);
    folder.write("empty.mtx", "%%MatrixMarket matrix array real general\n216 0\n");
    let empty = folder.run("krysp solve A.mtx empty.mtx");
    assert_eq!(empty.code, 2, "{}{}", empty.out, empty.err);
}
