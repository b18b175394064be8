//! Requests that the crate h2 refuses by itself. It tells nobody, but the frames that it sends show them.

/// Bytes of a frame's head (RFC 9113 section 4.1).
const HEAD_BYTES: usize = 9;
/// The head and the error code of RST_STREAM, which is all of it.
const RESET_BYTES: usize = HEAD_BYTES + 4;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const END_STREAM: u8 = 1;
/// The code of a malformed request (section 8.1.1), which nothing else here sends.
const PROTOCOL_ERROR: [u8; 4] = [0, 0, 0, 1];

/// Follows the frames of one connection as they are sent.
#[derive(Default)]
pub(super) struct SentFrames {
    head: [u8; RESET_BYTES],
    len: usize,
    /// Bytes of the current frame that are of no interest.
    left: usize,
    /// The last stream that was refused with a status.
    refused: [u8; 4],
}

impl SentFrames {
    /// Looks at bytes that were sent; `refused` gets the status of each request that the crate refused.
    pub fn add(&mut self, mut bytes: &[u8], mut refused: impl FnMut(u16)) {
        while !bytes.is_empty() {
            let skipped = self.left.min(bytes.len());
            self.left -= skipped;
            bytes = &bytes[skipped..];
            let is_reset = self.len >= HEAD_BYTES && self.head[3] == RST_STREAM;
            let wanted = if is_reset { RESET_BYTES } else { HEAD_BYTES };
            let taken = (wanted - self.len).min(bytes.len());
            self.head[self.len..self.len + taken].copy_from_slice(&bytes[..taken]);
            self.len += taken;
            bytes = &bytes[taken..];
            if self.len == RESET_BYTES || self.len == HEAD_BYTES && self.head[3] != RST_STREAM {
                self.end_head().map(&mut refused);
            }
        }
    }

    fn end_head(&mut self) -> Option<u16> {
        let [a, b, c, kind, flags, stream @ .., _, _, _, _] = self.head;
        let is_reset = self.len == RESET_BYTES;
        self.len = 0;
        if is_reset {
            let malformed = self.head[HEAD_BYTES..] == PROTOCOL_ERROR && stream != self.refused;
            return malformed.then_some(400);
        }
        self.left = u32::from_be_bytes([0, a, b, c]) as usize;
        // The responses of this engine end with a DATA frame. The crate answers a list of headers above its
        // limit with a head alone, and resets a stream whose body still comes.
        let is_refused = kind == HEADERS && flags & END_STREAM != 0;
        if is_refused {
            self.refused = stream;
        }
        is_refused.then_some(431)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let head = [0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream];
        [&head, payload].concat()
    }

    #[test]
    fn refusals_are_seen_however_the_bytes_are_cut() {
        let bytes = [
            frame(HEADERS, 4, 1, &[3; 40]),
            frame(0, 1, 1, &[1; 200]),
            frame(RST_STREAM, 0, 3, &PROTOCOL_ERROR),
            frame(4, 1, 0, b""),
            frame(HEADERS, 5, 5, b"431"),
            frame(RST_STREAM, 0, 5, &PROTOCOL_ERROR),
            frame(RST_STREAM, 0, 7, &[0, 0, 0, 2]),
            frame(RST_STREAM, 0, 9, &PROTOCOL_ERROR),
        ]
        .concat();
        for size in 1..=bytes.len() {
            let (mut frames, mut seen) = (SentFrames::default(), Vec::new());
            bytes.chunks(size).for_each(|part| frames.add(part, |status| seen.push(status)));
            assert_eq!(seen, [400, 431, 400], "{size}");
        }
    }
}
