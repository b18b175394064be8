//! How fast the local log is: `cargo run --release --no-default-features
//! --example local_speed -p chaton-streams [FOLDER]`. Prints one figure a line.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_core::event_fd::EventFd;
use chaton_streams::log::{
    GroupMember, Limits, MemberEvent, NewTopic, Partition, Position, RecordLog,
};
use chaton_streams::receipt::Receipt;
use chaton_streams::record::NewRecord;
use chaton_streams::settings::{GroupSettings, LogSettings};

const RECORDS: usize = 1_000_000;
const VALUE: [u8; 100] = [b'x'; 100];
const PATIENCE: Duration = Duration::from_secs(60);

fn record<'a>(topic: &'a str, partition: Option<i32>, value: &'a [u8]) -> NewRecord<'a> {
    NewRecord { topic, partition, key: None, value: Some(value), headers: &[], timestamp_ms: None }
}

fn make(log: &dyn RecordLog, name: &str, partitions: i32) {
    let new = NewTopic {
        name: name.to_owned(),
        partitions: Some(partitions),
        replication: None,
        settings: [].into(),
    };
    log.admin().unwrap().create(&new).unwrap();
}

fn cpu_s() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills a time of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Prints a rate and the processor time it took.
fn report(what: &str, count: usize, began: Instant, cpu: f64) {
    let seconds = began.elapsed().as_secs_f64();
    let (rate, used) = (count as f64 / seconds, (cpu_s() - cpu) * 1e6 / count as f64);
    println!("{what}: {rate:.0} records/s, {used:.2} s of processor per million");
}

fn quantiles(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    println!("{what}: p50 {:.2} ms, p99 {:.2} ms, longest {:.2} ms", at(0.5), at(0.99), at(1.0));
}

fn produce(log: &dyn RecordLog, topic: &str) {
    let producer = log.producer().unwrap();
    let (began, cpu) = (Instant::now(), cpu_s());
    let receipt = Arc::new(Receipt::new(RECORDS));
    for index in 0..RECORDS {
        while producer.send(&record(topic, None, &VALUE), Some((&receipt, index))).is_err() {
            assert!(producer.wait_room(PATIENCE));
        }
    }
    assert!(receipt.wait(PATIENCE) && receipt.failed() == 0);
    report(&format!("produce to {topic}, durable, with receipts"), RECORDS, began, cpu);
}

fn produce_singly(log: &dyn RecordLog) {
    let producer = log.producer().unwrap();
    let mut times = Vec::new();
    for _ in 0..2000 {
        let began = Instant::now();
        let receipt = Arc::new(Receipt::new(1));
        producer.send(&record("single", None, &VALUE), Some((&receipt, 0))).unwrap();
        assert!(receipt.wait(PATIENCE));
        times.push(began.elapsed());
    }
    quantiles("one durable record at a time", times);
}

fn join(log: &dyn RecordLog, topic: &str) -> (Box<dyn GroupMember>, Vec<Partition>) {
    let bell = Arc::new(EventFd::new().unwrap());
    let mut member = log.member(&GroupSettings::new("speed", &[topic]), &bell).unwrap();
    loop {
        let mut events = Vec::new();
        member.poll(&mut events);
        for event in events {
            if let MemberEvent::Assigned(all) = event {
                return (member, all.into_iter().map(|one| one.partition).collect());
            }
        }
        member.wait(PATIENCE);
    }
}

fn consume(log: &dyn RecordLog, topic: &str, records: usize) {
    let (mut member, partitions) = join(log, topic);
    let (began, cpu) = (Instant::now(), cpu_s());
    let (mut count, mut bytes) = (0, 0);
    while count < RECORDS {
        for partition in &partitions {
            let limits = Limits { records, bytes: 1 << 20 };
            if let Some(chunk) = member.fetch(partition, limits).unwrap() {
                count += chunk.len();
                bytes += (0..chunk.len())
                    .map(|at| chunk.record(at).value().unwrap_or_default().len())
                    .sum::<usize>();
            }
        }
    }
    assert_eq!(bytes, RECORDS * VALUE.len());
    report(&format!("consume {topic} by {records}"), RECORDS, began, cpu);
}

/// A thousand records a second for some seconds, each with its time in it.
fn end_to_end(log: &Arc<dyn RecordLog>) {
    const COUNT: usize = 5000;
    make(&**log, "trip", 4);
    let (mut member, partitions) = join(&**log, "trip");
    let start = Instant::now();
    let sender = log.producer().unwrap();
    let sending = std::thread::spawn(move || {
        for number in 0..COUNT {
            let due = start + Duration::from_millis(number as u64);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let sent = (start.elapsed().as_nanos() as u64).to_le_bytes();
            sender.send(&record("trip", Some((number % 4) as i32), &sent), None).unwrap();
        }
    });
    let mut times = Vec::new();
    let mut wakes = 0;
    while times.len() < COUNT {
        member.wait(PATIENCE);
        wakes += 1;
        member.poll(&mut Vec::new());
        for partition in &partitions {
            let limits = Limits { records: 500, bytes: 1 << 20 };
            while let Some(chunk) = member.fetch(partition, limits).unwrap() {
                let now = start.elapsed();
                for at in 0..chunk.len() {
                    let sent = chunk.record(at).value().unwrap().try_into().unwrap();
                    times.push(now - Duration::from_nanos(u64::from_le_bytes(sent)));
                }
            }
        }
    }
    sending.join().unwrap();
    quantiles(&format!("end to end at 1,000/s ({wakes} waits)"), times);
}

fn main() {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "/var/tmp".into());
    let folder = tempfile::tempdir_in(folder).unwrap();
    let settings = LogSettings::new(&format!("log://{}", folder.path().display()));
    let log = chaton_streams::log::open(&settings).unwrap();
    for partitions in [1, 4] {
        let topic = format!("events{partitions}");
        make(&*log, &topic, partitions);
        produce(&*log, &topic);
        consume(&*log, &topic, 500);
    }
    consume_alone(&*log);
    make(&*log, "single", 1);
    produce_singly(&*log);
    end_to_end(&log);
}

fn consume_alone(log: &dyn RecordLog) {
    let partition = Partition { topic: "events1".into(), number: 0 };
    let mut reader = log.reader(&partition, Position::Earliest).unwrap();
    let (began, cpu) = (Instant::now(), cpu_s());
    let mut count = 0;
    while count < RECORDS {
        let limits = Limits { records: 10_000, bytes: 4 << 20 };
        count += reader.next(limits, PATIENCE).unwrap().map_or(0, |chunk| chunk.len());
    }
    report("read events1 by 10000", RECORDS, began, cpu);
}
