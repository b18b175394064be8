//! What a log holds: rows of some kinds, at positions, between a beginning and an end.

use chaton_embedded::Error;

/// A place in a log: behind the message with this offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The log.
    pub epoch: u64,
    /// The offset of the last message before it; 0: the beginning.
    pub offset: u64,
}

/// A message of the log, or the end of all subscriptions of a name.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    pub offset: u64,
    pub is_end: bool,
    pub name: &'a str,
    pub event: Option<&'a str>,
    pub data: &'a [u8],
    /// Where it was kept on this machine before it came into the log; 0: nowhere.
    pub kept: u64,
}

/// What a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Message,
    End,
    /// It begins a text. Pieces of the same name that belong to an earlier one are refused from now on.
    Begin,
    /// Of the text that began with the message of this offset.
    Piece(u64),
}

impl Kind {
    /// As it is stored, and where its text began.
    pub fn stored(self) -> (u8, Option<u64>) {
        match self {
            Self::Message => (0, None),
            Self::End => (1, None),
            Self::Begin => (2, None),
            Self::Piece(begin) => (0, Some(begin)),
        }
    }
}

/// Names of which all subscriptions have ended, and the offset of the end.
pub(crate) type Ends = Vec<(String, u64)>;

/// What one read has found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extent {
    pub epoch: u64,
    /// Messages up to this offset are deleted.
    pub deleted: u64,
    /// The newest message's offset; 0 without one.
    pub last: u64,
    /// The messages that are kept, and their bytes.
    pub messages: u64,
    pub bytes: u64,
    /// The last message that this read has looked at, or where it began.
    pub read: u64,
}

impl Extent {
    /// Behind the newest message.
    pub fn end(&self) -> Position {
        Position { epoch: self.epoch, offset: self.last }
    }

    /// Before the oldest message.
    pub fn begin(&self) -> Position {
        Position { epoch: self.epoch, offset: self.deleted }
    }
}

/// An error of the log that is not one of its file.
pub(crate) fn unavailable(message: String) -> Error {
    Error::unavailable(message)
}
