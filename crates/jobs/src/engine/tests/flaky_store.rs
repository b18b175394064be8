//! Stores whose replies get lost, or whose clock is another one.

use std::time::Duration;

use crate::store::*;
use fastrand::Rng;

/// Passes everything on. One `ack_and_claim` in eight fails: half of these
/// before the call, half after it, when only the reply is lost.
pub struct FlakyStore {
    inner: Box<dyn Store>,
    random: Rng,
}

impl FlakyStore {
    pub fn over(inner: Box<dyn Store>, seed: u64) -> Self {
        Self { inner, random: Rng::with_seed(seed) }
    }
}

/// Passes everything on. Its clock is ahead of this machine's.
pub struct OtherClock {
    pub inner: Box<dyn Store>,
    pub ahead_s: f64,
}

macro_rules! pass {
    ($($name:ident($($arg:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(fn $name(&mut self, $($arg: $type),*) -> Result<$answer> {
            self.inner.$name($($arg),*)
        })*
    };
}

macro_rules! pass_rest {
    () => {
        pass! {
            push(jobs: &[NewJob<'_>]) -> Vec<PushResult>;
            push_once(key: &str, ttl: Duration, job: &NewJob<'_>) -> bool;
            acquire(owner: &str, asks: &[LimitRequest<'_>], now_s: f64) -> Vec<Grant>;
            move_due(now_s: f64, max: usize) -> DueSummary;
            claim_due(owner: &str, first: u64, now_s: f64, max: usize) -> (Vec<ClaimedJob>, DueSummary);
            query(query: Query<'_>) -> Answer;
            change(change: Change<'_>) -> Answer;
            backup(path: &str, progress: &mut dyn FnMut(u64, u64)) -> ();
        }
    };
}

impl Store for FlakyStore {
    fn ack_and_claim(
        &mut self,
        owner: &str,
        acks: &[Ack],
        want: Option<&ClaimRequest<'_>>,
    ) -> Result<ClaimReply> {
        let draw = self.random.u64(..) % 16;
        if draw == 0 {
            return Err(StoreError::unavailable("request lost"));
        }
        let turn = self.inner.ack_and_claim(owner, acks, want)?;
        if draw == 1 {
            return Err(StoreError::unavailable("reply lost"));
        }
        Ok(turn)
    }

    fn heartbeat(&mut self, report: &ProcessReport<'_>) -> Result<HeartbeatReply> {
        self.inner.heartbeat(report)
    }

    pass_rest!();
}

impl Store for OtherClock {
    fn ack_and_claim(
        &mut self,
        owner: &str,
        acks: &[Ack],
        want: Option<&ClaimRequest<'_>>,
    ) -> Result<ClaimReply> {
        self.inner.ack_and_claim(owner, acks, want)
    }

    fn heartbeat(&mut self, report: &ProcessReport<'_>) -> Result<HeartbeatReply> {
        let reply = self.inner.heartbeat(report)?;
        Ok(HeartbeatReply { now_s: reply.now_s + self.ahead_s, ..reply })
    }

    pass_rest!();
}
