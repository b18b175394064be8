//! The frames (RFC 9113 section 4.1) in the bytes of one direction of a connection.

const HEAD_BYTES: usize = 9;
// Sections 6.1, 6.2, 6.4 and 6.10.
pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const CONTINUATION: u8 = 9;
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

/// A frame that has come to its end.
#[derive(Clone, Copy, Default)]
pub(super) struct Http2Frame {
    /// Bytes of its payload.
    pub len: usize,
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    /// The last four bytes of its payload, which is all that RST_STREAM has.
    pub end: u32,
}

/// Finds the frames, however the bytes are cut.
#[derive(Default)]
pub(super) struct FrameScanner {
    /// Bytes of the current payload that are still to come.
    left: usize,
    head: [u8; HEAD_BYTES],
    head_len: usize,
    current: Http2Frame,
}

impl FrameScanner {
    /// Before the first frame there are as many other bytes; they end as an empty DATA frame does.
    pub fn behind(bytes: usize) -> Self {
        Self { left: bytes, ..Self::default() }
    }

    /// Takes bytes from `rest` up to the end of a frame, which it returns, or all of them.
    pub fn next(&mut self, rest: &mut &[u8]) -> Option<Http2Frame> {
        if self.left == 0 {
            let (taken, behind) = rest.split_at(rest.len().min(HEAD_BYTES - self.head_len));
            self.head[self.head_len..self.head_len + taken.len()].copy_from_slice(taken);
            self.head_len += taken.len();
            *rest = behind;
            if self.head_len < HEAD_BYTES {
                return None;
            }
            self.begin();
        }
        let (payload, behind) = rest.split_at(self.left.min(rest.len()));
        for byte in &payload[payload.len().saturating_sub(4)..] {
            self.current.end = self.current.end << 8 | u32::from(*byte);
        }
        *rest = behind;
        self.left -= payload.len();
        (self.left == 0).then_some(self.current)
    }

    fn begin(&mut self) {
        let [a, b, c, kind, flags, stream @ ..] = self.head;
        self.head_len = 0;
        self.left = u32::from_be_bytes([0, a, b, c]) as usize;
        let stream = u32::from_be_bytes(stream) & (u32::MAX >> 1);
        self.current = Http2Frame { len: self.left, kind, flags, stream, end: 0 };
    }
}
