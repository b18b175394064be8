//! `Chaton::Native::JobsClient`: what any process may do with stored jobs.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use chaton_jobs::store::{JobEntry, NewBatch, NewJob, NewLock, Store, StoreOptions};
use magnus::block::Proc;
use magnus::scan_args::scan_args;
use magnus::{
    function, method, prelude::*, Error, RArray, RHash, RModule, RString, Ruby, TryConvert, Value,
};

use super::document::{self, Common, Due};
use super::options::store_options;
use super::pool::Pool;
use super::shown;
use crate::convert::{copy, seconds, text};
use crate::gvl::with_gvl;
use crate::handle;
use crate::settings::Settings;

/// Between two calls of a backup's block.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// The client as a Ruby object. It may be used after a fork: the child opens
/// connections of its own.
#[magnus::wrap(class = "Chaton::Native::JobsClient", free_immediately, size)]
pub struct RbJobsClient {
    options: StoreOptions,
    /// Borrowed and changed with the GVL held only.
    pool: RefCell<(u32, Arc<Pool>)>,
}

// SAFETY: only used by threads that hold the GVL; what leaves it is the pool,
// which may be shared.
unsafe impl Sync for RbJobsClient {}

impl Drop for RbJobsClient {
    fn drop(&mut self) {
        let (made_in, pool) = &*self.pool.borrow();
        if *made_in != handle::generation() {
            leak(pool);
        }
    }
}

/// The connections of a forked process's parent: closing them politely would
/// say good-bye in its name, and their locks may be held for ever.
fn leak(pool: &Arc<Pool>) {
    std::mem::forget(pool.clone());
}

/// A job as Ruby hands it over: `[queue, payload, at, lock, bid]`.
struct Given {
    queue: String,
    payload: Vec<u8>,
    at: Option<f64>,
    lock: Option<(String, String, Duration)>,
    bid: Option<String>,
}

impl Given {
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

    fn from_array(value: Value) -> Result<Self, Error> {
        type Row = (String, RString, Option<f64>, Option<RArray>, Option<String>);
        let (queue, payload, at, lock, bid) = Row::try_convert(value)?;
        Self::new(queue, payload, at, lock, bid)
    }

    fn job(&self) -> NewJob<'_> {
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

/// Now (s since 1970).
pub fn now_s() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn entry_of(value: RArray) -> Result<JobEntry, Error> {
    let (score, row, payload) = <(f64, i64, RString)>::try_convert(value.as_value())?;
    Ok(JobEntry { score, row, payload: copy(payload) })
}

type Done<T> = chaton_jobs::store::Result<T>;

impl RbJobsClient {
    fn new(settings: RHash) -> Result<Self, Error> {
        let options = store_options(&Settings(settings))?;
        let pool = Arc::new(Pool::new(&options)?);
        Ok(Self { options, pool: RefCell::new((handle::generation(), pool)) })
    }

    fn pool(&self) -> Result<Arc<Pool>, Error> {
        let (made_in, pool) = self.pool.borrow().clone();
        if made_in == handle::generation() {
            return Ok(pool);
        }
        leak(&pool);
        let pool = Arc::new(Pool::new(&self.options)?);
        *self.pool.borrow_mut() = (handle::generation(), pool.clone());
        Ok(pool)
    }

    fn call<R>(&self, work: impl FnOnce(&mut dyn Store) -> Done<R>) -> Result<R, Error> {
        self.pool()?.call(work)
    }

    /// `push_args(queue, head, args_list, at, jids = nil)`: see `document`.
    fn push_args(ruby: &Ruby, rb_self: &Self, args: &[Value]) -> Result<RArray, Error> {
        type Required = (RString, RString, RArray, Value);
        let args = scan_args::<Required, (Option<RArray>,), (), (), (), ()>(args)?;
        let (queue, head, lists, at) = args.required;
        let queue = queue.to_string()?;
        let head_bytes = copy(head);
        let common = Common {
            head: &head_bytes,
            due: Due::read(at, lists.len())?,
            jids: args.optional.0,
            format: rb_self.options.format,
            now_s: now_s(),
        };
        if lists.is_empty() {
            return Ok(ruby.ary_new());
        }
        let (documents, jids) = document::write(ruby, &common, lists)?;
        let jobs = documents.jobs(&queue);
        rb_self.call(|store| store.push(&jobs))?;
        Ok(jids)
    }

    fn push(
        &self,
        queue: String,
        payload: RString,
        at: Option<f64>,
        lock: Option<RArray>,
        bid: Option<String>,
    ) -> Result<Option<String>, Error> {
        let given = Given::new(queue, payload, at, lock, bid)?;
        let pushed = self.call(|store| store.push(&[given.job()]))?;
        Ok(pushed.into_iter().next().and_then(shown::pushed))
    }

    fn push_many(ruby: &Ruby, rb_self: &Self, list: RArray) -> Result<RArray, Error> {
        let given = list.into_iter().map(Given::from_array).collect::<Result<Vec<_>, _>>()?;
        if given.is_empty() {
            return Ok(ruby.ary_new());
        }
        let jobs: Vec<_> = given.iter().map(Given::job).collect();
        let pushed = rb_self.call(|store| store.push(&jobs))?;
        Ok(ruby.ary_from_iter(pushed.into_iter().map(shown::pushed)))
    }

    fn push_once(
        &self,
        key: String,
        ttl_s: f64,
        queue: String,
        payload: RString,
    ) -> Result<bool, Error> {
        let ttl = seconds("ttl_s", ttl_s)?;
        let given = Given::new(queue, payload, None, None, None)?;
        self.call(|store| store.push_once(&key, ttl, &given.job()))
    }

    fn stats(ruby: &Ruby, rb_self: &Self) -> Result<RHash, Error> {
        shown::stats(ruby, &rb_self.call(|store| store.stats())?)
    }

    fn queues(ruby: &Ruby, rb_self: &Self) -> Result<RArray, Error> {
        shown::list(ruby, rb_self.call(|store| store.queues())?, shown::queue)
    }

    fn processes(ruby: &Ruby, rb_self: &Self) -> Result<RArray, Error> {
        shown::list(ruby, rb_self.call(|store| store.processes())?, shown::process)
    }

    fn owners(ruby: &Ruby, rb_self: &Self) -> Result<RArray, Error> {
        shown::list(ruby, rb_self.call(|store| store.owners())?, shown::owner)
    }

    fn list(
        ruby: &Ruby,
        rb_self: &Self,
        place: String,
        offset: usize,
        count: usize,
    ) -> Result<RArray, Error> {
        let place = shown::place(&place)?;
        let entries = rb_self.call(|store| store.list(&place, offset, count))?;
        let list = ruby.ary_new_capa(entries.len());
        for entry in &entries {
            list.push(shown::entry(ruby, entry)?)?;
        }
        Ok(list)
    }

    fn find(ruby: &Ruby, rb_self: &Self, jid: String) -> Result<Option<RArray>, Error> {
        let Some((place, entry)) = rb_self.call(|store| store.find(&jid))? else {
            return Ok(None);
        };
        let found = ruby.ary_new_capa(2);
        found.push(shown::place_name(&place))?;
        found.push(shown::entry(ruby, &entry)?)?;
        Ok(Some(found))
    }

    fn remove(&self, place: String, entry: RArray) -> Result<bool, Error> {
        let (place, entry) = (shown::place(&place)?, entry_of(entry)?);
        self.call(|store| store.remove(&place, &entry))
    }

    fn requeue(&self, place: String, entry: RArray) -> Result<bool, Error> {
        let (place, entry) = (shown::place(&place)?, entry_of(entry)?);
        self.call(|store| store.requeue(&place, &entry, now_s()))
    }

    fn kill(&self, place: String, entry: RArray) -> Result<bool, Error> {
        let (place, entry) = (shown::place(&place)?, entry_of(entry)?);
        self.call(|store| store.kill(&place, &entry, now_s()))
    }

    fn clear(&self, place: String, max: usize) -> Result<usize, Error> {
        let place = shown::place(&place)?;
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
            description: &description,
            callbacks: &callbacks,
            ttl,
            now_s: now_s(),
        };
        self.call(|store| store.batch_open(&batch))
    }

    fn batch_close(&self, bid: String) -> Result<(), Error> {
        self.call(|store| store.batch_close(&bid))
    }

    fn batch(ruby: &Ruby, rb_self: &Self, bid: String) -> Result<Option<RHash>, Error> {
        let status = rb_self.call(|store| store.batch(&bid))?;
        status.map(|status| shown::batch(ruby, status)).transpose()
    }

    fn close(&self) -> Result<(), Error> {
        self.pool()?.close();
        Ok(())
    }

    fn address(&self) -> Result<String, Error> {
        Ok(self.pool()?.address().to_string())
    }
}

/// Reading and changing what is stored, for people and their tools.
impl RbJobsClient {
    /// `backup(path) { |done, pages| … }`: the block may be left out.
    fn backup(ruby: &Ruby, rb_self: &Self, path: String) -> Result<(), Error> {
        let block = ruby.block_given().then(|| ruby.block_proc()).transpose()?;
        let mut teller = Teller { block, told_at: None, raised: None };
        let done =
            rb_self.call(|store| store.backup(&path, &mut |done, pages| teller.tell(done, pages)));
        match teller.raised {
            Some(raised) => Err(raised),
            None => done,
        }
    }
}

/// Tells a Ruby block how far a backup is.
struct Teller {
    block: Option<Proc>,
    told_at: Option<Instant>,
    raised: Option<Error>,
}

// SAFETY: it is used by the thread that made it; the GVL is taken back before
// the block is touched, and the frame of `backup` keeps the block alive.
unsafe impl Send for Teller {}

impl Teller {
    fn tell(&mut self, done: u64, pages: u64) {
        let Some(block) = self.block else { return };
        let fresh = self.told_at.is_some_and(|at| at.elapsed() < TELL_EVERY) && done < pages;
        if fresh || self.raised.is_some() {
            return;
        }
        self.told_at = Some(Instant::now());
        let told = with_gvl(|| block.call::<_, Value>((done, pages)).map(drop));
        self.raised = told.and_then(Result::err);
    }
}

/// Defines the class.
///
/// # Errors
/// What Ruby raises.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("JobsClient", ruby.class_object())?;
    class.undef_default_alloc_func();
    class.define_singleton_method("new", function!(RbJobsClient::new, 1))?;
    class.define_method("push_args", method!(RbJobsClient::push_args, -1))?;
    class.define_method("push", method!(RbJobsClient::push, 5))?;
    class.define_method("push_many", method!(RbJobsClient::push_many, 1))?;
    class.define_method("push_once", method!(RbJobsClient::push_once, 4))?;
    class.define_method("stats", method!(RbJobsClient::stats, 0))?;
    class.define_method("queues", method!(RbJobsClient::queues, 0))?;
    class.define_method("processes", method!(RbJobsClient::processes, 0))?;
    class.define_method("owners", method!(RbJobsClient::owners, 0))?;
    class.define_method("list", method!(RbJobsClient::list, 3))?;
    class.define_method("find", method!(RbJobsClient::find, 1))?;
    class.define_method("remove", method!(RbJobsClient::remove, 2))?;
    class.define_method("requeue", method!(RbJobsClient::requeue, 2))?;
    class.define_method("kill", method!(RbJobsClient::kill, 2))?;
    class.define_method("clear", method!(RbJobsClient::clear, 2))?;
    class.define_method("pause", method!(RbJobsClient::pause, 2))?;
    class.define_method("signal", method!(RbJobsClient::signal, 2))?;
    class.define_method("cancel", method!(RbJobsClient::cancel, 1))?;
    class.define_method("cancelled", method!(RbJobsClient::cancelled, 1))?;
    class.define_method("load", method!(RbJobsClient::load, 1))?;
    class.define_method("save", method!(RbJobsClient::save, 3))?;
    class.define_method("remove_hash", method!(RbJobsClient::remove_hash, 1))?;
    class.define_method("unlock", method!(RbJobsClient::unlock, 2))?;
    class.define_method("batch_open", method!(RbJobsClient::batch_open, 5))?;
    class.define_method("batch_close", method!(RbJobsClient::batch_close, 1))?;
    class.define_method("batch", method!(RbJobsClient::batch, 1))?;
    class.define_method("backup", method!(RbJobsClient::backup, 1))?;
    class.define_method("close", method!(RbJobsClient::close, 0))?;
    class.define_method("address", method!(RbJobsClient::address, 0))?;
    Ok(())
}
