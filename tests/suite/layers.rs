//! The layers of `src`: folders use only lower ones, as the list of ARCHITECTURE.md orders them. The length of functions.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The folders and files of `src` in the order of ARCHITECTURE.md, lowest first, without `/` and `.rs`.
fn layers() -> Vec<String> {
    let document = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let list = document.split_once("\nsrc/ ").unwrap().1.split_once("\n```").unwrap().0;
    let mut layers: Vec<String> = vec![];
    for line in list.lines() {
        // names come first, then what they hold
        for word in line.split_whitespace() {
            let Some(name) = word.strip_suffix('/').or(word.strip_suffix(".rs")) else { break };
            if layers.last().is_none_or(|last| last != name) {
                layers.push(name.to_owned());
            }
        }
    }
    layers
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// What a file uses of the crate: the words that follow `crate::`, outside of comments, and the folders that follow enough
/// `super::` to reach the root from a module at this depth. Of words that follow `$crate::` only folders count: exported macros
/// name public items of the root.
fn used<'t>(text: &'t str, depth: usize, layers: &[String]) -> HashSet<&'t str> {
    let word = |path: &'t str| path.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
    let (mut used, to_root) = (HashSet::new(), "super::".repeat(depth));
    for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
        let is_folder = |name: &&str| layers.iter().any(|layer| layer == name);
        used.extend(line.split("$crate::").skip(1).map(word).filter(is_folder));
        let paths = line.split("crate::").collect::<Vec<_>>();
        let own = paths.windows(2).filter(|pair| !pair[0].ends_with('$'));
        used.extend(own.map(|pair| word(pair[1])));
        let from_root = line.split(&to_root).skip(1).map(|path| word(path.trim_start_matches("super::")));
        used.extend(from_root.filter(is_folder));
    }
    used
}

#[test]
fn every_kind_of_path_is_found() {
    let layers = ["formats", "plan"].map(String::from);
    let text = "use crate::formats::Csr;\n// crate::io\nuse super::super::plan::Plan;\nuse super::plan::own;";
    assert_eq!(used(text, 2, &layers), HashSet::from(["formats", "plan"]));
    assert_eq!(used("use super::plan::own; use crate::Csr;", 2, &layers), HashSet::from(["Csr"]));
    assert_eq!(used("$crate::plan::Plan, $crate::Csr", 1, &layers), HashSet::from(["plan"]));
}

#[test]
fn folders_use_only_lower_ones() {
    let layers = layers();
    let place = |name: &str| layers.iter().position(|layer| layer == name);
    let (mut files, mut wrong) = (vec![], vec![]);
    sources(&root().join("src"), &mut files);
    for path in files {
        let within = path.strip_prefix(root().join("src")).unwrap();
        let first = within.iter().next().unwrap().to_str().unwrap();
        let own = first.strip_suffix(".rs").unwrap_or(first);
        if matches!(own, "lib" | "bin") {
            continue;
        }
        let Some(at) = place(own) else {
            wrong.push(format!("ARCHITECTURE.md does not list src/{first}"));
            continue;
        };
        let depth = within.with_extension("").iter().filter(|part| *part != "mod").count();
        for name in used(&fs::read_to_string(&path).unwrap(), depth, &layers) {
            match place(name) {
                Some(lower) if lower <= at => {}
                Some(_) => wrong.push(format!("src/{} uses {name}, which is above {own}", within.display())),
                // an item of the crate root, which lib.rs takes from a folder
                None => wrong.push(format!("src/{} uses crate::{name}, not a folder", within.display())),
            }
        }
    }
    assert!(layers.len() > 20 && wrong.is_empty(), "{wrong:#?}");
}

/// Maximum number of lines of a function. New functions have at most 80.
const LONGEST: usize = 100;

/// Name and number of lines of each function: from its name to the closing brace with the same indentation.
fn functions(text: &str) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = vec![];
    for (at, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let indent = &line[..line.len() - code.len()];
        let words: Vec<&str> = code.split([' ', '(', '<']).collect();
        let Some(place) = words.iter().position(|word| *word == "fn") else { continue };
        let qualifiers = ["pub", "crate)", "super)", "const", "unsafe", "extern", "\"C\"", "async"];
        if !words[..place].iter().all(|word| qualifiers.contains(word)) {
            continue;
        }
        let ends = |line: &&str| line.strip_prefix(indent) == Some("}");
        let signature = lines[at..].iter().position(|line| line.ends_with(['{', ';', '}']));
        if signature.is_some_and(|end| lines[at + end].ends_with('{')) {
            let length = lines[at..].iter().position(ends).map_or(lines.len() - at, |end| end + 1);
            found.push((words[place + 1], length));
        }
    }
    found
}

#[test]
fn functions_are_short() {
    let text = "impl A {\n    pub(crate) fn a(\n        b: B,\n    ) -> C {\n        b.c()\n    }\n    fn d();\n}\nfn e() {\n}\n";
    assert_eq!(functions(text), [("a", 5), ("e", 2)]);
    let mut files = vec![];
    ["src", "solvers", "kernels"].iter().for_each(|folder| sources(&root().join(folder), &mut files));
    let mut count = 0;
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        for (name, lines) in functions(&text) {
            count += 1;
            assert!(lines <= LONGEST, "{}: `{name}` has {lines} lines", path.display());
        }
    }
    assert!(count > 1000);
}
