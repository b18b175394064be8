//! Byte classes of RFC 9110, as tables: one load per byte.

const TOKEN: u8 = 1;
const VALUE: u8 = 2;
const TARGET: u8 = 4;
const HOST: u8 = 8;

const fn class_of(byte: u8) -> u8 {
    let mut class = 0;
    if byte.is_ascii_alphanumeric()
        || matches!(byte, b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+')
        || matches!(byte, b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~')
    {
        class |= TOKEN;
    }
    if byte == b'\t' || (byte >= 0x20 && byte != 0x7f) {
        class |= VALUE;
    }
    if byte > 0x20 && byte != 0x7f {
        class |= TARGET;
    }
    if byte.is_ascii_alphanumeric()
        || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'%' | b'!' | b'$' | b'&' | b'\'')
        || matches!(byte, b'(' | b')' | b'*' | b'+' | b';' | b'=')
    {
        class |= HOST;
    }
    class
}

static CLASSES: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = class_of(byte as u8);
        byte += 1;
    }
    table
};

/// A byte of a method or a header name (`tchar`, RFC 9110 section 5.6.2).
#[inline]
pub(crate) fn is_token(byte: u8) -> bool {
    CLASSES[byte as usize] & TOKEN != 0
}

/// A byte of a header value: visible ASCII, space, tab, or above 0x7f.
#[inline]
pub(crate) fn is_value(byte: u8) -> bool {
    CLASSES[byte as usize] & VALUE != 0
}

/// A byte that does not end a request target: no space, no control byte.
#[inline]
pub(crate) fn is_target(byte: u8) -> bool {
    CLASSES[byte as usize] & TARGET != 0
}

/// A byte of a host name: `reg-name` (RFC 3986 section 3.2.2) without the comma.
#[inline]
pub(crate) fn is_host(byte: u8) -> bool {
    CLASSES[byte as usize] & HOST != 0
}

/// `value` without the spaces and tabs around it.
pub(crate) fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_the_rfc() {
        for byte in 0..=255u8 {
            let token = byte.is_ascii_graphic() && !b"\"(),/:;<=>?@[\\]{}".contains(&byte);
            assert_eq!(is_token(byte), token, "{byte:#x}");
            let control = byte < 0x20 || byte == 0x7f;
            assert_eq!(is_value(byte), !control || byte == b'\t', "{byte:#x}");
            assert_eq!(is_target(byte), !control && byte != b' ', "{byte:#x}");
            let host = byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+;=".contains(&byte);
            assert_eq!(is_host(byte), host, "{byte:#x}");
        }
    }

    #[test]
    fn trim_takes_spaces_and_tabs_only() {
        assert_eq!(trim(b" \t a b\t "), b"a b");
        assert_eq!(trim(b" \t"), b"");
        assert_eq!(trim(b"\x0ba\x0c"), b"\x0ba\x0c");
    }
}
