//! The transitions of a response, and when the IO thread is woken.

use super::*;
use crate::budget::Budget;
use crate::config::Config;

fn limits() -> Limits {
    Limits::for_tests()
}

fn unbounded() -> Arc<ConnectionBudget> {
    ConnectionBudget::new(&Arc::new(Budget::new(Arc::new(Config::for_tests(Vec::new())))), None)
}

/// The bytes the IO thread would send now.
fn sendable(response: &mut PendingResponse, gather: bool) -> Vec<u8> {
    let mut segments = VecDeque::new();
    response.next_output(&mut segments, gather);
    let mut out = Vec::new();
    for segment in segments {
        if let Segment::Bytes { bytes, .. } = segment {
            out.extend(bytes);
        }
    }
    response.sent(out.len(), 0, &mut Vec::new(), &limits());
    out
}

fn head(text: &[u8], framing: ResponseFraming) -> EncodedHead {
    EncodedHead { bytes: text.to_vec(), framing, ..EncodedHead::continued() }
}

fn streaming(framing: ResponseFraming) -> PendingResponse {
    let mut response = PendingResponse::new(-1, &unbounded());
    response.begin(head(b"HEAD|", framing));
    response
}

#[test]
fn chunks_are_framed_and_gathered() {
    let mut response = streaming(ResponseFraming::Chunked);
    response.write(b"hello", &limits()).unwrap();
    response.write(b"", &limits()).unwrap();
    response.write(&[b'x'; 17], &limits()).unwrap();
    response.end(true);
    let expected = [b"HEAD|5\r\nhello\r\n11\r\n", &[b'x'; 17][..], b"\r\n0\r\n\r\n"].concat();
    assert_eq!(sendable(&mut response, false), expected);
}

#[test]
fn a_length_that_is_reached_ends_the_response() {
    let mut response = streaming(ResponseFraming::Length(4));
    response.write(b"abcdef", &limits()).unwrap();
    assert_eq!(response.phase(), ResponsePhase::Ended);
    assert_eq!(sendable(&mut response, false), b"HEAD|abcd");
    assert!(response.keep_alive());
    assert_eq!(response.write(b"more", &limits()), Ok((Capacity::Available, false)));
    response.end(false);
    assert!(response.keep_alive(), "the client has all promised bytes");
}

#[test]
fn a_length_that_is_missed_ends_the_connection() {
    let mut response = streaming(ResponseFraming::Length(4));
    response.write(b"ab", &limits()).unwrap();
    response.end(true);
    assert!(!response.keep_alive());
}

#[test]
fn the_io_thread_is_woken_once() {
    let mut response = streaming(ResponseFraming::Raw);
    assert_eq!(
        response.write(b"a", &limits()),
        Ok((Capacity::Available, false)),
        "the task is scheduled"
    );
    sendable(&mut response, false);
    assert!(matches!(
        response.next_output(&mut VecDeque::new(), false),
        NextOutput::Pending { .. }
    ));
    assert_eq!(
        response.write(b"b", &limits()),
        Ok((Capacity::Available, true)),
        "the task is parked"
    );
    assert_eq!(
        response.write(b"c", &limits()),
        Ok((Capacity::Available, false)),
        "it was woken already"
    );
}

#[test]
fn small_output_is_gathered_and_large_output_is_not() {
    let mut response = streaming(ResponseFraming::Raw);
    sendable(&mut response, false);
    response.write(b"little", &limits()).unwrap();
    assert_eq!(sendable(&mut response, true), b"");
    assert_eq!(response.write(b" more", &limits()), Ok((Capacity::Available, false)));
    let (_, wake) = response.write(&[0; GATHERED_BYTES_MAX], &limits()).unwrap();
    assert!(wake, "enough for a write of its own");
    assert_eq!(sendable(&mut response, true).len(), 11 + GATHERED_BYTES_MAX);
    response.write(b"last", &limits()).unwrap();
    assert_eq!(sendable(&mut response, true), b"");
    assert!(response.end(true), "the end does not wait");
    assert_eq!(sendable(&mut response, true), b"last");
}

#[test]
fn each_phase_allows_only_its_transitions() {
    let fresh = || PendingResponse::new(-1, &unbounded());
    let phase = |mut response: PendingResponse, event: &str| {
        match event {
            "complete" => response.complete(head(b"", ResponseFraming::Raw), None),
            "begin" => response.begin(head(b"", ResponseFraming::Raw)),
            "end" => response.end(true),
            "hijack" => response.hijack().is_some(),
            "time_out" => response.time_out(),
            _ => {
                response.close();
                false
            }
        };
        response.phase()
    };
    let timed_out = || {
        let mut response = fresh();
        response.time_out();
        response
    };
    let hijacked = || {
        let mut response = fresh();
        response.hijack();
        response
    };
    for (response, event, expected) in [
        (fresh(), "complete", ResponsePhase::Ended),
        (fresh(), "begin", ResponsePhase::Streaming),
        (fresh(), "end", ResponsePhase::Waiting),
        (fresh(), "hijack", ResponsePhase::Hijacked),
        (fresh(), "time_out", ResponsePhase::TimedOut),
        (fresh(), "close", ResponsePhase::Closed),
        (streaming(ResponseFraming::None), "close", ResponsePhase::Closed),
        (streaming(ResponseFraming::Raw), "complete", ResponsePhase::Streaming),
        (streaming(ResponseFraming::Raw), "end", ResponsePhase::Ended),
        (streaming(ResponseFraming::Raw), "hijack", ResponsePhase::Streaming),
        (streaming(ResponseFraming::Raw), "time_out", ResponsePhase::Streaming),
        (timed_out(), "complete", ResponsePhase::TimedOut),
        (timed_out(), "close", ResponsePhase::TimedOut),
        (hijacked(), "complete", ResponsePhase::Hijacked),
        (hijacked(), "close", ResponsePhase::Hijacked),
    ] {
        let before = response.phase();
        assert_eq!(phase(response, event), expected, "{event} when {before:?}");
    }
}
