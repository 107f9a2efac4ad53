//! Commands in the documents.

use std::path::{Path, PathBuf};

/// Whether a line runs the program, possibly after assignments of variables.
pub(crate) fn is_command(line: &str) -> bool {
    line.split(' ').find(|word| !word.contains('=')) == Some("krysp")
}

/// All pages below a folder.
pub(crate) fn pages(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let of = |path: PathBuf| match (path.is_dir(), path.extension().is_some_and(|it| it == "md")) {
        (true, _) => pages(&path),
        (false, true) => vec![path],
        _ => vec![],
    };
    entries.flat_map(of).collect()
}

/// The commands of a page: lines of blocks that are marked `sh` or `console`. Blocks marked `sh gpu` and `sh mpi` are left out,
/// because they need GPUs or MPI.
pub(crate) fn commands(page: &str) -> Vec<String> {
    let blocks = page.split("\n```").skip(1).step_by(2);
    let run =
        blocks.filter_map(|block| block.strip_prefix("sh\n").or_else(|| block.strip_prefix("console\n")));
    let lines = run.flat_map(str::lines).map(|line| line.strip_prefix("$ ").unwrap_or(line));
    lines.filter(|line| is_command(line)).map(str::to_owned).collect()
}
