//! Any bytes as a header of the PROXY protocol, in one read and in two.

#![no_main]

use chaton_web::proxy_protocol::{parse, BYTES_MAX};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&first, bytes)) = input.split_first() else {
        return;
    };
    let outcome = parse(bytes);
    if let Ok(Some(header)) = outcome {
        assert!(header.len > 0 && header.len <= bytes.len().min(BYTES_MAX));
        // The bytes behind it do not matter.
        assert_eq!(parse(&bytes[..header.len]), outcome);
    }
    let cut = bytes.len() * usize::from(first) / 256;
    match parse(&bytes[..cut]) {
        Ok(None) => {}
        early => assert_eq!(early, outcome),
    }
});
