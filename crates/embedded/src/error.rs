//! Errors of databases.

use std::fmt;

/// The kind of an error decides what the caller does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The disk failed, or the file was replaced: trying again may help.
    Unavailable,
    /// The disk is full: what is there can be read and removed.
    Full,
    /// Locked by another program for too long: trying again may help.
    Busy,
    /// The file is damaged.
    Corrupt,
    /// Wrong file, rights or version: a person must act.
    Refused,
}

/// An error, with a sentence for people.
#[derive(Clone, Debug)]
pub struct Error {
    /// Its kind.
    pub kind: ErrorKind,
    /// What happened, to which file, and what to do next.
    pub message: String,
}

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of that kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// [`ErrorKind::Refused`].
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Refused, message)
    }

    /// [`ErrorKind::Unavailable`].
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
