//! The transitions of an answer, and what the IO thread is told.

use super::*;

fn limits() -> Limits {
    Limits::default()
}

/// What the IO thread would send now.
fn sendable(answer: &mut Answer, gather: bool) -> Vec<u8> {
    let mut segments = VecDeque::new();
    answer.look(&mut segments, gather);
    let mut out = Vec::new();
    for segment in segments {
        if let Segment::Bytes { bytes, .. } = segment {
            out.extend(bytes);
        }
    }
    answer.sent(out.len(), 0, &mut Vec::new(), &limits());
    out
}

fn streaming(framing: ReplyFraming) -> Answer {
    let mut answer = Answer::new(-1);
    answer.begin(b"HEAD|".to_vec(), framing, true);
    answer
}

#[test]
fn chunks_are_framed_and_gathered() {
    let mut answer = streaming(ReplyFraming::Chunked);
    answer.write(b"hello", &limits()).unwrap();
    answer.write(b"", &limits()).unwrap();
    answer.write(&[b'x'; 17], &limits()).unwrap();
    answer.end(true);
    let expected = [b"HEAD|5\r\nhello\r\n11\r\n", &[b'x'; 17][..], b"\r\n0\r\n\r\n"].concat();
    assert_eq!(sendable(&mut answer, false), expected);
}

#[test]
fn a_length_that_is_reached_ends_the_answer() {
    let mut answer = streaming(ReplyFraming::Length(4));
    answer.write(b"abcdef", &limits()).unwrap();
    assert_eq!(answer.phase(), Phase::Ended);
    assert_eq!(sendable(&mut answer, false), b"HEAD|abcd");
    assert!(answer.keep_alive());
    assert_eq!(answer.write(b"more", &limits()), Ok((Room::Open, false)));
    answer.end(false);
    assert!(answer.keep_alive(), "the client has all it was promised");
}

#[test]
fn a_length_that_is_missed_ends_the_connection() {
    let mut answer = streaming(ReplyFraming::Length(4));
    answer.write(b"ab", &limits()).unwrap();
    answer.end(true);
    assert!(!answer.keep_alive());
}

#[test]
fn the_io_thread_is_told_once() {
    let mut answer = streaming(ReplyFraming::Raw);
    assert_eq!(answer.write(b"a", &limits()), Ok((Room::Open, false)), "it is coming");
    sendable(&mut answer, false);
    assert!(matches!(answer.look(&mut VecDeque::new(), false), Look::Nothing { .. }));
    assert_eq!(answer.write(b"b", &limits()), Ok((Room::Open, true)), "it sleeps");
    assert_eq!(answer.write(b"c", &limits()), Ok((Room::Open, false)), "it was told");
}

#[test]
fn little_is_gathered_much_is_not() {
    let mut answer = streaming(ReplyFraming::Raw);
    sendable(&mut answer, false);
    answer.write(b"little", &limits()).unwrap();
    assert_eq!(sendable(&mut answer, true), b"");
    assert_eq!(answer.write(b" more", &limits()), Ok((Room::Open, false)));
    let (_, tell) = answer.write(&[0; GATHERED_BYTES_MAX], &limits()).unwrap();
    assert!(tell, "enough for a write of its own");
    assert_eq!(sendable(&mut answer, true).len(), 11 + GATHERED_BYTES_MAX);
    answer.write(b"last", &limits()).unwrap();
    assert_eq!(sendable(&mut answer, true), b"");
    assert!(answer.end(true), "the end does not wait");
    assert_eq!(sendable(&mut answer, true), b"last");
}

#[test]
fn transitions() {
    let fresh = || Answer::new(-1);
    let phase = |mut answer: Answer, event: &str| {
        match event {
            "complete" => answer.complete(Vec::new(), 0, None, true),
            "begin" => answer.begin(Vec::new(), ReplyFraming::Raw, true),
            "end" => answer.end(true),
            "hijack" => answer.hijack().is_some(),
            "late" => answer.give_up(),
            _ => {
                answer.close();
                false
            }
        };
        answer.phase()
    };
    let late = || {
        let mut answer = fresh();
        answer.give_up();
        answer
    };
    let hijacked = || {
        let mut answer = fresh();
        answer.hijack();
        answer
    };
    for (answer, event, expected) in [
        (fresh(), "complete", Phase::Ended),
        (fresh(), "begin", Phase::Streaming),
        (fresh(), "end", Phase::Waiting),
        (fresh(), "hijack", Phase::Hijacked),
        (fresh(), "late", Phase::Late),
        (fresh(), "close", Phase::Gone),
        (streaming(ReplyFraming::None), "close", Phase::Gone),
        (streaming(ReplyFraming::Raw), "complete", Phase::Streaming),
        (streaming(ReplyFraming::Raw), "end", Phase::Ended),
        (streaming(ReplyFraming::Raw), "hijack", Phase::Streaming),
        (streaming(ReplyFraming::Raw), "late", Phase::Streaming),
        (late(), "complete", Phase::Late),
        (late(), "close", Phase::Late),
        (hijacked(), "complete", Phase::Hijacked),
        (hijacked(), "close", Phase::Hijacked),
    ] {
        let before = answer.phase();
        assert_eq!(phase(answer, event), expected, "{event} when {before:?}");
    }
}
