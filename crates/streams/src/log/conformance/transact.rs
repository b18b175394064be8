//! Transactions of records and commits.

use super::fixture::*;
use crate::log::{ErrorKind, Position, RecordLog};
use crate::record::OwnedRecord;

fn records(topic: &str, number: i32, values: std::ops::Range<usize>) -> Vec<OwnedRecord> {
    let one = |value: usize| OwnedRecord {
        topic: topic.to_owned(),
        partition: Some(number),
        value: Some(value.to_string().into_bytes()),
        ..OwnedRecord::default()
    };
    values.map(one).collect()
}

fn committed(log: &dyn RecordLog, group: &str) -> Vec<(i32, i64)> {
    let all = log.admin().unwrap().committed(group).unwrap();
    all.into_iter().map(|commit| (commit.partition, commit.offset)).collect()
}

/// A transaction is visible as a whole.
pub fn a_transaction_is_visible_as_a_whole(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let (from, to) = (topic(&*log, 1), topic(&*log, 1));
    let group = name("group");
    fill(&*log, &from, 0, 0..10);
    let mut consumer = TestMember::join(&*log, &fixture.group(&group, &[&from]));
    consumer.read(10);
    let mut transactor = log.transactional_producer(&name("id")).unwrap();
    for (values, offset) in [(0..5, 5), (5..10, 10)] {
        let member = consumer.member.identity();
        let commits = [commit(&from, 0, offset, "")];
        transactor.transact(&records(&to, 0, values), &group, &member, &commits, &|| true).unwrap();
        consumer.step(MOMENT);
        until("the commit is seen", || committed(&*log, &group) == [(0, offset)]);
    }
    let values = read(&*log, &to, 0, Position::Earliest, 10);
    assert_eq!(values, (0..10).map(|value| value.to_string()).collect::<Vec<_>>());
}

/// A transaction goes to several partitions.
pub fn a_transaction_goes_to_several_partitions(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let (from, one, two) = (topic(&*log, 1), topic(&*log, 2), topic(&*log, 1));
    let group = name("group");
    let mut consumer = TestMember::join(&*log, &fixture.group(&group, &[&from]));
    consumer.has(1);
    let mut all = records(&one, 0, 0..3);
    all.extend(records(&one, 1, 3..6));
    all.extend(records(&two, 0, 6..9));
    let mut transactor = log.transactional_producer(&name("id")).unwrap();
    let member = consumer.member.identity();
    transactor.transact(&all, &group, &member, &[commit(&from, 0, 1, "")], &|| true).unwrap();
    assert_eq!(read(&*log, &one, 0, Position::Earliest, 3), ["0", "1", "2"]);
    assert_eq!(read(&*log, &one, 1, Position::Earliest, 3), ["3", "4", "5"]);
    assert_eq!(read(&*log, &two, 0, Position::Earliest, 3), ["6", "7", "8"]);
}

/// A member that left is fenced.
pub fn a_member_that_left_is_fenced(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let (from, to) = (topic(&*log, 1), topic(&*log, 1));
    let group = name("group");
    let mut consumer = TestMember::join(&*log, &fixture.group(&group, &[&from]));
    consumer.has(1);
    let gone = consumer.member.identity();
    consumer.member.leave(PATIENCE);
    let mut next = TestMember::join(&*log, &fixture.group(&group, &[&from]));
    next.has(1);
    let mut transactor = log.transactional_producer(&name("id")).unwrap();
    let commits = [commit(&from, 0, 5, "")];
    let error =
        transactor.transact(&records(&to, 0, 0..3), &group, &gone, &commits, &|| true).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Fenced, "{error}");
    assert_eq!(committed(&*log, &group), []);
    // Another transactor: one that was fenced may not go on.
    let mut transactor = log.transactional_producer(&name("id")).unwrap();
    let member = next.member.identity();
    transactor.transact(&records(&to, 0, 3..4), &group, &member, &commits, &|| true).unwrap();
    assert_eq!(read(&*log, &to, 0, Position::Earliest, 1), ["3"]);
}

/// Commits alone are a transaction.
pub fn commits_alone_are_a_transaction(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let from = topic(&*log, 1);
    let group = name("group");
    let mut consumer = TestMember::join(&*log, &fixture.group(&group, &[&from]));
    consumer.has(1);
    let mut transactor = log.transactional_producer(&name("id")).unwrap();
    let member = consumer.member.identity();
    transactor.transact(&[], &group, &member, &[commit(&from, 0, 4, "n")], &|| true).unwrap();
    until("the commit is seen", || committed(&*log, &group) == [(0, 4)]);
}
