//! Connections to the store for whoever enqueues: taken for one call, on the
//! calling thread, without the GVL.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use chaton_jobs::store::{self, Store, StoreFactory, StoreOptions};
use magnus::Error;
use parking_lot::{Condvar, Mutex};

use crate::error;
use crate::gvl::{check_interrupts, without_gvl, without_gvl_to_the_end};

/// Connections in use at once; a call past it waits for one.
const USED_MAX: usize = 64;
/// Connections kept for the next calls.
const KEPT_MAX: usize = 8;

#[derive(Default)]
struct State {
    idle: Vec<Box<dyn Store>>,
    used: usize,
}

/// The connections of one process.
pub struct Pool {
    factory: Arc<dyn StoreFactory>,
    state: Mutex<State>,
    freed: Condvar,
}

impl Pool {
    /// Without a connection as yet.
    ///
    /// # Errors
    /// `Chaton::StoreRefused` for a wrong address or option.
    pub fn new(options: &StoreOptions) -> Result<Self, Error> {
        let factory = store::open(options).map_err(|e| error::store(&e))?;
        Ok(Self { factory, state: Mutex::default(), freed: Condvar::new() })
    }

    /// The store's address, without its password.
    pub fn address(&self) -> &str {
        self.factory.address()
    }

    /// Runs a call without the GVL. What Ruby wants of the thread meanwhile is
    /// honoured before the call begins, and after it when the caller returns:
    /// an answer on its way cannot be called back.
    ///
    /// # Errors
    /// A subclass of `Chaton::StoreError`, or what Ruby raised before the call.
    pub fn call<R>(
        &self,
        work: impl FnOnce(&mut dyn Store) -> store::Result<R>,
    ) -> Result<R, Error> {
        let mut taken = self.take()?;
        let mut work = Some(work);
        loop {
            let run = || work.take().map(|work| work(&mut **taken.get()));
            match without_gvl_to_the_end(run).flatten() {
                Some(Ok(answer)) => return Ok(answer),
                Some(Err(failed)) => {
                    // Whoever set a time limit or killed the thread hears of that.
                    check_interrupts()?;
                    return Err(error::store(&failed));
                }
                None => check_interrupts()?,
            }
        }
    }

    /// Closes the connections that nobody uses.
    pub fn close(&self) {
        let idle = std::mem::take(&mut self.state.lock().idle);
        without_gvl_to_the_end(|| drop(idle));
    }

    fn take(&self) -> Result<Taken<'_>, Error> {
        loop {
            let mut state = self.state.lock();
            if state.used < USED_MAX {
                state.used += 1;
                return Ok(Taken { pool: self, store: state.idle.pop() });
            }
            drop(state);
            self.wait_for_one();
            check_interrupts()?;
        }
    }

    fn wait_for_one(&self) {
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
struct Taken<'a> {
    pool: &'a Pool,
    store: Option<Box<dyn Store>>,
}

impl Taken<'_> {
    fn get(&mut self) -> &mut Box<dyn Store> {
        self.store.get_or_insert_with(|| self.pool.factory.store())
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.state.lock();
        state.used -= 1;
        if state.idle.len() < KEPT_MAX {
            state.idle.extend(self.store.take());
        }
        drop(state);
        self.pool.freed.notify_one();
    }
}
