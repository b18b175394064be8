//! Mutations of every entry, pseudo-random and the same in each run: whatever the bytes, a outcome
//! does not depend on the reads, and what is accepted has the properties an application relies on.

use chaton_web::head::{BodyFraming, RequestHead, Version};
use chaton_web::limits::Limits;

use crate::outcome::{of, ParseOutcome};
use crate::table::{hostile, valid};

/// Mutants: fewer in bin/test than in bin/soak.
fn rounds() -> usize {
    if std::env::var_os("CHATON_SOAK").is_some() {
        200_000
    } else {
        40_000
    }
}

/// Longer entries are there for the limits; mutating their middle is idle.
const BYTES_MAX: usize = 600;

/// Fragments that matter to a parser of requests.
const FRAGMENTS: [&[u8]; 28] = [
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b"\t",
    b":",
    b",",
    b";",
    b"\r\n\r\n",
    b"\r\n ",
    b"0\r\n\r\n",
    b"HTTP/1.1",
    b"HTTP/1.0",
    b"GET / HTTP/1.1\r\n",
    b"Host: h\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length:",
    b"Transfer-Encoding: chunked\r\n",
    b"chunked",
    b"Connection: close\r\n",
    b"Expect: 100-continue\r\n",
    b"http://h",
    b"*",
    b"?",
    b"\xff",
    b"\xc3\xa9",
    b"f",
];

/// xorshift64*: small, and the same numbers everywhere.
struct XorShift(u64);

impl XorShift {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound.max(1)
    }

    fn mutate(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let at = self.below(bytes.len() + 1);
        let end = (at + self.below(20)).min(bytes.len());
        match self.below(7) {
            0 if at < bytes.len() => bytes[at] = self.below(256) as u8,
            1 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
            2 => drop(bytes.drain(at..end)),
            3 => {
                let copy = bytes[at..end].to_vec();
                bytes.splice(end..end, copy);
            }
            4 => {
                let from = self.below(other.len() + 1);
                bytes.splice(at.., other[from..].iter().copied());
            }
            _ => {
                let fragment = FRAGMENTS[self.below(FRAGMENTS.len())];
                bytes.splice(at..at, fragment.iter().copied());
            }
        }
        bytes.truncate(2 * BYTES_MAX);
    }
}

#[test]
fn mutations_keep_every_promise() {
    let seeds: Vec<_> = hostile()
        .into_iter()
        .chain(valid())
        .map(|entry| entry.bytes)
        .filter(|bytes| bytes.len() <= BYTES_MAX)
        .collect();
    let tight = Limits {
        header_bytes_max: 120,
        header_count_max: 3,
        uri_bytes_max: 12,
        body_bytes_max: 6,
        ..Limits::for_tests()
    };
    let mut random = XorShift(0x5eed_c4a7_0000_0001);
    let mut accepted = 0;
    for round in 0..rounds() {
        let mut bytes = seeds[random.below(seeds.len())].clone();
        for _ in 0..=random.below(4) {
            let other = random.below(seeds.len());
            random.mutate(&mut bytes, &seeds[other]);
        }
        let limits = if random.below(4) == 0 { tight.clone() } else { Limits::for_tests() };
        let whole = of(&bytes, [], &limits);
        let mut ends = [(); 4].map(|()| random.below(bytes.len() + 1));
        ends.sort();
        let shown = bytes.escape_ascii();
        assert_eq!(of(&bytes, ends, &limits), whole, "round {round}, reads {ends:?}: {shown}");
        match whole {
            ParseOutcome::Accepted(head, body, _) => {
                accepted += 1;
                check(&head, &body, &limits);
            }
            // The scan has to find what httparse finds, and more.
            ParseOutcome::Refused(_, reason) => {
                assert_ne!(reason, chaton_web::head::HeadError::Malformed.reason(), "{shown}");
            }
            ParseOutcome::Cut => {}
        }
    }
    assert!(accepted > rounds() / 50, "only {accepted} mutants were accepted");
}

/// What holds for every accepted request, found without the parser's help.
fn check(head: &RequestHead, body: &[u8], limits: &Limits) {
    let text = head.bytes.escape_ascii();
    let without_crlf = head.bytes.split(|&b| b == b'\n').map(|line| line.strip_suffix(b"\r"));
    let lines: Vec<_> = without_crlf.clone().flatten().collect();
    assert!(without_crlf.count() == lines.len() + 1, "a line without CR: {text}");
    let (blank, lines) = lines.split_last().unwrap();
    assert!(blank.is_empty(), "{text}");
    let rebuilt = [
        head.get(head.method),
        head.get(head.target),
        if head.version == Version::Http10 { b"HTTP/1.0" } else { b"HTTP/1.1" },
    ];
    assert_eq!(lines[0], rebuilt.join(&b' '), "{text}");
    assert_eq!(lines.len() - 1, head.headers.len(), "{text}");
    assert!(
        head.headers.len() <= limits.header_count_max && body.len() as u64 <= limits.body_bytes_max
    );
    assert!(head.bytes.len() <= limits.header_bytes_max, "{text}");
    assert!(head.get(head.target).len() <= limits.uri_bytes_max, "{text}");

    let (mut hosts, mut lengths, mut codings) = (0, Vec::new(), Vec::new());
    for line in &lines[1..] {
        let line =
            std::str::from_utf8(line).map_or_else(|_| String::from_utf8_lossy(line), Into::into);
        let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("no colon: {text}"));
        assert!(!name.is_empty() && !name.contains([' ', '\t', '\0']), "{text}");
        assert!(!value.contains(|c: char| c.is_ascii_control() && c != '\t'), "{text}");
        match name.to_ascii_lowercase().as_str() {
            "host" => hosts += 1,
            "content-length" => lengths.push(value.trim().parse::<u64>().ok()),
            "transfer-encoding" => codings.push(value.trim().to_ascii_lowercase()),
            _ => {}
        }
    }
    assert!(hosts == 1 || hosts == 0 && head.version == Version::Http10, "{text}");
    match head.framing {
        BodyFraming::None => assert!(lengths.is_empty() && codings.is_empty(), "{text}"),
        BodyFraming::Length(length) => {
            assert!(!lengths.is_empty() && codings.is_empty(), "{text}");
            assert!(lengths.iter().all(|other| *other == Some(length)), "{text}");
            assert_eq!(body.len() as u64, length, "{text}");
        }
        BodyFraming::Chunked => {
            let codings = codings.join(",");
            let last = codings.trim_start_matches([',', ' ', '\t']);
            assert!(lengths.is_empty() && last == "chunked", "{text}");
            assert_eq!(head.version, Version::Http11, "{text}");
        }
    }
    assert!(matches!(head.get(head.path), [b'/', ..] | b"*"), "{text}");
}
