//! A keep-alive connection that carries one request at a time.

use std::io::{self, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

use crate::response_parser::{ParseProgress, ResponseParser};

/// A request and when it is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduledRequest {
    /// Its number in the schedule.
    pub number: u64,
    /// Nanoseconds from the start of the schedule.
    pub due_ns: u64,
    /// Whether it was sent before on a connection that the server had closed.
    pub resent: bool,
}

/// Why a request got no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestFailure {
    /// The connection could not be opened.
    Connect,
    /// Writing the request failed.
    Write,
    /// Reading the response failed, or it ended too early.
    Read,
    /// The bytes received are not a response.
    Protocol,
    /// There was no response within the limit.
    Timeout,
    /// There was no free connection within the limit.
    Unsent,
    /// The response has this status.
    Status(u16),
}

impl RequestFailure {
    /// Its name in the report.
    pub fn name(&self) -> String {
        match self {
            RequestFailure::Status(code) => format!("status_{code}"),
            other => format!("{other:?}").to_lowercase(),
        }
    }
}

/// An event of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEvent {
    /// Nothing of interest.
    Nothing,
    /// The response is complete.
    Responded {
        /// Its status code.
        status: u16,
        /// Whether another request can follow.
        keep_alive: bool,
    },
    /// The connection is closed. Its request, if there is one, failed.
    Closed(RequestFailure),
}

/// A non-blocking connection.
#[derive(Debug)]
pub struct ClientConnection {
    stream: TcpStream,
    connected: bool,
    /// Bytes of the request written so far.
    sent: usize,
    request: Option<ScheduledRequest>,
    parser: ResponseParser,
    /// Responses received on it.
    served: u64,
}

impl ClientConnection {
    /// Begins to connect and does not wait: with a full backlog that would take
    /// a second, and delay the schedule.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn open(address: SocketAddrV4) -> io::Result<Self> {
        let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: no pointer is passed.
        let fd = unsafe { libc::socket(libc::AF_INET, kind, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just created and has no other owner.
        let stream = unsafe { TcpStream::from_raw_fd(fd) };
        stream.set_nodelay(true)?;
        let name = libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: address.port().to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from(*address.ip()).to_be() },
            sin_zero: [0; 8],
        };
        let bytes = std::mem::size_of_val(&name) as libc::socklen_t;
        // SAFETY: `name` is a whole sockaddr_in of that size and outlives the call.
        let answer = unsafe { libc::connect(fd, (&raw const name).cast(), bytes) };
        let connected = answer == 0;
        if !connected {
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EINPROGRESS) {
                return Err(error);
            }
        }
        let parser = ResponseParser::new();
        Ok(Self { stream, connected, sent: 0, request: None, parser, served: 0 })
    }

    /// For [`crate::epoll::Epoll::watch`].
    pub fn fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    /// The request in progress.
    pub fn request(&self) -> Option<ScheduledRequest> {
        self.request
    }

    /// Whether a failure may mean that the server closed the idle
    /// connection just as the request was sent (RFC 9112 section 9.3.1:
    /// such a request may be sent again).
    pub fn raced(&self) -> bool {
        self.served > 0 && self.parser.untouched()
    }

    /// Sends a request, as far as the connection is ready for it.
    pub fn send(&mut self, request: ScheduledRequest, bytes: &[u8]) -> ConnectionEvent {
        debug_assert!(self.request.is_none(), "one request at a time");
        self.request = Some(request);
        self.sent = 0;
        self.parser.reset();
        self.write(bytes)
    }

    /// Reads what has arrived, using `scratch` as the buffer.
    pub fn poll(&mut self, bytes: &[u8], scratch: &mut [u8]) -> ConnectionEvent {
        if !self.connected {
            match self.stream.take_error() {
                Ok(None) if self.stream.peer_addr().is_ok() => self.connected = true,
                Ok(None) => return ConnectionEvent::Nothing,
                Ok(Some(_)) | Err(_) => return ConnectionEvent::Closed(RequestFailure::Connect),
            }
        }
        match self.write(bytes) {
            ConnectionEvent::Nothing => self.read(scratch),
            gone => gone,
        }
    }

    fn write(&mut self, bytes: &[u8]) -> ConnectionEvent {
        while self.connected && self.request.is_some() && self.sent < bytes.len() {
            match self.stream.write(&bytes[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return ConnectionEvent::Closed(RequestFailure::Write),
            }
        }
        ConnectionEvent::Nothing
    }

    fn read(&mut self, scratch: &mut [u8]) -> ConnectionEvent {
        loop {
            match self.stream.read(scratch) {
                Ok(0) => return self.closed(),
                Ok(count) => match self.take(&scratch[..count]) {
                    // Read until the socket is empty: an edge is reported once.
                    ConnectionEvent::Nothing => {}
                    event => return event,
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return ConnectionEvent::Nothing
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return ConnectionEvent::Closed(RequestFailure::Read),
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) -> ConnectionEvent {
        if self.request.is_none() {
            return ConnectionEvent::Closed(RequestFailure::Protocol);
        }
        match self.parser.feed(bytes) {
            ParseProgress::Partial => ConnectionEvent::Nothing,
            ParseProgress::Invalid => ConnectionEvent::Closed(RequestFailure::Protocol),
            ParseProgress::Complete { status, keep_alive } => self.answered(status, keep_alive),
        }
    }

    fn closed(&mut self) -> ConnectionEvent {
        match self.parser.closed() {
            ParseProgress::Complete { status, .. } if self.request.is_some() => {
                self.answered(status, false)
            }
            _ => ConnectionEvent::Closed(RequestFailure::Read),
        }
    }

    fn answered(&mut self, status: u16, keep_alive: bool) -> ConnectionEvent {
        self.served += 1;
        ConnectionEvent::Responded { status, keep_alive }
    }

    /// Removes the request after its response or its failure.
    pub fn release(&mut self) -> Option<ScheduledRequest> {
        self.request.take()
    }
}
