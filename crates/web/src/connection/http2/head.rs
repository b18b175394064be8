//! The heads of requests. They are accepted by the function that accepts those of HTTP/1, with the
//! same limits, so that nothing means another thing here.

use http::header::{HeaderName, HeaderValue, COOKIE, HOST};
use http::request::Parts;

use crate::head::class::trim;
use crate::head::{self, HeadError, RequestHead, Version};
use crate::limits::Limits;

/// Bytes of most heads.
const HEAD_BYTES_MIN: usize = 1024;

/// Reads the head of a request into `out`.
pub(super) fn read(parts: &Parts, limits: &Limits, out: &mut RequestHead) -> Result<(), HeadError> {
    fill(parts, out);
    check(parts)?;
    head::accept_filled(limits, out)
}

/// Rules of HTTP/2 that the crate leaves out and that a head of HTTP/1 does not show. The crate also drops a
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

fn fill(parts: &Parts, out: &mut RequestHead) {
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    out.clear();
    out.bytes.reserve(HEAD_BYTES_MIN);
    out.version = Version::Http2;
    out.method = out.push(parts.method.as_str().as_bytes(), b" ");
    out.target = out.push(target.as_bytes(), b" HTTP/1.1\r\n");
    let authority = parts.uri.authority();
    if let Some(authority) = authority {
        fill_header(out, &HOST, authority.as_str().as_bytes());
    }
    for (name, value) in &parts.headers {
        // The authority replaces it (RFC 9113 section 8.3.1).
        if (name != HOST || authority.is_none()) && name != COOKIE {
            fill_header(out, name, value.as_bytes());
        }
    }
    // A client may split its cookies for better compression (RFC 9113 section 8.2.3).
    let mut cookies = parts.headers.get_all(COOKIE).iter();
    if let Some(first) = cookies.next() {
        let name = out.push(COOKIE.as_str().as_bytes(), b": ");
        let mut value = out.push(first.as_bytes(), b"");
        for cookie in cookies {
            out.push(b"; ", b"");
            value.end = out.push(cookie.as_bytes(), b"").end;
        }
        out.headers.push((name, value));
        out.push(b"\r\n", b"");
    }
    out.push(b"\r\n", b"");
}

fn fill_header(out: &mut RequestHead, name: &HeaderName, value: &[u8]) {
    let header = (out.push(name.as_str().as_bytes(), b": "), out.push(value, b"\r\n"));
    out.headers.push(header);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(request: http::request::Builder) -> Result<RequestHead, u16> {
        let parts = request.body(()).unwrap().into_parts().0;
        let mut out = RequestHead::default();
        read(&parts, &Limits::for_tests(), &mut out).map_err(HeadError::status)?;
        Ok(out)
    }

    #[test]
    fn a_head_is_that_of_http_1() {
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
        let text = "GET /p/%20q?x=1&y HTTP/1.1\r\nhost: a.test:3001\r\nx-empty: \r\ncookie: a=1; b=2\r\n\r\n";
        let mut same = RequestHead::default();
        head::parse(text.as_bytes(), &Limits::for_tests(), &mut same).unwrap();
        same.version = Version::Http2;
        assert_eq!(head, same);
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
        let method = "M".repeat(33);
        assert_eq!(
            read_text(http::Request::builder().method(&*method).uri("https://a.test/")),
            Err(501)
        );
        let large = http::Request::get("https://a.test/").header("x", "a".repeat(100_000));
        assert_eq!(read_text(large), Err(431));
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
