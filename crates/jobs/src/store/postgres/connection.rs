//! Connections, and statements on them.
//!
//! Each has a runtime of its own that only turns while its thread waits for an answer: no thread is started. A process
//! has few connections, however many stores it opens: a call takes one out of the pool and gives it back. Statements
//! have no names (`query_typed`), so that a bouncer may give each transaction another server.

use std::collections::{BTreeSet, HashSet};
use std::future::{poll_fn, Future};
use std::pin::{pin, Pin};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use chaton_core::forks;
use parking_lot::{Condvar, Mutex};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use super::address::{PostgresAddress, Tls};
use super::advice;
use super::errors::{Failure, Phase};
use super::floors::Floors;
use super::schema;
use super::tree::Tree;
use crate::store::error::StoreError;
use crate::store::options::StoreOptions;
use crate::store::traits::Result;

/// The channel on which changes are told.
pub(super) const CHANNEL: &str = "chaton_jobs";
/// Connections of a process at once: further calls wait for one. A server of default settings has 100 for all.
const POOL_MAX: usize = 16;
/// Connections that were not used for so long are closed, but for one.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// Longest time to make the tables, or to wait until another process has made them.
const MIGRATE_MAX: Duration = Duration::from_secs(60);
/// Longest time to send the cancellation of a statement, which takes a connection of its own.
const CANCEL_MAX: Duration = Duration::from_secs(1);
/// How often a transaction is tried that the server has ended in favour of another one.
const TRIES: u32 = 8;
/// Mean pause before the second try; each further one is longer.
const TRY_PAUSE: Duration = Duration::from_millis(5);

/// The arguments of a statement, each with its type.
pub(super) type Args<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

/// Arguments with the types that belong to them.
macro_rules! args {
    ($($value:expr),* $(,)?) => {
        &[$((
            &$value as &(dyn tokio_postgres::types::ToSql + Sync),
            $crate::store::postgres::connection::Argument::kind(&$value),
        )),*]
    };
}
pub(super) use args;

/// A value that has one type in the tables.
pub(super) trait Argument {
    fn kind(&self) -> Type;
}

macro_rules! kinds {
    ($($rust:ty => $one:ident, $many:ident;)*) => { $(
        impl Argument for $rust { fn kind(&self) -> Type { Type::$one } }
        impl Argument for Option<$rust> { fn kind(&self) -> Type { Type::$one } }
        impl Argument for Vec<$rust> { fn kind(&self) -> Type { Type::$many } }
        impl Argument for &[$rust] { fn kind(&self) -> Type { Type::$many } }
        impl Argument for Vec<Option<$rust>> { fn kind(&self) -> Type { Type::$many } }
    )* };
}
kinds! {
    i16 => INT2, INT2_ARRAY;
    i32 => INT4, INT4_ARRAY;
    i64 => INT8, INT8_ARRAY;
    f64 => FLOAT8, FLOAT8_ARRAY;
    bool => BOOL, BOOL_ARRAY;
    String => TEXT, TEXT_ARRAY;
    &str => TEXT, TEXT_ARRAY;
    &[u8] => BYTEA, BYTEA_ARRAY;
    Vec<u8> => BYTEA, BYTEA_ARRAY;
}

impl<T: Argument + ?Sized> Argument for &&T {
    fn kind(&self) -> Type {
        (**self).kind()
    }
}

/// One connection.
pub(super) struct Connection {
    runtime: Runtime,
    client: Client,
    tls: Tls,
    used: Instant,
    /// Queues that the table has for certain.
    pub known_queues: HashSet<String>,
}

impl Connection {
    fn open(server: &Server) -> std::result::Result<Self, Failure> {
        let runtime = runtime()?;
        let connecting = server.address.config.connect(server.address.tls.clone());
        let timeout = server.options.connect_timeout;
        let connected = runtime.block_on(async { tokio::time::timeout(timeout, connecting).await });
        let (client, driver) = connected.map_err(|_| Failure::Late(Phase::Connect))??;
        runtime.spawn(driver);
        let tls = server.address.tls.clone();
        Ok(Self { runtime, client, tls, used: Instant::now(), known_queues: HashSet::new() })
    }

    /// Ends the statement that had no answer in time: closing the connection would leave it waiting for its lock. A
    /// cancellation has no answer either, so a failure changes nothing.
    fn cancel(&self) {
        let token = self.client.cancel_token();
        let cancel = token.cancel_query(self.tls.clone());
        drop(self.runtime.block_on(async { tokio::time::timeout(CANCEL_MAX, cancel).await }));
    }

    /// Whether the server has closed it meanwhile.
    fn is_dead(&self) -> bool {
        // The driver sees the end of a connection only when it turns.
        self.runtime.block_on(async {
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
        });
        self.client.is_closed()
    }
}

/// A runtime that turns on the thread that waits.
pub(super) fn runtime() -> std::result::Result<Runtime, Failure> {
    let made = Builder::new_current_thread().enable_io().enable_time().build();
    made.map_err(|error| {
        Failure::Store(StoreError::unavailable(format!("PostgreSQL: no runtime: {error}")))
    })
}

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
    /// Connections that ended unasked: behind the next one there may be another server.
    losses: AtomicU64,
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut pool = self.pool.lock();
        self.leak_of_parent(&mut pool);
    }
}

/// What a call does with its connection.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Mode {
    /// Statements that commit by themselves: what adds rows.
    Single,
    /// The same, each in a transaction of its own that has [`PLANS`] and takes no further round trip: what finds rows.
    Planned,
    /// As `Planned`, without a wait for the disk or a standby: a claim. If the server crashes within a second, the job
    /// is in its queue again, and its owner takes it back behind its next connection (`Store::restore`).
    Claim,
    /// A transaction.
    Transaction,
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
            losses: AtomicU64::new(0),
        }
    }

    /// Runs a call, again if the server has ended it in favour of another one.
    pub fn run<T>(
        &self,
        mode: Mode,
        mut op: impl FnMut(&mut Call<'_>) -> std::result::Result<T, Failure>,
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
        op: &mut impl FnMut(&mut Call<'_>) -> std::result::Result<T, Failure>,
    ) -> std::result::Result<T, Failure> {
        let mut conn = self.take()?;
        let timeout = self.options.answer_timeout;
        let mut call = Call::new(&mut conn, mode, timeout);
        let mut done = op(&mut call);
        if call.begun {
            let ended = if done.is_ok() { call.commit() } else { call.rollback() };
            done = done.and_then(|done| ended.map(|()| done));
        }
        let lost = matches!(&done, Err(failure) if failure.loses_connection());
        self.put_back(conn, lost);
        done
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
        }
    }

    /// A connection that works as far as is known.
    fn take(&self) -> std::result::Result<Connection, Failure> {
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
        let opened = Connection::open(self).and_then(|mut conn| {
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
        let closed = if lost || conn.client.is_closed() || pool.made_in != forks::count() {
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
    fn prepare(&self, conn: &mut Connection) -> std::result::Result<(), Failure> {
        let timeout = self.options.answer_timeout;
        let mut call = Call::new(conn, Mode::Single, timeout);
        let known = call.one("SELECT to_regclass('chaton.version') IS NOT NULL", &[])?;
        if known.is_some_and(|row| row.get(0)) {
            let version = call.one("SELECT max(number) FROM chaton.version", &[])?;
            if version.and_then(|row| row.get::<_, Option<i64>>(0)) >= Some(schema::VERSION) {
                return Ok(());
            }
        }
        migrate(conn, schema::STEPS).map(drop)
    }

    /// Makes the tables or brings them up to date; returns the version.
    pub fn migrate(&self, steps: &[&str]) -> Result<i64> {
        let made = Connection::open(self).and_then(|mut conn| migrate(&mut conn, steps));
        made.map_err(|failure| failure.into_error(&self.address.shown))
    }
}

/// A step waits for so long to have a table for itself, since whoever comes later waits behind it ...
const LOCK_MAX: Duration = Duration::from_millis(200);
/// ... and is tried again after a pause, in which the release before works on, so often.
const STEP_PAUSE: Duration = Duration::from_secs(2);
const STEP_TRIES: u32 = 5;

fn migrate(conn: &mut Connection, steps: &[&str]) -> std::result::Result<i64, Failure> {
    let mut call = Call::new(conn, Mode::Transaction, MIGRATE_MAX);
    let version = steps.len() as i64;
    let done = (|| {
        call.script(schema::BEGIN)?;
        let found = call.one("SELECT max(number) FROM chaton.version", &[])?;
        let found = found.map_or(0, |row| row.get::<_, i64>(0));
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
                return Err(advice::reader(&mut call)?.map_or(failure, Failure::Store));
            }
            tries += 1;
            call.script(&again)?;
        }
        call.run("UPDATE chaton.version SET number=$1 WHERE number<$1", args![version])
    })();
    match done {
        Ok(_) => call.commit().map(|()| version),
        Err(failure) => {
            call.rollback()?;
            Err(failure)
        }
    }
}

/// A call that runs on a connection.
pub(super) struct Call<'a> {
    pub conn: &'a mut Connection,
    mode: Mode,
    timeout: Duration,
    begun: bool,
    /// What changed: names of queues, or nothing for all else.
    told: BTreeSet<String>,
    /// Queues that the transaction has added.
    new_queues: Vec<String>,
}

const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED;
    SET LOCAL enable_seqscan=off; SET LOCAL enable_bitmapscan=off; SET LOCAL jit=off";
const BEGIN_CLAIM: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit=off;
    SET LOCAL enable_seqscan=off; SET LOCAL enable_bitmapscan=off; SET LOCAL jit=off";
/// Settings by which an index gives rows in their order. The table is empty at one time and holds a million jobs soon
/// after, so its statistics are always wrong: by them the planner reads and sorts a whole queue to claim a few jobs
/// (measured: 104 ms instead of 5 ms with 100,000 waiting). Where only a sequential scan is possible, its cost is
/// that of a forbidden plan, for which the server would compile the statement (measured: more than 1 s).
pub(super) const PLANS: &str = "SET enable_seqscan=off; SET enable_bitmapscan=off; SET jit=off";
/// A notification is sent behind its own commit, which need not wait for the disk.
const TELL: &str = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, name) FROM unnest($2) name";

impl<'a> Call<'a> {
    fn new(conn: &'a mut Connection, mode: Mode, timeout: Duration) -> Self {
        Self { conn, mode, timeout, begun: false, told: BTreeSet::new(), new_queues: vec![] }
    }

    /// The rows of a statement. A transaction begins with its first one, in the same round trip; what a single
    /// statement has changed is told behind it, also in the same round trip, but without a wait for its answer.
    pub fn rows(&mut self, sql: &str, args: Args<'_>) -> std::result::Result<Vec<Row>, Failure> {
        let commits = self.mode != Mode::Transaction;
        let is_claim = self.mode == Mode::Claim;
        let begins = self.mode == Mode::Planned || is_claim || !commits && !self.begun;
        let begin = if is_claim { BEGIN_CLAIM } else { BEGIN };
        let told = if commits { std::mem::take(&mut self.told) } else { BTreeSet::new() };
        let (runtime, client, timeout) = (&self.conn.runtime, &self.conn.client, self.timeout);
        let phase = if commits { Phase::InDoubt } else { Phase::Statement };
        self.begun |= begins && !commits;
        let all = async {
            let control = |is_sent: bool, sql: &'static str| async move {
                if is_sent {
                    client.batch_execute(sql).await
                } else {
                    Ok(())
                }
            };
            let tell = pin!(tell(client, &told));
            // In this order they are sent. Behind an error, the commit is a rollback.
            let (begun, rows, committed, ()) = tokio::join!(
                biased;
                control(begins, begin),
                client.query_typed(sql, args),
                control(begins && commits, "COMMIT"),
                sent(tell)
            );
            begun.and(rows).and_then(|rows| committed.map(|()| rows))
        };
        match runtime.block_on(async { tokio::time::timeout(timeout, all).await }) {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(error)) => Err(Failure::of(error, phase)),
            Err(_) => {
                self.conn.cancel();
                Err(Failure::Late(phase))
            }
        }
    }

    /// The first row.
    pub fn one(&mut self, sql: &str, args: Args<'_>) -> std::result::Result<Option<Row>, Failure> {
        Ok(self.rows(sql, args)?.into_iter().next())
    }

    /// Whether there is a row.
    pub fn any(&mut self, sql: &str, args: Args<'_>) -> std::result::Result<bool, Failure> {
        Ok(!self.rows(sql, args)?.is_empty())
    }

    /// How many rows a statement changed: it ends with `RETURNING` then.
    pub fn run(&mut self, sql: &str, args: Args<'_>) -> std::result::Result<usize, Failure> {
        Ok(self.rows(sql, args)?.len())
    }

    /// Others may wait for this change of a queue, or of anything else (an empty name). It is told after the commit,
    /// and outside of the transaction: a transaction that tells takes a lock of the whole server at its commit.
    pub fn tell(&mut self, queue: &str) {
        // A payload must be shorter than 8,000 bytes.
        self.told.insert(if queue.len() < 4000 { queue.into() } else { String::new() });
    }

    /// These queues are in their table now, or after the commit.
    pub fn note_queues(&mut self, names: &[&str]) {
        self.new_queues.extend(names.iter().map(|name| name.to_string()));
        if self.mode != Mode::Transaction {
            self.conn.known_queues.extend(self.new_queues.drain(..));
        }
    }

    fn script(&mut self, sql: &str) -> std::result::Result<(), Failure> {
        let sql = if self.begun { sql.to_string() } else { format!("{BEGIN};{sql}") };
        self.begun = true;
        self.wait(Phase::Statement, |client| async move { client.batch_execute(&sql).await })
    }

    fn commit(&mut self) -> std::result::Result<(), Failure> {
        let told = std::mem::take(&mut self.told);
        self.wait(Phase::InDoubt, |client| async move {
            let tell = pin!(tell(client, &told));
            tokio::join!(biased; client.batch_execute("COMMIT"), sent(tell)).0
        })?;
        self.conn.known_queues.extend(self.new_queues.drain(..));
        Ok(())
    }

    fn rollback(&mut self) -> std::result::Result<(), Failure> {
        self.wait(Phase::Statement, |client| client.batch_execute("ROLLBACK"))
    }

    fn wait<'c, F: Future<Output = std::result::Result<(), tokio_postgres::Error>>>(
        &'c mut self,
        phase: Phase,
        op: impl FnOnce(&'c Client) -> F,
    ) -> std::result::Result<(), Failure> {
        let timeout = self.timeout;
        let op = op(&self.conn.client);
        match self.conn.runtime.block_on(async { tokio::time::timeout(timeout, op).await }) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Failure::of(error, phase)),
            Err(_) => {
                self.conn.cancel();
                Err(Failure::Late(phase))
            }
        }
    }
}

/// Sends a statement: a future is sent at its first turn. The driver reads the answer later and forgets it.
async fn sent(mut statement: Pin<&mut impl Future<Output = ()>>) {
    poll_fn(|context| {
        let _ = statement.as_mut().poll(context);
        Poll::Ready(())
    })
    .await;
}

/// Tells what changed. A failure is not one of the call: those that wait look at the tables from time to time.
async fn tell(client: &Client, names: &BTreeSet<String>) {
    if !names.is_empty() {
        let names: Vec<&str> = names.iter().map(|name| &**name).collect();
        drop(client.query_typed(TELL, args![CHANNEL, names]).await);
    }
}
