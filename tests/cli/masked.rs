//! Masks the parts of a text that differ from run to run, or from CPU to CPU.

/// Masks times, rates, residuals and iteration counts; formats, whose order depends on the CPU; and the attempts of a plan, which
/// have separate tests.
pub(crate) fn masked(text: &str) -> String {
    let mut lines: Vec<String> = vec![];
    let (mut in_formats, mut in_tried) = (false, false);
    for line in text.lines() {
        if line.starts_with("cpu  ") || line.starts_with("gpu ") {
            in_formats = true;
        } else if !line.starts_with("  ") {
            in_formats = false;
        }
        in_tried = line.starts_with("tried  ") || (in_tried && line.starts_with("  "));
        let in_plan =
            line.starts_with("  ") && line.trim_start().starts_with(|first: char| first.is_ascii_digit());
        let in_plan = in_plan && line.contains(". ") && line.contains(" with ");
        if in_tried || in_plan {
            let shown = if in_tried { "tried       <configurations>" } else { "  <configurations>" };
            if lines.last().is_some_and(|last| last != shown) {
                lines.push(shown.into());
            }
        } else if let Some((before, _)) = line.split_once("expected one of ") {
            lines.push(format!("{before}expected one of <names>"));
        } else if line.starts_with("format  ") {
            lines.push("format      <format>".into());
        } else if in_formats && line.starts_with("  ") && !line.starts_with("  krysp") {
            // one line stands for all of them
            if lines.last().is_some_and(|last| last != "  <formats>") {
                lines.push("  <formats>".into());
            }
        } else {
            lines.push(numbers(line));
        }
    }
    lines.join("\n") + "\n"
}

/// Masks the measured numbers of a line.
fn numbers(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let mut masked: Vec<String> = vec![];
    for (at, word) in words.iter().enumerate() {
        let bare = word.trim_end_matches([',', ':', ';', ')']);
        let after = &word[bare.len()..];
        let next = words.get(at + 1).map_or("", |next| next.trim_end_matches([',', ':', ';', ')']));
        let digits = bare.starts_with(|first: char| first.is_ascii_digit());
        let whole = bare.chars().all(|letter| letter.is_ascii_digit() || letter == ',');
        let exponent = bare.split_once('e').is_some_and(|(_, power)| power.parse::<i32>().is_ok());
        masked.push(match next {
            "ns" | "µs" | "ms" | "s" | "GB/s" if digits => format!("<time>{after}"),
            "iterations" | "iteration" if digits && whole && bare != "0" => format!("<count>{after}"),
            _ if digits && exponent && bare.contains('.') => format!("<number>{after}"),
            _ if matches!(bare, "µs" | "ms" | "ns")
                && masked.last().is_some_and(|last| last.starts_with("<time>")) =>
            {
                format!("s{after}")
            }
            _ => (*word).to_owned(),
        });
    }
    masked.join(" ")
}
