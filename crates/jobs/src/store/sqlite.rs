//! Jobs in a SQLite file: the embedded default, for one machine.

mod batches;
mod db;
mod entries;
mod failure;
mod inspect;
mod limits;
mod lock;
mod owners;
mod queues;
mod schema;
mod small;
mod wake;

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::Connection;

use super::*;
use db::Db;
use entries::Keep;

/// A transaction, and whether its commit is worth waking others for.
struct Tx<'a> {
    conn: &'a Connection,
    wakes: Cell<bool>,
}

impl<'a> Tx<'a> {
    fn new(conn: &'a Connection) -> Self {
        Self { conn, wakes: Cell::new(false) }
    }

    /// Others wait for what this one stores.
    fn wake(&self) {
        self.wakes.set(true);
    }

    fn wakes(&self) -> bool {
        self.wakes.get()
    }
}

/// Pages copied in one step of a backup.
const BACKUP_PAGES: i32 = 256;
/// Where the address's path begins.
const SCHEME: &str = "sqlite://";

struct SqliteKit {
    address: String,
    path: PathBuf,
    options: StoreOptions,
}

/// The kit for `sqlite://PATH`.
///
/// # Errors
/// When the address has no path.
pub fn kit(options: &StoreOptions) -> Result<Arc<dyn Kit>> {
    let path = options.url.strip_prefix(SCHEME).unwrap_or_default();
    if path.is_empty() {
        return Err(StoreError::refused(format!(
            "store {:?}: no file is named; write sqlite://storage/chaton.db",
            options.url
        )));
    }
    let path = std::path::absolute(path)
        .map_err(|error| StoreError::refused(format!("store {:?}: {error}", options.url)))?;
    Ok(Arc::new(SqliteKit { address: options.url.clone(), path, options: options.clone() }))
}

impl Kit for SqliteKit {
    fn store(&self) -> Box<dyn Store> {
        let options = &self.options;
        Box::new(SqliteStore {
            db: Db::shared(&self.path, options),
            lease: options.lease,
            keep: Keep {
                count: options.dead_max,
                age_s: options.dead_age.as_secs_f64(),
                format: options.format,
            },
        })
    }

    fn watch(&self) -> Box<dyn Watch> {
        Box::new(wake::SqliteWatch::new(Db::shared(&self.path, &self.options)))
    }

    fn address(&self) -> &str {
        &self.address
    }
}

struct SqliteStore {
    db: Arc<Db>,
    lease: Duration,
    keep: Keep,
}

fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

impl Store for SqliteStore {
    fn push(&mut self, jobs: &[NewJob<'_>]) -> Result<Vec<Pushed>> {
        self.db.write(|tx| queues::push(tx, jobs, now_s()))
    }

    fn push_once(&mut self, key: &str, ttl: Duration, job: &NewJob<'_>) -> Result<bool> {
        let now = now_s();
        self.db.write(|tx| small::push_once(tx, key, now + ttl.as_secs_f64(), job, now))
    }

    fn turn(&mut self, owner: &str, settles: &[Settle], want: Option<&Want<'_>>) -> Result<Turn> {
        let keep = &self.keep;
        self.db.write(|tx| queues::turn(tx, owner, settles, want, keep))
    }

    fn acquire(&mut self, owner: &str, asks: &[Ask<'_>], now_s: f64) -> Result<Vec<Grant>> {
        self.db.write(|tx| limits::acquire(tx, owner, asks, now_s))
    }

    fn unlock(&mut self, locks: &[Held<'_>]) -> Result<()> {
        self.db.write(|tx| locks.iter().try_for_each(|lock| limits::unlock(tx, lock.key, lock.jid)))
    }

    fn move_due(&mut self, now_s: f64, max: usize) -> Result<Due> {
        let keep = &self.keep;
        self.db.write(|tx| entries::move_due(tx, now_s, max, keep))
    }

    fn claim_due(
        &mut self,
        owner: &str,
        first_ticket: u64,
        now_s: f64,
        max: usize,
    ) -> Result<(Vec<Claimed>, Due)> {
        let keep = &self.keep;
        self.db.write(|tx| entries::claim_due(tx, owner, first_ticket, now_s, max, keep))
    }

    fn beat(&mut self, beat: &Beat<'_>) -> Result<Beaten> {
        let lease = self.lease;
        self.db.write(|tx| owners::beat(tx, beat, lease))
    }

    fn owners(&mut self) -> Result<Vec<OwnerSeen>> {
        self.db.read(owners::all)
    }

    fn in_flight(&mut self, owner: &str) -> Result<Vec<Claimed>> {
        self.db.read(|conn| owners::in_flight(conn, owner))
    }

    fn forget(&mut self, owner: &str) -> Result<bool> {
        self.db.write(|tx| owners::forget(tx, owner))
    }

    fn pause(&mut self, queue: &str, paused: bool) -> Result<()> {
        self.db.write(|tx| small::pause(tx, queue, paused))
    }

    fn cancel(&mut self, jid: &str) -> Result<()> {
        self.db.write(|tx| small::cancel(tx, jid, now_s()))
    }

    fn cancelled(&mut self, jids: &[&str]) -> Result<Vec<bool>> {
        self.db.read(|conn| small::cancelled(conn, jids))
    }

    fn load(&mut self, key: &str) -> Result<Vec<(String, Vec<u8>)>> {
        self.db.read(|conn| small::load(conn, key, now_s()))
    }

    fn save(&mut self, key: &str, fields: &[(&str, &[u8])], ttl: Duration) -> Result<()> {
        let now = now_s();
        self.db.write(|tx| small::save(tx, key, fields, now + ttl.as_secs_f64(), now))
    }

    fn remove_hash(&mut self, key: &str) -> Result<()> {
        self.db.write(|tx| small::remove_hash(tx, key))
    }

    fn batch_open(&mut self, batch: &NewBatch<'_>) -> Result<()> {
        self.db.write(|tx| batches::open(tx, batch))
    }

    fn batch_close(&mut self, bid: &str) -> Result<()> {
        self.db.write(|tx| batches::close(tx, bid))
    }

    fn batch(&mut self, bid: &str) -> Result<Option<BatchStatus>> {
        self.db.read(|conn| batches::status(conn, bid))
    }

    fn stats(&mut self) -> Result<Stats> {
        self.db.read(inspect::stats)
    }

    fn queues(&mut self) -> Result<Vec<QueueSeen>> {
        self.db.read(|conn| inspect::queues(conn, now_s()))
    }

    fn processes(&mut self) -> Result<Vec<ProcessSeen>> {
        self.db.read(owners::processes)
    }

    fn list(&mut self, place: &Place, offset: usize, count: usize) -> Result<Vec<Entry>> {
        self.db.read(|conn| inspect::list(conn, place, offset, count))
    }

    fn find(&mut self, jid: &str) -> Result<Option<(Place, Entry)>> {
        self.db.read(|conn| inspect::find(conn, jid))
    }

    fn remove(&mut self, place: &Place, entry: &Entry) -> Result<bool> {
        self.db.write(|tx| entries::remove(tx, place, entry))
    }

    fn requeue(&mut self, place: &Place, entry: &Entry, now_s: f64) -> Result<bool> {
        let keep = &self.keep;
        self.db.write(|tx| entries::requeue(tx, place, entry, now_s, keep))
    }

    fn kill(&mut self, place: &Place, entry: &Entry, now_s: f64) -> Result<bool> {
        let keep = &self.keep;
        self.db.write(|tx| entries::kill(tx, place, entry, now_s, keep))
    }

    fn clear(&mut self, place: &Place, max: usize) -> Result<usize> {
        self.db.write(|tx| entries::clear(tx, place, max))
    }

    fn signal(&mut self, identity: &str, signal: &str) -> Result<()> {
        self.db.write(|tx| owners::signal(tx, identity, signal, now_s()))
    }

    fn backup(&mut self, path: &str, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let own = self.db.path().to_path_buf();
        let target = std::path::Path::new(path);
        if target.exists() {
            return Err(StoreError::refused(format!(
                "{path} is there already; name a new file for the copy"
            )));
        }
        self.db.read(|conn| {
            let mut copy = Connection::open(target)?;
            let backup = rusqlite::backup::Backup::new(conn, &mut copy)?;
            loop {
                let step = backup.step(BACKUP_PAGES)?;
                let about = backup.progress();
                let done = (about.pagecount - about.remaining).max(0) as u64;
                progress(done, about.pagecount.max(0) as u64);
                if step == rusqlite::backup::StepResult::Done {
                    return Ok(());
                }
            }
        })
        .map_err(|error| StoreError { message: format!("{} → {path}: {}", own.display(), error.message), ..error })
    }
}
