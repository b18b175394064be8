//! The relay: hands the rows of the outbox to a log, those of a key in their order, each at least once.
//!
//! One process of all has the lock of the database, which the server frees when its connection ends; others wait for it.
//! Rows are removed when the log has them. What a relay that died has handed over is handed over again by the next one,
//! from the oldest row on, so that the first copies are in order, too.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_core::backoff::Backoff;
use chaton_core::log;
use chaton_core::outbox::{Delivery, Outlet, OwnedRecord};
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio::sync::{watch, Notify};
use tokio::time::{sleep, timeout};
use tokio_postgres::{Client, Config};

use super::connection::{args, connect, hear, runtime, Args, Mode, OUTBOX_CHANNEL, PLANS};
use super::errors::{Failure, Phase, Result};
use super::outbox::{blocked, read, BLOCKER, ROUND};
use super::server::Server;
use crate::store::error::StoreError;

/// Rows handed over and not removed yet: what is sent twice at most after a death.
const ROWS_MAX: usize = 5_000;
/// Bytes of them.
const BYTES_MAX: usize = 32 << 20;
/// Rows read at once.
const READ_MAX: usize = 1_000;
/// Time between two looks when nothing is told, by which commits that Chaton does not see are found: the first after one
/// that has found rows, and twice as long after each that has not, up to the second.
const POLL: (Duration, Duration) = (Duration::from_millis(4), Duration::from_secs(1));
/// The longest while rows wait for another transaction to end, whose end nobody tells.
const RECHECK_MAX: Duration = Duration::from_millis(250);
/// Time between two notes of up to where rows are read.
const FLOOR_EVERY: Duration = Duration::from_millis(250);
/// Time between two reads of all rows.
const BEHIND_EVERY: Duration = Duration::from_secs(5);
/// Time for what was handed over to become durable when the relay ends.
const END_MAX: Duration = Duration::from_secs(3);
/// Rows that have waited for a transaction or for the log for so long are told to a person, ...
const LATE: Duration = Duration::from_secs(10);
/// ... so often.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// Pauses after a failure.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3));

/// The server should know within half a minute that the machine of a connection is gone. A waiting statement has a
/// snapshot, which keeps dead rows: it ends after a while and begins anew, without a line in the server's log.
const BEGIN: &str = "SET application_name='chaton outbox'; SET synchronous_commit=off; SET lock_timeout='5s'; SET statement_timeout=0;
    SET tcp_keepalives_idle=10; SET tcp_keepalives_interval=5; SET tcp_keepalives_count=3; SET tcp_user_timeout=25000";
const WAIT: &str = "DO $$ BEGIN PERFORM pg_advisory_lock(1128812110, 1);
    EXCEPTION WHEN lock_not_available THEN NULL; END $$";
const WAIT_MAX: Duration = Duration::from_secs(20);
const LOCK: &str = "SELECT 1 WHERE pg_try_advisory_lock(1128812110, 1)";

pub(super) struct Relay {
    server: Arc<Server>,
    outlet: Box<dyn Outlet>,
    stop: watch::Receiver<bool>,
    backoff: Backoff,
}

/// Starts the thread; what is returned stops it and waits for its end.
pub(super) fn start(
    server: &Arc<Server>,
    outlet: Box<dyn Outlet>,
) -> std::io::Result<Box<dyn FnOnce() + Send>> {
    let (stopper, stop) = watch::channel(false);
    let backoff = Backoff::new(PAUSES.0, PAUSES.1);
    let relay = Relay { server: server.clone(), outlet, stop, backoff };
    let thread = chaton_core::thread::spawn("chaton outbox", move || relay.run())?;
    Ok(Box::new(move || {
        stopper.send_replace(true);
        // Its panic has been reported.
        drop(thread.join());
    }))
}

impl Relay {
    fn run(mut self) {
        let shown = self.server.address.shown.clone();
        let Some(config) = self.server.address.listen.clone() else { return };
        let runtime = match runtime() {
            Ok(runtime) => runtime,
            Err(failure) => return log::warn(&format!("outbox: {}", failure.into_error(&shown))),
        };
        while let Err(failure) = self.session(&runtime, &config) {
            self.outlet.reset();
            let error = failure.into_error(&shown).to_string();
            let (pause, is_new) = self.backoff.failed(&error);
            if is_new {
                log::warn(&format!("outbox: rows are not relayed; trying again: {error}"));
            }
            let mut stop = self.stop.clone();
            let stops = async { timeout(pause, stop.wait_for(|stop| *stop)).await.is_ok() };
            if runtime.block_on(stops) {
                return;
            }
        }
    }

    /// Relays until it is to stop.
    fn session(&mut self, runtime: &Runtime, config: &Config) -> Result<()> {
        // The tables are made by a connection of the pool, which is closed then.
        self.server.add_user();
        let made = self.server.run(Mode::Single, |call| call.rows("SELECT 1", &[]));
        self.server.remove_user();
        made.map_err(Failure::Store)?;
        runtime.block_on(async {
            let mut stop = self.stop.clone();
            let mut session = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return Ok(()),
                opened = Session::open(&self.server, config) => opened?,
            };
            let served = session.serve(&mut *self.outlet, &mut stop, &mut self.backoff).await;
            let finished = session.finish().await;
            served.and(finished)
        })
    }
}

/// What tasks and threads tell a session.
#[derive(Default)]
struct Inbox {
    state: Mutex<Told>,
    arrived: Notify,
}

#[derive(Default)]
struct Told {
    settled: Vec<(i64, Delivery)>,
    /// There are new rows.
    rows: bool,
    closed: Option<String>,
}

impl Inbox {
    fn tell(&self, tell: impl FnOnce(&mut Told)) {
        tell(&mut self.state.lock());
        self.arrived.notify_one();
    }
}

/// A row that was handed over.
struct Flight {
    /// Stands for its topic and key; `None`: its order does not matter.
    key: Option<u64>,
    bytes: usize,
    sent: Instant,
    end: Option<Delivery>,
}

/// Rows that are done: those that the log has, and those that it refuses, with the reasons.
type Ended = (Vec<i64>, Vec<i64>, Vec<String>);

/// The time with one connection, while it has the lock.
struct Session {
    client: Client,
    timeout: Duration,
    inbox: Arc<Inbox>,
    flights: BTreeMap<i64, Flight>,
    /// Reads begin behind this row, since the index has dead entries before it: there can be no row any more that was
    /// not seen.
    floor: i64,
    /// The last row handed over, when it was noted to become the floor, and the number of the next transaction then: once
    /// all below that have ended, no smaller `id` can appear.
    next_floor: (i64, Instant, i64),
    last: i64,
    looked_behind: Instant,
    /// Since when rows wait for another transaction.
    waits_since: Option<Instant>,
    /// The time to the next look if this one finds nothing.
    pause: Duration,
    told_at: Option<Instant>,
}

impl Session {
    /// Connects, and waits for the lock.
    async fn open(server: &Server, config: &Config) -> Result<Self> {
        let options = &server.options;
        let (client, driver) =
            connect(config, &server.address.tls, options.connect_timeout).await?;
        let inbox = Arc::new(Inbox::default());
        let heard = inbox.clone();
        tokio::spawn(async move {
            let why = hear(driver, |_| heard.tell(|told| told.rows = true)).await;
            heard.tell(|told| told.closed = Some(why));
        });
        let now = Instant::now();
        let session = Self {
            client,
            timeout: options.answer_timeout,
            inbox,
            flights: BTreeMap::new(),
            floor: 0,
            next_floor: (0, now, 0),
            last: 0,
            looked_behind: now,
            waits_since: None,
            pause: POLL.0,
            told_at: None,
        };
        session.script(BEGIN, session.timeout).await?;
        while session.rows(LOCK, &[]).await?.is_empty() {
            session.script(WAIT, WAIT_MAX).await?;
        }
        session.script(&format!("{PLANS}; LISTEN {OUTBOX_CHANNEL}"), session.timeout).await?;
        Ok(session)
    }

    async fn script(&self, sql: &str, max: Duration) -> Result<()> {
        let done = timeout(max, self.client.batch_execute(sql)).await;
        Ok(done.map_err(|_| Failure::Late(Phase::Statement))??)
    }

    async fn rows(&self, sql: &str, args: Args<'_>) -> Result<Vec<tokio_postgres::Row>> {
        let done = timeout(self.timeout, self.client.query_typed(sql, args)).await;
        Ok(done.map_err(|_| Failure::Late(Phase::Statement))??)
    }

    /// Hands rows over until it is to stop, the log fails, or the connection ends.
    async fn serve(
        &mut self,
        outlet: &mut dyn Outlet,
        stop: &mut watch::Receiver<bool>,
        backoff: &mut Backoff,
    ) -> Result<()> {
        let (mut look_at, mut is_told) = (Instant::now(), false);
        while !*stop.borrow() {
            let told = self.settle(backoff)?;
            let now = Instant::now();
            let room = self.room();
            let has_room = room.0 > 0 && room.1 > 0;
            is_told |= told;
            let looks = has_room && (is_told || look_at <= now);
            let ended = self.ended();
            let (gone, refused, _) = &ended;
            if looks || !gone.is_empty() || !refused.is_empty() {
                let (rows, waits) = self.round(ended, if looks { room } else { (0, 0) }).await?;
                if looks {
                    look_at = now + self.note_look(now, is_told || !rows.is_empty(), waits);
                    is_told = false;
                    // There may be more.
                    let bytes: usize = rows.iter().map(|(_, record)| size(record)).sum();
                    if rows.len() == room.0 || bytes > room.1 / 2 {
                        look_at = now;
                    }
                }
                rows.into_iter().for_each(|(id, record)| self.hand(outlet, id, record));
                continue;
            }
            self.tell_late(outlet).await?;
            let look_at = if has_room { look_at } else { now + POLL.1 };
            tokio::select! {
                () = self.inbox.arrived.notified() => {}
                () = sleep(look_at.saturating_duration_since(now)) => {}
                changed = stop.changed() => if changed.is_err() { return Ok(()) },
            }
        }
        Ok(())
    }

    /// Waits a while for what was handed over, and removes what the log has.
    async fn finish(&mut self) -> Result<()> {
        if self.client.is_closed() {
            return Ok(());
        }
        let waits = async {
            loop {
                let arrived = self.inbox.arrived.notified();
                let told = std::mem::take(&mut *self.inbox.state.lock());
                note(&mut self.flights, told.settled);
                if self.flights.values().all(|flight| flight.end.is_some()) {
                    return;
                }
                arrived.await;
            }
        };
        drop(timeout(END_MAX, waits).await);
        let ended = self.ended();
        self.round(ended, (0, 0)).await.map(drop)
    }

    /// Notes what became of rows; returns whether there are new ones.
    fn settle(&mut self, backoff: &mut Backoff) -> Result<bool> {
        let told = std::mem::take(&mut *self.inbox.state.lock());
        if told.settled.iter().any(|(_, end)| *end == Delivery::Written) && backoff.succeeded() > 0
        {
            log::info("outbox: rows are relayed again");
        }
        let failed = note(&mut self.flights, told.settled);
        match told.closed.or(failed) {
            Some(why) => Err(Failure::Store(StoreError::unavailable(why))),
            None => Ok(told.rows),
        }
    }

    /// How many rows, and bytes of them, may be read now.
    fn room(&self) -> (usize, usize) {
        let bytes: usize = self.flights.values().map(|flight| flight.bytes).sum();
        (READ_MAX.min(ROWS_MAX - self.flights.len().min(ROWS_MAX)), BYTES_MAX.saturating_sub(bytes))
    }

    /// The rows that are done. One behind a row of its key that is not is not, either: if that one fails, it is handed
    /// over again, behind it.
    fn ended(&self) -> Ended {
        let (mut gone, mut refused, mut reasons) = Ended::default();
        let mut open = HashSet::new();
        for (id, flight) in &self.flights {
            if flight.key.is_some_and(|key| open.contains(&key)) {
                continue;
            }
            match &flight.end {
                Some(Delivery::Written) => gone.push(*id),
                Some(Delivery::Refused(why)) => {
                    refused.push(*id);
                    reasons.push(why.clone());
                }
                None | Some(Delivery::Failed(_)) => open.extend(flight.key),
            }
        }
        (gone, refused, reasons)
    }

    /// Removes what is done and reads what comes next; also returns whether rows wait for a transaction.
    async fn round(
        &mut self,
        (gone, refused, reasons): Ended,
        (rows, bytes): (usize, usize),
    ) -> Result<(Vec<(i64, OwnedRecord)>, bool)> {
        if let (Some(id), Some(why)) = (refused.first(), reasons.first()) {
            let count = refused.len();
            log::warn(&format!(
                "outbox: the log refuses {count} rows, which are in chaton.outbox_refused now; later rows of their keys \
                 go on. Row {id}: {why}"
            ));
        }
        let flights: Vec<i64> = self.flights.keys().copied().collect();
        // A row gets its number just before its transaction has one.
        let looks_behind = rows > 0 && self.looked_behind.elapsed() >= BEHIND_EVERY;
        if looks_behind {
            self.looked_behind = Instant::now();
        }
        let from = if looks_behind { 0 } else { self.floor };
        let args = args![gone, refused, reasons, from, flights, rows as i64, bytes as i64];
        let found = self.rows(ROUND, args).await?;
        for id in gone.iter().chain(&refused) {
            self.flights.remove(id);
        }
        // Nothing behind a row that waits is taken.
        let next: Vec<_> = found.iter().map_while(read).collect();
        let waits = found.get(next.len()).is_some_and(|row| row.get::<_, Option<i64>>(0).is_some());
        let read_to = next.last().map_or(i64::MAX, |(id, _)| *id);
        if let Some(row) = found.first().filter(|_| rows > 0 && !waits) {
            self.raise_floor(read_to, row.get(9), row.get(10));
        }
        Ok((next, waits))
    }

    /// The time to the next look, after one that may have `found` rows or was told of them.
    fn note_look(&mut self, now: Instant, found: bool, waits: bool) -> Duration {
        if found || waits && self.waits_since.is_none() {
            self.pause = POLL.0;
        }
        self.waits_since = waits.then(|| self.waits_since.unwrap_or(now));
        let pause = self.pause.min(if waits { RECHECK_MAX } else { POLL.1 });
        self.pause = 2 * pause;
        pause
    }

    /// After a read of all rows between the floor and one of them, from a snapshot with these numbers of transactions.
    fn raise_floor(&mut self, read_to: i64, low: i64, high: i64) {
        let (floor, noted, ends_at) = self.next_floor;
        if read_to >= floor && low >= ends_at && noted.elapsed() >= FLOOR_EVERY {
            self.floor = floor;
            self.next_floor = (self.last, Instant::now(), high);
        }
    }

    fn hand(&mut self, outlet: &mut dyn Outlet, id: i64, record: OwnedRecord) {
        let inbox = self.inbox.clone();
        let place = record.key.as_deref().map_or(record.partition.map(|_| &b""[..]), Some);
        let key = place.map(|key| {
            let mut hash = DefaultHasher::new();
            (&record.topic, record.partition, key).hash(&mut hash);
            hash.finish()
        });
        let flight = Flight { key, bytes: size(&record), sent: Instant::now(), end: None };
        self.flights.insert(id, flight);
        self.last = self.last.max(id);
        outlet.send(record, Box::new(move |end| inbox.tell(|told| told.settled.push((id, end)))));
    }

    /// Tells a person what rows have waited for, for long.
    async fn tell_late(&mut self, outlet: &mut dyn Outlet) -> Result<()> {
        let waits = self.waits_since.is_some_and(|since| since.elapsed() >= LATE);
        let first = self.flights.values().find(|flight| flight.end.is_none());
        let is_late = first.is_some_and(|flight| flight.sent.elapsed() >= LATE);
        if !waits && !is_late || self.told_at.is_some_and(|at| at.elapsed() < TELL_EVERY) {
            return Ok(());
        }
        self.told_at = Some(Instant::now());
        let why = if waits {
            blocked(self.rows(BLOCKER, &[]).await?.first())
        } else {
            let address = outlet.address();
            outlet.complaint().unwrap_or_else(|| format!("{address} has not confirmed them"))
        };
        log::warn(&format!("outbox: rows wait for {} s or more: {why}", LATE.as_secs()));
        Ok(())
    }
}

/// Notes what became of rows; returns why one was not written.
fn note(flights: &mut BTreeMap<i64, Flight>, settled: Vec<(i64, Delivery)>) -> Option<String> {
    let mut failed = None;
    for (id, end) in settled {
        if let Delivery::Failed(why) = &end {
            failed.get_or_insert_with(|| why.clone());
        }
        flights.entry(id).and_modify(|flight| flight.end = Some(end));
    }
    failed
}

fn size(record: &OwnedRecord) -> usize {
    let length = |part: &Option<Vec<u8>>| part.as_ref().map_or(0, Vec::len);
    200 + length(&record.key) + length(&record.value)
}
