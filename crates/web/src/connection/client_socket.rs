//! A connection's socket and its one timer.

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{ready, Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::unix::AsyncFd;
use tokio::io::Interest;
use tokio::time::{sleep_until, Sleep};

use crate::limits::bytes_min;
use crate::socket;

use super::timer::Timer;
use super::tls_session::{RecordSocket, TlsSession};

/// No connection lasts for so long.
const NEVER: Duration = Duration::from_secs(10 * 365 * 86_400);

/// A non-blocking socket with a deadline.
///
/// The timer stays armed at the earliest deadline since it last fired and checks
/// the current deadline then, so that a request costs no timer operation.
pub(crate) struct ClientSocket {
    socket: AsyncFd<OwnedFd>,
    timer: Pin<Box<Sleep>>,
    armed: Option<Instant>,
    deadline: Option<Instant>,
    /// Data may have arrived that no event announces: read before waiting.
    unannounced: bool,
    /// Since when the socket takes nothing.
    blocked_since: Option<Instant>,
    /// How long it may be full until it has taken enough; `None`: as long as allowed.
    blocked_left: Option<Duration>,
    /// Bytes that it took meanwhile.
    taken: u64,
    /// The peer has ended its side.
    ended: bool,
    /// Encrypts what is sent, and decrypts what arrives; none on a plain connection.
    tls: Option<Box<TlsSession>>,
}

impl ClientSocket {
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.get_ref().as_fd()
    }

    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        let timer = Box::pin(sleep_until(Instant::now().into()));
        let socket = socket::watch(socket, Interest::READABLE | Interest::WRITABLE)?;
        Ok(Self {
            socket,
            timer,
            armed: None,
            deadline: None,
            unannounced: true,
            blocked_since: None,
            blocked_left: None,
            taken: 0,
            ended: false,
            tls: None,
        })
    }

    /// Has everything encrypted from now on.
    pub fn set_tls(&mut self, session: Option<Box<TlsSession>>) {
        self.tls = session;
    }

    /// Goes on with the handshake; true when it is complete. See [`TlsSession::poll_records`].
    pub fn poll_handshake(
        &mut self,
        cx: &mut Context,
        first: &mut Option<u8>,
    ) -> Poll<io::Result<bool>> {
        let Some(mut session) = self.tls.take() else { return Poll::Ready(Ok(true)) };
        let read = match session.is_handshaking() {
            true => session.poll_records(self, cx, first),
            false => Poll::Ready(Ok(1)),
        };
        let complete = !session.is_handshaking();
        self.tls = Some(session);
        match ready!(read)? {
            0 => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            _ => Poll::Ready(Ok(complete && !self.has_output())),
        }
    }

    /// Sends all of the encrypted output.
    pub fn poll_flush(&mut self, cx: &mut Context) -> Poll<io::Result<()>> {
        while self.has_output() {
            match self.send_output() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.clear_writable();
                    ready!(self.poll_writable(cx))?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                sent => sent?,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Whether the client chose HTTP/2 in the handshake.
    pub fn is_http2(&self) -> bool {
        self.tls.as_ref().is_some_and(|session| session.is_http2())
    }

    pub fn tls_mut(&mut self) -> Option<&mut TlsSession> {
        self.tls.as_deref_mut()
    }

    /// Whether encrypted output waits until the socket takes it.
    pub fn has_output(&self) -> bool {
        self.tls.as_ref().is_some_and(|session| session.has_output())
    }

    /// Sends the encrypted output with one call.
    pub fn send_output(&mut self) -> io::Result<()> {
        let Self { tls, socket, .. } = self;
        let Some(session) = tls else { return Ok(()) };
        let len = session.send_output(socket.get_ref().as_fd())?;
        self.note_progress(len as u64);
        Ok(())
    }

    /// Ends the sending side. Of a TLS connection it first says so to the peer, unless a response was
    /// cut off: the peer must notice that.
    pub fn end(&mut self) {
        self.say_end();
        socket::shutdown_write(self.fd());
    }

    /// The current response is cut off.
    pub fn mark_cut(&mut self) {
        if let Some(session) = &mut self.tls {
            session.mark_cut();
        }
    }

    /// Tells the peer of a TLS connection that nothing more is sent; a full socket takes no message.
    pub fn say_end(&mut self) {
        if let Some(session) = &mut self.tls {
            session.end();
            let _ = self.send_output();
        }
    }

    /// Sets the deadline to `time` from now.
    pub fn set_timeout(&mut self, time: Duration) {
        self.deadline = Some(Instant::now() + time);
    }

    fn arm(&mut self, at: Instant, cx: &mut Context) {
        self.armed = Some(at);
        self.timer.as_mut().reset(at.into());
        // Registers the task; the caller checks whether the timer has fired. A
        // used-up budget of tokio's would leave the task unregistered.
        let _ = Pin::new(&mut tokio::task::unconstrained(self.timer.as_mut())).poll(cx);
    }

    /// Reads what has arrived; 0 means that the peer has ended its side.
    pub fn poll_recv(&mut self, cx: &mut Context, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let Some(mut session) = self.tls.take() else { return self.poll_recv_raw(cx, into) };
        let received = session.poll_recv(self, cx, into);
        self.tls = Some(session);
        received
    }

    /// Looks at what has arrived without taking it, once it is more than `seen` bytes; 0 means that
    /// the peer has ended its side before that.
    pub fn poll_peek(
        &mut self,
        cx: &mut Context,
        into: &mut [u8],
        seen: usize,
    ) -> Poll<io::Result<usize>> {
        let mut ended = false;
        loop {
            match socket::peek(self.fd(), into) {
                Ok(len) if len > seen || len == 0 => return Poll::Ready(Ok(len)),
                Ok(_) if ended => return Poll::Ready(Ok(0)),
                Err(error) if !is_transient(&error) => return Poll::Ready(Err(error)),
                _ => {}
            }
            let mut guard = ready!(self.socket.poll_read_ready(cx))?;
            // This readiness stays set: no further event will come.
            ended = guard.ready().is_read_closed();
            guard.clear_ready();
        }
    }

    /// Takes as many bytes as `into` has, which [`ClientSocket::poll_peek`] has seen.
    pub fn skip(&mut self, into: &mut [u8]) -> io::Result<()> {
        // No event announces what is behind them.
        self.unannounced = true;
        match socket::recv(self.fd(), into) {
            Ok(len) if len == into.len() => Ok(()),
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) => Err(error),
        }
    }

    /// Whether the next read has something to return, also what no event has
    /// announced yet.
    pub fn has_arrived(&mut self) -> bool {
        if self.tls.as_mut().is_some_and(|session| session.has_input()) {
            return true;
        }
        self.unannounced = socket::is_readable(self.fd());
        self.unannounced
    }

    /// Whether the peer can neither send nor receive any more; if not, the task
    /// is woken when that changes. Data that arrives meanwhile stays in the
    /// kernel. A peer that only ended its own side still waits for its response.
    pub fn poll_hung_up(&mut self, cx: &mut Context) -> bool {
        while let Poll::Ready(ready) = self.socket.poll_read_ready(cx) {
            let Ok(mut guard) = ready else { return true };
            self.unannounced = true;
            if guard.ready().is_read_closed() {
                // This readiness stays set: no further event will come.
                self.ended = true;
                break;
            }
            guard.clear_ready();
        }
        match self.socket.poll_write_ready(cx) {
            Poll::Ready(Ok(guard)) => guard.ready().is_write_closed(),
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        }
    }

    /// Whether [`ClientSocket::poll_hung_up`] has found that the peer ended its side.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Called when the socket took nothing: see [`ClientSocket::is_too_slow`].
    pub fn start_blocked(&mut self, time: Duration) {
        if self.blocked_since.is_none() {
            self.start_clock(time);
        }
        self.clear_writable();
    }

    fn start_clock(&mut self, time: Duration) {
        let now = Instant::now();
        self.blocked_since = Some(now);
        self.deadline = Some(now + *self.blocked_left.get_or_insert(time));
    }

    /// Whether the socket was full for `time` and has taken less than `rate` bytes for each second
    /// of that; if not, the task is woken when that may be.
    pub fn is_too_slow(&mut self, cx: &mut Context, time: Duration, rate: u64) -> bool {
        while self.poll_expired(cx) {
            if self.taken < bytes_min(rate, time) {
                return true;
            }
            self.end_output();
            self.start_clock(time);
        }
        false
    }

    /// All output was taken: the time of [`ClientSocket::is_too_slow`] begins anew with the next.
    pub fn end_output(&mut self) {
        (self.blocked_since, self.blocked_left, self.taken) = (None, None, 0);
    }

    /// Called when the socket took nothing.
    pub fn clear_writable(&self) {
        // Reports "would block", so that the event loop clears the readiness.
        let full = |_: &OwnedFd| Err::<(), _>(io::ErrorKind::WouldBlock.into());
        let _ = self.socket.try_io(Interest::WRITABLE, full);
    }

    /// Called when the socket took something.
    pub fn note_progress(&mut self, len: u64) {
        self.taken += len;
        if let Some(since) = self.blocked_since.take() {
            self.blocked_left = self.blocked_left.map(|left| left.saturating_sub(since.elapsed()));
        }
    }

    /// Waits until the socket takes more.
    pub fn poll_writable(&mut self, cx: &mut Context) -> Poll<io::Result<()>> {
        self.socket.poll_write_ready(cx).map_ok(drop)
    }
}

impl Timer for ClientSocket {
    fn set_deadline(&mut self, at: Option<Instant>) {
        self.deadline = at;
    }

    fn poll_expired(&mut self, cx: &mut Context) -> bool {
        let Some(deadline) = self.deadline else { return false };
        if self.armed.is_none_or(|armed| deadline < armed) {
            self.arm(deadline, cx);
        }
        while self.timer.is_elapsed() {
            if Instant::now() >= deadline {
                return true;
            }
            self.arm(deadline, cx);
        }
        false
    }

    fn disarm(&mut self) {
        (self.deadline, self.armed) = (None, None);
        self.timer.as_mut().reset((Instant::now() + NEVER).into());
    }
}

impl RecordSocket for ClientSocket {
    /// Reads what has arrived, encrypted or not.
    fn poll_recv_raw(&mut self, cx: &mut Context, into: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.unannounced {
            self.unannounced = false;
            match socket::recv(self.fd(), into) {
                Err(error) if is_transient(&error) => {}
                done => {
                    // After a full buffer the rest stays in the kernel, unannounced.
                    self.unannounced = matches!(done, Ok(len) if len == into.len());
                    return Poll::Ready(done);
                }
            }
        }
        loop {
            let mut guard = ready!(self.socket.poll_read_ready(cx))?;
            match socket::recv(guard.get_inner(), into) {
                Ok(len) => {
                    // A short read has emptied the socket: the next data comes with
                    // a new event, so no further read is needed to see that.
                    if len < into.len() {
                        guard.clear_ready();
                    }
                    return Poll::Ready(Ok(len));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn record_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
