//! What a client makes the server do for nothing, counted by the frames that it sends.

use std::collections::VecDeque;
use std::time::Instant;

use parking_lot::Mutex;

use super::frames::{FrameScanner, Http2Frame, CONTINUATION, DATA, END_HEADERS, HEADERS};

/// A client may waste as much at once; then its connection ends. nginx ends one ("http2 flood
/// detected") after 1 MiB and 8 times the bytes that were of use.
const WASTE_MAX: u64 = 2 << 20;
/// It may waste as much again each second: 3,000 PING frames, which cost 3 ms.
const FORGIVEN_A_SECOND: u64 = 256 << 10;
/// What a frame costs beside its bytes.
const FRAME_COST: u64 = 64;
/// A client may send so many frames with each request: Firefox orders its streams with a few.
const FORGIVEN_AN_ANSWER: u64 = 64 * FRAME_COST;
/// A byte of a header block may name a whole header, and 16,000 such bytes take as long as 16,000
/// PING frames with their answers: so much more than another byte it costs in a turn.
const BLOCK_COST: u64 = 16;
/// What a byte of a header block costs from which no request came.
const BAD_BLOCK_COST: u64 = 64;
/// The most that one of them costs: a client whose cookies are too large may try twice.
const BAD_BLOCK_COST_MAX: u64 = WASTE_MAX / 2;
/// The window bounds the bytes of a body which nobody reads; they cost this part until they are
/// read. As large a part of the sent bytes is forgiven: 13 frames that open a window for 16 KiB,
/// where Envoy allows 10.
const DATA_PART: u64 = 16;
/// What is read in one turn: even frames that say nothing cost time, and other connections wait.
pub(super) const TURN_COST_MAX: u64 = 64 * 1024;

const PREFACE_BYTES: usize = 24;
/// Header blocks that wait to be taken for requests, of which a client may have `http2_streams_max` under way and as many
/// that it gave up; the oldest one of more was none.
const BLOCKS_MAX: usize = 4096;

/// The account of a connection. A client that opens and gives up requests, sends heads that are
/// none, or frames that say nothing, has the server work, and no bound of concurrent streams stops
/// it (CVE-2023-44487, CVE-2019-9512, CVE-2019-9515).
pub(super) struct Waste(Mutex<Account>);

struct Account {
    wasted: u64,
    /// The part of it above its bound that requests have cost which the client gave up.
    late: u64,
    /// What a request costs that the client gives up, and what an answered one makes good.
    reset_cost: u64,
    /// When time last forgave something.
    forgiven_at: Instant,
    /// Cost of what was read in this turn.
    turn: u64,
    frames: FrameScanner,
    /// Complete header blocks of new streams from which no request has come yet.
    blocks: VecDeque<Block>,
    /// So many of them are decoded.
    decoded: usize,
    /// The one whose frames arrive.
    block: Block,
    /// The highest stream that was opened.
    last_stream: u32,
}

/// A header block.
#[derive(Clone, Copy, Default)]
struct Block {
    stream: u32,
    len: u64,
}

impl Waste {
    /// `resets_max`: requests that a client may give up at once.
    pub fn new(resets_max: u32) -> Self {
        Self(Mutex::new(Account {
            wasted: 0,
            late: 0,
            reset_cost: WASTE_MAX / u64::from(resets_max.max(1)),
            forgiven_at: Instant::now(),
            turn: 0,
            frames: FrameScanner::behind(PREFACE_BYTES),
            blocks: VecDeque::new(),
            decoded: 0,
            block: Block::default(),
            last_stream: 0,
        }))
    }

    /// Counts bytes in the order in which they arrive.
    pub fn read(&self, bytes: &[u8]) {
        self.0.lock().read(bytes);
    }

    /// The crate h2 asks for more bytes, so it has decoded all frames before them. Whether it gets
    /// any in this turn.
    pub fn may_read(&self) -> bool {
        let mut account = self.0.lock();
        account.decoded = account.blocks.len();
        account.turn < TURN_COST_MAX && !account.is_over()
    }

    /// The connection's task begins anew. `took_all`: the last time it took all requests that were decoded, so
    /// blocks that are left were none. Whether the client has wasted too much.
    pub fn begin_turn(&self, took_all: bool) -> bool {
        let account = &mut *self.0.lock();
        account.turn = 0;
        if took_all {
            let bad = account.blocks.drain(..account.decoded).map(Block::bad_cost).sum::<u64>();
            account.decoded = 0;
            account.wasted += bad;
        }
        account.exceeds(WASTE_MAX)
    }

    /// A request came from the head of that stream. Those before it were none. Whether the client has wasted too much:
    /// then it gets no further request through.
    pub fn began(&self, stream: u32) -> bool {
        let account = &mut *self.0.lock();
        while account.blocks.front().is_some_and(|block| block.stream <= stream) {
            let Some(block) = account.blocks.pop_front() else { break };
            account.decoded = account.decoded.saturating_sub(1);
            if block.stream < stream {
                account.wasted += block.bad_cost();
            }
        }
        account.exceeds(WASTE_MAX)
    }

    /// The client has given up a request. Its own task says so, perhaps late, and others are let through meanwhile: what
    /// they cost above the account's room makes it spent, but does not end what the connection has promised.
    pub fn gave_up(&self) {
        let account = &mut *self.0.lock();
        let before = account.wasted.max(WASTE_MAX);
        account.wasted += account.reset_cost;
        account.late += account.wasted.saturating_sub(before);
    }

    /// A request was answered.
    pub fn answered(&self) {
        let account = &mut *self.0.lock();
        account.forgive(account.reset_cost.max(FORGIVEN_AN_ANSWER));
    }

    /// A request has taken the payload of a DATA frame.
    pub fn took(&self, len: usize) {
        self.0.lock().forgive(data_cost(len));
    }

    /// So many bytes of an answer were sent. The last bytes of small parts earn nothing: a client may
    /// open its window byte by byte.
    pub fn sent(&self, len: u64) {
        if len >= 1024 {
            self.0.lock().forgive(len / DATA_PART);
        }
    }

    /// Whether the client has wasted too much.
    pub fn is_spent(&self) -> bool {
        self.0.lock().exceeds(WASTE_MAX)
    }

    /// Whether it goes on wasting.
    pub fn is_over(&self) -> bool {
        self.0.lock().is_over()
    }
}

impl Account {
    fn read(&mut self, bytes: &[u8]) {
        self.turn += bytes.len() as u64;
        let mut rest = bytes;
        while !rest.is_empty() {
            let Some(frame) = self.frames.next(&mut rest) else { continue };
            self.turn += FRAME_COST;
            match frame.kind {
                DATA => self.wasted += data_cost(frame.len),
                HEADERS | CONTINUATION => {
                    self.turn += BLOCK_COST * frame.len as u64;
                    self.add_to_block(frame);
                }
                _ => self.wasted += FRAME_COST + frame.len as u64,
            }
        }
    }

    fn add_to_block(&mut self, frame: Http2Frame) {
        self.block.stream = frame.stream;
        self.block.len += frame.len as u64;
        if frame.flags & END_HEADERS == 0 {
            return;
        }
        let block = std::mem::take(&mut self.block);
        if block.stream <= self.last_stream {
            // Trailers, of which nothing is kept.
            self.wasted += block.bad_cost();
            return;
        }
        self.last_stream = block.stream;
        self.blocks.push_back(block);
        if self.blocks.len() > BLOCKS_MAX {
            self.decoded = self.decoded.saturating_sub(1);
            self.wasted += self.blocks.pop_front().map_or(0, Block::bad_cost);
        }
    }

    fn forgive(&mut self, cost: u64) {
        self.wasted = self.wasted.saturating_sub(cost);
        self.late = self.late.min(self.wasted.saturating_sub(WASTE_MAX));
    }

    fn is_over(&mut self) -> bool {
        self.exceeds(WASTE_MAX + WASTE_MAX / 8 + self.late)
    }

    /// The clock is read only where that matters.
    fn exceeds(&mut self, max: u64) -> bool {
        if self.wasted <= max {
            return false;
        }
        let now = Instant::now();
        let time = now - std::mem::replace(&mut self.forgiven_at, now);
        self.forgive((time.as_secs_f64() * FORGIVEN_A_SECOND as f64) as u64);
        self.wasted > max
    }
}

impl Block {
    fn bad_cost(self) -> u64 {
        (FRAME_COST + BAD_BLOCK_COST * self.len).min(BAD_BLOCK_COST_MAX)
    }
}

fn data_cost(len: usize) -> u64 {
    FRAME_COST + len as u64 / DATA_PART
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_up_requests_that_count_late_leave_the_rest_of_the_account() {
        for resets_max in [1, 10, 400] {
            let waste = Waste::new(resets_max);
            (0..3 * resets_max).for_each(|_| waste.gave_up());
            assert!(waste.is_spent() && !waste.is_over(), "{resets_max}");
            waste.read(&[0; PREFACE_BYTES]);
            // PING frames, of 9 bytes of head and 8 of payload.
            let ping = [0, 0, 8, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            let until_over = (0..10_000).find(|_| {
                waste.read(&ping);
                waste.is_over()
            });
            assert!(until_over.is_some_and(|pings| pings > 3_000), "{resets_max}: {until_over:?}");
        }
    }
}
