//! File names that contain a digest of their content: whoever changes the file changes its name.

/// Hexadecimal digits after which a name counts even if they are only digits or only letters.
const LONG: usize = 20;
/// Fewer hexadecimal digits than Propshaft writes are no digest.
const SHORT: usize = 8;
/// Length of the digest that Vite writes, in the alphabet of base64url.
const VITE: usize = 8;

/// Whether the name of a file has a digest as Sprockets, Propshaft (`app-1a2b3c4d.css`), webpack
/// (`app-1a2b3c4d….chunk.js`, `app.1a2b3c4d.js`) and Vite (`assets/app-BxYz12_a.js`) write it. In
/// doubt it has none: a file that is cached for good by mistake can't be changed any more.
pub(super) fn is_fingerprinted(name: &str) -> bool {
    let (directory, file) = name.rsplit_once('/').unwrap_or(("", name));
    let file = file.as_bytes();
    let dots = file.iter().enumerate().filter(|(_, byte)| **byte == b'.').map(|(at, _)| at);
    let mut stems = dots.map(|at| &file[..at]);
    stems.any(|stem| ends_in_hex(stem) || ends_as_vite_writes(directory, stem))
}

fn ends_in_hex(stem: &[u8]) -> bool {
    let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let len = stem.iter().rev().take_while(|byte| is_hex(byte)).count();
    let (before, digits) = stem.split_at(stem.len() - len);
    let is_mixed =
        digits.iter().any(u8::is_ascii_digit) && digits.iter().any(u8::is_ascii_lowercase);
    match before {
        [] => len >= LONG,
        [.., b'-' | b'.' | b'_'] => {
            len >= LONG || (len >= SHORT && is_mixed && !ends_in_uuid(stem))
        }
        _ => false,
    }
}

/// A UUID names a thing and not its content.
fn ends_in_uuid(stem: &[u8]) -> bool {
    let Some(at) = stem.len().checked_sub(36) else { return false };
    [8, 13, 18, 23].iter().all(|dash| stem[at + dash] == b'-')
}

fn ends_as_vite_writes(directory: &str, stem: &[u8]) -> bool {
    let Some((before, digest)) = stem.len().checked_sub(VITE).map(|at| stem.split_at(at)) else {
        return false;
    };
    let mut parts = directory.split('/').rev();
    if parts.next() != Some("assets") || !matches!(before, [_, .., b'-']) {
        return false;
    }
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    // A word of eight letters looks like a digest, but not in the directory of vite_ruby.
    let is_mixed = digest.iter().any(u8::is_ascii_digit)
        && digest.iter().any(u8::is_ascii_lowercase)
        && digest.iter().any(u8::is_ascii_uppercase);
    digest.iter().all(is_base64)
        && (is_mixed || parts.next().is_some_and(|part| part.starts_with("vite")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_with_a_digest_are_fingerprinted() {
        for yes in [
            "assets/application-1a2b3c4d.css",
            "assets/application-1a2b3c4d.css.map",
            "assets/logo-1a2b3c4d.digested.svg",
            "assets/app-5ff97f2a3b0ad3d1a4e4a8d44b5b2c8f9b9d5f1d2f7c2f3b4a5c6d7e8f901234.js",
            "packs/js/app-0123456789abcdef0123.chunk.js",
            "js/app.1a2b3c4d.js",
            "packs/0123456789abcdef0123.png",
            "vite/assets/index-document.js",
            "vite/assets/index-B-xYz1_a.js",
            "assets/index-BxYz12_a.js",
        ] {
            assert!(is_fingerprinted(yes), "{yes}");
        }
        for no in [
            "robots.txt",
            "assets/application.css",
            "report-20240101.pdf",
            "facade-feedface.txt",
            "1a2b3c4d.txt",
            "app-1a2b3c.js",
            "app-1A2B3C4D.js",
            "app-1a2b3c4d",
            "files/photo-550e8400-e29b-41d4-a716-4466554400ab.jpg",
            "assets/user-document.js",
            "scripts/index-BxYz12_a.js",
            "assets/BxYz12_a.js",
            "assets/-BxYz12_a.js",
            "a.b.c",
            ".",
            "",
        ] {
            assert!(!is_fingerprinted(no), "{no}");
        }
    }
}
