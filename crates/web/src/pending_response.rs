//! The state of one response, shared by the thread that produces it and the IO
//! thread that sends it. All its transitions are here.

use std::collections::VecDeque;
use std::mem;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;

use crate::body_part::BodyPart;
use crate::budget::ConnectionBudget;
use crate::feeder::Feeder;
use crate::limits::Limits;
use crate::read_buffer::ReadBuffer;
use crate::response_head::{EncodedHead, ResponseFraming};
use crate::send_buffer::{chunk_size_line, Segment, SendBuffer, SpoolWrite};

/// While small writes are gathered, this much output is sent without waiting.
const GATHERED_BYTES_MAX: usize = 16 * 1024;

/// Whether a producer may go on writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// Yes.
    Available,
    /// No: it waits until the client has taken more.
    Full,
}

/// The client is gone or already got another response: stop producing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientGone;

/// The phase of a response.
///
/// `Waiting → Streaming → Ended`, or `Waiting → Ended` at once; `Hijacked` and
/// `TimedOut` only from `Waiting`; `Closed` from every phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponsePhase {
    /// Nothing of the final response exists.
    Waiting,
    /// The head was given, the body is being produced.
    Streaming,
    /// The response is complete.
    Ended,
    /// The application owns the socket.
    Hijacked,
    /// The engine answered 503: the request timeout passed, or the server stops.
    TimedOut,
    /// The connection is closed.
    Closed,
}

/// What the connection's task on the IO thread does about this response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskState {
    /// It checks again by itself.
    Scheduled,
    /// It waits for a wake-up.
    Parked,
    /// It checks in a moment; wake it only for output that should not wait.
    Gathering,
}

/// What the connection has to do next.
pub(crate) enum NextOutput {
    /// Segments were taken; `last` says that nothing comes after them.
    Send { last: bool },
    /// Nothing yet. `streaming` says that the response has begun.
    Pending { streaming: bool },
    /// Everything was sent.
    Done,
    /// The head was sent, and this gives the body.
    Fed { feeder: Box<dyn Feeder>, chunked: bool },
    /// The application owns the socket.
    Hijacked,
}

pub(crate) struct PendingResponse {
    phase: ResponsePhase,
    /// Whether the connection may serve another request after this response.
    keep_alive: bool,
    framing: ResponseFraming,
    pub send_buffer: SendBuffer,
    task: TaskState,
    /// The connection's output buffer, lent to the next head.
    spare: Vec<u8>,
    /// Bytes read past the request; a hijack takes them along.
    unread: ReadBuffer,
    /// Open while the phase is `Waiting`.
    socket: RawFd,
    /// The engine's end of what the application got by a hijack of an encrypted connection.
    relayed: Option<OwnedFd>,
    /// The producer of a streamed body failed midway.
    cut: bool,
    /// Gives the body of a response that no thread produces.
    feeder: Option<Box<dyn Feeder>>,
    /// Status of the final response, 0 before it begins.
    status: u16,
    /// Bytes of the final response's head, which the access log leaves out.
    head_bytes: usize,
    /// A producer waits for capacity.
    producer_waits: bool,
    /// The producer's wait must end early.
    interrupted: bool,
}

impl PendingResponse {
    pub fn new(socket: RawFd, budget: &Arc<ConnectionBudget>) -> Self {
        Self {
            phase: ResponsePhase::Waiting,
            keep_alive: false,
            framing: ResponseFraming::Raw,
            send_buffer: SendBuffer::new(budget),
            task: TaskState::Scheduled,
            spare: Vec::new(),
            unread: ReadBuffer::default(),
            socket,
            relayed: None,
            cut: false,
            feeder: None,
            status: 0,
            head_bytes: 0,
            producer_waits: false,
            interrupted: false,
        }
    }

    pub fn socket(&self) -> RawFd {
        self.socket
    }

    pub fn phase(&self) -> ResponsePhase {
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

    /// Whether the response is shorter than its producer meant it to be.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    pub fn set_relayed(&mut self, ours: OwnedFd) {
        self.relayed = Some(ours);
    }

    pub fn take_relayed(&mut self) -> Option<OwnedFd> {
        self.relayed.take()
    }

    pub fn take_spare(&mut self) -> Vec<u8> {
        mem::take(&mut self.spare)
    }

    /// Gives a sent buffer back for the next response.
    pub fn set_spare(&mut self, mut spare: Vec<u8>) {
        spare.clear();
        self.spare = spare;
    }

    pub fn set_unread(&mut self, unread: ReadBuffer) {
        self.unread = unread;
    }

    pub fn take_unread(&mut self) -> ReadBuffer {
        mem::take(&mut self.unread)
    }

    /// Prepares for the next request.
    pub fn reset(&mut self) {
        self.phase = ResponsePhase::Waiting;
        self.keep_alive = false;
        self.framing = ResponseFraming::Raw;
        self.send_buffer.clear();
        self.task = TaskState::Scheduled;
        self.unread = ReadBuffer::default();
        self.relayed = None;
        self.cut = false;
        self.feeder = None;
        self.status = 0;
        self.head_bytes = 0;
        self.producer_waits = false;
        self.interrupted = false;
    }

    /// Gives back the memory that an idle connection does not need.
    pub fn shrink(&mut self) {
        self.send_buffer.shrink();
        self.spare = Vec::new();
    }

    // The producer's side. A `bool` says whether the IO thread must be woken.

    /// Takes the whole response: the head, what of the body is in its buffer, and the rest of that.
    pub fn complete(&mut self, head: EncodedHead, tail: Option<BodyPart>) -> bool {
        if self.phase != ResponsePhase::Waiting {
            return false;
        }
        self.take_head(head);
        if let Some(part) = tail {
            let len = part.len();
            self.send_buffer.push_part(part, len);
        }
        self.phase = ResponsePhase::Ended;
        self.needs_wake()
    }

    /// Adds an interim response.
    pub fn interim(&mut self, head: EncodedHead) -> bool {
        if self.phase != ResponsePhase::Waiting {
            return false;
        }
        self.send_buffer.push_head(head);
        self.needs_wake()
    }

    /// Begins a streamed response with its head.
    pub fn begin(&mut self, head: EncodedHead) -> bool {
        if self.phase != ResponsePhase::Waiting {
            return false;
        }
        self.phase = match head.framing {
            ResponseFraming::None | ResponseFraming::Length(0) => ResponsePhase::Ended,
            _ => ResponsePhase::Streaming,
        };
        self.take_head(head);
        self.needs_wake()
    }

    fn take_head(&mut self, head: EncodedHead) {
        self.status = head.status;
        self.head_bytes = head.len;
        self.keep_alive = head.keep_alive;
        self.framing = head.framing;
        self.send_buffer.push_head(head);
    }

    /// Begins a response whose body is fed. Returns the feeder if the response has no body, or is not wanted.
    pub fn begin_fed(
        &mut self,
        head: EncodedHead,
        feeder: Box<dyn Feeder>,
    ) -> (bool, Option<Box<dyn Feeder>>) {
        let head = EncodedHead { keep_alive: false, ..head };
        if self.phase != ResponsePhase::Waiting || head.framing == ResponseFraming::None {
            return (self.begin(head), Some(feeder));
        }
        self.feeder = Some(feeder);
        (self.begin(head), None)
    }

    /// Adds to a streamed body; returns the capacity left and whether to wake the IO thread.
    pub fn write(&mut self, bytes: &[u8], limits: &Limits) -> Result<(Capacity, bool), ClientGone> {
        let len = self.admit(bytes.len() as u64)? as usize;
        if len > 0 {
            self.frame(len as u64, |send_buffer| send_buffer.append(&bytes[..len]));
        }
        Ok((self.capacity(limits), self.needs_wake()))
    }

    /// As [`PendingResponse::write`], for a [`BodyPart`].
    pub fn write_part(
        &mut self,
        part: BodyPart,
        limits: &Limits,
    ) -> Result<(Capacity, bool), ClientGone> {
        let len = self.admit(part.len())?;
        if len > 0 {
            self.frame(len, |send_buffer| send_buffer.push_part(part, len));
        }
        Ok((self.capacity(limits), self.needs_wake()))
    }

    /// Ends a streamed body. `complete` is false when its producer failed.
    pub fn end(&mut self, complete: bool) -> bool {
        if self.phase != ResponsePhase::Streaming {
            return false;
        }
        match self.framing {
            ResponseFraming::Chunked if complete => self.send_buffer.append(b"0\r\n\r\n"),
            // Fewer bytes than promised: only the end of the connection tells the client.
            ResponseFraming::Length(_) => self.keep_alive = false,
            _ => self.keep_alive &= complete,
        }
        self.cut = !complete || matches!(self.framing, ResponseFraming::Length(_));
        self.phase = ResponsePhase::Ended;
        self.needs_wake()
    }

    /// Notes the status of a head that the application sends by itself after [`Self::hijack`].
    pub fn announce(&mut self, status: u16) {
        self.status = status;
    }

    /// Gives the application the socket and the bytes read past the request.
    pub fn hijack(&mut self) -> Option<(RawFd, ReadBuffer)> {
        if self.phase != ResponsePhase::Waiting {
            return None;
        }
        self.phase = ResponsePhase::Hijacked;
        Some((self.socket, mem::take(&mut self.unread)))
    }

    pub fn undo_hijack(&mut self, unread: ReadBuffer) {
        self.phase = ResponsePhase::Waiting;
        self.unread = unread;
    }

    /// How many of `len` bytes belong to the body.
    fn admit(&self, len: u64) -> Result<u64, ClientGone> {
        match (self.phase, self.framing) {
            (ResponsePhase::Streaming, ResponseFraming::Length(left)) => Ok(len.min(left)),
            (ResponsePhase::Streaming, _) => Ok(len),
            // The promised bytes are complete, or the response has no body.
            (ResponsePhase::Ended, _) => Ok(0),
            _ => Err(ClientGone),
        }
    }

    /// Adds one part of the body in the framing of the head.
    fn frame(&mut self, len: u64, add: impl FnOnce(&mut SendBuffer)) {
        let chunked = matches!(self.framing, ResponseFraming::Chunked);
        if chunked {
            let (line, line_len) = chunk_size_line(len);
            self.send_buffer.append(&line[..line_len]);
        }
        add(&mut self.send_buffer);
        if chunked {
            self.send_buffer.append(b"\r\n");
        }
        if let ResponseFraming::Length(left) = &mut self.framing {
            *left -= len;
            if *left == 0 {
                self.phase = ResponsePhase::Ended;
            }
        }
    }

    pub fn capacity(&self, limits: &Limits) -> Capacity {
        if self.send_buffer.has_capacity(limits) {
            Capacity::Available
        } else {
            Capacity::Full
        }
    }

    /// See [`SendBuffer::end_spool`]; also returns whether to wake the IO thread.
    pub fn end_spool(&mut self, write: SpoolWrite) -> (VecDeque<Segment>, bool) {
        (self.send_buffer.end_spool(write), self.needs_wake())
    }

    /// Marks that the producer waits; false when it was interrupted.
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

    fn needs_wake(&mut self) -> bool {
        let wake = match self.task {
            TaskState::Scheduled => false,
            TaskState::Parked => true,
            TaskState::Gathering => {
                self.phase != ResponsePhase::Streaming
                    || self.send_buffer.memory() >= GATHERED_BYTES_MAX
            }
        };
        if wake {
            self.task = TaskState::Scheduled;
        }
        wake
    }

    // The IO thread's side.

    /// Moves the output into `into`, which must be empty. With `gather`, little
    /// output of an unfinished stream is left to grow.
    pub fn next_output(&mut self, into: &mut VecDeque<Segment>, gather: bool) -> NextOutput {
        self.task = TaskState::Scheduled;
        if self.phase == ResponsePhase::Hijacked {
            return NextOutput::Hijacked;
        }
        if self.feeder.is_some() && self.send_buffer.is_empty() {
            let chunked = matches!(self.framing, ResponseFraming::Chunked);
            if let Some(feeder) = self.feeder.take() {
                return NextOutput::Fed { feeder, chunked };
            }
        }
        let streaming = self.phase == ResponsePhase::Streaming;
        if gather && streaming && self.send_buffer.memory() < GATHERED_BYTES_MAX {
            self.task = TaskState::Gathering;
            return NextOutput::Pending { streaming };
        }
        // What is being spooled comes after all that can be taken now.
        let last = self.phase == ResponsePhase::Ended && !self.send_buffer.is_spooling();
        if !self.send_buffer.is_empty() {
            self.send_buffer.take(into);
            return NextOutput::Send { last };
        }
        if last {
            return NextOutput::Done;
        }
        self.task = TaskState::Parked;
        NextOutput::Pending { streaming: self.phase != ResponsePhase::Waiting }
    }

    /// Notes the bytes sent; true when a waiting producer should be woken.
    pub fn sent(
        &mut self,
        memory: usize,
        spooled: u64,
        recycled: &mut Vec<u8>,
        limits: &Limits,
    ) -> bool {
        self.send_buffer.sent(memory, spooled, recycled);
        self.producer_waits && self.send_buffer.has_ample_capacity(limits)
    }

    /// Everything was sent; true when a waiting producer should be woken.
    pub fn settle(&mut self) -> bool {
        self.send_buffer.settle();
        self.producer_waits
    }

    /// Whether the final response has not begun.
    pub fn is_waiting(&self) -> bool {
        self.phase == ResponsePhase::Waiting
    }

    /// The request timeout has passed, or the server stops; true when the engine must answer instead.
    pub fn time_out(&mut self) -> bool {
        let waiting = self.phase == ResponsePhase::Waiting;
        if waiting {
            self.phase = ResponsePhase::TimedOut;
        }
        waiting
    }

    /// The connection closes. Returns the buffer to be dropped outside the lock.
    pub fn close(&mut self) -> SendBuffer {
        if !matches!(self.phase, ResponsePhase::Hijacked | ResponsePhase::TimedOut) {
            self.phase = ResponsePhase::Closed;
        }
        mem::take(&mut self.send_buffer)
    }
}

#[cfg(test)]
mod tests;
