//! Spellings of the names of methods, preconditioners and formats.

/// Returns whether two spellings are the same name. Case, blanks and punctuation are ignored, and a format
/// may be named by its Rust type or by its printed name: `sell`, `Sell` and `SELL-P`; `symbsr`, `SymBsr` and
/// `symmetric BSR`.
pub(crate) fn same_name(one: &str, other: &str) -> bool {
    normalized(one) == normalized(other)
}

fn normalized(name: &str) -> String {
    let letters = name.chars().filter(|letter| letter.is_alphanumeric());
    let name: String = letters.flat_map(char::to_lowercase).collect();
    match name.strip_prefix("symmetric") {
        Some(format) => format!("sym{format}"),
        None if name == "sellp" => "sell".into(),
        None => name,
    }
}
