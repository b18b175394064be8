//! The socket of a connection, encrypted or not, as the crate h2 reads and writes it.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{pin, Pin};
use std::sync::Arc;
use std::task::{ready, Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::yield_now;

use crate::server_state::ServerState;
use crate::socket;
use crate::stats::{add, Counters};

use super::super::client_socket::ClientSocket;
use super::super::send::SLICES_MAX;
use super::sent_frames::SentFrames;
use super::waste::Waste;

pub(super) struct Http2Transport<'a> {
    socket: &'a mut ClientSocket,
    waste: Arc<Waste>,
    /// Called when enough is read for one turn: the crate reads on as long as there is something.
    end_turn: &'a (dyn Fn() + Sync),
    /// Read before it was known that the client speaks HTTP/2.
    first: Vec<u8>,
    counters: &'a Counters,
    /// The socket must take something within this time. The application cannot be told of a client
    /// that reads nothing: its answers may wait for the socket behind those of other streams.
    write_timeout: Duration,
    reply_rate_min: u64,
    frames: SentFrames,
    /// Gets the status of each request that the crate refuses by itself.
    refused: &'a (dyn Fn(u16) + Sync),
}

impl<'a> Http2Transport<'a> {
    pub fn new(
        socket: &'a mut ClientSocket,
        first: Vec<u8>,
        shared: &'a ServerState,
        waste: Arc<Waste>,
        end_turn: &'a (dyn Fn() + Sync),
        refused: &'a (dyn Fn(u16) + Sync),
    ) -> Self {
        let write_timeout = shared.config.timeouts.write;
        let reply_rate_min = shared.exchanges.budget.limits().reply_rate_min;
        let (counters, frames) = (&*shared.counters, SentFrames::default());
        Self {
            socket,
            waste,
            end_turn,
            first,
            counters,
            write_timeout,
            reply_rate_min,
            frames,
            refused,
        }
    }

    /// Writes with one call; without TLS to the socket, else to the session, which holds the bytes
    /// of one turn.
    fn poll_once(
        &mut self,
        cx: &mut Context,
        write: impl Fn(&mut ClientSocket) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        // What was encrypted before goes first.
        ready!(self.poll_flushed(cx))?;
        loop {
            match write(self.socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.socket.start_blocked(self.write_timeout);
                    if self.socket.poll_writable(cx)?.is_pending() {
                        return self.poll_blocked(cx);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
                Ok(len) => {
                    self.socket.note_progress(len as u64);
                    add(&self.counters.sent_bytes, len as u64);
                    // What the socket does not take now goes with the next flush.
                    if let Poll::Ready(flushed) = self.poll_flushed(cx) {
                        flushed?;
                    }
                    return Poll::Ready(Ok(len));
                }
            }
        }
    }
}

impl Http2Transport<'_> {
    /// Sends all of the encrypted output.
    fn poll_flushed(&mut self, cx: &mut Context) -> Poll<io::Result<()>> {
        let flushed = self.socket.poll_flush(cx);
        if flushed.is_ready() {
            return flushed;
        }
        self.socket.start_blocked(self.write_timeout);
        self.poll_blocked(cx).map_ok(drop)
    }

    /// Ready with an error when the socket has taken nothing for too long.
    fn poll_blocked(&mut self, cx: &mut Context) -> Poll<io::Result<usize>> {
        match self.socket.is_too_slow(cx, self.write_timeout, self.reply_rate_min) {
            true => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            false => Poll::Pending,
        }
    }
}

impl AsyncRead for Http2Transport<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context,
        into: &mut ReadBuf,
    ) -> Poll<io::Result<()>> {
        if !self.first.is_empty() {
            let len = self.first.len().min(into.remaining());
            into.put_slice(&self.first[..len]);
            self.waste.read(&self.first[..len]);
            self.first.drain(..len);
            return Poll::Ready(Ok(()));
        }
        if !self.waste.may_read() {
            // The IO thread does not sleep now, so this does its other work.
            (self.end_turn)();
            // Wakes the task after the event loop has looked for other events.
            let _ = pin!(yield_now()).poll(cx);
            return Poll::Pending;
        }
        let len = ready!(self.socket.poll_recv(cx, into.initialize_unfilled()))?;
        into.advance(len);
        self.waste.read(&into.filled()[into.filled().len() - len..]);
        add(&self.counters.read_bytes, len as u64);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Http2Transport<'_> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context,
        slices: &[IoSlice],
    ) -> Poll<io::Result<usize>> {
        let slices = &slices[..slices.len().min(SLICES_MAX)];
        let len = ready!(self.poll_once(cx, |socket| match socket.tls_mut() {
            Some(session) => session.encrypt_slices(slices),
            None => socket::send_slices(socket.fd(), slices, false),
        }))?;
        let mut left = len;
        for slice in slices {
            let taken = left.min(slice.len());
            left -= taken;
            let refused = self.refused;
            self.frames.add(&slice[..taken], refused);
        }
        Poll::Ready(Ok(len))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context) -> Poll<io::Result<()>> {
        ready!(self.poll_flushed(cx))?;
        self.socket.end_output();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context) -> Poll<io::Result<()>> {
        ready!(self.poll_flushed(cx))?;
        self.socket.end();
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::super::waste::TURN_COST_MAX;
    use super::*;

    #[test]
    fn a_flood_is_read_in_turns() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (ours, mut peer) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let turn_max = TURN_COST_MAX as usize;
        peer.write_all(&vec![0; 2 * turn_max]).unwrap();
        let (counters, ended) = (Counters::default(), AtomicUsize::new(0));
        runtime.block_on(async {
            let mut socket = ClientSocket::new(ours.into()).unwrap();
            let waste = Arc::new(Waste::new(100));
            let mut transport = Http2Transport {
                socket: &mut socket,
                waste: Arc::clone(&waste),
                end_turn: &|| _ = ended.fetch_add(1, SeqCst),
                first: Vec::new(),
                counters: &counters,
                write_timeout: Duration::from_secs(60),
                reply_rate_min: 0,
                frames: SentFrames::default(),
                refused: &|_| {},
            };
            let mut turns = Vec::new();
            while turns.iter().sum::<usize>() < 2 * turn_max {
                turns.push(0);
                waste.begin_turn(true);
                poll_fn(|cx| loop {
                    let mut buf = [0; 1000];
                    let mut into = ReadBuf::new(&mut buf);
                    match Pin::new(&mut transport).poll_read(cx, &mut into) {
                        Poll::Ready(read) => read.unwrap(),
                        Poll::Pending => return Poll::Ready(()),
                    }
                    *turns.last_mut().unwrap() += into.filled().len();
                })
                .await;
            }
            assert!(ended.load(SeqCst) > 0);
            // Empty frames, each of which costs more than its bytes.
            assert!(turns.len() > 10 && turns.iter().all(|turn| *turn < turn_max / 4), "{turns:?}");
        });
    }
}
