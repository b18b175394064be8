//! Patterns of paths in settings.

/// Whether one of the patterns is this path; a `*` at the end stands for any rest.
pub(crate) fn is_among(path: &[u8], patterns: &[String]) -> bool {
    patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix.as_bytes()),
        None => path == pattern.as_bytes(),
    })
}
