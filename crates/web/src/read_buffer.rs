//! Bytes read from the socket that no request has consumed yet.

/// A buffer consumed from its front. It holds memory only while it holds bytes.
#[derive(Default)]
pub(crate) struct ReadBuffer {
    bytes: Vec<u8>,
    at: usize,
}

impl ReadBuffer {
    pub fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    pub fn push(&mut self, bytes: &[u8]) {
        if self.at > 0 {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Removes the first `len` bytes.
    pub fn consume(&mut self, len: usize) {
        self.at += len;
        if self.is_empty() {
            *self = Self::default();
        }
    }

    /// Takes the rest.
    pub fn take(&mut self) -> Vec<u8> {
        let mut unread = std::mem::take(self);
        unread.bytes.drain(..unread.at);
        unread.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_consumed_from_the_front() {
        let mut unread = ReadBuffer::default();
        unread.push(b"abcdef");
        unread.consume(2);
        assert_eq!(unread.rest(), b"cdef");
        unread.push(b"gh");
        assert_eq!(unread.rest(), b"cdefgh");
        unread.consume(1);
        assert_eq!(unread.take(), b"defgh");
        assert!(unread.is_empty());
    }

    #[test]
    fn an_empty_buffer_holds_no_memory() {
        let mut unread = ReadBuffer::default();
        unread.push(b"abc");
        unread.consume(3);
        assert!(unread.is_empty());
        assert_eq!(unread.bytes.capacity(), 0);
    }
}
