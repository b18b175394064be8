//! The headers that frame a message: where its body ends, whether the connection
//! stays open, which host is meant. A head that two readers could understand in
//! two ways is refused (RFC 9112 sections 3.2, 6 and 9.3).

use super::class::trim;
use super::error::HeadError;
use super::request_head::{BodyFraming, RequestHead, Span, Version};
use super::target;
use crate::limits::Limits;

/// The headers that frame the message, gathered in one pass.
#[derive(Default)]
struct FramingHeaders {
    hosts: u8,
    host_valid: bool,
    lengths: u8,
    length: Option<u64>,
    /// The first `Content-Length`; another one must be the same.
    length_span: Span,
    lengths_differ: bool,
    codings: TransferCodings,
    close: bool,
    keep_alive: bool,
    expect_continue: bool,
}

/// The members of all `Transfer-Encoding` lines, in order.
#[derive(Default)]
struct TransferCodings {
    seen: bool,
    /// chunked was the last member.
    ends_chunked: bool,
    /// Something followed chunked, if only an empty member.
    broken: bool,
    unknown: bool,
}

impl TransferCodings {
    fn add_line(&mut self, value: &[u8]) {
        self.seen = true;
        for member in value.split(|&b| b == b',').map(trim) {
            self.broken |= self.ends_chunked;
            // RFC 9110 5.6.1.2: empty members of a list are ignored. One behind chunked is refused,
            // because other readers do not see that chunked is the last.
            if member.is_empty() {
                continue;
            }
            self.ends_chunked = member.eq_ignore_ascii_case(b"chunked");
            self.unknown |= !self.ends_chunked;
        }
    }
}

/// Sets the fields of `head` that follow from its headers, or refuses it.
pub(super) fn check(head: &mut RequestHead, limits: &Limits) -> Result<(), HeadError> {
    let headers = gather(head);
    match headers.hosts {
        0 if head.version != Version::Http10 => return Err(HeadError::NoHost),
        0 => {}
        1 if headers.host_valid => {}
        1 => return Err(HeadError::Host),
        _ => return Err(HeadError::HostTwice),
    }
    head.framing = framing(&headers, head.version, limits)?;
    head.keep_alive = match head.version {
        Version::Http11 | Version::Http2 => !headers.close,
        Version::Http10 => headers.keep_alive && !headers.close,
    };
    let may_await = match head.version {
        Version::Http10 => false,
        Version::Http11 => !matches!(head.framing, BodyFraming::None | BodyFraming::Length(0)),
        // The end of the stream ends a body.
        Version::Http2 => true,
    };
    head.expect_continue = headers.expect_continue && may_await;
    Ok(())
}

fn gather(head: &RequestHead) -> FramingHeaders {
    let mut found = FramingHeaders::default();
    for &(name, span) in &head.headers {
        // Most names already differ in length.
        let (name, value) = (head.get(name), head.get(span));
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => {
                found.hosts = found.hosts.saturating_add(1);
                // An empty one says that the target has no authority (RFC 9112 3.2).
                found.host_valid = value.is_empty() || target::is_authority(value);
            }
            6 if name.eq_ignore_ascii_case(b"expect") => {
                found.expect_continue |= value.eq_ignore_ascii_case(b"100-continue");
            }
            10 if name.eq_ignore_ascii_case(b"connection") => {
                for option in value.split(|&b| b == b',').map(trim) {
                    found.close |= option.eq_ignore_ascii_case(b"close");
                    found.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                if found.lengths == 0 {
                    (found.length, found.length_span) = (parse_length(value), span);
                }
                found.lengths_differ |= head.get(found.length_span) != value;
                found.lengths = found.lengths.saturating_add(1);
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                found.codings.add_line(value);
            }
            _ => {}
        }
    }
    found
}

fn framing(
    headers: &FramingHeaders,
    version: Version,
    limits: &Limits,
) -> Result<BodyFraming, HeadError> {
    let codings = &headers.codings;
    if codings.seen {
        return match version {
            _ if headers.lengths > 0 => Err(HeadError::LengthWithCoding),
            Version::Http10 => Err(HeadError::CodingInHttp10),
            _ if codings.broken || !codings.ends_chunked => Err(HeadError::Coding),
            _ if codings.unknown => Err(HeadError::CodingUnknown),
            _ => Ok(BodyFraming::Chunked),
        };
    }
    match (headers.lengths, headers.length) {
        (0, _) => Ok(BodyFraming::None),
        _ if headers.lengths_differ => Err(HeadError::LengthTwice),
        (_, None) => Err(HeadError::Length),
        (_, Some(length)) if length > limits.body_bytes_max => Err(HeadError::BodyTooLarge),
        (_, Some(length)) => Ok(BodyFraming::Length(length)),
    }
}

/// Digits only: no sign, no list, no white space; at most 64 bits.
pub(crate) fn parse_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0u64, |sum, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_digits_of_64_bits() {
        for (value, length) in [
            (&b"0"[..], Some(0)),
            (b"42", Some(42)),
            (b"0042", Some(42)),
            (b"18446744073709551615", Some(u64::MAX)),
            (b"18446744073709551616", None),
            (b"", None),
            (b"+1", None),
            (b"-1", None),
            (b"1,1", None),
            (b"1 1", None),
            (b"0x1", None),
            (b"1.0", None),
            (b"\xc2\xb2", None),
        ] {
            assert_eq!(parse_length(value), length, "{:?}", value.escape_ascii().to_string());
        }
    }

    #[test]
    fn only_one_final_chunked_frames_a_body() {
        let judge = |lines: &[&str]| {
            let mut codings = TransferCodings::default();
            lines.iter().for_each(|line| codings.add_line(line.as_bytes()));
            let headers = FramingHeaders { codings, ..FramingHeaders::default() };
            framing(&headers, Version::Http11, &Limits::for_tests())
        };
        use HeadError::{Coding, CodingUnknown};
        for (lines, expected) in [
            (&["chunked"][..], Ok(BodyFraming::Chunked)),
            (&["cHuNkEd"], Ok(BodyFraming::Chunked)),
            (&["gzip, chunked"], Err(CodingUnknown)),
            (&["gzip", "chunked"], Err(CodingUnknown)),
            (&["gzip"], Err(Coding)),
            (&["identity"], Err(Coding)),
            (&["chunked, gzip"], Err(Coding)),
            (&["chunked", "chunked"], Err(Coding)),
            (&["chunked, chunked"], Err(Coding)),
            (&["chunked, identity, chunked"], Err(Coding)),
            (&["chunked;q=1"], Err(Coding)),
            (&["xchunked"], Err(Coding)),
            (&["\"chunked\""], Err(Coding)),
            (&[", chunked"], Ok(BodyFraming::Chunked)),
            (&["", " ,, chunked"], Ok(BodyFraming::Chunked)),
            (&["chunked,"], Err(Coding)),
            (&["chunked", ""], Err(Coding)),
            (&["chunked, , gzip"], Err(Coding)),
            (&["chunked, , chunked"], Err(Coding)),
            (&[", gzip, chunked"], Err(CodingUnknown)),
            (&[","], Err(Coding)),
            (&[""], Err(Coding)),
        ] {
            assert_eq!(judge(lines), expected, "{lines:?}");
        }
    }
}
