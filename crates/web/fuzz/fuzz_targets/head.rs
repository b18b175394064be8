//! Any bytes as a request head, in one read and in two.

#![no_main]

use chaton_web::head::{parse, Parsed, RequestHead};
use chaton_web::limits::Limits;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&first, bytes)) = input.split_first() else {
        return;
    };
    let limits = Limits { header_bytes_max: 2_048, header_count_max: 8, ..Limits::for_tests() };
    let mut whole = RequestHead::default();
    let outcome = parse(bytes, &limits, &mut whole);

    let cut = bytes.len() * usize::from(first) / 256;
    let mut chopped = RequestHead::default();
    match parse(&bytes[..cut], &limits, &mut chopped) {
        Ok(Parsed::Partial) => assert_eq!(parse(bytes, &limits, &mut chopped), outcome),
        early => assert_eq!(early, outcome),
    }

    if let Ok(Parsed::Complete(used)) = outcome {
        assert_eq!(chopped, whole);
        assert!(used <= bytes.len() && bytes[..used].ends_with(&whole.bytes));
        let spans = [whole.method, whole.target, whole.path, whole.query];
        let fields = whole.headers.iter().flat_map(|&(name, value)| [name, value]);
        for span in fields.chain(spans).chain(whole.authority) {
            let control = |b: &u8| b.is_ascii_control() && *b != b'\t';
            assert!(!whole.get(span).iter().any(control));
        }
    }
});
