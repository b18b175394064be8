//! Values that are written out in a statement.

/// A string constant, the same whatever `standard_conforming_strings` is.
pub(super) fn text(value: &str) -> String {
    format!("E'{}'", value.replace('\\', "\\\\").replace('\'', "''"))
}

/// A constant of type `bytea`.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    let digit = |four: u8| char::from(b"0123456789abcdef"[usize::from(four)]);
    let mut text = String::with_capacity(6 + 2 * bytes.len());
    text.push_str("E'\\\\x");
    text.extend(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]));
    text.push('\'');
    text
}
