//! Formatting of numbers, bars and headings for the terminal.

use krysp::Inertia;
use krysp::solvers::InterfaceNames;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::sync::atomic::{AtomicBool, Ordering};

/// Names of the program's options for advice.
pub(crate) const WORDS: InterfaceNames = InterfaceNames {
    max_iterations: "`--max-iterations`",
    time_limit: "`--time-limit`",
    guess: "`--guess`",
    gmres: "`--method gmres`",
    minres: "`--method minres`",
    bicgstab: "`--method bicgstab`",
    restart: None,
    null_space: Some("`--null-space`"),
};

/// True if reports go to standard error, because data is written to standard output.
static ON_STDERR: AtomicBool = AtomicBool::new(false);

/// Sends reports to standard error from now on if data is written to standard output.
pub(crate) fn keep_clear(of_stdout: bool) {
    ON_STDERR.store(of_stdout, Ordering::Relaxed);
}

fn is_on_stderr() -> bool {
    ON_STDERR.load(Ordering::Relaxed)
}

/// Prints a line of a report. A closed pipe, as after `head`, is not an error.
pub(crate) fn say(line: &str) {
    let _ = if is_on_stderr() { writeln!(stderr(), "{line}") } else { writeln!(stdout(), "{line}") };
}

/// Returns whether a report goes to a terminal.
fn to_terminal() -> bool {
    if is_on_stderr() { stderr().is_terminal() } else { stdout().is_terminal() }
}

/// An integer with its digits in groups of three: `4,783,719`.
pub(crate) fn count(number: usize) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && at % 3 == first {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 row`, `2 rows`.
pub(crate) fn counted(number: usize, what: &str) -> String {
    format!("{} {what}{}", count(number), if number == 1 { "" } else { "s" })
}

/// `1 entry`, `2 entries`.
pub(crate) fn entries(number: usize) -> String {
    format!("{} {}", count(number), if number == 1 { "entry" } else { "entries" })
}

/// Numbers of eigenvalues of a symmetric matrix.
pub(crate) fn inertia(Inertia { negative, positive }: Inertia) -> String {
    format!("{} positive and {} negative eigenvalues", count(positive), count(negative))
}

/// Bytes in powers of ten.
pub(crate) fn bytes(bytes: usize) -> String {
    let units = [(1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    let number = bytes as f64;
    match units.into_iter().find(|(unit, _)| number >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", number / unit),
        None => format!("{bytes} bytes"),
    }
}

/// A time with its unit, from microseconds to seconds.
pub(crate) fn seconds(time: f64) -> String {
    match time {
        t if t < 1e-3 => format!("{:.1} µs", t * 1e6),
        t if t < 1.0 => format!("{:.1} ms", t * 1e3),
        t if t < 100.0 => format!("{t:.2} s"),
        t => format!("{t:.0} s"),
    }
}

/// A fraction as a percentage, or as a word if it is 0 or 1: `99.9 %`, `none`, `all`.
pub(crate) fn share(part: usize, of: usize) -> String {
    match (part, of) {
        (0, _) => "none".into(),
        (part, of) if part == of => "all".into(),
        // do not round to 0 or 100 %
        (part, of) => format!("{:.1} %", (100.0 * part as f64 / of as f64).clamp(0.1, 99.9)),
    }
}

/// A bar as long as the fraction `share` of `width` characters, rounded to an eighth of a character.
pub(crate) fn bar(share: f64, width: usize) -> String {
    const PARTS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths = (share.clamp(0.0, 1.0) * (8 * width) as f64).round() as usize;
    let mut text = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        text.push(PARTS[eighths % 8]);
    }
    text
}

/// Returns whether colours are shown: on a terminal, unless `NO_COLOR` is set.
fn coloured() -> bool {
    to_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn styled(code: &str, text: &str) -> String {
    if coloured() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Formats a heading.
pub(crate) fn bold(text: &str) -> String {
    styled("1", text)
}

/// Formats a success.
pub(crate) fn good(text: &str) -> String {
    styled("1;32", text)
}

/// Formats a failure.
pub(crate) fn bad(text: &str) -> String {
    styled("1;31", text)
}

/// Prints a line of a report: the label `about`, then `found`.
pub(crate) fn line(about: &str, found: &str) {
    say(&format!("{about:<12}{}", wrapped(found, 12)));
}

/// Wraps a text at 80 characters if the output is a terminal. All lines but the first are indented; the first
/// follows `indent` characters that the caller prints.
pub(crate) fn wrapped(text: &str, indent: usize) -> String {
    const WIDTH: usize = 80;
    if !to_terminal() {
        return text.to_owned();
    }
    let mut lines = String::new();
    let mut at = indent;
    for (index, word) in text.split(' ').enumerate() {
        let width = width(word);
        if index > 0 && at + 1 + width > WIDTH {
            lines += &format!("\n{:indent$}", "");
            at = indent;
        } else if index > 0 {
            lines.push(' ');
            at += 1;
        }
        lines += word;
        at += width;
    }
    lines
}

/// Number of visible characters of a word: escape sequences for colours are not counted.
fn width(word: &str) -> usize {
    let mut coloured = word.split('\x1b');
    let plain = coloured.next().map_or(0, |text| text.chars().count());
    plain
        + coloured.map(|text| text.split_once('m').map_or(0, |(_, seen)| seen.chars().count())).sum::<usize>()
}
