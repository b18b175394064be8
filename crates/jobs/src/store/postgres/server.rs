//! The server, as a process uses it: its pool of connections, calls on them, and the version of the tables.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_core::forks;
use parking_lot::{Condvar, Mutex};

use super::address::PostgresAddress;
use super::connection::{args, Call, Connection, Mode};
use super::errors::{self, Failure, Phase};
use super::floors::Floors;
use super::tree::Tree;
use super::{advice, schema};
use crate::store::options::StoreOptions;
use crate::store::traits::Result;

/// Connections of a process at once: further calls wait for one. A server of default settings has 100 for all.
const POOL_MAX: usize = 16;
/// Connections that were not used for so long are closed, but for one.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// Longest time to make the tables, or to wait until another process has made them.
const MIGRATE_MAX: Duration = Duration::from_secs(60);
/// How often a transaction is tried that the server has ended in favour of another one.
const TRIES: u32 = 8;
/// Mean pause before the second try; each further one is longer.
const TRY_PAUSE: Duration = Duration::from_millis(5);

#[derive(Default)]
struct Pool {
    /// The last used one comes last.
    idle: Vec<Connection>,
    open: usize,
    made_in: u32,
    is_prepared: bool,
}

impl Pool {
    /// Those that were not used for long, but for one.
    fn take_old(&mut self) -> Vec<Connection> {
        let newest = self.idle.len().saturating_sub(1);
        let old = |conn: &&Connection| conn.used.elapsed() > IDLE_MAX;
        let count = self.idle[..newest].iter().take_while(old).count();
        self.open -= count;
        self.idle.drain(..count).collect()
    }
}

/// The server, as a process uses it.
pub(super) struct Server {
    pub address: PostgresAddress,
    pub options: Arc<StoreOptions>,
    pool: Mutex<Pool>,
    returned: Condvar,
    /// Stores that use it.
    users: AtomicUsize,
    /// The processes of the same supervisor.
    pub tree: Tree,
    /// Where claims begin.
    pub floors: Mutex<Floors>,
    /// Behind the last look for lost writes.
    pub timeline: Mutex<Option<String>>,
    /// Queues that the table has for certain.
    pub known_queues: Mutex<HashSet<String>>,
    /// Whether no bouncer gives the transactions of a connection to several servers, once that is known.
    is_direct: Mutex<Option<bool>>,
    /// Connections that ended unasked: behind the next one there may be another server.
    losses: AtomicU64,
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut pool = self.pool.lock();
        self.leak_of_parent(&mut pool);
    }
}

impl Server {
    pub fn new(address: PostgresAddress, options: Arc<StoreOptions>) -> Self {
        let pool = Pool { made_in: forks::count(), ..Pool::default() };
        Self {
            address,
            options,
            pool: Mutex::new(pool),
            returned: Condvar::new(),
            users: AtomicUsize::new(0),
            tree: Tree::default(),
            floors: Mutex::default(),
            timeline: Mutex::default(),
            known_queues: Mutex::default(),
            is_direct: Mutex::default(),
            losses: AtomicU64::new(0),
        }
    }

    /// Runs a call, again if the server has ended it in favour of another one.
    pub fn run<T>(
        &self,
        mode: Mode,
        mut op: impl FnMut(&mut Call<'_>) -> errors::Result<T>,
    ) -> Result<T> {
        let mut tries = 0;
        loop {
            let failure = match self.run_once(mode, &mut op) {
                Ok(done) => return Ok(done),
                Err(failure) => failure,
            };
            tries += 1;
            if !failure.wants_another_try() || tries == TRIES {
                return Err(failure.into_error(&self.address.shown));
            }
            std::thread::sleep(TRY_PAUSE.mul_f64(f64::from(tries) * 2.0 * fastrand::f64()));
        }
    }

    fn run_once<T>(
        &self,
        mode: Mode,
        op: &mut impl FnMut(&mut Call<'_>) -> errors::Result<T>,
    ) -> errors::Result<T> {
        let mut conn = self.take()?;
        let timeout = self.options.answer_timeout;
        conn.is_direct = *self.is_direct.lock() == Some(true);
        let done = conn.call(mode, timeout, op);
        if matches!(&done, Err(failure) if failure.is_of_a_bouncer()) {
            *self.is_direct.lock() = Some(false);
        }
        let lost = matches!(&done, Err(failure) if failure.loses_connection());
        self.put_back(conn, lost);
        done
    }

    /// A change of a queue was told to a connection. If that has the address of all others, no bouncer shares them: it
    /// could not listen.
    pub fn note_told(&self, queue: &str) {
        if !queue.is_empty() && self.options.listen.is_none() {
            self.is_direct.lock().get_or_insert(true);
        }
    }

    /// After a fork the connections of the parent are leaked: the child must not close them.
    fn leak_of_parent(&self, pool: &mut Pool) {
        if pool.made_in != forks::count() {
            std::mem::forget(std::mem::take(pool));
            pool.made_in = forks::count();
        }
    }

    pub fn add_user(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    /// With its last store, a process closes its connections.
    pub fn remove_user(&self) {
        if self.users.fetch_sub(1, Ordering::Relaxed) > 1 {
            return;
        }
        let mut pool = self.pool.lock();
        self.leak_of_parent(&mut pool);
        let idle = std::mem::take(&mut pool.idle);
        pool.open -= idle.len();
        drop(pool);
        drop(idle);
    }

    /// Connects, if no connection is open.
    pub fn connect(&self) -> Result<()> {
        let taken = self.take().map_err(|failure| failure.into_error(&self.address.shown));
        taken.map(|conn| self.put_back(conn, false))
    }

    /// One more than the connections that were lost.
    pub fn connections(&self) -> u64 {
        1 + self.losses.load(Ordering::Relaxed)
    }

    fn note_losses(&self, count: u64) {
        self.losses.fetch_add(count, Ordering::Relaxed);
        if count > 0 {
            self.floors.lock().clear();
            self.known_queues.lock().clear();
        }
    }

    /// A connection that works as far as is known.
    fn take(&self) -> errors::Result<Connection> {
        let deadline = Instant::now() + self.options.answer_timeout;
        let mut pool = self.pool.lock();
        self.leak_of_parent(&mut pool);
        loop {
            if let Some(conn) = pool.idle.pop() {
                drop(pool);
                if !conn.is_dead() {
                    return Ok(conn);
                }
                self.note_losses(1);
                pool = self.pool.lock();
                pool.open -= 1;
                continue;
            }
            if pool.open < POOL_MAX {
                break;
            }
            if self.returned.wait_until(&mut pool, deadline).timed_out() {
                return Err(Failure::Late(Phase::Pool));
            }
        }
        pool.open += 1;
        let is_prepared = pool.is_prepared;
        drop(pool);
        let opened = Connection::open(&self.address, &self.options).and_then(|mut conn| {
            if !is_prepared {
                self.prepare(&mut conn)?;
            }
            Ok(conn)
        });
        let mut pool = self.pool.lock();
        match &opened {
            Ok(_) => pool.is_prepared = true,
            Err(_) => {
                pool.open -= 1;
                self.returned.notify_one();
            }
        }
        opened
    }

    fn put_back(&self, mut conn: Connection, lost: bool) {
        let mut pool = self.pool.lock();
        self.note_losses(u64::from(lost));
        let closed = if lost || conn.is_closed() || pool.made_in != forks::count() {
            pool.open = pool.open.saturating_sub(1);
            // The server may have come back as another one.
            pool.is_prepared = false;
            vec![conn]
        } else {
            conn.used = Instant::now();
            pool.idle.push(conn);
            pool.take_old()
        };
        drop(pool);
        self.returned.notify_one();
        drop(closed);
    }

    /// Closes connections that were not used for long.
    pub fn close_old(&self) {
        let mut pool = self.pool.lock();
        self.leak_of_parent(&mut pool);
        let old = pool.take_old();
        drop(pool);
        drop(old);
    }

    /// Makes the tables, or those of a newer version, unless they are there.
    fn prepare(&self, conn: &mut Connection) -> errors::Result<()> {
        let timeout = self.options.answer_timeout;
        let version = conn.call(Mode::Single, timeout, |call| {
            let known =
                call.any("SELECT 1 WHERE to_regclass('chaton.version') IS NOT NULL", &[])?;
            let sql = "SELECT max(number) FROM chaton.version";
            Ok(if known { call.value::<Option<i64>>(sql, &[])?.flatten() } else { None })
        })?;
        if version >= Some(schema::VERSION) {
            return Ok(());
        }
        migrate(conn, schema::STEPS).map(drop)
    }

    /// Makes the tables or brings them up to date; returns the version.
    pub fn migrate(&self, steps: &[&str]) -> Result<i64> {
        let made = Connection::open(&self.address, &self.options)
            .and_then(|mut conn| migrate(&mut conn, steps));
        made.map_err(|failure| failure.into_error(&self.address.shown))
    }
}

/// A step waits for so long to have a table for itself, since whoever comes later waits behind it ...
const LOCK_MAX: Duration = Duration::from_millis(200);
/// ... and is tried again after a pause, in which the release before works on, so often.
const STEP_PAUSE: Duration = Duration::from_secs(2);
const STEP_TRIES: u32 = 5;

fn migrate(conn: &mut Connection, steps: &[&str]) -> errors::Result<i64> {
    let version = steps.len() as i64;
    conn.call(Mode::Transaction, MIGRATE_MAX, |call| {
        call.script(schema::BEGIN)?;
        let found: i64 = call.value("SELECT max(number) FROM chaton.version", &[])?.unwrap_or(0);
        let rest = steps.iter().skip(usize::try_from(found).unwrap_or(0));
        let begin = format!("SAVEPOINT step; SET LOCAL lock_timeout={}", LOCK_MAX.as_millis());
        let script = rest.fold(begin, |script, step| script + ";" + step);
        let again = format!("ROLLBACK TO step; SELECT pg_sleep({})", STEP_PAUSE.as_secs());
        let mut tries = 1;
        while let Err(failure) = call.script(&script) {
            if !failure.is_late_lock() {
                return Err(failure);
            }
            if tries == STEP_TRIES {
                call.script("ROLLBACK TO step")?;
                return Err(advice::reader(call)?.map_or(failure, Failure::Store));
            }
            tries += 1;
            call.script(&again)?;
        }
        call.exec("UPDATE chaton.version SET number=$1 WHERE number<$1", args![version])?;
        Ok(version)
    })
}
