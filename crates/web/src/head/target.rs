//! The request target and its parts (RFC 9112 section 3.2).

use std::net::Ipv6Addr;

use super::class::is_host;
use super::error::HeadError;
use super::request_head::Span;

/// The parts of a target, as spans of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTarget {
    /// The path; `*` in asterisk form, `/` where an absolute form has none.
    pub path: Span,
    /// The part behind the first `?`.
    pub query: Option<Span>,
    /// Host and port, in absolute form only.
    pub authority: Option<Span>,
}

/// Splits a target that holds no space and no control byte.
pub(super) fn split(method: &[u8], target: &[u8]) -> Result<RequestTarget, HeadError> {
    if method == b"CONNECT" {
        return Err(HeadError::Connect);
    }
    match target {
        [b'/', ..] => path_and_query(target, 0),
        b"*" if method == b"OPTIONS" => {
            Ok(RequestTarget { path: span(0, 1), ..RequestTarget::default() })
        }
        _ => absolute(target),
    }
}

/// Path and query of `target`, whose path begins at `start`.
fn path_and_query(target: &[u8], start: usize) -> Result<RequestTarget, HeadError> {
    let mut question = None;
    for (at, &byte) in target.iter().enumerate().skip(start) {
        match byte {
            b'?' if question.is_none() => question = Some(at),
            b'#' | b'"' | b'<' | b'>' => return Err(HeadError::TargetByte),
            _ => {}
        }
    }
    Ok(RequestTarget {
        path: span(start, question.unwrap_or(target.len())),
        query: question.map(|at| span(at + 1, target.len())),
        authority: None,
    })
}

fn absolute(target: &[u8]) -> Result<RequestTarget, HeadError> {
    let slashes = target.windows(3).position(|three| three == b"://");
    let scheme_end = slashes.ok_or(HeadError::TargetForm)?;
    let scheme = &target[..scheme_end];
    if !scheme.eq_ignore_ascii_case(b"http") && !scheme.eq_ignore_ascii_case(b"https") {
        return Err(HeadError::Scheme);
    }
    let start = scheme_end + 3;
    let rest = &target[start..];
    let length = rest.iter().position(|b| matches!(b, b'/' | b'?')).unwrap_or(rest.len());
    if !is_authority(&rest[..length]) {
        return Err(HeadError::Authority);
    }
    let end = start + length;
    let mut parts = path_and_query(target, end)?;
    if parts.path.is_empty() {
        // `http://host` means the path `/`: the span is the second slash of `://`.
        parts.path = span(start - 1, start);
    }
    parts.authority = Some(span(start, end));
    Ok(parts)
}

/// True for a host with or without a port, as `Host` and an absolute target hold it: a name, an
/// IPv4 address or an IPv6 address in brackets; never empty and without user name. A comma is
/// refused though a name may hold one in theory: two joined `Host` lines look like that.
pub(super) fn is_authority(value: &[u8]) -> bool {
    let host = match value.iter().rposition(|&b| b == b':') {
        Some(colon) if !value.ends_with(b"]") => {
            if !is_port(&value[colon + 1..]) {
                return false;
            }
            &value[..colon]
        }
        _ => value,
    };
    match host {
        [b'[', address @ .., b']'] => {
            std::str::from_utf8(address).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok())
        }
        _ => !host.is_empty() && host.iter().all(|&b| is_host(b)) && has_whole_escapes(host),
    }
}

/// True if two hexadecimal digits follow every percent sign.
fn has_whole_escapes(name: &[u8]) -> bool {
    let mut parts = name.split(|&b| b == b'%');
    parts.next();
    parts.all(|part| part.len() >= 2 && part[..2].iter().all(u8::is_ascii_hexdigit))
}

/// An empty port is legal: `example.com:`.
fn is_port(digits: &[u8]) -> bool {
    digits.len() <= 5
        && digits.iter().all(u8::is_ascii_digit)
        && digits.iter().fold(0u32, |sum, b| sum * 10 + u32::from(b - b'0')) <= 65_535
}

fn span(start: usize, end: usize) -> Span {
    Span { start: start as u32, end: end as u32 }
}

/// Splits `name:port`, `[v6]:port` or a bare name; an empty port is none.
pub fn split_host(host: &[u8]) -> (&[u8], Option<&[u8]>) {
    let from = if host.first() == Some(&b'[') {
        host.iter().position(|b| *b == b']').unwrap_or(0)
    } else {
        0
    };
    match host[from..].iter().position(|b| *b == b':') {
        Some(colon) if host.len() > from + colon + 1 => {
            (&host[..from + colon], Some(&host[from + colon + 1..]))
        }
        Some(colon) => (&host[..from + colon], None),
        None => (host, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(
        method: &str,
        target: &str,
    ) -> Result<(String, Option<String>, Option<String>), HeadError> {
        let text = |s: Span| target[s.start as usize..s.end as usize].to_owned();
        split(method.as_bytes(), target.as_bytes())
            .map(|t| (text(t.path), t.query.map(text), t.authority.map(text)))
    }

    #[test]
    fn allowed_target_forms_are_split() {
        for (method, target, path, query, authority) in [
            ("GET", "/", "/", None, None),
            ("GET", "//a//b", "//a//b", None, None),
            ("GET", "/a?", "/a", Some(""), None),
            ("GET", "/a?b?c=/", "/a", Some("b?c=/"), None),
            ("GET", "/%zz|{}^`\\", "/%zz|{}^`\\", None, None),
            ("GET", "/:80@x", "/:80@x", None, None),
            ("OPTIONS", "*", "*", None, None),
            ("OPTIONS", "/a", "/a", None, None),
            ("GET", "http://h/a?b", "/a", Some("b"), Some("h")),
            ("GET", "HTTPS://h:1", "/", None, Some("h:1")),
            ("GET", "http://h?b", "/", Some("b"), Some("h")),
            ("GET", "http://[::1]:8080/", "/", None, Some("[::1]:8080")),
            ("GET", "http://h/http://i/", "/http://i/", None, Some("h")),
        ] {
            let expected = (path.into(), query.map(str::to_owned), authority.map(str::to_owned));
            assert_eq!(parts(method, target), Ok(expected), "{method} {target}");
        }
    }

    #[test]
    fn other_target_forms_are_refused() {
        use HeadError::*;
        for (method, target, error) in [
            ("CONNECT", "h:443", Connect),
            ("CONNECT", "/", Connect),
            ("GET", "*", TargetForm),
            ("OPTIONS", "*x", TargetForm),
            ("GET", "a", TargetForm),
            ("GET", "?a", TargetForm),
            ("GET", "h:80", TargetForm),
            ("GET", "http:/a", TargetForm),
            ("GET", "ftp://h/", Scheme),
            ("GET", "://h/", Scheme),
            ("GET", "/://h/#", TargetByte),
            ("GET", "http:///a", Authority),
            ("GET", "http://?a", Authority),
            ("GET", "http://u@h/", Authority),
            ("GET", "http://u:p@h/", Authority),
            ("GET", "http://h:x/", Authority),
            ("GET", "http://h#a", Authority),
            ("GET", "http://h/#a", TargetByte),
            ("GET", "/#a", TargetByte),
            ("GET", "/?a#b", TargetByte),
            ("GET", "/\"", TargetByte),
            ("GET", "/<a>", TargetByte),
        ] {
            assert_eq!(parts(method, target), Err(error), "{method} {target}");
        }
    }

    #[test]
    fn an_authority_is_a_host_with_or_without_port() {
        for valid in
            ["a", "a.b:80", "a:", "1.2.3.4:65535", "[::1]", "[::ffff:1.2.3.4]:1", "a_b", "%41"]
        {
            assert!(is_authority(valid.as_bytes()), "{valid}");
        }
        for invalid in [
            "", ":", ":80", "a:b", "a:65536", "a:080080", "a b", "a,b", "a/b", "u@a", "[::1",
            "::1", "a%", "%4", "a%4g", "%%41", "[]", "[::1]x", "[::1]:x", "[v1.a]", "a:80:80",
            "\u{e9}", "a\\b", "a#", "a?",
        ] {
            assert!(!is_authority(invalid.as_bytes()), "{invalid}");
        }
    }

    #[test]
    fn a_host_is_split_from_its_port() {
        let cases: [(&str, &str, Option<&str>); 5] = [
            ("example.org", "example.org", None),
            ("example.org:8080", "example.org", Some("8080")),
            ("example.org:", "example.org", None),
            ("[::1]:9292", "[::1]", Some("9292")),
            ("[::1]", "[::1]", None),
        ];
        for (host, name, port) in cases {
            let expected = (name.as_bytes(), port.map(str::as_bytes));
            assert_eq!(split_host(host.as_bytes()), expected, "{host}");
        }
    }
}
