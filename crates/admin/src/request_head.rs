//! The head of a request.

use crate::access::cookie_name;

/// Header lines of a request at most.
const HEADERS_MAX: usize = 64;
/// Bytes of a head at most. It has no setting: probes and scrapers send a few hundred.
pub(crate) const HEAD_BYTES_MAX: usize = 8 * 1024;

/// What the endpoint looks at.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct AdminRequest {
    pub method: String,
    pub path: String,
    pub query: String,
    /// `None`: HTTP/1.0 without it.
    pub host: Option<String>,
    /// The token of `Authorization: Bearer`.
    pub token: Option<String>,
    /// The key of the session, from the cookie of the dashboard.
    pub session: Option<String>,
    pub origin: Option<String>,
    /// `Sec-Fetch-Site`: whether a browser sends it for a page of the same origin.
    pub fetch_site: Option<String>,
    pub keep_alive: bool,
}

/// What the bytes that have arrived are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HeadState {
    /// A request, whose head has this many bytes.
    Complete(AdminRequest, usize),
    /// The beginning of one.
    Partial,
    /// Something that is answered with this status and message, and ends the connection.
    Refused(u16, &'static str),
}

/// Reads a head.
pub(crate) fn parse(bytes: &[u8]) -> HeadState {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => return HeadState::Partial,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return HeadState::Refused(431, "the head of the request is too large");
        }
        Err(_) => return HeadState::Refused(400, "this is no HTTP request"),
    };
    let target = request.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let newest = request.version == Some(1);
    let mut found = AdminRequest {
        method: request.method.unwrap_or_default().to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        keep_alive: newest,
        ..AdminRequest::default()
    };
    let mut cookies = Vec::new();
    for header in request.headers {
        let value = String::from_utf8_lossy(header.value);
        match header.name.to_ascii_lowercase().as_str() {
            "host" if found.host.is_some() => {
                return HeadState::Refused(400, "Host is given twice")
            }
            "host" => found.host = Some(value.trim().to_owned()),
            "authorization" => {
                found.token = value.trim().strip_prefix("Bearer ").map(str::to_owned);
            }
            "origin" => found.origin = Some(value.trim().to_owned()),
            "sec-fetch-site" => found.fetch_site = Some(value.trim().to_owned()),
            "cookie" => cookies.push(value.into_owned()),
            "connection" if value.to_ascii_lowercase().contains("close") => {
                found.keep_alive = false
            }
            "transfer-encoding" => return HeadState::Refused(413, "a request has no body here"),
            "content-length" if value.trim() != "0" => {
                return HeadState::Refused(413, "a request has no body here");
            }
            _ => {}
        }
    }
    if newest && found.host.is_none() {
        return HeadState::Refused(400, "Host is missing");
    }
    let name = cookie_name(found.host.as_deref());
    let mut pairs =
        cookies.iter().flat_map(|one| one.split(';')).filter_map(|one| one.split_once('='));
    found.session = pairs.find(|(key, _)| key.trim() == name).map(|(_, key)| key.trim().to_owned());
    HeadState::Complete(found, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_to_its_end() {
        let text = b"GET /ready?role=jobs HTTP/1.1\r\nHost: localhost\r\n\r\nGET ";
        let HeadState::Complete(request, length) = parse(text) else { panic!("not complete") };
        assert_eq!(length, text.len() - 4);
        assert_eq!((request.path.as_str(), request.query.as_str()), ("/ready", "role=jobs"));
        assert_eq!((request.host.as_deref(), request.keep_alive), (Some("localhost"), true));
        assert_eq!(parse(&text[..20]), HeadState::Partial);
    }

    #[test]
    fn what_is_no_small_request_without_a_body_is_refused() {
        let status = |bytes: &[u8]| match parse(bytes) {
            HeadState::Refused(status, _) => status,
            other => panic!("{other:?}"),
        };
        assert_eq!(status(b"\x16\x03\x01 hello\r\n\r\n"), 400);
        assert_eq!(status(b"GET / HTTP/1.1\r\n\r\n"), 400);
        assert_eq!(status(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), 400);
        assert_eq!(status(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx"), 413);
        assert_eq!(
            status(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"),
            413
        );
        let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(HEAD_BYTES_MAX));
        assert_eq!(status(long.as_bytes()), 431);
        let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: 1\r\n".repeat(HEADERS_MAX));
        assert_eq!(status(many.as_bytes()), 431);
    }
}
