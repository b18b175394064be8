//! Writing segments to the socket.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::os::fd::RawFd;
use std::task::{Context, Poll};

use crate::outbox::Segment;
use crate::socket::{self, SLICES_MAX};

use super::{Connection, End};

/// Larger buffers are not kept for the next answer.
const RECYCLED_BYTES_MAX: usize = 64 * 1024;

/// Bytes written from one connection before others get their turn.
const TURN_BYTES_MAX: usize = 1024 * 1024;

/// What was sent, as the outbox counts it.
#[derive(Clone, Copy, Default)]
pub(super) struct Sent {
    pub memory: usize,
    pub spooled: u64,
    pub files: u64,
}

impl Sent {
    fn total(self) -> u64 {
        self.memory as u64 + self.spooled + self.files
    }

    fn add(&mut self, other: Self) {
        self.memory += other.memory;
        self.spooled += other.spooled;
        self.files += other.files;
    }
}

impl Connection {
    /// Sends everything in `sending`. While the client is slow the bounds of
    /// the outbox are told what went.
    pub(super) async fn send(&mut self) -> Result<Sent, End> {
        let mut sent = Sent::default();
        poll_fn(|cx| self.poll_send(cx, &mut sent)).await?;
        Ok(sent)
    }

    fn poll_send(&mut self, cx: &mut Context, sent: &mut Sent) -> Poll<Result<(), End>> {
        let mut turn = 0;
        while !self.sending.is_empty() {
            match write_some(self.wire.fd(), &mut self.sending, &mut self.recycled) {
                Ok(some) => {
                    self.wire.note_progress();
                    sent.add(some);
                    self.sent += some.total();
                    turn += some.total() as usize;
                    self.shared.counters.sent_bytes.add(some.total());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.report(sent);
                    if !self.poll_send_again(cx)? {
                        return Poll::Pending;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Poll::Ready(Err(End::Close)),
            }
            if turn > TURN_BYTES_MAX {
                self.report(sent);
                // The IO thread does not sleep now: nobody else flushes or
                // delivers the answers of other connections.
                self.shared.flush_submitted();
                self.shared.amid_turn();
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// The socket is full: true when it takes more at once after all.
    fn poll_send_again(&mut self, cx: &mut Context) -> Result<bool, End> {
        self.wire.start_blocked(self.shared.config.timeouts.write);
        match self.wire.poll_writable(cx) {
            Poll::Ready(Ok(())) => Ok(true),
            Poll::Ready(Err(_)) => Err(End::Close),
            Poll::Pending if self.wire.poll_expired(cx) => Err(End::Close),
            Poll::Pending => Ok(false),
        }
    }

    /// Tells the outbox what went, so that a waiting producer may go on.
    pub(super) fn report(&mut self, sent: &mut Sent) {
        let sent = std::mem::take(sent);
        let limits = &self.shared.config.limits;
        let mut answer = self.exchange.answer().lock();
        if answer.sent(sent.memory, sent.spooled, &mut self.recycled, limits) {
            drop(answer);
            self.exchange.notify_room();
        }
    }
}

/// One system call's worth of output.
fn write_some(
    socket: RawFd,
    segments: &mut VecDeque<Segment>,
    recycled: &mut Vec<u8>,
) -> io::Result<Sent> {
    match segments.front_mut() {
        Some(Segment::File { file, offset, left }) => {
            let files = send_range(socket, file, offset, left)?;
            if *left == 0 {
                segments.pop_front();
            }
            Ok(Sent { files, ..Sent::default() })
        }
        Some(Segment::Spool { file, offset, left }) => {
            let spooled = send_range(socket, file, offset, left)?;
            if *left == 0 {
                segments.pop_front();
            }
            Ok(Sent { spooled, ..Sent::default() })
        }
        Some(_) => {
            let memory = send_memory(socket, segments)?;
            advance(segments, memory, recycled);
            Ok(Sent { memory, ..Sent::default() })
        }
        None => Ok(Sent::default()),
    }
}

fn send_range(
    socket: RawFd,
    file: &std::fs::File,
    offset: &mut u64,
    left: &mut u64,
) -> io::Result<u64> {
    let len = socket::sendfile(socket, file, *offset, *left)? as u64;
    if len == 0 {
        // The file is shorter than promised: only the end of the connection can say so.
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    *offset += len;
    *left -= len;
    Ok(len)
}

/// Sends the memory segments at the front in one call.
fn send_memory(socket: RawFd, segments: &VecDeque<Segment>) -> io::Result<usize> {
    if let (1, Some(bytes)) = (segments.len(), segments.front().and_then(memory)) {
        return socket::send(socket, bytes, false);
    }
    let mut slices: [&[u8]; SLICES_MAX] = [&[]; SLICES_MAX];
    let mut count = 0;
    for bytes in segments.iter().map_while(memory).take(SLICES_MAX) {
        slices[count] = bytes;
        count += 1;
    }
    // What follows goes into the same packet.
    socket::send_slices(socket, &slices[..count], count < segments.len())
}

/// The unsent bytes of a segment in memory.
fn memory(segment: &Segment) -> Option<&[u8]> {
    match segment {
        Segment::Bytes { bytes, at } => Some(&bytes[*at..]),
        Segment::Foreign { memory, at, end } => (**memory).as_ref().get(*at..*end),
        Segment::File { .. } | Segment::Spool { .. } => None,
    }
}

/// Takes `len` sent bytes off the memory segments at the front.
fn advance(segments: &mut VecDeque<Segment>, mut len: usize, recycled: &mut Vec<u8>) {
    while len > 0 {
        let (at, end) = match segments.front_mut() {
            Some(Segment::Bytes { bytes, at }) => (at, bytes.len()),
            Some(Segment::Foreign { at, end, .. }) => (at, *end),
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
