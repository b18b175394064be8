//! What a run does: steps drawn from a seed. Each run does without some of the operations, so that others meet more often.

use fastrand::Rng;

/// One step: what is done, and the number from which its details are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step(pub Op, pub u32);

macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident $weight:literal),* $(,)?) => {
        /// An operation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Op { $($(#[$doc])* $name),* }

        /// All operations, with how often they come.
        const OPS: &[(Op, u32)] = &[$((Op::$name, $weight)),*];
    };
}

ops! {
    /// A job is pushed.
    Push 8,
    /// Several are, in one call.
    Bulk 3,
    /// One is scheduled.
    In 4,
    /// One with a lock.
    Unique 5,
    /// One under a limit.
    Limited 5,
    /// One that expires.
    Expiring 2,
    /// One with a deadline.
    Deadline 1,
    /// One that ran in two workers when they died.
    Suspect 2,
    /// A batch is opened.
    BatchOpen 4,
    /// It gets jobs.
    BatchFill 6,
    /// All its jobs are pushed.
    BatchClose 5,
    /// A running job of a batch makes a batch.
    Nest 4,
    /// An engine acknowledges and claims.
    Fetch 30,
    /// A claimed job is started.
    Start 30,
    /// A running job ends well.
    End 22,
    /// One raises.
    Raise 6,
    /// One is discarded.
    Discard 1,
    /// One snoozes.
    Snooze 1,
    /// An iterating one is interrupted.
    Interrupt 1,
    /// Client middleware stops a due job, if one runs.
    MiddlewareStops 1,
    /// An engine's maintenance thread makes a round.
    Maintain 12,
    /// Time passes.
    Tick 6,
    /// The clock is set forward by hours, or back by minutes.
    ClockStep 1,
    /// A queue is paused, or resumed.
    Pause 2,
    /// A running job is cancelled.
    Cancel 2,
    /// A person removes, kills or enqueues an entry.
    Person 3,
    /// A process ends in order.
    Shutdown 3,
    /// A process ends because of a signal that its supervisor did not send.
    Signal 2,
    /// A process dies.
    Kill 3,
    /// A process dies while it acknowledges.
    KillInAck 2,
    /// The jobs of a dead process are reclaimed.
    Recover 5,
    /// A process stands still until its jobs were reclaimed, and goes on.
    Stall 1,
    /// A request is lost.
    RequestLost 2,
    /// A reply is lost.
    ReplyLost 2,
    /// The server is killed and started again.
    Restart 1,
    /// The server takes no writes, since it is no primary, and becomes one again.
    Failover 1,
    /// The store is full, or has room again.
    Full 2,
}

/// Runs keep these.
const ALWAYS: [Op; 5] = [Op::Push, Op::Fetch, Op::Start, Op::End, Op::Maintain];
/// In one of so many runs an operation does not come.
const WITHOUT: u32 = 3;

/// The steps of a seed.
pub fn steps(seed: u64, count: usize) -> Vec<Step> {
    let mut random = Rng::with_seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut chosen = OPS.to_vec();
    chosen.retain(|(op, _)| random.u32(..WITHOUT) > 0 || ALWAYS.contains(op));
    let total: u32 = chosen.iter().map(|(_, weight)| weight).sum();
    let mut draw = || {
        let mut rest = random.u32(..total);
        let found = chosen.iter().find(|(_, weight)| {
            let here = rest < *weight;
            rest = rest.saturating_sub(*weight);
            here
        });
        Step(found.map_or(Op::Fetch, |(op, _)| *op), random.u32(..))
    };
    (0..count).map(|_| draw()).collect()
}
