//! The log in a Redis or Valkey, for several machines.
//!
//! | key | content |
//! |---|---|
//! | `chaton:live:log` | stream of the messages that are kept, with the ids `OFFSET-0` |
//! | `chaton:live:of:NAME` | stream of the ids of a name's messages; `chaton:live:names` has all names |
//! | `chaton:live:meta` | hash: epoch, secret, last and deleted offset, bytes, the server's run id, what machines have sent later |
//! | `chaton:live:keys` | hash of name and key → offset |
//! | `chaton:live:ends`, `chaton:live:begins` | hash name → offset of the end of its subscriptions, of its text's begin |
//!
//! While the server cannot be reached, messages are kept in a file of the machine, from which the tails of its processes
//! pass them on, without ids. Once it can be reached they are added to the log, and are not sent again to those who had
//! them.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_embedded::{Error, ErrorKind, Result};
use chaton_redis::{
    AddressOptions, Pipeline, RedisAddress, RedisConnection, RespValue, ScriptSource, ServerHandle,
};
use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use rustix::event::{poll, PollFd, PollFlags, Timespec};

use crate::file_log::{FileLog, FileReader, OwnedRow};
use crate::message::Message;
use crate::row::{unavailable, Ends, Extent, Kind, Position, Row};
use crate::settings::{RedisSettings, Settings};

static SCRIPTS: [ScriptSource; 2] = [
    ScriptSource { uses: &[], body: include_str!("lua/open.lua"), adds: true },
    ScriptSource { uses: &[], body: include_str!("lua/add.lua"), adds: true },
];
const OPEN: usize = 0;
const ADD: usize = 1;
/// Messages read at once: all that are kept fit into memory.
const READ_MAX: u64 = 512;
/// Those of one name, as many as a page has.
const OF_NAME_MAX: u64 = 256;
/// Time for which a server that did not answer is not asked again by those who add messages or open streams.
const AWAY: Duration = Duration::from_secs(1);
/// How often a log that was replaced meanwhile is tried.
const TRIES: usize = 3;

/// The server.
pub(crate) struct RedisLog {
    server: Arc<ServerHandle>,
    link: Mutex<Link>,
    /// What is kept: messages, bytes, milliseconds.
    limits: [u64; 3],
    kept: FileLog,
    /// This process has messages in the file.
    keeps: AtomicBool,
    /// The server did not answer when it was asked last.
    is_away: AtomicBool,
}

/// The connection that adds messages.
struct Link {
    conn: RedisConnection,
    /// The number of the connection on which the log was opened.
    opened: u64,
    /// The server's run id.
    run: Vec<u8>,
    /// The log, and the last offset that this process has seen there.
    seen: Position,
    /// It is not asked until then, since it did not answer.
    away_until: Option<Instant>,
}

impl RedisLog {
    pub fn new(redis: &RedisSettings, settings: &Settings) -> Result<Self> {
        let options = AddressOptions {
            url: &redis.url,
            user: redis.user.each_ref().map(Option::as_deref),
            sentinel_user: redis.sentinel_user.each_ref().map(Option::as_deref),
            tls_files: redis.tls_files.each_ref().map(Option::as_deref),
            tls_verify: redis.tls_verify,
            timeouts: redis.timeouts_s.map(Duration::from_secs_f64),
        };
        let server = Arc::new(ServerHandle::new(RedisAddress::read(options)?, false));
        let conn = RedisConnection::new(Arc::clone(&server), &SCRIPTS).staying();
        let (opened, run, seen, away_until) = (0, Vec::new(), Position::default(), None);
        let link = Link { conn, opened, run, seen, away_until };
        let age = u64::try_from(settings.history_age.as_millis()).unwrap_or(u64::MAX);
        Ok(Self {
            server,
            link: Mutex::new(link),
            limits: [settings.history_messages, settings.history_bytes, age],
            kept: FileLog::new(settings),
            keeps: AtomicBool::new(false),
            is_away: AtomicBool::new(false),
        })
    }

    pub fn reader(&self) -> RedisReader<'_> {
        let conn = RedisConnection::tracking(Arc::clone(&self.server)).staying();
        let (kept, kept_at) = (self.kept.reader(), Position::default());
        RedisReader { log: self, conn, made: 0, kept, kept_at, looks: true }
    }

    /// See [`crate::log::Log::add`].
    pub fn add(&self, message: &Message<'_>, kind: Kind) -> Result<Option<u64>> {
        // Pieces of a text need their place in the log.
        let can_wait = matches!(kind, Kind::Message | Kind::End);
        let added = self.on_link(can_wait, |link| {
            if self.keeps.load(Relaxed) {
                self.send_kept(link)?;
            }
            self.try_add(link, message, kind, ("", 0))
        });
        match added {
            Err(error) if can_wait && error.kind == ErrorKind::Unavailable => {
                self.keep(message, kind, error)
            }
            added => added,
        }
    }

    /// Asks the server. If it `may_be_away`, only one caller at a time finds out whether it still is, and seldom.
    fn on_link<R>(&self, may_be_away: bool, ask: impl FnOnce(&mut Link) -> Result<R>) -> Result<R> {
        let doubts = may_be_away && self.is_away.load(Relaxed);
        let link = if doubts { self.link.try_lock() } else { Some(self.link.lock()) };
        let is_asked = |link: &Link| !doubts || link.away_until <= Some(Instant::now());
        let Some(mut link) = link.filter(|link| is_asked(link)) else {
            return Err(unavailable(format!("{}: it did not answer", self.server.address.shown)));
        };
        let asked = ask(&mut link);
        let is_away = asked.as_ref().is_err_and(|error| error.kind == ErrorKind::Unavailable);
        link.away_until = is_away.then(|| Instant::now() + AWAY);
        self.is_away.store(is_away, Relaxed);
        asked
    }

    fn keep(&self, message: &Message<'_>, kind: Kind, why: Error) -> Result<Option<u64>> {
        let kept = self.kept.add(message, kind).map_err(|error| {
            unavailable(format!("{}, and the message cannot be kept: {error}", why.message))
        })?;
        self.keeps.store(true, Relaxed);
        Ok(kept.map(|_| 0))
    }

    /// `kept` is the machine that kept it, and its number there.
    fn try_add(
        &self,
        link: &mut Link,
        message: &Message<'_>,
        kind: Kind,
        kept: (&str, u64),
    ) -> Result<Option<u64>> {
        let mut refused = None;
        for _ in 0..TRIES {
            self.ready(link)?;
            let mut pipeline = Pipeline::new();
            link.conn.script(&mut pipeline, ADD, 12)?;
            let (stored, begin) = kind.stored();
            pipeline.number(link.seen.epoch).word(message.name).word(message.data);
            let [event, key] = [message.event, message.key].map(Option::unwrap_or_default);
            pipeline.word(event).word(key).number(stored);
            pipeline.word(begin.map_or_else(String::new, |begin| begin.to_string()));
            pipeline.word(kept.0).number(kept.1);
            let [messages, bytes, age] = self.limits;
            pipeline.number(messages).number(bytes).number(age);
            let reply = match link.conn.run(&pipeline) {
                // It ran nothing, and another server has its place.
                Err(error) if !error.in_doubt && !link.conn.is_open() => {
                    refused = Some(error.into());
                    continue;
                }
                replies => replies?.pop(),
            };
            match reply.and_then(|reply| reply.int()) {
                Some(0) => return Ok(None),
                Some(offset) if offset > 0 => {
                    link.seen.offset = offset as u64;
                    return Ok(Some(offset as u64));
                }
                _ => link.opened = 0,
            }
        }
        Err(refused.unwrap_or_else(|| self.removed()))
    }

    fn removed(&self) -> Error {
        let shown = &self.server.address.shown;
        unavailable(format!("{shown}: the messages are removed again and again"))
    }

    /// Opens the log on a new connection, to which a server may have come that has lost messages.
    fn ready(&self, link: &mut Link) -> Result<()> {
        link.conn.ensure()?;
        if link.opened != link.conn.connections() {
            self.open(link)?;
        }
        Ok(())
    }

    /// What the log keeps, and its secret; it is made where there is none.
    fn open(&self, link: &mut Link) -> Result<(Extent, Vec<u8>)> {
        link.conn.ensure()?;
        if link.opened != link.conn.connections() {
            let info = link.conn.one(&[b"INFO", b"server"])?.text();
            let run = info.lines().find_map(|line| line.strip_prefix("run_id:"));
            link.run = run.unwrap_or_default().trim().into();
        }
        let made = link.conn.connections();
        let mut new = [0; 40];
        let filled = SystemRandom::new().fill(&mut new);
        filled.map_err(|_| unavailable("the system gives no random numbers".into()))?;
        let (epoch, secret) = new.split_at(8);
        // As many bits as a file's epoch has.
        let epoch = epoch.iter().take(6).fold(0u64, |all, byte| all << 8 | u64::from(*byte));
        let mut pipeline = Pipeline::new();
        link.conn.script(&mut pipeline, OPEN, 5)?;
        pipeline.word(&link.run).number(epoch).word(secret);
        pipeline.number(link.seen.epoch).number(link.seen.offset);
        let reply = link.conn.run(&pipeline)?.pop().unwrap_or(RespValue::Nil).items();
        let [epoch, last, deleted, bytes, messages, secret] = &reply[..] else {
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!("{}: a malformed reply", self.server.address.shown),
            ));
        };
        let [epoch, last, deleted, bytes, messages] =
            [epoch, last, deleted, bytes, messages].map(RespValue::count);
        if link.seen.epoch != epoch {
            link.seen = Position { epoch, offset: 0 };
        }
        link.opened = made;
        Ok((Extent { epoch, deleted, last, messages, bytes, read: 0 }, secret.clone().bytes()))
    }

    pub fn extent(&self) -> Result<Extent> {
        self.on_link(true, |link| Ok(self.open(link)?.0))
    }

    pub fn secret(&self) -> Result<(Extent, Vec<u8>, Ends)> {
        let mut link = self.link.lock();
        let (extent, secret) = self.open(&mut link)?;
        let ends = link.conn.one(&[b"HGETALL", b"chaton:live:ends"])?.pairs();
        let ends = ends.into_iter().map(|(name, offset)| (name.text(), offset.count())).collect();
        Ok((extent, secret, ends))
    }

    /// Adds the messages that this machine has kept.
    fn send_kept(&self, link: &mut Link) -> Result<()> {
        // Others keep messages while the server does not answer.
        self.ready(link)?;
        let mut send = |machine: u64, rows: &[OwnedRow]| {
            let machine = machine.to_string();
            rows.iter().try_for_each(|row| {
                let kept = (machine.as_str(), row.offset);
                self.try_add(link, &row.message(), row.kind, kept).map(drop)
            })
        };
        while self.kept.take_out(&mut send)? {}
        self.keeps.store(false, Relaxed);
        Ok(())
    }
}

/// Reads the log for the tail. The server tells its connection of each change of what was read last.
pub(crate) struct RedisReader<'a> {
    log: &'a RedisLog,
    conn: RedisConnection,
    /// The number of the connection on which it was read.
    made: u64,
    kept: FileReader<'a>,
    /// Messages up to here that were kept were passed on.
    kept_at: Position,
    /// There may be some.
    looks: bool,
}

impl RedisReader<'_> {
    /// See [`crate::log::Reader::watch`].
    pub fn watch(&mut self, at: Position) -> Result<()> {
        // Without the file nothing is kept on this machine.
        let _ = self.kept.prepare();
        self.conn.ensure()?;
        self.conn.pushes();
        let is_new = self.made != self.conn.connections();
        if is_new || self.looks {
            self.log.on_link(true, |link| {
                if is_new {
                    if at.epoch == link.seen.epoch {
                        link.seen.offset = link.seen.offset.max(at.offset);
                    } else {
                        link.seen = at;
                    }
                    self.log.open(link)?;
                }
                self.log.send_kept(link)
            })?;
            (self.made, self.looks) = (self.conn.connections(), false);
        }
        Ok(())
    }

    /// See [`crate::log::Reader::read_all`].
    pub fn read_all(
        &mut self,
        at: Position,
        replaced: impl FnOnce(u64),
        mut each: impl FnMut(&Row<'_>) -> bool,
    ) -> Result<Extent> {
        let machine = self.kept.epoch();
        let (mut extent, mut rows) = self.read_some(at.offset)?;
        if extent.epoch != at.epoch {
            replaced(extent.epoch);
            (extent, rows) = self.read_some(0)?;
        }
        loop {
            let count = rows.len();
            for row in rows {
                extent.read = row.offset;
                if !row.pass(machine, &mut each) {
                    return Ok(extent);
                }
            }
            if count < READ_MAX as usize {
                return Ok(extent);
            }
            let read = extent.read;
            (extent, rows) = self.read_some(read)?;
        }
    }

    fn read_some(&mut self, after: u64) -> Result<(Extent, Vec<Entry>)> {
        for _ in 0..TRIES {
            let mut pipeline = Pipeline::new();
            pipeline.begin(6).word("HMGET").word("chaton:live:meta");
            pipeline.word("epoch").word("last").word("deleted").word("bytes");
            pipeline.begin(2).word("XLEN").word("chaton:live:log");
            pipeline.begin(6).word("XRANGE").word("chaton:live:log").word(format!("({after}-0"));
            pipeline.word("+").word("COUNT").number(READ_MAX);
            let mut replies = self.conn.atomic(&pipeline)?.into_iter();
            let meta = replies.next().unwrap_or(RespValue::Nil).items();
            let messages = replies.next().map_or(0, |length| length.count());
            let [epoch, last, deleted, bytes] = &meta[..] else { continue };
            if *epoch == RespValue::Nil {
                // Everything was removed.
                self.log.open(&mut self.log.link.lock())?;
                continue;
            }
            let [epoch, last, deleted, bytes] = [epoch, last, deleted, bytes].map(RespValue::count);
            let entries = replies.next().unwrap_or(RespValue::Nil).items();
            let rows = entries.into_iter().filter_map(Entry::new).collect();
            return Ok((Extent { epoch, deleted, last, messages, bytes, read: after }, rows));
        }
        Err(self.log.removed())
    }

    /// See [`crate::log::Reader::read_names`].
    pub fn read_names(
        &mut self,
        names: &[Arc<str>],
        (after, to): (u64, u64),
        mut each: impl FnMut(&Row<'_>) -> bool,
    ) -> Result<Extent> {
        // Not on the connection that is told of changes of what it has read.
        let mut link = self.log.link.lock();
        self.log.ready(&mut link)?;
        let conn = &mut link.conn;
        let mut pipeline = Pipeline::new();
        for name in names {
            pipeline.begin(6).word("XRANGE").parts(&[b"chaton:live:of:", name.as_bytes()]);
            pipeline.word(format!("({after}-0")).word(format!("{to}-0"));
            pipeline.word("COUNT").number(OF_NAME_MAX);
        }
        let (mut offsets, mut read) = (Vec::new(), to);
        for ids in conn.run(&pipeline)? {
            let ids = ids.items();
            let is_full = ids.len() as u64 >= OF_NAME_MAX;
            offsets
                .extend(ids.into_iter().filter_map(|id| offset_of(id.items().into_iter().next()?)));
            if let (true, Some(last)) = (is_full, offsets.last()) {
                read = read.min(*last);
            }
        }
        offsets.retain(|offset| *offset <= read);
        offsets.sort_unstable();
        let mut pipeline = Pipeline::new();
        for offset in &offsets {
            let id = format!("{offset}-0");
            pipeline.command(&[b"XRANGE", b"chaton:live:log", id.as_bytes(), id.as_bytes()]);
        }
        pipeline.command(&[b"HMGET", b"chaton:live:meta", b"epoch", b"deleted"]);
        let mut replies = conn.run(&pipeline)?;
        let meta = replies.pop().unwrap_or(RespValue::Nil).items();
        let [epoch, deleted] = [0, 1].map(|at| meta.get(at).map_or(0, RespValue::count));
        let rows =
            replies.into_iter().filter_map(|row| Entry::new(row.items().into_iter().next()?));
        for row in rows {
            if !row.pass(self.kept.epoch(), &mut each) {
                read = row.offset;
                break;
            }
        }
        Ok(Extent { epoch, deleted, read, ..Extent::default() })
    }

    /// See [`crate::log::Reader::read_kept`].
    pub fn read_kept(&mut self, mut each: impl FnMut(&Row<'_>)) -> Result<()> {
        self.kept.prepare()?;
        let extent = self.kept.read_all(
            self.kept_at,
            |_| {},
            |row| {
                each(&Row { offset: 0, kept: row.offset, ..*row });
                true
            },
        )?;
        self.kept_at = Position { epoch: extent.epoch, offset: extent.read };
        Ok(())
    }

    /// See [`crate::log::Reader::wait`].
    pub fn wait(&mut self, interrupt: BorrowedFd<'_>, time: Duration) {
        if !self.conn.is_open() {
            return self.kept.wait(interrupt, time);
        }
        if !self.conn.pushes().is_empty() {
            return;
        }
        let kept = self.kept.changes();
        let fds: Vec<_> = [Some(interrupt), kept].into_iter().flatten().collect();
        // A connection that has failed is made again by the next turn.
        let _ = self.conn.wait_for_push(&fds, time);
        let mut kept: Vec<_> =
            kept.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).into_iter().collect();
        self.looks |= poll(&mut kept, Some(&Timespec::default())).is_ok_and(|ready| ready > 0);
    }
}

/// A message of the stream.
#[derive(Default)]
struct Entry {
    offset: u64,
    is_end: bool,
    name: String,
    event: Option<String>,
    data: Vec<u8>,
    /// The machine that had kept it, and its number there.
    kept: (u64, u64),
}

impl Entry {
    fn new(entry: RespValue) -> Option<Self> {
        let mut parts = entry.items().into_iter();
        let offset = offset_of(parts.next()?)?;
        let mut row = Self { offset, ..Self::default() };
        for (field, value) in parts.next()?.pairs() {
            match field.bytes().as_slice() {
                b"n" => row.name = value.text(),
                b"e" => row.event = Some(value.text()).filter(|event| !event.is_empty()),
                b"k" => row.is_end = value.count() == 1,
                b"m" => row.kept.0 = value.count(),
                b"i" => row.kept.1 = value.count(),
                b"d" => row.data = value.bytes(),
                _ => {}
            }
        }
        Some(row)
    }

    /// `machine` is this one.
    fn pass(&self, machine: u64, each: &mut impl FnMut(&Row<'_>) -> bool) -> bool {
        let kept = if self.kept.0 == machine { self.kept.1 } else { 0 };
        each(&Row {
            offset: self.offset,
            is_end: self.is_end,
            name: &self.name,
            event: self.event.as_deref(),
            data: &self.data,
            kept,
        })
    }
}

/// Of the id of an entry.
fn offset_of(id: RespValue) -> Option<u64> {
    id.text().split_once('-')?.0.parse().ok()
}
