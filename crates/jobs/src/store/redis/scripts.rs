//! The Lua scripts: each makes a change of several steps atomic. They compute
//! their keys themselves, which only Redis Cluster forbids.

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

/// The source of one script.
pub struct ScriptSource {
    /// Shared functions that it uses.
    uses: &'static [&'static str],
    body: &'static str,
    /// It adds jobs and is refused by a full server. All others are allowed
    /// there, so that the server can be drained.
    adds: bool,
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
pub const SCRIPTS: [ScriptSource; 20] = scripts![
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

impl ScriptSource {
    /// The script as it is loaded. Since Redis 7 its first line allows it to run on a full server.
    /// Redis 6 starts any script there and stops it at the first command that needs memory, unless
    /// it has written before: so it begins with a write that needs no memory and changes nothing.
    pub fn text(&self, shebang: bool) -> String {
        let first = match (shebang, self.adds) {
            (true, true) => "#!lua\n",
            (true, false) => "#!lua flags=allow-oom\n",
            (false, true) => "",
            (false, false) => "redis.call('UNLINK', 'chaton:none')\n",
        };
        format!("{first}{}{}", self.uses.concat(), self.body)
    }
}
