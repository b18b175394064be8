//! Connections, and statements on them.
//!
//! Each has a runtime of its own that only turns while its thread waits for an answer: no thread is started. A process
//! has few connections, however many stores it opens: a call takes one out of the pool and gives it back. Statements
//! have no names (`query_typed`), so that a bouncer may give each transaction another server; but for claims where there
//! is none, whose plan is made once ([`Call::prepared`]).

use std::collections::{BTreeSet, HashSet};
use std::future::{poll_fn, Future};
use std::pin::{pin, Pin};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::time::error::Elapsed;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::{FromSql, ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Row, Socket, Statement};

use super::address::{PostgresAddress, Tls};
use super::constants::text;
use super::errors::{Failure, Phase, Result};
use crate::store::options::StoreOptions;
use crate::store::StoreError;

/// Now, by the server's clock (s).
pub(super) const NOW: &str = "extract(epoch FROM now())::float8";
/// The channel on which changes are told.
pub(super) const CHANNEL: &str = "chaton_jobs";
/// The channel on which rows of the outbox are told.
pub(super) const OUTBOX_CHANNEL: &str = "chaton_outbox";
/// Longest time to send the cancellation of a statement, which takes a connection of its own.
const CANCEL_MAX: Duration = Duration::from_secs(1);

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
    pub used: Instant,
    /// Queues that the table has for certain.
    pub known_queues: HashSet<String>,
    /// No bouncer gives its transactions to other servers, as far as is known.
    pub is_direct: bool,
    /// The one statement with a plan that is kept.
    prepared: Option<Statement>,
}

impl Connection {
    pub fn open(address: &PostgresAddress, options: &StoreOptions) -> Result<Self> {
        let runtime = runtime()?;
        let connecting = connect(&address.config, &address.tls, options.connect_timeout);
        let (client, driver) = runtime.block_on(connecting)?;
        runtime.spawn(driver);
        let tls = address.tls.clone();
        Ok(Self {
            runtime,
            client,
            tls,
            used: Instant::now(),
            known_queues: HashSet::new(),
            is_direct: false,
            prepared: None,
        })
    }

    /// Ends the statement that had no answer in time: closing the connection would leave it waiting for its lock. A
    /// cancellation has no answer either, so a failure changes nothing.
    fn cancel(&self) {
        let token = self.client.cancel_token();
        let cancel = token.cancel_query(self.tls.clone());
        drop(self.runtime.block_on(async { tokio::time::timeout(CANCEL_MAX, cancel).await }));
    }

    /// Runs statements, and ends the transaction that they have begun.
    pub fn call<T>(
        &mut self,
        mode: Mode,
        timeout: Duration,
        op: impl FnOnce(&mut Call<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut call = Call::new(self, mode, timeout);
        let done = op(&mut call);
        if !call.begun {
            return done;
        }
        let ended = if done.is_ok() { call.commit() } else { call.rollback() };
        done.and_then(|done| ended.map(|()| done))
    }

    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Whether the server has closed it meanwhile.
    pub fn is_dead(&self) -> bool {
        // The driver sees the end of a connection only when it turns.
        self.runtime.block_on(async {
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
        });
        self.is_closed()
    }
}

/// A runtime that turns on the thread that waits.
pub(super) fn runtime() -> Result<Runtime> {
    let made = Builder::new_current_thread().enable_io().enable_time().build();
    made.map_err(|error| {
        Failure::Store(StoreError::unavailable(format!("PostgreSQL: no runtime: {error}")))
    })
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

/// A call that runs on a connection.
pub(super) struct Call<'a> {
    pub conn: &'a mut Connection,
    mode: Mode,
    timeout: Duration,
    begun: bool,
    /// What changed, each with its channel: names of queues, or nothing for all else.
    told: BTreeSet<(&'static str, String)>,
    /// Queues that the transaction has added.
    new_queues: Vec<String>,
}

macro_rules! begin {
    ($more:literal) => {
        concat!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL enable_seqscan=off;
    SET LOCAL enable_bitmapscan=off; SET LOCAL jit=off",
            $more
        )
    };
}
const BEGIN: &str = begin!("");
const BEGIN_CLAIM: &str = begin!("; SET LOCAL synchronous_commit=off");
/// The same before [`Call::prepared`].
const BEGIN_PREPARED: [&str; 2] = [
    begin!("; SET LOCAL plan_cache_mode=force_generic_plan"),
    begin!("; SET LOCAL plan_cache_mode=force_generic_plan; SET LOCAL synchronous_commit=off"),
];
/// Settings by which an index gives rows in their order. The table is empty at one time and holds a million jobs soon
/// after, so its statistics are always wrong: by them the planner reads and sorts a whole queue to claim a few jobs
/// (measured: 104 ms instead of 5 ms with 100,000 waiting). Where only a sequential scan is possible, its cost is
/// that of a forbidden plan, for which the server would compile the statement (measured: more than 1 s).
pub(super) const PLANS: &str = "SET enable_seqscan=off; SET enable_bitmapscan=off; SET jit=off";

impl<'a> Call<'a> {
    fn new(conn: &'a mut Connection, mode: Mode, timeout: Duration) -> Self {
        Self { conn, mode, timeout, begun: false, told: BTreeSet::new(), new_queues: vec![] }
    }

    /// The rows of a statement. A transaction begins with its first one, in the same round trip; what a single
    /// statement has changed is told behind it, also in the same round trip, but without a wait for its answer.
    pub fn rows(&mut self, sql: &str, args: Args<'_>) -> Result<Vec<Row>> {
        self.run(sql, args, None)
    }

    /// The same of the one statement that is made so often that its plan is kept, where that is possible: to plan a claim
    /// takes longer than to claim one job.
    pub fn prepared(&mut self, sql: &'static str, args: Args<'_>) -> Result<Vec<Row>> {
        if !self.conn.is_direct {
            return self.run(sql, args, None);
        }
        if self.conn.prepared.is_none() {
            let types: Vec<Type> = args.iter().map(|(_, kind)| kind.clone()).collect();
            let preparing = self.conn.client.prepare_typed(sql, &types);
            let timed = async { tokio::time::timeout(self.timeout, preparing).await };
            let answer = self.conn.runtime.block_on(timed);
            self.conn.prepared = Some(self.answered(answer, Phase::Statement)?);
        }
        let statement = self.conn.prepared.clone();
        self.run(sql, args, statement.as_ref())
    }

    fn run(&mut self, sql: &str, args: Args<'_>, prepared: Option<&Statement>) -> Result<Vec<Row>> {
        let commits = self.mode != Mode::Transaction;
        let is_claim = self.mode == Mode::Claim;
        let begins = self.mode == Mode::Planned || is_claim || !commits && !self.begun;
        let begin = match prepared {
            Some(_) => BEGIN_PREPARED[usize::from(is_claim)],
            None if is_claim => BEGIN_CLAIM,
            None => BEGIN,
        };
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
            let asked = async {
                let Some(statement) = prepared else { return client.query_typed(sql, args).await };
                let values: Vec<&(dyn ToSql + Sync)> =
                    args.iter().map(|(value, _)| *value).collect();
                client.query(statement, &values).await
            };
            let tell = pin!(tell(client, &told));
            // In this order they are sent. Behind an error, the commit is a rollback.
            let (begun, rows, committed, ()) = tokio::join!(
                biased;
                control(begins, begin),
                asked,
                control(begins && commits, "COMMIT"),
                sent(tell)
            );
            begun.and(rows).and_then(|rows| committed.map(|()| rows))
        };
        let answer = runtime.block_on(async { tokio::time::timeout(timeout, all).await });
        self.answered(answer, phase)
    }

    /// A statement without rows.
    pub fn exec(&mut self, sql: &str, args: Args<'_>) -> Result<()> {
        self.rows(sql, args).map(drop)
    }

    /// The first row.
    pub fn one(&mut self, sql: &str, args: Args<'_>) -> Result<Option<Row>> {
        Ok(self.rows(sql, args)?.into_iter().next())
    }

    /// The first column of the first row.
    pub fn value<T: for<'r> FromSql<'r>>(
        &mut self,
        sql: &str,
        args: Args<'_>,
    ) -> Result<Option<T>> {
        Ok(self.one(sql, args)?.map(|row| row.get(0)))
    }

    /// Whether there is a row.
    pub fn any(&mut self, sql: &str, args: Args<'_>) -> Result<bool> {
        Ok(!self.rows(sql, args)?.is_empty())
    }

    /// Others may wait for this change of a queue, or of anything else (an empty name). It is told after the commit,
    /// and outside of the transaction: a transaction that tells takes a lock of the whole server at its commit.
    pub fn tell(&mut self, queue: &str) {
        // A payload must be shorter than 8,000 bytes.
        let name = if queue.len() < 4000 { queue.into() } else { String::new() };
        self.told.insert((CHANNEL, name));
    }

    /// Rows of the outbox were committed.
    pub fn tell_outbox(&mut self) {
        self.told.insert((OUTBOX_CHANNEL, String::new()));
    }

    /// These queues are in their table now, or after the commit.
    pub fn note_queues(&mut self, names: &[&str]) {
        self.new_queues.extend(names.iter().map(|name| name.to_string()));
        if self.mode != Mode::Transaction {
            self.conn.known_queues.extend(self.new_queues.drain(..));
        }
    }

    pub fn script(&mut self, sql: &str) -> Result<()> {
        let sql = if self.begun { sql.to_string() } else { format!("{BEGIN};{sql}") };
        self.begun = true;
        self.wait(Phase::Statement, |client| async move { client.batch_execute(&sql).await })
    }

    fn commit(&mut self) -> Result<()> {
        let told = std::mem::take(&mut self.told);
        self.wait(Phase::InDoubt, |client| async move {
            let tell = pin!(tell(client, &told));
            tokio::join!(biased; client.batch_execute("COMMIT"), sent(tell)).0
        })?;
        self.conn.known_queues.extend(self.new_queues.drain(..));
        Ok(())
    }

    fn rollback(&mut self) -> Result<()> {
        self.wait(Phase::Statement, |client| client.batch_execute("ROLLBACK"))
    }

    fn wait<'c, F: Future<Output = std::result::Result<(), tokio_postgres::Error>>>(
        &'c mut self,
        phase: Phase,
        op: impl FnOnce(&'c Client) -> F,
    ) -> Result<()> {
        let timeout = self.timeout;
        let op = op(&self.conn.client);
        let answer = self.conn.runtime.block_on(async { tokio::time::timeout(timeout, op).await });
        self.answered(answer, phase)
    }

    fn answered<T>(
        &self,
        answer: std::result::Result<std::result::Result<T, tokio_postgres::Error>, Elapsed>,
        phase: Phase,
    ) -> Result<T> {
        match answer {
            Ok(answer) => answer.map_err(|error| Failure::of(error, phase)),
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

/// Tells what changed, by a commit that does not wait for the disk: statements that need no plan, in one transaction. A
/// failure is not one of the call: those that wait look at the tables from time to time.
async fn tell(client: &Client, told: &BTreeSet<(&'static str, String)>) {
    if !told.is_empty() {
        let notify = |(channel, name): &(&str, String)| format!(";NOTIFY {channel},{}", text(name));
        let script: String = told.iter().map(notify).collect();
        drop(client.batch_execute(&format!("SET LOCAL synchronous_commit=off{script}")).await);
    }
}

/// What turns for a client.
type Driver = tokio_postgres::Connection<Socket, <Tls as MakeTlsConnect<Socket>>::Stream>;

/// Connects, to a server as the one of this configuration.
pub(super) async fn connect(
    config: &tokio_postgres::Config,
    tls: &Tls,
    timeout: Duration,
) -> Result<(Client, Driver)> {
    let connecting = config.connect(tls.clone());
    let connected = tokio::time::timeout(timeout, connecting).await;
    Ok(connected.map_err(|_| Failure::Late(Phase::Connect))??)
}

/// Turns for the client and passes its notifications on, until the connection ends. Returns why.
pub(super) async fn hear(mut driver: Driver, tell: impl Fn(&str)) -> String {
    loop {
        match poll_fn(|context| driver.poll_message(context)).await {
            Some(Ok(AsyncMessage::Notification(one))) => tell(one.payload()),
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                let why = std::error::Error::source(&error);
                return why.map_or_else(|| error.to_string(), |why| format!("{error}: {why}"));
            }
            None => return "the server closed the connection".into(),
        }
    }
}
