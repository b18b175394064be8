//! The scripts: each moves something in several steps that must not be seen
//! apart. They name their keys themselves, which only a cluster would mind.

/// Names of the scripts, in the order of [`SCRIPTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// Into the in-flight set.
    Claim,
    /// Out of it, with what goes with that.
    Ack,
    /// Jobs with locks or batches, or once.
    Push,
    /// Due jobs to their queues.
    MoveDue,
    /// Due jobs into the in-flight set.
    ClaimDue,
    /// A sign of life.
    Heartbeat,
    /// The end of an owner.
    Forget,
    /// Limiters.
    Acquire,
    /// Locks.
    Unlock,
    /// What a removed job held.
    Free,
    /// One job out of a place.
    Take,
    /// Many jobs out of a place.
    Clear,
    /// Counters and sizes.
    Stats,
    /// Queues.
    Queues,
    /// A new batch.
    BatchOpen,
    /// All its jobs are pushed.
    BatchClose,
}

/// One script.
pub struct Parts {
    /// Functions that it uses.
    uses: &'static [&'static str],
    body: &'static str,
    /// It adds to the store: refused when the server is full. All others may
    /// use a full server, so that it can be drained.
    adds: bool,
}

const OWNERS: &str = include_str!("lua/owners.lua");
const JOBS: &str = include_str!("lua/shared.lua");

macro_rules! parts {
    ($($name:literal [$($uses:ident)*] $adds:literal),* $(,)?) => {
        [$(Parts {
            uses: &[$($uses),*],
            body: include_str!(concat!("lua/", $name, ".lua")),
            adds: $adds,
        }),*]
    };
}

/// All scripts.
pub const SCRIPTS: [Parts; 16] = parts![
    "claim" [OWNERS] false,
    "settle" [JOBS] false,
    "push" [JOBS] true,
    "move_due" [JOBS] false,
    "claim_due" [OWNERS JOBS] false,
    "beat" [OWNERS] false,
    "forget" [] false,
    "acquire" [] false,
    "unlock" [JOBS] false,
    "free" [JOBS] false,
    "take" [JOBS] false,
    "clear" [] false,
    "stats" [] false,
    "queues" [] false,
    "batch_open" [] true,
    "batch_close" [JOBS] false,
];

impl Parts {
    /// The script as it is loaded. From version 7 on a first line says that it
    /// may run on a full server. Before, any script may begin there and is
    /// stopped at the first command that needs memory, unless it has written
    /// by then: so it begins with a write that needs none and does nothing.
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
