//! From the path of a request to the name of a file.

/// What a path names below the root.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileName {
    /// Without slashes at both ends; empty for the root itself.
    pub name: String,
    /// The path ends with a slash.
    pub is_directory: bool,
}

/// The directory of well-known locations (RFC 8615), the only hidden one that is served.
const WELL_KNOWN: &str = ".well-known";

/// The file that a path names. `None`: no file may be named so, and the request goes to the
/// application. That is so for parts that are empty, hidden or lead upward, for encoded slashes,
/// backslashes, control bytes, malformed escapes and text that is not UTF-8. An escape is decoded
/// once, so that `%252e` is a name with a percent sign.
pub(super) fn parse(path: &[u8]) -> Option<FileName> {
    let mut name = decode(path.strip_prefix(b"/")?)?;
    let is_directory = name.is_empty() || name.ends_with('/');
    if name.ends_with('/') {
        name.pop();
    }
    let is_good = name.split('/').enumerate().all(|(at, part)| {
        !part.is_empty() && (!part.starts_with('.') || (at == 0 && part == WELL_KNOWN))
    });
    (is_good || name.is_empty() && path == b"/").then_some(FileName { name, is_directory })
}

fn decode(path: &[u8]) -> Option<String> {
    let mut name = Vec::with_capacity(path.len());
    let mut rest = path;
    while let [byte, after @ ..] = rest {
        rest = after;
        let byte = match byte {
            b'%' => {
                let [high, low, after @ ..] = rest else { return None };
                rest = after;
                let byte = hex_digit(*high)? << 4 | hex_digit(*low)?;
                if byte == b'/' {
                    return None;
                }
                byte
            }
            byte => *byte,
        };
        if byte < 0x20 || byte == 0x7f || byte == b'\\' {
            return None;
        }
        name.push(byte);
    }
    String::from_utf8(name).ok()
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_file_below_the_root() {
        for (path, name, is_directory) in [
            ("/", "", true),
            ("/a", "a", false),
            ("/a/b.css", "a/b.css", false),
            ("/a/", "a", true),
            ("/a%20b", "a b", false),
            ("/%C3%A9t%c3%a9", "été", false),
            ("/a%252e", "a%2e", false),
            ("/a+b", "a+b", false),
            ("/.well-known/security.txt", ".well-known/security.txt", false),
            ("/a..b", "a..b", false),
        ] {
            let expected = FileName { name: name.to_owned(), is_directory };
            assert_eq!(parse(path.as_bytes()), Some(expected), "{path}");
        }
    }
}
