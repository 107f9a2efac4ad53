//! Properties of the documentation.

use super::vocabulary::private_words;
use krysp::plan::{AttemptEnd, Method, Preconditioner};
use krysp::solvers::Evidence;
use krysp::{Cg, Csr, Format, Outcome, each_format};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// All files below the folders and files `within` of the repository that have one of the `extensions`.
pub(super) fn files(within: &[&str], extensions: &[&str]) -> Vec<PathBuf> {
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
    found.sort();
    found
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(super) fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// A path below the repository, for messages and comparisons.
pub(super) fn name(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).to_string_lossy().replace('\\', "/")
}

/// All pages, those for users and those for developers.
fn pages() -> Vec<PathBuf> {
    let developers =
        ["ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "benches", "tests/data"];
    files(&[&["docs", "README.md", "python/README.md"][..], &developers].concat(), &["md"])
}

/// A fenced block of a page: its info string, and its lines.
struct Block {
    info: String,
    lines: Vec<String>,
}

/// Fenced blocks of a page, and its other lines.
fn blocks(text: &str) -> (Vec<Block>, Vec<&str>) {
    let (mut blocks, mut prose, mut open) = (vec![], vec![], None);
    for line in text.lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(info), None) => open = Some(Block { info: info.into(), lines: vec![] }),
            (None, Some(Block { lines, .. })) => lines.push(line.to_owned()),
            (None, None) => prose.push(line),
        }
    }
    assert!(open.is_none(), "a fence is not closed");
    (blocks, prose)
}

/// Targets of the links and pictures of a page that are not in code.
fn links(prose: &[&str]) -> Vec<String> {
    let outside_code: String = prose.join("\n").split('`').step_by(2).collect::<Vec<_>>().join("code");
    let mut found = vec![];
    for (before, after) in [("](", ')'), ("src=\"", '"')] {
        let ends = outside_code.split(before).skip(1).filter_map(|rest| rest.split_once(after));
        found.extend(ends.map(|(target, _)| target.to_owned()));
    }
    found
}

/// Anchors of the headings of a page, as GitHub generates them.
fn anchors(prose: &[&str]) -> BTreeSet<String> {
    let headings = prose.iter().filter(|line| line.starts_with('#'));
    let anchor = |heading: &&str| {
        let kept = |letter: char| match letter {
            ' ' => Some('-'),
            '-' | '_' => Some(letter),
            _ => letter.is_alphanumeric().then_some(letter),
        };
        heading.trim_start_matches('#').trim().to_lowercase().chars().filter_map(kept).collect()
    };
    headings.map(anchor).collect()
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

#[test]
fn links_lead_somewhere() {
    let mut broken = vec![];
    for path in pages() {
        let text = read(&path);
        let (_, prose) = blocks(&text);
        for link in links(&prose) {
            if link.starts_with("http") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            let leads =
                target.exists() && (anchor.is_empty() || anchors(&blocks(&read(&target)).1).contains(anchor));
            if !leads {
                broken.push(format!("{}: {link}", name(&path)));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Pages of `docs` that comments of the source name exist.
#[test]
fn pages_that_the_source_names_are_there() {
    let mut broken = vec![];
    for path in files(
        &["src", "solvers", "kernels", "python", "tests", "examples", "benches"],
        &["rs", "py", "cu", "pyi"],
    ) {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        for rest in text.split("docs/").skip(1) {
            let page: String = rest
                .chars()
                .take_while(|&letter| letter.is_alphanumeric() || "_/.-".contains(letter))
                .collect();
            let Some((page, _)) = page.split_once(".md") else { continue };
            if !root().join(format!("docs/{page}.md")).exists() {
                broken.push(format!("{}: docs/{page}.md", name(&path)));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_page_says_for_whom_it_is_and_is_listed() {
    let list = read("docs/README.md");
    for path in files(&["docs"], &["md"]) {
        let text = read(&path);
        let beginning: String = text.lines().skip(1).take(9).collect::<Vec<_>>().join(" ");
        for promise in ["**For**", "**You get**", "**You need**"] {
            assert!(beginning.contains(promise), "{} does not say {promise}", name(&path));
        }
        let listed = name(&path).replace("docs/", "");
        assert!(
            listed == "README.md" || list.contains(&format!("]({listed})")),
            "docs/README.md lacks {listed}"
        );
    }
}

/// Code that no test runs is marked: Rust with `no_run` is only compiled; `gpu` and `mpi` need a GPU and
/// ranks.
#[test]
fn every_line_of_code_is_run_or_marked() {
    let known = [
        "rust",
        "rust,no_run",
        "python",
        "python gpu",
        "sh",
        "sh gpu",
        "sh mpi",
        "console",
        "text",
        "mermaid",
        "",
    ];
    let tested = read("src/lib.rs");
    for path in files(&["docs", "README.md", "python/README.md"], &["md"]) {
        let (text, name) = (read(&path), name(&path));
        for Block { info, lines } in blocks(&text).0 {
            assert!(known.contains(&&*info), "{name}: ```{info}");
            if info.starts_with("rust") {
                assert!(
                    tested.contains(&format!("\"{name}\"")),
                    "{name} has Rust, which src/lib.rs does not test"
                );
            }
            if info == "sh" {
                let commands = ["krysp ", "cargo ", "cd ", "pip ", "export "];
                for line in lines.iter().filter(|line| !line.is_empty()) {
                    assert!(commands.iter().any(|command| line.starts_with(command)), "{name}: {line}");
                }
            }
        }
    }
}

/// `cargo run --example`, `cargo bench --bench` and `cargo test --test` name existing targets and features.
#[test]
fn commands_of_cargo_name_what_is_there() {
    let manifest = read("Cargo.toml");
    let mut wrong = vec![];
    for path in pages() {
        for command in read(&path).split("cargo ").skip(1) {
            let command = command.split(['`', '\n', '#', ')']).next().unwrap_or("");
            let words: Vec<&str> = command.split_whitespace().collect();
            for pair in words.windows(2) {
                let there = match pair {
                    ["--example", it] => root().join(format!("examples/{it}.rs")).exists(),
                    ["--bench", it] => manifest.contains(&format!("[[bench]]\nname = \"{it}\"")),
                    ["--test", it] => {
                        let file = root().join(format!("tests/{it}.rs"));
                        file.exists() || root().join(format!("tests/{it}/main.rs")).exists()
                    }
                    ["--features", list] => {
                        list.split(',').all(|one| manifest.contains(&format!("\n{one} = [")))
                    }
                    _ => true,
                };
                if !there {
                    wrong.push(format!("{}: cargo {command}", name(&path)));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_reference_is_complete() {
    let [methods, preconditioners, formats] =
        ["methods", "preconditioners", "formats"].map(|page| read(format!("docs/reference/{page}.md")));
    for method in Method::ALL {
        assert!(methods.contains(&format!("| `{method}` |")), "{method}");
    }
    for preconditioner in Preconditioner::ALL.into_iter().filter(|&one| one != Preconditioner::None) {
        assert!(preconditioners.contains(&format!("| [`{preconditioner}`](#")), "{preconditioner}");
    }
    let rows: String = formats.lines().filter(|line| line.starts_with('|')).collect();
    macro_rules! all {
        ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {$(
            let names = [stringify!($format), <krysp::$format<f64> as Format<f64>>::NAME];
            assert!(names.iter().all(|name| rows.contains(name)), "{names:?}");
        )*};
    }
    each_format!(all);
}

/// The page on outcomes lists the texts that reports print.
#[test]
fn outcomes_are_listed_as_they_are_printed() {
    let page = read("docs/reference/outcomes.md");
    let stagnated = [
        Evidence::Residual { iterations: 9 },
        Evidence::SlowConvergence { iterations: 9.0 },
        Evidence::Energy { iterations: 9 },
        Evidence::Unsymmetric { what: "the matrix" },
        Evidence::Singular { condition: 9.0 },
        Evidence::Restart,
    ];
    let outcomes = [
        Outcome::Converged,
        Outcome::IterationLimit,
        Outcome::TimeLimit,
        Outcome::Cancelled,
        Outcome::Stopped,
        Outcome::Breakdown { what: "⟨p, Ap⟩", value: -1.0, iteration: 9 },
        Outcome::Diverged,
        Outcome::PrecisionLimit { element: "f64", limit: 1.0 },
        Outcome::Inconsistent { residual: 9.0 },
    ];
    let endings = [AttemptEnd::Outdated, AttemptEnd::NotBuilt("9".into())];
    for bound in ["about", "at least"] {
        let row = format!("switched to ...: {bound} ... more iterations would take");
        assert!(page.contains(&row), "docs/reference/outcomes.md lacks \"{row}\"");
    }
    let outcomes = outcomes.into_iter().chain(stagnated.into_iter().map(Outcome::Stagnated));
    let printed = outcomes.map(|it| it.to_string()).chain(endings.iter().map(ToString::to_string));
    for text in printed {
        // the text before the first number, shortened
        let start: String = text.chars().take_while(|letter| !letter.is_ascii_digit()).take(40).collect();
        let start = start.trim_end().trim_end_matches(" in").trim_end_matches(':');
        assert!(page.contains(start), "docs/reference/outcomes.md lacks \"{start}\"");
    }
}

/// The reference lists exactly the environment variables that the source reads.
#[test]
fn environment_variables_are_listed() {
    let page = read("docs/reference/environment.md");
    let listed =
        |variable: &str| page.contains(&format!("`{variable}`")) || page.contains(&format!("`{variable}="));
    let variable = |text: &str| {
        let name: String =
            text.chars().take_while(|letter| letter.is_ascii_uppercase() || "_".contains(*letter)).collect();
        (name.len() > 1).then_some(name)
    };
    let mut found = BTreeSet::new();
    for path in files(&["src", "solvers", "kernels", "python", "benches"], &["rs", "py"]) {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let calls =
            ["env::var(\"", "env::var_os(\"", "option_env!(\"", "environ.get(\"", "set(\"", "variable(\""];
        let read = calls.iter().flat_map(|call| text.split(call).skip(1).filter_map(variable));
        found.extend(read);
        let own = text
            .split("\"KRYSP_")
            .skip(1)
            .filter_map(|rest| variable(rest).map(|rest| format!("KRYSP_{rest}")));
        found.extend(own.filter(|name| !name.ends_with("_TEST")));
    }
    let missing: Vec<&String> = found.iter().filter(|name| !listed(name)).collect();
    assert!(
        found.len() > 8 && missing.is_empty(),
        "docs/reference/environment.md lacks {missing:?} of {found:?}"
    );
}

/// The folders in the diagram of ARCHITECTURE.md exist, and the source has the dependencies that its arrows
/// show.
#[test]
fn the_picture_of_the_structure_is_right() {
    let picture = read("docs/pictures/structure.svg");
    let between = |text: &'_ str, before: &str, after: &str| -> Vec<String> {
        let found = text.split(before).skip(1).filter_map(|rest| rest.split_once(after));
        found.map(|(inner, _)| inner.to_owned()).collect()
    };
    for line in picture.lines().filter(|line| line.contains("class=\"folder\"")) {
        let folder = &between(line, "fill=\"#1f2a36\">", "</text>")[0];
        assert!(root().join(folder).is_dir(), "{folder}");
    }
    let arrows = between(&picture, "data-from=\"", "\" d=");
    assert!(arrows.len() > 10);
    for arrow in arrows {
        let (from, to) = arrow.split_once("\" data-to=\"").unwrap();
        let name = to.strip_prefix("src/").unwrap_or(to);
        let crates = format!("krysp_{}", name.replace("/", "::"));
        let uses = [format!("crate::{name}"), format!("krysp::{name}"), crates];
        // a file of the same name beside the folder belongs to it
        let within =
            [from.to_owned(), format!("{from}.rs")].into_iter().filter(|it| root().join(it).exists());
        let within: Vec<String> = within.collect();
        let within: Vec<&str> = within.iter().map(String::as_str).collect();
        let found = files(&within, &["rs"]).iter().any(|path| {
            let text = read(path);
            uses.iter().any(|one| text.contains(one))
        });
        assert!(found, "{from} does not use {to}");
    }
}

/// Pages for users use the words of textbooks, and have at most one table of figures.
#[test]
fn pages_for_users_are_plain() {
    let units = [" ms", " µs", " s ", " GB/s", " MB"];
    let mut wrong = vec![];
    for path in files(&["docs", "README.md", "python/README.md"], &["md"]) {
        let (text, name) = (read(&path), name(&path));
        let (_, prose) = blocks(&text);
        let sentences = prose.join(" ").split('`').step_by(2).collect::<Vec<_>>().join(" ");
        let private = private_words(&name, &sentences);
        wrong.extend(private.iter().map(|word| format!("{name}: {word}")));
        // a row of figures: half of its cells hold numbers and little else
        let is_row = |line: &&&str| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').skip(1).map(str::trim).collect();
            let figure = |cell: &&&str| {
                cell.starts_with(|letter: char| letter.is_ascii_digit()) && cell.len() < 22
                    || units.iter().any(|unit| format!("{cell} ").contains(unit))
                        && cell.contains(|letter: char| letter.is_ascii_digit())
            };
            line.starts_with('|') && 2 * cells.iter().filter(figure).count() > cells.len()
        };
        let tables =
            prose.split(|line| line.is_empty()).filter(|part| part.iter().filter(is_row).count() > 2).count();
        if tables > 1 {
            wrong.push(format!("{name}: {tables} tables of figures"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
