use super::*;

/// Decodes whole and byte by byte, and asserts that both say the same.
fn decode(input: &[u8], limits: &Limits) -> Result<(usize, bool, Vec<u8>), ChunkError> {
    let mut out = Vec::new();
    let whole = ChunkedDecoder::new(limits).feed(input, &mut out);
    let mut decoder = ChunkedDecoder::new(limits);
    let (mut chopped_out, mut chopped) = (Vec::new(), Ok((0, false)));
    for (at, byte) in input.iter().enumerate() {
        match decoder.feed(std::slice::from_ref(byte), &mut chopped_out) {
            Ok((_, true)) => {
                chopped = Ok((at + 1, true));
                break;
            }
            Ok((used, false)) => {
                assert_eq!(used, 1);
                chopped = Ok((at + 1, false));
            }
            Err(error) => {
                assert_eq!(decoder.feed(b"0", &mut chopped_out), Err(error), "errors are final");
                chopped = Err(error);
                break;
            }
        }
    }
    assert_eq!(whole, chopped, "{}", input.escape_ascii());
    whole.map(|(used, done)| {
        assert_eq!(out, chopped_out);
        (used, done, out)
    })
}

#[test]
fn bodies() {
    for (input, used, done, body) in [
        (&b"0\r\n\r\n"[..], 5, true, &b""[..]),
        (b"3\r\nabc\r\n0\r\n\r\nGET", 13, true, b"abc"),
        (b"A\r\n0123456789\r\n0a\r\nabcdefghij\r\n000\r\n\r\n", 38, true, b"0123456789abcdefghij"),
        (b"1;a=b\r\nx\r\n0;c\r\n\r\n", 17, true, b"x"),
        (b"1 \t;  a=\"q;\xc3\xa9\"\r\nx\r\n0\r\n\r\n", 24, true, b"x"),
        (b"0\r\nX-Sum: 1\r\nY:\r\n\r\nZ", 19, true, b""),
        (b"2\r\n\r\n\r\n0\r\n\r\n", 12, true, b"\r\n"),
        (b"3\r\nab", 5, false, b"ab"),
        (b"0\r\n", 3, false, b""),
        (b"0\r\n\r", 4, false, b""),
        (b"", 0, false, b""),
    ] {
        let found = decode(input, &Limits::for_tests());
        assert_eq!(found, Ok((used, done, body.to_vec())), "{}", input.escape_ascii());
    }
}

#[test]
fn faults() {
    use ChunkError::*;
    for (input, error) in [
        (&b"\r\n"[..], Size),
        (b"\n", Size),
        (b" 3\r\n", Size),
        (b"+3\r\n", Size),
        (b"-3\r\n", Size),
        (b"0x3\r\n", Size),
        (b"3g\r\n", Size),
        (b"g\r\n", Size),
        (b";a\r\n", Size),
        (b"3 \r\n", Size),
        (b"3 3\r\n", Size),
        (b"3,3\r\n", Size),
        (b"10000000000000000\r\n", Size),
        (b"00000000000000003\r\n", Size),
        (b"ffffffffffffffff\r\n", TooLarge),
        (b"40000001\r\n", TooLarge),
        (b"3;\r\n", Extension),
        (b"3;=\r\n", Extension),
        (b"3;a\0\r\n", Extension),
        (b"3;a\x7f\r\n", Extension),
        (b"3;a\n", LineEnd),
        (b"3;a\rb", LineEnd),
        (b"3\n", LineEnd),
        (b"3\rx", LineEnd),
        (b"3 \n", LineEnd),
        (b"3\r\nabc\n", LineEnd),
        (b"3\r\nabc\rx", LineEnd),
        (b"3\r\nabcd", DataEnd),
        (b"3\r\nabc0\r\n\r\n", DataEnd),
        (b"0\r\nX : 1\r\n\r\n", Trailer(HeadError::SpaceBeforeColon)),
        (b"0\r\n X: 1\r\n\r\n", Trailer(HeadError::Folded)),
        (b"0\r\nX: 1\n\n", Trailer(HeadError::BareLf)),
        (b"0\r\n\n", Trailer(HeadError::BareLf)),
        (b"0\r\nX\r\n\r\n", Trailer(HeadError::NoColon)),
        (b"0\r\nX: \0\r\n\r\n", Trailer(HeadError::Value)),
        (b"0\r\nGET / HTTP/1.1\r\n\r\n", Trailer(HeadError::SpaceBeforeColon)),
        (b"0\r\nA: b\r\nContent-Length: 3\r\n\r\n", TrailerForbidden),
        (b"0\r\nTransfer-Encoding: chunked\r\n\r\n", TrailerForbidden),
        (b"0\r\nHOST: h\r\n\r\n", TrailerForbidden),
    ] {
        let found = decode(input, &Limits::for_tests());
        assert_eq!(found, Err(error), "{}", input.escape_ascii());
    }
}

#[test]
fn the_body_limit_counts_all_chunks() {
    let limits = Limits { body_bytes_max: 5, ..Limits::for_tests() };
    assert_eq!(decode(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", &limits).map(|d| d.1), Ok(true));
    assert_eq!(decode(b"3\r\nabc\r\n3\r\n", &limits), Err(ChunkError::TooLarge));
}

#[test]
fn extensions_are_bounded_by_line_and_by_body() {
    let line = |bytes: usize| format!("1;{}\r\nx\r\n", "e".repeat(bytes - 1)).into_bytes();
    let limits = Limits::for_tests();
    assert!(decode(&line(1_024), &limits).is_ok());
    assert_eq!(decode(&line(1_025), &limits), Err(ChunkError::ExtensionTooLong));
    assert!(decode(&line(1_024).repeat(16), &limits).is_ok());
    assert_eq!(decode(&line(1_024).repeat(17), &limits), Err(ChunkError::ExtensionTooLong));
}

#[test]
fn trailers_have_the_limits_of_headers() {
    let limits = Limits { header_bytes_max: 20, header_count_max: 2, ..Limits::for_tests() };
    assert!(decode(b"0\r\na: 0123456789abc\r\n\r\n", &limits).is_ok_and(|d| d.1));
    for (input, error) in [
        (&b"0\r\na: 0123456789abcd\r\n\r\n"[..], HeadError::TooLarge),
        (b"0\r\na: 0123456789abcdefghij", HeadError::TooLarge),
        (b"0\r\na:\r\nb:\r\nc:", HeadError::TooManyHeaders),
    ] {
        let found = decode(input, &limits);
        assert_eq!(found, Err(ChunkError::Trailer(error)));
        assert_eq!(found.unwrap_err().status(), 431);
    }
}
