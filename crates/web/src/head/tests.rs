//! Heads that are served: how they are understood. What is refused, and the
//! same results for heads in pieces, are tested over the corpus in `tests/`.

use super::*;

fn parsed(bytes: &[u8]) -> Result<RequestHead, HeadError> {
    let mut head = RequestHead::default();
    match parse(bytes, &Limits::for_tests(), &mut head)? {
        Parsed::Complete(_) => Ok(head),
        Parsed::Partial => panic!("partial: {}", bytes.escape_ascii()),
    }
}

fn text(head: &RequestHead, span: Span) -> String {
    String::from_utf8_lossy(head.get(span)).into_owned()
}

#[test]
fn parts_are_spans_of_the_head() {
    let head = parsed(
        b"\r\nPOST /a%20b?c=d&e HTTP/1.1\r\nHost: h:1\r\nX-Empty:\r\nX-Tab: \t a\tb \r\n\
          Content-Length: 3\r\n\r\nabcGET / HTTP/1.1",
    )
    .unwrap();
    assert!(head.bytes.starts_with(b"POST ") && head.bytes.ends_with(b"3\r\n\r\n"));
    assert_eq!(text(&head, head.method), "POST");
    assert_eq!(text(&head, head.target), "/a%20b?c=d&e");
    assert_eq!(text(&head, head.path), "/a%20b");
    assert_eq!(text(&head, head.query), "c=d&e");
    assert!(head.has_query);
    assert_eq!(head.version, Version::Http11);
    assert_eq!(head.framing, BodyFraming::Length(3));
    let headers: Vec<_> =
        head.headers.iter().map(|&(n, v)| (text(&head, n), text(&head, v))).collect();
    let expected = [("Host", "h:1"), ("X-Empty", ""), ("X-Tab", "a\tb"), ("Content-Length", "3")];
    assert_eq!(headers, expected.map(|(n, v)| (n.to_owned(), v.to_owned())));
    assert_eq!(head.header("x-tab"), Some(&b"a\tb"[..]));
    assert_eq!(head.header("x-none"), None);
}

#[test]
fn an_absolute_target_names_the_authority() {
    let head = parsed(b"GET http://a:81?q HTTP/1.1\r\nHost: b\r\n\r\n").unwrap();
    assert_eq!(head.authority.map(|a| text(&head, a)).as_deref(), Some("a:81"));
    assert_eq!((text(&head, head.path), text(&head, head.query)), ("/".into(), "q".into()));
    let head = parsed(b"OPTIONS * HTTP/1.1\r\nHost: b\r\n\r\n").unwrap();
    assert_eq!((text(&head, head.path), head.has_query, head.authority), ("*".into(), false, None));
}

#[test]
fn connections_live_on_by_version_and_option() {
    for (version, lines, keep_alive) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: upgrade, CLOSE\r\n", false),
        ("1.1", "Connection: keep-alive\r\nConnection: close\r\n", false),
        ("1.1", "Connection: closed\r\n", true),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: foo ,\tkeep-alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
    ] {
        let head = format!("GET / HTTP/{version}\r\nHost: h\r\n{lines}\r\n");
        assert_eq!(parsed(head.as_bytes()).unwrap().keep_alive, keep_alive, "{head}");
    }
}

#[test]
fn only_a_body_to_come_is_waited_for() {
    for (version, lines, waits) in [
        ("1.1", "Expect: 100-Continue\r\nContent-Length: 1\r\n", true),
        ("1.1", "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n", true),
        ("1.1", "Expect: 100-continue\r\nContent-Length: 0\r\n", false),
        ("1.1", "Expect: 100-continue\r\n", false),
        ("1.1", "Expect: something\r\nContent-Length: 1\r\n", false),
        ("1.0", "Expect: 100-continue\r\nContent-Length: 1\r\n", false),
    ] {
        let head = format!("PUT / HTTP/{version}\r\nHost: h\r\n{lines}\r\n");
        assert_eq!(parsed(head.as_bytes()).unwrap().expect_continue, waits, "{head}");
    }
}

#[test]
fn an_underscore_does_not_shadow_a_dash() {
    let head = parsed(
        b"GET / HTTP/1.1\r\nHost: h\r\nX_Real_IP: 1\r\nX-Real-Ip: 2\r\nA_b: 3\r\nA_B: 3\r\n\
          Content_Length: 4\r\ntransfer_encoding: x\r\n\r\n",
    )
    .unwrap();
    let shadowed: Vec<_> = head
        .headers
        .iter()
        .filter(|(name, _)| head.get(*name).contains(&b'_'))
        .map(|&(name, _)| (text(&head, name), head.is_shadowed(name)))
        .collect();
    let expected = [
        ("X_Real_IP", true),
        ("A_b", false),
        ("A_B", false),
        ("Content_Length", true),
        ("transfer_encoding", true),
    ];
    assert_eq!(shadowed, expected.map(|(name, is)| (name.to_owned(), is)));
}

#[test]
fn limits_are_answered_before_the_head_ends() {
    let limits = Limits {
        header_bytes_max: 64,
        header_count_max: 2,
        uri_bytes_max: 10,
        ..Limits::for_tests()
    };
    for (bytes, expected) in [
        (&b"GET /23456789 HTTP/1.0\r\n\r\n"[..], Ok(Parsed::Complete(26))),
        (b"GET /2345678901", Err(HeadError::UriTooLong)),
        (b"GET / HTTP/1.0\r\na:\r\nb:\r\n\r\n", Ok(Parsed::Complete(26))),
        (b"GET / HTTP/1.0\r\na:\r\nb:\r\nc", Err(HeadError::TooManyHeaders)),
        (&[b'A'; 33], Err(HeadError::MethodTooLong)),
    ] {
        let mut head = RequestHead::default();
        assert_eq!(parse(bytes, &limits, &mut head), expected, "{}", bytes.escape_ascii());
    }
    let mut bytes = format!("GET / HTTP/1.0\r\na: {}\r\n\r\n", "b".repeat(41)).into_bytes();
    assert_eq!(bytes.len(), 64);
    bytes.extend_from_slice(b"pipelined");
    let mut head = RequestHead::default();
    assert_eq!(parse(&bytes, &limits, &mut head), Ok(Parsed::Complete(64)));
    bytes.insert(20, b'b');
    assert_eq!(parse(&bytes[..65], &limits, &mut head), Err(HeadError::TooLarge));
}

#[test]
fn more_headers_than_the_stack_holds() {
    let limits = Limits { header_count_max: 200, ..Limits::for_tests() };
    let mut head = RequestHead::default();
    for (count, status) in [(64, 0), (65, 0), (200, 0), (201, 431)] {
        let bytes = format!("GET / HTTP/1.0\r\n{}\r\n", "a: b\r\n".repeat(count));
        head.clear();
        match parse(bytes.as_bytes(), &limits, &mut head) {
            Ok(parsed) => {
                assert_eq!((parsed, status), (Parsed::Complete(bytes.len()), 0));
                assert_eq!(head.headers.len(), count);
            }
            Err(error) => assert_eq!(error.status(), status, "{count}"),
        }
    }
}

#[test]
fn a_head_is_reused_without_what_was_before() {
    let mut head = RequestHead::default();
    let limits = Limits::for_tests();
    let first =
        b"POST http://a/b?c HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\n";
    assert!(parse(first, &limits, &mut head).is_ok());
    let capacity = head.bytes.capacity();
    let second = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    assert!(parse(second, &limits, &mut head).is_ok());
    assert_eq!(head, parsed(second).unwrap());
    head.clear();
    assert_eq!(head, RequestHead::default());
    assert_eq!(head.bytes.capacity(), capacity);
    assert_eq!(parse(b"GET", &limits, &mut head), Ok(Parsed::Partial));
    head.clear();
    assert_eq!(parse(second, &limits, &mut head), Ok(Parsed::Complete(second.len())));
}
