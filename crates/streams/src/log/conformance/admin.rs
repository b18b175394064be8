//! Managing topics and groups.

use std::time::Duration;

use super::fixture::*;
use crate::log::{ErrorKind, PartitionOffsets};

/// A topic is described.
pub fn a_topic_is_described(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let name = topic(&*log, 2);
    fill(&*log, &name, 1, 0..5);
    let mut admin = log.admin().unwrap();
    let found = admin.topic(&name).unwrap().unwrap();
    assert_eq!((found.name.as_str(), found.replication), (name.as_str(), 1));
    let state = |number, end| PartitionOffsets { number, start: 0, end };
    assert_eq!(found.partitions, [state(0, 0), state(1, 5)]);
    assert!(admin.topics().unwrap().iter().any(|topic| topic.name == name));
}

/// A topic is created once.
pub fn a_topic_is_created_once(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let name = topic(&*log, 1);
    let error = log.admin().unwrap().create(&new_topic(&name, 1, &[])).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert!(error.message.contains(&name), "{error}");
}

/// A topic grows.
pub fn a_topic_grows(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let name = topic(&*log, 2);
    let mut admin = log.admin().unwrap();
    admin.grow(&name, 5).unwrap();
    until("it has grown", || settled(&mut *admin, &name, 5));
    assert_eq!(admin.grow(&name, 3).unwrap_err().kind, ErrorKind::Invalid);
}

/// Settings are kept.
pub fn settings_are_kept(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let name = topic_with(&*log, 1, &[("retention.ms", "60000"), ("segment.bytes", "1048576")]);
    let mut admin = log.admin().unwrap();
    admin.configure(&name, &[("retention.ms".to_owned(), "70000".to_owned())].into()).unwrap();
    until("the setting is there", || {
        std::thread::sleep(Duration::from_millis(5));
        let settings = admin.topic(&name).unwrap().unwrap().settings;
        settings.get("retention.ms").map(String::as_str) == Some("70000")
            && settings.get("segment.bytes").map(String::as_str) == Some("1048576")
    });
}

/// A deleted topic is gone.
pub fn a_deleted_topic_is_gone(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let name = topic(&*log, 1);
    fill(&*log, &name, 0, 0..5);
    let mut admin = log.admin().unwrap();
    admin.delete(&name).unwrap();
    until("it is gone", || {
        std::thread::sleep(Duration::from_millis(5));
        admin.topic(&name).unwrap().is_none()
    });
    assert!(!admin.topics().unwrap().iter().any(|topic| topic.name == name));
}

/// Unknown topics are reported.
pub fn unknown_topics_are_reported(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let name = name("nowhere");
    let mut admin = log.admin().unwrap();
    assert_eq!(admin.topic(&name).unwrap(), None);
    for error in [
        admin.delete(&name).unwrap_err(),
        admin.grow(&name, 9).unwrap_err(),
        admin.configure(&name, &[("retention.ms".into(), "1".into())].into()).unwrap_err(),
    ] {
        assert_eq!(error.kind, ErrorKind::UnknownTopic, "{error}");
    }
    assert_eq!(admin.committed(&name).unwrap(), []);
}

/// Wrong arguments are reported.
pub fn wrong_arguments_are_reported(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let mut admin = log.admin().unwrap();
    let wrong = [
        new_topic("no/slash", 1, &[]),
        new_topic(&name("zero"), 0, &[]),
        new_topic(&name("setting"), 1, &[("retention.mss", "1")]),
        new_topic(&name("value"), 1, &[("retention.ms", "a day")]),
    ];
    for topic in &wrong {
        let error = admin.create(topic).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid, "{topic:?}: {error}");
    }
}

/// Groups are described.
pub fn groups_are_described(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let topic = topic(&*log, 2);
    let group = name("group");
    let mut member = TestMember::join(&*log, &fixture.group(&group, &[&topic]));
    member.has(2);
    member.member.commit(&[commit(&topic, 0, 0, "")], true).unwrap();
    let mut admin = log.admin().unwrap();
    let mut find = || admin.groups().unwrap().into_iter().find(|one| one.name == group);
    until("the group is stable", || {
        member.step(MOMENT);
        find().is_some_and(|group| group.state == "Stable")
    });
    let found = find().unwrap();
    assert_eq!(found.members.len(), 1);
    let mut partitions = found.members[0].partitions.clone();
    partitions.sort();
    assert_eq!(partitions, [format!("{topic}-0"), format!("{topic}-1")]);
    member.member.leave(PATIENCE);
    until("the group is empty", || {
        std::thread::sleep(Duration::from_millis(5));
        find().is_some_and(|group| group.state == "Empty" && group.members.is_empty())
    });
}

/// Offsets are set.
pub fn offsets_are_set(fixture: &dyn LogFixture) {
    let log = log(fixture);
    let topic = topic(&*log, 2);
    let group = name("group");
    fill(&*log, &topic, 0, 0..10);
    let mut admin = log.admin().unwrap();
    let commits = [commit(&topic, 0, 6, "by hand"), commit(&topic, 1, 0, "")];
    admin.set_committed(&group, &commits).unwrap();
    let mut found = admin.committed(&group).unwrap();
    found.sort_by_key(|commit| commit.partition);
    assert_eq!(found, commits);
    let mut member = TestMember::join(&*log, &fixture.group(&group, &[&topic]));
    member.read(4);
    assert_eq!(member.numbers(), [6, 7, 8, 9]);
    let error = admin.set_committed(&group, &[commit(&topic, 0, 0, "")]).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Refused, "{error}");
    member.member.leave(PATIENCE);
    until("it can be set again", || {
        std::thread::sleep(Duration::from_millis(5));
        admin.set_committed(&group, &[commit(&topic, 0, 0, "")]).is_ok()
    });
    assert_eq!(admin.committed(&group).unwrap().len(), 2);
}
