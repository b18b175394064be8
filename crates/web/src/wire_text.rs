//! The few answers the engine writes by itself.

use std::io::Write as _;

use crate::{date, status};

/// Tells the client to send the body it announced (RFC 9110 section 10.1.1).
pub(crate) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A complete answer that ends the connection: `text` is its body.
pub(crate) fn refusal(code: u16, text: &str, retry_after_s: Option<u32>, is_head: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    // Writing to a vector can't fail.
    let _ = write!(out, "HTTP/1.1 {code} {}\r\n", status::reason(code));
    date::append_date_line(&mut out);
    let _ = write!(
        out,
        "Content-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n",
        text.len() + 1
    );
    if let Some(seconds) = retry_after_s {
        let _ = write!(out, "Retry-After: {seconds}\r\n");
    }
    out.extend_from_slice(b"Connection: close\r\n\r\n");
    if !is_head {
        out.extend_from_slice(text.as_bytes());
        out.push(b'\n');
    }
    out
}

/// The status of the answer that begins with `bytes`, 0 when it has none.
pub(crate) fn status_of(bytes: &[u8]) -> u16 {
    let Some([a, b, c]) = bytes.get(9..12) else { return 0 };
    [a, b, c].iter().fold(0, |code, digit| code * 10 + u16::from(digit.wrapping_sub(b'0') % 10))
}

/// Length of the head that `bytes` begin with, its blank line included.
pub(crate) fn head_len(bytes: &[u8]) -> usize {
    let blank = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    blank.map_or(bytes.len(), |at| at + 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_a_whole_answer() {
        let out = String::from_utf8(refusal(503, "Busy.", Some(2), false)).unwrap();
        assert!(out.starts_with("HTTP/1.1 503 "), "{out}");
        assert!(out.contains("\r\nRetry-After: 2\r\n"), "{out}");
        assert!(out.contains("\r\nContent-Length: 6\r\n"), "{out}");
        assert!(out.ends_with("Connection: close\r\n\r\nBusy.\n"), "{out}");
        assert_eq!(status_of(out.as_bytes()), 503);
        assert_eq!(head_len(out.as_bytes()), out.len() - "Busy.\n".len());
    }

    #[test]
    fn a_refusal_of_head_has_no_body() {
        let out = refusal(400, "No.", None, true);
        assert!(out.ends_with(b"\r\n\r\n"));
    }

    #[test]
    fn no_status_in_garbage() {
        assert_eq!(status_of(b""), 0);
        assert_eq!(status_of(b"HTTP/1.1 2"), 0);
    }
}
