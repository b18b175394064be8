//! HTTP/1 on a socket: how a body is read and a response is written.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{ready, Context, Poll};
use std::time::Duration;

use crate::exchange::Exchange;
use crate::head::BodyFraming;
use crate::read_buffer::ReadBuffer;
use crate::request_body::BodyError;
use crate::response_head::EncodedHead;
use crate::send_buffer::{Segment, SpoolWrite};
use crate::server_state::ServerState;
use crate::stats::add;

use super::client_socket::ClientSocket;
use super::refusal::Stop;
use super::request_task::{Arrived, BodyStop, RequestTask, Wire};
use super::send::{relieve, write_some, SentBytes};
use super::timer::Timer;
use super::ConnectionGuard;

/// Bytes one connection sends before others are served.
const SEND_TURN_BYTES_MAX: usize = 1024 * 1024;

pub(super) struct Http1 {
    pub socket: ClientSocket,
    /// Bytes that were read behind the head, or behind the request.
    pub unread: ReadBuffer,
    /// Dropped last: the connection counts as open until its socket is closed.
    pub guard: ConnectionGuard,
}

impl Wire for Http1 {
    const GATHER: Option<Duration> = Some(Duration::from_millis(1));

    fn timer(&mut self) -> &mut impl Timer {
        &mut self.socket
    }

    fn has_body(&mut self, framing: BodyFraming) -> bool {
        !matches!(framing, BodyFraming::None)
    }

    fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    fn ask_for_body(&mut self, exchange: &Arc<Exchange>) {
        exchange.interim(EncodedHead::continued());
    }

    fn poll_body(
        &mut self,
        cx: &mut Context,
        shared: &ServerState,
        room: usize,
        mut feed: impl FnMut(&[u8]) -> Result<(usize, bool), BodyError>,
    ) -> Poll<Result<Arrived, BodyStop>> {
        if !self.unread.is_empty() {
            let rest = self.unread.rest();
            let (taken, is_whole) = feed(&rest[..rest.len().min(room)])?;
            self.unread.consume(taken);
            return Poll::Ready(Ok(Arrived { len: 0, is_whole }));
        }
        let mut scratch = shared.scratch.lock();
        let len = scratch.len().min(room);
        let len = match ready!(self.socket.poll_recv(cx, &mut scratch[..len])) {
            Ok(0) => return Poll::Ready(Err(BodyStop::Ended)),
            Ok(len) => len,
            Err(_) => return Poll::Ready(Err(BodyStop::Gone)),
        };
        add(&shared.counters.read_bytes, len as u64);
        let (taken, is_whole) = feed(&scratch[..len])?;
        if taken < len {
            self.unread.push(&scratch[taken..len]);
        }
        Poll::Ready(Ok(Arrived { len, is_whole }))
    }

    fn poll_gone(&mut self, cx: &mut Context, is_reading: bool) -> bool {
        // Both take the same events of the socket.
        !is_reading && self.socket.poll_hung_up(cx)
    }

    fn has_ended(&self) -> bool {
        self.socket.has_ended()
    }

    fn note_begun(&mut self, exchange: &Exchange) {
        if !self.guard.served && !exchange.response().lock().is_waiting() {
            self.guard.served();
        }
    }

    /// Progress of a slow client is reported to the send buffer meanwhile.
    async fn send(task: &mut RequestTask<Self>, _: bool) -> Result<SentBytes, Stop> {
        let mut sent = SentBytes::default();
        loop {
            match poll_fn(|cx| poll_send(task, cx, &mut sent)).await? {
                Pause::AtEnd => break,
                Pause::ForDisk => warm_up(task, &mut sent).await?,
                Pause::ForRelief(write) => {
                    relieve(&task.exchange, &mut task.sending, write).await;
                }
            }
        }
        Ok(sent)
    }

    fn end_response(_: &mut RequestTask<Self>, _: SentBytes) -> Result<(), Stop> {
        Ok(())
    }

    fn end_fed(task: &mut RequestTask<Self>, fed: Result<(), Stop>) -> Result<(), Stop> {
        if fed.is_err() {
            task.wire.socket.mark_cut();
        }
        Err(Stop::Linger)
    }
}

/// Why sending pauses.
enum Pause {
    /// Everything is sent.
    AtEnd,
    /// The file at the front is not in memory.
    ForDisk,
    /// Memory is short, so that this goes to a file.
    ForRelief(SpoolWrite),
}

fn poll_send(
    task: &mut RequestTask<Http1>,
    cx: &mut Context,
    sent: &mut SentBytes,
) -> Poll<Result<Pause, Stop>> {
    let mut turn = 0;
    while !task.sending.is_empty() || task.wire.socket.has_output() {
        match send_some(task) {
            Ok(Some(some)) => {
                task.wire.socket.note_progress(some.total());
                sent.add(some);
                task.sent += some.total();
                turn += some.total() as usize;
                add(&task.shared.counters.sent_bytes, some.total());
            }
            Ok(None) => return Poll::Ready(Ok(Pause::ForDisk)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                task.report_sent(sent);
                // The application may wait for the body before it goes on.
                task.poll_upload(cx);
                let relief =
                    task.exchange.response().lock().send_buffer.begin_relief(&mut task.sending);
                if let Some(write) = relief.map_err(|_| Stop::Cut)? {
                    return Poll::Ready(Ok(Pause::ForRelief(write)));
                }
                if !poll_send_again(task, cx)? {
                    return Poll::Pending;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Poll::Ready(Err(Stop::Gone)),
        }
        if turn > SEND_TURN_BYTES_MAX {
            task.report_sent(sent);
            // The IO thread does not sleep now, so this does its other work.
            task.shared.flush_submitted();
            task.shared.exchanges.wake_ready_if_any();
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
    }
    task.wire.socket.end_output();
    Poll::Ready(Ok(Pause::AtEnd))
}

/// Sends with one system call; `None`: the file at the front is not in memory.
fn send_some(task: &mut RequestTask<Http1>) -> io::Result<Option<SentBytes>> {
    let RequestTask { wire: Http1 { socket, .. }, sending, recycled, shared, .. } = task;
    let Some(session) = socket.tls_mut() else {
        return write_some(socket.fd(), sending, recycled);
    };
    let mut sent = SentBytes::default();
    if !session.has_output() {
        match session.encrypt_segments(sending, recycled, &mut shared.scratch.lock())? {
            Some(encrypted) => sent = encrypted,
            None => return Ok(None),
        }
    }
    match socket.send_output() {
        // The bytes are in the hands of the session.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock && sent.total() > 0 => {}
        done => done?,
    }
    Ok(Some(sent))
}

/// Has the file at the front read into memory.
async fn warm_up(task: &mut RequestTask<Http1>, sent: &mut SentBytes) -> Result<(), Stop> {
    task.report_sent(sent);
    match task.sending.front_mut().and_then(Segment::file_range) {
        Some(range) => range.warm_up().await.map_err(|_| Stop::Cut),
        None => Ok(()),
    }
}

/// Called when the socket is full; true when it takes more after all.
fn poll_send_again(task: &mut RequestTask<Http1>, cx: &mut Context) -> Result<bool, Stop> {
    let socket = &mut task.wire.socket;
    let time = task.shared.config.timeouts.write;
    socket.start_blocked(time);
    match socket.poll_writable(cx) {
        Poll::Ready(Ok(())) => Ok(true),
        Poll::Ready(Err(_)) => Err(Stop::Gone),
        Poll::Pending => {
            let rate = task.shared.exchanges.budget.limits().reply_rate_min;
            match socket.is_too_slow(cx, time, rate) {
                true => Err(Stop::Cut),
                false => Ok(false),
            }
        }
    }
}
