//! Any bytes as the value of an `Accept-Encoding`.

#![no_main]

use chaton_web::content_coding::{AcceptedCodings, ContentCoding};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|value: &[u8]| {
    let mut accepted = AcceptedCodings::default();
    accepted.add(value);
    let best = accepted.best(|_| true);
    if let Some(coding) = best {
        let text = value.to_ascii_lowercase();
        let named = |name: &[u8]| text.windows(name.len()).any(|part| part == name);
        assert!(named(coding.name().as_bytes()) || text.contains(&b'*'));
        // The best one is also the best of itself and nothing.
        assert_eq!(accepted.best(|other| other == coding), best);
    }
    assert_eq!(accepted.best(|_| false), None);
    // A later element of the same line wins.
    for coding in ContentCoding::ALL {
        let mut refused = accepted;
        refused.add([coding.name().as_bytes(), b";q=0"].concat().as_slice());
        assert_eq!(refused.best(|other| other == coding), None);
    }
});
