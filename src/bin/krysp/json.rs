//! JSON as text.

use std::fmt;

/// A value. Fields keep their order.
pub(crate) enum Json {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(&'static str, Json)>),
}

impl From<f64> for Json {
    /// JSON has no infinities and no NaN: they become `null`.
    fn from(number: f64) -> Json {
        if number.is_finite() { Json::Number(number) } else { Json::Null }
    }
}

impl From<usize> for Json {
    fn from(number: usize) -> Json {
        Json::Number(number as f64)
    }
}

impl From<bool> for Json {
    fn from(truth: bool) -> Json {
        Json::Bool(truth)
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Json {
        Json::Text(text.into())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Json {
        Json::Text(text)
    }
}

impl<V: Into<Json>> From<Vec<V>> for Json {
    fn from(list: Vec<V>) -> Json {
        Json::List(list.into_iter().map(V::into).collect())
    }
}

impl<V: Into<Json>> From<Option<V>> for Json {
    fn from(value: Option<V>) -> Json {
        value.map_or(Json::Null, V::into)
    }
}

impl Json {
    /// Writes the value, indented by `depth` levels. Lists of numbers stay on one line.
    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        let new_line = |f: &mut fmt::Formatter<'_>, depth: usize| write!(f, "\n{:1$}", "", 2 * depth);
        match self {
            Json::Null => write!(f, "null"),
            Json::Bool(truth) => write!(f, "{truth}"),
            // the shortest text that is read as the same number; very small and very large numbers get an
            // exponent
            Json::Number(number) if *number != 0.0 && !(1e-4..1e16).contains(&number.abs()) => {
                write!(f, "{number:e}")
            }
            Json::Number(number) => write!(f, "{number}"),
            Json::Text(text) => quoted(f, text),
            Json::List(list) if list.iter().all(|one| matches!(one, Json::Number(_) | Json::Null)) => {
                write!(f, "[")?;
                for (at, one) in list.iter().enumerate() {
                    write!(f, "{}", if at > 0 { ", " } else { "" })?;
                    one.write(f, depth)?;
                }
                write!(f, "]")
            }
            Json::List(list) => {
                write!(f, "[")?;
                for (at, one) in list.iter().enumerate() {
                    write!(f, "{}", if at > 0 { "," } else { "" })?;
                    new_line(f, depth + 1)?;
                    one.write(f, depth + 1)?;
                }
                new_line(f, depth)?;
                write!(f, "]")
            }
            Json::Object(fields) => {
                write!(f, "{{")?;
                for (at, (name, value)) in fields.iter().enumerate() {
                    write!(f, "{}", if at > 0 { "," } else { "" })?;
                    new_line(f, depth + 1)?;
                    quoted(f, name)?;
                    write!(f, ": ")?;
                    value.write(f, depth + 1)?;
                }
                new_line(f, depth)?;
                write!(f, "}}")
            }
        }
    }
}

fn quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    write!(f, "\"")?;
    for letter in text.chars() {
        match letter {
            '"' | '\\' => write!(f, "\\{letter}")?,
            '\n' => write!(f, "\\n")?,
            control if control < ' ' => write!(f, "\\u{:04x}", u32::from(control))?,
            other => write!(f, "{other}")?,
        }
    }
    write!(f, "\"")
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}
