//! The connections of a `JobsClient`: each call takes one, and runs on the calling
//! thread without the GVL.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use chaton_jobs::push_buffer::{PushBuffer, UnsentJobs};
use chaton_jobs::store::{self, NewJob, PushResult, Store, StoreFactory, StoreOptions};
use magnus::Error;
use parking_lot::{Condvar, Mutex};

use crate::error;
use crate::gvl::{check_interrupts, without_gvl, without_gvl_to_the_end};

/// Connections in use at once; a further call waits for one.
const USED_MAX: usize = 64;
/// Idle connections kept.
const KEPT_MAX: usize = 8;

#[derive(Default)]
struct State {
    idle: Vec<Box<dyn Store>>,
    used: usize,
}

/// The connections of one process.
pub struct StoreConnections {
    factory: Arc<dyn StoreFactory>,
    state: Mutex<State>,
    freed: Condvar,
    /// Pushes that wait until the store can be reached.
    buffer: Option<PushBuffer>,
}

impl StoreConnections {
    /// Connects with the first call.
    ///
    /// # Errors
    /// `Chaton::StoreRefused` for a wrong address or option.
    pub fn new(options: &StoreOptions) -> Result<Self, Error> {
        let factory = store::open(options).map_err(|e| error::store(&e))?;
        let buffer = PushBuffer::new(&factory, options);
        Ok(Self { factory, state: Mutex::default(), freed: Condvar::new(), buffer })
    }

    /// The store's address, without its password.
    pub fn address(&self) -> &str {
        self.factory.address()
    }

    /// Runs a call without the GVL. Ruby's interrupts are handled before the call
    /// begins and after it has ended, never during it.
    ///
    /// # Errors
    /// A subclass of `Chaton::StoreError`, or what Ruby raised before the call.
    pub fn call<R>(
        &self,
        work: impl FnOnce(&mut dyn Store) -> store::Result<R>,
    ) -> Result<R, Error> {
        let mut connection = self.take()?;
        let mut work = Some(work);
        loop {
            let run = || work.take().map(|work| work(&mut **connection.get()));
            match without_gvl_to_the_end(run).flatten() {
                Some(Ok(answer)) => return Ok(answer),
                Some(Err(failed)) => {
                    // A timeout or the end of the thread comes before the error.
                    check_interrupts()?;
                    return Err(error::store(&failed));
                }
                None => check_interrupts()?,
            }
        }
    }

    /// Runs a call that waits for nothing, with the GVL.
    ///
    /// # Errors
    /// What Ruby raised before the call.
    pub fn call_here<R>(&self, work: impl FnOnce(&mut dyn Store) -> R) -> Result<R, Error> {
        let mut connection = self.take()?;
        Ok(work(&mut **connection.get()))
    }

    /// Pushes jobs. With `reliable_push` they are kept in memory while the store cannot be reached.
    ///
    /// # Errors
    /// As [`StoreConnections::call`].
    pub fn push(&self, jobs: &[NewJob<'_>]) -> Result<Vec<PushResult>, Error> {
        let Some(buffer) = &self.buffer else { return self.call(|store| store.push(jobs)) };
        match buffer.push_behind(jobs) {
            Some(kept) => kept.map_err(|e| error::store(&e)),
            None => self.call(|store| buffer.push(store, jobs)),
        }
    }

    /// Waits, for a bounded time, until the jobs that are kept in memory are sent; see [`PushBuffer::finish`]. The
    /// others are given up and returned.
    ///
    /// # Errors
    /// What Ruby raised before the wait.
    pub fn finish_pushes(&self, time: Duration) -> Result<Option<UnsentJobs>, Error> {
        let Some(buffer) = &self.buffer else { return Ok(None) };
        loop {
            match without_gvl_to_the_end(|| buffer.finish(time)) {
                Some(unsent) => return Ok(unsent),
                None => check_interrupts()?,
            }
        }
    }

    /// Closes the idle connections.
    pub fn close(&self) {
        let idle = std::mem::take(&mut self.state.lock().idle);
        without_gvl_to_the_end(|| drop(idle));
    }

    fn take(&self) -> Result<BorrowedStore<'_>, Error> {
        loop {
            let mut state = self.state.lock();
            if state.used < USED_MAX {
                state.used += 1;
                return Ok(BorrowedStore { connections: self, store: state.idle.pop() });
            }
            drop(state);
            self.wait_until_freed();
            check_interrupts()?;
        }
    }

    fn wait_until_freed(&self) {
        let interrupted = AtomicBool::new(false);
        let unblock = || {
            interrupted.store(true, Ordering::Release);
            let _held = self.state.lock();
            self.freed.notify_all();
        };
        let wait = || {
            let mut state = self.state.lock();
            while state.used >= USED_MAX && !interrupted.load(Ordering::Acquire) {
                self.freed.wait(&mut state);
            }
        };
        without_gvl(wait, &unblock);
    }
}

/// A connection in use.
struct BorrowedStore<'a> {
    connections: &'a StoreConnections,
    store: Option<Box<dyn Store>>,
}

impl BorrowedStore<'_> {
    fn get(&mut self) -> &mut Box<dyn Store> {
        self.store.get_or_insert_with(|| self.connections.factory.store())
    }
}

impl Drop for BorrowedStore<'_> {
    fn drop(&mut self) {
        let mut state = self.connections.state.lock();
        state.used -= 1;
        if state.idle.len() < KEPT_MAX {
            state.idle.extend(self.store.take());
        }
        drop(state);
        self.connections.freed.notify_one();
    }
}
