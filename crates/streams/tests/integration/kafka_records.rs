//! Records on a real Kafka: compressed, large, in transactions.

use std::sync::Arc;
use std::time::Duration;

use crate::kafka_support::KafkaFixture;
use chaton_streams::log::conformance::fixture::{
    commit, name, partition, read, record, send, texts, topic, topic_with, until, LogFixture,
    TestMember, LIMITS, MOMENT,
};
use chaton_streams::log::{ErrorKind, Limits, Position};
use chaton_streams::receipt::Receipt;
use chaton_streams::record::{NewRecord, OwnedRecord};
use chaton_streams::settings::GroupSettings;

#[test]
fn records_of_each_compression_are_read() {
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let log = KafkaFixture.open(&|settings| settings.compression = Some(codec.into()));
        let topic = topic(&*log, 1);
        let value = "compress me ".repeat(500);
        let producer = log.producer().unwrap();
        let receipt = Arc::new(Receipt::new(50));
        for index in 0..50 {
            let headers = [(&b"codec"[..], Some(codec.as_bytes()))];
            let one = NewRecord { headers: &headers, ..record(&topic, value.as_bytes()) };
            producer.send(&one, Some((&receipt, index))).unwrap();
        }
        assert!(receipt.wait(Duration::from_secs(30)));
        assert_eq!(receipt.failures(), [], "{codec}");
        let mut reader = log.reader(&partition(&topic, 0), Position::Earliest).unwrap();
        let mut got = 0;
        until("they are read", || {
            if let Some(chunk) = reader.next(LIMITS, MOMENT).unwrap() {
                for at in 0..chunk.len() {
                    let one = chunk.record(at);
                    assert_eq!(one.value(), Some(value.as_bytes()));
                    let headers: Vec<_> = one.headers().collect();
                    assert_eq!(headers, [(&b"codec"[..], Some(codec.as_bytes()))]);
                }
                got += chunk.len();
            }
            got == 50
        });
    }
}

#[test]
fn keys_and_values_may_be_null_or_empty() {
    let log = crate::kafka_support::log();
    let topic = topic(&*log, 1);
    let producer = log.producer().unwrap();
    let cases =
        [(None, Some(&b"v"[..])), (Some(&b"k"[..]), None), (Some(b""), Some(b"")), (None, None)];
    let headers = [(&b"twice"[..], Some(&b"1"[..])), (b"twice", None), (b"empty", Some(b""))];
    for (key, value) in cases {
        for headers in [&headers[..], &[]] {
            let one = NewRecord { key, value, headers, ..record(&topic, b"") };
            send(&*producer, &one).unwrap();
        }
    }
    let mut reader = log.reader(&partition(&topic, 0), Position::Earliest).unwrap();
    let mut got = Vec::new();
    until("they are read", || {
        if let Some(chunk) = reader.next(LIMITS, MOMENT).unwrap() {
            for at in 0..chunk.len() {
                let one = chunk.record(at);
                let own = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
                let count = one.headers().count();
                if count > 0 {
                    assert_eq!(one.headers().collect::<Vec<_>>(), headers);
                }
                got.push((own(one.key()), own(one.value()), count));
            }
        }
        got.len() == cases.len() * 2
    });
    let own = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
    let expected = cases.iter().flat_map(|(k, v)| [3, 0].map(|n| (own(*k), own(*v), n)));
    assert_eq!(got, expected.collect::<Vec<_>>());
}

#[test]
fn a_record_too_large_for_the_topic_fails_with_advice() {
    let log = crate::kafka_support::log();
    let topic = topic_with(&*log, 1, &[("max.message.bytes", "2000")]);
    let producer = log.producer().unwrap();
    let error = send(&*producer, &record(&topic, &[b'x'; 10_000])).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid);
    for part in ["10000 bytes", topic.as_str(), "message.max.bytes"] {
        assert!(error.message.contains(part), "{error}");
    }
    // One alone suffers.
    send(&*producer, &record(&topic, b"small")).unwrap();
}

#[test]
fn a_record_may_be_larger_than_the_buffer() {
    let log = KafkaFixture.open(&|settings| {
        settings.buffer_bytes = 256 << 10;
        settings.producer_properties.insert("message.max.bytes".into(), "6000000".into());
    });
    let topic = topic_with(&*log, 1, &[("max.message.bytes", "6000000")]);
    let large = vec![b'x'; 5_000_000];
    send(&*log.producer().unwrap(), &record(&topic, &large)).unwrap();
    let mut member = TestMember::join(&*log, &GroupSettings::for_tests(&name("group"), &[&topic]));
    member.has(1);
    let mut length = 0;
    until("it is read", || {
        member.step(MOMENT);
        let limits = Limits { records: 10, bytes: 1000 };
        if let Some(chunk) = member.member.fetch(&partition(&topic, 0), limits).unwrap() {
            length += chunk.record(0).value().unwrap().len();
        }
        length > 0
    });
    assert_eq!(length, large.len());
}

fn owned(topic: &str, value: &[u8]) -> OwnedRecord {
    OwnedRecord {
        topic: topic.into(),
        partition: Some(0),
        value: Some(value.to_vec()),
        ..OwnedRecord::default()
    }
}

#[test]
fn aborted_records_are_not_visible() {
    let log = crate::kafka_support::log();
    let topic = topic_with(&*log, 1, &[("max.message.bytes", "2000")]);
    let mut transactor = log.transactional_producer(&name("id")).unwrap();
    let records = [owned(&topic, b"0"), owned(&topic, &[b'x'; 10_000])];
    let error = transactor.transact(&records, "g", b"", &[], &|| true).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
    assert!(error.message.contains(&topic), "{error}");
    transactor.transact(&[owned(&topic, b"1")], "g", b"", &[], &|| true).unwrap();
    assert_eq!(read(&*log, &topic, 0, Position::Earliest, 1), ["1"]);
    let mut member = TestMember::join(&*log, &GroupSettings::for_tests(&name("group"), &[&topic]));
    member.read(1);
    assert_eq!(member.numbers(), [1]);
}

#[test]
fn a_second_producer_of_an_id_fences_the_first() {
    let log = crate::kafka_support::log();
    let topic = topic(&*log, 1);
    let id = name("id");
    let mut first = log.transactional_producer(&id).unwrap();
    first.transact(&[owned(&topic, b"0")], "g", b"", &[], &|| true).unwrap();
    let mut second = log.transactional_producer(&id).unwrap();
    second.transact(&[owned(&topic, b"1")], "g", b"", &[], &|| true).unwrap();
    let error = first.transact(&[owned(&topic, b"2")], "g", b"", &[], &|| true).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Fenced, "{error}");
    // A new handle, so the first may go on if it will.
    first.transact(&[owned(&topic, b"3")], "g", b"", &[], &|| true).unwrap();
    assert_eq!(read(&*log, &topic, 0, Position::Earliest, 3), ["0", "1", "3"]);
}

#[test]
fn an_unknown_topic_fails_its_transaction() {
    let log =
        KafkaFixture.open(&|settings| settings.answer_timeout = Duration::from_millis(20_000));
    let topic = topic(&*log, 1);
    let group = GroupSettings::for_tests(&name("group"), &[&topic]);
    let mut member = TestMember::join(&*log, &group);
    member.has(1);
    let mut transactor = log.transactional_producer(&name("id")).unwrap();
    let member = member.member.identity();
    let commits = [commit(&topic, 0, 7, "")];
    let records = [owned(&topic, b"0"), owned(&name("none"), b"1")];
    let error =
        transactor.transact(&records, &group.name, &member, &commits, &|| true).unwrap_err();
    assert_eq!(error.kind, ErrorKind::UnknownTopic, "{error}");
    assert_eq!(log.admin().unwrap().committed(&group.name).unwrap(), []);
    let mut reader = log.reader(&partition(&topic, 0), Position::Earliest).unwrap();
    assert!(reader.next(LIMITS, MOMENT).unwrap().map_or(vec![], |all| texts(&all)).is_empty());
}
