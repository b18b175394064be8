//! A part of a response body in the form that is cheapest to send.

use std::fs::File;

/// A part of a response body.
pub enum BodyPart {
    /// Bytes owned by the part.
    Bytes(Vec<u8>),
    /// Memory kept alive by its owner: it is sent without a copy and dropped on
    /// the IO thread after it was sent or discarded.
    Pinned(Box<dyn AsRef<[u8]> + Send>),
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

impl BodyPart {
    /// Number of bytes the part adds to the body.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Pinned(memory) => (**memory).as_ref().len() as u64,
            Self::File { len, .. } => *len,
        }
    }

    /// Whether the part adds nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
