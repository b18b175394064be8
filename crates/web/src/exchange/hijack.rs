//! Giving a connection to the application.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use crate::head::Version;
use crate::request_body::RequestBody;

use super::Exchange;

impl Exchange {
    /// Notes the head that the application is about to send on the connection that it takes, for the access log and
    /// the metrics.
    pub fn announce(&self, head: &[u8]) {
        self.response.lock().announce(head);
    }

    /// Takes the connection away from the engine: a duplicate of its socket,
    /// non-blocking as accepted, and the bytes already read past the request.
    /// Of an encrypted connection it is one end of a pair of sockets; the engine
    /// encrypts between the other end and the client.
    ///
    /// # Errors
    /// When a response exists already, the client is gone, the request's body is
    /// streamed, or the operating system has no descriptor left.
    pub fn hijack(&self) -> io::Result<(OwnedFd, Vec<u8>)> {
        if matches!(self.body, RequestBody::Streamed(_)) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the connection can't be hijacked: the request's body is streamed",
            ));
        }
        if self.head.version == Version::Http2 {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the connection can't be hijacked: it carries other requests, too (HTTP/2)",
            ));
        }
        let mut response = self.response.lock();
        let Some((socket, mut unread)) = response.hijack() else {
            return Err(io::Error::new(
                io::ErrorKind::NotConnected,
                "the connection can't be hijacked: it is closed or was answered already",
            ));
        };
        let given = if self.tls.is_some() {
            UnixStream::pair().and_then(|(ours, theirs)| {
                theirs.set_nonblocking(true)?;
                response.set_relayed(ours.into());
                Ok(theirs.into())
            })
        } else {
            // SAFETY: the connection keeps its socket open while the phase is
            // `Waiting`, which held until this lock was taken.
            unsafe { BorrowedFd::borrow_raw(socket) }.try_clone_to_owned()
        };
        let socket = match given {
            Ok(socket) => socket,
            Err(error) => {
                response.undo_hijack(unread);
                return Err(error);
            }
        };
        drop(response);
        self.wake_connection();
        Ok((socket, unread.take()))
    }
}
