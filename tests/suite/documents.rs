//! Properties of the documentation.

use krysp::{Cg, Csr};
use std::path::{Path, PathBuf};

/// All files below the folders and files `within` of the repository that have one of the `extensions`.
fn files(within: &[&str], extensions: &[&str]) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut open: Vec<PathBuf> = within.iter().map(|name| root.join(name)).collect();
    let mut found = vec![];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(path.read_dir().unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|it| extensions.iter().any(|wanted| it == *wanted)) {
            found.push(path);
        }
    }
    assert!(!found.is_empty());
    found
}

/// Users copy examples into programs without the feature `testing`.
#[test]
fn no_example_of_the_documentation_needs_the_feature_testing() {
    let of_testing = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/testing");
    let mut broken = vec![];
    for path in files(&["src", "solvers", "kernels", "docs", "README.md", "python/README.md"], &["rs", "md"])
    {
        let text = std::fs::read_to_string(&path).unwrap();
        let markdown = path.extension().is_some_and(|it| it == "md");
        let shown = |line: &&str| markdown || line.trim_start().starts_with("//");
        let example =
            |line: &&str| line.contains("use krysp::testing") || line.contains("krysp::testing::matrices");
        if !path.starts_with(&of_testing) && text.lines().filter(shown).any(|line| example(&line)) {
            broken.push(path);
        }
    }
    assert!(broken.is_empty(), "krysp::gallery makes matrices for examples: {broken:#?}");
}

/// The runtime of Rust prints `Error: {error:?}` for a `main` that returns an error.
#[test]
fn a_main_that_returns_an_error_prints_its_message() {
    fn solve() -> krysp::Result<()> {
        let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (1, 1, 4.0)])?;
        Cg::new(&a).solve(&[1.0; 3])?;
        Ok(())
    }
    let error = solve().unwrap_err();
    let message = error.to_string();
    assert!(message.contains("3 entries"), "{message}");
    assert_eq!(format!("{error:?}"), message);
    assert_eq!(format!("{:?}", krysp::solvers::Error::from(error)), message);
    let boxed: Box<dyn std::error::Error> = Box::new(solve().unwrap_err());
    assert_eq!(format!("{boxed:?}"), message);
    for error in [
        krysp::io::read_matrix::<f64>("no such folder/a.mtx").unwrap_err(),
        Csr::from_triplets(1, 1, &[(0, 5, 1.0)]).unwrap_err(),
    ] {
        assert_eq!(format!("{error:?}"), error.to_string());
    }
}
