//! A whole head by httparse, and the checks that httparse leaves out.

use std::mem::MaybeUninit;

use httparse::{Header, Request, Status};

use super::request_head::{RequestHead, Span, Version};
use super::scan::METHOD_BYTES_MAX;
use crate::limits::Limits;

/// Header lines parsed without an allocation.
const HEADERS_ON_STACK: usize = 64;

/// Fills `out` if `buf` begins with a head that is whole, within the limits and
/// has only CRLF for line ends. Returns the bytes it took. With `None`, `out` is
/// undefined and the scan finds the reason.
pub(super) fn fill(buf: &[u8], limits: &Limits, out: &mut RequestHead) -> Option<usize> {
    let count_max = limits.header_count_max;
    let mut stack = [const { MaybeUninit::<Header<'_>>::uninit() }; HEADERS_ON_STACK];
    let mut request = Request::new(&mut []);
    let parsed =
        request.parse_with_uninit_headers(buf, &mut stack[..count_max.min(HEADERS_ON_STACK)]);
    match parsed {
        Ok(Status::Complete(bytes)) => copy(buf, bytes, &request, limits, out),
        Err(httparse::Error::TooManyHeaders) if count_max > HEADERS_ON_STACK => {
            let mut heap = vec![httparse::EMPTY_HEADER; count_max];
            let mut request = Request::new(&mut heap);
            match request.parse(buf) {
                Ok(Status::Complete(bytes)) => copy(buf, bytes, &request, limits, out),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Copies the head out of the read buffer, its parts as spans.
fn copy(
    buf: &[u8],
    bytes: usize,
    request: &Request<'_, '_>,
    limits: &Limits,
    out: &mut RequestHead,
) -> Option<usize> {
    let (method, target) = (request.method?, request.path?);
    let start = offset(buf, method.as_bytes());
    if bytes > limits.header_bytes_max
        || target.len() > limits.uri_bytes_max
        || method.len() > METHOD_BYTES_MAX
    {
        return None;
    }
    let head = &buf[start..bytes];
    if start != 0 || u32::try_from(head.len()).is_err() {
        return None;
    }
    out.version = if request.version? == 0 { Version::Http10 } else { Version::Http11 };
    out.method = span(head, method.as_bytes());
    out.target = span(head, target.as_bytes());
    out.headers.clear();
    // httparse accepts a lone LF as a line end, so the two bytes before each line are checked.
    let mut line_ends = true;
    for header in request.headers.iter() {
        let name = span(head, header.name.as_bytes());
        line_ends &= head[..name.start as usize].ends_with(b"\r\n");
        out.headers.push((name, span(head, header.value)));
    }
    if !line_ends || !head.ends_with(b"\r\n\r\n") {
        return None;
    }
    out.bytes.clear();
    out.bytes.extend_from_slice(head);
    Some(bytes)
}

fn offset(buf: &[u8], part: &[u8]) -> usize {
    part.as_ptr() as usize - buf.as_ptr() as usize
}

fn span(head: &[u8], part: &[u8]) -> Span {
    let start = offset(head, part);
    Span { start: start as u32, end: (start + part.len()) as u32 }
}
