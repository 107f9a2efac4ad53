//! Tests that users meet only words of the field. `PRIVATE` lists what to write instead of private words.

use super::documents::{files, name};
use std::path::Path;

/// Where a word is private.
#[derive(Clone, Copy, PartialEq)]
enum In {
    /// In sentences and in names.
    Text,
    /// In names only: a sentence may use it.
    Names,
}
use In::{Names, Text};

/// Words and phrases that only this project used, and what the field says.
const PRIVATE: &[(&str, In, &str)] = &[
    ("numbering", Text, "an ordering is computed, a `Permutation` stored"),
    ("numberings", Text, "orderings, permutations"),
    ("renumber", Text, "reorder"),
    ("renumbers", Text, "reorders"),
    ("renumbered", Text, "reordered"),
    ("renumbering", Text, "reordering"),
    ("ladder", Text, "list of candidates"),
    ("rung", Text, "candidate, or attempt if it was run"),
    ("rungs", Text, "candidates, attempts"),
    ("climb", Text, "run"),
    ("gone on with", Text, "resumed"),
    ("left for the next", Text, "switched to the next"),
    ("hope", Text, "expected"),
    ("hoped", Text, "expected"),
    ("hopes", Text, "expected"),
    ("foretell", Text, "predict"),
    ("foretells", Text, "predicts"),
    ("foretold", Text, "predicted"),
    ("price", Text, "cost model, cost coefficients"),
    ("prices", Text, "cost models, cost coefficients"),
    ("priced", Text, "with a cost model"),
    ("weigh", Text, "evaluate, or have a weight"),
    ("weighs", Text, "evaluates"),
    ("weighed", Text, "evaluated"),
    ("earned", Text, "amortized"),
    ("patience", Text, "stagnation window, or time limit"),
    ("leap", Text, "batch of iterations"),
    ("leaps", Text, "batches of iterations"),
    ("room", Text, "capacity, workspace or free memory"),
    ("spare", Text, "workspace, or unused"),
    ("told", Text, "read back, reported"),
    ("tell", Text, "report, declare"),
    ("tells", Text, "reports, shows"),
    ("asks", Text, "queries, requests"),
    ("rigid motion", Text, "rigid body mode"),
    ("rigid motions", Text, "rigid body modes"),
    ("with modes", Names, "with near-null space"),
    ("plain aggregates", Text, "unsmoothed aggregation"),
    ("plain aggregation", Text, "unsmoothed aggregation"),
    ("moved a little", Text, "regularized by a diagonal shift"),
    ("anew", Text, "again, recomputed"),
    ("put aside", Text, "accumulated separately"),
    ("by hand", Text, "configured explicitly, hand-written"),
    ("factors without gaps", Text, "complete factorization"),
    ("halted", Text, "suspended"),
    ("whence", Text, "from where"),
    ("whoever", Text, "callers, or the name of them"),
    ("somebody", Text, "the name of who it is"),
    ("nobody", Text, "the name of who it is"),
    ("as it is", Text, "unchanged"),
    ("at once", Names, "single pass, or all"),
    ("dear", Text, "expensive"),
    ("hollow", Text, "zero diagonal"),
    ("for nothing", Text, "at no cost"),
    ("mends", Text, "fixes"),
    ("give up", Text, "report a failure, stop"),
    ("gives up", Text, "reports a failure, stops"),
];

/// Exceptions: file, word, and why the word has its usual meaning there.
const ALLOWED: &[(&str, &str, &str)] = &[];

/// The words of a text: small letters, names split at underscores and capitals, blanks between.
fn words(text: &str) -> String {
    let mut words = String::from(" ");
    let mut before = ' ';
    for letter in text.chars() {
        if letter.is_uppercase() && (before.is_lowercase() || before.is_ascii_digit()) {
            words.push(' ');
        }
        match letter.is_alphanumeric() {
            true => words.extend(letter.to_lowercase()),
            false if words.ends_with(' ') => {}
            false => words.push(' '),
        }
        before = letter;
    }
    words.push(' ');
    words
}

/// Private words of a text that are not allowed in this file.
fn private(file: &str, text: &str, kind: In) -> Vec<&'static str> {
    let words = words(text);
    let is_private = |&&(word, within, _): &&(&str, In, &str)| {
        (within == Text || kind == Names)
            && words.contains(&format!(" {word} "))
            && !ALLOWED.iter().any(|(path, allowed, _)| *path == file && *allowed == word)
    };
    PRIVATE.iter().filter(is_private).map(|(word, ..)| *word).collect()
}

/// Documentation comments of Rust: sentences, and code in them.
fn documentation(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))
}

/// Names that a line of Rust makes public: of items, of fields, and of members of public enums and traits.
fn public_name(line: &str, within: Option<usize>) -> Option<&str> {
    let (text, indent) = (line.trim_start(), line.len() - line.trim_start().len());
    let item = match text.strip_prefix("pub ") {
        Some(item) => item,
        None if within.is_some_and(|depth| indent == depth + 4) => text,
        None => return None,
    };
    let kinds = [
        "const fn ",
        "unsafe fn ",
        "fn ",
        "struct ",
        "enum ",
        "trait ",
        "mod ",
        "const ",
        "type ",
        "static ",
    ];
    let item = kinds.iter().find_map(|kind| item.strip_prefix(kind)).unwrap_or(item);
    let end = item.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(item.len());
    (end > 0 && !item.starts_with("use ") && !item.starts_with("let ")).then(|| &item[..end])
}

/// Literals of Rust with the numbers of their lines, without those of documentation aliases.
fn literals(text: &str) -> Vec<(usize, &str)> {
    let (mut found, mut at, bytes) = (vec![], 0, text.as_bytes());
    let end_of =
        |start: usize, end: &str| text[start..].find(end).map_or(text.len(), |length| start + length);
    while at < bytes.len() {
        let rest = &text.as_bytes()[at..];
        at = match rest {
            [b'/', b'/', ..] => end_of(at, "\n"),
            [b'\'', b'"', b'\'', ..] => at + 3,
            [b'\'', b'\\', _, b'\'', ..] => at + 4,
            [b'r', b'#', b'"', ..] => {
                let end = end_of(at + 3, "\"#");
                found.push((at + 3, &text[at + 3..end]));
                end + 2
            }
            [b'"', ..] => {
                let mut end = at + 1;
                while end < bytes.len() && bytes[end] != b'"' {
                    end += if bytes[end] == b'\\' { 2 } else { 1 };
                }
                let end = end.min(bytes.len());
                let line = &text[..at][text[..at].rfind('\n').map_or(0, |start| start + 1)..];
                if !line.contains("doc(alias") {
                    found.push((at + 1, &text[at + 1..end]));
                }
                end + 1
            }
            _ => at + 1,
        };
    }
    let mut lines = (0, 1);
    for (start, _) in &mut found {
        lines = (*start, lines.1 + text[lines.0..*start].matches('\n').count());
        *start = lines.1;
    }
    found
}

/// Adds the private words in what a Rust file shows to users.
fn check_rust(path: &Path, found: &mut Vec<String>) {
    let (file, text) = (name(path), std::fs::read_to_string(path).unwrap());
    // users do not see tests
    let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let mut within = None;
    for (number, line) in text.lines().enumerate() {
        let mut add = |text: &str, kind| {
            found.extend(
                private(&file, text, kind).iter().map(|word| format!("{file}:{}: {word}", number + 1)),
            );
        };
        if let Some(comment) = documentation(line) {
            for (at, part) in comment.split('`').enumerate() {
                add(part, if at % 2 == 0 { Text } else { Names });
            }
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        if within == Some(indent) && line.trim() == "}" {
            within = None;
        }
        public_name(line, within).into_iter().for_each(|name| add(name, Names));
        let item = line.trim_start();
        if ["pub enum ", "pub trait "].iter().any(|start| item.starts_with(start)) && item.ends_with('{') {
            within = Some(indent);
        }
    }
    // messages contain a blank; names of environment variables do not
    let is_shown = |literal: &str| literal.contains(' ') || literal.starts_with("KRYSP_");
    for (line, literal) in literals(text).into_iter().filter(|(_, literal)| is_shown(literal)) {
        let words = private(&file, literal, Text);
        found.extend(words.iter().map(|word| format!("{file}:{line}: {word}")));
    }
}

#[test]
fn what_users_read_has_no_private_words() {
    let mut found = vec![];
    for path in files(&["src", "solvers", "kernels", "python/src"], &["rs"]) {
        check_rust(&path, &mut found);
    }
    for path in files(&["python/krysp", "tests/cli"], &["py", "pyi", "txt"]) {
        let text = std::fs::read_to_string(&path).unwrap();
        for (number, line) in text.lines().enumerate() {
            let words = private(&name(&path), line, Names);
            found.extend(words.iter().map(|word| format!("{}:{}: {word}", name(&path), number + 1)));
        }
    }
    let instead = |line: &String| {
        let entry = PRIVATE.iter().find(|(word, ..)| line.ends_with(&format!(": {word}")));
        format!("{line} (write: {})", entry.map_or("", |(.., instead)| instead))
    };
    assert!(found.is_empty(), "{:#?}", found.iter().map(instead).collect::<Vec<_>>());
}

/// Private words in prose, for pages that are not Rust.
pub(super) fn private_words(file: &str, prose: &str) -> Vec<&'static str> {
    private(file, prose, Text)
}

#[test]
fn private_words_are_found_wherever_they_stand() {
    for (line, word) in [
        ("/// The numbering of rows.", "numbering"),
        ("    /// As `renumbered_on`.", "renumbered"),
        ("pub fn rigid_motions(points: usize) {}", "rigid motions"),
        ("    pub patience: usize,", "patience"),
        ("pub struct Price {", "price"),
        ("const WHY: &str = \"the result was foretold\";", "foretold"),
        ("const WHY: &str = \"two lines \\\n    by hand\";", "by hand"),
        ("const NAME: &str = \"KRYSP_PATIENCE\";", "patience"),
        ("pub enum Left {\n    Ladder(usize),\n}", "ladder"),
    ] {
        let path = std::env::temp_dir().join(format!("krysp_words_{}.rs", std::process::id()));
        std::fs::write(&path, line).unwrap();
        let mut found = vec![];
        check_rust(&path, &mut found);
        std::fs::remove_file(&path).unwrap();
        assert!(found.len() == 1 && found[0].ends_with(word), "{line}: {found:?}");
    }
    // words of the dictionary that contain one of ours
    assert!(private("", "Permute all at once: a bedroom, spared, pricey.", Text).is_empty());
    // an exception that is not needed any more is removed
    for (file, word, reason) in ALLOWED {
        let text = super::documents::read(file);
        assert!(words(&text).contains(&format!(" {word} ")), "{file}: {word}, {reason}");
    }
}
