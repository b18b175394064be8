//! Why a response head cannot be sent.

use std::fmt;

/// Bytes of a name or value that a message shows.
const SHOWN_BYTES_MAX: usize = 80;

/// A status or header of the application that would break the response. The
/// client is answered 500, the log gets this sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResponseError {
    /// The status is not a number of three digits.
    Status(u16),
    /// A header name that is not a token.
    Name(String),
    /// A header value with a control byte; name and value.
    Value(String, String),
    /// A `Content-Length` that is not a number.
    Length(String),
    /// Two values of `Content-Length` that differ.
    LengthTwice(u64, u64),
    /// `Content-Length` is not the size of the body.
    LengthOfBody {
        /// The value of the header.
        length: u64,
        /// The size of the body.
        bytes: u64,
    },
    /// `Content-Length` beside `Transfer-Encoding`.
    LengthWithCoding,
    /// `Transfer-Encoding` to a client that speaks HTTP/2.
    CodingInHttp2,
    /// More headers than a response of HTTP/2 takes, or one with too long a name.
    TooManyForHttp2,
}

impl ResponseError {
    pub(super) fn name(name: &[u8]) -> Self {
        Self::Name(shown(name))
    }

    pub(super) fn value(name: &[u8], value: &[u8]) -> Self {
        Self::Value(shown(name), shown(value))
    }

    pub(super) fn length(value: &[u8]) -> Self {
        Self::Length(shown(value))
    }
}

/// Bytes made printable and cut to a bound.
fn shown(bytes: &[u8]) -> String {
    match bytes.get(..SHOWN_BYTES_MAX) {
        Some(begin) if begin.len() < bytes.len() => format!("{}…", begin.escape_ascii()),
        _ => bytes.escape_ascii().to_string(),
    }
}

impl fmt::Display for ResponseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(code) => {
                write!(f, "the status {code} is not a number from 100 to 999")
            }
            Self::Name(name) => write!(
                f,
                "the response header name \"{name}\" is not a token; \
                 use letters, digits and dashes"
            ),
            Self::Value(name, value) => write!(
                f,
                "the response header \"{name}\" has a control byte in its value \"{value}\"; \
                 encode or remove it"
            ),
            Self::Length(value) => write!(
                f,
                "the response header Content-Length is \"{value}\"; \
                 give the body's size in bytes or leave the header out"
            ),
            Self::LengthTwice(first, second) => write!(
                f,
                "the response has two Content-Length headers, {first} and {second}; give one"
            ),
            Self::LengthOfBody { length, bytes } => write!(
                f,
                "the response header Content-Length is {length} but the body has {bytes} bytes; \
                 correct it or leave the header out"
            ),
            Self::LengthWithCoding => write!(
                f,
                "the response has both Content-Length and Transfer-Encoding; leave one out"
            ),
            Self::CodingInHttp2 => write!(
                f,
                "the response has Transfer-Encoding, which HTTP/2 does not know; leave it out"
            ),
            Self::TooManyForHttp2 => write!(
                f,
                "the response has more than 24,000 headers, or one whose name has more than 64 KB, which this server \
                 does not send over HTTP/2; send fewer"
            ),
        }
    }
}

impl std::error::Error for ResponseError {}
