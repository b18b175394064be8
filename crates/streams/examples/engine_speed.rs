//! Measures the cost of the engine alone: 1 M records of 100 bytes in each partition of a log that
//! costs next to nothing, through a feed whose thread finishes each batch untouched.
//!
//! `cargo run --release -p chaton-streams --no-default-features --example engine_speed`

use chaton_core::engine::Engine as _;
use chaton_core::engine::Feed;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_core::event_fd::EventFd;
use chaton_streams::batch::{Batch, BatchKind, BatchOutcome};
use chaton_streams::engine::{Engine, EngineSettings, GroupRoutes, RecordOrder, RouteSettings};
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

struct CheapLog(i32);

impl RecordLog for CheapLog {
    fn address(&self) -> &str {
        "nowhere:"
    }

    fn member(&self, _: &GroupSettings, event_fd: &Arc<EventFd>) -> Result<Box<dyn GroupMember>> {
        Ok(Box::new(CheapMember {
            partitions: self.0,
            positions: HashMap::new(),
            event_fd: event_fd.clone(),
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
struct CheapMember {
    partitions: i32,
    positions: HashMap<Partition, i64>,
    event_fd: Arc<EventFd>,
    /// Time spent on making records up.
    ns: u64,
    joined: bool,
}

impl GroupMember for CheapMember {
    fn wait(&mut self, timeout: Duration) {
        let mut fd = libc::pollfd { fd: self.event_fd.fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor that lives as long as the event_fd.
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
    batches: Mutex<Vec<Arc<Batch>>>,
    changed: Condvar,
}

impl Feed<Batch> for Queue {
    fn submit(&self, batch: Arc<Batch>) -> std::result::Result<(), Arc<Batch>> {
        self.batches.lock().push(batch);
        Ok(())
    }

    fn flush(&self) {
        self.changed.notify_one();
    }

    fn take_waiting(&self) -> Vec<Arc<Batch>> {
        std::mem::take(&mut *self.batches.lock())
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

fn run(partitions: i32, order: RecordOrder, concurrency: usize) {
    let settings = RouteSettings { order, concurrency, ..RouteSettings::new("speed") };
    let group = GroupSettings::new("speed", &["speed"]);
    let settings = EngineSettings::new(vec![GroupRoutes { group, routes: vec![settings] }]);
    let (log, queue) = (Arc::new(CheapLog(partitions)), Arc::new(Queue::default()));
    let (began, before) = (Instant::now(), cpu());
    let engine =
        Engine::start(settings, log, Arc::new(refused), queue.clone()).expect("valid settings");
    let all = partitions as u64 * RECORDS as u64;
    let (mut done, mut in_finish) = (0, Duration::ZERO);
    while done < all {
        let mut batches = queue.batches.lock();
        while batches.is_empty() {
            queue.changed.wait(&mut batches);
        }
        let batch = batches.remove(0);
        drop(batches);
        if batch.may_start() && batch.kind() == BatchKind::Records {
            done += batch.len() as u64;
            let started = Instant::now();
            batch.finish(BatchOutcome::Done);
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
        run(partitions, RecordOrder::Partition, 1);
    }
    for lanes in [2, 8] {
        run(2, RecordOrder::Key, lanes);
    }
}
