//! Responses that the engine writes without the application.

use std::io::Write as _;

use crate::{date, status};

/// A short plain-text response that ends the connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ErrorResponse {
    pub status: u16,
    /// The body, without its line feed.
    pub text: &'static str,
    pub retry_after_s: Option<u32>,
}

impl ErrorResponse {
    pub fn new(status: u16, text: &'static str) -> Self {
        Self { status, text, retry_after_s: None }
    }

    /// Adds `Retry-After`.
    pub fn retry_after(self, seconds: u32) -> Self {
        Self { retry_after_s: Some(seconds), ..self }
    }

    /// The whole response as bytes; a response to HEAD has no body.
    pub fn encode(self, is_head: bool) -> Vec<u8> {
        let Self { status, text, retry_after_s } = self;
        let mut out = Vec::with_capacity(256);
        // Writing to a vector can't fail.
        let _ = write!(out, "HTTP/1.1 {status} {}\r\n", status::reason(status));
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response_head::{head_len, status_of};

    #[test]
    fn an_error_response_is_complete() {
        let bytes = ErrorResponse::new(503, "Busy.").retry_after(2).encode(false);
        let text = std::str::from_utf8(&bytes).unwrap();
        assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
        assert!(text.contains("\r\nRetry-After: 2\r\n"), "{text}");
        assert!(text.contains("\r\nContent-Length: 6\r\n"), "{text}");
        assert!(text.ends_with("Connection: close\r\n\r\nBusy.\n"), "{text}");
        assert_eq!(status_of(&bytes), 503);
        assert_eq!(head_len(&bytes), bytes.len() - "Busy.\n".len());
    }

    #[test]
    fn an_error_response_to_head_has_no_body() {
        assert!(ErrorResponse::new(400, "No.").encode(true).ends_with(b"\r\n\r\n"));
    }
}
