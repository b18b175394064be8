//! A hijacked connection that is encrypted: the application has one end of a pair of sockets, and the
//! engine carries bytes between the other end and the client.

use std::future::poll_fn;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::read_buffer::ReadBuffer;
use crate::server_state::ServerState;
use crate::socket;

use super::client_socket::ClientSocket;
use super::{Connection, ConnectionGuard};

/// Bytes carried at once in one direction.
const PART_BYTES: usize = 16 * 1024;
/// Bytes one connection carries before others are served.
const TURN_BYTES_MAX: usize = 1024 * 1024;

/// The application's side of a relay.
struct RelayState {
    /// Dropped before the socket that it is of.
    _listed: ListedRelay,
    application: ClientSocket,
    /// Bytes of the client that the application has not taken yet.
    unread: ReadBuffer,
    /// The client sends nothing more.
    client_ended: bool,
    /// The application sends nothing more.
    application_ended: bool,
}

/// One of the two sides can't go on.
struct Broken;

/// A relay in the list of all.
struct ListedRelay {
    shared: Arc<ServerState>,
    fd: RawFd,
}

impl ListedRelay {
    fn new(shared: &Arc<ServerState>, application: &ClientSocket) -> Self {
        let fd = application.fd().as_raw_fd();
        shared.relays.add(fd);
        Self { shared: Arc::clone(shared), fd }
    }
}

impl Drop for ListedRelay {
    fn drop(&mut self) {
        self.shared.relays.remove(self.fd);
        self.shared.all_closed.changed();
    }
}

impl Connection {
    /// Carries bytes until both sides have ended. Meanwhile the connection does not count: the
    /// application has it, and bounds how many it takes.
    pub(super) async fn relay(&mut self) {
        let Some(ours) = self.exchange.response().lock().take_relayed() else { return };
        self.socket.clear_deadline();
        let application = socket::set_nonblocking(&ours).and_then(|()| ClientSocket::new(ours));
        let Ok(application) = application else { return };
        let mut state = RelayState {
            _listed: ListedRelay::new(&self.shared, &application),
            application,
            unread: ReadBuffer::default(),
            client_ended: false,
            application_ended: false,
        };
        self.guard.release();
        let carried = poll_fn(|cx| self.poll_relay(&mut state, cx)).await;
        self.guard = ConnectionGuard::new(Arc::clone(&self.shared));
        self.guard.served();
        drop(state);
        if carried.is_ok() {
            self.linger().await;
        }
    }

    fn poll_relay(&mut self, state: &mut RelayState, cx: &mut Context) -> Poll<Result<(), Broken>> {
        let mut turn = 0;
        loop {
            let inwards = self.carry_in(state, cx)?;
            let outwards = self.carry_out(state, cx)?;
            let has_sent = state.application_ended && !self.socket.has_output();
            // An application that has closed its end takes nothing more either.
            if has_sent && (state.client_ended || state.application.poll_hung_up(cx)) {
                return Poll::Ready(Ok(()));
            }
            turn += inwards + outwards;
            if turn > TURN_BYTES_MAX {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if inwards + outwards == 0 {
                return Poll::Pending;
            }
        }
    }

    /// Carries from the client to the application; 0 when the task is woken as soon as it can go on.
    fn carry_in(&mut self, state: &mut RelayState, cx: &mut Context) -> Result<usize, Broken> {
        if !state.unread.is_empty() {
            let taken = give(&mut state.application, state.unread.rest(), cx)?;
            state.unread.consume(taken);
            return Ok(taken);
        }
        if state.client_ended {
            return Ok(0);
        }
        let shared = Arc::clone(&self.shared);
        let mut scratch = shared.scratch.lock();
        let len = match self.socket.poll_recv(cx, &mut scratch[..PART_BYTES]) {
            Poll::Pending => return Ok(0),
            Poll::Ready(Err(_)) => return Err(Broken),
            Poll::Ready(Ok(len)) => len,
        };
        if len == 0 {
            state.client_ended = true;
            socket::shutdown_write(state.application.fd());
        }
        state.unread.push(&scratch[..len]);
        Ok(len)
    }

    /// The client takes nothing now. An application that has closed its end can't give such a client up, so that is
    /// done here after the time that a response has.
    fn check_stalled(&mut self, state: &mut RelayState, cx: &mut Context) -> Result<usize, Broken> {
        if state.application.poll_hung_up(cx) {
            let time = self.shared.config.timeouts.write;
            let rate = self.shared.exchanges.budget.limits().reply_rate_min;
            self.socket.start_blocked(time);
            if self.socket.is_too_slow(cx, time, rate) {
                return Err(Broken);
            }
        }
        Ok(0)
    }

    /// Carries from the application to the client.
    fn carry_out(&mut self, state: &mut RelayState, cx: &mut Context) -> Result<usize, Broken> {
        match self.socket.poll_flush(cx) {
            Poll::Pending => return self.check_stalled(state, cx),
            Poll::Ready(flushed) => flushed.map_err(|_| Broken)?,
        }
        self.socket.end_output();
        if state.application_ended {
            return Ok(0);
        }
        let shared = Arc::clone(&self.shared);
        let mut scratch = shared.scratch.lock();
        let len = match state.application.poll_recv(cx, &mut scratch[..PART_BYTES]) {
            Poll::Pending => return Ok(0),
            // It was closed with bytes in it that the application has not read.
            Poll::Ready(received) => received.unwrap_or(0),
        };
        if len == 0 {
            state.application_ended = true;
            self.socket.say_end();
            return Ok(1);
        }
        let Some(session) = self.socket.tls_mut() else { return Err(Broken) };
        // All that was encrypted before is sent, so there is room for a part.
        match session.encrypt(&scratch[..len]) {
            Ok(taken) if taken == len => Ok(len),
            _ => Err(Broken),
        }
    }
}

/// Gives the application bytes; 0 when it takes none now, and the task is woken when it does.
fn give(application: &mut ClientSocket, bytes: &[u8], cx: &mut Context) -> Result<usize, Broken> {
    loop {
        match socket::send(application.fd(), bytes) {
            Ok(len) => return Ok(len),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                application.clear_writable();
                match application.poll_writable(cx) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(_)) => return Err(Broken),
                    Poll::Pending => return Ok(0),
                }
            }
            Err(_) => return Err(Broken),
        }
    }
}
