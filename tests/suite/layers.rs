//! The layers of `src`: folders use only lower ones, as the list of ARCHITECTURE.md orders them.

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

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// What a file uses of the crate: the words that follow `crate::`, outside of comments.
fn used(text: &str) -> HashSet<&str> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let paths = code.flat_map(|line| line.split("crate::").skip(1));
    paths.map(|path| path.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("")).collect()
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
        for name in used(&fs::read_to_string(&path).unwrap()) {
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
