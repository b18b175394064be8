//! What becomes of one request whose bytes arrive in pieces: head parser, then
//! the body as its framing says, as a connection reads it.

use chaton_web::chunked::ChunkedDecoder;
use chaton_web::head::{parse, BodyFraming, Parsed, RequestHead};
use chaton_web::limits::Limits;

#[derive(Debug, PartialEq, Eq)]
pub enum ParseOutcome {
    /// The status and the reason given.
    Refused(u16, &'static str),
    /// The request, its body and the bytes behind it.
    Accepted(Box<RequestHead>, Vec<u8>, usize),
    /// The bytes ended before the request did.
    Cut,
}

/// Reads `bytes` up to each of `ends` in turn, and then to their end.
pub fn of(bytes: &[u8], ends: impl IntoIterator<Item = usize>, limits: &Limits) -> ParseOutcome {
    let mut reads = ends.into_iter().chain([bytes.len()]);
    let mut head = Box::<RequestHead>::default();
    let (head_bytes, mut read) = loop {
        let Some(end) = reads.next() else {
            return ParseOutcome::Cut;
        };
        // A copy: a connection's buffer may move between two reads.
        let buffer = bytes[..end].to_vec();
        match parse(&buffer, limits, &mut head) {
            Ok(Parsed::Complete(used)) => break (used, end),
            Ok(Parsed::Partial) => {}
            Err(error) => return ParseOutcome::Refused(error.status(), error.reason()),
        }
    };
    let mut body = Vec::new();
    let length = match head.framing {
        BodyFraming::None => 0,
        BodyFraming::Length(length) => length as usize,
        BodyFraming::Chunked => {
            let mut decoder = ChunkedDecoder::new(limits);
            let mut at = head_bytes;
            loop {
                match decoder.feed(&bytes[at..read], &mut body) {
                    Ok((used, true)) => {
                        let rest = bytes.len() - at - used;
                        return ParseOutcome::Accepted(head, body, rest);
                    }
                    Ok((used, false)) => at += used,
                    Err(error) => return ParseOutcome::Refused(error.status(), error.reason()),
                }
                assert_eq!(at, read, "an unfinished decoder consumes all");
                match reads.next() {
                    Some(end) => read = end,
                    None => return ParseOutcome::Cut,
                }
            }
        }
    };
    match bytes[head_bytes..].get(..length) {
        Some(whole) => {
            body.extend_from_slice(whole);
            ParseOutcome::Accepted(head, body, bytes.len() - head_bytes - length)
        }
        None => ParseOutcome::Cut,
    }
}
