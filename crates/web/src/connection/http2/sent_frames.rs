//! Requests that the crate h2 refuses by itself. It tells nobody, but the frames that it sends show them.

use super::frames::{FrameScanner, END_STREAM, HEADERS, RST_STREAM};

/// The code of a malformed request (RFC 9113 section 8.1.1), which nothing else here sends.
const PROTOCOL_ERROR: u32 = 1;

/// Follows the frames of one connection as they are sent.
#[derive(Default)]
pub(super) struct SentFrames {
    frames: FrameScanner,
    /// The last stream that was refused with a status.
    refused: u32,
}

impl SentFrames {
    /// Looks at bytes that were sent; `refused` gets the status of each request that the crate refused.
    pub fn add(&mut self, mut bytes: &[u8], mut refused: impl FnMut(u16)) {
        while !bytes.is_empty() {
            let Some(frame) = self.frames.next(&mut bytes) else { return };
            match frame.kind {
                // The responses of this engine end with a DATA frame. The crate answers a list of headers
                // above its limit with a head alone, and resets a stream whose body still comes.
                HEADERS if frame.flags & END_STREAM != 0 => {
                    self.refused = frame.stream;
                    refused(431);
                }
                RST_STREAM if frame.end == PROTOCOL_ERROR && frame.stream != self.refused => {
                    refused(400);
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROTOCOL_ERROR: [u8; 4] = [0, 0, 0, 1];

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
