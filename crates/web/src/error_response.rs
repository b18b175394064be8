//! Responses that the engine writes without the application.

use crate::head::Version;
use crate::response_head::{BodySize, EncodedHead, ResponseContext, ResponseFraming, ResponseHead};

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

    /// The whole response, with its body in the buffer of the head; a response to HEAD has none.
    pub fn encode(self, version: Version, is_head: bool) -> EncodedHead {
        let Self { status, text, retry_after_s } = self;
        let context = ResponseContext {
            version,
            is_head,
            keep_alive: false,
            compression: None,
            timing: None,
        };
        let head =
            ResponseHead::new(Vec::with_capacity(256), status, &context).and_then(|mut head| {
                head.header(b"Content-Type", b"text/plain; charset=utf-8")?;
                if let Some(seconds) = retry_after_s {
                    head.header(b"Retry-After", itoa::Buffer::new().format(seconds).as_bytes())?;
                }
                head.finish(BodySize::Known(text.len() as u64 + 1))
            });
        let mut head = head.expect("these headers are good");
        if head.framing != ResponseFraming::None {
            head.bytes.extend_from_slice(text.as_bytes());
            head.bytes.push(b'\n');
        }
        head
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_response_is_complete() {
        let head = ErrorResponse::new(503, "Busy.").retry_after(2).encode(Version::Http11, false);
        let text = std::str::from_utf8(&head.bytes).unwrap();
        assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
        for line in ["Retry-After: 2", "Content-Length: 6", "Connection: close"] {
            assert!(text.contains(&format!("\r\n{line}\r\n")), "{text}");
        }
        assert!(text.ends_with("\r\n\r\nBusy.\n"), "{text}");
        assert_eq!((head.status, head.len), (503, text.len() - "Busy.\n".len()));
    }

    #[test]
    fn an_error_response_to_head_has_no_body() {
        let head = ErrorResponse::new(400, "No.").encode(Version::Http11, true);
        assert!(head.bytes.ends_with(b"\r\n\r\n"));
    }
}
