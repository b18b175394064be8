//! Media types that compress well.

/// Types besides `text/…`, `…+json` and `…+xml`.
const COMPRESSIBLE: [&str; 12] = [
    "application/javascript",
    "application/json",
    "application/wasm",
    "application/x-javascript",
    "application/x-ndjson",
    "application/xml",
    "application/yaml",
    "application/vnd.ms-fontobject",
    "font/otf",
    "font/ttf",
    "image/bmp",
    "image/x-icon",
];

/// Whether bodies of this `Content-Type` get clearly smaller.
pub(crate) fn is_compressible(content_type: &[u8]) -> bool {
    let essence = content_type.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
    let ends = |suffix: &[u8]| {
        essence.len() > suffix.len()
            && essence[essence.len() - suffix.len()..].eq_ignore_ascii_case(suffix)
    };
    essence.get(..5).is_some_and(|kind| kind.eq_ignore_ascii_case(b"text/"))
        || ends(b"+json")
        || ends(b"+xml")
        || COMPRESSIBLE.iter().any(|name| essence.eq_ignore_ascii_case(name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_its_relatives_are_compressed() {
        for yes in [
            "text/html",
            "Text/CSS; charset=utf-8",
            "application/json",
            "application/problem+json ; a=b",
            "image/svg+xml",
            "application/wasm",
        ] {
            assert!(is_compressible(yes.as_bytes()), "{yes}");
        }
        for no in
            ["", "text", "image/png", "application/zip", "font/woff2", "video/mp4", "+json", "a/b"]
        {
            assert!(!is_compressible(no.as_bytes()), "{no}");
        }
    }
}
