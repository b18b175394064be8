//! Waiting for room in the queue: partitions whose batch was refused, first come, first served.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;

const NOT_WAITING: u8 = 0;
const QUEUED: u8 = 1;
const TRYING: u8 = 2;

/// Whether a partition waits for room.
#[derive(Default)]
pub(super) struct RoomWait(AtomicU8);

impl RoomWait {
    pub fn is_queued(&self) -> bool {
        self.0.load(Ordering::SeqCst) == QUEUED
    }

    /// It waited longest and may try now.
    pub fn is_trying(&self) -> bool {
        self.0.load(Ordering::SeqCst) == TRYING
    }
}

/// A partition that can wait for room.
pub(super) trait RoomWaiter: Send + Sync {
    fn room_wait(&self) -> &RoomWait;

    /// Hands out what can be handed out.
    fn retry(self: Arc<Self>);
}

/// The partitions that wait.
#[derive(Default)]
pub(super) struct RoomQueue {
    waiting: Mutex<VecDeque<Arc<dyn RoomWaiter>>>,
    len: AtomicUsize,
}

impl RoomQueue {
    /// Whether partitions wait, and others have to wait behind them.
    pub fn is_crowded(&self) -> bool {
        self.len.load(Ordering::SeqCst) > 0
    }

    /// There was no room for a batch of this partition. One that has tried keeps its place.
    pub fn refuse(&self, waiter: Arc<dyn RoomWaiter>) {
        let mut waiting = self.waiting.lock();
        match waiter.room_wait().0.swap(QUEUED, Ordering::SeqCst) {
            QUEUED => {}
            TRYING => waiting.push_front(waiter),
            _ => waiting.push_back(waiter),
        }
        self.len.store(waiting.len(), Ordering::SeqCst);
    }

    /// There may be room: partitions try in order, until one is refused again.
    pub fn readmit(&self) {
        while self.is_crowded() {
            let mut waiting = self.waiting.lock();
            let first = waiting.pop_front();
            self.len.store(waiting.len(), Ordering::SeqCst);
            drop(waiting);
            let Some(first) = first else { return };
            first.room_wait().0.store(TRYING, Ordering::SeqCst);
            first.clone().retry();
            let wait = &first.room_wait().0;
            let done =
                wait.compare_exchange(TRYING, NOT_WAITING, Ordering::SeqCst, Ordering::SeqCst);
            if done.is_err() {
                return;
            }
        }
    }
}
