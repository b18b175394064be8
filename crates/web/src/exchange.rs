//! One request and its answer: what crosses between the IO thread and Ruby.

use std::fmt;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::answer::{Answer, Gone, Phase, Room};
use crate::head::{RequestHead, Version};
use crate::piece::Piece;
use crate::reply_head::ReplyFraming;
use crate::request_body::RequestBody;
use crate::shared::Shared;
use crate::wire_text;

/// Longest text [`Exchange::describe`] gives.
const DESCRIPTION_BYTES_MAX: usize = 200;

/// One request and the place for its answer.
///
/// It is shared as `Arc<Exchange>`; the connection takes it back for its next
/// request once nobody else holds it, so drop it soon after the answer ended.
/// Exactly one outcome counts: the first of [`complete`](Exchange::complete),
/// [`begin`](Exchange::begin) … [`end`](Exchange::end),
/// [`hijack`](Exchange::hijack), [`shed`](Exchange::shed) or
/// [`abandon`](Exchange::abandon); later ones do nothing.
pub struct Exchange {
    id: u64,
    pub(crate) head: RequestHead,
    pub(crate) body: RequestBody,
    /// Capacity for the next body kept in memory.
    pub(crate) body_spare: Vec<u8>,
    received_at: Instant,
    listener: usize,
    remote_addr: Arc<str>,
    /// What the client asked for and the request count allows.
    may_keep_alive: bool,
    shared: Arc<Shared>,
    waker: Option<Waker>,
    answer: Mutex<Answer>,
    room: Condvar,
}

impl Exchange {
    /// An exchange of the connection on `socket`, ready to receive a request.
    pub(crate) fn new(
        shared: Arc<Shared>,
        socket: RawFd,
        listener: usize,
        remote: Arc<str>,
    ) -> Self {
        Self {
            id: 0,
            head: RequestHead::default(),
            body: RequestBody::Empty,
            body_spare: Vec::new(),
            received_at: Instant::now(),
            listener,
            remote_addr: remote,
            may_keep_alive: false,
            shared,
            waker: None,
            answer: Mutex::new(Answer::new(socket)),
            room: Condvar::new(),
        }
    }

    /// Number of the request within this engine, from 1.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The request's head.
    pub fn head(&self) -> &RequestHead {
        &self.head
    }

    /// When the request was complete.
    pub fn received_at(&self) -> Instant {
        self.received_at
    }

    /// The peer's address without its port; `127.0.0.1` for a Unix socket.
    pub fn remote_addr(&self) -> &str {
        &self.remote_addr
    }

    /// Which of the configured listeners the connection came from.
    pub fn listener(&self) -> usize {
        self.listener
    }

    /// The request's body, always complete.
    pub fn body(&self) -> &RequestBody {
        &self.body
    }

    /// The connection's output buffer, empty but with its capacity.
    pub fn take_out(&self) -> Vec<u8> {
        self.answer.lock().take_spare()
    }

    /// Whether the connection could serve another request after this one, as
    /// far as the client, the request count and a drain have to say.
    pub fn keep_alive(&self) -> bool {
        self.may_keep_alive && !self.shared.is_draining()
    }

    /// Gives the whole answer; `tail` follows `out` on the wire.
    pub fn complete(self: Arc<Self>, out: Vec<u8>, tail: Option<Piece>, keep_alive: bool) {
        let head_bytes = self.logged_head_len(&out);
        let tell = self.answer.lock().complete(out, head_bytes, tail, keep_alive);
        if tell {
            self.tell();
        }
    }

    /// Begins a streamed answer with its head.
    pub fn begin(self: &Arc<Self>, head: Vec<u8>, framing: ReplyFraming, keep_alive: bool) {
        let tell = self.answer.lock().begin(head, framing, keep_alive);
        if tell {
            Arc::clone(self).tell();
        }
    }

    /// Adds bytes to a streamed body. They are taken whether there is room or
    /// not; after [`Room::Full`] call [`Exchange::wait_room`] before the next write.
    ///
    /// # Errors
    /// [`Gone`] when nobody will read them.
    pub fn write(self: &Arc<Self>, bytes: &[u8]) -> Result<Room, Gone> {
        let written = self.answer.lock().write(bytes, &self.shared.config.limits);
        self.written(written)
    }

    /// As [`Exchange::write`], for a piece.
    ///
    /// # Errors
    /// [`Gone`] when nobody will read it.
    pub fn write_piece(self: &Arc<Self>, piece: Piece) -> Result<Room, Gone> {
        let written = self.answer.lock().write_piece(piece, &self.shared.config.limits);
        self.written(written)
    }

    fn written(self: &Arc<Self>, written: Result<(Room, bool), Gone>) -> Result<Room, Gone> {
        let (room, tell) = written?;
        if tell {
            Arc::clone(self).tell();
        }
        Ok(room)
    }

    /// Blocks the calling thread until there is room again, `timeout` has
    /// passed or [`Exchange::interrupt`] was called.
    ///
    /// # Errors
    /// [`Gone`] when nobody will read more.
    pub fn wait_room(&self, timeout: Duration) -> Result<Room, Gone> {
        let limits = &self.shared.config.limits;
        let until = Instant::now() + timeout;
        let mut answer = self.answer.lock();
        loop {
            match answer.phase() {
                Phase::Gone | Phase::Late => return Err(Gone),
                // Another thread ended the answer: what is written now is dropped.
                Phase::Ended => return Ok(Room::Open),
                _ => {}
            }
            let room = answer.room(limits);
            if room == Room::Open || !answer.start_wait() {
                return Ok(room);
            }
            let timed_out = self.room.wait_until(&mut answer, until).timed_out();
            answer.end_wait();
            if timed_out {
                return Ok(answer.room(limits));
            }
        }
    }

    /// Ends a [`Exchange::wait_room`] of another thread early, or the next one.
    pub fn interrupt(&self) {
        self.answer.lock().interrupt();
        self.room.notify_all();
    }

    /// Ends a streamed body. With `complete` false its producer failed midway:
    /// the connection is closed so that the client can tell.
    pub fn end(self: Arc<Self>, complete: bool) {
        let tell = self.answer.lock().end(complete);
        // Another thread may be waiting for room that is no longer needed.
        self.notify_room();
        if tell {
            self.tell();
        }
    }

    /// Sends an interim response, `bytes` as they are, before the final head.
    pub fn interim(self: &Arc<Self>, bytes: &[u8]) {
        // RFC 9110 15.2: a client of HTTP/1.0 knows no interim responses.
        if matches!(self.head.version, Version::Http10) {
            return;
        }
        let tell = self.answer.lock().interim(bytes);
        if tell {
            Arc::clone(self).tell();
        }
    }

    /// Takes the connection away from the engine: a duplicate of its socket,
    /// non-blocking as accepted, and the bytes already read past the request.
    ///
    /// # Errors
    /// When an answer exists already, the client is gone, or the operating
    /// system has no descriptor left.
    pub fn hijack(&self) -> io::Result<(OwnedFd, Vec<u8>)> {
        let mut answer = self.answer.lock();
        let Some((socket, mut unread)) = answer.hijack() else {
            return Err(io::Error::new(
                io::ErrorKind::NotConnected,
                "the connection can't be hijacked: it is closed or was answered already",
            ));
        };
        // SAFETY: the connection keeps its socket open while the phase is
        // `Waiting`, which held until this lock was taken.
        let fd = unsafe { libc::fcntl(socket, libc::F_DUPFD_CLOEXEC, 0) };
        if fd < 0 {
            let error = io::Error::last_os_error();
            answer.unhijack(unread);
            return Err(error);
        }
        drop(answer);
        self.wake_connection();
        // SAFETY: `fcntl` just made this descriptor; nobody else owns it.
        Ok((unsafe { OwnedFd::from_raw_fd(fd) }, unread.take()))
    }

    /// Gives up without an outcome: 500, and the connection is closed. A
    /// streamed answer is cut off.
    pub fn abandon(self: Arc<Self>) {
        let out = wire_text::refusal(500, "The application gave no answer.", None, self.is_head());
        let head_bytes = self.logged_head_len(&out);
        let tell = {
            let mut answer = self.answer.lock();
            answer.complete(out, head_bytes, None, false) || answer.end(false)
        };
        if tell {
            self.tell();
        }
    }

    /// Refuses the request for want of room: 503 with `Retry-After`, and the
    /// connection is closed.
    pub fn shed(self: Arc<Self>, retry_after_s: u32) {
        let text = "The server is busy; try again.";
        let out = wire_text::refusal(503, text, Some(retry_after_s), self.is_head());
        self.shared.note_shed();
        self.complete(out, None, false);
    }

    /// Whether nobody waits for this answer any more.
    pub fn is_gone(&self) -> bool {
        matches!(self.answer.lock().phase(), Phase::Gone | Phase::Late)
    }

    /// Whether the client was told 503 because the request timeout passed.
    pub fn answered_late(&self) -> bool {
        self.answer.lock().phase() == Phase::Late
    }

    /// Method and path, at most 200 bytes.
    pub fn describe(&self) -> String {
        let method = String::from_utf8_lossy(self.head.get(self.head.method));
        let path = self.head.get(self.head.path);
        let room = DESCRIPTION_BYTES_MAX.saturating_sub(method.len() + 1);
        let mut text =
            format!("{method} {}", String::from_utf8_lossy(&path[..path.len().min(room)]));
        while text.len() > DESCRIPTION_BYTES_MAX {
            text.pop();
        }
        text
    }

    /// Only the access log asks for it.
    fn logged_head_len(&self, out: &[u8]) -> usize {
        if self.shared.log.is_on() {
            wire_text::head_len(out)
        } else {
            0
        }
    }

    fn is_head(&self) -> bool {
        self.head.get(self.head.method) == b"HEAD"
    }

    fn tell(self: Arc<Self>) {
        let shared = Arc::clone(&self.shared);
        shared.complete(self);
    }

    // The connection's side.

    /// Makes the parsed request a unit of work.
    pub(crate) fn dispatch(
        &mut self,
        id: u64,
        received_at: Instant,
        may_keep_alive: bool,
        waker: &Waker,
    ) {
        self.id = id;
        self.received_at = received_at;
        self.may_keep_alive = may_keep_alive;
        if !self.waker.as_ref().is_some_and(|own| own.will_wake(waker)) {
            self.waker = Some(waker.clone());
        }
    }

    /// Ready for the next request of the connection.
    pub(crate) fn reset(&mut self) {
        self.head.clear();
        if let RequestBody::Memory(bytes) = std::mem::take(&mut self.body) {
            self.body_spare = bytes;
        }
        self.answer.get_mut().reset();
    }

    /// Gives back what an idle connection need not hold.
    pub(crate) fn shrink(&mut self) {
        self.head = RequestHead::default();
        self.body_spare = Vec::new();
        self.answer.get_mut().shrink();
    }

    /// No other request follows, and nobody reads this one's body any more.
    pub(crate) fn forget_body(&mut self) {
        self.body = RequestBody::Empty;
        self.body_spare = Vec::new();
    }

    pub(crate) fn answer(&self) -> &Mutex<Answer> {
        &self.answer
    }

    pub(crate) fn answer_mut(&mut self) -> &mut Answer {
        self.answer.get_mut()
    }

    /// Wakes the connection's task; cheap on the IO thread.
    pub(crate) fn wake_connection(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }

    pub(crate) fn notify_room(&self) {
        self.room.notify_all();
    }

    /// The connection closes: nobody will read what comes.
    pub(crate) fn close(&self) {
        let rest = self.answer.lock().close();
        self.room.notify_all();
        drop(rest);
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").field("id", &self.id).field("what", &self.describe()).finish()
    }
}
