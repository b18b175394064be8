//! Each entry's outcome is the expected one, in one read and in any cut.

use chaton_web::head::{BodyFraming, RequestHead, Version};
use chaton_web::limits::Limits;

use crate::outcome::{of, ParseOutcome};
use crate::table::{hostile, unescape, valid, CorpusCase};

#[test]
fn hostile_requests_are_refused_as_expected() {
    let wrong: Vec<_> = hostile()
        .into_iter()
        .filter_map(|CorpusCase { name, expected, bytes }| {
            let found = match of(&bytes, [], &Limits::for_tests()) {
                ParseOutcome::Refused(status, reason) => (status.to_string(), reason),
                ParseOutcome::Cut => ("cut".into(), ""),
                ParseOutcome::Accepted(..) => ("accepted".into(), ""),
            };
            (found.0 != expected).then(|| format!("{name}: {expected} expected, {found:?}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn valid_requests_are_understood_as_expected() {
    for CorpusCase { name, expected, bytes } in valid() {
        let found = match of(&bytes, [], &Limits::for_tests()) {
            ParseOutcome::Accepted(head, body, rest) => meaning(&head, &body, rest),
            other => panic!("{name}: {other:?}"),
        };
        let (found, expected) = (found.escape_ascii(), unescape(&expected));
        assert_eq!(found.to_string(), expected.escape_ascii().to_string(), "{name}");
    }
}

/// The words of the second field of `valid.txt`.
fn meaning(head: &RequestHead, body: &[u8], rest: usize) -> Vec<u8> {
    let version = if head.version == Version::Http10 { "1.0" } else { "1.1" };
    let keep = if head.keep_alive { "keep" } else { "close" };
    let mut words = vec![
        head.get(head.method).to_vec(),
        head.get(head.path).to_vec(),
        version.into(),
        keep.into(),
    ];
    if head.has_query {
        words.push([b"query=", head.get(head.query)].concat());
    }
    if let Some(authority) = head.authority {
        words.push([b"host=", head.get(authority)].concat());
    }
    match head.framing {
        BodyFraming::None => {}
        BodyFraming::Length(length) => words.push(format!("length={length}").into_bytes()),
        BodyFraming::Chunked => words.push(b"chunked".to_vec()),
    }
    if !body.is_empty() {
        words.push([b"body=", body].concat());
    }
    if head.expect_continue {
        words.push(b"continue".to_vec());
    }
    if rest > 0 {
        words.push(format!("rest={rest}").into_bytes());
    }
    words.join(&b' ')
}

#[test]
fn no_cut_changes_a_verdict() {
    let limits = Limits::for_tests();
    for CorpusCase { name, bytes, .. } in hostile().into_iter().chain(valid()) {
        let whole = of(&bytes, [], &limits);
        let same = |ends: &mut dyn Iterator<Item = usize>, cut: &str| {
            assert_eq!(of(&bytes, ends, &limits), whole, "{name}, {cut}");
        };
        // Cuts at every byte of a long run of one letter teach nothing new.
        let step = bytes.len() / 500 + 1;
        for at in (0..=bytes.len()).step_by(step) {
            same(&mut [at].into_iter(), &format!("cut at {at}"));
        }
        for size in [1, 2, 3, 7, 64, 1000].map(|size| size * step) {
            same(&mut (0..bytes.len()).step_by(size), &format!("reads of {size}"));
        }
    }
}

#[test]
fn a_prefix_is_unfinished_or_refused_for_the_same_reason() {
    let limits = Limits::for_tests();
    for CorpusCase { name, bytes, .. } in hostile() {
        let whole = of(&bytes, [], &limits);
        for end in (0..bytes.len()).step_by(bytes.len() / 300 + 1) {
            let prefix = of(&bytes[..end], [], &limits);
            assert!(
                prefix == ParseOutcome::Cut || prefix == whole,
                "{name} up to {end}: {prefix:?}"
            );
        }
    }
}

#[test]
fn byte_by_byte_costs_no_more_than_its_bytes() {
    // 30 KB in single bytes: a rescan from the start would look at 450 MB.
    let limits = Limits::for_tests();
    let bytes = format!("GET / HTTP/1.1\r\nHost: h\r\nX: {}\r\n\r\n", "x".repeat(30_000));
    let mut head = RequestHead::default();
    let started = std::time::Instant::now();
    for end in 1..=bytes.len() {
        chaton_web::head::parse(&bytes.as_bytes()[..end], &limits, &mut head).unwrap();
    }
    assert_eq!(head.headers.len(), 2);
    assert!(started.elapsed().as_secs() < 2, "{:?}", started.elapsed());
}
