//! Transactions whose writer is killed are in tests/integration/local_processes.rs.

use chaton_embedded::change_file::ChangeFile;

use super::*;
use crate::log::sqlite::log_dir::CHANGES;
use crate::log::{Commit, ErrorKind, MemberEvent};
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

#[test]
fn a_transaction_of_a_partition_that_was_lost_and_came_back_at_once_is_refused() {
    let place = TempLog::new();
    let log = place.open(&|_| {});
    log.admin().unwrap().create(&new_topic("t", 2, &[])).unwrap();
    fill(&*log, "t", 0, 0..1);
    let mut member = TestMember::join(&*log, &GroupSettings::for_tests("g", &["t"]));
    member.has(2);
    let former = member.member.identity();
    // As by a member that has taken this one for dead, and by damage.
    let notifies = ChangeFile::open(&place.path().join("log.db"), CHANGES).unwrap();
    for owners in ["json_remove(state, '$.owners')", "json_set(state, '$.owners', json('{}'))"] {
        place.change(&format!("UPDATE groups SET state={owners}"));
        notifies.notify();
        let mut events = Vec::new();
        until("the partition is lost and back", || {
            member.member.wait(MOMENT);
            member.member.poll(&mut events);
            events.iter().any(|event| matches!(event, MemberEvent::Assigned(all) if all.len() == 2))
        });
        assert!(matches!(&events[0], MemberEvent::Lost(lost) if lost.len() == 2), "{events:?}");
    }
    let mut transactor = log.transactional_producer("one").unwrap();
    let mut transact = |identity: &[u8]| {
        transactor.transact(&[], "g", identity, &[commit("t", 0, 1, "")], &|| true)
    };
    assert_eq!(transact(&former).unwrap_err().kind, ErrorKind::Fenced);
    transact(&member.member.identity()).unwrap();
}
