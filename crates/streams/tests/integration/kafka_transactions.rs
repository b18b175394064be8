//! Transactions whose commit has no answer in time, on a real Kafka.

use std::sync::Arc;
use std::time::Duration;

use crate::kafka_support::proxy::{Held, Proxy};
use crate::kafka_support::Broker;
use chaton_streams::log::conformance::fixture::{
    commit, name, partition, read, topic, until, TestMember, MOMENT, PATIENCE,
};
use chaton_streams::log::{open, Position, RecordLog, Result, TransactionalProducer};
use chaton_streams::record::OwnedRecord;
use chaton_streams::settings::GroupSettings;

/// Shorter than the broker is silent.
const ANSWER_TIMEOUT_MS: u64 = 2_000;

/// A consumer of one partition that writes to another in transactions, with a proxy in between.
struct Copier {
    proxy: Arc<Proxy>,
    log: Arc<dyn RecordLog>,
    from: String,
    to: String,
    group: String,
    member: TestMember,
    transactor: Box<dyn TransactionalProducer>,
    _broker: Broker,
}

impl Copier {
    fn new(transaction_timeout_ms: u64) -> Self {
        let proxy = Proxy::start();
        let broker = Broker::behind(proxy.port);
        proxy.connect(broker.address());
        let mut settings = broker.settings();
        let (from, to) = {
            let log = open(&settings).unwrap();
            (topic(&*log, 1), topic(&*log, 1))
        };
        settings.answer_timeout = Duration::from_millis(ANSWER_TIMEOUT_MS);
        settings.delivery_timeout = Duration::from_millis(transaction_timeout_ms);
        let log = open(&settings).unwrap();
        let group = name("group");
        let mut member = TestMember::join(&*log, &GroupSettings::for_tests(&group, &[&from]));
        member.has(1);
        let transactor = log.transactional_producer(&name("id")).unwrap();
        let mut copier = Self { proxy, log, from, to, group, member, transactor, _broker: broker };
        // The coordinators of a new broker need their time.
        while copier.transact(&[], 0).is_err() {}
        copier
    }

    fn transact(&mut self, values: &[&str], offset: i64) -> Result<()> {
        let record = |value: &&str| OwnedRecord {
            topic: self.to.clone(),
            partition: Some(0),
            value: Some(value.as_bytes().to_vec()),
            ..OwnedRecord::default()
        };
        let records: Vec<_> = values.iter().map(record).collect();
        let identity = self.member.member.identity();
        let commits = [commit(&self.from, 0, offset, "")];
        self.transactor.transact(&records, &self.group, &identity, &commits, &|| true)
    }

    /// All visible values, and the committed offset.
    fn end(mut self) -> (Vec<String>, i64) {
        let committed = self.log.admin().unwrap().committed(&self.group).unwrap();
        self.member.step(MOMENT);
        // What is behind the last one is seen as well.
        let last = loop {
            if self.transact(&["last"], 9).is_ok() {
                break "last";
            }
        };
        let mut values = Vec::new();
        while values.last().is_none_or(|value| value != last) {
            values = read(&*self.log, &self.to, 0, Position::Earliest, values.len() + 1);
        }
        values.pop();
        (values, committed[0].offset)
    }
}

#[test]
fn a_commit_whose_answer_is_late_is_waited_for() {
    let mut copier = Copier::new(60_000);
    copier.proxy.hold(Held::Answer);
    let proxy = copier.proxy.clone();
    let releaser = std::thread::spawn(move || {
        proxy.wait_held();
        // The silence itself is what is tested.
        std::thread::sleep(Duration::from_millis(2 * ANSWER_TIMEOUT_MS));
        proxy.release();
    });
    copier.transact(&["a", "b"], 2).unwrap();
    releaser.join().unwrap();
    copier.transact(&["c"], 3).unwrap();
    assert_eq!(copier.end(), (vec!["a".into(), "b".into(), "c".into()], 3));
}

#[test]
fn a_commit_that_is_never_answered_is_found_by_its_number() {
    let mut copier = Copier::new(5_000);
    copier.transact(&["a"], 2).unwrap();
    // The offset is the one that is committed already.
    copier.proxy.hold(Held::Answer);
    copier.transact(&["b"], 2).unwrap();
    copier.proxy.wait_held();
    copier.transact(&["c"], 3).unwrap();
    assert_eq!(copier.end(), (vec!["a".into(), "b".into(), "c".into()], 3));
}

#[test]
fn a_commit_that_the_broker_never_got_has_not_happened() {
    let mut copier = Copier::new(5_000);
    copier.transact(&["a"], 2).unwrap();
    copier.proxy.hold(Held::Request);
    copier.transact(&["b"], 2).unwrap_err();
    copier.transact(&["b"], 2).unwrap();
    assert_eq!(copier.end(), (vec!["a".into(), "b".into()], 2));
}

#[test]
fn the_position_moves_past_the_markers_of_transactions() {
    let log = crate::kafka_support::log();
    let topic = topic(&*log, 1);
    let record = |value: &str| OwnedRecord {
        topic: topic.clone(),
        partition: Some(0),
        value: Some(value.into()),
        ..OwnedRecord::default()
    };
    let mut transactor = log.transactional_producer(&name("id")).unwrap();
    transactor.transact(&[record("0"), record("1")], "g", b"", &[], &|| true).unwrap();
    let settings = GroupSettings::for_tests(&name("g"), &[&topic]);
    let mut member = TestMember::join(&*log, &settings);
    member.read(2);
    // Two records and the marker.
    until("the marker is passed", || {
        member.fetch();
        member.step(MOMENT);
        member.member.position(&partition(&topic, 0)) == Some(3)
    });
    assert_eq!(member.member.end_offset(&partition(&topic, 0)), Some(3));
    // A member that begins in front of the marker, and one behind a seek.
    member.member.commit(&[commit(&topic, 0, 2, "")], true).unwrap();
    member.member.leave(PATIENCE);
    let mut next = TestMember::join(&*log, &settings);
    until("the marker is passed again", || {
        next.fetch();
        next.step(MOMENT);
        next.member.position(&partition(&topic, 0)) == Some(3)
    });
    assert!(next.values.is_empty());
    next.member.seek(&partition(&topic, 0), Position::Offset(0)).unwrap();
    next.read(2);
}
