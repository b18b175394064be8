//! What the supervisor reports about its processes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a server is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerPhase {
    /// Not all of its workers have been ready yet.
    #[default]
    Starting,
    /// It serves.
    Running,
    /// It finishes its work and ends.
    Stopping,
    /// It finishes its work and starts again.
    Restarting,
}

/// What a worker is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkerPhase {
    /// It will be forked.
    Asked,
    /// It is not ready yet.
    Booting,
    /// It does work.
    Ready,
    /// It finishes its work and ends.
    Stopping,
}

/// A worker as its supervisor sees it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerEntry {
    /// Its number.
    pub worker: usize,
    /// Its row on the scoreboard.
    pub slot: usize,
    /// What it does.
    pub state: WorkerPhase,
    /// Its process id; `None` before the fork.
    pub pid: Option<u32>,
    /// Its roles.
    pub roles: Vec<String>,
}

/// A number whose worker failed to boot too often and is not started again.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GivenUp {
    /// The number.
    pub worker: usize,
    /// Its roles.
    pub roles: Vec<String>,
}

/// A worker that ended though nobody had asked it to.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Death {
    /// Its number.
    pub worker: usize,
    /// Its process id; `None`: it could not be forked.
    pub pid: Option<u32>,
    /// When (s since 1970).
    pub at: f64,
    /// Why, as in [`TreeReport::exits`].
    pub end: String,
    /// How its process ended, such as `killed by SIGKILL`.
    pub how: String,
    /// What it said, or why it was killed.
    pub reason: Option<String>,
}

/// The server and its workers at one moment. A new report replaces the one before.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreeReport {
    /// What the server does.
    pub state: ServerPhase,
    /// The workers that exist or are about to.
    pub workers: Vec<WorkerEntry>,
    /// Those that will not come.
    pub given_up: Vec<GivenUp>,
    /// How many workers have ended, by reason.
    pub exits: BTreeMap<String, u64>,
    /// The last ones that ended though nobody had asked them to, the latest one at the end.
    #[serde(default)]
    pub deaths: Vec<Death>,
    /// Process id of the supervisor, or of the only process.
    pub pid: u32,
    /// Process ids of the preloaders, which have loaded the application and fork workers.
    #[serde(default)]
    pub preloaders: Vec<u32>,
}

/// A worker that is replaced and its successor have the same number. Of these, the last one that is
/// ready is shown, else the last one.
pub(crate) fn one_of_each_number<'a>(
    workers: impl Iterator<Item = &'a WorkerEntry>,
) -> impl Iterator<Item = &'a WorkerEntry> {
    let mut shown = BTreeMap::<usize, &WorkerEntry>::new();
    for one in workers {
        let other_ready = shown.get(&one.worker).is_some_and(|it| it.state == WorkerPhase::Ready);
        if one.state == WorkerPhase::Ready || !other_ready {
            shown.insert(one.worker, one);
        }
    }
    shown.into_values()
}
