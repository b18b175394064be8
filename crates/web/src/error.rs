//! Why an engine could not be started.

use std::fmt;
use std::io;

/// An engine could not be started. [`std::error::Error::source`] has the operating system's reason.
#[derive(Debug)]
pub struct Error {
    what: String,
    source: io::Error,
}

impl Error {
    /// `what` names the step that failed and the thing it failed on.
    pub(crate) fn new(what: impl Into<String>, source: io::Error) -> Self {
        Self { what: what.into(), source }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.source)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
