//! Enqueues the jobs of cron entries, each tick once across all processes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::state::EngineState;
use crate::cron::{last_field, memory_key, Cron, CronMemory, CronRecord};
use crate::store::{NewJob, NewLock, Result, Store};
use fastrand::Rng;

/// How long a cron tick stays marked as enqueued. `catch_up` is shorter.
const TICK_KEPT: Duration = Duration::from_secs(24 * 3600);
/// How long the store remembers the entries of an application that no process has: longer than a year, in which
/// each entry has a tick.
const ENTRIES_KEPT: Duration = Duration::from_secs(400 * 24 * 3600);
/// A tick that lies further in the future is one of a clock that was ahead (s). What two processes know of the
/// store's clock differs by less: by the time that a heartbeat takes.
const AHEAD_MAX_S: f64 = 5.0;

/// The entries of the configuration, as this process follows them.
pub(super) struct CronTicks {
    /// Record and next tick (s) of each entry; empty until the store was asked.
    entries: Vec<(CronRecord, Option<f64>)>,
    /// When [`CronTicks::push_due`] was called last (s).
    called_s: f64,
    random: Rng,
}

impl CronTicks {
    pub fn new() -> Self {
        Self { entries: vec![], called_s: 0.0, random: Rng::new() }
    }

    /// When the next tick is due (s); 0 while the store was not asked.
    pub fn next_at(&self, state: &EngineState) -> f64 {
        if self.entries.is_empty() && !state.config.crons.is_empty() {
            return 0.0;
        }
        self.entries.iter().filter_map(|(_, next)| *next).fold(f64::MAX, f64::min)
    }

    /// Enqueues the jobs of due ticks.
    pub fn push_due(
        &mut self,
        store: &mut dyn Store,
        state: &EngineState,
        now_s: f64,
    ) -> Result<()> {
        // The clock was set back: the next ticks may be far away.
        if now_s + AHEAD_MAX_S < self.called_s {
            self.entries.clear();
        }
        self.called_s = now_s;
        if self.entries.is_empty() && !state.config.crons.is_empty()
            || self.next_at(state) <= now_s && self.is_left_behind(store, state)?
        {
            self.entries = look(store, state, now_s)?;
        }
        for index in 0..self.entries.len() {
            let (record, next) = &self.entries[index];
            let Some(at) = next.filter(|at| *at <= now_s) else { continue };
            let cron = &state.config.crons[index];
            let key = record.tick_key(&state.config.application, &cron.name, at);
            push(store, state, cron, &Tick { key, at, now_s, jid: jid(&mut self.random) })?;
            self.entries[index].1 = cron.schedule.next(now_s);
        }
        Ok(())
    }

    /// Whether another process has forgotten ticks of a clock that was ahead, of which this one has not heard: the keys
    /// of its ticks would be others.
    fn is_left_behind(&self, store: &mut dyn Store, state: &EngineState) -> Result<bool> {
        let memory = CronMemory::load(store, &state.config.application)?;
        Ok(state.config.crons.iter().zip(&self.entries).any(|(cron, (ours, _))| {
            memory.record(&cron.name).is_some_and(|known| known.forgotten > ours.forgotten)
        }))
    }
}

struct Tick {
    key: String,
    at: f64,
    now_s: f64,
    jid: String,
}

/// Enqueues the job of a tick unless another process has. Where due jobs go through Ruby's client middleware, it
/// goes the same way: through the schedule.
fn push(store: &mut dyn Store, state: &EngineState, cron: &Cron, tick: &Tick) -> Result<()> {
    let through_ruby = state.config.claim_due;
    let made = cron.job(&tick.jid, tick.now_s, state.config.store.format, !through_ruby);
    let lock = made.lock.as_ref();
    let lock = lock.map(|(key, ttl)| NewLock { key, jid: &tick.jid, ttl: *ttl });
    let at = through_ruby.then_some(tick.at);
    let job = NewJob { queue: &cron.queue, payload: &made.payload, at, lock, bid: None };
    if !store.push_once(&tick.key, TICK_KEPT, &job)? {
        return Ok(());
    }
    state.counters.cron_pushed.fetch_add(1, Ordering::Relaxed);
    if through_ruby {
        // It is the next one that is due, or behind others that are.
        state.chores.lock().due = Some(Some(tick.at));
    } else {
        state.wake_fetcher();
    }
    if tick.at < state.started_at_s {
        state.feed.warn(&format!(
            "jobs: cron {:?}: no process ran at its last tick, {:.0} s ago; it is enqueued now",
            cron.name,
            tick.now_s - tick.at
        ));
    }
    let last = (last_field(&cron.name), format!("{:.0}", tick.at));
    store.save(
        &memory_key(&state.config.application),
        &[(&last.0, last.1.as_bytes())],
        ENTRIES_KEPT,
    )
}

/// Reads the records of the entries and writes those that are new. The first tick of an entry is the next one, or
/// the last one if it was missed by at most `catch_up`. The store remembers since when the entry is as it is, so
/// that a new one does not begin in the past.
fn look(
    store: &mut dyn Store,
    state: &EngineState,
    now_s: f64,
) -> Result<Vec<(CronRecord, Option<f64>)>> {
    let memory = CronMemory::load(store, &state.config.application)?;
    let (mut entries, mut written, mut ahead) = (vec![], vec![], vec![]);
    for cron in &state.config.crons {
        let known = memory.record(&cron.name);
        let forgotten = known.as_ref().map_or(0, |record| record.forgotten);
        let last = memory.last_tick(&cron.name).filter(|last| *last > now_s + AHEAD_MAX_S);
        let fits = |record: &CronRecord| record.is_of(cron) && record.since <= now_s + AHEAD_MAX_S;
        let record = match (last, known) {
            (Some(last), _) => {
                ahead.push((&cron.name, last - now_s));
                written.push((last_field(&cron.name), b"0".to_vec()));
                CronRecord::new(cron, now_s, forgotten + 1)
            }
            (None, Some(known)) if fits(&known) => known,
            _ => CronRecord::new(cron, state.started_at_s.min(now_s), forgotten),
        };
        written.push((cron.name.clone(), serde_json::to_vec(&record).unwrap_or_default()));
        let oldest_s = now_s - state.config.catch_up.as_secs_f64();
        let missed = cron.schedule.last(oldest_s.min(state.started_at_s).max(record.since), now_s);
        entries.push((record, missed.or_else(|| cron.schedule.next(now_s))));
    }
    let fields: Vec<_> = written.iter().map(|(name, value)| (&**name, &**value)).collect();
    store.save(&memory_key(&state.config.application), &fields, ENTRIES_KEPT)?;
    if !ahead.is_empty() {
        let named: Vec<_> =
            ahead.iter().map(|(name, by_s)| format!("{name} by {by_s:.0} s")).collect();
        state.feed.warn(&format!(
            "jobs: the last ticks of cron are in the future ({}), because the clock was ahead; they are forgotten, \
             and these entries begin anew now",
            named.join(", ")
        ));
    }
    Ok(entries)
}

/// 24 hexadecimal digits, as Sidekiq's.
fn jid(random: &mut Rng) -> String {
    format!("{:016x}{:08x}", random.u64(..), random.u64(..) >> 32)
}
