//! A shell command and a Rust program that solve as `krysp inspect` plans.

use std::path::Path;

/// The command that solves with the plan of `krysp inspect`.
pub(crate) fn command(file: &Path, solves: Option<usize>) -> String {
    let solves = solves.map_or(String::new(), |solves| format!(" --solves {solves}"));
    format!("krysp solve {}{solves}", quoted(file))
}

/// A file name, quoted for a shell if necessary.
fn quoted(file: &Path) -> String {
    let name = file.display().to_string();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+=:,@%".contains(letter);
    if !name.is_empty() && name.chars().all(plain) {
        name
    } else {
        format!("'{}'", name.replace('\'', r"'\''"))
    }
}

/// A Rust program that solves like the shell command.
pub(crate) fn rust(file: &Path, solves: Option<usize>) -> String {
    let name = format!("{:?}", file.display().to_string());
    let solves = solves.map_or(String::new(), |solves| format!(".solves({solves})"));
    format!(
        "fn main() -> Result<(), Box<dyn std::error::Error>> {{
    let a = krysp::io::read_matrix::<f64>({name})?;
    let b = vec![1.0; a.rows()]; // yours
    let mut solver = krysp::Plan::new(&a)?{solves}.build()?;
    let solved = solver.solve(&b)?; // as often as you like
    println!(\"{{solved}}\");
    Ok(())
}}"
    )
}
