//! The body of a request that is handed over while it still arrives (`stream_bodies`).

use std::collections::VecDeque;
use std::mem;
use std::task::Waker;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Why the rest of a streamed body does not arrive, in one clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyCut(pub &'static str);

/// The client left, or the response ended before the body.
pub(crate) const CONNECTION_ENDED: BodyCut =
    BodyCut("its connection ended in the middle of the request's body");

/// What [`StreamedBody::read`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyRead {
    /// The next bytes; never none.
    Bytes(Vec<u8>),
    /// The body is complete, and all of it was read.
    End,
    /// The wait was interrupted, or its time is over.
    Nothing,
}

/// A body that the IO thread fills and another thread empties. The socket is not read while it
/// holds `bytes_max` bytes.
pub struct StreamedBody {
    state: Mutex<BodyState>,
    changed: Condvar,
    bytes_max: usize,
    /// Wakes the connection's task.
    waker: Waker,
}

#[derive(Default)]
struct BodyState {
    bytes: VecDeque<u8>,
    /// Nothing more arrives.
    end: Option<Result<(), BodyCut>>,
    /// The reader has asked for bytes.
    wanted: bool,
    /// The IO thread waits until the reader has asked.
    awaits_reader: bool,
    /// The IO thread waits until the reader has made room.
    awaits_room: bool,
    /// The reader does not want the rest.
    closed: bool,
    interrupted: bool,
}

impl StreamedBody {
    pub(crate) fn new(bytes_max: usize, waker: Waker) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), bytes_max, waker }
    }

    /// Takes up to `len_max` bytes; waits up to `timeout` while there are none.
    ///
    /// # Errors
    /// [`BodyCut`] once all bytes before the cut were read.
    pub fn read(&self, len_max: usize, timeout: Duration) -> Result<BodyRead, BodyCut> {
        let until = Instant::now() + timeout;
        let mut state = self.state.lock();
        state.wanted = true;
        if mem::take(&mut state.awaits_reader) {
            self.waker.wake_by_ref();
        }
        loop {
            if !state.bytes.is_empty() {
                let len = len_max.min(state.bytes.len());
                let bytes = state.bytes.drain(..len).collect();
                if state.bytes.len() <= self.bytes_max / 2 && mem::take(&mut state.awaits_room) {
                    self.waker.wake_by_ref();
                }
                return Ok(BodyRead::Bytes(bytes));
            }
            match state.end {
                Some(Ok(())) => return Ok(BodyRead::End),
                Some(Err(cut)) => return Err(cut),
                None => {}
            }
            if mem::take(&mut state.interrupted)
                || self.changed.wait_until(&mut state, until).timed_out()
            {
                return Ok(BodyRead::Nothing);
            }
        }
    }

    /// Ends a [`StreamedBody::read`] of another thread early, or the next one that would wait.
    pub fn interrupt(&self) {
        self.state.lock().interrupted = true;
        self.changed.notify_all();
    }

    /// Drops the rest: it is not read from the socket any more.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.bytes = VecDeque::new();
    }

    /// Whether the body has arrived to its end.
    pub fn is_complete(&self) -> bool {
        self.state.lock().end == Some(Ok(()))
    }

    /// Bytes that it may hold in memory.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    // The IO thread's side.

    /// How many bytes there is room for. With 0 the reader wakes the connection when there is.
    pub(crate) fn room(&self) -> usize {
        let mut state = self.state.lock();
        if state.closed {
            return 0;
        }
        let room = self.bytes_max.saturating_sub(state.bytes.len());
        state.awaits_room = room == 0;
        room
    }

    /// Whether the reader has asked for the body. If not, it wakes the connection when it does.
    pub(crate) fn is_wanted(&self) -> bool {
        let mut state = self.state.lock();
        state.awaits_reader = !state.wanted;
        state.wanted
    }

    /// Adds what `fill` appends.
    pub(crate) fn fill<R>(&self, fill: impl FnOnce(&mut VecDeque<u8>) -> R) -> R {
        let filled = fill(&mut self.state.lock().bytes);
        self.changed.notify_all();
        filled
    }

    /// Nothing more arrives; only the first end counts.
    pub(crate) fn end(&self, end: Result<(), BodyCut>) {
        self.state.lock().end.get_or_insert(end);
        self.changed.notify_all();
    }
}

impl std::fmt::Debug for StreamedBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamedBody").field("bytes_max", &self.bytes_max).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::Arc;
    use std::task::Wake;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    fn body(bytes_max: usize) -> (StreamedBody, Arc<Count>) {
        let wakes = Arc::new(Count::default());
        (StreamedBody::new(bytes_max, Waker::from(Arc::clone(&wakes))), wakes)
    }

    #[test]
    fn the_reader_wakes_the_connection_when_half_of_the_room_is_free() {
        let (body, wakes) = body(8);
        body.fill(|bytes| bytes.extend(b"12345678"));
        assert_eq!(body.room(), 0);
        assert_eq!(body.read(3, LONG), Ok(BodyRead::Bytes(b"123".to_vec())));
        assert_eq!(wakes.0.load(SeqCst), 0);
        assert_eq!(body.read(3, LONG), Ok(BodyRead::Bytes(b"456".to_vec())));
        assert_eq!((wakes.0.load(SeqCst), body.room()), (1, 6));
        assert_eq!(body.read(9, LONG), Ok(BodyRead::Bytes(b"78".to_vec())));
        assert_eq!(wakes.0.load(SeqCst), 1);
    }

    #[test]
    fn the_first_read_wakes_a_connection_that_waits_to_be_asked() {
        let (body, wakes) = body(8);
        assert!(!body.is_wanted());
        assert_eq!(body.read(9, Duration::ZERO), Ok(BodyRead::Nothing));
        assert_eq!((wakes.0.load(SeqCst), body.is_wanted()), (1, true));
    }

    #[test]
    fn a_cut_comes_after_the_bytes_before_it() {
        let (body, _) = body(8);
        body.fill(|bytes| bytes.extend(b"12"));
        body.end(Err(CONNECTION_ENDED));
        body.end(Ok(()));
        assert!(!body.is_complete());
        assert_eq!(body.read(9, LONG), Ok(BodyRead::Bytes(b"12".to_vec())));
        assert_eq!(body.read(9, LONG), Err(CONNECTION_ENDED));
    }

    #[test]
    fn an_interrupt_ends_one_wait() {
        let (body, _) = body(8);
        body.interrupt();
        assert_eq!(body.read(9, LONG), Ok(BodyRead::Nothing));
        body.end(Ok(()));
        assert_eq!(body.read(9, LONG), Ok(BodyRead::End));
    }

    #[test]
    fn a_closed_body_takes_nothing() {
        let (body, _) = body(8);
        body.fill(|bytes| bytes.extend(b"12"));
        body.close();
        assert_eq!(body.room(), 0);
    }
}
