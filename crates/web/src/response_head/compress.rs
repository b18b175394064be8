//! Whether a response is compressed.

use crate::content_coding::ContentCoding;
use crate::media_type;

use super::{BodySize, ResponseHead, TransferCoding};
use crate::head::class::trim;
use crate::status;

/// A header by which the application switches compression off for one answer; it is not sent.
pub(super) const SWITCH: &[u8] = b"x-chaton-compress";

/// Headers that are about the bytes as they are.
const DIGESTS: [&[u8]; 4] = [b"digest", b"content-md5", b"repr-digest", b"content-digest"];

/// How a response may be compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressionOffer {
    /// What the client accepts; `None`: it gets the bytes as they are.
    pub coding: Option<ContentCoding>,
    /// Smaller bodies of known size are not compressed.
    pub bytes_min: u64,
}

/// What the headers of a response say about its compression.
#[derive(Debug, Default)]
pub(super) struct Compressibility {
    /// Its type compresses well.
    is_worthwhile: bool,
    /// It is encoded already, a part of something, or must be sent as it is.
    is_refused: bool,
    /// `Vary` names `Accept-Encoding` already.
    varies: bool,
    /// Where the value of a strong `ETag` begins.
    etag_at: Option<usize>,
}

impl Compressibility {
    /// Notes a header that is written at `at`.
    pub fn note(&mut self, name: &[u8], value: &[u8], at: usize) {
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"vary") => {
                self.varies |= has_member(value, b"accept-encoding") || has_member(value, b"*");
            }
            4 if name.eq_ignore_ascii_case(b"etag") => {
                let is_strong = value.starts_with(b"\"");
                self.etag_at = is_strong.then_some(at + name.len() + 2);
            }
            12 if name.eq_ignore_ascii_case(b"content-type") => {
                // Whatever buffers these between here and the browser knows them by their type.
                let is_events =
                    value.get(..17).is_some_and(|it| it.eq_ignore_ascii_case(b"text/event-stream"));
                self.is_worthwhile = media_type::is_compressible(value) && !is_events;
            }
            13 if name.eq_ignore_ascii_case(b"content-range") => self.is_refused = true,
            // Ranges are of the bytes as they are: a client would put them behind encoded ones.
            13 if name.eq_ignore_ascii_case(b"accept-ranges") => {
                self.is_refused |= !trim(value).eq_ignore_ascii_case(b"none");
            }
            // So are digests.
            6 | 11 | 14 if DIGESTS.iter().any(|digest| name.eq_ignore_ascii_case(digest)) => {
                self.is_refused = true;
            }
            13 if name.eq_ignore_ascii_case(b"cache-control") => {
                self.is_refused |= has_member(value, b"no-transform");
            }
            16 if name.eq_ignore_ascii_case(b"content-encoding") => {
                self.is_refused |= !trim(value).eq_ignore_ascii_case(b"identity");
            }
            17 if name.eq_ignore_ascii_case(SWITCH) => {
                self.is_refused |= trim(value).eq_ignore_ascii_case(b"off");
            }
            _ => {}
        }
    }
}

fn has_member(list: &[u8], name: &[u8]) -> bool {
    list.split(|&byte| byte == b',').any(|member| trim(member).eq_ignore_ascii_case(name))
}

impl ResponseHead<'_> {
    /// The coding of the body, if it is to have one; then the headers that say so are added. That of a HEAD is the one
    /// that the same GET would have.
    pub(super) fn compress(&mut self, body: BodySize) -> Option<ContentCoding> {
        let offer = self.request.compression?;
        let (facts, is_head) = (&self.compressibility, self.request.is_head);
        let len = match body {
            BodySize::Hijack => return None,
            // Middleware (Rack::Head) may have removed the body.
            BodySize::Empty | BodySize::Known(0) if is_head => self.length,
            BodySize::Empty => return None,
            BodySize::Known(len) => Some(len),
            BodySize::Unknown => self.length,
        };
        let is_candidate = facts.is_worthwhile
            && !facts.is_refused
            && self.coding == TransferCoding::None
            && !matches!(self.status, 206 | 416)
            && !status::is_bodyless(self.status)
            && len.is_none_or(|len| len >= offer.bytes_min.max(1));
        if !is_candidate {
            return None;
        }
        if !facts.varies {
            self.lines.add(b"Vary", b"Accept-Encoding");
        }
        // Without a length nobody knows whether the body of the GET is long enough.
        let coding = offer.coding.filter(|_| !is_head || len.is_some())?;
        self.lines.add(b"Content-Encoding", coding.name().as_bytes());
        if let Some(at) = self.compressibility.etag_at {
            // The bytes differ, so it is no longer the strong one.
            self.lines.weaken_etag(at);
        }
        Some(coding)
    }
}
