//! Log lines of Rust threads, which may not call Ruby's logger.

use std::io::Write;

/// Writes a warning to standard error in the format of the Ruby logger.
pub fn warn(message: &str) {
    // A closed standard error must not end the thread that reports.
    let _ = writeln!(std::io::stderr(), "chaton [{}] WARN  {message}", std::process::id());
}
