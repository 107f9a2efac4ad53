//! Spellings of the names of methods, preconditioners and formats.

/// Whether two spellings are the same name. Case, blanks and punctuation are ignored, and a format may be named by its Rust type
/// or by its printed name: `sell`, `Sell` and `SELL-P`; `symbsr`, `SymBsr` and `symmetric BSR`.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;

    #[test]
    fn a_format_is_known_by_its_type_and_by_its_printed_name() {
        macro_rules! each {
            ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {
                [$((stringify!($format), crate::$format::<f64>::NAME),)*]
            };
        }
        let names = crate::each_format!(each);
        for (at, (of_type, printed)) in names.iter().enumerate() {
            for (other, (_, name)) in names.iter().enumerate() {
                assert_eq!(same_name(of_type, name), at == other, "{of_type}, {name}");
            }
            assert!(same_name(&printed.to_uppercase().replace([' ', '-'], "_"), printed));
        }
        assert!(!same_name("", "CSR"));
    }
}
