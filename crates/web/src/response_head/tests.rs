use super::*;

const DATE: (&str, &str) = ("Date", "now");

fn request(version: Version, is_head: bool, keep_alive: bool) -> ResponseContext {
    ResponseContext { version, is_head, keep_alive, compression: None, timing: None }
}

/// The head as text in lower case, also of a value.
fn lower_text(head: &EncodedHead) -> String {
    let mut text = String::from_utf8(head.bytes.clone()).unwrap();
    for (name, value) in head.value.iter().flat_map(|value| value.headers()) {
        text += &format!("\r\n{name}: {}\r\n", value.to_str().unwrap());
    }
    text.to_ascii_lowercase()
}

fn written(
    request: &ResponseContext,
    status: u16,
    headers: &[(&str, &str)],
    body: BodySize,
) -> Result<(String, ResponseFraming, bool), ResponseError> {
    let mut head = ResponseHead::new(b"old bytes".to_vec(), status, request)?;
    for (name, value) in headers {
        head.header(name.as_bytes(), value.as_bytes())?;
    }
    let EncodedHead { bytes, framing, keep_alive, .. } = head.finish(body)?;
    let text = String::from_utf8(bytes).unwrap();
    let text = text.replace("\r\n", "|");
    assert!(!text.contains(['\r', '\n']), "{text}");
    Ok((text, framing, keep_alive))
}

/// The head of a plain HTTP/1.1 GET without the date.
fn get(status: u16, headers: &[(&str, &str)], body: BodySize) -> (String, ResponseFraming, bool) {
    let headers: Vec<_> = headers.iter().copied().chain([DATE]).collect();
    let (text, framing, keep_alive) =
        written(&request(Version::Http11, false, true), status, &headers, body).unwrap();
    (text.replace("Date: now|", ""), framing, keep_alive)
}

fn refused(headers: &[(&str, &str)], body: BodySize) -> ResponseError {
    written(&request(Version::Http11, false, true), 200, headers, body).unwrap_err()
}

#[test]
fn the_framing_follows_the_body() {
    use BodySize::*;
    for (headers, body, lines, framing) in [
        (&[][..], Known(5), "Content-Length: 5|", ResponseFraming::Length(5)),
        (&[], Empty, "Content-Length: 0|", ResponseFraming::Length(0)),
        (&[], Unknown, "Transfer-Encoding: chunked|", ResponseFraming::Chunked),
        (&[("content-length", " 7 ")], Unknown, "Content-Length: 7|", ResponseFraming::Length(7)),
        (&[("Content-Length", "7")], Known(7), "Content-Length: 7|", ResponseFraming::Length(7)),
        (&[("Content-Length", "7\n7")], Known(7), "Content-Length: 7|", ResponseFraming::Length(7)),
        (
            &[("transfer-encoding", "gzip, chunked")],
            Unknown,
            "transfer-encoding: gzip, chunked|",
            ResponseFraming::Raw,
        ),
        (
            &[("Transfer-Encoding", "identity")],
            Known(2),
            "Content-Length: 2|",
            ResponseFraming::Length(2),
        ),
        (&[("Transfer-Encoding", "")], Known(2), "Content-Length: 2|", ResponseFraming::Length(2)),
    ] {
        let expected = (format!("HTTP/1.1 200 OK|{lines}|"), framing, true);
        assert_eq!(get(200, headers, body), expected, "{headers:?} {body:?}");
    }
}

#[test]
fn headers_for_the_server_are_not_sent() {
    let headers = [("Status", "404 Not Found"), ("rack.hijack", "x"), ("status-code", "1")];
    let (text, ..) = get(200, &headers, BodySize::Empty);
    assert_eq!(text, "HTTP/1.1 200 OK|status-code: 1|Content-Length: 0||");
}

#[test]
fn an_unknown_coding_is_ended_by_the_close() {
    let (text, framing, keep_alive) = get(200, &[("Transfer-Encoding", "gzip")], BodySize::Unknown);
    assert_eq!(text, "HTTP/1.1 200 OK|Transfer-Encoding: gzip|Connection: close||");
    assert_eq!((framing, keep_alive), (ResponseFraming::Raw, false));
}

#[test]
fn some_answers_have_no_body() {
    for status in [204, 304] {
        for headers in [&[("Content-Length", "5")][..], &[("Transfer-Encoding", "chunked")], &[]] {
            let (text, framing, keep_alive) = get(status, headers, BodySize::Known(5));
            assert_eq!(text, format!("HTTP/1.1 {status} {}||", status::reason(status)));
            assert_eq!((framing, keep_alive), (ResponseFraming::None, true));
        }
    }
    let facts = request(Version::Http11, false, false);
    let early = written(&facts, 103, &[("Link", "</a>\n</b>")], BodySize::Empty).unwrap();
    assert_eq!(early.0, "HTTP/1.1 103 Early Hints|Link: </a>|Link: </b>||");
}

#[test]
fn head_has_the_length_and_no_body() {
    let facts = request(Version::Http11, true, true);
    for (headers, body, lines) in [
        (&[("Content-Length", "9"), DATE][..], BodySize::Empty, "Date: now|Content-Length: 9|"),
        (&[("Content-Length", "9"), DATE], BodySize::Known(5), "Date: now|Content-Length: 9|"),
        (&[DATE], BodySize::Known(5), "Date: now|Content-Length: 5|"),
        (&[DATE], BodySize::Known(0), "Date: now|"),
        (&[DATE], BodySize::Unknown, "Date: now|"),
        (&[("Transfer-Encoding", "chunked"), DATE], BodySize::Unknown, "Date: now|"),
    ] {
        let expected = (format!("HTTP/1.1 200 OK|{lines}|"), ResponseFraming::None, true);
        assert_eq!(written(&facts, 200, headers, body), Ok(expected), "{headers:?} {body:?}");
    }
}

#[test]
fn http_10_is_closed_unless_asked_and_sized() {
    for (keep_alive, body, lines, framing, kept) in [
        (
            true,
            BodySize::Known(1),
            "Content-Length: 1|Connection: keep-alive|",
            ResponseFraming::Length(1),
            true,
        ),
        (
            false,
            BodySize::Known(1),
            "Content-Length: 1|Connection: close|",
            ResponseFraming::Length(1),
            false,
        ),
        (true, BodySize::Unknown, "Connection: close|", ResponseFraming::Raw, false),
    ] {
        let facts = request(Version::Http10, false, keep_alive);
        let expected = (format!("HTTP/1.0 200 OK|Date: now|{lines}|"), framing, kept);
        assert_eq!(written(&facts, 200, &[DATE], body), Ok(expected));
    }
    let facts = request(Version::Http10, false, true);
    let coded = written(&facts, 200, &[("Transfer-Encoding", "chunked"), DATE], BodySize::Unknown);
    assert_eq!(coded.map(|(_, framing, kept)| (framing, kept)), Ok((ResponseFraming::Raw, false)));
}

#[test]
fn connection_options() {
    for (headers, lines, kept) in [
        (&[("Connection", "close")][..], "Content-Length: 0|Connection: close|", false),
        (&[("connection", "Close")], "Content-Length: 0|Connection: close|", false),
        (&[("Connection", "keep-alive")], "Content-Length: 0|", true),
        (
            &[("Connection", "foo, close")],
            "Connection: foo|Content-Length: 0|Connection: close|",
            false,
        ),
        (&[("Connection", "keep-alive\nfoo")], "Connection: foo|Content-Length: 0|", true),
    ] {
        let (text, _, keep_alive) = get(200, headers, BodySize::Empty);
        assert_eq!((text, keep_alive), (format!("HTTP/1.1 200 OK|{lines}|"), kept), "{headers:?}");
    }
}

#[test]
fn a_hijacked_body_passes_untouched_and_closes() {
    let upgrade = [("Upgrade", "websocket"), ("Connection", "Upgrade")];
    let (text, framing, keep_alive) = get(101, &upgrade, BodySize::Hijack);
    assert_eq!(text, "HTTP/1.1 101 Switching Protocols|Upgrade: websocket|Connection: Upgrade||");
    assert_eq!((framing, keep_alive), (ResponseFraming::Raw, false));
    let (text, framing, keep_alive) = get(200, &[("Content-Length", "3")], BodySize::Hijack);
    assert_eq!(text, "HTTP/1.1 200 OK|Content-Length: 3|Connection: close||");
    assert_eq!((framing, keep_alive), (ResponseFraming::Raw, false));
    assert_eq!(get(200, &[], BodySize::Hijack).0, "HTTP/1.1 200 OK|Connection: close||");
}

#[test]
fn lines_of_a_value_become_lines_of_the_header() {
    let (text, ..) = get(
        200,
        &[("Set-Cookie", "a=1\nb=2\n\nc=3\n"), ("X-Empty", ""), ("rack.hijack", "x")],
        BodySize::Empty,
    );
    assert_eq!(
        text,
        "HTTP/1.1 200 OK|Set-Cookie: a=1|Set-Cookie: b=2|Set-Cookie: c=3|X-Empty: |Content-Length: 0||"
    );
}

#[test]
fn the_server_dates_what_the_application_does_not() {
    let facts = request(Version::Http11, false, true);
    let (text, ..) = written(&facts, 200, &[], BodySize::Empty).unwrap();
    let date = text.split('|').find_map(|line| line.strip_prefix("Date: ")).unwrap();
    assert!(date.len() == 29 && date.ends_with(" GMT"), "{date}");
    let (text, ..) = written(&facts, 200, &[("date", "mine")], BodySize::Empty).unwrap();
    assert_eq!(text.matches("ate: ").count(), 1);
}

#[test]
fn what_would_break_the_response_is_named() {
    use BodySize::*;
    for name in ["", "a b", "a:", "a\r\nb", "a\0", "\u{e9}", "(a)"] {
        let error = refused(&[(name, "x")], Empty);
        assert_eq!(error, ResponseError::Name(name.as_bytes().escape_ascii().to_string()));
    }
    for value in ["a\rb", "a\r\nSet-Cookie: b", "\0", "a\x0b", "a\nb\r", "a\x7f", "\r"] {
        let error = refused(&[("X-A", value)], Empty);
        assert!(matches!(&error, ResponseError::Value(name, _) if name == "X-A"), "{error:?}");
        assert!(error.to_string().contains("\"X-A\""), "{error}");
    }
    for value in ["", " ", "x", "-1", "+1", "1, 1", "1.0", "99999999999999999999"] {
        assert_eq!(
            refused(&[("Content-Length", value)], Unknown),
            ResponseError::Length(value.into())
        );
    }
    let twice = [("Content-Length", "1"), ("content-length", "2")];
    assert_eq!(refused(&twice, Unknown), ResponseError::LengthTwice(1, 2));
    assert_eq!(refused(&[("Content-Length", "1\n2")], Unknown), ResponseError::LengthTwice(1, 2));
    assert_eq!(
        refused(&[("Content-Length", "1")], Known(2)),
        ResponseError::LengthOfBody { length: 1, bytes: 2 }
    );
    let both = [("Content-Length", "1"), ("Transfer-Encoding", "chunked")];
    assert_eq!(refused(&both, Unknown), ResponseError::LengthWithCoding);
    let facts = request(Version::Http11, false, true);
    for status in [0, 99, 1000] {
        assert_eq!(
            ResponseHead::new(Vec::new(), status, &facts).unwrap_err(),
            ResponseError::Status(status)
        );
    }
}

#[test]
fn messages_are_printable_and_bounded() {
    let error = refused(&[("X-A", &"\x01".repeat(500))], BodySize::Empty).to_string();
    assert!(error.len() < 500 && error.contains('…') && !error.contains('\x01'), "{error}");
}

#[test]
fn the_buffer_is_the_one_given() {
    let facts = request(Version::Http11, false, true);
    let buffer = Vec::with_capacity(1024);
    let place = buffer.as_ptr();
    let mut head = ResponseHead::new(buffer, 200, &facts).unwrap();
    head.header(b"Content-Type", b"text/plain").unwrap();
    let finished = head.finish(BodySize::Known(12)).unwrap();
    assert_eq!((finished.bytes.as_ptr(), finished.bytes.capacity()), (place, 1024));
}

/// The head of an answer to a client that accepts gzip, with its coding.
fn compressed(
    version: Version,
    is_head: bool,
    status: u16,
    headers: &[(&str, &str)],
    body: BodySize,
) -> (String, ResponseFraming, Option<ContentCoding>) {
    let offer = CompressionOffer { coding: Some(ContentCoding::Gzip), bytes_min: 100 };
    let request = ResponseContext { compression: Some(offer), ..request(version, is_head, true) };
    let mut head = ResponseHead::new(Vec::new(), status, &request).unwrap();
    for (name, value) in headers.iter().chain(&[DATE]) {
        head.header(name.as_bytes(), value.as_bytes()).unwrap();
    }
    let mut head = head.finish(body).unwrap();
    if head.coding.is_some() && matches!(body, BodySize::Known(_)) {
        head.set_length(77);
    }
    let text =
        String::from_utf8(head.bytes).unwrap().replace("\r\n", "|").replace("Date: now|", "");
    (text, head.framing, head.coding)
}

const HTML: (&str, &str) = ("content-type", "text/html; charset=utf-8");

#[test]
fn a_compressed_answer_says_so() {
    let gzip = Some(ContentCoding::Gzip);
    let coded = "Vary: Accept-Encoding|Content-Encoding: gzip|";
    let (text, framing, coding) =
        compressed(Version::Http11, false, 200, &[HTML, ("etag", "\"a\"")], BodySize::Known(100));
    let html = "HTTP/1.1 200 OK|content-type: text/html; charset=utf-8|";
    assert_eq!(text, format!("{html}etag: W/\"a\"|{coded}Content-Length: 77||"));
    assert_eq!((framing, coding), (ResponseFraming::Length(77), gzip));

    let with_length = [HTML, ("content-length", "200"), ("ETag", "W/\"a\"")];
    let (text, framing, coding) =
        compressed(Version::Http11, false, 200, &with_length, BodySize::Unknown);
    assert_eq!(text, format!("{html}ETag: W/\"a\"|{coded}Transfer-Encoding: chunked||"));
    assert_eq!((framing, coding), (ResponseFraming::Chunked, gzip));

    let (text, framing, coding) =
        compressed(Version::Http10, false, 500, &[HTML, ("Vary", "Cookie")], BodySize::Unknown);
    let expected =
        "HTTP/1.0 500 Internal Server Error|content-type: text/html; charset=utf-8|Vary: Cookie|";
    assert_eq!(text, format!("{expected}{coded}Connection: close||"));
    assert_eq!((framing, coding), (ResponseFraming::Raw, gzip));

    let varied = [HTML, ("vary", "Cookie, Accept-Encoding"), ("Content-Encoding", "identity")];
    let (text, _, coding) = compressed(Version::Http11, false, 200, &varied, BodySize::Known(100));
    assert_eq!((text.matches("ccept-").count(), coding), (1, gzip));
}

/// The framing of RFC 9112 section 6 and RFC 9113 section 8.1: chunks are of HTTP/1.1 alone.
fn expected_framing(
    version: Version,
    bodyless: bool,
    is_coded: bool,
    body: BodySize,
    has_length: bool,
) -> ResponseFraming {
    match (body, version) {
        (BodySize::Hijack, _) => ResponseFraming::Raw,
        _ if bodyless => ResponseFraming::None,
        (BodySize::Empty, _) => ResponseFraming::Length(0),
        (BodySize::Known(_), _) if is_coded => ResponseFraming::Length(77),
        (BodySize::Known(len), _) => ResponseFraming::Length(len),
        _ if has_length && !is_coded => ResponseFraming::Length(5_000),
        (BodySize::Unknown, Version::Http11) => ResponseFraming::Chunked,
        (BodySize::Unknown, _) => ResponseFraming::Raw,
    }
}

#[test]
fn framing_of_every_version_body_coding_method_and_status() {
    use BodySize::*;
    let offer = CompressionOffer { coding: Some(ContentCoding::Gzip), bytes_min: 100 };
    let bodies =
        [(Empty, false), (Known(5_000), false), (Unknown, false), (Unknown, true), (Hijack, false)];
    for case in 0..3 * 5 * 2 * 2 * 3 {
        let version = [Version::Http10, Version::Http11, Version::Http2][case % 3];
        let (body, has_length) = bodies[case / 3 % 5];
        let (is_head, compression) = (case / 15 % 2 == 1, (case / 30 % 2 == 1).then_some(offer));
        let status = [200, 204, 304][case / 60];
        let facts = ResponseContext { compression, ..request(version, is_head, true) };
        let mut head = ResponseHead::new(Vec::new(), status, &facts).unwrap();
        head.header(b"content-type", b"text/html").unwrap();
        if has_length {
            head.header(b"content-length", b"5000").unwrap();
        }
        let mut head = head.finish(body).unwrap();
        if head.coding.is_some() && matches!(body, Known(_)) {
            head.set_length(77);
        }
        let text = lower_text(&head);
        let what = format!("{version:?} {body:?} {has_length} {is_head} {status}: {text}");
        let bodyless = is_head || status != 200;
        let is_coded = compression.is_some() && !bodyless && !matches!(body, Empty | Hijack);
        assert_eq!(head.coding.is_some(), is_coded, "{what}");
        let framing = expected_framing(version, bodyless, is_coded, body, has_length);
        assert_eq!(head.framing, framing, "{what}");
        let lines = |line: &str| text.matches(&format!("\r\n{line}")).count();
        let chunked = usize::from(framing == ResponseFraming::Chunked);
        assert_eq!(lines("transfer-encoding: chunked\r\n"), chunked, "{what}");
        if let ResponseFraming::Length(len) = framing {
            assert_eq!(lines(&format!("content-length: {len}\r\n")), 1, "{what}");
        }
        if matches!(framing, ResponseFraming::Chunked | ResponseFraming::Raw) {
            assert_eq!(lines("content-length"), 0, "{what}");
        }
        // Only the end of an HTTP/1 connection ends a raw body.
        let closes = version != Version::Http2 && framing == ResponseFraming::Raw;
        assert_eq!(lines("connection: close\r\n"), usize::from(closes), "{what}");
        let is_value = version == Version::Http2;
        assert_eq!((head.value.is_some(), head.bytes.is_empty()), (is_value, is_value), "{what}");
        assert_eq!(head.status, status, "{what}");
    }
}

#[test]
fn a_value_is_written_by_the_same_rules() {
    let offer = CompressionOffer { coding: Some(ContentCoding::Gzip), bytes_min: 100 };
    let facts =
        ResponseContext { compression: Some(offer), ..request(Version::Http2, false, true) };
    let mut head = ResponseHead::new(b"old".to_vec(), 200, &facts).unwrap();
    let connection = ("Connection", "close, upgrade");
    for (name, value) in [HTML, ("ETag", "\"a\""), DATE, connection, ("Set-Cookie", "a\nb")] {
        head.header(name.as_bytes(), value.as_bytes()).unwrap();
    }
    let mut head = head.finish(BodySize::Known(100)).unwrap();
    let before = head.len;
    head.set_length(77);
    assert!(before > 0 && head.len > before && !head.keep_alive);
    assert_eq!(
        lower_text(&head).replace("\r\n", "|").replace("||", "|"),
        "|content-type: text/html; charset=utf-8|etag: w/\"a\"|date: now|set-cookie: a|set-cookie: b|\
         vary: accept-encoding|content-encoding: gzip|content-length: 77|"
    );
    let mut head = ResponseHead::new(Vec::new(), 200, &facts).unwrap();
    (0..40_000).for_each(|at| head.header(format!("x-{at}").as_bytes(), b"1").unwrap());
    assert_eq!(head.finish(BodySize::Empty).unwrap_err(), ResponseError::TooManyForHttp2);
}

#[test]
fn answers_that_must_stay_as_they_are_are_not_compressed() {
    let large = BodySize::Known(5_000);
    for (status, headers, body, varies) in [
        (200, &[HTML][..], BodySize::Known(99), false),
        (200, &[HTML, ("content-length", "99")], BodySize::Unknown, false),
        (200, &[], large, false),
        (200, &[("content-type", "image/png")], large, false),
        (200, &[("content-type", "text/event-stream")], BodySize::Unknown, false),
        (200, &[HTML, ("Content-Encoding", "br")], large, false),
        (200, &[HTML, ("Cache-Control", "public, No-Transform")], large, false),
        (200, &[HTML, ("X-Chaton-Compress", "off")], large, false),
        (200, &[HTML, ("transfer-encoding", "chunked")], BodySize::Unknown, false),
        (200, &[HTML], BodySize::Hijack, false),
        (204, &[HTML], BodySize::Empty, false),
        (304, &[HTML], BodySize::Known(5_000), false),
        (206, &[HTML, ("content-range", "bytes 0-4999/9000")], large, false),
        (200, &[HTML, ("content-range", "bytes 0-4999/9000")], large, false),
        (200, &[HTML, ("Accept-Ranges", "bytes")], large, false),
        (200, &[HTML, ("Content-MD5", "Q2hlY2sgSW50ZWdyaXR5IQ==")], large, false),
        (200, &[HTML, ("Digest", "sha-256=a")], large, false),
        (200, &[HTML, ("content-digest", "sha-256=:a:")], large, false),
        (200, &[HTML, ("repr-digest", "sha-256=:a:")], large, false),
    ] {
        let (text, _, coding) = compressed(Version::Http11, false, status, headers, body);
        assert_eq!((coding, text.contains("Vary")), (None, varies), "{status} {headers:?}");
        assert!(!text.to_ascii_lowercase().contains("x-chaton"), "{text}");
    }
    let none = CompressionOffer { coding: None, bytes_min: 100 };
    let request =
        ResponseContext { compression: Some(none), ..request(Version::Http11, false, true) };
    let (text, ..) = written(&request, 200, &[HTML, DATE], large).unwrap();
    assert!(text.contains("|Vary: Accept-Encoding|Content-Length: 5000|"), "{text}");
}

#[test]
fn the_head_of_an_answer_to_head_says_what_that_of_get_would() {
    let html = "HTTP/1.1 200 OK|content-type: text/html; charset=utf-8|";
    let coded = "Vary: Accept-Encoding|Content-Encoding: gzip||";
    let sized = ("content-length", "5000");
    for (headers, body, lines) in [
        (&[HTML, ("etag", "\"a\"")][..], BodySize::Known(5_000), format!("etag: W/\"a\"|{coded}")),
        (&[HTML, sized], BodySize::Known(0), coded.to_owned()),
        (&[HTML, sized], BodySize::Empty, coded.to_owned()),
        (&[HTML, sized], BodySize::Unknown, coded.to_owned()),
        (&[HTML], BodySize::Unknown, "Vary: Accept-Encoding||".to_owned()),
        (&[HTML], BodySize::Empty, "Vary: Accept-Encoding||".to_owned()),
        (&[HTML], BodySize::Known(99), "Content-Length: 99||".to_owned()),
        (&[HTML, ("content-length", "0")], BodySize::Known(0), "Content-Length: 0||".to_owned()),
    ] {
        let (text, framing, coding) = compressed(Version::Http11, true, 200, headers, body);
        assert_eq!(text, format!("{html}{lines}"), "{headers:?} {body:?}");
        assert_eq!((framing, coding), (ResponseFraming::None, None));
    }
}

#[test]
fn times_are_told_where_they_are_wanted_but_not_in_an_interim_head() {
    let times = [1_500, 20_004].map(std::time::Duration::from_micros);
    let timing = Some(ServerTiming { queue: times[0], app: times[1] });
    let request = ResponseContext { timing, ..request(Version::Http11, false, true) };
    let (text, ..) = written(&request, 204, &[DATE], BodySize::Empty).unwrap();
    let head = "HTTP/1.1 204 No Content|Date: now|Server-Timing: queue;dur=1.50, app;dur=20.00||";
    assert_eq!(text, head);
    let (text, ..) = written(&request, 103, &[], BodySize::Empty).unwrap();
    assert_eq!(text, "HTTP/1.1 103 Early Hints||");
}
