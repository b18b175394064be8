//! The state of one answer, shared by the thread that produces it and the IO
//! thread that sends it. All transitions are here.

use std::collections::VecDeque;
use std::mem;
use std::os::fd::RawFd;

use crate::limits::Limits;
use crate::outbox::{chunk_size_line, Outbox, Segment};
use crate::piece::Piece;
use crate::reply_head::ReplyFraming;
use crate::unread::Unread;
use crate::wire_text;

/// While small writes are gathered, this much output is sent without waiting.
const GATHERED_BYTES_MAX: usize = 16 * 1024;

/// Whether the producer may go on writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Yes.
    Open,
    /// The bounds are used up: wait for room before the next write.
    Full,
}

/// The client is gone, or was told something else already: stop producing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// Where an answer is in its life.
///
/// `Waiting → Streaming → Ended`, or `Waiting → Ended` at once; `Hijacked` and
/// `Late` only from `Waiting`; `Gone` from everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing of the final answer exists.
    Waiting,
    /// The head was given, the body is being produced.
    Streaming,
    /// All of it was given.
    Ended,
    /// The application owns the socket.
    Hijacked,
    /// The engine answered 503 because the request timeout passed.
    Late,
    /// The connection is closed.
    Gone,
}

/// What the IO thread is doing about this answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attention {
    /// It will look again by itself.
    Coming,
    /// It looks when told: tell it about anything.
    Asleep,
    /// It looks in a moment: tell it only what should not wait.
    Gathering,
}

/// What the IO thread finds when it looks.
pub(crate) enum Look {
    /// Segments were taken; `last` says that nothing comes after them.
    Send { last: bool },
    /// Nothing yet.
    Nothing { streaming: bool },
    /// Everything was sent.
    Done,
    /// The application owns the socket.
    Hijacked,
}

/// One answer.
pub(crate) struct Answer {
    phase: Phase,
    /// Whether the connection may serve another request after this answer.
    keep_alive: bool,
    framing: ReplyFraming,
    outbox: Outbox,
    attention: Attention,
    /// The connection's output buffer, lent to the next head.
    spare: Vec<u8>,
    /// Bytes read past the request, for whoever hijacks the connection.
    unread: Unread,
    /// Open while the phase is `Waiting`.
    socket: RawFd,
    /// Status of the final answer, 0 before there is one.
    status: u16,
    /// Bytes of the final answer's head, for the access log.
    head_bytes: usize,
    /// A producer waits for room.
    producer_waits: bool,
    /// The producer's wait shall end early.
    interrupted: bool,
}

impl Answer {
    pub fn new(socket: RawFd) -> Self {
        Self {
            phase: Phase::Waiting,
            keep_alive: false,
            framing: ReplyFraming::Raw,
            outbox: Outbox::default(),
            attention: Attention::Coming,
            spare: Vec::new(),
            unread: Unread::default(),
            socket,
            status: 0,
            head_bytes: 0,
            producer_waits: false,
            interrupted: false,
        }
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }

    pub fn keep_alive(&self) -> bool {
        self.keep_alive
    }

    pub fn status(&self) -> u16 {
        self.status
    }

    pub fn head_bytes(&self) -> usize {
        self.head_bytes
    }

    pub fn take_spare(&mut self) -> Vec<u8> {
        mem::take(&mut self.spare)
    }

    /// Gives a sent buffer back for the next answer.
    pub fn set_spare(&mut self, mut spare: Vec<u8>) {
        spare.clear();
        self.spare = spare;
    }

    pub fn set_unread(&mut self, unread: Unread) {
        self.unread = unread;
    }

    pub fn take_unread(&mut self) -> Unread {
        mem::take(&mut self.unread)
    }

    /// Ready for the next request.
    pub fn reset(&mut self) {
        self.phase = Phase::Waiting;
        self.keep_alive = false;
        self.framing = ReplyFraming::Raw;
        self.outbox.clear();
        self.attention = Attention::Coming;
        self.unread = Unread::default();
        self.status = 0;
        self.head_bytes = 0;
        self.producer_waits = false;
        self.interrupted = false;
    }

    /// Gives back what an idle connection need not hold.
    pub fn shrink(&mut self) {
        self.outbox.shrink();
        self.spare = Vec::new();
    }

    // The producer's side. Those that return `bool` say whether the IO thread
    // must be told.

    /// The whole answer at once. The first `head_bytes` of `out` are its head.
    pub fn complete(
        &mut self,
        out: Vec<u8>,
        head_bytes: usize,
        tail: Option<Piece>,
        keep_alive: bool,
    ) -> bool {
        if self.phase != Phase::Waiting {
            return false;
        }
        self.status = wire_text::status_of(&out);
        self.head_bytes = head_bytes;
        self.outbox.push_buffer(out);
        if let Some(piece) = tail {
            let len = piece.len();
            self.outbox.push_piece(piece, len);
        }
        self.keep_alive = keep_alive;
        self.phase = Phase::Ended;
        self.wants_attention()
    }

    /// Bytes before the final answer (an interim response).
    pub fn interim(&mut self, bytes: &[u8]) -> bool {
        if self.phase != Phase::Waiting {
            return false;
        }
        self.outbox.append(bytes);
        self.wants_attention()
    }

    /// The head of a streamed answer.
    pub fn begin(&mut self, head: Vec<u8>, framing: ReplyFraming, keep_alive: bool) -> bool {
        if self.phase != Phase::Waiting {
            return false;
        }
        self.status = wire_text::status_of(&head);
        self.head_bytes = head.len();
        self.outbox.push_buffer(head);
        self.keep_alive = keep_alive;
        self.phase = match framing {
            ReplyFraming::None | ReplyFraming::Length(0) => Phase::Ended,
            _ => Phase::Streaming,
        };
        self.framing = framing;
        self.wants_attention()
    }

    /// A part of a streamed body: the room left, and whether to tell the IO thread.
    pub fn write(&mut self, bytes: &[u8], limits: &Limits) -> Result<(Room, bool), Gone> {
        let len = self.admit(bytes.len() as u64)? as usize;
        if len > 0 {
            self.frame(len as u64, |outbox| outbox.stream(&bytes[..len], limits));
        }
        Ok((self.room(limits), self.wants_attention()))
    }

    /// As [`Answer::write`], for a piece.
    pub fn write_piece(&mut self, piece: Piece, limits: &Limits) -> Result<(Room, bool), Gone> {
        let len = self.admit(piece.len())?;
        if len > 0 {
            self.frame(len, |outbox| outbox.stream_piece(piece, len, limits));
        }
        Ok((self.room(limits), self.wants_attention()))
    }

    /// The end of a streamed body. `complete` is false when its producer failed.
    pub fn end(&mut self, complete: bool) -> bool {
        if self.phase != Phase::Streaming {
            return false;
        }
        match self.framing {
            ReplyFraming::Chunked if complete => self.outbox.append(b"0\r\n\r\n"),
            // Fewer bytes than promised: only the end of the connection tells the client.
            ReplyFraming::Length(_) => self.keep_alive = false,
            _ => self.keep_alive &= complete,
        }
        self.phase = Phase::Ended;
        self.wants_attention()
    }

    /// The application takes the socket: what was read past the request.
    pub fn hijack(&mut self) -> Option<(RawFd, Unread)> {
        if self.phase != Phase::Waiting {
            return None;
        }
        self.phase = Phase::Hijacked;
        Some((self.socket, mem::take(&mut self.unread)))
    }

    /// The hand-over failed: as before.
    pub fn unhijack(&mut self, unread: Unread) {
        self.phase = Phase::Waiting;
        self.unread = unread;
    }

    /// How much of a write of `len` bytes belongs to the body.
    fn admit(&self, len: u64) -> Result<u64, Gone> {
        match (self.phase, self.framing) {
            (Phase::Streaming, ReplyFraming::Length(left)) => Ok(len.min(left)),
            (Phase::Streaming, _) => Ok(len),
            // The promised bytes are complete, or the answer has no body.
            (Phase::Ended, _) => Ok(0),
            _ => Err(Gone),
        }
    }

    /// Adds one part of the body in the framing of the head.
    fn frame(&mut self, len: u64, add: impl FnOnce(&mut Outbox)) {
        let chunked = matches!(self.framing, ReplyFraming::Chunked);
        if chunked {
            let (line, line_len) = chunk_size_line(len);
            self.outbox.append(&line[..line_len]);
        }
        add(&mut self.outbox);
        if chunked {
            self.outbox.append(b"\r\n");
        }
        if let ReplyFraming::Length(left) = &mut self.framing {
            *left -= len;
            if *left == 0 {
                self.phase = Phase::Ended;
            }
        }
    }

    pub fn room(&self, limits: &Limits) -> Room {
        if self.outbox.has_room(limits) {
            Room::Open
        } else {
            Room::Full
        }
    }

    /// Marks that the producer waits; false when it need not or shall not.
    pub fn start_wait(&mut self) -> bool {
        let interrupted = mem::take(&mut self.interrupted);
        self.producer_waits = !interrupted;
        !interrupted
    }

    pub fn end_wait(&mut self) {
        self.producer_waits = false;
    }

    pub fn interrupt(&mut self) {
        self.interrupted = true;
    }

    fn wants_attention(&mut self) -> bool {
        let tell = match self.attention {
            Attention::Coming => false,
            Attention::Asleep => true,
            Attention::Gathering => {
                self.phase != Phase::Streaming || self.outbox.memory() >= GATHERED_BYTES_MAX
            }
        };
        if tell {
            self.attention = Attention::Coming;
        }
        tell
    }

    // The IO thread's side.

    /// Takes what is there into `into`, which must be empty. With `gather`,
    /// little output of an unfinished stream is left to grow.
    pub fn look(&mut self, into: &mut VecDeque<Segment>, gather: bool) -> Look {
        self.attention = Attention::Coming;
        if self.phase == Phase::Hijacked {
            return Look::Hijacked;
        }
        let streaming = self.phase == Phase::Streaming;
        if gather && streaming && self.outbox.memory() < GATHERED_BYTES_MAX {
            self.attention = Attention::Gathering;
            return Look::Nothing { streaming };
        }
        let last = self.phase == Phase::Ended;
        if !self.outbox.is_empty() {
            self.outbox.take(into);
            return Look::Send { last };
        }
        if last {
            return Look::Done;
        }
        self.attention = Attention::Asleep;
        Look::Nothing { streaming }
    }

    /// Notes what was sent; true when a waiting producer should be woken.
    pub fn sent(
        &mut self,
        memory: usize,
        spooled: u64,
        recycled: &mut Vec<u8>,
        limits: &Limits,
    ) -> bool {
        self.outbox.sent(memory, spooled, recycled);
        self.producer_waits && self.outbox.has_ample_room(limits)
    }

    /// Whether the final answer has not begun.
    pub fn is_waiting(&self) -> bool {
        self.phase == Phase::Waiting
    }

    /// The request timeout has passed; true when the engine may answer instead.
    pub fn give_up(&mut self) -> bool {
        let waiting = self.phase == Phase::Waiting;
        if waiting {
            self.phase = Phase::Late;
        }
        waiting
    }

    /// The connection closes. Returns what must be dropped outside the lock.
    pub fn close(&mut self) -> Outbox {
        if !matches!(self.phase, Phase::Hijacked | Phase::Late) {
            self.phase = Phase::Gone;
        }
        mem::take(&mut self.outbox)
    }
}

#[cfg(test)]
mod tests;
