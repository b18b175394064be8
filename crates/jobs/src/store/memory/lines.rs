//! Jobs that ask limiters, and lines of those that were denied.

use std::collections::BTreeMap;

use super::data::MemoryData;
use super::limits::holder;
use crate::limit::{Limit, LimitRule};
use crate::outcome::Wait;
use crate::store::line::*;
use crate::store::types::{Grant, LimitRequest};

/// The line of one limit.
pub(super) struct MemoryLine {
    behind: Limit,
    look_at: f64,
    /// By jid.
    waiting: BTreeMap<String, Waiting>,
}

#[derive(Clone)]
struct Waiting {
    place: f64,
    /// Its time in the schedule.
    at: f64,
    queue: String,
}

impl MemoryData {
    pub fn acquire(
        &mut self,
        owner: &str,
        requests: &[LimitRequest<'_>],
        now_s: f64,
    ) -> Vec<Grant> {
        requests.iter().map(|request| self.ask(owner, request, now_s)).collect()
    }

    fn ask(&mut self, owner: &str, request: &LimitRequest<'_>, now_s: f64) -> Grant {
        let holder = holder(owner, request.ticket);
        let mut denied = None;
        for (index, limit) in request.limits.iter().enumerate() {
            if let Some(at) = self.denial(limit, &holder, request, now_s) {
                denied = latest(denied, index, at);
            }
        }
        if let Some((limit, at)) = denied {
            return Grant::Behind { limit, at };
        }
        for limit in request.limits {
            if limit.rule.is_concurrent() {
                self.limits.release(&limit.key, &called(request.jid));
            }
            self.limits.take(limit, &holder, now_s);
            let waited = self.leave_line(&limit.line(), request.jid);
            if waited && !limit.rule.is_concurrent() {
                self.look_at_line(&limit.line(), now_s, false);
            }
        }
        Grant::Now
    }

    /// `None` when granted, else when to ask again, if that is known.
    fn denial(
        &mut self,
        limit: &Limit,
        holder: &str,
        request: &LimitRequest<'_>,
        now_s: f64,
    ) -> Option<Option<f64>> {
        let waiting = self.lines.get(&limit.line()).into_iter().flat_map(|l| l.waiting.values());
        let ahead = waiting
            .filter(|one| one.place < request.place)
            .count()
            .min(limit.rule.size().0 as usize);
        if let LimitRule::Concurrent { max, .. } = limit.rule {
            let held = self.limits.held(&limit.key, now_s);
            let own = held.contains_key(holder) || held.contains_key(&called(request.jid));
            return (!own && held.len() + ahead >= max as usize).then_some(None);
        }
        let taken = self.limits.taken(limit, now_s);
        let at = token_at(limit.rule, &taken, ahead, now_s).unwrap_or(now_s + limit.rule.size().1);
        (at > now_s).then_some(Some(at))
    }

    /// A job joins the line of a limit that has denied it.
    pub fn join_line(&mut self, wait: &Wait, queue: &str) {
        self.schedule.add(wait.at, wait.payload.clone());
        self.touch();
        let behind = wait.behind.clone();
        let new = MemoryLine { behind: behind.clone(), look_at: 0.0, waiting: BTreeMap::new() };
        let line = self.lines.entry(wait.behind.line()).or_insert(new);
        if wait.is_new && line.behind != behind {
            (line.behind, line.look_at) = (behind, 0.0);
        }
        let waiting = Waiting { place: wait.place, at: wait.at, queue: queue.into() };
        line.waiting.insert(wait.jid.clone(), waiting);
    }

    /// A job leaves a line. Whether it was in it.
    fn leave_line(&mut self, name: &str, jid: &str) -> bool {
        let Some(line) = self.lines.get_mut(name) else { return false };
        let left = line.waiting.remove(jid).is_some();
        if line.waiting.is_empty() {
            self.lines.remove(name);
        }
        left
    }

    /// Looks at the lines whose time has come, or cannot have been set by this clock.
    pub fn look_at_lines(&mut self, now_s: f64) {
        let is_due = |line: &MemoryLine| line.look_at <= now_s || line.look_at > now_s + LOOK_S;
        let due = self.lines.iter().filter(|(_, line)| is_due(line));
        let mut due: Vec<_> = due.map(|(name, line)| (line.look_at, name.clone())).collect();
        due.sort_by(|a, b| a.0.total_cmp(&b.0));
        due.truncate(LOOKS_MAX);
        for (_, name) in due {
            self.limits.set_back(&self.lines[&name].behind, now_s);
            self.look_at_line(&name, now_s, true);
        }
    }

    /// Calls the first jobs of a line, as far as there are slots, or gives them their times. Unless `always`, only
    /// once its `look_at` is over.
    pub fn look_at_line(&mut self, name: &str, now_s: f64, always: bool) {
        let line = self.lines.get(name).filter(|line| always || line.look_at <= now_s);
        let Some(line) = line else { return };
        let (behind, mut first) = (line.behind.clone(), vec![]);
        first.extend(line.waiting.iter().map(|(jid, one)| (jid.clone(), one.clone())));
        first.sort_by(|(a, one), (b, other)| one.place.total_cmp(&other.place).then(a.cmp(b)));
        first.truncate(READ_MAX);
        let look_at = match behind.rule {
            LimitRule::Concurrent { max, .. } => self.call(name, (&behind.key, max), first, now_s),
            _ => self.promise(name, &behind, &first, now_s),
        };
        if let Some(line) = self.lines.get_mut(name) {
            line.look_at = look_at;
        }
    }

    fn call(
        &mut self,
        name: &str,
        (key, max): (&str, u32),
        first: Vec<(String, Waiting)>,
        now_s: f64,
    ) -> f64 {
        let mut free = (max as usize).saturating_sub(self.limits.held(key, now_s).len());
        let mut jobs = vec![];
        for (jid, one) in first {
            if free == 0 || jobs.len() == CALL_MAX {
                break;
            }
            self.leave_line(name, &jid);
            let Some(entry) = self.schedule.take_at(one.at, &jid) else { continue };
            // One whose queue is paused waits there, and holds nothing up.
            if !self.queues.get(&one.queue).is_some_and(|queue| queue.paused) {
                self.limits.hold(key, called(&jid), now_s + CALLED_S);
                free -= 1;
            }
            jobs.push((one.queue, entry.payload));
        }
        for (queue, payload) in jobs.into_iter().rev() {
            self.put_back(&queue, payload);
        }
        let next = self.limits.held(key, now_s).into_values().min_by(f64::total_cmp);
        next.filter(|_| free == 0).unwrap_or(now_s).min(now_s + LOOK_S)
    }

    fn promise(
        &mut self,
        name: &str,
        behind: &Limit,
        first: &[(String, Waiting)],
        now_s: f64,
    ) -> f64 {
        let taken = self.limits.taken(behind, now_s);
        let there = |(jid, one): &(String, Waiting)| (one.at, self.schedule.has_at(one.at, jid));
        let (promises, look_at) = promises(first.iter().map(there), behind.rule, &taken, now_s);
        for ((jid, one), promise) in first.iter().zip(promises) {
            match promise {
                Promise::Leave => {
                    self.leave_line(name, jid);
                }
                Promise::At(at) => {
                    let Some(entry) = self.schedule.take_at(one.at, jid) else { continue };
                    self.schedule.add(at, entry.payload);
                    self.touch();
                    let line = self.lines.get_mut(name);
                    let one = line.and_then(|line| line.waiting.get_mut(jid));
                    one.into_iter().for_each(|one| one.at = at);
                }
                _ => {}
            }
        }
        look_at
    }
}
