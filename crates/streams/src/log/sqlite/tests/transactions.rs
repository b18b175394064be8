//! Transactions whose writer is killed are in tests/local_processes.rs.

use super::*;
use crate::log::{Commit, ErrorKind};
use crate::record::OwnedRecord;

#[test]
fn a_transaction_that_is_refused_leaves_nothing() {
    let place = TempLog::new();
    let log = place.open(&|_| {});
    log.admin().unwrap().create(&new_topic("t", 2, &[])).unwrap();
    fill(&*log, "t", 0, 0..1);
    let mut member = TestMember::join(&*log, &GroupSettings::for_tests("g", &["t"]));
    member.has(2);
    let mut transactor = log.transactional_producer("one").unwrap();
    let to = |partition| OwnedRecord {
        topic: "t".into(),
        partition: Some(partition),
        value: Some(b"x".to_vec()),
        ..OwnedRecord::default()
    };
    let mut transact = |partition, commits: &[Commit], member: &[u8]| {
        transactor.transact(&[to(0), to(partition)], "g", member, commits, &|| true)
    };
    let identity = member.member.identity();
    let ends = || {
        let topic = log.admin().unwrap().topic("t").unwrap().unwrap();
        topic.partitions.iter().map(|one| one.end).collect::<Vec<_>>()
    };
    let error = transact(1, &[commit("t", 0, 1, "")], b"another").unwrap_err();
    assert_eq!((error.kind, ends()), (ErrorKind::Fenced, vec![1, 0]));
    let error = transact(7, &[commit("t", 0, 1, "")], &identity).unwrap_err();
    assert_eq!((error.kind, ends()), (ErrorKind::UnknownTopic, vec![1, 0]));
    // The damage is found after the first records are written.
    place.change("UPDATE partitions SET number=9 WHERE number=1");
    let error = transact(1, &[commit("t", 0, 1, "")], &identity).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Corrupt);
    assert_eq!(ends(), [1]);
    assert_eq!(log.admin().unwrap().committed("g").unwrap(), []);
    place.change("UPDATE partitions SET number=1 WHERE number=9");
    transact(1, &[commit("t", 0, 1, "noted")], &identity).unwrap();
    assert_eq!(ends(), [2, 1]);
    assert_eq!(log.admin().unwrap().committed("g").unwrap(), [commit("t", 0, 1, "noted")]);
}
