//! Values that are written out in a statement.

/// A string constant, the same whatever `standard_conforming_strings` is.
pub(super) fn text(value: &str) -> String {
    format!("E'{}'", value.replace('\\', "\\\\").replace('\'', "''"))
}

/// A constant of type `bytea`.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let mut text = String::with_capacity(6 + 2 * bytes.len());
    text.push_str("E'\\\\x");
    let digits = |byte: &u8| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
    text.extend(bytes.iter().flat_map(digits));
    text.push('\'');
    text
}
