//! The ordered log of messages, which is also their history.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use chaton_embedded::{Error, Result};

use crate::file_log::{FileLog, FileReader};
use crate::message::Message;
use crate::redis_log::{RedisLog, RedisReader};
use crate::settings::Settings;

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

/// The log of this process, which is opened on first use.
pub(crate) enum Log {
    /// A file that all processes of the machine share.
    File(FileLog),
    /// A server that all machines share.
    Redis(Box<RedisLog>),
}

impl Log {
    pub fn new(settings: &Settings) -> Result<Self> {
        Ok(match &settings.redis {
            Some(redis) => Self::Redis(Box::new(RedisLog::new(redis, settings)?)),
            None => Self::File(FileLog::new(settings)),
        })
    }

    /// Adds a message and returns its offset; `None`: there is one with its key, or another text of this name has begun
    /// since. 0: it is kept on this machine until the log can be reached.
    ///
    /// # Errors
    /// When the log cannot be written. On a full disk, older messages or all have been deleted to make room before that.
    pub fn add(&self, message: &Message<'_>, kind: Kind) -> Result<Option<u64>> {
        match self {
            Self::File(log) => log.add(message, kind),
            Self::Redis(log) => log.add(message, kind),
        }
    }

    /// What the log keeps.
    pub fn extent(&self) -> Result<Extent> {
        match self {
            Self::File(log) => log.extent(),
            Self::Redis(log) => log.extent(),
        }
    }

    /// What positions are signed with, and the ends of subscriptions that the log knows.
    pub fn secret(&self) -> Result<(Extent, Vec<u8>, Ends)> {
        match self {
            Self::File(log) => log.secret(),
            Self::Redis(log) => log.secret(),
        }
    }

    /// Reads it for the tail.
    pub fn reader(&self) -> Reader<'_> {
        match self {
            Self::File(log) => Reader::File(log.reader()),
            Self::Redis(log) => Reader::Redis(Box::new(log.reader())),
        }
    }
}

/// Reads a log for the tail, which waits for its changes.
pub(crate) enum Reader<'a> {
    File(FileReader<'a>),
    Redis(Box<RedisReader<'a>>),
}

impl Reader<'_> {
    /// Watches the log, and forgets earlier changes: what they have changed is read now.
    pub fn watch(&mut self, at: Position) -> Result<()> {
        match self {
            Self::File(reader) => reader.watch(),
            Self::Redis(reader) => reader.watch(at),
        }
    }

    /// Passes on the messages behind a position, until `each` returns false; all, after a call of `replaced`, if the log
    /// is another one.
    pub fn read_all(
        &mut self,
        at: Position,
        replaced: impl FnOnce(u64),
        each: impl FnMut(&Row<'_>) -> bool,
    ) -> Result<Extent> {
        match self {
            Self::File(reader) => reader.read_all(at, replaced, each),
            Self::Redis(reader) => reader.read_all(at, replaced, each),
        }
    }

    /// The same for the messages of some names up to an offset. [`Extent::read`] is that offset, or the last message
    /// that was passed on if `each` returned false.
    pub fn read_names(
        &mut self,
        names: &[Arc<str>],
        range: (u64, u64),
        each: impl FnMut(&Row<'_>) -> bool,
    ) -> Result<Extent> {
        match self {
            Self::File(reader) => reader.read_names(names, range, each),
            Self::Redis(reader) => reader.read_names(names, range, each),
        }
    }

    /// The messages that this machine keeps until the log can be reached, behind those that were passed on; whether it
    /// keeps any.
    pub fn read_kept(&mut self, each: impl FnMut(&Row<'_>)) -> Result<bool> {
        match self {
            Self::File(_) => Ok(false),
            Self::Redis(reader) => reader.read_kept(each).map(|()| true),
        }
    }

    /// Waits for a change, or until `interrupt` can be read.
    pub fn wait(&mut self, interrupt: &impl AsFd, time: Duration) {
        let interrupt: BorrowedFd<'_> = interrupt.as_fd();
        match self {
            Self::File(reader) => reader.wait(interrupt, time),
            Self::Redis(reader) => reader.wait(interrupt, time),
        }
    }
}

/// An error of the log that is not one of its file.
pub(crate) fn unavailable(message: String) -> Error {
    Error::unavailable(message)
}
