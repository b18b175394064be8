//! The ordered log of messages, which is also their history.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use chaton_embedded::Result;

use crate::file_log::{FileLog, FileReader};
use crate::message::Message;
use crate::redis_log::{RedisLog, RedisReader};
use crate::row::{Ends, Extent, Kind, Position, Row};
use crate::settings::Settings;

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
