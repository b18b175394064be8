//! Writing segments to a socket.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use crate::exchange::Exchange;
use crate::send_buffer::{Segment, SpoolWrite};
use crate::socket;

/// Larger buffers are not kept for the next response.
const RECYCLED_BYTES_MAX: usize = 64 * 1024;

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
pub(super) fn write_some(
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
