//! A part of an answer's body, in the form that is cheapest to send.

use std::fs::File;

/// A part of an answer's body.
pub enum Piece {
    /// Bytes owned by the piece.
    Bytes(Vec<u8>),
    /// Memory that somebody else pinned. It is written from where it lies and
    /// dropped, on the IO thread, when it was written or given up.
    Foreign(Box<dyn AsRef<[u8]> + Send>),
    /// A range of a file, sent by the kernel.
    File {
        /// The open file.
        file: File,
        /// First byte to send.
        offset: u64,
        /// Number of bytes to send.
        len: u64,
    },
}

impl Piece {
    /// Number of bytes the piece adds to the body.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Foreign(memory) => (**memory).as_ref().len() as u64,
            Self::File { len, .. } => *len,
        }
    }

    /// Whether the piece adds nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
