//! A member that does not fetch holds no more than its buffers. Alone in its
//! process, whose memory is measured.

use std::time::Duration;

use crate::kafka_support::KafkaFixture;
use chaton_streams::log::conformance::fixture::{
    name, partition, record, topic, until, LogFixture, TestMember, LIMITS, MOMENT,
};
use chaton_streams::log::RecordLog;
use chaton_streams::settings::GroupSettings;

const PARTITIONS: i32 = 4;
const RECORDS: usize = 300_000;
const BUFFER_BYTES: usize = 1 << 20;

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

fn pour(log: &dyn RecordLog, topic: &str) {
    let producer = log.producer().unwrap();
    let value = [b'x'; 100];
    for index in 0..RECORDS {
        let number = (index % PARTITIONS as usize) as i32;
        let mut one = record(topic, &value);
        one.partition = Some(number);
        while producer.send(&one, None).is_err() {
            assert!(producer.wait_room(Duration::from_secs(30)));
        }
    }
    assert_eq!(producer.flush(Duration::from_secs(30)), 0);
}

#[test]
fn a_lag_does_not_fill_the_memory() {
    let log = KafkaFixture.open(&|settings| {
        settings.buffer_bytes = BUFFER_BYTES;
        settings.produce_buffer_records = 10_000;
    });
    let topic = topic(&*log, PARTITIONS);
    pour(&*log, &topic);
    let mut member = TestMember::join(&*log, &GroupSettings::for_tests(&name("group"), &[&topic]));
    member.has(PARTITIONS as usize);
    let before = resident_bytes();
    let mut most = before;
    let mut steps = 0;
    until("it would have fetched all", || {
        member.step(MOMENT);
        most = most.max(resident_bytes());
        steps += 1;
        steps == 40
    });
    // The buffers, one answer of a broker for each, and what the allocator
    // keeps: a tenth of what the lag would take.
    let grown = most - before;
    let bound = PARTITIONS as usize * BUFFER_BYTES * 3;
    assert!(grown < bound, "{grown} bytes for buffers of {BUFFER_BYTES} each");
    let mut got = 0;
    until("all is read", || {
        for number in 0..PARTITIONS {
            while let Some(chunk) = member.member.fetch(&partition(&topic, number), LIMITS).unwrap()
            {
                got += chunk.len();
            }
        }
        member.step(MOMENT);
        got == RECORDS
    });
    println!("{grown} bytes while nothing was fetched");
}
