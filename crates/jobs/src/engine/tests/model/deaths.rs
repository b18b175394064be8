//! How processes end, and what others do with their jobs.

use std::sync::atomic::Ordering;

use super::twin::Fault;
use super::world::{DeadProcess, Node, World};
use crate::engine::{Engine, WorkerDeath};
use crate::outcome::Outcome;
use crate::store::conformance::harness::jid_of;
use chaton_core::engine::Engine as _;
use chaton_core::work::Work;

/// Rounds in which an engine writes all that it has to write.
const WRITES_MAX: usize = 20;

impl World<'_> {
    /// A process ends in order, and another one begins. `asked`: by its supervisor.
    pub fn shutdown(&mut self, asked: bool) {
        let index = self.pick();
        let node = self.nodes.swap_remove(index);
        let patient = self.random.bool();
        if asked {
            node.gauges.note_stop(false);
        }
        self.stop(node, patient);
        self.add_node();
    }

    /// Stops an engine as a worker does. `patient`: its jobs may end before.
    pub fn stop(&mut self, mut node: Node, patient: bool) {
        self.note(format!("   {} stops", node.identity()));
        let engine =
            Engine { state: node.engine.state.clone(), threads: std::sync::Arc::default() };
        engine.quiet();
        node.engine.fetch();
        for job in node.running.drain(..) {
            if patient && !job.is_due() {
                self.ledger.job(job.document().jid()).ran = true;
                job.finish(Outcome::Ack);
            } else if !node.gauges.is_asked_to_stop() {
                self.ledger.job(job.document().jid()).signals += 1;
            }
        }
        // A thread that pushes a due job is not interrupted in this model.
        engine.give_up();
        node.engine.state.stopping.store(true, Ordering::SeqCst);
        for _ in 0..WRITES_MAX {
            node.engine.fetch();
            if node.engine.state.is_idle() {
                break;
            }
        }
        assert!(node.engine.state.is_idle(), "it cannot write its last outcomes");
        node.engine.maintenance.leave();
        self.absorb();
        // Its last call may have failed: then its lease runs out.
        if self.oracle.owners().unwrap().iter().any(|owner| owner.identity == node.identity()) {
            self.bury(&node, None, true);
        }
    }

    /// A process dies, and another one begins.
    pub fn kill(&mut self) {
        let index = self.pick();
        self.kill_at(index);
    }

    fn kill_at(&mut self, index: usize) {
        let node = self.nodes.swap_remove(index);
        let cause = (self.random.u8(..3) > 0).then(|| "SIGKILL".to_string());
        let gone = self.random.u8(..3) == 0;
        self.note(format!("   {} dies of {cause:?}, gone: {gone}", node.identity()));
        self.bury(&node, cause, gone);
        self.add_node();
    }

    /// Remembers a process that is not there any more. `gone`: nobody reports it.
    fn bury(&mut self, node: &Node, cause: Option<String>, gone: bool) {
        let running = node.running.iter().filter(|job| job.is_open());
        let tickets = running.map(|job| job.id()).collect();
        let death = WorkerDeath { identity: node.identity(), cause, tickets };
        self.count_crash(&death, gone);
        if gone {
            self.control.lock().gone.insert(node.identity());
        }
        // Whoever looks for dead owners may be the first to reclaim it.
        self.count_crash(&death, gone);
        self.dead.push(DeadProcess { death, gone });
    }

    /// A process ends all its jobs, and dies while that is written: before it, after it, or never.
    pub fn kill_in_ack(&mut self) {
        let index = self.pick();
        let jobs = std::mem::take(&mut self.nodes[index].running);
        for job in jobs {
            if job.is_due() {
                self.nodes[index].running.push(job);
                continue;
            }
            self.ledger.job(job.document().jid()).ran = true;
            job.finish(Outcome::Ack);
        }
        self.control.lock().fault =
            [None, Some(Fault::RequestLost), Some(Fault::ReplyLost)][self.random.usize(..3)];
        self.nodes[index].engine.fetch();
        self.kill_at(index);
    }

    /// The jobs of a dead process are reclaimed, sometimes twice.
    pub fn recover(&mut self) {
        let node = self.pick();
        let Some(DeadProcess { death, gone }) = self.dead.pop() else { return };
        self.note(format!("   {} is reclaimed by {}", death.identity, self.nodes[node].identity()));
        for _ in 0..=self.random.usize(..2) {
            if gone {
                // The engine looks for dead owners four times in a lease.
                self.control.lock().ahead_s += 16.0;
            } else {
                self.nodes[node].engine.state.add_death(death.clone());
            }
            self.maintain(node);
        }
        let owners = self.oracle.owners().unwrap();
        if owners.iter().any(|owner| owner.identity == death.identity) {
            // A call failed: it is reclaimed later.
            self.dead.push(DeadProcess { death, gone });
        }
    }

    /// Counted at the death: any look of another process for dead owners may reclaim the jobs of one that is gone.
    fn count_crash(&mut self, death: &WorkerDeath, gone: bool) {
        for job in self.oracle.in_flight(&death.identity).unwrap() {
            if gone || death.cause.is_some() && death.tickets.contains(&job.ticket) {
                let jid = jid_of(&job.payload);
                self.ledger.job(&jid).crashes += 1;
            }
        }
    }

    /// A process stands still until its lease has run out and its jobs were reclaimed; then it goes on.
    pub fn stall(&mut self) {
        let index = self.pick();
        let stalled = &self.nodes[index];
        // Older than any lease.
        stalled.engine.state.heartbeat_ns.store(1, std::sync::atomic::Ordering::Relaxed);
        let death = WorkerDeath { identity: stalled.identity(), ..WorkerDeath::default() };
        self.note(format!("   {} stands still", death.identity));
        let other = (index + 1) % self.nodes.len();
        self.nodes[other].engine.state.add_death(death);
        self.maintain(other);
    }
}
