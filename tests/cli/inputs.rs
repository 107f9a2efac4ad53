//! Inputs that are refused before any work, and files that are not overwritten.

use super::*;

/// Runs a command that must be refused, with these words in its error.
fn refused(folder: &Folder, command: &str, words: &str) {
    let ran = folder.run(command);
    assert!(ran.code == 2 && ran.err.contains(words), "{command}: {} {}{}", ran.code, ran.out, ran.err);
}

#[test]
fn inputs_are_not_overwritten() {
    let folder = Folder::new("overwritten");
    let before = std::fs::read(folder.at("A.mtx")).unwrap();
    let words = "the file is an input, which is not overwritten";
    refused(&folder, "krysp solve A.mtx --out A.mtx", &format!("--out A.mtx: {words}"));
    refused(&folder, "krysp solve A.mtx --save ./A.mtx", &format!("--save ./A.mtx: {words}"));
    refused(&folder, "krysp solve A.mtx b.mtx --out b.mtx", &format!("--out b.mtx: {words}"));
    refused(&folder, "ln -s A.mtx link.mtx && krysp solve A.mtx --out link.mtx", words);
    refused(&folder, "krysp solve A.mtx b.mtx --guess x.npy --out x.npy", "x.npy");
    refused(
        &folder,
        "krysp solve A.mtx --out x.mtx --save x.mtx",
        "--save x.mtx: --out writes to the same file",
    );
    assert_eq!(std::fs::read(folder.at("A.mtx")).unwrap(), before);
    // a plan may be replaced by the one that continues it
    let ran = folder.run("krysp solve A.mtx --quiet --save p && krysp solve A.mtx --quiet --load p --save p");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
}

#[test]
fn vectors_must_be_finite() {
    let folder = Folder::new("finite");
    let vector = |at: usize| {
        let entries: Vec<_> = (0..216).map(|i| if i == at { "nan" } else { "1" }).collect();
        format!("%%MatrixMarket matrix array real general\n216 1\n{}\n", entries.join("\n"))
    };
    folder.write("bad.mtx", &vector(6));
    refused(&folder, "krysp solve A.mtx bad.mtx", "bad.mtx: entry 7 is NaN");
    refused(&folder, "krysp solve A.mtx b.mtx --guess bad.mtx", "bad.mtx: entry 7 is NaN");
    let columns: Vec<_> = (0..432).map(|i| if i == 220 { "inf" } else { "1" }).collect();
    let text = format!("%%MatrixMarket matrix array real general\n216 2\n{}\n", columns.join("\n"));
    folder.write("two.mtx", &text);
    refused(&folder, "krysp solve A.mtx two.mtx", "two.mtx: entry (5, 2) is inf");
}

/// The shape is checked before a vector of 900 million entries is made.
#[test]
fn a_wide_matrix_is_refused_at_once() {
    let folder = Folder::new("wide");
    let numbers: [u32; 6] = [1_211_216, 2, 889_192_484, 2, 1, 1];
    let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
    bytes.extend([0, 5_u32].iter().flat_map(|column| column.to_be_bytes()));
    bytes.extend([1.0, 2.0_f64].iter().flat_map(|value| value.to_be_bytes()));
    std::fs::write(folder.at("wide.petsc"), bytes).unwrap();
    // less memory than such a vector takes
    refused(&folder, "ulimit -v 4000000 && krysp solve wide.petsc", "the matrix is 2 x 889192484");
}

#[test]
fn a_tolerance_of_zero_is_allowed() {
    let folder = Folder::new("zero");
    let ran = folder.run(
        "krysp solve A.mtx --rtol 0 --max-iterations 30 --method cg --preconditioner jacobi --plot r.png --history h.csv",
    );
    assert_eq!((ran.code, ran.err.as_str()), (1, ""), "{}", ran.out);
    assert!(Picture::read(&folder.at("r.png")).has_ink());
    let history = std::fs::read_to_string(folder.at("h.csv")).unwrap();
    assert!(history.lines().count() > 10 && !history.contains("NaN"), "{history}");
}

#[test]
fn numbers_of_threads_are_checked() {
    let folder = Folder::new("number");
    for wrong in ["abc", "-3", "100000"] {
        let command = format!("RAYON_NUM_THREADS={wrong} timeout 20 krysp devices");
        refused(&folder, &command, &format!("or 0 for one thread a core; got {wrong}"));
    }
    for right in ["", "0", "3"] {
        assert_eq!(folder.run(&format!("RAYON_NUM_THREADS={right} krysp --version")).code, 0);
    }
}

#[test]
fn a_system_without_unknowns_has_no_error() {
    let folder = Folder::new("empty");
    folder.write("E.mtx", "%%MatrixMarket matrix coordinate real general\n0 0 0\n");
    let ran = folder.run("krysp solve E.mtx");
    assert!(ran.code == 0 && !ran.out.contains("NaN"), "{}{}", ran.out, ran.err);
}
