//! Writing segments to the socket.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll};

use crate::exchange::Exchange;
use crate::send_buffer::{Segment, SpoolWrite};
use crate::socket;
use crate::stats::add;

use super::{Closing, Connection};

/// Larger buffers are not kept for the next response.
const RECYCLED_BYTES_MAX: usize = 64 * 1024;

/// Bytes one connection sends before others are served.
const TURN_BYTES_MAX: usize = 1024 * 1024;

/// Why sending pauses.
enum Pause {
    /// Everything is sent.
    AtEnd,
    /// The file at the front is not in memory.
    ForDisk,
    /// Memory is short, so that this goes to a file.
    ForRelief(SpoolWrite),
}

/// Bytes sent, as the send buffer counts them.
#[derive(Clone, Copy, Default)]
pub(super) struct SentBytes {
    pub memory: usize,
    pub spooled: u64,
    pub files: u64,
}

/// Most buffers sent in one call.
pub(super) const SLICES_MAX: usize = 16;

impl SentBytes {
    pub fn total(self) -> u64 {
        self.memory as u64 + self.spooled + self.files
    }

    pub fn add(&mut self, other: Self) {
        self.memory += other.memory;
        self.spooled += other.spooled;
        self.files += other.files;
    }
}

impl Connection {
    /// Sends everything in `sending`. Progress of a slow client is reported to the
    /// send buffer meanwhile.
    pub(super) async fn send(&mut self) -> Result<SentBytes, Closing> {
        let mut sent = SentBytes::default();
        loop {
            match poll_fn(|cx| self.poll_send(cx, &mut sent)).await? {
                Pause::AtEnd => break,
                Pause::ForDisk => self.warm_up(&mut sent).await?,
                Pause::ForRelief(write) => {
                    relieve(&self.exchange, &mut self.sending, write).await;
                }
            }
        }
        Ok(sent)
    }

    fn poll_send(
        &mut self,
        cx: &mut Context,
        sent: &mut SentBytes,
    ) -> Poll<Result<Pause, Closing>> {
        let mut turn = 0;
        while !self.sending.is_empty() || self.socket.has_output() {
            match self.write_some() {
                Ok(Some(some)) => {
                    self.socket.note_progress(some.total());
                    sent.add(some);
                    self.sent += some.total();
                    turn += some.total() as usize;
                    add(&self.shared.counters.sent_bytes, some.total());
                }
                Ok(None) => return Poll::Ready(Ok(Pause::ForDisk)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.report_sent(sent);
                    // The application may wait for the body before it goes on.
                    self.poll_upload(cx);
                    let relief =
                        self.exchange.response().lock().send_buffer.begin_relief(&mut self.sending);
                    if let Some(write) = relief.map_err(|_| Closing::Now)? {
                        return Poll::Ready(Ok(Pause::ForRelief(write)));
                    }
                    if !self.poll_send_again(cx)? {
                        return Poll::Pending;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Poll::Ready(Err(Closing::Now)),
            }
            if turn > TURN_BYTES_MAX {
                self.report_sent(sent);
                // The IO thread does not sleep now, so this does its other work.
                self.shared.flush_submitted();
                self.shared.exchanges.wake_ready_if_any();
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        self.socket.end_output();
        Poll::Ready(Ok(Pause::AtEnd))
    }

    /// Sends with one system call; `None`: the file at the front is not in memory.
    fn write_some(&mut self) -> io::Result<Option<SentBytes>> {
        let Self { socket, sending, recycled, shared, .. } = self;
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
    async fn warm_up(&mut self, sent: &mut SentBytes) -> Result<(), Closing> {
        self.report_sent(sent);
        match self.sending.front_mut().and_then(Segment::file_range) {
            Some(range) => range.warm_up().await.map_err(|_| Closing::Now),
            None => Ok(()),
        }
    }

    /// Called when the socket is full; true when it takes more after all.
    fn poll_send_again(&mut self, cx: &mut Context) -> Result<bool, Closing> {
        self.socket.start_blocked(self.shared.config.timeouts.write);
        match self.socket.poll_writable(cx) {
            Poll::Ready(Ok(())) => Ok(true),
            Poll::Ready(Err(_)) => Err(Closing::Now),
            Poll::Pending => {
                let time = self.shared.config.timeouts.write;
                let rate = self.shared.exchanges.budget.limits().reply_rate_min;
                match self.socket.is_too_slow(cx, time, rate) {
                    true => Err(Closing::Now),
                    false => Ok(false),
                }
            }
        }
    }

    /// Reports sent bytes to the send buffer, so that a waiting producer may go on.
    pub(super) fn report_sent(&mut self, sent: &mut SentBytes) {
        let sent = std::mem::take(sent);
        let limits = &self.shared.config.limits;
        let mut response = self.exchange.response().lock();
        if response.sent(sent.memory, sent.spooled, &mut self.recycled, limits) {
            drop(response);
            self.exchange.notify_capacity();
        }
    }
}

/// Writes a part of `sending` to the response's temporary file, on a thread that may wait for the
/// disk.
pub(super) async fn relieve(
    exchange: &Exchange,
    sending: &mut VecDeque<Segment>,
    mut write: SpoolWrite,
) {
    let write = tokio::task::spawn_blocking(move || {
        write.run();
        write
    });
    // The runtime ends before the thread is done only at a stop.
    let Ok(write) = write.await else { return };
    let rest = exchange.response().lock().send_buffer.end_relief(write, sending);
    drop(rest);
    exchange.notify_capacity();
}

/// Sends with one system call; `None`: the file at the front is not in memory.
fn write_some(
    socket: BorrowedFd,
    segments: &mut VecDeque<Segment>,
    recycled: &mut Vec<u8>,
) -> io::Result<Option<SentBytes>> {
    let sent = match segments.front_mut().and_then(Segment::file_range) {
        Some(range) => match range.send(socket)? {
            Some(len) => len,
            None => return Ok(None),
        },
        None => send_memory(socket, segments)?,
    };
    Ok(Some(advance(segments, sent, recycled)))
}

/// Sends the memory segments at the front in one call.
fn send_memory(socket: BorrowedFd, segments: &VecDeque<Segment>) -> io::Result<usize> {
    if let (1, Some(bytes)) = (segments.len(), segments.front().and_then(Segment::unsent_memory)) {
        return socket::send(socket, bytes);
    }
    let mut slices = [IoSlice::new(&[]); SLICES_MAX];
    let count = memory_slices(segments, &mut slices);
    socket::send_slices(socket, &slices[..count], count < segments.len())
}

/// Gathers the memory segments at the front; returns how many there are.
pub(super) fn memory_slices<'a>(
    segments: &'a VecDeque<Segment>,
    slices: &mut [IoSlice<'a>; SLICES_MAX],
) -> usize {
    let memory = segments.iter().map_while(Segment::unsent_memory);
    let places = slices.iter_mut().zip(memory);
    places.map(|(place, bytes)| *place = IoSlice::new(bytes)).count()
}

/// Removes `len` sent bytes from the front: those of memory segments, or of one file.
pub(super) fn advance(
    segments: &mut VecDeque<Segment>,
    len: usize,
    recycled: &mut Vec<u8>,
) -> SentBytes {
    let mut sent = SentBytes::default();
    let (range, sent_of_file) = match segments.front_mut() {
        Some(Segment::File(range)) => (range, &mut sent.files),
        Some(Segment::Spool(range)) => (range, &mut sent.spooled),
        _ => {
            advance_memory(segments, len, recycled);
            sent.memory = len;
            return sent;
        }
    };
    *sent_of_file = len as u64;
    range.offset += len as u64;
    range.left -= len as u64;
    if range.left == 0 {
        segments.pop_front();
    }
    sent
}

fn advance_memory(segments: &mut VecDeque<Segment>, mut len: usize, recycled: &mut Vec<u8>) {
    while len > 0 {
        let (at, end) = match segments.front_mut() {
            Some(Segment::Bytes { bytes, at }) => (at, bytes.len()),
            Some(Segment::Pinned { at, end, .. }) => (at, *end),
            _ => return,
        };
        let taken = len.min(end - *at);
        *at += taken;
        len -= taken;
        if *at < end {
            return;
        }
        if let Some(Segment::Bytes { bytes, .. }) = segments.pop_front() {
            if bytes.capacity() > recycled.capacity() && bytes.capacity() <= RECYCLED_BYTES_MAX {
                *recycled = bytes;
            }
        }
    }
}
