//! `Chaton::Native::JobsClient`: enqueues jobs, and reads and changes stored ones,
//! from any process.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_core::clock::wall_s;
use chaton_jobs::cron::{CronMemory, Schedule};
use chaton_jobs::store::{
    self, postgres, JobEntry, NewBatch, NewJob, NewLock, OwnTransactions, Store, StoreError,
    StoreOptions,
};
use magnus::block::Proc;
use magnus::scan_args::scan_args;
use magnus::typed_data::Obj;
use magnus::{
    function, method, prelude::*, Error, RArray, RHash, RModule, RString, Ruby, TryConvert, Value,
};

use super::document::{self, add_context, DueTimes, JobTemplate};
use super::job::RbJob;
use super::store_connections::StoreConnections;
use super::to_ruby;
use crate::convert::{copy, seconds, text};
use crate::document_sections::parse;
use crate::error;
use crate::gvl::with_gvl;
use crate::handle;
use crate::traces;

/// Least time between two calls of a backup's block.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// The client as a Ruby object. It may be used after a fork: the child opens
/// connections of its own.
#[magnus::wrap(class = "Chaton::Native::JobsClient", free_immediately, size)]
pub struct RbJobsClient {
    options: StoreOptions,
    /// Borrowed and changed with the GVL held only.
    connections: RefCell<(u32, Arc<StoreConnections>)>,
}

// SAFETY: only used by threads that hold the GVL; only the connections, which
// are `Sync`, are used without it.
unsafe impl Sync for RbJobsClient {}

impl Drop for RbJobsClient {
    fn drop(&mut self) {
        let (made_in, connections) = &*self.connections.borrow();
        if *made_in != handle::generation() {
            leak(connections);
        }
    }
}

/// Keeps the connections of a forked process's parent open: closing them would
/// end the parent's sessions, and their locks may be held for ever.
fn leak(connections: &Arc<StoreConnections>) {
    std::mem::forget(connections.clone());
}

/// A job to push, as Ruby passes it: `[queue, payload, at, lock, bid]`.
pub struct PushedJob {
    queue: String,
    payload: Vec<u8>,
    at: Option<f64>,
    lock: Option<(String, String, Duration)>,
    bid: Option<String>,
}

impl PushedJob {
    fn new(
        queue: String,
        payload: RString,
        at: Option<f64>,
        lock: Option<RArray>,
        bid: Option<String>,
    ) -> Result<Self, Error> {
        let lock = match lock {
            Some(lock) => {
                let (key, jid, ttl_s) = <(String, String, f64)>::try_convert(lock.as_value())?;
                Some((key, jid, seconds("ttl_s of the lock", ttl_s)?))
            }
            None => None,
        };
        Ok(Self { queue, payload: copy(payload), at, lock, bid })
    }

    /// From such an Array.
    ///
    /// # Errors
    /// `TypeError` or `ArgumentError`.
    pub fn from_array(value: Value) -> Result<Self, Error> {
        type Row = (String, RString, Option<f64>, Option<RArray>, Option<String>);
        let (queue, payload, at, lock, bid) = Row::try_convert(value)?;
        Self::new(queue, payload, at, lock, bid)
    }

    /// As the store takes it.
    pub fn job(&self) -> NewJob<'_> {
        let lock = self.lock.as_ref().map(|(key, jid, ttl)| NewLock { key, jid, ttl: *ttl });
        NewJob {
            queue: &self.queue,
            payload: &self.payload,
            at: self.at,
            lock,
            bid: self.bid.as_deref(),
        }
    }
}

/// Pushes jobs with the context of the span that does.
///
/// # Errors
/// Those of `push`.
pub fn traced<R>(
    mut given: Vec<PushedJob>,
    push: impl FnOnce(&[NewJob<'_>]) -> Result<R, Error>,
) -> Result<R, Error> {
    let span = match given.first() {
        Some(first) => traces::produced("chaton", &first.queue, given.len())?,
        None => None,
    };
    given
        .iter_mut()
        .for_each(|job| document::add_context_to_whole(&mut job.payload, span.as_ref()));
    let jobs: Vec<_> = given.iter().map(PushedJob::job).collect();
    let pushed = push(&jobs);
    span.into_iter().for_each(|span| span.end(&pushed));
    pushed
}

fn entry_of(value: RArray) -> Result<JobEntry, Error> {
    let (score, row, payload) = <(f64, i64, RString)>::try_convert(value.as_value())?;
    Ok(JobEntry { score, row, payload: copy(payload) })
}

fn finite(at: f64) -> Result<f64, Error> {
    if at.is_finite() {
        return Ok(at);
    }
    Err(error::argument(format!("{at} is no time, which is seconds since 1970")))
}

impl RbJobsClient {
    /// `JobsClient.new(store)`: JSON of the part `store` of the section `jobs`.
    fn new(store: String) -> Result<Self, Error> {
        let mut options: StoreOptions = parse("jobs.store", &store)?;
        let connections = Arc::new(StoreConnections::new(&options)?);
        // A worker that is forked forks no workers.
        options.forks = false;
        Ok(Self { options, connections: RefCell::new((handle::generation(), connections)) })
    }

    fn connections(&self) -> Result<Arc<StoreConnections>, Error> {
        let (made_in, connections) = self.connections.borrow().clone();
        if made_in == handle::generation() {
            return Ok(connections);
        }
        leak(&connections);
        let connections = Arc::new(StoreConnections::new(&self.options)?);
        *self.connections.borrow_mut() = (handle::generation(), connections.clone());
        Ok(connections)
    }

    /// Calls the store, as [`StoreConnections::call`].
    ///
    /// # Errors
    /// As it.
    pub fn call<R>(
        &self,
        work: impl FnOnce(&mut dyn Store) -> store::Result<R>,
    ) -> Result<R, Error> {
        self.connections()?.call(work)
    }

    /// `push_args(queue, head, args_list, at, jids = nil)`: see `document`.
    fn push_args(ruby: &Ruby, rb_self: &Self, args: &[Value]) -> Result<RArray, Error> {
        type Required = (RString, RString, RArray, Value);
        let args = scan_args::<Required, (Option<RArray>,), (), (), (), ()>(args)?;
        let (queue, head, lists, at) = args.required;
        let queue = queue.to_string()?;
        if lists.is_empty() {
            DueTimes::read(at, 0)?;
            return Ok(ruby.ary_new());
        }
        let given = (&*queue, head, args.optional.0);
        let push = |jobs: &[NewJob<'_>]| rb_self.connections()?.push(jobs).map(drop);
        rb_self.traced_documents(ruby, given, lists, at, push).map(|((), jids)| jids)
    }

    /// Writes documents in the span that pushes them, and gives them to `push`.
    fn traced_documents<R>(
        &self,
        ruby: &Ruby,
        (queue, head, jids): (&str, RString, Option<RArray>),
        lists: RArray,
        at: Value,
        push: impl FnOnce(&[NewJob<'_>]) -> Result<R, Error>,
    ) -> Result<(R, RArray), Error> {
        let due = DueTimes::read(at, lists.len())?;
        let mut head_bytes = copy(head);
        let mut span = traces::produced("chaton", queue, lists.len())?;
        add_context(&mut head_bytes, span.as_ref());
        let (format, now_s) = (self.options.format, wall_s());
        let template = JobTemplate { head: &head_bytes, due, jids, format, now_s };
        let written = document::write(ruby, &template, lists);
        let pushed =
            written.and_then(|(all, jids)| push(&all.jobs(queue)).map(|pushed| (pushed, jids)));
        if let (Some(span), Ok((_, jids)), 1) = (&mut span, &pushed, lists.len()) {
            span.message_id(&jids.entry::<String>(0)?);
        }
        span.into_iter().for_each(|span| span.end(&pushed));
        pushed
    }

    fn push(
        &self,
        queue: String,
        payload: RString,
        at: Option<f64>,
        lock: Option<RArray>,
        bid: Option<String>,
    ) -> Result<Option<String>, Error> {
        let given = PushedJob::new(queue, payload, at, lock, bid)?;
        let pushed = traced(vec![given], |jobs| self.call(|store| store.push(jobs)))?;
        Ok(pushed.into_iter().next().and_then(to_ruby::pushed))
    }

    fn push_many(ruby: &Ruby, rb_self: &Self, list: RArray) -> Result<RArray, Error> {
        let given = list.into_iter().map(PushedJob::from_array).collect::<Result<Vec<_>, _>>()?;
        if given.is_empty() {
            return Ok(ruby.ary_new());
        }
        let connections = rb_self.connections()?;
        let pushed = traced(given, |jobs| connections.push(jobs))?;
        Ok(ruby.ary_from_iter(pushed.into_iter().map(to_ruby::pushed)))
    }

    /// `own_database`: a query and its answer on the store's connection, see [`store::OwnTransactions::database`]; nil
    /// where the application has no connection to the store.
    fn own_database(rb_self: &Self) -> Result<Option<(&'static str, Option<String>)>, Error> {
        rb_self.call(|store| store.own_transactions().map(|own| own.database()).transpose())
    }

    /// `own_push(list)`: the statement that stores these jobs.
    fn own_push(rb_self: &Self, list: RArray) -> Result<String, Error> {
        let given = list.into_iter().map(PushedJob::from_array).collect::<Result<Vec<_>, _>>()?;
        traced(given, |jobs| rb_self.own_statement(jobs))
    }

    /// `own_push_args(queue, head, args_list, at)`: as `push_args`, but returns the statement that stores the jobs, and
    /// their ids.
    fn own_push_args(
        ruby: &Ruby,
        rb_self: &Self,
        queue: String,
        head: RString,
        lists: RArray,
        at: Value,
    ) -> Result<(String, RArray), Error> {
        rb_self.traced_documents(ruby, (&queue, head, None), lists, at, |jobs| {
            rb_self.own_statement(jobs)
        })
    }

    fn own_statement(&self, jobs: &[NewJob<'_>]) -> Result<String, Error> {
        let known =
            self.connections()?.call_here(|store| store.own_transactions()?.push_known(jobs))?;
        known.map_or_else(|| self.own(|own| own.push(jobs)), Ok)
    }

    /// `own_lock(key, jid, ttl_s)`: the query that takes the lock.
    fn own_lock(&self, key: String, jid: String, ttl_s: f64) -> Result<String, Error> {
        let ttl = seconds("ttl_s of the lock", ttl_s)?;
        self.own(|own| Ok(own.lock(&NewLock { key: &key, jid: &jid, ttl })))
    }

    /// `own_end(job)`: the query that ends the job.
    fn own_end(&self, job: Obj<RbJob>) -> Result<String, Error> {
        let (owner, ticket) = job.entry()?;
        self.own(|own| Ok(own.end(owner, ticket)))
    }

    /// `own_ended(job)`: whether it was committed; nil for a job that is not this process's any more.
    fn own_ended(&self, job: Obj<RbJob>) -> Result<Option<bool>, Error> {
        let (owner, ticket) = job.entry()?;
        self.own(|own| own.has_ended(owner, ticket))
    }

    /// `announce(queues)`: wakes those that wait for their jobs; nil stands for the outbox.
    fn announce(&self, queues: Vec<Option<String>>) -> Result<(), Error> {
        let names: Vec<&str> = queues.iter().flatten().map(String::as_str).collect();
        self.own(|own| own.announce(&names, names.len() < queues.len()))
    }

    /// Calls a store that is in the application's database.
    ///
    /// # Errors
    /// `StoreRefused` for another one, else as [`RbJobsClient::call`].
    pub fn own<R>(
        &self,
        work: impl FnOnce(&mut dyn OwnTransactions) -> store::Result<R>,
    ) -> Result<R, Error> {
        self.call(|store| match store.own_transactions() {
            Some(own) => work(own),
            None => Err(StoreError::refused(
                "only a store in PostgreSQL has the application's transactions",
            )),
        })
    }

    fn push_once(
        &self,
        key: String,
        ttl_s: f64,
        queue: String,
        payload: RString,
    ) -> Result<bool, Error> {
        let ttl = seconds("ttl_s", ttl_s)?;
        let given = PushedJob::new(queue, payload, None, None, None)?;
        self.call(|store| store.push_once(&key, ttl, &given.job()))
    }

    /// `crons(application, rows)`: the last tick that was enqueued and the next one of each entry, seconds or nil;
    /// a row is name, expression and zone.
    fn crons(
        ruby: &Ruby,
        rb_self: &Self,
        application: String,
        rows: Vec<(String, String, String)>,
    ) -> Result<RArray, Error> {
        let memory = rb_self.call(|store| CronMemory::load(store, &application))?;
        let ticks = rows.iter().map(|(name, expression, zone)| {
            let schedule = Schedule::new(name, expression, zone).map_err(error::argument)?;
            Ok((memory.last_tick(name), schedule.next(wall_s())))
        });
        Ok(ruby.ary_from_iter(ticks.collect::<Result<Vec<_>, Error>>()?))
    }

    fn stats(ruby: &Ruby, rb_self: &Self) -> Result<RHash, Error> {
        to_ruby::stats(ruby, &rb_self.call(|store| store.stats())?)
    }

    fn reset_counter(&self, name: String) -> Result<(), Error> {
        self.call(|store| store.reset_counter(&name))
    }

    /// `[processed, failed]` of each day.
    fn daily_counts(ruby: &Ruby, rb_self: &Self, days: Vec<String>) -> Result<RArray, Error> {
        Ok(ruby.ary_from_iter(rb_self.call(|store| store.daily_counts(&days))?))
    }

    fn outbox(ruby: &Ruby, rb_self: &Self) -> Result<Option<RHash>, Error> {
        let status = rb_self.call(|store| store.outbox())?;
        status.map(|status| to_ruby::outbox(ruby, status)).transpose()
    }

    fn queues(ruby: &Ruby, rb_self: &Self) -> Result<RArray, Error> {
        to_ruby::list(ruby, rb_self.call(|store| store.queues())?, to_ruby::queue)
    }

    fn processes(ruby: &Ruby, rb_self: &Self) -> Result<RArray, Error> {
        to_ruby::list(ruby, rb_self.call(|store| store.processes())?, to_ruby::process)
    }

    fn owners(ruby: &Ruby, rb_self: &Self) -> Result<RArray, Error> {
        to_ruby::list(ruby, rb_self.call(|store| store.owners())?, to_ruby::owner)
    }

    fn list(
        ruby: &Ruby,
        rb_self: &Self,
        place: String,
        offset: usize,
        count: usize,
    ) -> Result<RArray, Error> {
        let place = to_ruby::place(&place)?;
        let entries = rb_self.call(|store| store.list(&place, offset, count))?;
        let list = ruby.ary_new_capa(entries.len());
        for entry in &entries {
            list.push(to_ruby::entry(ruby, entry)?)?;
        }
        Ok(list)
    }

    fn find(ruby: &Ruby, rb_self: &Self, jid: String) -> Result<Option<RArray>, Error> {
        let Some((place, entry)) = rb_self.call(|store| store.find(&jid))? else {
            return Ok(None);
        };
        let found = ruby.ary_new_capa(2);
        found.push(to_ruby::place_name(&place))?;
        found.push(to_ruby::entry(ruby, &entry)?)?;
        Ok(Some(found))
    }

    fn remove(&self, place: String, entry: RArray) -> Result<bool, Error> {
        let (place, entry) = (to_ruby::place(&place)?, entry_of(entry)?);
        self.call(|store| store.remove(&place, &entry))
    }

    fn enqueue_entry(&self, place: String, entry: RArray) -> Result<bool, Error> {
        let (place, entry) = (to_ruby::place(&place)?, entry_of(entry)?);
        self.call(|store| store.enqueue_entry(&place, &entry, wall_s()))
    }

    fn kill(&self, place: String, entry: RArray) -> Result<bool, Error> {
        let (place, entry) = (to_ruby::place(&place)?, entry_of(entry)?);
        self.call(|store| store.kill(&place, &entry, wall_s()))
    }

    fn add(&self, place: String, at: f64, payload: RString) -> Result<(), Error> {
        let (place, at, payload) = (to_ruby::place(&place)?, finite(at)?, copy(payload));
        self.call(|store| store.add_entry(&place, at, &payload))
    }

    fn reschedule(&self, place: String, entry: RArray, at: f64) -> Result<bool, Error> {
        let (place, entry, at) = (to_ruby::place(&place)?, entry_of(entry)?, finite(at)?);
        self.call(|store| store.reschedule_entry(&place, &entry, at))
    }

    fn clear(&self, place: String, max: usize) -> Result<usize, Error> {
        let place = to_ruby::place(&place)?;
        self.call(|store| store.clear(&place, max))
    }

    fn pause(&self, queue: String, paused: bool) -> Result<(), Error> {
        self.call(|store| store.pause(&queue, paused))
    }

    fn signal(&self, identity: String, name: String) -> Result<(), Error> {
        self.call(|store| store.signal(&identity, &name))
    }

    fn cancel(&self, jid: String) -> Result<(), Error> {
        self.call(|store| store.cancel(&jid))
    }

    fn cancelled(&self, jid: String) -> Result<bool, Error> {
        let answers = self.call(|store| store.cancelled(&[&jid]))?;
        Ok(answers.first().copied().unwrap_or(false))
    }

    fn load(ruby: &Ruby, rb_self: &Self, key: String) -> Result<RHash, Error> {
        let fields = rb_self.call(|store| store.load(&key))?;
        let hash = ruby.hash_new();
        for (name, value) in fields {
            hash.aset(name, text(&value))?;
        }
        Ok(hash)
    }

    fn save(&self, key: String, fields: RHash, ttl_s: f64) -> Result<(), Error> {
        let ttl = seconds("ttl_s", ttl_s)?;
        let mut owned: Vec<(String, Vec<u8>)> = Vec::with_capacity(fields.len());
        fields.foreach(|name: String, value: RString| {
            owned.push((name, copy(value)));
            Ok(magnus::r_hash::ForEach::Continue)
        })?;
        let fields: Vec<_> = owned.iter().map(|(name, value)| (&**name, &**value)).collect();
        self.call(|store| store.save(&key, &fields, ttl))
    }

    fn remove_hash(&self, key: String) -> Result<(), Error> {
        self.call(|store| store.remove_hash(&key))
    }

    fn unlock(&self, key: String, jid: String) -> Result<(), Error> {
        let held = chaton_jobs::store::HeldLock { key: &key, jid: &jid };
        self.call(|store| store.unlock(&[held]))
    }

    fn batch_open(
        &self,
        bid: String,
        parent: Option<String>,
        description: String,
        callbacks: RArray,
        ttl_s: f64,
        owner: String,
    ) -> Result<(), Error> {
        let ttl = seconds("ttl_s", ttl_s)?;
        let own = |row: Value| {
            let (event, queue, payload) = <(String, String, RString)>::try_convert(row)?;
            Ok((event, queue, copy(payload)))
        };
        let own: Vec<_> = callbacks.into_iter().map(own).collect::<Result<_, Error>>()?;
        let callbacks: Vec<_> = own.iter().map(|(e, q, p)| (&**e, &**q, &**p)).collect();
        let batch = NewBatch {
            bid: &bid,
            parent: parent.as_deref(),
            owner: &owner,
            description: &description,
            callbacks: &callbacks,
            ttl,
            now_s: wall_s(),
        };
        self.call(|store| store.batch_open(&batch))
    }

    fn batch_close(&self, bid: String) -> Result<bool, Error> {
        self.call(|store| store.batch_close(&bid))
    }

    fn batch_remove(&self, bid: String) -> Result<bool, Error> {
        Ok(!self.call(|store| store.remove_open(Some(&bid)))?.is_empty())
    }

    fn batch(ruby: &Ruby, rb_self: &Self, bid: String) -> Result<Option<RHash>, Error> {
        let status = rb_self.call(|store| store.batch(&bid))?;
        status.map(|status| to_ruby::batch(ruby, status)).transpose()
    }

    /// `[count, classes]` of the jobs that could not be sent; nil when none are left, and in a forked child that
    /// has pushed nothing.
    fn finish_pushes(&self, time_s: f64) -> Result<Option<(usize, String)>, Error> {
        let (made_in, connections) = self.connections.borrow().clone();
        if made_in != handle::generation() {
            return Ok(None);
        }
        let time = Duration::try_from_secs_f64(time_s).unwrap_or_default();
        let unsent = connections.finish_pushes(time)?;
        Ok(unsent.map(|unsent| (unsent.count, unsent.classes)))
    }

    fn close(&self) -> Result<(), Error> {
        self.connections()?.close();
        Ok(())
    }

    fn address(&self) -> Result<String, Error> {
        Ok(self.connections()?.address().to_string())
    }
}

impl RbJobsClient {
    fn vacuum(rb_self: &Self, force: bool) -> Result<(u64, u64), Error> {
        rb_self.call(|store| store.vacuum(force))
    }

    fn migrate(rb_self: &Self) -> Result<i64, Error> {
        rb_self.call(|store| store.migrate())
    }

    fn advice(rb_self: &Self) -> Result<Vec<String>, Error> {
        rb_self.call(|store| store.advice())
    }

    /// `backup(path) { |done, pages| … }`: the block may be left out.
    fn backup(ruby: &Ruby, rb_self: &Self, path: String) -> Result<(), Error> {
        let block = ruby.block_given().then(|| ruby.block_proc()).transpose()?;
        let mut progress = BackupProgress { block, called_at: None, raised: None };
        let done = rb_self
            .call(|store| store.backup(&path, &mut |done, pages| progress.report(done, pages)));
        match progress.raised {
            Some(raised) => Err(raised),
            None => done,
        }
    }
}

/// Calls a Ruby block with the progress of a backup.
struct BackupProgress {
    block: Option<Proc>,
    called_at: Option<Instant>,
    raised: Option<Error>,
}

// SAFETY: it is used by the thread that made it; the GVL is taken back before
// the block is touched, and the frame of `backup` keeps the block alive.
unsafe impl Send for BackupProgress {}

impl BackupProgress {
    fn report(&mut self, done: u64, pages: u64) {
        let Some(block) = self.block else { return };
        let fresh = self.called_at.is_some_and(|at| at.elapsed() < PROGRESS_EVERY) && done < pages;
        if fresh || self.raised.is_some() {
            return;
        }
        self.called_at = Some(Instant::now());
        let called = with_gvl(|| block.call::<_, Value>((done, pages)).map(drop));
        self.raised = called.and_then(Result::err);
    }
}

/// Defines the class.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("JobsClient", ruby.class_object())?;
    class.undef_default_alloc_func();
    class.define_singleton_method("new", function!(RbJobsClient::new, 1))?;
    class.define_singleton_method("postgres_schema", function!(postgres::schema, 0))?;
    class.define_method("push_args", method!(RbJobsClient::push_args, -1))?;
    class.define_method("push", method!(RbJobsClient::push, 5))?;
    class.define_method("push_many", method!(RbJobsClient::push_many, 1))?;
    class.define_method("crons", method!(RbJobsClient::crons, 2))?;
    class.define_method("own_database", method!(RbJobsClient::own_database, 0))?;
    class.define_method("own_push", method!(RbJobsClient::own_push, 1))?;
    class.define_method("own_push_args", method!(RbJobsClient::own_push_args, 4))?;
    class.define_method("own_lock", method!(RbJobsClient::own_lock, 3))?;
    class.define_method("own_end", method!(RbJobsClient::own_end, 1))?;
    class.define_method("own_ended", method!(RbJobsClient::own_ended, 1))?;
    class.define_method("announce", method!(RbJobsClient::announce, 1))?;
    class.define_method("push_once", method!(RbJobsClient::push_once, 4))?;
    class.define_method("vacuum", method!(RbJobsClient::vacuum, 1))?;
    class.define_method("migrate", method!(RbJobsClient::migrate, 0))?;
    class.define_method("advice", method!(RbJobsClient::advice, 0))?;
    class.define_method("stats", method!(RbJobsClient::stats, 0))?;
    class.define_method("outbox", method!(RbJobsClient::outbox, 0))?;
    class.define_method("queues", method!(RbJobsClient::queues, 0))?;
    class.define_method("processes", method!(RbJobsClient::processes, 0))?;
    class.define_method("owners", method!(RbJobsClient::owners, 0))?;
    class.define_method("list", method!(RbJobsClient::list, 3))?;
    class.define_method("find", method!(RbJobsClient::find, 1))?;
    class.define_method("remove", method!(RbJobsClient::remove, 2))?;
    class.define_method("requeue", method!(RbJobsClient::enqueue_entry, 2))?;
    class.define_method("kill", method!(RbJobsClient::kill, 2))?;
    class.define_method("add", method!(RbJobsClient::add, 3))?;
    class.define_method("reschedule", method!(RbJobsClient::reschedule, 3))?;
    class.define_method("reset_counter", method!(RbJobsClient::reset_counter, 1))?;
    class.define_method("daily_counts", method!(RbJobsClient::daily_counts, 1))?;
    class.define_method("clear", method!(RbJobsClient::clear, 2))?;
    class.define_method("pause", method!(RbJobsClient::pause, 2))?;
    class.define_method("signal", method!(RbJobsClient::signal, 2))?;
    class.define_method("cancel", method!(RbJobsClient::cancel, 1))?;
    class.define_method("cancelled", method!(RbJobsClient::cancelled, 1))?;
    class.define_method("load", method!(RbJobsClient::load, 1))?;
    class.define_method("save", method!(RbJobsClient::save, 3))?;
    class.define_method("remove_hash", method!(RbJobsClient::remove_hash, 1))?;
    class.define_method("unlock", method!(RbJobsClient::unlock, 2))?;
    class.define_method("batch_open", method!(RbJobsClient::batch_open, 6))?;
    class.define_method("batch_close", method!(RbJobsClient::batch_close, 1))?;
    class.define_method("batch_remove", method!(RbJobsClient::batch_remove, 1))?;
    class.define_method("batch", method!(RbJobsClient::batch, 1))?;
    class.define_method("backup", method!(RbJobsClient::backup, 1))?;
    class.define_method("finish_pushes", method!(RbJobsClient::finish_pushes, 1))?;
    class.define_method("close", method!(RbJobsClient::close, 0))?;
    class.define_method("address", method!(RbJobsClient::address, 0))?;
    Ok(())
}
