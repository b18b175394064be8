//! The heads of requests. One is written as a head of HTTP/1.1 and then read by the same parser,
//! with the same limits, so that nothing means another thing here.

use http::header::{HeaderValue, COOKIE, HOST};
use http::request::Parts;

use crate::error_response::ErrorResponse;
use crate::head::class::trim;
use crate::head::{self, HeadError, Parsed, RequestHead, Version};
use crate::limits::Limits;

/// Reads the head of a request into `out`. `report` gets the text of one that is refused.
pub(super) fn read(
    parts: &Parts,
    limits: &Limits,
    out: &mut RequestHead,
    report: impl FnOnce(&[u8], HeadError),
) -> Result<(), ErrorResponse> {
    if parts.method == http::Method::CONNECT {
        return Err(ErrorResponse::new(501, "This server has no CONNECT."));
    }
    let text = as_http1(parts);
    let parsed = check(parts).and_then(|()| head::parse(&text, limits, out));
    match parsed {
        Ok(Parsed::Complete(len)) if len == text.len() => {
            out.version = Version::Http2;
            out.keep_alive = true;
            Ok(())
        }
        Ok(_) => Err(ErrorResponse::new(400, "The request's head is malformed.")),
        Err(error) => {
            report(&text, error);
            Err(ErrorResponse::new(error.status(), error.reason()))
        }
    }
}

/// Rules of HTTP/2 that the crate leaves out and that are lost in a head of HTTP/1. The crate also drops a
/// fragment of `:path` and pseudo-headers of trailers, which nobody can see behind it.
fn check(parts: &Parts) -> Result<(), HeadError> {
    let scheme = parts.uri.scheme_str().unwrap_or("https");
    let is_https = scheme.eq_ignore_ascii_case("https");
    if !is_https && !scheme.eq_ignore_ascii_case("http") {
        return Err(HeadError::Scheme);
    }
    // RFC 9113 section 8.2.1
    let is_padded = |value: &HeaderValue| trim(value.as_bytes()).len() < value.len();
    if parts.headers.values().any(is_padded) {
        return Err(HeadError::PaddedValue);
    }
    // Section 8.3.1: it should be malformed, after normalization.
    let Some(authority) = parts.uri.authority() else { return Ok(()) };
    let default_port: &[u8] = if is_https { b"443" } else { b"80" };
    let (name, port) = head::split_host(authority.as_str().as_bytes());
    let is_same = |host: &HeaderValue| {
        let (other_name, other_port) = head::split_host(host.as_bytes());
        name.eq_ignore_ascii_case(other_name)
            && port.unwrap_or(default_port) == other_port.unwrap_or(default_port)
    };
    match parts.headers.get_all(HOST).iter().all(is_same) {
        true => Ok(()),
        false => Err(HeadError::HostDiffers),
    }
}

fn as_http1(parts: &Parts) -> Vec<u8> {
    let mut text = Vec::with_capacity(1024);
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    let authority = parts.uri.authority().map(|authority| authority.as_str());
    for piece in [parts.method.as_str(), " ", target, " HTTP/1.1\r\n"] {
        text.extend_from_slice(piece.as_bytes());
    }
    if let Some(authority) = authority {
        append(&mut text, b"host", authority.as_bytes());
    }
    for (name, value) in &parts.headers {
        // The authority replaces it (RFC 9113 section 8.3.1).
        if (name != HOST || authority.is_none()) && name != COOKIE {
            append(&mut text, name.as_str().as_bytes(), value.as_bytes());
        }
    }
    append_cookies(&mut text, parts);
    text.extend_from_slice(b"\r\n");
    text
}

/// A client may split its cookies for better compression (RFC 9113 section 8.2.3).
fn append_cookies(text: &mut Vec<u8>, parts: &Parts) {
    let mut cookies = parts.headers.get_all(COOKIE).iter();
    let Some(first) = cookies.next() else { return };
    text.extend_from_slice(b"cookie: ");
    text.extend_from_slice(first.as_bytes());
    for cookie in cookies {
        text.extend_from_slice(b"; ");
        text.extend_from_slice(cookie.as_bytes());
    }
    text.extend_from_slice(b"\r\n");
}

fn append(text: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for piece in [name, b": ", value, b"\r\n"] {
        text.extend_from_slice(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(request: http::request::Builder) -> Result<RequestHead, u16> {
        let parts = request.body(()).unwrap().into_parts().0;
        let mut out = RequestHead::default();
        read(&parts, &Limits::for_tests(), &mut out, |_, _| {}).map_err(|error| error.status)?;
        Ok(out)
    }

    #[test]
    fn a_head_is_read_as_one_of_http_1() {
        let request = http::Request::get("https://a.test:3001/p/%20q?x=1&y")
            .header("host", "A.test:3001")
            .header("cookie", "a=1")
            .header("x-empty", "")
            .header("cookie", "b=2");
        let head = read_text(request).unwrap();
        assert_eq!(head.get(head.path), b"/p/%20q");
        assert_eq!(head.get(head.query), b"x=1&y");
        assert_eq!(head.header("host"), Some(&b"a.test:3001"[..]));
        assert_eq!(head.header("cookie"), Some(&b"a=1; b=2"[..]));
        assert_eq!((head.headers.len(), head.version), (3, Version::Http2));
    }

    #[test]
    fn the_limits_and_rules_are_those_of_http_1() {
        let long = format!("https://a.test/{}", "a".repeat(9_000));
        assert_eq!(read_text(http::Request::get(long)), Err(414));
        assert_eq!(read_text(http::Request::get("/")), Err(400), "no host");
        let request = http::Request::connect("a.test:443");
        assert_eq!(read_text(request), Err(501));
        let many = (0..101).fold(http::Request::get("https://a.test/"), |request, at| {
            request.header(format!("x-{at}"), "1")
        });
        assert_eq!(read_text(many), Err(431));
        let star = http::Request::options("*").header("host", "a.test");
        let head = read_text(star).unwrap();
        assert_eq!(head.get(head.path), b"*");
    }

    #[test]
    fn rules_of_http_2_alone() {
        let with = |uri: &str, host: &str| {
            read_text(http::Request::get(uri).header("host", host)).map(drop)
        };
        assert_eq!(with("http://a.test/", "A.TEST:80"), Ok(()));
        assert_eq!(with("https://a.test:443/", "a.test"), Ok(()));
        for (uri, host) in [
            ("https://a.test/", "b.test"),
            ("https://a.test/", "a.test:80"),
            ("https://a.test/", ""),
            ("ftp://a.test/", "a.test"),
        ] {
            assert_eq!(with(uri, host), Err(400), "{uri} {host}");
        }
        for value in [" a", "a ", "\ta", " "] {
            let request = http::Request::get("https://a.test/").header("x", value);
            assert_eq!(read_text(request), Err(400), "{value:?}");
        }
    }
}
