//! What the documents promise to a reader.

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

/// The feature `testing` is off in the program of a user, who copies examples.
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
