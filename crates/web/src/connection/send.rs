//! Writing segments to the socket.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll};

use crate::send_buffer::Segment;
use crate::socket;
use crate::stats::add;

use super::{Closing, Connection};

/// Larger buffers are not kept for the next response.
const RECYCLED_BYTES_MAX: usize = 64 * 1024;

/// Bytes one connection sends before others are served.
const TURN_BYTES_MAX: usize = 1024 * 1024;

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
        poll_fn(|cx| self.poll_send(cx, &mut sent)).await?;
        Ok(sent)
    }

    fn poll_send(&mut self, cx: &mut Context, sent: &mut SentBytes) -> Poll<Result<(), Closing>> {
        let mut turn = 0;
        while !self.sending.is_empty() || self.socket.has_output() {
            match self.write_some() {
                Ok(some) => {
                    self.socket.note_progress();
                    sent.add(some);
                    self.sent += some.total();
                    turn += some.total() as usize;
                    add(&self.shared.counters.sent_bytes, some.total());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.report_sent(sent);
                    // The application may wait for the body before it goes on.
                    self.poll_upload(cx);
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
        Poll::Ready(Ok(()))
    }

    /// Sends with one system call.
    fn write_some(&mut self) -> io::Result<SentBytes> {
        let Self { socket, sending, recycled, shared, .. } = self;
        let Some(session) = socket.tls_mut() else {
            return write_some(socket.fd(), sending, recycled);
        };
        let mut sent = SentBytes::default();
        if !session.has_output() {
            sent = session.encrypt_segments(sending, recycled, &mut shared.scratch.lock())?;
        }
        match socket.send_output() {
            // The bytes are in the hands of the session.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && sent.total() > 0 => Ok(sent),
            done => done.map(|()| sent),
        }
    }

    /// Called when the socket is full; true when it takes more after all.
    fn poll_send_again(&mut self, cx: &mut Context) -> Result<bool, Closing> {
        self.socket.start_blocked(self.shared.config.timeouts.write);
        match self.socket.poll_writable(cx) {
            Poll::Ready(Ok(())) => Ok(true),
            Poll::Ready(Err(_)) => Err(Closing::Now),
            Poll::Pending if self.socket.poll_expired(cx) => Err(Closing::Now),
            Poll::Pending => Ok(false),
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

/// Sends with one system call.
fn write_some(
    socket: BorrowedFd,
    segments: &mut VecDeque<Segment>,
    recycled: &mut Vec<u8>,
) -> io::Result<SentBytes> {
    match segments.front_mut() {
        Some(Segment::File { file, offset, left }) => {
            let files = send_range(socket, file, offset, left)?;
            if *left == 0 {
                segments.pop_front();
            }
            Ok(SentBytes { files, ..SentBytes::default() })
        }
        Some(Segment::Spool { file, offset, left }) => {
            let spooled = send_range(socket, file, offset, left)?;
            if *left == 0 {
                segments.pop_front();
            }
            Ok(SentBytes { spooled, ..SentBytes::default() })
        }
        Some(_) => {
            let memory = send_memory(socket, segments)?;
            advance(segments, memory, recycled);
            Ok(SentBytes { memory, ..SentBytes::default() })
        }
        None => Ok(SentBytes::default()),
    }
}

fn send_range(
    socket: BorrowedFd,
    file: &std::fs::File,
    offset: &mut u64,
    left: &mut u64,
) -> io::Result<u64> {
    let len = socket::sendfile(socket, file, *offset, *left)? as u64;
    if len == 0 {
        // The file is shorter than promised: only closing the connection tells the client.
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    *offset += len;
    *left -= len;
    Ok(len)
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

/// Removes `len` sent bytes from the memory segments at the front.
pub(super) fn advance(segments: &mut VecDeque<Segment>, mut len: usize, recycled: &mut Vec<u8>) {
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
