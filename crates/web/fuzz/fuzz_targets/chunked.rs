//! Any bytes as a chunked body, in one read and in many.

#![no_main]

use chaton_web::chunked::ChunkedDecoder;
use chaton_web::limits::Limits;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&first, bytes)) = input.split_first() else {
        return;
    };
    let limits = Limits { body_bytes_max: 512, header_bytes_max: 256, ..Limits::for_tests() };
    let mut out = Vec::new();
    let outcome = ChunkedDecoder::new(&limits).feed(bytes, &mut out);
    assert!(out.len() as u64 <= limits.body_bytes_max);

    let mut decoder = ChunkedDecoder::new(&limits);
    let (mut chopped_out, mut chopped) = (Vec::new(), Ok((0, false)));
    for read in bytes.chunks(usize::from(first) + 1) {
        chopped = match (decoder.feed(read, &mut chopped_out), chopped) {
            (Ok((used, done)), Ok((before, _))) => Ok((before + used, done)),
            (error, _) => error,
        };
        if !matches!(chopped, Ok((_, false))) {
            break;
        }
    }
    assert_eq!(chopped, outcome);
    assert_eq!(chopped_out, out);
});
