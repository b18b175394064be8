//! How fast the Kafka log is beside a real broker: records of 100 bytes,
//! librdkafka's own batch call against `GroupMember::fetch` (which copies into
//! chunks), and the producer with receipts. Prints rates and CPU per million.
//!
//! `cargo run --release -p chaton-streams --example kafka_speed HOST:PORT [RECORDS] [PARTITIONS] [produce|latency]`

#[cfg(feature = "kafka")]
fn main() {
    speed::run();
}

#[cfg(not(feature = "kafka"))]
fn main() {
    println!("built without Kafka");
}

#[cfg(feature = "kafka")]
mod speed {
    use std::ffi::CString;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use chaton_core::event_fd::EventFd;
    use chaton_streams::log::{
        open, ErrorKind, Limits, MemberEvent, NewTopic, Partition, RecordLog,
    };
    use chaton_streams::receipt::Receipt;
    use chaton_streams::record::NewRecord;
    use chaton_streams::settings::{GroupSettings, LogSettings};
    use rdkafka_sys as sys;

    const VALUE_BYTES: usize = 100;
    const LIMITS: Limits = Limits { records: 1000, bytes: 1 << 20 };

    pub fn run() {
        let mut words = std::env::args().skip(1);
        let address = words.next().unwrap_or_else(|| "127.0.0.1:9092".into());
        let records: usize = words.next().map_or(1_000_000, |word| word.parse().unwrap());
        let partitions: i32 = words.next().map_or(1, |word| word.parse().unwrap());
        let log = open(&LogSettings::new(&format!("kafka://{address}"))).unwrap();
        let topic = format!("speed-{}", std::process::id());
        let mut admin = log.admin().unwrap();
        let new = NewTopic {
            name: topic.clone(),
            partitions: Some(partitions),
            replication: None,
            settings: std::collections::BTreeMap::new(),
        };
        admin.create(&new).unwrap();
        while admin.topic(&topic).unwrap().is_none() {
            std::thread::yield_now();
        }
        let only = words.next().unwrap_or_default();
        if only != "latency" {
            produce(&*log, &topic, records);
        }
        for round in (0..3).take_while(|_| only.is_empty()) {
            raw(&address, &topic, partitions, records);
            fetch(&*log, &topic, records, round);
        }
        if only != "produce" {
            latency(&*log, &topic);
        }
        admin.delete(&topic).unwrap();
    }

    fn report(what: &str, records: usize, began: Instant, cpu: f64) {
        let seconds = began.elapsed().as_secs_f64();
        let millions = records as f64 / 1e6;
        println!(
            "{what:<28} {:>6.2} M/s   {:.2} s of CPU per 1 M",
            millions / seconds,
            (cpu_s() - cpu) / millions
        );
    }

    /// Of this process, all threads.
    fn cpu_s() -> f64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes to a place of ours.
        unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    }

    fn produce(log: &dyn RecordLog, topic: &str, records: usize) {
        let producer = log.producer().unwrap();
        let value = [b'x'; VALUE_BYTES];
        let (began, cpu) = (Instant::now(), cpu_s());
        let receipts: Vec<_> = (0..records.div_ceil(1000)).map(|_| Receipt::new(1000)).collect();
        let receipts: Vec<_> = receipts.into_iter().map(Arc::new).collect();
        for index in 0..records {
            let record = NewRecord {
                topic,
                partition: None,
                key: None,
                value: Some(&value),
                headers: &[],
                timestamp_ms: None,
            };
            while let Err(error) =
                producer.send(&record, Some((&receipts[index / 1000], index % 1000)))
            {
                assert_eq!(error.kind, ErrorKind::Full, "{error}");
                producer.wait_room(Duration::from_secs(30));
            }
        }
        producer.flush(Duration::from_secs(60));
        assert!(receipts.iter().all(|receipt| receipt.is_done() && receipt.failed() == 0));
        report("producer, a receipt per 1000", records, began, cpu);
        single_receipts(&*producer, topic, &value, records / 2);
    }

    fn single_receipts(
        producer: &dyn chaton_streams::log::Producer,
        topic: &str,
        value: &[u8],
        records: usize,
    ) {
        let (began, cpu) = (Instant::now(), cpu_s());
        let mut last = Arc::new(Receipt::new(0));
        for _ in 0..records {
            let receipt = Arc::new(Receipt::new(1));
            let record = NewRecord {
                topic,
                partition: None,
                key: None,
                value: Some(value),
                headers: &[],
                timestamp_ms: None,
            };
            while let Err(error) = producer.send(&record, Some((&receipt, 0))) {
                assert_eq!(error.kind, ErrorKind::Full, "{error}");
                producer.wait_room(Duration::from_secs(30));
            }
            last = receipt;
        }
        producer.flush(Duration::from_secs(60));
        assert!(last.is_done());
        report("producer, a receipt each", records, began, cpu);
    }

    fn fetch(log: &dyn RecordLog, topic: &str, records: usize, round: usize) {
        let bell = Arc::new(EventFd::new().unwrap());
        let group = GroupSettings::new(&format!("{topic}-{round}"), &[topic]);
        let mut member = log.member(&group, &bell).unwrap();
        let mut partitions: Vec<Partition> = Vec::new();
        let (mut got, mut chunks, mut waits) = (0, 0, 0);
        let mut events = Vec::new();
        let mut first = None;
        while got < records {
            member.poll(&mut events);
            for event in events.drain(..) {
                if let MemberEvent::Assigned(all) = event {
                    partitions.extend(all.into_iter().map(|one| one.partition));
                    first = Some((Instant::now(), cpu_s()));
                }
            }
            let before = got;
            for partition in &partitions {
                while let Some(chunk) = member.fetch(partition, LIMITS).unwrap() {
                    got += chunk.len();
                    chunks += 1;
                }
            }
            if got == before {
                waits += 1;
                member.wait(Duration::from_secs(1));
            }
        }
        let (began, cpu) = first.unwrap();
        report("Member::fetch", got, began, cpu);
        println!("{:<28} {chunks} chunks, {waits} waits", "");
        member.leave(Duration::from_secs(5));
    }

    /// Records one by one, 1,000 a second: from before the send to after the fetch.
    fn latency(log: &dyn RecordLog, topic: &str) {
        let mut settings = LogSettings::new(&format!("kafka://{}", &log.address()[8..]));
        settings.linger_ms = 0.0;
        let producer = open(&settings).unwrap().producer().unwrap();
        let bell = Arc::new(EventFd::new().unwrap());
        let mut group = GroupSettings::new(&format!("{topic}-latency"), &[topic]);
        group.start = chaton_streams::settings::Start::Latest;
        let mut member = log.member(&group, &bell).unwrap();
        let mut partitions: Vec<Partition> = Vec::new();
        let mut events = Vec::new();
        let began = Instant::now();
        let mut taken: Vec<Duration> = Vec::new();
        let topic = topic.to_owned();
        let mut sender = None;
        while taken.len() < 3000 && began.elapsed() < Duration::from_secs(30) {
            member.wait(Duration::from_millis(100));
            member.poll(&mut events);
            for event in events.drain(..) {
                if let MemberEvent::Assigned(all) = event {
                    partitions.extend(all.into_iter().map(|one| one.partition));
                }
            }
            for partition in &partitions {
                while let Some(chunk) = member.fetch(partition, LIMITS).unwrap() {
                    for index in 0..chunk.len() {
                        let value = chunk.record(index).value().unwrap();
                        let sent = u64::from_le_bytes(value[..8].try_into().unwrap());
                        taken.push(began.elapsed().saturating_sub(Duration::from_nanos(sent)));
                    }
                }
            }
            if !partitions.is_empty() && sender.is_none() && began.elapsed().as_secs() >= 2 {
                let (producer, topic) = (producer.clone(), topic.clone());
                sender = Some(std::thread::spawn(move || {
                    let start = Instant::now();
                    for tick in 0..3500u32 {
                        let due = Duration::from_millis(1) * tick;
                        std::thread::sleep(due.saturating_sub(start.elapsed()));
                        let now = began.elapsed().as_nanos() as u64;
                        let record = NewRecord {
                            topic: &topic,
                            partition: None,
                            key: None,
                            value: Some(&now.to_le_bytes()),
                            headers: &[],
                            timestamp_ms: None,
                        };
                        producer.send(&record, None).unwrap();
                    }
                }));
            }
        }
        taken.sort_unstable();
        let at = |share: f64| taken[((taken.len() - 1) as f64 * share) as usize];
        println!(
            "latency of {} at 1,000/s       p50 {:.1?}  p99 {:.1?}  max {:.1?}",
            taken.len(),
            at(0.5),
            at(0.99),
            at(1.0)
        );
        sender.map(std::thread::JoinHandle::join);
    }

    /// librdkafka alone: one queue, batches of 1,000, nothing copied.
    fn raw(address: &str, topic: &str, partitions: i32, records: usize) {
        let text = |value: &str| CString::new(value).unwrap();
        // SAFETY: librdkafka's calls in their order, with texts that end and
        // places of ours; each message is destroyed once.
        unsafe {
            let conf = sys::rd_kafka_conf_new();
            for (name, value) in [
                ("bootstrap.servers", address),
                ("fetch.queue.backoff.ms", "10"),
                ("fetch.wait.max.ms", "100"),
            ] {
                let (name, value) = (text(name), text(value));
                let none = std::ptr::null_mut();
                sys::rd_kafka_conf_set(conf, name.as_ptr(), value.as_ptr(), none, 0);
            }
            let kind = sys::rd_kafka_type_t::RD_KAFKA_CONSUMER;
            let handle = sys::rd_kafka_new(kind, conf, std::ptr::null_mut(), 0);
            let name = text(topic);
            let rkt = sys::rd_kafka_topic_new(handle, name.as_ptr(), std::ptr::null_mut());
            let queue = sys::rd_kafka_queue_new(handle);
            for partition in 0..partitions {
                let start = i64::from(sys::RD_KAFKA_OFFSET_BEGINNING);
                sys::rd_kafka_consume_start_queue(rkt, partition, start, queue);
            }
            let mut room = vec![std::ptr::null_mut(); 1000];
            let mut got = 0;
            // Without its connecting: ours is connected when it is assigned.
            let (mut began, mut cpu) = (Instant::now(), cpu_s());
            while got < records {
                if got == 0 {
                    (began, cpu) = (Instant::now(), cpu_s());
                }
                let some =
                    sys::rd_kafka_consume_batch_queue(queue, 10, room.as_mut_ptr(), room.len());
                for message in &room[..some.max(0) as usize] {
                    sys::rd_kafka_message_destroy(*message);
                }
                got += some.max(0) as usize;
            }
            report("librdkafka's batches of 1000", got, began, cpu);
            for partition in 0..partitions {
                sys::rd_kafka_consume_stop(rkt, partition);
            }
            sys::rd_kafka_queue_destroy(queue);
            sys::rd_kafka_topic_destroy(rkt);
            sys::rd_kafka_destroy(handle);
        }
    }
}
