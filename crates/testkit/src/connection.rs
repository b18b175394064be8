//! One keep-alive connection that carries one request at a time.

use std::io::{self, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

use crate::answer::{Answer, Progress};

/// A request on its way, and when it was due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its place in the schedule.
    pub number: u64,
    /// Nanoseconds from the start of the schedule.
    pub due_ns: u64,
    /// Whether it was sent before, on a connection that the server had closed.
    pub resent: bool,
}

/// Why a request got no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failure {
    /// The connection could not be opened.
    Connect,
    /// Writing the request failed.
    Write,
    /// Reading the answer failed, or it ended too early.
    Read,
    /// What came is not an answer.
    Protocol,
    /// No answer within the limit.
    Timeout,
    /// It never got a connection within the limit.
    Unsent,
    /// An answer, but with this status.
    Status(u16),
}

impl Failure {
    /// A word for the report.
    pub fn name(&self) -> String {
        match self {
            Failure::Status(code) => format!("status_{code}"),
            other => format!("{other:?}").to_lowercase(),
        }
    }
}

/// What became of a connection when it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Nothing that matters.
    Nothing,
    /// The request has its answer.
    Answered {
        /// Its status code.
        status: u16,
        /// Whether another request can follow.
        keep_alive: bool,
    },
    /// The connection is of no more use. The request, if there is one, failed.
    Gone(Failure),
}

/// A non-blocking connection.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    connected: bool,
    /// Bytes of the request that are written.
    sent: usize,
    request: Option<Request>,
    answer: Answer,
    /// Answers that came on it.
    served: u64,
}

impl Connection {
    /// Begins to connect. Does not wait: with a full backlog that would take
    /// a second, and the schedule goes on.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn open(address: SocketAddrV4) -> io::Result<Self> {
        let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: no pointer is passed.
        let fd = unsafe { libc::socket(libc::AF_INET, kind, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is fresh and nobody else has it.
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
        let answer = Answer::new();
        Ok(Self { stream, connected, sent: 0, request: None, answer, served: 0 })
    }

    /// For [`crate::poll::Poll::watch`].
    pub fn fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    /// What it is busy with.
    pub fn request(&self) -> Option<Request> {
        self.request
    }

    /// Whether a failure may come of the server having closed an idle
    /// connection just as a request was sent on it (RFC 9112 section 9.3.1:
    /// such a request may be sent again).
    pub fn raced(&self) -> bool {
        self.served > 0 && self.answer.untouched()
    }

    /// Sends a request, as far as the connection is ready for it.
    pub fn send(&mut self, request: Request, bytes: &[u8]) -> Event {
        debug_assert!(self.request.is_none(), "one request at a time");
        self.request = Some(request);
        self.sent = 0;
        self.answer.reset();
        self.write(bytes)
    }

    /// Looks what has come, using `scratch` to read into.
    pub fn look(&mut self, bytes: &[u8], scratch: &mut [u8]) -> Event {
        if !self.connected {
            match self.stream.take_error() {
                Ok(None) if self.stream.peer_addr().is_ok() => self.connected = true,
                Ok(None) => return Event::Nothing,
                Ok(Some(_)) | Err(_) => return Event::Gone(Failure::Connect),
            }
        }
        match self.write(bytes) {
            Event::Nothing => self.read(scratch),
            gone => gone,
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Event {
        while self.connected && self.request.is_some() && self.sent < bytes.len() {
            match self.stream.write(&bytes[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Event::Gone(Failure::Write),
            }
        }
        Event::Nothing
    }

    fn read(&mut self, scratch: &mut [u8]) -> Event {
        loop {
            match self.stream.read(scratch) {
                Ok(0) => return self.closed(),
                Ok(count) => match self.take(&scratch[..count]) {
                    // Until the socket is empty: an edge that has been told does not come again.
                    Event::Nothing => {}
                    event => return event,
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Event::Nothing,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Event::Gone(Failure::Read),
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Event {
        if self.request.is_none() {
            return Event::Gone(Failure::Protocol);
        }
        match self.answer.feed(bytes) {
            Progress::Partial => Event::Nothing,
            Progress::Invalid => Event::Gone(Failure::Protocol),
            Progress::Complete { status, keep_alive } => self.answered(status, keep_alive),
        }
    }

    fn closed(&mut self) -> Event {
        match self.answer.closed() {
            Progress::Complete { status, .. } if self.request.is_some() => {
                self.answered(status, false)
            }
            _ => Event::Gone(Failure::Read),
        }
    }

    fn answered(&mut self, status: u16, keep_alive: bool) -> Event {
        self.served += 1;
        Event::Answered { status, keep_alive }
    }

    /// Takes the request off, once it has its answer or none will come.
    pub fn release(&mut self) -> Option<Request> {
        self.request.take()
    }
}
