//! Any bytes as the value of a `Range`.

#![no_main]

use chaton_web::byte_range::{parse, ByteRange};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((len, value)) = input.split_first_chunk::<8>() else {
        return;
    };
    let len = u64::from_le_bytes(*len);
    if let ByteRange::Part { start, end } = parse(value, len) {
        assert!(start < end && end <= len);
        assert!(!value.contains(&b','));
    }
    if len == 0 {
        assert_eq!(parse(value, len), ByteRange::Whole);
    }
});
