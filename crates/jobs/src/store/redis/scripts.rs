//! The Lua scripts: each makes a change of several steps atomic. They compute
//! their keys themselves, which only Redis Cluster forbids.

use chaton_redis::ScriptSource;

/// Names of the scripts, in the order of [`SCRIPTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// Claims jobs.
    Claim,
    /// Acknowledges jobs that are retried, requeued or have side effects, and may claim then.
    Ack,
    /// Pushes jobs that have locks or batches, or are pushed once.
    Push,
    /// Reads due jobs for the one process that moves them.
    Due,
    /// Moves due jobs to their queues.
    MoveDue,
    /// Moves due jobs into the in-flight set.
    ClaimDue,
    /// Writes a heartbeat.
    Heartbeat,
    /// Puts jobs back into an in-flight set.
    Restore,
    /// Forgets an owner.
    Forget,
    /// Asks limiters.
    Acquire,
    /// Releases locks.
    Unlock,
    /// Releases the locks and batches of removed jobs.
    Release,
    /// Takes one job out of a queue or set.
    TakeEntry,
    /// Removes many jobs from a queue or set.
    Clear,
    /// Counters and sizes.
    Stats,
    /// Queues.
    Queues,
    /// Opens a batch.
    BatchOpen,
    /// Closes a batch.
    BatchClose,
    /// Writes a small hash.
    Save,
    /// Removes open batches.
    RemoveOpen,
}

impl From<Script> for usize {
    fn from(script: Script) -> Self {
        script as usize
    }
}

const OWNERS: &str = include_str!("lua/owners.lua");
const LISTS: &str = include_str!("lua/lists.lua");
const JOBS: &str = include_str!("lua/shared.lua");
const LINES: &str = include_str!("lua/lines.lua");
const CLAIMS: &str = include_str!("lua/claims.lua");

macro_rules! scripts {
    ($($name:literal [$($uses:ident)*] $adds:literal),* $(,)?) => {
        [$(ScriptSource {
            uses: &[$($uses),*],
            body: include_str!(concat!("lua/", $name, ".lua")),
            adds: $adds,
        }),*]
    };
}

/// All scripts.
pub static SCRIPTS: [ScriptSource; 20] = scripts![
    "claim" [OWNERS LISTS CLAIMS] false,
    "ack" [LISTS JOBS LINES OWNERS CLAIMS] false,
    "push" [LISTS JOBS] true,
    "due" [] false,
    "move_due" [LISTS JOBS] false,
    "claim_due" [OWNERS LISTS JOBS] false,
    "heartbeat" [OWNERS LISTS JOBS LINES] false,
    "restore" [OWNERS LISTS JOBS] false,
    "forget" [] false,
    "acquire" [LISTS JOBS LINES] false,
    "unlock" [LISTS JOBS] false,
    "release" [LISTS JOBS] false,
    "take_entry" [LISTS JOBS] false,
    "clear" [LISTS] false,
    "stats" [LISTS] false,
    "queues" [LISTS] false,
    "batch_open" [OWNERS] true,
    "batch_close" [LISTS JOBS] false,
    "save" [] false,
    "remove_open" [OWNERS] false,
];
