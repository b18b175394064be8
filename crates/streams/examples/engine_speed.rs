//! What the engine costs by itself: 1 M records of 100 bytes in each partition
//! of a log that costs next to nothing, through a sink whose thread ends each
//! turn untouched.
//!
//! `cargo run --release -p chaton-streams --no-default-features --example engine_speed`

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_core::event_fd::EventFd;
use chaton_streams::engine::{
    Ending, Engine, EngineSettings, GroupRoutes, Kind, Order, RouteSettings, Sink, Tools, Turn,
};
use chaton_streams::log::{
    AdminClient, Assignment, Commit, ErrorKind, GroupMember, Limits, LogError, MemberEvent,
    Partition, PartitionReader, Position, Producer, RecordLog, Result, TransactionalProducer,
};
use chaton_streams::record::{Chunk, ChunkBuilder};
use chaton_streams::settings::GroupSettings;
use parking_lot::{Condvar, Mutex};

const RECORDS: i64 = 1_000_000;

fn refused<T>() -> Result<T> {
    Err(LogError::new(ErrorKind::Refused, "this log is only read"))
}

struct MadeUp(i32);

impl RecordLog for MadeUp {
    fn address(&self) -> &str {
        "nowhere:"
    }

    fn member(&self, _: &GroupSettings, bell: &Arc<EventFd>) -> Result<Box<dyn GroupMember>> {
        Ok(Box::new(Reading {
            partitions: self.0,
            positions: HashMap::new(),
            bell: bell.clone(),
            ns: 0,
            joined: false,
        }))
    }

    fn producer(&self) -> Result<Arc<dyn Producer>> {
        refused()
    }

    fn transactional_producer(&self, _: &str) -> Result<Box<dyn TransactionalProducer>> {
        refused()
    }

    fn reader(&self, _: &Partition, _: Position) -> Result<Box<dyn PartitionReader>> {
        refused()
    }

    fn admin(&self) -> Result<Box<dyn AdminClient>> {
        refused()
    }
}

/// A member that makes its records up.
struct Reading {
    partitions: i32,
    positions: HashMap<Partition, i64>,
    bell: Arc<EventFd>,
    /// Time spent on making records up.
    ns: u64,
    joined: bool,
}

impl GroupMember for Reading {
    fn wait(&mut self, timeout: Duration) {
        let mut fd = libc::pollfd { fd: self.bell.fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor that lives as long as the bell.
        unsafe { libc::poll(&mut fd, 1, timeout.as_nanos().div_ceil(1_000_000) as libc::c_int) };
    }

    fn poll(&mut self, events: &mut Vec<MemberEvent>) {
        if std::mem::replace(&mut self.joined, true) {
            return;
        }
        let partitions = (0..self.partitions)
            .map(|number| Partition { topic: "speed".into(), number })
            .map(|partition| Assignment { partition, committed: Some(0), metadata: String::new() });
        events.push(MemberEvent::Assigned(partitions.collect()));
    }

    fn fetch(&mut self, partition: &Partition, limits: Limits) -> Result<Option<Chunk>> {
        let began = Instant::now();
        let position = self.positions.entry(partition.clone()).or_default();
        let count = limits.records.min((RECORDS - *position) as usize);
        let mut builder = ChunkBuilder::with_capacity(count, count * 108);
        for offset in *position..*position + count as i64 {
            let key = (offset % 1_009).to_le_bytes();
            builder.push(offset, 0, Some(&key), Some(&[b'v'; 100]), []);
        }
        *position += count as i64;
        self.ns += began.elapsed().as_nanos() as u64;
        Ok((count > 0).then(|| builder.finish()))
    }

    fn seek(&mut self, _: &Partition, _: Position) -> Result<()> {
        Ok(())
    }

    fn commit(&mut self, _: &[Commit], _: bool) -> Result<()> {
        Ok(())
    }

    fn release(&mut self, _: &[Partition]) {}

    fn end_offset(&self, _: &Partition) -> Option<i64> {
        Some(RECORDS)
    }

    fn identity(&self) -> Vec<u8> {
        vec![]
    }

    fn leave(&mut self, _: Duration) {
        let all = f64::from(self.partitions) * RECORDS as f64;
        println!("    making the records up took {:.1} ns each", self.ns as f64 / all);
    }
}

#[derive(Default)]
struct Queue {
    turns: Mutex<Vec<Arc<Turn>>>,
    changed: Condvar,
}

impl Sink for Queue {
    fn submit(&self, turn: Arc<Turn>) -> std::result::Result<(), Arc<Turn>> {
        self.turns.lock().push(turn);
        Ok(())
    }

    fn flush(&self) {
        self.changed.notify_one();
    }

    fn take_waiting(&self) -> Vec<Arc<Turn>> {
        std::mem::take(&mut *self.turns.lock())
    }

    fn warn(&self, message: &str) {
        println!("{message}");
    }
}

fn cpu() -> Duration {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `at` is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut at) };
    Duration::new(at.tv_sec as u64, at.tv_nsec as u32)
}

fn run(partitions: i32, order: Order, concurrency: usize) {
    let settings = RouteSettings { order, concurrency, ..RouteSettings::new("speed") };
    let group = GroupSettings::new("speed", &["speed"]);
    let settings = EngineSettings::new(vec![GroupRoutes { group, routes: vec![settings] }]);
    let (log, queue) = (Arc::new(MadeUp(partitions)), Arc::new(Queue::default()));
    let tools = Tools { log, producer: Arc::new(refused) };
    let (began, before) = (Instant::now(), cpu());
    let engine = Engine::start(settings, tools, queue.clone()).expect("settings that are right");
    let all = partitions as u64 * RECORDS as u64;
    let (mut done, mut in_finish) = (0, Duration::ZERO);
    while done < all {
        let mut turns = queue.turns.lock();
        while turns.is_empty() {
            queue.changed.wait(&mut turns);
        }
        let turn = turns.remove(0);
        drop(turns);
        if turn.may_start() && turn.kind() == Kind::Records {
            done += turn.len() as u64;
            let started = Instant::now();
            turn.finish(Ending::Done);
            in_finish += started.elapsed();
        }
    }
    let (took, cpu) = (began.elapsed(), cpu() - before);
    let totals = engine.stats().totals;
    let per = |time: Duration| time.as_nanos() as f64 / all as f64;
    println!(
        "{partitions} partitions, {order:?} x {concurrency}: {:.2} M records/s, {:.1} ns of CPU a \
         record, of these {:.1} ns in finish; {} batches, {} fetches, {} wakes, {} commits",
        all as f64 / took.as_secs_f64() / 1e6,
        per(cpu),
        per(in_finish),
        totals.batches,
        totals.fetches,
        totals.wakes,
        totals.commits
    );
    engine.stop();
}

fn main() {
    for partitions in [1, 2, 5] {
        run(partitions, Order::Partition, 1);
    }
    for strands in [2, 8] {
        run(2, Order::Key, strands);
    }
}
