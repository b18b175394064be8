//! The TLS of one connection: between its socket and what it reads and writes.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::task::{ready, Context, Poll};

use rustls::{ServerConfig, ServerConnection};

use crate::send_buffer::Segment;
use crate::socket;
use crate::tls::HTTP2;

use super::send::{advance, memory_slices, SentBytes, SLICES_MAX};

/// Bytes of a file that are read and encrypted at once.
const FILE_BYTES_MAX: usize = 16 * 1024;
/// Buffers that are sent in one call.
const OUTPUT_SLICES_MAX: usize = 64;

/// Whether the first byte of a connection is that of a request without TLS: the methods of HTTP begin with letters,
/// and TLS with a number below them (RFC 8446 section 5.1).
pub(super) fn begins_http(first: u8) -> bool {
    first.is_ascii_uppercase()
}

/// The socket below a session.
pub(super) trait RecordSocket {
    /// Reads what arrives, encrypted.
    fn poll_recv_raw(&mut self, cx: &mut Context, into: &mut [u8]) -> Poll<io::Result<usize>>;

    fn record_fd(&self) -> BorrowedFd<'_>;
}

/// A TLS session. It encrypts no more before the socket has taken what was encrypted, so that a slow
/// client holds at most the bytes of one turn (64 KiB).
pub(super) struct TlsSession {
    rustls: ServerConnection,
    /// A response was cut off.
    cut: bool,
}

impl TlsSession {
    pub fn new(config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        Ok(Self { rustls: ServerConnection::new(config)?, cut: false })
    }

    pub fn is_handshaking(&self) -> bool {
        self.rustls.is_handshaking()
    }

    /// Whether the client chose HTTP/2.
    pub fn is_http2(&self) -> bool {
        self.rustls.alpn_protocol() == Some(HTTP2)
    }

    /// The client's certificate.
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        self.rustls.peer_certificates()?.first().map(|certificate| &**certificate)
    }

    /// Reads decrypted bytes; 0 means that the peer has ended its side. Many clients end the
    /// connection without saying so in TLS; a request says its own length.
    pub fn poll_recv(
        &mut self,
        socket: &mut impl RecordSocket,
        cx: &mut Context,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.rustls.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Poll::Ready(Ok(0));
                }
                done => return Poll::Ready(done),
            }
            ready!(self.poll_records(socket, cx, &mut None))?;
        }
    }

    /// Reads once from the socket and decrypts that. The first byte is kept in `first`; a handshake
    /// that begins as HTTP does fails before an alert is sent, for an answer in HTTP.
    pub fn poll_records(
        &mut self,
        socket: &mut impl RecordSocket,
        cx: &mut Context,
        first: &mut Option<u8>,
    ) -> Poll<io::Result<usize>> {
        let len = match self.rustls.read_tls(&mut RecordReader { socket, cx, first }) {
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            Err(error) => return Poll::Ready(Err(error)),
        };
        if self.is_handshaking() && first.is_some_and(begins_http) {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        let processed = self.rustls.process_new_packets();
        // An alert, or an answer to a change of keys. What a full socket does not take goes out
        // before the next response.
        let _ = self.send_output(socket.record_fd());
        match processed {
            Ok(_) => Poll::Ready(Ok(len)),
            Err(error) => Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error))),
        }
    }

    /// Whether decrypted bytes wait to be read.
    pub fn has_input(&mut self) -> bool {
        // A read of nothing would say nothing, so this asks for the state of the session.
        self.rustls.process_new_packets().is_ok_and(|state| state.plaintext_bytes_to_read() > 0)
    }

    pub fn has_output(&self) -> bool {
        self.rustls.wants_write()
    }

    /// Sends encrypted output with one call; returns how many bytes.
    pub fn send_output(&mut self, socket: BorrowedFd) -> io::Result<usize> {
        match self.has_output() {
            true => self.rustls.write_tls(&mut RecordWriter(socket)),
            false => Ok(0),
        }
    }

    /// Encrypts bytes; returns how many were taken.
    pub fn encrypt(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.rustls.writer().write(bytes)
    }

    /// Encrypts the bytes of all slices together: a record may hold the end of one and the beginning of
    /// the next. Returns how many were taken.
    pub fn encrypt_slices(&mut self, slices: &[IoSlice]) -> io::Result<usize> {
        match slices {
            // Of several slices rustls makes a list on the heap.
            [one] => self.encrypt(one),
            _ => self.rustls.writer().write_vectored(slices),
        }
    }

    /// Encrypts as much of the segments as one turn sends, once what was encrypted before is sent. `None`: nothing, as
    /// the file at the front is not in memory.
    pub fn encrypt_segments(
        &mut self,
        segments: &mut VecDeque<Segment>,
        recycled: &mut Vec<u8>,
        scratch: &mut [u8],
    ) -> io::Result<Option<SentBytes>> {
        let mut all = SentBytes::default();
        while let Some(front) = segments.front_mut() {
            let taken = if let Some(range) = front.file_range() {
                let room = scratch.len().min(FILE_BYTES_MAX);
                match range.read(&mut scratch[..room])? {
                    Some(len) => self.encrypt(&scratch[..len])?,
                    None => return Ok((all.total() > 0).then_some(all)),
                }
            } else {
                let mut slices = [IoSlice::new(&[]); SLICES_MAX];
                let count = memory_slices(segments, &mut slices);
                self.encrypt_slices(&slices[..count])?
            };
            if taken == 0 {
                break;
            }
            all.add(advance(segments, taken, recycled));
        }
        Ok(Some(all))
    }

    /// A response was cut off: the peer must not take the end for a good one.
    pub fn mark_cut(&mut self) {
        self.cut = true;
    }

    /// Says that nothing more is sent.
    pub fn end(&mut self) {
        if !self.cut {
            self.rustls.send_close_notify();
        }
    }
}

/// Reads records from a socket.
struct RecordReader<'a, 'b, S> {
    socket: &'a mut S,
    cx: &'a mut Context<'b>,
    first: &'a mut Option<u8>,
}

impl<S: RecordSocket> Read for RecordReader<'_, '_, S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.socket.poll_recv_raw(self.cx, into) {
            Poll::Ready(done) => done.inspect(|len| {
                *self.first = self.first.or(into[..*len].first().copied());
            }),
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

/// Writes records to a socket.
struct RecordWriter<'a>(BorrowedFd<'a>);

impl Write for RecordWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        socket::send(self.0, bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice]) -> io::Result<usize> {
        match slices {
            [one] => socket::send(self.0, one),
            all => socket::send_slices(self.0, &all[..all.len().min(OUTPUT_SLICES_MAX)], false),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
